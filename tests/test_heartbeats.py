"""Runs of hours are visible while they go on."""

from __future__ import annotations

import datetime as dt
import json
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

import clew
from clew import semconv
from clew.facts import Usage
from clew.pipeline import runtime
from clew.settings import Settings
from clew.store import otlp_protobuf
from clew.store.costs import CostFilter
from clew.store.database import connect
from clew.store.reader import Reader
from clew.store.records import RunSummary
from clew.store.writer import Writer
from clew.testing import CaptureExporter, Reply, ScriptedProvider

TOKENS = Usage(input_tokens=1000, output_tokens=100)
USD = 0.003
"""What each call costs by the price file below."""


def start(**settings: Any) -> CaptureExporter:
    """Configure Clew with quick heartbeats."""
    exporter = CaptureExporter()
    chosen = Settings.from_environment(export_delay_ms=10, seal_grace_s=0.0, **settings)
    clew.configure("tests", settings=chosen, span_exporters=[exporter])
    return exporter


def wait_for(exporter: CaptureExporter, name: str, number: int) -> None:
    """Wait until so many spans of a name have left."""
    patience = time.monotonic() + 10
    while len(exporter.by_name(name)) < number:
        assert time.monotonic() < patience
        time.sleep(0.01)


def test_a_long_run_says_its_totals_so_far() -> None:
    """With its agent and state; each is a span of the run with a number of its own."""
    exporter = start(heartbeat_s=0.1)
    with clew.run("desk") as run:
        with clew.tool("search"):
            pass
        wait_for(exporter, "run_heartbeat", 1)
        with clew.tool("search"):
            pass
        wait_for(exporter, "run_heartbeat", 3)
    clew.shutdown()
    found = [dict(span.attributes or {}) for span in exporter.by_name("run_heartbeat")]
    assert {each[semconv.RUN_EVENT] for each in found} == {"heartbeat"}
    assert {each[semconv.RUN_STATUS] for each in found} == {"running"}
    assert {each[semconv.RUN_ID] for each in found} == {str(run.run_id)}
    assert (found[0]["clew.run.tool_calls"], found[-1]["clew.run.tool_calls"]) == (1, 2)
    assert all(semconv.RUN_ROOT not in each for each in found)
    (seal,) = exporter.by_name("run_sealed")
    assert (seal.attributes or {})[semconv.SEAL_SPANS] == 4 + len(found)


def test_no_heartbeat_comes_after_the_end() -> None:
    """And nobody looks for any while no run is open."""
    exporter = start(heartbeat_s=0.05)
    with clew.run("desk"):
        pass
    time.sleep(0.3)
    current = runtime.get()
    assert current is not None
    assert not current.beating
    with clew.run("desk"):
        wait_for(exporter, "run_heartbeat", 1)
    clew.shutdown()
    roots = {span.context.trace_id: span for span in exporter.by_name("invoke_agent")}
    for beat in exporter.by_name("run_heartbeat"):
        root = roots[beat.context.trace_id]
        assert (beat.start_time or 0) <= (root.end_time or 0)
    assert len(exporter.by_name("run_sealed")) == 2


@pytest.mark.parametrize("seconds", [0, 60])
def test_short_runs_have_none(seconds: float) -> None:
    """Nor has any run where they are switched off."""
    exporter = start(heartbeat_s=seconds)
    with clew.run("desk"):
        time.sleep(0.05)
    clew.shutdown()
    assert exporter.by_name("run_heartbeat") == ()


