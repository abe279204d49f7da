"""The tap on aiohttp: what it sees however a body is read, what it changes, that it comes off."""

from __future__ import annotations

import asyncio
import gc
import gzip
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import pytest
from opentelemetry import propagate, trace
from opentelemetry.trace import StatusCode
from taken_off import check_taken_off

import clew
from clew.settings import Settings
from clew.testing import CaptureExporter, Reply, ScriptedProvider

aiohttp = pytest.importorskip("aiohttp")

BODY = {"model": "gpt-4o", "messages": [{"role": "user", "content": "SECRET"}]}
STREAMED = {**BODY, "stream": True, "stream_options": {"include_usage": True}}


@pytest.fixture
def provider() -> Iterator[ScriptedProvider]:
    with ScriptedProvider() as server:
        yield server


@pytest.fixture
async def session() -> AsyncIterator[Any]:
    async with aiohttp.ClientSession() as made:
        yield made


def rounds(exported: CaptureExporter) -> list[dict[str, Any]]:
    return [dict(span.attributes or {}) for span in exported.by_name("chat")]


def url(provider: ScriptedProvider) -> str:
    return f"{provider.openai_base_url}/chat/completions"


GIVEN = {
    "json": {"json": BODY},
    "bytes": {"data": json.dumps(BODY).encode()},
    "text": {"data": json.dumps(BODY)},
}


@pytest.mark.parametrize("given", GIVEN)
async def test_a_plain_call(
    exported: CaptureExporter, provider: ScriptedProvider, session: Any, given: str
) -> None:
    """One span with the facts of request and response, however the body is given."""
    provider.add(*[Reply(text="SECRET", usage={"prompt_tokens": 5, "completion_tokens": 2})] * 2)
    async with session.post(url(provider), **GIVEN[given]) as response:
        without = await response.json()
    clew.instrument()
    with clew.run("triage"):
        async with session.post(url(provider), **GIVEN[given]) as response:
            answer = await response.json()
    assert answer["choices"] == without["choices"]
    first, second = provider.requests
    assert (second.body, second.headers) == (first.body, first.headers)
    (found,) = rounds(exported)
    assert found["gen_ai.request.model"] == "gpt-4o"
    assert found["gen_ai.usage.input_tokens"] == 5
    assert found["gen_ai.usage.output_tokens"] == 2
    assert found["http.response.status_code"] == 200
    assert found["clew.round"] == 1
    assert found["clew.attempt.grouped"] is False
    assert "clew.stream.outcome" not in found
    assert b"SECRET" not in exported.otlp_bytes()


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
    exported: CaptureExporter, provider: ScriptedProvider, session: Any, read: Read
) -> None:
    """Every way of reading a body gives the caller the same bytes and the round its facts."""
    clew.instrument()
    provider.add(Reply(text=("a", "b", "c"), event_delay=0.005))
    tracer = trace.get_tracer("app")
    with clew.run("triage"), tracer.start_as_current_span("outer") as outer:
        async with session.post(url(provider), json=STREAMED) as response:
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
    exported: CaptureExporter, provider: ScriptedProvider, session: Any, how: str
) -> None:
    """Leaving a stream is no error, and gives its connection back."""
    clew.instrument()
    provider.add(Reply(text=tuple("abcdefgh"), event_delay=0.01))
    with clew.run("triage"):
        async with session.post(url(provider), json=STREAMED) as response:
            async for _ in response.content:
                break
            if how != "break":
                getattr(response, how)()
    (found,) = rounds(exported)
    assert found["clew.stream.outcome"] == "closed"
    (span,) = exported.by_name("chat")
    assert span.status.status_code is StatusCode.UNSET
    for _ in range(100):
        if not provider.open_connections:
            break
        await asyncio.sleep(0.02)
    assert provider.open_connections == 0


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
async def test_a_stream_that_is_dropped_is_abandoned(
    exported: CaptureExporter, provider: ScriptedProvider, session: Any
) -> None:
    """A response that nobody closes ends its round when it is collected."""
    clew.instrument()
    provider.add(Reply(text=tuple("abcdefgh"), event_delay=0.005))
    with clew.run("triage"):
        response = await session.post(url(provider), json=STREAMED)
        await response.content.readany()
        del response
        gc.collect()
        for _ in range(100):
            if rounds(exported):
                break
            await asyncio.sleep(0.02)
    assert [found["clew.stream.outcome"] for found in rounds(exported)] == ["abandoned"]


