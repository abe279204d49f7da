"""A fault inside Clew never reaches the application: each step is made to fail in turn."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import pytest
from either_way import settle
from kits.comparing import described, normal
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

import clew
from clew import _guard, decisions, dialects, exchange, rounds, spans, streams
from clew.allow_list import AllowList
from clew.pipeline import runtime
from clew.pipeline.filter import Filter
from clew.pipeline.stamp import Segment
from clew.pipeline.worker import Worker
from clew.pricing import Prices
from clew.testing import Reply, ScriptedProvider, captured

WORDS = "zqmark in the text of a fault"


PATHS = {"openai": "/v1/chat/completions", "anthropic": "/v1/messages"}


def failing(*args: Any, **kwargs: Any) -> Any:
    """Stand in for a step that fails."""
    raise ZeroDivisionError(WORDS)


def dialect_of(kit: Any) -> type:
    route = dialects.recognise("POST", "127.0.0.1:1", PATHS[kit.provider])
    assert route is not None
    return type(route.dialect)


def reader_of(kit: Any) -> type:
    route = dialects.recognise("POST", "127.0.0.1:1", PATHS[kit.provider])
    assert route is not None
    return type(route.dialect.stream(route, "text/event-stream"))


STEPS: dict[str, tuple[Any, str]] = {
    "recognise the request": (exchange, "recognise"),
    "begin an exchange": (exchange, "begin"),
    "follow a body": (streams.StreamTap, "__init__"),
    "read the request": (dialect_of, "request"),
    "read the response": (dialect_of, "response"),
    "make a stream reader": (dialect_of, "stream"),
    "take a piece of a stream": (reader_of, "feed"),
    "sum up a stream": (reader_of, "result"),
    "find a price": (Prices, "find_for"),
    "compute a cost": (rounds, "compute"),
    "describe a decision": (decisions.Decision, "_add_facts"),
    "start a span": (spans.Node, "_start"),
    "end a span": (spans.Node, "_end_with"),
    "number a round": (Segment, "next_round"),
    "finish a round": (rounds.Round, "_add_failure"),
    "count a round": (rounds.Round, "count"),
    "describe a round": (rounds.Round, "describe"),
    "filter a span": (Filter, "apply"),
    "queue a span": (Worker, "submit"),
    "queue a round": (Worker, "submit_soon"),
}
"""What is made to fail: an owner, or a function of the SDK that finds it, and a name."""


@pytest.fixture(autouse=True)
def _forgotten_faults() -> Any:
    """Count from zero, and leave no count behind."""
    _guard.forget()
    yield
    _guard.forget()


async def use_everything(kit: Any, server: ScriptedProvider) -> list[Any]:
    """Return what an application sees of a plain call, a stream, a tool, a decision, a refusal."""
    client = kit.client(server)
    seen: list[Any] = []
    with clew.run("agent"):
        seen.append((await kit.ask(client)).model_dump_json())
        stream = await kit.stream(client)
        seen.append([chunk.model_dump_json() async for chunk in kit.chunks(stream)])
        with clew.tool("find") as tool:
            tool.result_bytes = 3
        with trace.get_tracer("somebody.else").start_as_current_span("inner") as inner:
            inner.set_attribute("message", "zqmark")
        clew.decide("tool", "allow")
        with clew.decide("budget") as decision:
            decision.outcome = "deny"
        try:
            await kit.ask(client)
        except kit.sdk.APIStatusError as error:
            seen.append((type(error), error.body))
        with pytest.raises(LookupError), clew.tool("find"):
            raise LookupError
    closing = client.close()
    if kit.asynchronous:
        await closing
    return seen


def script(kit: Any) -> list[Reply]:
    return [kit.reply, kit.reply, Reply.failure(400, "zqmark")]


@pytest.mark.parametrize("step", STEPS)
async def test_a_step_that_fails(
    step: str, kit: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    """The application gets what it gets without Clew; the fault is counted, logged once, wordless."""
    with ScriptedProvider(script(kit)) as server:
        bare = await use_everything(kit, server)
    caplog.set_level(logging.DEBUG, logger="clew")
    with captured() as exporter, ScriptedProvider(script(kit)) as server:
        owner, name = STEPS[step]
        if owner in (dialect_of, reader_of):
            owner = owner(kit)
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, failing)
            seen = await use_everything(kit, server)
            otlp = exporter.otlp_bytes()
    assert seen == bare
    assert len(seen) == 3
    assert sum(_guard.failures.values()) > 0
    assert b"zqmark" not in otlp.lower()
    logged = [record.getMessage() for record in caplog.records if record.name == "clew"]
    assert logged
    assert len(logged) == len(set(logged))
    assert "zqmark" not in caplog.text


async def use_it(kit: Any, server: ScriptedProvider) -> list[Any]:
    """Return what an application sees of a plain call, a stream, a tool, a refusal."""
    client = await settle(kit.client(server))
    seen: list[Any] = []
    with clew.run("agent"):
        seen.append(normal(await kit.ask(client)))
        seen.append(normal(await kit.gathered(await kit.stream(client))))
        with trace.get_tracer("somebody.else").start_as_current_span("inner") as inner:
            inner.set_attribute("message", "zqmark")
        with clew.tool("find") as tool:
            tool.result_bytes = 3
        try:
            await kit.ask(client)
        except Exception as error:
            seen.append(described(error))
        with pytest.raises(LookupError), clew.tool("find"):
            raise LookupError
    await kit.close(client)
    return seen


CONTENT_TYPES = {
    "Ollama": "application/x-ndjson",
    "Amazon Bedrock": "application/vnd.amazon.eventstream",
}


def dialects_of(kit: Any, server: ScriptedProvider) -> dict[Any, type]:
    """Return the classes that stand for a dialect and for its reader, by what is sent."""
    paths = [request.path.partition("?")[0] for request in server.requests[:2]]
    routes = [dialects.recognise("POST", "127.0.0.1:1", path) for path in paths]
    assert routes[0] is not None
    assert routes[1] is not None
    kind = CONTENT_TYPES.get(kit.provider, "text/event-stream")
    reader = routes[1].dialect.stream(routes[1], kind)
    return {dialect_of: type(routes[0].dialect), reader_of: type(reader)}


@pytest.mark.kits("sdks")
async def test_each_step_fails_in_turn(
    kit: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    """The same over every other SDK and its HTTP client library, one step after the other."""
    with ScriptedProvider(script(kit), formats=kit.formats) as server:
        bare = await use_it(kit, server)
        owners = dialects_of(kit, server)
    assert len(bare) == 3
    caplog.set_level(logging.DEBUG, logger="clew")
    wrong: dict[str, Any] = {}
    for step, (owner, name) in STEPS.items():
        if owner is decisions.Decision:
            continue  # no matter of the client
        _guard.forget()
        caplog.clear()
        with (
            captured() as exporter,
            ScriptedProvider(script(kit), formats=kit.formats) as server,
            monkeypatch.context() as patch,
        ):
            patch.setattr(owners.get(owner, owner), name, failing)
            seen = await use_it(kit, server)
            otlp = exporter.otlp_bytes()
        said = [record.getMessage() for record in caplog.records if record.name == "clew"]
        if seen != bare:
            wrong[step] = "the application sees something else"
        elif len(said) != len(set(said)) or "zqmark" in caplog.text or b"zqmark" in otlp.lower():
            wrong[step] = said
        elif not (sum(_guard.failures.values()) and said):
            wrong[step] = "it is not counted and logged"
    assert wrong == {}


class Failing(SpanExporter):
    """An exporter that raises, whatever it is asked."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        raise ZeroDivisionError(WORDS)

    def shutdown(self) -> None:
        raise ZeroDivisionError(WORDS)

    def force_flush(self, timeout_millis: int = 30000) -> bool:
        raise ZeroDivisionError(WORDS)


