"""No content leaves below the level `redacted`: marker words everywhere, and a search."""

# ruff: noqa: SIM300 - expected == actual, in this order
from __future__ import annotations

import asyncio
import base64
import contextlib
import json
from pathlib import Path
from typing import Any

import anthropic
import httpx
import openai
import pytest
from anthropic_formats import CLAUDE
from formats import FORMATS
from marked_calls import HEADERS, call, cancel, url
from marks import PREFIX, mark, odd
from openai_formats import OPENAI_CHAT
from opentelemetry import baggage, trace
from opentelemetry.context import attach, detach
from surroundings import Answers, watched
from wire_format import Format

import clew
from clew.allow_list import AllowList, Identifier
from clew.dialects import recognise
from clew.settings import Settings
from clew.testing import Reply, ScriptedProvider, ScriptedToolCall

_CLIENT = 3
LEVELS = ("none", "metadata")
_STATE = trace.TraceState([("vendor", mark("state"))])


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("one", FORMATS, ids=lambda one: one.name)
def test_no_format_leaks_on_any_ending(
    one: Format, level: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each wire format, with content in every field, through each ending."""
    assert recognise("POST", "127.0.0.1", one.path, hosts=one.hosts) is not None
    options: dict[str, Any] = {"capture": level, "provider_hosts": one.hosts}
    with (
        Answers() as server,
        watched(tmp_path / "d", monkeypatch, **options) as everything,
    ):
        endings = ["return", "error"]
        if one.events:
            endings += ["complete", "closed", "abandoned"]
        with clew.run("leak-test", conversation_id="conversation-1"), httpx.Client() as client:
            for ending in endings:
                call(client, server, one, ending)
            if one.events:
                asyncio.run(cancel(server, one))
    assert {} == everything.found()
    calls = [span for span in everything.spans if span.kind == _CLIENT]
    assert len(endings) + bool(one.events) == len(calls)
    assert everything.found("conversation-1").keys() >= {"otlp", "printed"}


def raise_chained() -> None:
    """Raise an exception with text everywhere: its own, its cause's, notes, a repr."""

    class Odd:
        def __repr__(self) -> str:
            return mark("repr")

    try:
        raise KeyError(mark("cause"), Odd())
    except KeyError as cause:
        error = ValueError(mark("exception-text"), Odd())
        error.add_note(mark("note"))
        raise error from cause


@clew.tool("find")
def find(place: str) -> str:
    """Return a result, or fail, as the place says."""
    if place.endswith("fails"):
        raise_chained()
    return mark("tool-result")


def plant_foreign_spans() -> None:
    """Leave markers in every part of another library's span, and on our own current span."""
    tracer = trace.get_tracer(mark("scope") + " x", odd("version"), attributes={"s": mark("sa")})
    context = trace.SpanContext(1, 2, is_remote=True, trace_state=_STATE)
    link = trace.Link(context, {"l": mark("link"), "user.id": mark("link-user")})
    attributes = {
        "http.url": f"https://h/{mark('url')}",
        "db.statement": mark("statement"),
        "user.id": mark("user-id"),
        "gen_ai.input.messages": json.dumps([mark("foreign-content")]),
        "gen_ai.request.model": odd("model"),
        "list": [mark("in-list")],
        mark("key"): 1,
    }
    with (
        contextlib.suppress(ValueError),
        tracer.start_as_current_span(
            f"GET /{mark('span-name')}", links=[link], attributes=attributes
        ) as span,
    ):
        span.add_event(odd("event"), {"e": mark("event-attribute")})
        span.set_status(trace.StatusCode.ERROR, mark("status"))
        raise_chained()
    current = trace.get_current_span()
    current.set_attribute("session.id", odd("session"))
    current.set_attribute("gen_ai.output.messages", json.dumps([mark("set-by-others")]))
    current.set_attribute("gen_ai.tool.call.arguments", mark("set-by-others"))
    current.add_event(mark("own-event") + " x", {"x": mark("own-event-attribute")})
    current.add_link(context, {"x": mark("own-link")})
    current.record_exception(ValueError(mark("recorded")))
    current.set_status(trace.StatusCode.ERROR, mark("own-status"))


def act(ending: str) -> None:
    """Run an agent with markers around it, to one of its endings."""
    with clew.run(
        "leak-test",
        conversation_id=odd("conversation"),
        actor=mark("actor"),
        tenant=odd("tenant") if ending == "return" else "tenant-1",
        configuration="c" * 200 + mark("long"),
        message_id="message-1",
    ):
        plant_foreign_spans()
        find("here")
        with contextlib.suppress(ValueError):
            find(mark("place") + "fails")
        with clew.tool(odd("tool-name"), call_id=odd("call-id")):
            pass
        clew.decide("budget", "deny", reason=odd("reason"), subject=odd("subject"))
        with clew.decide("tool", policy=odd("policy"), subject="find"):
            pass
        if ending == "exception":
            raise_chained()
        if ending == "cancel":
            raise asyncio.CancelledError(mark("cancelled"))
        if ending == "interrupt":
            raise KeyboardInterrupt(mark("interrupted"))
        if ending == "exit":
            raise SystemExit(mark("exit-text"))


ENDINGS: dict[str, type[BaseException]] = {
    "exception": ValueError,
    "cancel": asyncio.CancelledError,
    "interrupt": KeyboardInterrupt,
    "exit": SystemExit,
}


@pytest.mark.parametrize("level", LEVELS)
def test_nothing_around_a_model_call_leaks(
    level: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tools, decisions, other libraries' spans, resources, baggage, identifiers that are none."""
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", f"owner={mark('owner')},k8s.pod.name=pod-1")
    monkeypatch.setenv("OTEL_METRICS_EXEMPLAR_FILTER", "always_on")
    with watched(tmp_path / "d", monkeypatch, capture=level) as everything:
        held = baggage.set_baggage("user", mark("baggage"))
        token = attach(held)
        try:
            act("return")
            for ending, expected in ENDINGS.items():
                with pytest.raises(expected):
                    act(ending)
        finally:
            detach(token)
    assert {} == everything.found()
    for valid in ("message-1", "tenant-1", "pod-1", "leak-test", "ValueError"):
        assert "otlp" in everything.found(valid), valid


def test_what_clew_itself_fails_at_leaks_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fault inside Clew is logged without what it was about."""
    from clew.dialects import openai_chat

    def broken(self: Any, *arguments: Any) -> Any:
        raise RuntimeError(mark("inner-fault"), arguments)

    with Answers() as server, watched(tmp_path / "d", monkeypatch) as everything:
        monkeypatch.setattr(type(openai_chat.openai_chat), "request", broken)
        monkeypatch.setattr(type(openai_chat.openai_chat), "response", broken)
        with clew.run("leak-test"), httpx.Client() as client:
            call(client, server, FORMATS[0], "return")
    assert "RuntimeError" in everything.places["log"].decode()
    assert {} == everything.found()


def sdk_calls(base_url: str, kind: str) -> None:
    """Call through a real SDK client: plain, streamed to its end, closed early, refused."""
    client: Any
    if kind == "openai":
        client = openai.OpenAI(
            base_url=f"{base_url}/v1",
            api_key=mark("key"),
            max_retries=1,
            default_headers={"x-custom": mark("header")},
            default_query={"q": mark("query")},
        )
        create, request = client.chat.completions.create, OPENAI_CHAT
    else:
        client = anthropic.Anthropic(
            base_url=base_url, api_key=mark("key"), max_retries=1, default_query={"q": mark("q")}
        )
        create, request = client.messages.create, CLAUDE
    request = {key: value for key, value in request.items() if key != "safety_identifier"}
    with client:
        create(**request)
        for _ in create(**request, stream=True):
            pass
        stream = create(**request, stream=True)
        next(iter(stream))
        stream.close()
        with contextlib.suppress(Exception):
            create(**request)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("kind", ["openai", "anthropic"])
def test_no_sdk_leaks(
    kind: str, level: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The real clients, whose own exceptions quote the provider's body."""
    reply = Reply(
        text=mark("completion"),
        reasoning=mark("reasoning"),
        tool_calls=(ScriptedToolCall(name=mark("chosen"), arguments={"place": mark("place")}),),
    )
    refusal = Reply.failure(400, mark("error-body"))
    with (
        ScriptedProvider([reply, reply, reply, refusal, refusal]) as server,
        watched(tmp_path / "d", monkeypatch, capture=level) as everything,
        contextlib.suppress(ValueError),
        clew.run("leak-test"),
    ):
        sdk_calls(server.base_url, kind)
        raise_chained()
    assert {} == everything.found()
    rounds = [span for span in everything.spans if span.name.startswith("chat ")]
    assert 4 <= len(rounds)


def test_a_call_that_reaches_nobody_leaks_no_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keys in the address, the query and the headers of a call whose connection fails."""
    with Answers() as server:
        gone = url(server, "/v1/chat/completions")
    with watched(tmp_path / "d", monkeypatch) as everything, clew.run("leak-test"):
        with contextlib.suppress(httpx.ConnectError):
            httpx.post(gone, json=OPENAI_CHAT, headers=HEADERS)
        with contextlib.suppress(openai.APIConnectionError):
            client = openai.OpenAI(base_url=gone, api_key=mark("key"), max_retries=0)
            client.chat.completions.create(**OPENAI_CHAT)
    assert {} == everything.found()
    assert "otlp" in everything.found("127.0.0.1")


def test_a_path_that_is_not_known_leaks_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a provider's own host any path is a call, about which nothing is read."""

    def answer(_: httpx.Request) -> httpx.Response:
        return httpx.Response(200, json={"text": mark("completion")})

    address = f"https://api.openai.com/v9/{mark('path')}?q={mark('query')}"
    with (
        watched(tmp_path / "d", monkeypatch) as everything,
        clew.run("leak-test"),
        httpx.Client(transport=httpx.MockTransport(answer)) as client,
    ):
        client.post(address, json={"prompt": mark("prompt")}, headers=HEADERS)
    assert {} == everything.found()
    assert "otlp" in everything.found("api.openai.com")


def test_the_search_finds_what_is_let_through(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The proof of the proof: a key that the list lets pass is found in every place."""
    allow_list = AllowList.default().extended({"note": Identifier()})
    with (
        watched(tmp_path / "d", monkeypatch, allow_list=allow_list) as everything,
        clew.run("leak-test"),
    ):
        trace.get_current_span().set_attribute("note", mark("let-through"))
    assert {"otlp", "printed", "clew.db"} <= everything.found().keys()
    for form in (mark("x").encode().hex(), base64.b64encode(b"a" + mark("x").encode()).decode()):
        everything.places = {"here": form.encode()}
        assert {"here"} == everything.found().keys()


@pytest.mark.parametrize("protocol", ["http/protobuf", "grpc"])
def test_a_receiver_s_credentials_are_in_no_log(
    protocol: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    """What Clew logs of a receiver that is not there has nothing of its address and headers."""
    monkeypatch.setenv("CLEW_DATA_DIR", str(tmp_path))
    address = f"http://{mark('user')}:{mark('password')}@127.0.0.1:9/{mark('path')}?k={mark('q')}"
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", address)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", protocol)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", f"authorization=Bearer {mark('token')}")
    caplog.set_level("DEBUG", "clew")
    settings = Settings.from_environment(export_delay_ms=20, seal_grace_s=0.01, shutdown_s=1)
    clew.configure("tests", settings=settings)
    with clew.run("leak-test"), clew.tool("find"):
        pass
    clew.shutdown()
    ours = [each for each in caplog.records if each.name.startswith("clew")]
    said = "\n".join(f"{each.getMessage()} {each.args}" for each in ours)
    assert "lost" in said
    assert PREFIX not in said.lower()
