"""Content that was asked for: on our own spans, masked, bounded, and nowhere else."""

# ruff: noqa: SIM300 - expected == actual, in this order
from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from formats import FORMATS
from marked_calls import call, content_of
from marks import mark
from opentelemetry import trace
from surroundings import Answers, watched
from wire_format import Format

import clew
from clew import semconv
from clew.content import READERS
from clew.testing import Reply, ScriptedProvider, captured

SPANS: Any = frozenset({"spans"})
COVERED = [one for one in FORMATS if one.name in READERS]


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
