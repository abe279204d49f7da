"""The tap on httpx and httpx2: answers that come piece by piece, broken ones among them."""

from __future__ import annotations

import gc
import gzip
import time
import zlib
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import httpx2
import pytest
from http_kit import BODY, LIBRARIES, Keep, rounds, url
from opentelemetry import trace
from opentelemetry.trace import StatusCode

import clew
from clew.settings import Settings
from clew.testing import CaptureExporter, Reply, ScriptedProvider


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_stream_read_line_by_line(
    keep: Keep, exported: CaptureExporter, server: ScriptedProvider, library: ModuleType
) -> None:
    """The round ends with the stream; the caller sees every line, and its own current span."""
    clew.instrument()
    server.add(Reply(text=("a", "b", "c"), event_delay=0.005))
    body = {**BODY, "stream": True, "stream_options": {"include_usage": True}}
    tracer = trace.get_tracer("app")
    with (
        clew.run("triage"),
        tracer.start_as_current_span("outer") as outer,
        keep(library.Client()).stream("POST", url(server), json=body) as response,
    ):
        lines = []
        for line in response.iter_lines():
            assert trace.get_current_span() is outer
            lines.append(line)
    assert lines[-2] == "data: [DONE]"
    (found,) = rounds(exported)
    assert found["clew.stream.outcome"] == "complete"
    assert found["gen_ai.usage.output_tokens"] == 7
    assert found["clew.stream.chunks"] == len([line for line in lines if line]) - 1
    assert 0 < found["gen_ai.response.time_to_first_chunk"] < 5
    assert found["clew.response.bytes"] == len("\n".join(lines).encode()) + 1


@pytest.mark.parametrize("library", LIBRARIES)
async def test_an_async_stream_dropped_half_read(
    exported: CaptureExporter, server: ScriptedProvider, library: ModuleType
) -> None:
    """Closed early by the caller: `closed`, no error, cost a lower bound."""
    clew.instrument()
    server.add(Reply(text=tuple("abcdefgh"), event_delay=0.005))
    body = {**BODY, "stream": True}
    async with (
        clew.run("triage"),
        library.AsyncClient() as client,
        client.stream("POST", url(server), json=body) as response,
    ):
        async for _ in response.aiter_lines():
            break
    (found,) = rounds(exported)
    assert found["clew.stream.outcome"] == "closed"
    (span,) = exported.by_name("chat")
    assert span.status.status_code is StatusCode.UNSET


def test_a_stream_that_is_collected_unread_is_abandoned(
    keep: Keep, exported: CaptureExporter, server: ScriptedProvider
) -> None:
    """A response that nobody closes ends its round when it is collected."""
    clew.instrument()
    server.add(Reply(text=tuple("abcdefgh"), event_delay=0.005))
    client = keep(httpx2.Client())
    with clew.run("triage"):
        request = client.build_request("POST", url(server), json={**BODY, "stream": True})
        response = client.send(request, stream=True)
        next(response.iter_raw())
        del response
        gc.collect()
        for _ in range(100):
            if rounds(exported):
                break
            time.sleep(0.02)
    assert [found["clew.stream.outcome"] for found in rounds(exported)] == ["abandoned"]


def test_an_idle_stream_is_held_and_reads_on(keep: Keep, server: ScriptedProvider) -> None:
    """A half-read stream that stays referenced ends its round; its bytes still pass."""
    exporter = CaptureExporter()
    settings = Settings.from_environment(export_delay_ms=20, stream_idle_s=0.2, seal_grace_s=0.05)
    clew.configure("x", settings=settings, span_exporters=[exporter])
    clew.instrument()
    server.add(Reply(text=("a", "b"), event_delay=(0, 0, 1.2)))
    body = {**BODY, "stream": True}
    with (
        clew.run("triage"),
        keep(httpx2.Client()).stream("POST", url(server), json=body) as response,
    ):
        lines = response.iter_lines()
        first = next(lines)
        for _ in range(100):
            if exporter.by_name("chat"):
                break
            time.sleep(0.02)
        rest = list(lines)
    assert first.startswith("data:")
    assert "data: [DONE]" in rest
    assert [dict(s.attributes)["clew.stream.outcome"] for s in exporter.by_name("chat")] == ["held"]


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
@pytest.mark.parametrize("streaming", [True, False])
def test_compressed_bodies(
    keep: Keep, exported: CaptureExporter, library: ModuleType, encoding: str, streaming: bool
) -> None:
    """The facts of a compressed stream are read piece by piece; the caller decodes as ever."""
    clew.instrument()
    text = (
        b'data: {"id":"c1","model":"m","choices":[{"index":0,"delta":{"content":"hi"}}]}\n\n'
        b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'
        b'data: {"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":1}}\n\n'
        b"data: [DONE]\n\n"
    )
    packed = gzip.compress(text) if encoding == "gzip" else zlib.compress(text)
    pieces = [packed[at : at + 9] for at in range(0, len(packed), 9)]

    class Stream(library.SyncByteStream):  # type: ignore[misc, name-defined]
        def __iter__(self) -> Iterator[bytes]:
            yield from pieces

    def handle(_: Any) -> Any:
        headers = {"content-type": "text/event-stream", "content-encoding": encoding}
        return library.Response(200, headers=headers, stream=Stream())

    client = keep(library.Client(transport=library.MockTransport(handle)))
    request = client.build_request(
        "POST", "https://api.openai.com/v1/chat/completions", json={**BODY, "stream": True}
    )
    response = client.send(request, stream=streaming)
    assert response.read() == text
    (found,) = rounds(exported)
    assert (found["gen_ai.usage.input_tokens"], found["gen_ai.usage.output_tokens"]) == (3, 1)
    assert found["clew.stream.outcome"] == "complete"


