"""The tap on aiohttp: what it sees, what it changes, that it comes off."""

from __future__ import annotations

import json
from typing import Any

import pytest
from http_kit import BODY, rounds, url
from opentelemetry import propagate
from taken_off import check_taken_off

import clew
from clew.settings import Settings
from clew.testing import CaptureExporter, Reply, ScriptedProvider

aiohttp = pytest.importorskip("aiohttp")

GIVEN = {
    "json": {"json": BODY},
    "bytes": {"data": json.dumps(BODY).encode()},
    "text": {"data": json.dumps(BODY)},
}


@pytest.mark.parametrize("given", GIVEN)
async def test_a_plain_call(
    exported: CaptureExporter, server: ScriptedProvider, session: Any, given: str
) -> None:
    """One span with the facts of request and response, however the body is given."""
    server.add(*[Reply(text="SECRET", usage={"prompt_tokens": 5, "completion_tokens": 2})] * 2)
    async with session.post(url(server), **GIVEN[given]) as response:
        without = await response.json()
    clew.instrument()
    with clew.run("triage"):
        async with session.post(url(server), **GIVEN[given]) as response:
            answer = await response.json()
    assert answer["choices"] == without["choices"]
    first, second = server.requests
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
    exported: CaptureExporter, server: ScriptedProvider, session: Any
) -> None:
    """With `raise_for_status` nobody sees the body; the status is known all the same."""
    clew.instrument()
    server.add(Reply.failure(429))
    with clew.run("triage"), pytest.raises(aiohttp.ClientResponseError):
        await session.post(url(server), json=BODY, raise_for_status=True)
    (found,) = rounds(exported)
    assert (found["http.response.status_code"], found["error.type"]) == (429, "429")


async def test_trace_headers_stay_in_the_house(
    exported: CaptureExporter, server: ScriptedProvider
) -> None:
    """Trace headers are taken off, also those that a middleware adds below; all else is sent."""
    clew.instrument()
    server.add(Reply(text="x"))

    async def add(request: Any, handler: Any) -> Any:
        request.headers["baggage"] = "user.id=SECRET"
        return await handler(request)

    async with aiohttp.ClientSession(middlewares=(add,)) as session:
        with clew.run("triage"):
            headers = {"x-mine": "1"}
            propagate.inject(headers)
            assert "traceparent" in headers
            async with session.post(url(server), json=BODY, headers=headers) as response:
                await response.read()
    sent = {name.lower(): value for name, value in server.requests[0].headers}
    assert sent["x-mine"] == "1"
    assert not {"traceparent", "tracestate", "baggage"} & set(sent)


async def test_trace_headers_go_where_the_operator_lets_them(
    server: ScriptedProvider, session: Any
) -> None:
    """A host on the list sees them."""
    settings = Settings.from_environment(propagate_to=frozenset({"127.0.0.1"}))
    clew.configure("x", settings=settings, span_exporters=[CaptureExporter()])
    clew.instrument()
    server.add(Reply(text="x"))
    with clew.run("triage") as run:
        headers: dict[str, str] = {}
        propagate.inject(headers)
        async with session.post(url(server), json=BODY, headers=headers) as response:
            await response.read()
    sent = {name.lower(): value for name, value in server.requests[0].headers}
    assert run.trace_id in sent["traceparent"]


async def test_other_requests_are_left_alone(
    exported: CaptureExporter, server: ScriptedProvider, session: Any
) -> None:
    """A request that is no model call opens no round and keeps its trace headers."""
    clew.instrument()
    with clew.run("triage"):
        headers: dict[str, str] = {}
        propagate.inject(headers)
        async with session.get(f"{server.base_url}/health", headers=headers) as response:
            await response.read()
    assert "traceparent" in {name.lower() for name, _ in server.requests[0].headers}
    assert [one.name for one in exported.spans if one.name.startswith(("chat", "unknown"))] == []


async def test_a_relative_url(exported: CaptureExporter, server: ScriptedProvider) -> None:
    """A session with a base URL is understood as well."""
    clew.instrument()
    server.add(Reply(text="x"))
    async with (
        aiohttp.ClientSession(base_url=f"{server.base_url}/v1/") as session,
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
    exported: CaptureExporter, server: ScriptedProvider, session: Any
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
    server.add(Reply(text="x"))
    async with httpx.AsyncClient(transport=Transport()) as client:
        with clew.run("triage"):
            answer = await client.post(url(server), json=BODY)
    assert answer.json()["choices"]
    (found,) = rounds(exported)
    assert found["gen_ai.usage.input_tokens"] == 12


async def test_one_session_alone(
    exported: CaptureExporter, server: ScriptedProvider, session: Any
) -> None:
    """Only the session that was given is listened to, once, and it can be let go."""
    server.add(*[Reply(text="x")] * 5)

    async def ask(client: Any) -> None:
        async with client.post(url(server), json=BODY) as response:
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
