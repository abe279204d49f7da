"""Receivers and exporters that are slow, full, or gone: the caller waits for none of them."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SpanExportResult
from receivers import Receiver

import clew
from clew import semconv
from clew.facts import Usage
from clew.pipeline import exporters, runtime
from clew.settings import Settings
from clew.testing import CaptureExporter, ReceivedRequest, Reply, ScriptedProvider
from clew.testing.loopback import Connection

PATHS = {"openai": "/v1/chat/completions", "anthropic": "/v1/messages"}
BODY = {"model": "gpt-5-mini", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}]}


class SlowExporter(CaptureExporter):
    """Takes a second for each batch."""

    def __init__(self) -> None:
        super().__init__()
        self.threads: set[str] = set()

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.threads.add(threading.current_thread().name)
        time.sleep(1)
        return super().export(spans)


def total(reader: InMemoryMetricReader, name: str) -> float:
    """Return the sum over the points of a counter."""
    data: Any = reader.get_metrics_data()
    return sum(
        point.value
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
        if metric.name == name
        for point in metric.data.data_points
    )


@pytest.mark.parametrize("twin", ["sync", "async"])
@pytest.mark.parametrize("joined", [False, True], ids=["own provider", "joined provider"])
def test_a_burst_into_a_full_queue(joined: bool, twin: str) -> None:
    """A queue of 100, a second for each batch, 1,000 spans: the 20 decisions are all there.

    The burst is not slowed; what was dropped is counted in a metric, exactly.
    """
    exporter, reader = SlowExporter(), InMemoryMetricReader()
    settings = Settings(
        digest_key="k", queue_size=100, batch_size=100, seal_grace_s=0, shutdown_s=30,
        metric_readers=(reader,),
    )  # fmt: skip
    clew.configure(
        "tests", settings=settings, span_exporters=[exporter],
        tracer_provider=TracerProvider() if joined else None,
    )  # fmt: skip

    async def aburst() -> None:
        async with clew.run("desk"):
            for number in range(980):
                async with clew.tool("search"):
                    if number % 49 == 0:
                        clew.decide("tool", "deny", subject="search")

    def burst() -> None:
        with clew.run("desk"):
            for number in range(980):
                with clew.tool("search"):
                    if number % 49 == 0:
                        clew.decide("tool", "deny", subject="search")

    began = time.perf_counter()
    asyncio.run(aburst()) if twin == "async" else burst()
    seconds = time.perf_counter() - began
    current = runtime.get()
    assert current is not None
    current.settle(everywhere=True)
    assert current.worker.flush(30)
    dropped = total(reader, "clew.pipeline.dropped")
    clew.shutdown()
    assert seconds < 0.9  # of one export alone
    assert len(exporter.by_name("decide")) == 20
    assert len(exporter.by_name("invoke_agent")) == len(exporter.by_name("run_sealed")) == 1
    assert dropped > 0
    assert len(exporter.by_name("execute_tool")) == 980 - dropped


SET_UPS: dict[str, Callable[[Path], tuple[dict[str, Any], dict[str, Any]]]] = {
    "environment": lambda _: ({}, {}),
    "environment, with a spool": lambda folder: ({"spool_dir": folder / "spool"}, {}),
    "stock encoder": lambda _: ({"otlp_encoder": "stock"}, {}),
    "an exporter": lambda _: ({}, {"span_exporters": exporters.from_environment()}),
    "joined": lambda _: (
        {},
        {"span_exporters": exporters.from_environment(), "tracer_provider": TracerProvider()},
    ),
}
"""Settings, and arguments of `configure`."""


class Late(Receiver):
    """Answers after five seconds."""

    def respond(self, request: ReceivedRequest, connection: Connection) -> None:
        connection.pause(5)
        super().respond(request, connection)


@pytest.fixture(scope="module")
def late() -> Iterator[Late]:
    with Late() as running:
        yield running


@pytest.fixture(scope="module")
def provider() -> Iterator[ScriptedProvider]:
    with ScriptedProvider(lambda _: Reply(text="yes")) as running:
        yield running


def one_after_another(url: str, number: int) -> list[float]:
    """Return the seconds of each call."""
    found: list[float] = []
    with httpx.Client(trust_env=False, timeout=60) as client:
        for _ in range(number):
            began = time.perf_counter()
            with clew.run("desk"):
                assert client.post(url, json=BODY).status_code == 200
            found.append(time.perf_counter() - began)
    return found


async def at_once(url: str, number: int) -> float:
    """Return the seconds that all calls took."""
    limits = httpx.Limits(max_connections=20)
    async with httpx.AsyncClient(trust_env=False, timeout=60, limits=limits) as client:

        async def one() -> None:
            async with clew.run("desk"):
                assert (await client.post(url, json=BODY)).status_code == 200

        began = time.perf_counter()
        await asyncio.gather(*(one() for _ in range(number)))
        return time.perf_counter() - began


@pytest.mark.parametrize("format_", PATHS)
@pytest.mark.parametrize("set_up", SET_UPS)
def test_a_collector_that_takes_five_seconds(
    set_up: str, format_: str, tmp_path: Path, late: Late, provider: ScriptedProvider,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """No way of setting Clew up waits for it: a call alone, and a hundred at once, are as quick."""
    url = provider.base_url + PATHS[format_]
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", late.base_url)
    bare = min(one_after_another(url, 15)), asyncio.run(at_once(url, 100))
    options, arguments = SET_UPS[set_up](tmp_path)
    settings = Settings(
        digest_key="k", export_delay_ms=5, seal_grace_s=0, shutdown_s=0.2, **options
    )
    clew.configure("tests", settings=settings, **arguments)
    clew.instrument()
    current = runtime.get()
    assert current is not None
    assert current.prices.wait(20)
    one_after_another(url, 3)
    asked = len(late.requests)
    with_clew = min(one_after_another(url, 15)), asyncio.run(at_once(url, 100))
    clew.uninstrument()
    clew.shutdown()
    assert asked > 0  # it was waiting for the collector all the time
    assert with_clew[0] - bare[0] < 0.005
    assert with_clew[1] - bare[1] < 2  # a hundred waits of five seconds each, twenty at once: 25


ENDINGS = {"returns": ("", 0), "exits": ("sys.exit(3)", 3), "raises": ("raise ValueError('x')", 1)}
SCRIPT = """
import asyncio, os, sys
import httpx
import clew
clew.configure("script")
clew.instrument()
body = {"model": "gpt-5-mini", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}]}
async def awork():
    async with clew.run("desk"), httpx.AsyncClient(trust_env=False) as client:
        await client.post(os.environ["PROVIDER"], json=body)
