"""The tap on httpx and httpx2: what it sees, what it changes, and that it can be taken off."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
from collections.abc import Iterator
from types import ModuleType
from urllib.parse import urlsplit

import httpx
import httpx2
import pytest
from either_way import settle
from http_kit import BODY, LIBRARIES, Keep, rounds, url
from opentelemetry import baggage, context, propagate
from taken_off import check_taken_off

import clew
from clew.settings import Settings
from clew.testing import CaptureExporter, Reply, ScriptedProvider


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("kind", ["Client", "AsyncClient"])
async def test_a_plain_call(
    exported: CaptureExporter, server: ScriptedProvider, library: ModuleType, kind: str
) -> None:
    """One span with the facts of request and response, of a client that was not told of Clew."""
    client = getattr(library, kind)()
    clew.instrument()
    server.add(Reply(text="SECRET", usage={"prompt_tokens": 5, "completion_tokens": 2}))
    with clew.run("triage"):
        response = await settle(client.post(url(server), json=BODY))
    assert response.json()["choices"][0]["message"]["content"] == "SECRET"
    (found,) = rounds(exported)
    assert found["gen_ai.request.model"] == "gpt-4o"
    assert found["gen_ai.usage.input_tokens"] == 5
    assert found["gen_ai.usage.output_tokens"] == 2
    assert found["clew.usage.source"] == "reported"
    assert found["http.response.status_code"] == 200
    assert found["gen_ai.provider.name"] == "_OTHER"
    assert found["clew.cost.status"] == "unpriced"
    assert found["server.address"] == "127.0.0.1"
    assert found["server.port"] == urlsplit(server.base_url).port
    assert found["clew.attempt.grouped"] is False
    assert found["clew.round"] == 1
    assert b"SECRET" not in exported.otlp_bytes()
    await settle(client.aclose() if kind == "AsyncClient" else client.close())


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


def test_a_body_that_is_streamed_out_is_not_read(
    keep: Keep, exported: CaptureExporter, server: ScriptedProvider
) -> None:
    """A request body from a generator is sent as it is; the round has no request facts."""
    clew.instrument()
    server.add(Reply(text="x"))
    text = json.dumps(BODY).encode()

    def pieces() -> Iterator[bytes]:
        yield text[:10]
        yield text[10:]

    with clew.run("triage"):
        response = keep(httpx2.Client()).post(url(server), content=pieces())
    assert response.status_code == 200
    assert server.requests[0].body == text
    (found,) = rounds(exported)
    assert "gen_ai.request.model" not in found
    assert found["gen_ai.response.model"]


def test_other_requests_are_left_alone(
    keep: Keep, exported: CaptureExporter, server: ScriptedProvider
) -> None:
    """A request that is no model call opens no round and keeps its trace headers."""
    clew.instrument()
    with clew.run("triage"):
        headers: dict[str, str] = {}
        propagate.inject(headers)
        keep(httpx2.Client()).get(f"{server.base_url}/health", headers=headers)
    assert "traceparent" in {name.lower() for name, _ in server.requests[0].headers}
    assert len(exported.by_name("GET")) == 0
    assert len([s for s in exported.spans if s.name.startswith(("chat", "unknown"))]) == 0


# --- headers --------------------------------------------------------------------------------------


@pytest.mark.parametrize("library", LIBRARIES)
def test_trace_headers_stay_in_the_house(
    keep: Keep, exported: CaptureExporter, server: ScriptedProvider, library: ModuleType
) -> None:
    """Whoever adds them, trace headers and baggage do not reach a provider; all else does."""
    clew.instrument()
    server.add(Reply(text="x"), Reply(text="x"))
    token = context.attach(baggage.set_baggage("user.id", "SECRET"))
    try:
        with clew.run("triage"):
            headers: dict[str, str] = {"x-mine": "1"}
            propagate.inject(headers)
            assert {"traceparent", "baggage"} <= set(headers)
            keep(library.Client()).post(url(server), json=BODY, headers=headers)
    finally:
        context.detach(token)
    sent = {name.lower(): value for name, value in server.requests[0].headers}
    assert sent["x-mine"] == "1"
    assert not {"traceparent", "tracestate", "baggage"} & set(sent)


def test_trace_headers_go_where_the_operator_lets_them(
    keep: Keep, server: ScriptedProvider
) -> None:
    """A host on the list sees them."""
    settings = Settings.from_environment(propagate_to=frozenset({"127.0.0.1"}))
    clew.configure("x", settings=settings, span_exporters=[CaptureExporter()])
    clew.instrument()
    server.add(Reply(text="x"))
    with clew.run("triage") as run:
        headers: dict[str, str] = {}
        propagate.inject(headers)
        keep(httpx2.Client()).post(url(server), json=BODY, headers=headers)
    sent = {name.lower(): value for name, value in server.requests[0].headers}
    assert run.trace_id in sent["traceparent"]


def test_headers_that_an_instrumentation_injects_below_are_kept_in(
    keep: Keep, exported: CaptureExporter, server: ScriptedProvider
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
        server.add(Reply(text="x"))
        with clew.run("triage"):
            keep(httpx.Client()).post(url(server), json=BODY)
        second[1]()
        first[1]()
        assert inspect.getattr_static(httpx.HTTPTransport, "handle_request") is before
    assert len(server.requests) == 2
    for request in server.requests:
        assert "traceparent" not in {name.lower() for name, _ in request.headers}
    assert [span.name for span in exported.spans if span.name == "POST"] == []


@pytest.mark.parametrize("first", ["clew", "httpx"])
async def test_the_httpx_instrumentation_goes_on_with_other_requests(
    keep: Keep, exported: CaptureExporter, server: ScriptedProvider, first: str
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
            keep(httpx.Client()).get(f"{server.base_url}/health")
            async with httpx.AsyncClient() as client:
                await client.get(f"{server.base_url}/health")
    finally:
        for _, remove in order[::-1]:
            remove()
    assert [request.path for request in server.requests] == ["/health"] * 2
    assert len(exported.by_name("GET")) == 2


# --- on and off -----------------------------------------------------------------------------------


@pytest.mark.parametrize("library", LIBRARIES)
def test_taking_the_taps_off_restores_everything(library: ModuleType) -> None:
    """After any number of `instrument`, one `uninstrument` leaves the classes as they came."""
    before = inspect.getattr_static(library.AsyncClient, "send")
    clew.instrument()
    clew.instrument()
    assert inspect.iscoroutinefunction(library.AsyncClient.send)
    clew.uninstrument()
    assert inspect.getattr_static(library.AsyncClient, "send") is before
    check_taken_off(
        (library.Client, "send"),
        (library.AsyncClient, "send"),
        (library.HTTPTransport, "handle_request"),
        (library.AsyncHTTPTransport, "handle_async_request"),
    )


def test_one_client_alone(keep: Keep, exported: CaptureExporter, server: ScriptedProvider) -> None:
    """Only the client that was given is listened to, once, and it can be let go."""
    mine, other = keep(httpx2.Client()), keep(httpx2.Client())
    server.add(*[Reply(text="x")] * 5)
    assert clew.instrument(mine) is mine
    clew.instrument(mine)
    for client in (mine, other):
        client.post(url(server), json=BODY)
    assert len(rounds(exported)) == 1
    clew.instrument()
    mine.post(url(server), json=BODY)
    assert len(rounds(exported)) == 2
    clew.uninstrument()
    mine.post(url(server), json=BODY)
    assert len(rounds(exported)) == 2
    assert "send" not in vars(mine)


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
