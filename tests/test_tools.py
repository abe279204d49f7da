"""Tool calls: blocks and decorated functions, sync and async, functions and generators."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from opentelemetry.trace import StatusCode

import clew
from clew.testing import CaptureExporter


def tools(exported: CaptureExporter) -> list[dict[str, Any]]:
    return [dict(span.attributes or {}) for span in exported.by_name("execute_tool")]


def test_a_block_is_a_tool_call(exported: CaptureExporter) -> None:
    """Name, call id, effect and outcome are on the span; the block's own error is not there."""
    with (
        clew.run("triage"),
        clew.tool("refund", call_id="call_1", effect="non_idempotent_write") as call,
    ):
        call.arguments_bytes = 12
    (found,) = tools(exported)
    assert found["gen_ai.operation.name"] == "execute_tool"
    assert found["gen_ai.tool.name"] == "refund"
    assert found["gen_ai.tool.call.id"] == "call_1"
    assert found["clew.tool.effect"] == "non_idempotent_write"
    assert found["clew.tool.outcome"] == "ok"
    assert found["clew.tool.arguments.bytes"] == 12


@pytest.mark.parametrize(
    ("error", "outcome", "kind"),
    [
        (ValueError("bad input: SECRET"), "error", "ValueError"),
        (TimeoutError("SECRET"), "timeout", "TimeoutError"),
        (asyncio.CancelledError("SECRET"), "cancelled", None),
        (KeyboardInterrupt("SECRET"), "cancelled", None),
    ],
)
def test_how_a_tool_fails_is_told_without_the_text(
    exported: CaptureExporter, error: BaseException, outcome: str, kind: str | None
) -> None:
    """Outcome and type of the exception are recorded, its text is not; it passes on unchanged."""
    with pytest.raises(type(error)) as caught, clew.run("triage"), clew.tool("search"):
        raise error
    assert caught.value is error
    (found,) = tools(exported)
    assert found["clew.tool.outcome"] == outcome
    assert found.get("error.type") == kind
    (span,) = exported.by_name("execute_tool")
    assert span.status.status_code is (StatusCode.ERROR if kind else StatusCode.UNSET)
    assert span.status.description is None
    assert b"SECRET" not in exported.otlp_bytes()


def test_a_tool_that_fails_and_is_caught_is_an_error_in_a_run_that_is_not(
    exported: CaptureExporter,
) -> None:
    """A loop that catches a tool's exception still has the tool's span as an error."""
    with clew.run("triage"):
        try:
            with clew.tool("search"):
                raise ValueError
        except ValueError:
            pass
    (run,) = exported.by_name("invoke_agent")
    assert run.attributes["clew.run.status"] == "completed"
    assert tools(exported)[0]["clew.tool.outcome"] == "error"


def test_an_outcome_can_be_set(exported: CaptureExporter) -> None:
    """A refusal is a tool call with its own outcome, not a failure."""
    with clew.run("triage"), clew.tool("search") as call:
        call.outcome = "denied"
    assert tools(exported)[0]["clew.tool.outcome"] == "denied"


def test_each_form_of_decorator_records(exported: CaptureExporter) -> None:
    """With and without a name; text results have a size."""

    @clew.tool
    def search(query: str) -> str:
        return f"{query}é"

    @clew.tool("look-up", effect="read_only")
    def other() -> dict[str, int]:
        return {}

    with clew.run("triage"):
        assert (search("a"), other()) == ("aé", {})
    first, second = tools(exported)
    assert (first["gen_ai.tool.name"], first["clew.tool.result.bytes"]) == ("search", 3)
    assert (second["gen_ai.tool.name"], second["clew.tool.effect"]) == ("look-up", "read_only")
    assert "clew.tool.result.bytes" not in second


async def test_coroutine_and_generator_tools(exported: CaptureExporter) -> None:
    """Async functions, generators and async generators are each one tool call."""

    @clew.tool
    async def fetch() -> str:
        await asyncio.sleep(0)
        return "x"

    @clew.tool
    def lines() -> Iterator[str]:
        yield "a"
        yield "b"

    @clew.tool
    async def events() -> AsyncIterator[str]:
        yield "a"
        await asyncio.sleep(0)
        yield "b"

    async with clew.run("triage"):
        assert await fetch() == "x"
        assert list(lines()) == ["a", "b"]
        assert [event async for event in events()] == ["a", "b"]
    assert [found["gen_ai.tool.name"] for found in tools(exported)] == ["fetch", "lines", "events"]
    assert {found["clew.tool.outcome"] for found in tools(exported)} == {"ok"}


async def test_parallel_calls_of_one_tool_keep_their_own_times(exported: CaptureExporter) -> None:
    """Three calls at once: three spans with own ids and true durations."""

    async def call(call_id: str | None, seconds: float) -> None:
        async with clew.tool("search", call_id=call_id):
            await asyncio.sleep(seconds)

    async with clew.run("triage"):
        await asyncio.gather(call("c1", 0.09), call("c2", 0.03), call(None, 0.0))
    spans = {
        span.attributes.get("gen_ai.tool.call.id"): (span.end_time - span.start_time) / 1e9
        for span in exported.by_name("execute_tool")
    }
    assert set(spans) == {"c1", "c2", None}
    assert spans["c1"] > 0.085 > spans["c2"] > 0.025 > spans[None]


@pytest.mark.parametrize("name", ["drop table;", "", "x" * 500, "név", "two words"])
def test_a_name_that_is_no_identifier_leaves_as_other(exported: CaptureExporter, name: str) -> None:
    """The span has a fixed name and a keyed digest of the given one."""
    with clew.run("triage"), clew.tool(name):
        pass
    (found,) = tools(exported)
    assert found["gen_ai.tool.name"] == "_OTHER"
    assert len(found["clew.tool.name.digest"]) == 64
    assert [span.name for span in exported.by_name("execute_tool")] == ["execute_tool _OTHER"]


def test_a_tool_without_a_run_is_a_span_of_its_own(exported: CaptureExporter) -> None:
    """Outside a run a tool call has no run id and disturbs nothing."""
    with clew.tool("search"):
        pass
    (found,) = tools(exported)
    assert "clew.run.id" not in found