BAD = [
    (200, b"", None),
    (200, b"not json", None),
    (200, b"<html>nope</html>", None),
    (200, b"\xff\xfe\x00", None),
    (200, b"[]", None),
    (200, b'{"choices": 7, "usage": "x", "id": []}', None),
    (200, b'{"error": {"type": "overloaded_error", "message": "SECRET"}}', "overloaded_error"),
    (500, b"<html>SECRET</html>", "500"),
    (400, b'{"error": {"code": "bad", "message": "SECRET"}}', "bad"),
    (200, b'{"id":"' + b"x" * 10_000_000 + b'","model":"m"}', None),
]


@pytest.mark.parametrize(("status", "body", "error"), BAD)
@pytest.mark.parametrize("streaming", [True, False])
def test_bad_bodies_reach_the_caller_unchanged(
    keep: Keep,
    exported: CaptureExporter,
    server: ScriptedProvider,
    status: int,
    body: bytes,
    error: str | None,
    streaming: bool,
) -> None:
    """Whatever the provider answers, the caller sees it, and the round ends once."""
    clew.instrument()
    server.add(Reply(raw=(body,), status=status, content_type="application/json"))
    client = keep(httpx2.Client())
    with clew.run("triage"):
        request = client.build_request("POST", url(server), json=BODY)
        response = client.send(request, stream=streaming)
        assert response.read() == body
    (found,) = rounds(exported)
    assert found["http.response.status_code"] == status
    assert found.get("error.type") == error
    assert b"SECRET" not in exported.otlp_bytes()


TRUNCATED = [
    b"",
    b"data: {",
    b'data: {"id":"c1","choices":[{"delta":{"content":"x"}}]}\n\n',
    b"event: ping\n\n: comment\n\ndata: \xff\n\n",
    b'data: {"error":{"type":"server_error","code":"oops","message":"SECRET"}}\n\n',
]


@pytest.mark.parametrize("body", TRUNCATED)
def test_truncated_streams_fail_honestly(
    keep: Keep, exported: CaptureExporter, server: ScriptedProvider, body: bytes
) -> None:
    """A stream without its closing event is `failed`; its bytes reach the caller."""
    clew.instrument()
    server.add(Reply(raw=(body,), content_type="text/event-stream"))
    with (
        clew.run("triage"),
        keep(httpx2.Client()).stream(
            "POST", url(server), json={**BODY, "stream": True}
        ) as response,
    ):
        assert response.read() == body
    (found,) = rounds(exported)
    assert found["clew.stream.outcome"] == "failed"
    assert found["error.type"] in ("stream_cut_off", "server_error")
    assert b"SECRET" not in exported.otlp_bytes()


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("bound", [True, False], ids=["as it is", "made by somebody else"])
def test_the_stream_of_a_response_stays(
    keep: Keep,
    exported: CaptureExporter,
    server: ScriptedProvider,
    library: ModuleType,
    bound: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An SDK may ask the stream object for each event; what it is, the client has made.

    Where the client has put something else there, that is listened to.
    """
    send = library.Client.send

    class Own(library.SyncByteStream):
        def __init__(self, stream: Any) -> None:
            self.stream = stream

        def __iter__(self) -> Iterator[bytes]:
            yield from self.stream

        def close(self) -> None:
            self.stream.close()

    def replaced(self: Any, request: Any, **options: Any) -> Any:
        response = send(self, request, **options)
        response.stream = Own(response.stream)
        return response

    if not bound:
        monkeypatch.setattr(library.Client, "send", replaced)
    client = keep(library.Client())
    clew.instrument()
    server.add(Reply(text=("a", "b"), usage={"prompt_tokens": 5, "completion_tokens": 2}))
    with (
        clew.run("triage"),
        client.stream("POST", url(server), json={**BODY, "stream": True}) as response,
    ):
        kind = type(response.stream).__name__
        assert response.read().endswith(b"[DONE]\n\n")
    assert kind == ("BoundSyncStream" if bound else "SyncBody")
    (found,) = rounds(exported)
    assert found["clew.stream.outcome"] == "complete"


@pytest.mark.parametrize("library", LIBRARIES)
async def test_the_stream_of_an_asynchronous_response_stays(
    exported: CaptureExporter, server: ScriptedProvider, library: ModuleType
) -> None:
    """The same, in asynchronous code."""
    clew.instrument()
    server.add(Reply(text=("a", "b"), usage={"prompt_tokens": 5, "completion_tokens": 2}))
    async with library.AsyncClient() as client, clew.run("triage"):
        asked = {**BODY, "stream": True}
        async with client.stream("POST", url(server), json=asked) as response:
            assert type(response.stream).__name__ == "BoundAsyncStream"
            assert (await response.aread()).endswith(b"[DONE]\n\n")
    (found,) = rounds(exported)
    assert found["clew.stream.outcome"] == "complete"
