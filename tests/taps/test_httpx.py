"""The tap on httpx and httpx2: what it sees, what it changes, and that it can be taken off."""

from __future__ import annotations

import contextlib
import gc
import gzip
import inspect
import json
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any
from urllib.parse import urlsplit

import httpx
import httpx2
import pytest
from opentelemetry import baggage, context, propagate, trace
from opentelemetry.trace import StatusCode

import clew
from clew.errors import ClewError
from clew.settings import Settings
from clew.testing import CaptureExporter, Reply, ScriptedProvider

BODY = {"model": "gpt-4o", "messages": [{"role": "user", "content": "SECRET"}]}
LIBRARIES = [httpx, httpx2]


Keep = Callable[[Any], Any]


@pytest.fixture
def keep() -> Iterator[Keep]:
    """Close, at the end of the test, each client that is passed through."""
    with contextlib.ExitStack() as stack:
        yield stack.enter_context


@pytest.fixture
def provider() -> Iterator[ScriptedProvider]:
    with ScriptedProvider() as server:
        yield server


def rounds(exported: CaptureExporter) -> list[dict[str, Any]]:
    return [dict(span.attributes or {}) for span in exported.by_name("chat")]


def url(provider: ScriptedProvider) -> str:
    return f"{provider.openai_base_url}/chat/completions"


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_plain_call(
    keep: Keep, exported: CaptureExporter, provider: ScriptedProvider, library: ModuleType
) -> None:
    """One span with the facts of request and response, of a client that was not told of Clew."""
    client = keep(library.Client())
    clew.instrument()
    provider.add(Reply(text="SECRET", usage={"prompt_tokens": 5, "completion_tokens": 2}))
    with clew.run("triage"):
        response = client.post(url(provider), json=BODY)
    assert response.json()["choices"][0]["message"]["content"] == "SECRET"
    (found,) = rounds(exported)
    assert found["gen_ai.request.model"] == "gpt-4o"
    assert found["gen_ai.usage.input_tokens"] == 5
    assert found["gen_ai.usage.output_tokens"] == 2
    assert found["http.response.status_code"] == 200
    assert found["gen_ai.provider.name"] == "_OTHER"
    assert found["clew.cost.status"] == "unpriced"
    assert found["server.address"] == "127.0.0.1"
    assert found["server.port"] == urlsplit(provider.base_url).port
    assert found["clew.attempt.grouped"] is False
    assert found["clew.round"] == 1
    assert b"SECRET" not in exported.otlp_bytes()


@pytest.mark.parametrize("library", LIBRARIES)
async def test_a_plain_async_call(
    exported: CaptureExporter, provider: ScriptedProvider, library: ModuleType
) -> None:
    """The async twin."""
    clew.instrument()
    provider.add(Reply(text="x"))
    async with library.AsyncClient() as client, clew.run("triage"):
        await client.post(url(provider), json=BODY)
    assert [found["clew.usage.source"] for found in rounds(exported)] == ["reported"]


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_stream_read_line_by_line(
    keep: Keep, exported: CaptureExporter, provider: ScriptedProvider, library: ModuleType
) -> None:
    """The round ends with the stream; the caller sees every line, and its own current span."""
    clew.instrument()
    provider.add(Reply(text=("a", "b", "c"), event_delay=0.005))
    body = {**BODY, "stream": True, "stream_options": {"include_usage": True}}
    tracer = trace.get_tracer("app")
    with (
        clew.run("triage"),
        tracer.start_as_current_span("outer") as outer,
        keep(library.Client()).stream("POST", url(provider), json=body) as response,
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
    exported: CaptureExporter, provider: ScriptedProvider, library: ModuleType
) -> None:
    """Closed early by the caller: `closed`, no error, cost a lower bound."""
    clew.instrument()
    provider.add(Reply(text=tuple("abcdefgh"), event_delay=0.005))
    body = {**BODY, "stream": True}
    async with (
        clew.run("triage"),
        library.AsyncClient() as client,
        client.stream("POST", url(provider), json=body) as response,
    ):
        async for _ in response.aiter_lines():
            break
    (found,) = rounds(exported)
    assert found["clew.stream.outcome"] == "closed"
    (span,) = exported.by_name("chat")
    assert span.status.status_code is StatusCode.UNSET


