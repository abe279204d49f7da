"""Many runs at once, in threads and in tasks: each trace has its own spans, below the right step."""

from __future__ import annotations

import asyncio
import random
import threading
import time
import uuid
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from opentelemetry.sdk.trace import ReadableSpan

import clew
from clew.testing import CaptureExporter, ReceivedRequest, Reply, ScriptedProvider, captured

RUNS = 20
AGENTS = ("reader", "writer")
DELAYS = random.Random(7)  # noqa: S311 - delays, no secrets


def answer(request: ReceivedRequest) -> Reply:
    del request
    return Reply(text="yes", delay=DELAYS.random() / 100)


def body() -> dict[str, Any]:
    return {"model": "gpt-5-mini", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}]}


def in_a_thread(client: httpx.Client, address: str, seen: dict[uuid.UUID, int]) -> None:
    """One run: a round, then two agents in threads of their own, each below its tool call."""
    with clew.run("boss") as run:
        client.post(address, json=body()).raise_for_status()

        def delegate(name: str) -> None:
            with clew.tool(f"ask_{name}"), clew.run(name):
                time.sleep(DELAYS.random() / 100)
                client.post(address, json=body()).raise_for_status()
                with clew.tool("look"):
                    time.sleep(0)

        threads = [threading.Thread(target=clew.bind(delegate), args=(name,)) for name in AGENTS]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        seen[run.run_id] = run.totals.rounds


async def in_a_task(client: httpx.AsyncClient, address: str, seen: dict[uuid.UUID, int]) -> None:
    """The same in tasks."""
    async with clew.run("boss") as run:
        (await client.post(address, json=body())).raise_for_status()

        async def delegate(name: str) -> None:
            async with clew.tool(f"ask_{name}"), clew.run(name):
                await asyncio.sleep(DELAYS.random() / 100)
                (await client.post(address, json=body())).raise_for_status()
                async with clew.tool("look"):
                    await asyncio.sleep(0)

        await asyncio.gather(*map(delegate, AGENTS))
        seen[run.run_id] = run.totals.rounds


def tree(spans: Iterable[ReadableSpan]) -> Any:
    """Return the names of spans, each with those of its children, as nested sorted tuples."""
    children: dict[int | None, list[ReadableSpan]] = {}
    for span in spans:
        parent = None if span.parent is None else span.parent.span_id
        children.setdefault(parent, []).append(span)

    def below(parent: int | None) -> tuple[Any, ...]:
        found = children.get(parent, [])
        return tuple(sorted((span.name, below(span.context.span_id)) for span in found))

    return below(None)


ASKED = tuple(
    (
        f"execute_tool ask_{name}",
        ((f"invoke_agent {name}", (("chat gpt-5-mini", ()), ("execute_tool look", ()))),),
    )
    for name in AGENTS
)
WHOLE = (("invoke_agent boss", (("chat gpt-5-mini", ()), *ASKED, ("run_started boss", ()))),)


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages"])
def test_runs_are_not_mixed_up(path: str) -> None:
    """Twenty runs in threads and twenty in tasks share a client each, and delegate to two agents.

    Each of the forty traces has exactly its own spans, each agent below the tool call that asked.
    """
    seen: dict[uuid.UUID, int] = {}
    with ScriptedProvider(answer) as server, captured(seal_grace_s=60) as exporter:
        address = f"{server.base_url}{path}"

        async def tasks() -> None:
            limits = httpx.Limits(max_connections=30)
            async with httpx.AsyncClient(timeout=60, limits=limits) as client:
                await asyncio.gather(*(in_a_task(client, address, seen) for _ in range(RUNS)))

        with httpx.Client(timeout=60, limits=httpx.Limits(max_connections=30)) as client:
            threads = [
                threading.Thread(target=in_a_thread, args=(client, address, seen))
                for _ in range(RUNS)
            ]
            threads.append(threading.Thread(target=lambda: asyncio.run(tasks())))
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        spans = exporter.spans
    by_trace: dict[uuid.UUID, list[ReadableSpan]] = {}
    for span in spans:
        if not span.name.startswith("run_sealed"):
            by_trace.setdefault(uuid.UUID(int=span.context.trace_id), []).append(span)
    assert by_trace.keys() == seen.keys()
    assert len(seen) == 2 * RUNS
    assert set(seen.values()) == {3}
    assert {tree(own) for own in by_trace.values()} == {WHOLE}
    for own in by_trace.values():
        numbers = sorted((span.attributes or {})["clew.seq"] for span in own)
        assert numbers == list(range(1, len(own) + 1))


async def test_executors_and_a_late_task(exported: CaptureExporter) -> None:
    """Tools through `submit` and `run_in_executor`, and a task that ends after its run.

    All are in the run's trace, below the step that started them.
    """

    def work(name: str) -> None:
        with clew.tool(name):
            time.sleep(0.001)

    async def late() -> None:
        async with clew.tool("late"):
            await asyncio.sleep(0.2)

    def in_step(step: str, start: Callable[[], list[Any]]) -> list[Any]:
        with clew.tool(step):
            return start()

    with ThreadPoolExecutor(4) as pool:
        loop = asyncio.get_running_loop()
        async with clew.run("triage") as run:
            async with clew.tool("submitting"):
                futures = [pool.submit(clew.bind(work), f"submitted-{n}") for n in range(4)]
                await asyncio.gather(*map(asyncio.wrap_future, futures))
            async with clew.tool("executing"):
                bound = [clew.bind(work) for _ in range(4)]
                waiting = [
                    loop.run_in_executor(pool, one, f"executed-{n}") for n, one in enumerate(bound)
                ]
                await asyncio.gather(*waiting)
            (task,) = in_step("starting", lambda: [asyncio.create_task(late())])
            await asyncio.sleep(0)
        await task
    spans = [span for span in exported.spans if span.name.startswith("execute_tool")]
    assert {span.context.trace_id for span in spans} == {run.run_id.int}
    names = {span.context.span_id: span.name.split()[1] for span in spans}
    below = {
        names[span.context.span_id]: names.get(span.parent.span_id)
        for span in spans
        if span.parent is not None
    }
    assert below == {
        **{f"submitted-{n}": "submitting" for n in range(4)},
        **{f"executed-{n}": "executing" for n in range(4)},
        "late": "starting",
        **dict.fromkeys(("submitting", "executing", "starting")),
    }
