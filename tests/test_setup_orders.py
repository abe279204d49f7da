"""Configure with other tracer providers in the process: before, later, around, private, or none."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any, NamedTuple

import pytest

from clew.audit.verify import verify
from clew.sources.otlp_json import record_of
from clew.store import otlp_json

PROGRAM = """
import asyncio, json, logging, sys
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
import clew
from clew.settings import Settings
from clew.testing import CaptureExporter

logging.basicConfig()
order, twin = sys.argv[1:]
library = trace.get_tracer("library")  # as libraries do at import, before anybody is set up
theirs, private = TracerProvider(), TracerProvider()
host, ours = CaptureExporter(), CaptureExporter()
theirs.add_span_processor(SimpleSpanProcessor(host))

class Around(trace.TracerProvider):
    provider = theirs
    def get_tracer(self, *args, **kwargs):
        return theirs.get_tracer(*args, **kwargs)

before = {
    "theirs": theirs, "around the SDK's": Around(), "not the SDK's": trace.NoOpTracerProvider(),
    "private beside theirs": theirs,
}.get(order)
if before is not None:
    trace.set_tracer_provider(before)
given = private if order.startswith("private") else None
clew.configure(
    "x", settings=Settings(digest_key="k", seal_grace_s=0), span_exporters=[ours],
    tracer_provider=given,
)
first = trace.get_tracer_provider()
if order == "theirs later":
    logging.getLogger("opentelemetry").setLevel(logging.ERROR)  # it says that it keeps the first
    trace.set_tracer_provider(theirs)

def work():
    with library.start_as_current_span("outside"):
        with clew.run("desk") as run, library.start_as_current_span("inside"):
            with clew.tool("search"):
                clew.decide("tool", "deny", subject="search")
    return run

async def awork():
    with library.start_as_current_span("outside"):
        async with clew.run("desk") as run:
            with library.start_as_current_span("inside"):
                async with clew.tool("search"):
                    await asyncio.sleep(0)
                    clew.decide("tool", "deny", subject="search")
    return run

run = work() if twin == "sync" else asyncio.run(awork())
clew.shutdown()
ids = {span.context.trace_id for span in ours.spans if span.name != "outside"}
print(json.dumps({
    "run": run.trace_id,
    "its trace alone": ids == {run.run_id.int},
    "ours": sorted(span.name.split(" ")[0] for span in ours.spans),
    "host": sorted(span.name.split(" ")[0] for span in host.spans),
    "kept": trace.get_tracer_provider() is (before or first),
    "otlp": ours.otlp_json(),
}))
"""
OF_A_RUN = ["decide", "execute_tool", "invoke_agent", "run_sealed", "run_started"]
OF_THE_LIBRARY = ["inside", "outside"]


class Order(NamedTuple):
    """What leaves by Clew's exporter, what by the host's, and what is logged."""

    ours: list[str]
    host: list[str]
    logged: str = ""


ORDERS = {
    # Clew makes the provider of the process, and every span of the process is its to export.
    "none": Order([*OF_A_RUN, *OF_THE_LIBRARY], []),
    "theirs later": Order([*OF_A_RUN, *OF_THE_LIBRARY], []),
    # Spans of others are exported where they are part of a run.
    "theirs": Order([*OF_A_RUN, "inside"], [*OF_A_RUN, *OF_THE_LIBRARY]),
    "around the SDK's": Order([*OF_A_RUN, "inside"], [*OF_A_RUN, *OF_THE_LIBRARY]),
    "private": Order(OF_A_RUN, []),
    "private beside theirs": Order(OF_A_RUN, OF_THE_LIBRARY),
    "not the SDK's": Order(OF_A_RUN, [], "Clew uses a private one beside it"),
}


@pytest.mark.parametrize("twin", ["sync", "async"])
@pytest.mark.parametrize("order", ORDERS)
def test_every_order_of_set_ups(order: str, twin: str) -> None:
    """Clew works, replaces no provider, and sends no span of others that is not in a run of its."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", PROGRAM, order, twin],
        capture_output=True, text=True, timeout=60, check=False,
        env={"PATH": "/usr/bin:/bin", "OTEL_TRACES_EXPORTER": "none"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    expected = ORDERS[order]
    assert found["ours"] == sorted(expected.ours)
    assert found["host"] == sorted(expected.host)
    assert found["kept"]
    assert found["its trace alone"]
    assert (expected.logged in done.stderr) if expected.logged else done.stderr == ""
    spans = [
        each
        for each in otlp_json.decode(json.dumps(found["otlp"]).encode()).spans
        if each.trace_id == found["run"]
    ]
    assert verify(record_of(found["run"], spans)).status == "COMPLETE"
