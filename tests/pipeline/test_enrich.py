"""Spans of other instrumentations: one span carries a model call's tokens and cost."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest
from opentelemetry import trace
from opentelemetry.trace import SpanKind

import clew
from clew.testing import CaptureExporter, Reply, ScriptedProvider

TOLD: dict[str, Any] = {
    "gen_ai.operation.name": "chat",
    "gen_ai.provider.name": "openai",
    "gen_ai.request.model": "gpt-4o",
    "gen_ai.response.model": "gpt-4o",
    "gen_ai.usage.input_tokens": 100,
    "gen_ai.usage.output_tokens": 20,
}


@pytest.fixture
def server() -> Iterator[ScriptedProvider]:
    with ScriptedProvider() as provider:
        yield provider


def call(server: ScriptedProvider) -> None:
    server.add(Reply(text="x", usage={"prompt_tokens": 100, "completion_tokens": 20}))
    body = {"model": "gpt-4o", "messages": []}
    httpx2.post(f"{server.openai_base_url}/chat/completions", json=body)


def attributes(exported: CaptureExporter, name: str) -> dict[str, Any]:
    (span,) = [one for one in exported.spans if one.name == name]
    return dict(span.attributes or {})


def total(exported: CaptureExporter) -> int:
    key = "gen_ai.usage.input_tokens"
    return sum(dict(span.attributes or {}).get(key, 0) for span in exported.spans)


def test_a_foreign_model_call_without_a_round_is_priced(exported: CaptureExporter) -> None:
    """It keeps its usage, and gets its cost on export."""
    tracer = trace.get_tracer("foreign")
    with clew.run("triage"), tracer.start_as_current_span("chat gpt-4o", attributes=TOLD):
        pass
    found = attributes(exported, "chat gpt-4o")
    assert found["gen_ai.usage.input_tokens"] == 100
    assert found["clew.cost.status"] == "priced"
    assert found["clew.cost.usd"] == pytest.approx(100 * 2.5e-6 + 20 * 1e-5)
    assert "clew.aggregate" not in found


def test_of_foreign_spans_around_each_other_the_innermost_counts(
    exported: CaptureExporter,
) -> None:
    """Two instrumentations of one call, and an agent's span with the sum, count it once."""
    tracer = trace.get_tracer("foreign")
    agent = {**TOLD, "gen_ai.operation.name": "invoke_agent"}
    with (
        tracer.start_as_current_span("agent", attributes=agent),
        tracer.start_as_current_span("outer", attributes=TOLD),
        tracer.start_as_current_span("inner", kind=SpanKind.CLIENT, attributes=TOLD),
    ):
        pass
    assert total(exported) == 100
    assert attributes(exported, "inner")["gen_ai.usage.input_tokens"] == 100
    for name in ("outer", "agent"):
        assert attributes(exported, name)["clew.aggregate"] is True


def test_a_foreign_span_around_a_round_is_folded(
    exported: CaptureExporter, server: ScriptedProvider
) -> None:
    """Our round carries usage and cost; the span above is marked and has neither."""
    clew.instrument()
    tracer = trace.get_tracer("foreign")
    with clew.run("triage"), tracer.start_as_current_span("foreign", attributes=TOLD):
        call(server)
    assert total(exported) == 100
    found = attributes(exported, "foreign")
    assert found["clew.aggregate"] is True
    assert [key for key in found if key.startswith(("gen_ai.usage.", "clew.cost."))] == []


def test_a_foreign_span_without_usage_is_left_alone(
    exported: CaptureExporter, server: ScriptedProvider
) -> None:
    """A span that is no model call is neither marked nor priced."""
    clew.instrument()
    tracer = trace.get_tracer("foreign")
    with tracer.start_as_current_span("request", attributes={"http.request.method": "GET"}):
        call(server)
    found = attributes(exported, "request")
    assert "clew.aggregate" not in found
    assert "clew.cost.status" not in found


@pytest.mark.parametrize(
    ("changed", "status"),
    [
        ({"gen_ai.response.model": "nobody-knows", "gen_ai.request.model": "it"}, "unpriced"),
        ({"gen_ai.operation.name": "execute_tool"}, None),
        ({"gen_ai.usage.input_tokens": "many", "gen_ai.usage.output_tokens": -1}, None),
        ({"gen_ai.provider.name": None, "gen_ai.system": "openai"}, "priced"),
        ({"gen_ai.operation.name": "embeddings", "gen_ai.usage.output_tokens": None}, "partial"),
    ],
)
def test_what_is_priced(
    exported: CaptureExporter, changed: dict[str, Any], status: str | None
) -> None:
    """Only model calls with counts that are counts; what has no rate says so."""
    told = {key: value for key, value in {**TOLD, **changed}.items() if value is not None}
    with trace.get_tracer("foreign").start_as_current_span("call", attributes=told):
        pass
    assert attributes(exported, "call").get("clew.cost.status") == status


@pytest.mark.parametrize("inside", [True, False])
def test_a_foreign_span_that_is_not_current_is_folded_too(
    exported: CaptureExporter, server: ScriptedProvider, inside: bool
) -> None:
    """Some instrumentations put their span beside the call: it is known by its model."""
    clew.instrument()
    with contextlib.ExitStack() as stack:
        if inside:
            stack.enter_context(clew.run("triage"))
        beside = trace.get_tracer("foreign").start_span("beside")
        call(server)
        beside.set_attributes(TOLD)
        beside.end()
    assert total(exported) == 100
    assert attributes(exported, "beside")["clew.aggregate"] is True


def test_a_foreign_call_of_another_model_beside_a_round_keeps_its_own(
    exported: CaptureExporter, server: ScriptedProvider
) -> None:
    """A call that only happens at the same time is a call of its own."""
    clew.instrument()
    with clew.run("triage"):
        beside = trace.get_tracer("foreign").start_span("beside")
        call(server)
        beside.set_attributes(TOLD | {"gen_ai.request.model": "o3", "gen_ai.response.model": "o3"})
        beside.end()
    assert total(exported) == 200
    assert "clew.aggregate" not in attributes(exported, "beside")


def test_a_foreign_span_that_comes_after_the_call_is_folded_too(
    exported: CaptureExporter, server: ScriptedProvider
) -> None:
    """Some instrumentations tell of a stream when it is over: it is known by what it tells."""
    clew.instrument()
    tracer = trace.get_tracer("foreign")
    with clew.run("triage"):
        with tracer.start_as_current_span("foreign"):
            call(server)
        with tracer.start_as_current_span("after", attributes=TOLD):
            pass
        others = TOLD | {"gen_ai.usage.input_tokens": 7}
        with tracer.start_as_current_span("another call", attributes=others):
            pass
    assert total(exported) == 107
    assert attributes(exported, "after")["clew.aggregate"] is True