def work():
    with clew.run("desk"), httpx.Client(trust_env=False) as client:
        client.post(os.environ["PROVIDER"], json=body)
asyncio.run(awork()) if sys.argv[1] == "async" else work()
print("done", flush=True)
"""


@pytest.mark.parametrize(
    ("ending", "twin", "format_"),
    [("returns", "sync", "openai"), ("exits", "async", "anthropic"), ("raises", "sync", "openai")],
)
@pytest.mark.parametrize("how", ["refuses", "never answers"])
def test_a_script_of_one_call_without_a_collector(
    how: str, ending: str, twin: str, format_: str, provider: ScriptedProvider
) -> None:
    """It ends within the limit, with its exit code, and one line that says what was lost."""
    with Receiver(status=0) as receiver:
        address = receiver.base_url if how == "never answers" else "http://127.0.0.1:9"
        child = subprocess.Popen(
            [sys.executable, "-c", SCRIPT + ENDINGS[ending][0], twin],
            env={
                **os.environ, "OTEL_METRICS_EXPORTER": "none", "CLEW_SHUTDOWN_SECONDS": "2",
                "OTEL_EXPORTER_OTLP_ENDPOINT": address, "CLEW_DIGEST_KEY": "k",
                "PROVIDER": provider.base_url + PATHS[format_],
            },
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert child.stdout is not None
        assert child.stdout.readline() == "done\n"
        began = time.monotonic()
        _, err = child.communicate(timeout=60)
        seconds = time.monotonic() - began
    assert child.returncode == ENDINGS[ending][1]
    assert seconds < 2 + 3  # an interpreter ends slowly on a machine that is busy
    # Its start, its call, the run, and the seal.
    assert err.count("Clew has lost") == err.count("Clew has lost 4 spans") == 1, err


PRICES = """{"version": "1", "currency": "USD",
"prices": [{"model": "model-x", "input": 2, "output": 8}]}"""


@pytest.mark.parametrize("twin", ["sync", "async"])
@pytest.mark.parametrize("format_", PATHS)
def test_a_span_that_no_receiver_takes_costs_no_other(
    format_: str, twin: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    """A call of 14 MB of text in a batch of 200, a receiver that takes 4 MB: all 200 arrive.

    The large one comes without its long text, marked so, with its tokens, cost and decisions.
    """
    (tmp_path / "prices.json").write_text(PRICES)
    large = {
        **BODY,
        "model": "model-x",
        "messages": [{"role": "user", "content": "zq " * 4_800_000}],
    }
    usage = Usage(input_tokens=7, output_tokens=5)
    with (
        Receiver(most=4 << 20) as receiver,
        ScriptedProvider(lambda _: Reply(text="yes", usage=usage)) as scripted,
    ):
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.base_url)
        monkeypatch.setenv("OTEL_METRICS_EXPORTER", "none")
        settings = Settings(
            digest_key="k", capture="full", content_to=frozenset({"spans"}), seal_grace_s=60,
            content_limit=20_000_000, export_delay_ms=60_000, batch_size=512, shutdown_s=60,
            prices_file=tmp_path / "prices.json",
        )  # fmt: skip
        clew.configure("tests", settings=settings)
        clew.instrument()
        current = runtime.get()
        assert current is not None
        assert current.prices.wait(20)
        url = scripted.base_url + PATHS[format_]

        def fill(number: int) -> None:
            for _ in range(number):
                with clew.tool("search"):
                    clew.decide("tool", "allow", subject="search")

        def work() -> None:
            with clew.run("desk"):
                fill(49)
                with httpx.Client(trust_env=False, timeout=60) as client:
                    client.post(url, json=large)
                fill(49)

        async def awork() -> None:
            async with clew.run("desk"):
                fill(49)
                async with httpx.AsyncClient(trust_env=False, timeout=60) as client:
                    await client.post(url, json=large)
                fill(49)

        asyncio.run(awork()) if twin == "async" else work()
        clew.uninstrument()
        clew.shutdown()
        spans = receiver.records()
        assert max(map(len, receiver.taken)) <= 4 << 20
    assert len({each.span_id for each in spans}) == len(spans) == 200
    (round_,) = [each for each in spans if each.name == "chat model-x"]
    found = round_.attributes
    assert semconv.INPUT_MESSAGES not in found
    assert (found[semconv.USAGE_INPUT], found[semconv.USAGE_OUTPUT]) == (7, 5)
    assert found[semconv.COST_USD] == pytest.approx(7 * 2e-6 + 5 * 8e-6)
    assert round_.dropped[0] > 0
    assert sum(each.name == "decide tool" for each in spans) == 98
    assert "zq" not in caplog.text
