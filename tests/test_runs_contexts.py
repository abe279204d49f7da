"""What belongs to a run: threads, tasks, copied contexts, spans of other libraries."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import uuid

from opentelemetry import trace
from run_spans import attributes

import clew
from clew.testing import CaptureExporter


def test_threads_belong_to_the_run_when_bound(exported: CaptureExporter) -> None:
    """`clew.bind` carries the run into an executor; unbound work has none."""

    def work() -> uuid.UUID | None:
        with clew.tool("search"):
            run = clew.current_run()
            return run.run_id if run else None

    with clew.run("triage") as run, concurrent.futures.ThreadPoolExecutor(2) as pool:
        bound = [pool.submit(clew.bind(work)) for _ in range(4)]
        unbound = pool.submit(work)
        assert [future.result() for future in bound] == [run.run_id] * 4
        assert unbound.result() is None
    inside = [s for s in exported.by_name("execute_tool") if s.context.trace_id == run.run_id.int]
    assert len(inside) == 4


async def test_tasks_belong_to_the_run_that_started_them(exported: CaptureExporter) -> None:
    """Twenty interleaved runs, each with two tasks, keep their spans apart."""

    async def one(number: int) -> uuid.UUID:
        async with clew.run("triage") as run:

            async def child() -> None:
                await asyncio.sleep(0.001 * (number % 5))
                with clew.tool("search"):
                    await asyncio.sleep(0)

            await asyncio.gather(child(), child())
            return run.run_id

    run_ids = await asyncio.gather(*(one(number) for number in range(20)))
    spans = exported.by_name("execute_tool")
    counts = dict.fromkeys(run_ids, 0)
    for span in spans:
        counts[uuid.UUID(int=span.context.trace_id)] += 1
    assert set(counts.values()) == {2}


async def test_a_task_that_outlives_its_run_still_belongs_to_it(exported: CaptureExporter) -> None:
    """A late span has its parent and is exported; the run lists what was open at its end."""

    async def late() -> None:
        with clew.tool("slow"):
            await asyncio.sleep(0.02)

    async with clew.run("triage"):
        task = asyncio.create_task(late())
        await asyncio.sleep(0)
    await task
    (tool,) = exported.by_name("execute_tool slow")
    (run,) = exported.by_name("invoke_agent")
    assert tool.parent.span_id == run.context.span_id
    assert attributes(run)["clew.run.open_seqs"] == (attributes(tool)["clew.seq"],)


def test_foreign_spans_of_the_trace_are_stamped(exported: CaptureExporter) -> None:
    """A span of another library inside the run gets identity and a number in the sequence."""
    with clew.run("triage"), trace.get_tracer("library").start_as_current_span("SELECT"):
        clew.decide("tool", "allow")
    (foreign,) = exported.by_name("SELECT")
    (decision,) = exported.by_name("decide tool")
    assert attributes(foreign)["clew.seq"] == 3
    assert attributes(decision)["clew.seq"] == 4
    assert attributes(foreign)["clew.agent.id"] == attributes(decision)["clew.agent.id"]


def test_the_run_survives_a_copied_context(exported: CaptureExporter) -> None:
    """`contextvars.copy_context` carries the run too."""
    with clew.run("triage") as run:
        copied = contextvars.copy_context()
    assert copied.run(clew.current_run) is run
    assert clew.current_run() is None
