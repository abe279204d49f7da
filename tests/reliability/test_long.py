"""Many runs at once, and clocks that step: nobody's spans get into another's run, no time is negative."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import httpx
import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan

import clew
from clew import _guard, semconv
from clew.settings import Settings
from clew.testing import CaptureExporter

RUNS = 1000
URL = "http://model.test/v1/chat/completions"
HOUR = 3600 * 10**9


def body(number: int) -> dict[str, Any]:
    """A request that says how many tokens its answer shall have."""
    return {"model": "gpt-5-mini", "messages": [{"role": "user", "content": str(number)}]}


def answer(request: httpx.Request) -> bytes:
    number = int(json.loads(request.content)["messages"][0]["content"])
    usage = {"prompt_tokens": 1000 + number, "completion_tokens": number}
    return json.dumps({"id": "c", "model": "gpt-5-mini", "usage": usage}).encode()


class Model(httpx.BaseTransport, httpx.AsyncBaseTransport):
    """Answers in memory; a stream comes in pieces between which somebody may act."""

    def __init__(self, between: Callable[[], None] = lambda: None) -> None:
        self.between = between

    def _events(self) -> Iterator[bytes]:
        for word in ("a", "b", "c"):
            choice = {"index": 0, "delta": {"content": word}, "finish_reason": None}
            chunk = {"id": "c", "model": "gpt-5-mini", "choices": [choice]}
            yield b"data: " + json.dumps(chunk).encode() + b"\n\n"
            self.between()
        yield b"data: [DONE]\n\n"

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        self.between()
        if b'"stream"' in request.content:
            head = {"content-type": "text/event-stream"}
            return httpx.Response(200, headers=head, content=self._events())
        head = {"content-type": "application/json"}
        return httpx.Response(200, headers=head, content=answer(request))

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        await asyncio.sleep(0)
        self.between()
        if b'"stream"' in request.content:

            async def events() -> AsyncIterator[bytes]:
                for each in self._events():
                    yield each

            head = {"content-type": "text/event-stream"}
            return httpx.Response(200, headers=head, content=events())
        head = {"content-type": "application/json"}
        return httpx.Response(200, headers=head, content=answer(request))


def configure(**more: Any) -> CaptureExporter:
    exporter = CaptureExporter()
    settings = Settings(
        digest_key="k", export_delay_ms=5, queue_size=50_000, seal_grace_s=0, shutdown_s=30, **more
    )
    clew.configure("tests", settings=settings, span_exporters=[exporter])
    clew.instrument()
    return exporter


def steps(number: int) -> int:
    return number % 3


def in_threads(client: httpx.Client) -> None:
    """Have all runs open at once, each in a thread of its own."""
    together = threading.Barrier(RUNS)

    def one(number: int) -> None:
        with clew.run(f"agent{number}", tenant=f"t{number}"):
            together.wait(60)
            for _ in range(steps(number)):
                with clew.tool(f"tool{number}"):
                    clew.decide("mine", "deny" if number % 2 else "allow", subject=f"s{number}")
            client.post(URL, json=body(number))
            with trace.get_tracer("other").start_as_current_span(f"own{number}"):
                together.wait(60)

    before = threading.stack_size(256 * 1024)
    try:
        threads = [threading.Thread(target=one, args=(number,)) for number in range(RUNS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(90)
    finally:
        threading.stack_size(before)


async def in_tasks(client: httpx.AsyncClient) -> None:
    """Have all runs open at once, each in a task of its own, with tasks of its own."""
    opened = 0
    everybody = asyncio.Event()

    async def tools(number: int) -> None:
        for _ in range(steps(number)):
            with clew.tool(f"tool{number}"):
                await asyncio.sleep(0)
                clew.decide("mine", "deny" if number % 2 else "allow", subject=f"s{number}")

    async def one(number: int) -> None:
        nonlocal opened
        async with clew.run(f"agent{number}", tenant=f"t{number}"):
            opened += 1
            if opened == RUNS:
                everybody.set()
            await everybody.wait()
            await asyncio.gather(asyncio.ensure_future(tools(number)), asyncio.sleep(0))
            await client.post(URL, json=body(number))
            with trace.get_tracer("other").start_as_current_span(f"own{number}"):
                await asyncio.sleep(0)

    await asyncio.gather(*map(one, range(RUNS)))


def of(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


@pytest.mark.parametrize("kind", ["threads", "tasks"])
def test_a_thousand_runs_are_never_mixed(kind: str) -> None:
    """Each span is its own run's, by trace, identity, number and parent; totals are exact."""
    exporter = configure()
    if kind == "threads":
        with httpx.Client(transport=Model()) as client:
            in_threads(client)
    else:

        async def main() -> None:
            async with httpx.AsyncClient(transport=Model()) as client:
                await in_tasks(client)

        asyncio.run(main())
    clew.shutdown()
    assert dict(_guard.failures) == {}
    by_run: dict[str, list[ReadableSpan]] = {}
    for span in exporter.spans:
        by_run.setdefault(of(span)[semconv.RUN_ID], []).append(span)
    assert len(by_run) == RUNS
    seen: set[int] = set()
    for run_id, spans in by_run.items():
        assert {span.context.trace_id for span in spans} == {int(run_id.replace("-", ""), 16)}
        (root,) = [span for span in spans if of(span).get(semconv.RUN_ROOT)]
        number = int(root.name.removeprefix("invoke_agent agent"))
        seen.add(number)
        few, denied = steps(number), steps(number) * (number % 2)
        kinds = Counter(span.name.split(" ")[0].rstrip("0123456789") for span in spans)
        assert +kinds == +Counter(
            run_started=1, invoke_agent=1, run_sealed=1, chat=1, own=1, execute_tool=few, decide=few
        )
        assert sorted(of(span)[semconv.SEQ] for span in spans) == list(range(1, len(spans) + 1))
        ids = {span.context.span_id for span in spans}
        assert {span.parent.span_id for span in spans if span.parent is not None} <= ids
        totals = of(root)
        assert totals[semconv.TENANT] == f"t{number}"
        assert [totals[f"clew.run.{each}"] for each in ("rounds", "tool_calls", "decisions")] == [
            1, few, few,
        ]  # fmt: skip
        assert totals["clew.run.denials"] == denied
        assert totals["clew.run.usage.input_tokens"] == 1000 + number
        assert totals["clew.run.usage.output_tokens"] == number
        tools = {of(span)[semconv.TOOL_NAME] for span in spans if span.name.startswith("execute")}
        assert tools <= {f"tool{number}"}
    assert seen == set(range(RUNS))


