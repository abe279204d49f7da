"""Sampling through whole runs: the share that is kept, whole traces, and denials that all arrive."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from opentelemetry import context, propagate
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_ON, ParentBased

import clew
from clew.audit.verify import verify
from clew.pipeline.sampling import RunRatioSampler
from clew.sources.otlp_json import record_of
from clew.store import otlp_protobuf

SET_UPS = ["own provider", "own, and another's processor", "joined provider"]
PROGRAM = """
import json, os, sys, uuid
from collections import Counter
from opentelemetry import trace
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.sampling import ParentBased
import clew
from clew.pipeline import runtime
from clew.pipeline.sampling import RunRatioSampler
from clew.settings import Settings
from clew.testing import CaptureExporter

set_up, ratio, runs, denied, keep = json.loads(sys.argv[1])
exporter = CaptureExporter()
settings = Settings.from_environment(
    digest_key="k", export_delay_ms=20, seal_grace_s=0, queue_size=500_000, keep=frozenset(keep)
)
provider = None
if set_up == "joined provider":
    provider = TracerProvider(sampler=ParentBased(RunRatioSampler(ratio)))
else:
    os.environ["OTEL_TRACES_SAMPLER"] = "traceidratio"
    os.environ["OTEL_TRACES_SAMPLER_ARG"] = str(ratio)
clew.configure("x", settings=settings, span_exporters=[exporter], tracer_provider=provider)
if set_up == "own, and another's processor":
    trace.get_tracer_provider().add_span_processor(SpanProcessor())
library = (provider or trace.get_tracer_provider()).get_tracer("library")
known = set()
for _ in range(runs):
    with clew.run("desk", run_id=uuid.uuid4()) as run:
        known.add(run.run_id.int)
        with clew.tool("refund"):
            if denied:
                clew.decide("tool", "deny", subject="refund")
            else:
                with library.start_as_current_span("SELECT"):
                    pass
overflowed = getattr(runtime.get().keeper, "overflowed", 0)
clew.shutdown()
names = {}
for span in exporter.spans:
    names.setdefault(span.context.trace_id, []).append(span.name.split(" ")[0])
print(json.dumps({
    "runs": len(names),
    "known": set(names) <= known,
    "overflowed": overflowed,
    "kinds": Counter(" ".join(sorted(each)) for each in names.values()),
}))
"""


def sampled(set_up: str, ratio: float, runs: int, *, denied: bool, keep: list[str]) -> Any:
    """Return what left of so many runs, in a process of its own: a provider is set only once."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps([set_up, ratio, runs, denied, keep])],
        capture_output=True, text=True, timeout=120, check=False, env=dict(os.environ),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return json.loads(done.stdout)


@pytest.mark.parametrize(
    ("set_up", "ratio"),
    [*((SET_UPS[0], ratio) for ratio in (0.1, 0.5, 0.75)), *((each, 0.1) for each in SET_UPS[1:])],
)
def test_the_share_of_runs_is_the_ratio_and_each_is_whole(set_up: str, ratio: float) -> None:
    """Of 10,000 uuids, within two points; of a kept run every span is there, others' included."""
    found = sampled(set_up, ratio, 10_000, denied=False, keep=[])
    assert abs(found["runs"] / 10_000 - ratio) < 0.02
    assert found["known"]
    assert found["kinds"] == {
        "SELECT execute_tool invoke_agent run_sealed run_started": found["runs"]
    }


@pytest.mark.parametrize("set_up", SET_UPS)
def test_no_denial_is_sampled_out(set_up: str) -> None:
    """At a ratio of 0.1, 1,000 runs with a denied tool call each are 1,000 whole traces."""
    found = sampled(set_up, 0.1, 1000, denied=True, keep=["deny"])
    assert found["kinds"] == {"decide execute_tool invoke_agent run_sealed run_started": 1000}
    assert found["overflowed"] == 0


@pytest.mark.parametrize("set_up", SET_UPS)
def test_a_run_that_nothing_keeps_leaves_nothing(set_up: str) -> None:
    """With keep rules too, the others are a share of whole traces."""
    found = sampled(set_up, 0.5, 200, denied=False, keep=["deny"])
    assert 0 < found["runs"] < 200
    assert found["kinds"] == {
        "SELECT execute_tool invoke_agent run_sealed run_started": found["runs"]
    }


JOINED = {
    "own provider": lambda: None,
    "joined, by the caller's flag": lambda: TracerProvider(sampler=ParentBased(ALWAYS_ON)),
    "joined, by a ratio of none": lambda: TracerProvider(sampler=ParentBased(RunRatioSampler(0))),
}


@pytest.mark.parametrize("twin", ["sync", "async"])
@pytest.mark.parametrize("set_up", JOINED)
async def test_a_caller_that_is_not_sampled_silences_no_run(
    set_up: str, twin: str, measure: Callable[..., Any]
) -> None:
    """A request whose `traceparent` says 00: the run is whole, linked to it, and counted."""
    measured = measure(ready=False, tracer_provider=JOINED[set_up]())
    caller = f"{7:032x}"
    around = propagate.extract({"traceparent": f"00-{caller}-{9:016x}-00"})
    token = context.attach(around)
    try:
        if twin == "sync":
            with clew.run("desk") as run, clew.tool("refund"):
                clew.decide("tool", "deny", subject="refund")
        else:
            async with clew.run("desk") as run, clew.tool("refund"):
                clew.decide("tool", "deny", subject="refund")
    finally:
        context.detach(token)
    assert measured.total("clew.runs.started") == 1
    assert measured.total("clew.decisions", clew__decision__outcome="deny") == 1
    measured.flush()
    await asyncio.sleep(0.1)  # the grace before the seal
    measured.flush()
    spans = measured.spans.spans
    assert {each.context.trace_id for each in spans} == {run.run_id.int}
    assert [each.name for each in spans if each.parent is None] == ["invoke_agent desk"]
    (root,) = measured.spans.by_name("invoke_agent")
    assert [f"{link.context.trace_id:032x}" for link in root.links] == [caller]
    record = record_of(run.trace_id, list(otlp_protobuf.decode(measured.spans.otlp_bytes()).spans))
    assert verify(record).status == "COMPLETE"