def test_a_stream_that_is_collected_unread_is_abandoned(
    keep: Keep, exported: CaptureExporter, provider: ScriptedProvider
) -> None:
    """A response that nobody closes ends its round when it is collected."""
    clew.instrument()
    provider.add(Reply(text=tuple("abcdefgh"), event_delay=0.005))
    client = keep(httpx2.Client())
    with clew.run("triage"):
        request = client.build_request("POST", url(provider), json={**BODY, "stream": True})
        response = client.send(request, stream=True)
        next(response.iter_raw())
        del response
        gc.collect()
        for _ in range(100):
            if rounds(exported):
                break
            time.sleep(0.02)
    assert [found["clew.stream.outcome"] for found in rounds(exported)] == ["abandoned"]


def test_an_idle_stream_is_held_and_reads_on(keep: Keep, provider: ScriptedProvider) -> None:
    """A half-read stream that stays referenced ends its round; its bytes still pass."""
    exporter = CaptureExporter()
    settings = Settings.from_environment(export_delay_ms=20, stream_idle_s=0.2, seal_grace_s=0.05)
    clew.configure("x", settings=settings, span_exporters=[exporter])
    clew.instrument()
    provider.add(Reply(text=("a", "b"), event_delay=(0, 0, 1.2)))
    body = {**BODY, "stream": True}
    with (
        clew.run("triage"),
        keep(httpx2.Client()).stream("POST", url(provider), json=body) as response,
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
    provider: ScriptedProvider,
    status: int,
    body: bytes,
    error: str | None,
    streaming: bool,
) -> None:
    """Whatever the provider answers, the caller sees it, and the round ends once."""
    clew.instrument()
    provider.add(Reply(raw=(body,), status=status, content_type="application/json"))
    client = keep(httpx2.Client())
    with clew.run("triage"):
        request = client.build_request("POST", url(provider), json=BODY)
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
    keep: Keep, exported: CaptureExporter, provider: ScriptedProvider, body: bytes
) -> None:
    """A stream without its closing event is `failed`; its bytes reach the caller."""
    clew.instrument()
    provider.add(Reply(raw=(body,), content_type="text/event-stream"))
    with (
        clew.run("triage"),
        keep(httpx2.Client()).stream(
            "POST", url(provider), json={**BODY, "stream": True}
        ) as response,
    ):
        assert response.read() == body
    (found,) = rounds(exported)
    assert found["clew.stream.outcome"] == "failed"
    assert found["error.type"] in ("stream_cut_off", "server_error")
    assert b"SECRET" not in exported.otlp_bytes()


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_refused_connection_is_a_failed_round(
    keep: Keep, exported: CaptureExporter, library: ModuleType
) -> None:
    """The client's own exception passes on; its type is what is recorded."""
    clew.instrument()
    with clew.run("triage"), pytest.raises(library.ConnectError):
        keep(library.Client()).post("http://127.0.0.1:9/v1/chat/completions?key=SECRET", json=BODY)
    (found,) = rounds(exported)
    assert found["error.type"] == f"{library.__name__}.ConnectError"
    assert b"SECRET" not in exported.otlp_bytes()


@pytest.mark.parametrize("library", LIBRARIES)
def test_trace_headers_stay_in_the_house(
    keep: Keep, exported: CaptureExporter, provider: ScriptedProvider, library: ModuleType
) -> None:
    """Whoever adds them, trace headers and baggage do not reach a provider; all else does."""
    clew.instrument()
    provider.add(Reply(text="x"), Reply(text="x"))
    token = context.attach(baggage.set_baggage("user.id", "SECRET"))
    try:
        with clew.run("triage"):
            headers: dict[str, str] = {"x-mine": "1"}
            propagate.inject(headers)
            assert {"traceparent", "baggage"} <= set(headers)
            keep(library.Client()).post(url(provider), json=BODY, headers=headers)
    finally:
        context.detach(token)
    sent = {name.lower(): value for name, value in provider.requests[0].headers}
    assert sent["x-mine"] == "1"
    assert not {"traceparent", "tracestate", "baggage"} & set(sent)