async def test_a_task_that_is_cancelled_while_it_reads(
    exported: CaptureExporter, provider: ScriptedProvider, session: Any
) -> None:
    """Cancelling is neither success nor failure of the stream."""
    clew.instrument()
    provider.add(Reply(text=tuple("abcdefgh"), hang_after=2))

    async def work() -> None:
        async with session.post(url(provider), json=STREAMED) as response:
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
    exported: CaptureExporter, provider: ScriptedProvider, session: Any
) -> None:
    """The caller's timeout is told as such."""
    clew.instrument()
    provider.add(Reply(text=tuple("abcdefgh"), hang_after=2))
    limit = aiohttp.ClientTimeout(sock_read=0.2)
    with clew.run("triage"):
        async with session.post(url(provider), json=STREAMED, timeout=limit) as response:
            with pytest.raises(TimeoutError):
                await response.read()
    (found,) = rounds(exported)
    assert found["clew.stream.outcome"] == "timeout"
    assert found["error.type"].startswith("aiohttp.")


async def test_a_connection_lost_in_the_middle(
    exported: CaptureExporter, provider: ScriptedProvider, session: Any
) -> None:
    """The caller's exception passes; the round is failed."""
    clew.instrument()
    provider.add(Reply(text=tuple("abcdefgh"), cut_after=3, event_delay=0.02))
    with clew.run("triage"):
        async with session.post(url(provider), json=STREAMED) as response:
            with pytest.raises(aiohttp.ClientPayloadError):
                await response.read()
    (found,) = rounds(exported)
    assert found["clew.stream.outcome"] == "failed"
    assert found["error.type"] == "aiohttp.client_exceptions.ClientPayloadError"


async def test_a_refused_connection(exported: CaptureExporter, session: Any) -> None:
    """Aiohttp's own exception passes on; its type is what is recorded, with the request's facts."""
    clew.instrument()
    with clew.run("triage"), pytest.raises(aiohttp.ClientConnectorError):
        await session.post("http://127.0.0.1:9/v1/chat/completions?key=SECRET", json=BODY)
    (found,) = rounds(exported)
    assert found["error.type"] == "aiohttp.client_exceptions.ClientConnectorError"
    assert found["gen_ai.request.model"] == "gpt-4o"
    assert b"SECRET" not in exported.otlp_bytes()


async def test_an_error_that_the_session_raises(
    exported: CaptureExporter, provider: ScriptedProvider, session: Any
) -> None:
    """With `raise_for_status` nobody sees the body; the status is known all the same."""
    clew.instrument()
    provider.add(Reply.failure(429))
    with clew.run("triage"), pytest.raises(aiohttp.ClientResponseError):
        await session.post(url(provider), json=BODY, raise_for_status=True)
    (found,) = rounds(exported)
    assert (found["http.response.status_code"], found["error.type"]) == (429, "429")