async def test_an_exporter_that_raises(kit: Any, caplog: pytest.LogCaptureFixture):
    """The other exporters get everything, the application notices nothing."""
    from clew.testing import CaptureExporter

    kept = CaptureExporter()
    with ScriptedProvider(script(kit)) as server:
        bare = await use_everything(kit, server)
    clew.configure(settings=clew.Settings(digest_key="key"), span_exporters=[Failing(), kept])
    clew.instrument()
    try:
        with ScriptedProvider(script(kit)) as server:
            assert await use_everything(kit, server) == bare
    finally:
        clew.uninstrument()
        clew.shutdown()
    assert len(kept.by_name("invoke_agent")) == 1
    assert len(kept.by_name("chat")) == 3
    assert "zqmark" not in caplog.text


async def test_an_observer_that_raises(kit: Any):
    """An observer of rounds cannot disturb the call that it observes."""
    with captured() as exporter, ScriptedProvider(script(kit)) as server:
        current = runtime.get()
        assert current is not None
        current.observers.append(failing)
        assert len(await use_everything(kit, server)) == 3
        assert len(exporter.by_name("chat")) == 3
    assert _guard.failures["tell an observer"] == 3


async def test_an_empty_allow_list(kit: Any):
    """With nothing on the list nothing passes, and nothing breaks."""
    with captured(allow_list=AllowList({})) as exporter, ScriptedProvider(script(kit)) as server:
        assert len(await use_everything(kit, server)) == 3
        assert {len(span.attributes or {}) for span in exporter.spans} <= {0}
