"""A service under load with Clew is what it is without: bytes, objects, connections, threads, lag."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

import clew
from clew.pipeline.otlp_http import FastOTLPSpanExporter
from clew.settings import Settings
from clew.testing import CaptureExporter, OtlpSink, Reply, ScriptedProvider

ASK = {"model": "gpt-5-mini", "messages": [{"role": "user", "content": "Hi"}]}
CALLS = 120
AT_ONCE = 20
SLICE = 300
"""Runs of a soak after which what the receivers keep is let go of: they live in this process."""
CONNECTIONS = 5
"""Of more threads than connections httpcore closes some in the middle, without Clew too."""


def answer(request: Any) -> Reply:
    if b'"broken"' in request.body:
        return Reply.failure(429, "busy")
    return Reply(text="yes")


@pytest.fixture
def provider() -> Iterator[ScriptedProvider]:
    with ScriptedProvider(answer) as running:
        yield running


def bodies(number: int) -> dict[str, Any]:
    kind = {3: {"model": "broken"}, 5: {"stream": True}}.get(number % 7, {})
    return {**ASK, "user": f"u{number}", **kind}


def seen(status: int, content: bytes, headers: Any) -> tuple[Any, ...]:
    names = sorted(name for name in headers if name != "date")
    return status, len(content), names


def work(provider: ScriptedProvider) -> tuple[list[Any], int]:
    """Return what threads that share a client see, and how many connections they needed."""
    before = provider.connections
    found: list[Any] = [None] * CALLS
    limits = httpx.Limits(max_connections=CONNECTIONS, max_keepalive_connections=CONNECTIONS)
    with httpx.Client(trust_env=False, limits=limits, timeout=30) as client:

        def one(first: int) -> None:
            for number in range(first, CALLS, CONNECTIONS):
                with clew.run("agent"):
                    url = f"{provider.openai_base_url}/chat/completions"
                    got = client.post(url, json=bodies(number))
                    found[number] = seen(got.status_code, got.content, got.headers)

        threads = [threading.Thread(target=one, args=(first,)) for first in range(CONNECTIONS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return found, provider.connections - before


async def awork(provider: ScriptedProvider) -> tuple[list[Any], int]:
    """Do what `work` does, in tasks; every ninth is cancelled."""
    before = provider.connections
    limits = httpx.Limits(max_connections=CONNECTIONS, max_keepalive_connections=CONNECTIONS)

    async with httpx.AsyncClient(trust_env=False, limits=limits, timeout=30) as client:

        async def one(number: int) -> Any:
            async with clew.run("agent"):
                url = f"{provider.openai_base_url}/chat/completions"
                got = await client.post(url, json=bodies(number))
                return seen(got.status_code, got.content, got.headers)

        async def cancelled() -> str:
            task = asyncio.ensure_future(one(0))
            await asyncio.sleep(0)
            task.cancel()
            try:
                await task
            except asyncio.CancelledError as error:
                return type(error).__name__
            return "not cancelled"

        found = [await cancelled()]
        for first in range(0, CALLS, AT_ONCE):
            found += await asyncio.gather(*map(one, range(first, first + AT_ONCE)))
    return found, provider.connections - before


def sent(provider: ScriptedProvider, first: int) -> list[Any]:
    """Return what the provider saw, in an order of its own."""
    asked = [
        (each.method, each.path, [pair for pair in each.headers if pair[0] != "host"], each.body)
        for each in provider.requests[first:]
    ]
    return sorted(asked, key=lambda each: each[3])


def configure() -> CaptureExporter:
    exporter = CaptureExporter()
    settings = Settings(digest_key="k", export_delay_ms=20, queue_size=8192)
    clew.configure("tests", settings=settings, span_exporters=[exporter])
    clew.instrument()
    return exporter


@pytest.mark.parametrize("twin", ["sync", "async"])
def test_bytes_objects_and_connections_are_the_same(twin: str, provider: ScriptedProvider) -> None:
    """Under load, with failures, streams and cancellation in it; and all of it was recorded."""

    def run() -> tuple[list[Any], int]:
        return work(provider) if twin == "sync" else asyncio.run(awork(provider))

    bare, connections = run()
    first = len(provider.requests)
    bare_sent = sent(provider, 0)
    exporter = configure()
    with_clew, connections_with = run()
    clew.shutdown()
    assert with_clew == bare
    full = [each for each in bare_sent if b'"u0"' not in each[3]]  # u0 was cancelled, or was not
    assert [each for each in sent(provider, first) if b'"u0"' not in each[3]] == full
    assert connections_with <= max(connections, CONNECTIONS)
    assert len(exporter.by_name("chat")) >= CALLS


def test_at_most_three_named_daemon_threads(provider: ScriptedProvider) -> None:
    """Whatever the load; and none is left after the shutdown."""
    before = set(threading.enumerate())
    with OtlpSink() as sink:
        os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"] = sink.base_url
        own = set(threading.enumerate())
        try:
            clew.configure("tests")
            clew.instrument()
            work(provider)
            more = [
                each
                for each in set(threading.enumerate()) - own
                if "process_request_thread" not in each.name
            ]
            assert len(more) <= 3, more
            assert all(each.daemon and each.name.startswith("clew-") for each in more), more
            clew.shutdown()
        finally:
            del os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"]
    left = [each for each in set(threading.enumerate()) - before if each.name.startswith("clew-")]
    assert left == []


def test_ten_thousand_spans_in_one_run() -> None:
    """Each has a number of its own; the seal counts them; nothing is dropped silently."""
    exporter = CaptureExporter()
    settings = Settings(digest_key="k", export_delay_ms=5, queue_size=20_000, seal_grace_s=0)
    clew.configure("tests", settings=settings, span_exporters=[exporter])
    with clew.run("desk"):
        for _ in range(10_000):
            with clew.tool("search"):
                pass
    clew.shutdown()
    spans = [dict(each.attributes or {}) for each in exporter.spans]
    numbers = sorted(each["clew.seq"] for each in spans)
    assert numbers == list(range(1, 10_004))
    (seal,) = exporter.by_name("run_sealed")
    assert (seal.attributes or {})["clew.seal.spans"] == 10_002


@pytest.mark.parametrize(
    "gives_up", [lambda: None, lambda: os.urandom(16)], ids=["never", "at times"]
)
def test_a_host_that_computes_all_the_time_loses_no_span(gives_up: Callable[[], object]) -> None:
    """The export thread gets little of the interpreter then, and makes do with the usual queue.

    Least of all where the host gives the interpreter's lock up for a moment now and then: who waits
    for the lock is woken too late, and never asks for it.
    """
    exporter = CaptureExporter()
    clew.configure("tests", settings=Settings(digest_key="k"), span_exporters=[exporter])
    with clew.run("desk"):
        for _ in range(8_000):
            with clew.tool("search"):
                until = time.perf_counter_ns() + 150_000
                while time.perf_counter_ns() < until:
                    pass
                gives_up()
    clew.shutdown()
    assert len(exporter.by_name("execute_tool")) == 8_000


def test_a_thousand_runs_at_once() -> None:
    """Each is whole and knows its own totals."""
    exporter = CaptureExporter()
    settings = Settings(digest_key="k", export_delay_ms=5, queue_size=20_000, seal_grace_s=0)
    clew.configure("tests", settings=settings, span_exporters=[exporter])

    async def one(number: int) -> None:
        async with clew.run("desk"):
            for _ in range(number % 4):
                await asyncio.sleep(0)
                with clew.tool("search"):
                    await asyncio.sleep(0)

    async def main() -> None:
        await asyncio.gather(*map(one, range(1000)))

    asyncio.run(main())
    clew.shutdown()
    runs = [dict(each.attributes or {}) for each in exporter.by_name("invoke_agent")]
    assert len({each["clew.run.id"] for each in runs}) == 1000
    assert sum(each["clew.run.tool_calls"] for each in runs) == 1500
    assert len(exporter.by_name("run_sealed")) == 1000
    assert {(each.attributes or {})["clew.seal.spans"] for each in exporter.by_name("run_sealed")} == {
        2, 3, 4, 5,
    }  # fmt: skip


def test_a_clock_that_steps_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Durations come from a monotonic clock: no span ends before it starts."""
    exporter = CaptureExporter()
    settings = Settings(digest_key="k", seal_grace_s=0)
    clew.configure("tests", settings=settings, span_exporters=[exporter])
    real, step = time.time_ns, [0]
    monkeypatch.setattr(time, "time_ns", lambda: real() - step[0])
    with clew.run("desk"):
        with clew.tool("search"):
            step[0] = 3600 * 10**9
        clew.decide("tool", "allow")
        with clew.tool("search"):
            pass
    clew.shutdown()
    assert len(exporter.spans) == 6
    for each in exporter.spans:
        assert each.start_time is not None
        assert each.end_time is not None
        assert 0 <= each.end_time - each.start_time < 10**9, each.name