@pytest.mark.parametrize("unpack", [True, False])
async def test_compressed_bodies(
    exported: CaptureExporter, provider: ScriptedProvider, unpack: bool
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
    provider.add(Reply.verbatim(*pieces, headers={"content-encoding": "gzip"}))
    async with (
        aiohttp.ClientSession(auto_decompress=unpack) as session,
        session.post(url(provider), json=STREAMED) as response,
    ):
        read = await response.read()
    assert read == (text if unpack else packed)
    (found,) = rounds(exported)
    assert (found["gen_ai.usage.input_tokens"], found["gen_ai.usage.output_tokens"]) == (3, 1)
    assert found["clew.stream.outcome"] == "complete"


async def test_trace_headers_stay_in_the_house(
    exported: CaptureExporter, provider: ScriptedProvider
) -> None:
    """Trace headers are taken off, also those that a middleware adds below; all else is sent."""
    clew.instrument()
    provider.add(Reply(text="x"))

    async def add(request: Any, handler: Any) -> Any:
        request.headers["baggage"] = "user.id=SECRET"
        return await handler(request)

    async with aiohttp.ClientSession(middlewares=(add,)) as session:
        with clew.run("triage"):
            headers = {"x-mine": "1"}
            propagate.inject(headers)
            assert "traceparent" in headers
            async with session.post(url(provider), json=BODY, headers=headers) as response:
                await response.read()
    sent = {name.lower(): value for name, value in provider.requests[0].headers}
    assert sent["x-mine"] == "1"
    assert not {"traceparent", "tracestate", "baggage"} & set(sent)


async def test_trace_headers_go_where_the_operator_lets_them(
    provider: ScriptedProvider, session: Any
) -> None:
    """A host on the list sees them."""
    settings = Settings.from_environment(propagate_to=frozenset({"127.0.0.1"}))
    clew.configure("x", settings=settings, span_exporters=[CaptureExporter()])
    clew.instrument()
    provider.add(Reply(text="x"))
    with clew.run("triage") as run:
        headers: dict[str, str] = {}
        propagate.inject(headers)
        async with session.post(url(provider), json=BODY, headers=headers) as response:
            await response.read()
    sent = {name.lower(): value for name, value in provider.requests[0].headers}
    assert run.trace_id in sent["traceparent"]


async def test_other_requests_are_left_alone(
    exported: CaptureExporter, provider: ScriptedProvider, session: Any
) -> None:
    """A request that is no model call opens no round and keeps its trace headers."""
    clew.instrument()
    with clew.run("triage"):
        headers: dict[str, str] = {}
        propagate.inject(headers)
        async with session.get(f"{provider.base_url}/health", headers=headers) as response:
            await response.read()
    assert "traceparent" in {name.lower() for name, _ in provider.requests[0].headers}
    assert [one.name for one in exported.spans if one.name.startswith(("chat", "unknown"))] == []


async def test_a_relative_url(exported: CaptureExporter, provider: ScriptedProvider) -> None:
    """A session with a base URL is understood as well."""
    clew.instrument()
    provider.add(Reply(text="x"))
    async with (
        aiohttp.ClientSession(base_url=f"{provider.base_url}/v1/") as session,
        session.post("chat/completions", json=BODY) as response,
    ):
        await response.read()
    assert len(rounds(exported)) == 1


async def test_what_cannot_be_serialised_is_the_sessions_to_refuse(
    exported: CaptureExporter, session: Any
) -> None:
    """A body that is no JSON raises what it raises without Clew."""
    clew.instrument()
    with pytest.raises(TypeError, match="not JSON serializable"):
        await session.post("http://127.0.0.1:9/v1/chat/completions", json={"a": object()})
    (found,) = rounds(exported)
    assert found["error.type"] == "TypeError"


async def test_a_session_below_another_client_library_counts_once(
    exported: CaptureExporter, provider: ScriptedProvider, session: Any
) -> None:
    """An httpx transport that sends with aiohttp is one call, told by the outer library."""
    import httpx

    class Transport(httpx.AsyncBaseTransport):
        async def handle_async_request(self, request: Any) -> Any:
            headers = {"content-type": "application/json"}
            sent = session.request(
                request.method, str(request.url), data=request.content, headers=headers
            )
            async with sent as response:
                return httpx.Response(response.status, content=await response.read())

    clew.instrument()
    provider.add(Reply(text="x"))
    async with httpx.AsyncClient(transport=Transport()) as client:
        with clew.run("triage"):
            answer = await client.post(url(provider), json=BODY)
    assert answer.json()["choices"]
    (found,) = rounds(exported)
    assert found["gen_ai.usage.input_tokens"] == 12


async def test_one_session_alone(
    exported: CaptureExporter, provider: ScriptedProvider, session: Any
) -> None:
    """Only the session that was given is listened to, once, and it can be let go."""
    provider.add(*[Reply(text="x")] * 5)

    async def ask(client: Any) -> None:
        async with client.post(url(provider), json=BODY) as response:
            await response.read()

    async with aiohttp.ClientSession() as other:
        assert clew.instrument(session) is session
        clew.instrument(session)
        await ask(session)
        await ask(other)
    assert len(rounds(exported)) == 1
    clew.instrument()
    await ask(session)
    assert len(rounds(exported)) == 2
    clew.uninstrument()
    await ask(session)
    assert len(rounds(exported)) == 2
    assert "_request" not in vars(session)


def test_taking_the_tap_off_restores_everything() -> None:
    """After `uninstrument` the classes are as they came."""
    check_taken_off(
        (aiohttp.ClientSession, "_request"),
        (aiohttp.ClientRequest, "send"),
        (aiohttp.ClientResponse, "close"),
        (aiohttp.ClientResponse, "release"),
    )
