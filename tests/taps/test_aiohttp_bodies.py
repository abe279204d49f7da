"""The tap on aiohttp: every way to read a body, and every way in which that ends."""

from __future__ import annotations

import asyncio
import gc
import gzip
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from http_kit import BODY, rounds, url
from opentelemetry import trace
from opentelemetry.trace import StatusCode

import clew
from clew.testing import CaptureExporter, Reply, ScriptedProvider

aiohttp = pytest.importorskip("aiohttp")


STREAMED = {**BODY, "stream": True, "stream_options": {"include_usage": True}}


async def by_lines(content: Any) -> bytes:
    return b"".join([line async for line in content])


async def by_chunked(content: Any) -> bytes:
    return b"".join([piece async for piece in content.iter_chunked(7)])


async def by_any(content: Any) -> bytes:
    return b"".join([piece async for piece in content.iter_any()])


async def by_chunks(content: Any) -> bytes:
    return b"".join([piece async for piece, _ in content.iter_chunks()])


async def by_readline(content: Any) -> bytes:
    lines = []
    while line := await content.readline():
        lines.append(line)
    return b"".join(lines)


async def by_readuntil(content: Any) -> bytes:
    lines = []
    while line := await content.readuntil(b"\n\n"):
        lines.append(line)
    return b"".join(lines)


async def by_read(content: Any) -> bytes:
    pieces = []
    while piece := await content.read(10):
        pieces.append(piece)
    return b"".join(pieces)


async def by_readany(content: Any) -> bytes:
    pieces = []
    while piece := await content.readany():
        pieces.append(piece)
    return b"".join(pieces)


async def at_once(content: Any) -> bytes:
    return await content.read()


async def without_waiting(content: Any) -> bytes:
    pieces = [await content.readexactly(3)]
    while not content.at_eof():
        pieces.append(content.read_nowait())
        await asyncio.sleep(0.005)
    return b"".join(pieces)


Read = Callable[[Any], Awaitable[bytes]]


@pytest.mark.parametrize(
    "read",
    [
        by_lines,
        by_chunked,
        by_any,
        by_chunks,
        by_readline,
        by_readuntil,
        by_read,
        by_readany,
        at_once,
        without_waiting,
    ],
)
async def test_a_stream_read_in_any_way(
    exported: CaptureExporter, server: ScriptedProvider, session: Any, read: Read
) -> None:
    """Every way of reading a body gives the caller the same bytes and the round its facts."""
    clew.instrument()
    server.add(Reply(text=("a", "b", "c"), event_delay=0.005))
    tracer = trace.get_tracer("app")
    with clew.run("triage"), tracer.start_as_current_span("outer") as outer:
        async with session.post(url(server), json=STREAMED) as response:
            assert trace.get_current_span() is outer
            text = await read(response.content)
            assert trace.get_current_span() is outer
    assert text.endswith(b"data: [DONE]\n\n")
    (found,) = rounds(exported)
    assert found["clew.stream.outcome"] == "complete"
    assert found["gen_ai.usage.output_tokens"] == 7
    assert found["clew.stream.chunks"] == text.count(b"\n\n") - 1
    assert found["clew.response.bytes"] == len(text)
    assert 0 < found["gen_ai.response.time_to_first_chunk"] < 5