class Clock:
    """A wall clock that steps back and forth by an hour, each time it is told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._real, self.offset, self._turn = time.time_ns, 0, 0
        monkeypatch.setattr(time, "time_ns", lambda: self._real() + self.offset)
        monkeypatch.setattr(time, "time", lambda: (self._real() + self.offset) / 1e9)

    def step(self) -> None:
        """Step: back, forth, further back, and so on."""
        self._turn += 1
        self.offset = (-HOUR, HOUR, -3 * HOUR, 0, 2 * HOUR)[self._turn % 5]


def worked(client: httpx.Client, clock: Clock) -> None:
    with clew.run("desk"):
        clock.step()
        client.post(URL, json=body(1))
        for _ in range(5):
            with clew.tool("search"):
                clock.step()
                clew.decide("mine", "deny")
            with clew.decide("budget"):
                clock.step()
            with client.stream("POST", URL, json={**body(1), "stream": True}) as got:
                for _ in got.iter_bytes():
                    clock.step()
        wait_for_beats(clock)


async def aworked(client: httpx.AsyncClient, clock: Clock) -> None:
    async with clew.run("desk"):
        clock.step()
        await client.post(URL, json=body(1))
        for _ in range(5):
            async with clew.tool("search"):
                clock.step()
                clew.decide("mine", "deny")
            async with clew.decide("budget"):
                clock.step()
            async with client.stream("POST", URL, json={**body(1), "stream": True}) as got:
                async for _ in got.aiter_bytes():
                    clock.step()
        await asyncio.to_thread(wait_for_beats, clock)


def wait_for_beats(clock: Clock) -> None:
    """Let the clock step while heartbeats come: they go by another one."""
    exporters = [each for each in _exporters() if isinstance(each, CaptureExporter)]
    patience = time.monotonic() + 20
    while len(exporters[0].by_name("run_heartbeat")) < 5:
        assert time.monotonic() < patience, "no heartbeat comes any more"
        clock.step()
        time.sleep(0.01)


def _exporters() -> list[Any]:
    from clew.setup import exporters_in_force

    return list(exporters_in_force())


@pytest.mark.parametrize("twin", ["sync", "async"])
def test_a_clock_that_steps_all_the_time(twin: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In calls, streams, tools, decisions and between heartbeats: each has its true length."""
    exporter = configure(heartbeat_s=0.05)
    clock = Clock(monkeypatch)
    model = Model(clock.step)
    if twin == "sync":
        with httpx.Client(transport=model) as client:
            worked(client, clock)
    else:

        async def main() -> None:
            async with httpx.AsyncClient(transport=model) as client:
                await aworked(client, clock)

        asyncio.run(main())
    clew.shutdown()
    assert dict(_guard.failures) == {}
    names = Counter(span.name.split(" ")[0] for span in exporter.spans)
    assert (names["chat"], names["execute_tool"], names["decide"]) == (6, 5, 10)
    assert names["run_heartbeat"] >= 5
    for span in exporter.spans:
        assert span.start_time is not None
        assert span.end_time is not None
        assert 0 <= span.end_time - span.start_time < 60 * 10**9, span.name
        attributes = of(span)
        assert 0 <= attributes.get(semconv.DECISION_WAIT_MS, 0) < 60_000
        assert 0 <= attributes.get("gen_ai.response.time_to_first_chunk", 0) < 60
    (seal,) = exporter.by_name("run_sealed")
    assert of(seal)[semconv.SEAL_SPANS] == len(exporter.spans) - 1


def test_many_long_runs_beat_side_by_side() -> None:
    """Each says its own totals so far, again and again; nobody's grow beyond the end."""
    exporter = configure(heartbeat_s=0.1)
    runs = 20

    async def one(number: int) -> None:
        async with clew.run(f"agent{number}"):
            for _ in range(6):
                for _ in range(number):
                    with clew.tool("search"):
                        pass
                await asyncio.sleep(0.1)

    async def main() -> None:
        await asyncio.gather(*map(one, range(runs)))

    asyncio.run(main())
    clew.shutdown()
    for number in range(runs):
        beats = [of(each) for each in exporter.by_name(f"run_heartbeat agent{number}")]
        said = [each["clew.run.tool_calls"] for each in beats]
        assert len(said) >= 1
        assert said == sorted(said)
        (ended,) = exporter.by_name(f"invoke_agent agent{number}")
        assert of(ended)["clew.run.tool_calls"] == 6 * number
        assert max(said) <= 6 * number