def test_trace_headers_go_where_the_operator_lets_them(
    keep: Keep, provider: ScriptedProvider
) -> None:
    """A host on the list sees them."""
    settings = Settings.from_environment(propagate_to=frozenset({"127.0.0.1"}))
    clew.configure("x", settings=settings, span_exporters=[CaptureExporter()])
    clew.instrument()
    provider.add(Reply(text="x"))
    with clew.run("triage") as run:
        headers: dict[str, str] = {}
        propagate.inject(headers)
        keep(httpx2.Client()).post(url(provider), json=BODY, headers=headers)
    sent = {name.lower(): value for name, value in provider.requests[0].headers}
    assert run.trace_id in sent["traceparent"]


def test_headers_that_an_instrumentation_injects_below_are_kept_in(
    keep: Keep, exported: CaptureExporter, provider: ScriptedProvider
) -> None:
    """The httpx instrumentation stands aside for a model call, whichever was installed first."""
    from opentelemetry.instrumentation.httpx import HTTPXClientInstrumentor

    instrumentor = HTTPXClientInstrumentor()
    before = inspect.getattr_static(httpx.HTTPTransport, "handle_request")
    pair = (
        (clew.instrument, clew.uninstrument),
        (instrumentor.instrument, instrumentor.uninstrument),
    )
    for first, second in (pair, pair[::-1]):
        first[0]()
        second[0]()
        provider.add(Reply(text="x"))
        with clew.run("triage"):
            keep(httpx.Client()).post(url(provider), json=BODY)
        second[1]()
        first[1]()
        assert inspect.getattr_static(httpx.HTTPTransport, "handle_request") is before
    assert len(provider.requests) == 2
    for request in provider.requests:
        assert "traceparent" not in {name.lower() for name, _ in request.headers}
    assert [span.name for span in exported.spans if span.name == "POST"] == []


@pytest.mark.parametrize("first", ["clew", "httpx"])
async def test_the_httpx_instrumentation_goes_on_with_other_requests(
    keep: Keep, exported: CaptureExporter, provider: ScriptedProvider, first: str
) -> None:
    """A request that is no model call is made, and is its span, whichever was installed first."""
    from opentelemetry.instrumentation.httpx import HTTPXClientInstrumentor

    instrumentor = HTTPXClientInstrumentor()
    pair = (
        (clew.instrument, clew.uninstrument),
        (instrumentor.instrument, instrumentor.uninstrument),
    )
    order = pair if first == "clew" else pair[::-1]
    for install, _ in order:
        install()
    try:
        with clew.run("triage"):
            keep(httpx.Client()).get(f"{provider.base_url}/health")
            async with httpx.AsyncClient() as client:
                await client.get(f"{provider.base_url}/health")
    finally:
        for _, remove in order[::-1]:
            remove()
    assert [request.path for request in provider.requests] == ["/health"] * 2
    assert len(exported.by_name("GET")) == 2


def test_other_requests_are_left_alone(
    keep: Keep, exported: CaptureExporter, provider: ScriptedProvider
) -> None:
    """A request that is no model call opens no round and keeps its trace headers."""
    clew.instrument()
    with clew.run("triage"):
        headers: dict[str, str] = {}
        propagate.inject(headers)
        keep(httpx2.Client()).get(f"{provider.base_url}/health", headers=headers)
    assert "traceparent" in {name.lower() for name, _ in provider.requests[0].headers}
    assert len(exported.by_name("GET")) == 0
    assert len([s for s in exported.spans if s.name.startswith(("chat", "unknown"))]) == 0


@pytest.mark.parametrize("library", LIBRARIES)
def test_taking_the_taps_off_restores_everything(library: ModuleType) -> None:
    """After any number of `instrument`, one `uninstrument` leaves the classes as they came."""
    owners = {
        (owner, name): inspect.getattr_static(owner, name)
        for owner, name in (
            (library.Client, "send"),
            (library.AsyncClient, "send"),
            (library.HTTPTransport, "handle_request"),
            (library.AsyncHTTPTransport, "handle_async_request"),
        )
    }
    clew.instrument()
    clew.instrument()
    assert inspect.iscoroutinefunction(library.AsyncClient.send)
    for (owner, name), original in owners.items():
        assert inspect.getattr_static(owner, name) is not original
    clew.uninstrument()
    for (owner, name), original in owners.items():
        assert inspect.getattr_static(owner, name) is original