def _used(client: httpx.Client, url: str, number: int) -> None:
    """Use a client as one run does: some ask, some read a stream, some leave one."""
    if number % 5 == 0:
        client.post(url, json=bodies(number))
    elif number % 11 == 0:
        with client.stream("POST", url, json={**ASK, "stream": True}) as got:
            for _ in got.iter_bytes():
                pass
    elif number % 31 == 0:
        left = client.send(
            client.build_request("POST", url, json={**ASK, "stream": True}), stream=True
        )
        next(left.iter_raw())
        left.close()


async def _aused(url: str, turns: int) -> None:
    async with httpx.AsyncClient(trust_env=False) as client:

        async def one(number: int) -> None:
            async with clew.run("desk", actor=f"a{number}", conversation_id=f"c{number}"):
                await client.post(url, json=bodies(number))
                async with client.stream("POST", url, json={**ASK, "stream": True}) as got:
                    async for _ in got.aiter_bytes():
                        pass

        for first in range(0, turns, AT_ONCE):
            await asyncio.gather(*map(one, range(first, first + AT_ONCE)))


def _soaked(turns: int) -> list[tuple[int, int, int]]:
    """Return memory (KiB), open files and threads after each fifth of the work."""
    settings = Settings(
        digest_key="k", export_delay_ms=50, seal_grace_s=0, queue_size=20_000, heartbeat_s=0.05
    )
    found: list[tuple[int, int, int]] = []
    with (
        ScriptedProvider(answer) as provider,
        OtlpSink() as sink,
        httpx.Client(trust_env=False) as client,
    ):
        exporter = FastOTLPSpanExporter(endpoint=sink.traces_endpoint, timeout=10)
        clew.configure("tests", settings=settings, span_exporters=[exporter])
        clew.instrument()
        url = f"{provider.openai_base_url}/chat/completions"
        for part in range(6):
            for first in range(0, turns, SLICE):
                slice_ = min(SLICE, turns - first)
                for number in range(slice_):
                    with clew.run("desk"):
                        with clew.tool("search"):
                            clew.decide("tool", "allow")
                        _used(client, url, number)
                asyncio.run(_aused(url, slice_ // 10))
                assert clew_flushed()
                assert len(sink.spans) >= slice_ * 4
                for kept in (sink.traces, sink.bodies, sink.requests, provider.requests):
                    kept.clear()
            gc.collect()
            if part:  # the first warms caches up
                found.append(_usage())
        clew.shutdown()
    assert exporter.lost == 0
    return found


def clew_flushed() -> bool:
    from clew.pipeline import runtime

    current = runtime.get()
    return current is not None and current.worker.flush(30)


def _usage() -> tuple[int, int, int]:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    size = os.sysconf("SC_PAGE_SIZE") // 1024
    return pages * size, len(list(Path("/proc/self/fd").iterdir())), threading.active_count()


def _flat(found: list[tuple[int, int, int]], most_kib: int) -> None:
    assert found[-1][1] <= found[0][1] + 2, found
    assert found[-1][2] <= found[0][2], found
    assert found[-1][0] - found[0][0] < most_kib, found


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="this system has no /proc")
def test_a_short_soak() -> None:
    """Memory, files and threads are flat over some thousand runs, streams and exports."""
    _flat(_soaked(300), 8 * 1024)


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="this system has no /proc")
def test_a_day_of_runs() -> None:
    """A day of one run a second, compressed."""
    _flat(_soaked(17_280), 16 * 1024)