@pytest.mark.parametrize("how", ["break", "close", "release"])
async def test_a_stream_left_early(
    exported: CaptureExporter, server: ScriptedProvider, session: Any, how: str
) -> None:
    """Leaving a stream is no error, and gives its connection back."""
    clew.instrument()
    server.add(Reply(text=tuple("abcdefgh"), event_delay=0.01))
    with clew.run("triage"):
        async with session.post(url(server), json=STREAMED) as response:
            async for _ in response.content:
                break
            if how != "break":
                getattr(response, how)()
    (found,) = rounds(exported)
    assert found["clew.stream.outcome"] == "closed"
    (span,) = exported.by_name("chat")
    assert span.status.status_code is StatusCode.UNSET
    for _ in range(100):
        if not server.open_connections:
            break
        await asyncio.sleep(0.02)
    assert server.open_connections == 0


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
async def test_a_stream_that_is_dropped_is_abandoned(
    exported: CaptureExporter, server: ScriptedProvider, session: Any
) -> None:
    """A response that nobody closes ends its round when it is collected."""
    clew.instrument()
    server.add(Reply(text=tuple("abcdefgh"), event_delay=0.005))
    with clew.run("triage"):
        response = await session.post(url(server), json=STREAMED)
        await response.content.readany()
        del response
        gc.collect()
        for _ in range(100):
            if rounds(exported):
                break
            await asyncio.sleep(0.02)
    assert [found["clew.stream.outcome"] for found in rounds(exported)] == ["abandoned"]


async def test_a_task_that_is_cancelled_while_it_reads(
    exported: CaptureExporter, server: ScriptedProvider, session: Any
) -> None:
    """Cancelling is neither success nor failure of the stream."""
    clew.instrument()
    server.add(Reply(text=tuple("abcdefgh"), hang_after=2))

    async def work() -> None:
        async with session.post(url(server), json=STREAMED) as response:
            async for _ in response.content:
                pass

    with clew.run("triage"):
        task = asyncio.create_task(work())
        await asyncio.sleep(0.2)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    (found,) = rounds(exported)
    assert found["clew.stream.outcome"] == "cancelled"


async def test_a_read_that_takes_too_long(
    exported: CaptureExporter, server: ScriptedProvider, session: Any
) -> None:
    """The caller's timeout is told as such."""
    clew.instrument()
    server.add(Reply(text=tuple("abcdefgh"), hang_after=2))
    limit = aiohttp.ClientTimeout(sock_read=0.2)
    with clew.run("triage"):
        async with session.post(url(server), json=STREAMED, timeout=limit) as response:
            with pytest.raises(TimeoutError):
                await response.read()
    (found,) = rounds(exported)
    assert found["clew.stream.outcome"] == "timeout"
    assert found["error.type"].startswith("aiohttp.")


async def test_a_connection_lost_in_the_middle(
    exported: CaptureExporter, server: ScriptedProvider, session: Any
) -> None:
    """The caller's exception passes; the round is failed."""
    clew.instrument()
    server.add(Reply(text=tuple("abcdefgh"), cut_after=3, event_delay=0.02))
    with clew.run("triage"):
        async with session.post(url(server), json=STREAMED) as response:
            with pytest.raises(aiohttp.ClientPayloadError):
                await response.read()
    (found,) = rounds(exported)
    assert found["clew.stream.outcome"] == "failed"
    assert found["error.type"] == "aiohttp.client_exceptions.ClientPayloadError"


@pytest.mark.parametrize("unpack", [True, False])
async def test_compressed_bodies(
    exported: CaptureExporter, server: ScriptedProvider, unpack: bool
) -> None:
    """Facts are read of a compressed stream, whether aiohttp unpacks it or its caller does."""
    clew.instrument()
    text = (
        b'data: {"id":"c1","model":"m","choices":[{"index":0,"delta":{"content":"hi"}}]}\n\n'
        b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'
        b'data: {"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":1}}\n\n'
        b"data: [DONE]\n\n"
    )
    packed = gzip.compress(text)
    pieces = tuple(packed[at : at + 9] for at in range(0, len(packed), 9))
    server.add(Reply.verbatim(*pieces, headers={"content-encoding": "gzip"}))
    async with (
        aiohttp.ClientSession(auto_decompress=unpack) as session,
        session.post(url(server), json=STREAMED) as response,
    ):
        read = await response.read()
    assert read == (text if unpack else packed)
    (found,) = rounds(exported)
    assert (found["gen_ai.usage.input_tokens"], found["gen_ai.usage.output_tokens"]) == (3, 1)
    assert found["clew.stream.outcome"] == "complete"
