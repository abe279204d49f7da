"""Decorated functions, coroutines and generators are runs, and stay what they are."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from run_spans import root

import clew
from clew.testing import CaptureExporter


def test_decorated_functions_are_runs(exported: CaptureExporter) -> None:
    """Each call of a decorated function is a run of its own, and keeps the function's face."""

    @clew.run("triage")
    def work(number: int) -> int:
        """Double."""
        return number * 2

    assert (work(2), work(3)) == (4, 6)
    assert (work.__name__, work.__doc__) == ("work", "Double.")
    first, second = exported.by_name("invoke_agent")
    assert first.context.trace_id != second.context.trace_id


async def test_decorated_coroutines_are_runs(exported: CaptureExporter) -> None:
    """A coroutine function stays one, and what it awaits belongs to its run."""

    @clew.run("triage")
    async def work() -> str:
        await asyncio.sleep(0)
        with clew.tool("search"):
            await asyncio.sleep(0)
        return "done"

    assert asyncio.iscoroutinefunction(work)
    assert await work() == "done"
    assert root(exported)["clew.run.tool_calls"] == 1


def test_a_decorated_generator_is_a_run_from_first_to_last_step(exported: CaptureExporter) -> None:
    """Its body runs in the run, its consumer never does; `send`, `throw` and the result pass."""

    @clew.run("triage")
    def work() -> Iterator[Any]:
        with clew.tool("one"):
            got = yield clew.current_run()
        try:
            yield got
        except LookupError:
            with clew.tool("two"):
                yield "thrown"
        return "result"

    steps = work()
    assert clew.current_run() is None
    run = next(steps)
    assert isinstance(run.run_id, uuid.UUID)
    assert clew.current_run() is None
    assert steps.send("sent") == "sent"
    assert steps.throw(LookupError()) == "thrown"
    assert clew.current_run() is None
    with pytest.raises(StopIteration) as stop:
        next(steps)
    assert stop.value.value == "result"
    found = root(exported)
    assert (found["clew.run.status"], found["clew.run.tool_calls"]) == ("completed", 2)
    (run_span,) = exported.by_name("invoke_agent")
    tools = exported.by_name("execute_tool")
    assert {span.parent.span_id for span in tools} == {run_span.context.span_id}


def test_a_generator_closed_early_is_cancelled(exported: CaptureExporter) -> None:
    """Closing runs the body's `finally` and ends the run once."""
    done = []

    @clew.run("triage")
    def work() -> Iterator[int]:
        try:
            yield 1
            yield 2
        finally:
            done.append(True)

    steps = work()
    next(steps)
    steps.close()
    steps.close()
    assert done == [True]
    assert root(exported)["clew.run.status"] == "cancelled"


async def test_an_async_generator_closed_in_another_task_ends_once(
    exported: CaptureExporter, caplog: pytest.LogCaptureFixture
) -> None:
    """No context token crosses a `yield`: closing elsewhere neither fails nor logs."""

    @clew.run("triage")
    async def work() -> AsyncIterator[int]:
        with clew.tool("search"):
            yield 1
            yield 2

    steps = work()
    assert await anext(steps) == 1
    assert clew.current_run() is None
    await asyncio.create_task(steps.aclose())
    assert root(exported)["clew.run.status"] == "cancelled"
    assert caplog.records == []
