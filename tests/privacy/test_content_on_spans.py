"""Content that was asked for: on our own spans, masked, bounded, and nowhere else."""

# ruff: noqa: SIM300 - expected == actual, in this order
from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from formats import FORMATS, Format, mark
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from surroundings import Answers, watched
from test_leaks import call

import clew
from clew import semconv
from clew.content import READERS
from clew.settings import Settings
from clew.testing import Reply, ScriptedProvider, captured

SPANS: Any = frozenset({"spans"})
COVERED = [one for one in FORMATS if one.name in READERS]


def content_of(spans: Any) -> list[dict[str, Any]]:
    """Return the content of each model call, read as the JSON that it must be."""
    found: list[dict[str, Any]] = []
    for span in spans:
        held = {key: span.attributes[key] for key in semconv.CONTENT if key in span.attributes}
        if held:
            found.append({key: json.loads(value) for key, value in held.items()})
    return found


@pytest.mark.parametrize("one", COVERED, ids=lambda one: one.name)
def test_each_covered_format_shows_its_content_when_asked(
    one: Format, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Plain and streamed; what is no message (headers, addresses, errors) stays out even then."""
    options: dict[str, Any] = {"content_to": SPANS, "provider_hosts": one.hosts}
    with Answers() as server, captured(capture="full", **options) as exporter:
        with clew.run("leak-test"), httpx.Client() as client:
            for ending in ("return", "complete", "closed", "error"):
                call(client, server, one, ending)
        spans = [span for span in exporter.spans if span.kind is trace.SpanKind.CLIENT]
        found = content_of(spans)
        outside = exporter.otlp_bytes()
    assert 4 == len(found)
    answered = [semconv.OUTPUT_MESSAGES in each for each in found]
    # Of the stream that is closed, the first piece has come; that need not hold a word yet.
    assert [True, True, False] == [*answered[:2], answered[3]]
    for each in found:
        assert mark("prompt") in json.dumps(each[semconv.INPUT_MESSAGES])
    for each in found[:2]:
        assert mark("completion") in json.dumps(each[semconv.OUTPUT_MESSAGES])
    for place in ("key", "header", "password", "query", "error-body", "baggage", "pixels"):
        assert mark(place).encode() not in outside, place


def test_without_a_place_nothing_is_captured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The level alone lets nothing onto spans: the place has to be named."""
    with (
        Answers() as server,
        watched(tmp_path / "d", monkeypatch, capture="full") as everything,
        clew.run("leak-test"),
        httpx.Client() as client,
    ):
        call(client, server, FORMATS[0], "return")
    assert {} == everything.found()
    assert "content_to" in everything.places["log"].decode()


def test_only_what_clew_captured_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys of content that somebody else sets are dropped, on other spans and on ours."""
    options: dict[str, Any] = {"capture": "full", "content_to": SPANS}
    with watched(tmp_path / "d", monkeypatch, **options) as everything, clew.run("leak-test"):
        for key in semconv.CONTENT:
            trace.get_current_span().set_attribute(key, json.dumps([mark("on-ours")]))
        with trace.get_tracer("other").start_as_current_span("chat x") as span:
            span.set_attribute("gen_ai.input.messages", json.dumps([mark("foreign")]))
            span.add_event("e", {"gen_ai.output.messages": mark("event")})
    assert {} == everything.found()


def test_a_lowered_run_or_block_shows_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The strictest level wins, for the calls of that run or block alone."""
    options: dict[str, Any] = {"capture": "full", "content_to": SPANS}
    with Answers() as server, watched(tmp_path / "d", monkeypatch, **options) as everything:
        with clew.run("leak-test", capture="metadata"), httpx.Client() as client:
            call(client, server, FORMATS[0], "return")
        with clew.run("leak-test"), clew.capture("none"), httpx.Client() as client:
            call(client, server, FORMATS[0], "complete")
    assert {} == everything.found()


SECRET = "sk-proj-" + mark("secret").replace("-", "") + "0" * 20
REDACTED_PLACES = {
    "system": f"use {SECRET}",
    "user": f"postgres://u:{mark('pw')}@db and ada.{mark('mail')}@mail.example.com",
}


def test_redacted_content_has_no_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In prompts, answers, tool descriptions and arguments, whole and streamed."""
    messages = [{"role": role, "content": text} for role, text in REDACTED_PLACES.items()]
    tool = {"name": "find", "description": SECRET, "parameters": {"default": SECRET}}
    reply = Reply(text=f"The key is {SECRET}.")
    options: dict[str, Any] = {"capture": "redacted", "content_to": SPANS}
    with (
        ScriptedProvider([reply, reply]) as server,
        watched(tmp_path / "d", monkeypatch, **options) as everything,
        clew.run("leak-test"),
    ):
        client = openai.OpenAI(base_url=server.openai_base_url, api_key="any")
        create: Any = client.chat.completions.create
        request = {"model": "m", "messages": messages}
        create(**request, tools=[{"type": "function", "function": tool}])
        list(create(**request, stream=True))
    assert {} == everything.found()
    assert "otlp" in everything.found("The key is ***")


def test_a_raise_shows_content_of_that_run_alone() -> None:
    """With the switch and an actor who may, one run is seen; its neighbour is not."""
    from clew.actors import Actor

    admin = Actor(id="root-1", admin=True)
    reply = Reply(text="hello")
    with (
        ScriptedProvider([reply, reply]) as server,
        captured(capture_max="full", content_to=SPANS) as exporter,
    ):
        client = openai.OpenAI(base_url=server.openai_base_url, api_key="any")
        create: Any = client.chat.completions.create
        request = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
        with clew.run("seen", actor=admin, capture="full"):
            create(**request)
        with clew.run("not-seen", actor=admin):
            create(**request)
        assert 1 == len(content_of(exporter.spans))


def ask(server: ScriptedProvider, messages: list[Any]) -> None:
    client = openai.OpenAI(base_url=server.openai_base_url, api_key="any")
    create: Any = client.chat.completions.create
    with clew.run("a"):
        create(model="gpt-5-mini", messages=messages)


def test_a_long_conversation_leaves_the_facts_whole() -> None:
    """Sixty messages are one value; identity, usage and cost are all there."""
    messages = [{"role": "user", "content": f"message {at} " + "x" * 5000} for at in range(60)]
    with (
        ScriptedProvider([Reply(text="hello")]) as server,
        captured(capture="full", content_to=SPANS) as exporter,
    ):
        ask(server, messages)
        span = exporter.by_name("chat")[0]
        attributes = span.attributes or {}
        assert {"clew.run.id", "clew.seq", "gen_ai.usage.input_tokens"} <= attributes.keys()
        assert len(str(attributes["gen_ai.input.messages"])) <= 32_768
        assert 60 == len(json.loads(str(attributes["gen_ai.input.messages"])))


def test_a_picture_leaves_a_small_span() -> None:
    """Three megabytes of picture and a vector are a few words on the span."""
    address = "data:image/png;base64," + "QUJD" * 1_000_000
    picture = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": address}}]}
    with (
        ScriptedProvider([Reply(text="hello")]) as server,
        captured(capture="full", content_to=SPANS) as exporter,
    ):
        ask(server, [picture])
        part = content_of(exporter.spans)[0]["gen_ai.input.messages"][0]["parts"][0]
        assert ("blob", "image/png", 3_000_000) == (part["type"], part["mime_type"], part["bytes"])
        assert len(exporter.otlp_bytes()) < 16_384


@pytest.mark.parametrize("limit", [100, 4000])
def test_a_host_that_cuts_attributes_gets_valid_json(
    limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The SDK's own length limit cuts anywhere; content is made to fit below it."""
    monkeypatch.setenv("OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT", str(limit))
    kept = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(kept))
    settings = Settings.from_environment(None, capture="full", content_to=SPANS, digest_key="k")
    messages = [{"role": "user", "content": '\U0001f600"\\' * 50_000}]
    with ScriptedProvider([Reply(text="hello " * 2000)]) as server:
        clew.configure(settings=settings, tracer_provider=provider)
        clew.instrument()
        ask(server, messages)
        clew.uninstrument()
        clew.shutdown()
    found = content_of(kept.get_finished_spans())
    assert 1 == len(found)
    assert {"gen_ai.input.messages", "gen_ai.output.messages"} <= found[0].keys()