class Seen:
    """What a store knows of everything that has left, read anew each time."""

    def __init__(self, folder: Path, exporter: CaptureExporter) -> None:
        self.writer = Writer(folder / "clew.db")
        self._exporter = exporter

    def run(self, trace_id: str) -> RunSummary:
        """Return the run as a list of runs shows it."""
        current = runtime.get()
        if current is not None:
            current.settle(everywhere=True)
            assert current.worker.flush(10)
        self.writer.write(otlp_protobuf.decode(self._exporter.otlp_bytes()).spans)
        reader = Reader(self.writer.path)
        record = reader.run(trace_id)
        reader.close()
        assert record is not None
        return record.summary

    def costs(self) -> Any:
        """Return the sum over the calls of today."""
        reader = Reader(self.writer.path)
        today = dt.datetime.now(dt.UTC).date()
        found = reader.costs(CostFilter(first=today - dt.timedelta(days=1), last=today)).total
        reader.close()
        return found

    def plain_sum(self) -> int:
        """Return the sum of the input tokens over all spans, as the simplest query has it."""
        connection = connect(self.writer.path)
        rows = connection.execute("SELECT attributes FROM spans").fetchall()
        connection.close()
        return sum(json.loads(row[0]).get(semconv.USAGE_INPUT, 0) for row in rows)


CALLS = {
    "openai": ("/v1/chat/completions", {"max_completion_tokens": 9}),
    "anthropic": ("/v1/messages", {"max_tokens": 9}),
}


@pytest.mark.parametrize("twin", ["sync", "async"])
@pytest.mark.parametrize("provider", CALLS)
async def test_a_run_of_hours_counts_each_call_once(
    provider: str, twin: str, tmp_path: Path
) -> None:
    """One call a minute for three hours, in small: after ten the run and its totals are known.

    The last word replaces what the heartbeats said; no sum of tokens, cost or calls has both.
    """
    prices = tmp_path / "prices.json"
    row = {"model": "model-x", "input": 2, "output": 10}
    prices.write_text(json.dumps({"version": "1", "currency": "USD", "prices": [row]}))
    exporter = start(heartbeat_s=0.1, prices_file=prices)
    clew.instrument()
    current = runtime.get()
    assert current is not None
    assert current.prices.wait(20)
    seen = Seen(tmp_path, exporter)
    path, more = CALLS[provider]
    body = {"model": "model-x", "messages": [{"role": "user", "content": "Hi"}], **more}
    with ScriptedProvider(lambda _: Reply(text="yes", usage=TOKENS)) as server:
        url = server.base_url + path
        client, other = httpx.Client(trust_env=False), httpx.AsyncClient(trust_env=False)

        async def minutes(number: int) -> None:
            for _ in range(number):
                if twin == "sync":
                    assert client.post(url, json=body).status_code == 200  # noqa: ASYNC212
                else:
                    assert (await other.post(url, json=body)).status_code == 200

        async with clew.run("desk") as run:
            await minutes(10)
            before = len(exporter.by_name("run_heartbeat"))
            wait_for(exporter, "run_heartbeat", before + 2)
            early = seen.run(run.trace_id)
            beat = dict(exporter.by_name("run_heartbeat")[-1].attributes or {})
            await minutes(170)
            before = len(exporter.by_name("run_heartbeat"))
            wait_for(exporter, "run_heartbeat", before + 2)
        client.close()  # noqa: ASYNC212
        await other.aclose()
    assert (early.agent, early.status, early.rounds) == ("desk", "running", 10)
    assert (early.input_tokens, early.output_tokens) == (10_000, 1000)
    assert early.cost_usd == pytest.approx(10 * USD)
    assert beat["clew.run.rounds"] == 10
    assert beat["clew.run.usage.input_tokens"] == 10_000
    assert beat["clew.run.cost.usd"] == pytest.approx(10 * USD)
    clew.shutdown()
    final = seen.run(run.trace_id)
    costs, plain = seen.costs(), seen.plain_sum()
    seen.writer.close()
    assert len(exporter.by_name("run_heartbeat")) >= 4
    assert (final.agent, final.status, final.rounds) == ("desk", "completed", 180)
    assert (final.input_tokens, final.output_tokens) == (180_000, 18_000)
    assert final.cost_usd == pytest.approx(180 * USD)
    assert (costs.calls, costs.input_tokens) == (180, 180_000)
    assert costs.cost_usd == pytest.approx(180 * USD)
    assert plain == 180_000
    (started,) = exporter.by_name("run_started")
    assert (started.attributes or {})[semconv.AGENT_NAME] == "desk"