def test_one_client_alone(
    keep: Keep, exported: CaptureExporter, provider: ScriptedProvider
) -> None:
    """Only the client that was given is listened to, once, and it can be let go."""
    mine, other = keep(httpx2.Client()), keep(httpx2.Client())
    provider.add(*[Reply(text="x")] * 5)
    assert clew.instrument(mine) is mine
    clew.instrument(mine)
    for client in (mine, other):
        client.post(url(provider), json=BODY)
    assert len(rounds(exported)) == 1
    clew.instrument()
    mine.post(url(provider), json=BODY)
    assert len(rounds(exported)) == 2
    clew.uninstrument()
    mine.post(url(provider), json=BODY)
    assert len(rounds(exported)) == 2
    assert "send" not in vars(mine)


def test_an_object_that_is_no_client_is_a_clear_error() -> None:
    """What cannot be instrumented is named, with what to give instead."""
    with pytest.raises(ClewError, match=r"builtins\.dict"):
        clew.instrument({})


def test_a_library_imported_later_is_listened_to() -> None:
    """Instrumenting first and importing afterwards works, without importing anything itself."""
    program = """
import sys, clew
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
exporter = InMemorySpanExporter()
clew.configure("x", span_exporters=[exporter])
clew.instrument()
before = "httpx" in sys.modules
import httpx
from httpx import Client
answer = httpx.MockTransport(lambda request: httpx.Response(200, json={}))
Client(transport=answer).post("http://local/v1/chat/completions", json={"model": "m"})
clew.shutdown()
print(before, [span.name for span in exporter.get_finished_spans()])
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout == "False ['chat m']\n", done.stderr


def test_a_body_that_is_streamed_out_is_not_read(
    keep: Keep, exported: CaptureExporter, provider: ScriptedProvider
) -> None:
    """A request body from a generator is sent as it is; the round has no request facts."""
    clew.instrument()
    provider.add(Reply(text="x"))
    text = json.dumps(BODY).encode()

    def pieces() -> Iterator[bytes]:
        yield text[:10]
        yield text[10:]

    with clew.run("triage"):
        response = keep(httpx2.Client()).post(url(provider), content=pieces())
    assert response.status_code == 200
    assert provider.requests[0].body == text
    (found,) = rounds(exported)
    assert "gen_ai.request.model" not in found
    assert found["gen_ai.response.model"]


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("bound", [True, False], ids=["as it is", "made by somebody else"])
def test_the_stream_of_a_response_stays(
    keep: Keep,
    exported: CaptureExporter,
    provider: ScriptedProvider,
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
    provider.add(Reply(text=("a", "b"), usage={"prompt_tokens": 5, "completion_tokens": 2}))
    with (
        clew.run("triage"),
        client.stream("POST", url(provider), json={**BODY, "stream": True}) as response,
    ):
        kind = type(response.stream).__name__
        assert response.read().endswith(b"[DONE]\n\n")
    assert kind == ("BoundSyncStream" if bound else "SyncBody")
    (found,) = rounds(exported)
    assert found["clew.stream.outcome"] == "complete"


@pytest.mark.parametrize("library", LIBRARIES)
async def test_the_stream_of_an_asynchronous_response_stays(
    exported: CaptureExporter, provider: ScriptedProvider, library: ModuleType
) -> None:
    """The same, in asynchronous code."""
    clew.instrument()
    provider.add(Reply(text=("a", "b"), usage={"prompt_tokens": 5, "completion_tokens": 2}))
    async with library.AsyncClient() as client, clew.run("triage"):
        asked = {**BODY, "stream": True}
        async with client.stream("POST", url(provider), json=asked) as response:
            assert type(response.stream).__name__ == "BoundAsyncStream"
            assert (await response.aread()).endswith(b"[DONE]\n\n")
    (found,) = rounds(exported)
    assert found["clew.stream.outcome"] == "complete"
