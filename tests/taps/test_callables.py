"""Callables of the user's own: what a mapping tells, and what may be given to `instrument`."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any

import httpx2
import pytest
from callable_kit import (
    ASK,
    CHUNKS,
    FACTS,
    TOLD,
    BrokenError,
    Provider,
    answer,
    recorded,
    rounds,
    spans,
    told,
)
from either_way import settle
from opentelemetry import trace

import clew
from clew.testing import CaptureExporter, Reply, ScriptedProvider


@pytest.mark.parametrize("method", ["complete", "acomplete"])
async def test_a_plain_call(exported: CaptureExporter, provider: Provider, method: str) -> None:
    """One round with what arguments and result say; the caller gets the very result."""
    call = recorded(getattr(provider, method))
    assert inspect.iscoroutinefunction(call) is (method == "acomplete")
    with clew.run("triage") as run:
        result = await settle(call(**ASK))
        outer = trace.get_current_span().get_span_context().span_id
    assert outer == run.span.get_span_context().span_id
    assert result.text == "SECRET"
    (found,) = rounds(exported)
    assert told(found) == TOLD
    assert "clew.request.bytes" not in found
    assert "clew.stream.outcome" not in found
    (span,) = spans(exported)
    assert span.name == "chat acme-1"
    assert set(provider.seen) == {span.context.span_id}
    assert b"SECRET" not in exported.otlp_bytes()


def test_a_call_that_fails(exported: CaptureExporter) -> None:
    """The exception passes on; its type is recorded, not its text."""

    def complete(model: str) -> None:
        raise BrokenError("SECRET")

    with pytest.raises(BrokenError):
        recorded(complete)("acme-1")
    (found,) = rounds(exported)
    assert found["error.type"].endswith(".BrokenError")
    assert found["gen_ai.request.model"] == "acme-1"
    assert b"SECRET" not in exported.otlp_bytes()


async def test_a_coroutine_that_is_cancelled(exported: CaptureExporter) -> None:
    """Cancelling passes on and is told as such."""

    async def complete(model: str) -> None:
        await asyncio.sleep(60)

    task = asyncio.create_task(recorded(complete)("acme-1"))
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    (found,) = rounds(exported)
    assert found["clew.stream.outcome"] == "cancelled"


# --- what is instrumented -------------------------------------------------------------------------


def test_methods_of_a_class(exported: CaptureExporter) -> None:
    """A class is instrumented in place, method by method; `self` is among the arguments."""
    facts = {**FACTS, "model": "self.model"}

    class Mine(Provider):
        pass

    assert clew.instrument(Mine, facts={"complete": facts, "stream": facts}) is Mine
    clew.instrument(Mine, facts={"complete": facts})
    Mine().complete(**{**ASK, "model": "other"})
    list(Mine().stream(**ASK))
    assert [found["gen_ai.request.model"] for found in rounds(exported)] == ["acme-1", "acme-1"]
    clew.uninstrument(Mine)
    Mine().complete(**ASK)
    assert len(rounds(exported)) == 2
    assert "complete" not in vars(Mine)


def test_methods_of_one_object(exported: CaptureExporter, provider: Provider) -> None:
    """Only the object that was given is recorded, and it can be let go."""
    facts = {**FACTS, "model": "self.model"}
    assert clew.instrument(provider, facts={"complete": facts}) is provider
    provider.complete(**ASK)
    Provider().complete(**ASK)
    assert [found["gen_ai.request.model"] for found in rounds(exported)] == ["acme-1"]
    clew.uninstrument(provider)
    provider.complete(**ASK)
    assert len(rounds(exported)) == 1


def test_a_class_whose_objects_are_called(exported: CaptureExporter) -> None:
    """Facts without method names mean calls of the objects, not their making."""

    class Model:
        def __init__(self) -> None:
            self.name = "acme-1"

        def __call__(self, prompt: str) -> Any:
            return answer()

    clew.instrument(Model, facts={**FACTS, "model": "self.name"})
    assert Model()("SECRET").reason == "end_turn"
    assert [found["gen_ai.request.model"] for found in rounds(exported)] == ["acme-1"]
    clew.uninstrument()


def test_wrapping_twice_records_once(exported: CaptureExporter, provider: Provider) -> None:
    """A callable that is wrapped again is the same callable."""
    once = recorded(provider.complete)
    twice = recorded(once)
    assert twice is once
    twice(**ASK)
    assert len(rounds(exported)) == 1


def test_letting_go(exported: CaptureExporter, provider: Provider) -> None:
    """After `uninstrument` the callable only calls; instrumented again, it records again."""
    complete = recorded(provider.complete)
    clew.uninstrument(complete)
    complete(**ASK)
    assert rounds(exported) == []
    recorded(complete)(**ASK)
    clew.uninstrument()
    complete(**ASK)
    assert len(rounds(exported)) == 1


def test_without_configuration_nothing_happens(provider: Provider) -> None:
    """A wrapped callable of a process that does not configure Clew just works."""
    assert recorded(provider.complete)(**ASK).text == "SECRET"
    assert list(recorded(provider.stream)(**ASK)) == CHUNKS


def test_requests_below_a_recorded_callable_are_part_of_it(exported: CaptureExporter) -> None:
    """One model call is one round, though its request is seen too; its trace headers stay in."""
    clew.instrument()
    body = {"model": "gpt-4o", "messages": []}
    with ScriptedProvider([Reply(text="x")] * 2) as server:
        url = f"{server.openai_base_url}/chat/completions"

        def complete(model: str) -> Any:
            headers = {"traceparent": "00-" + "1" * 32 + "-" + "2" * 16 + "-01"}
            httpx2.post(url, json=body, headers=headers)
            return answer()

        with clew.run("triage"):
            recorded(complete)("acme-1")
            httpx2.post(url, json=body)
        sent = {name.lower() for name, _ in server.requests[0].headers}
    assert "traceparent" not in sent
    first, second = rounds(exported)
    assert (first["gen_ai.request.model"], first["clew.round"]) == ("acme-1", 1)
    assert (second["gen_ai.request.model"], second["clew.round"]) == ("gpt-4o", 2)


def test_a_tool_inside_a_recorded_callable_has_rounds_of_its_own(
    exported: CaptureExporter,
) -> None:
    """A model that a tool asks while the callable runs is another round."""
    clew.instrument()
    with ScriptedProvider([Reply(text="x")]) as server:
        url = f"{server.openai_base_url}/chat/completions"

        def complete(model: str) -> Any:
            with clew.tool("ask_an_expert"):
                httpx2.post(url, json={"model": "gpt-4o", "messages": []})
            return answer()

        with clew.run("triage"):
            recorded(complete)("acme-1")
    models = [found["gen_ai.request.model"] for found in rounds(exported)]
    assert models == ["gpt-4o", "acme-1"]
