"""Runs of hours are visible while they go on."""

from __future__ import annotations

import time
from typing import Any

import pytest

import clew
from clew import semconv
from clew.pipeline import runtime
from clew.settings import Settings
from clew.testing import CaptureExporter


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
