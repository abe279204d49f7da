"""How the store grows: `python tests/bench/reading.py [--most 1000000]`.

Fills a store through the same writer as `clew serve`, and at 10,000, 100,000 and 1,000,000 spans
measures the CPU time of storing a further batch, of a list of runs (first page, a later page, one
agent's) and of one run. Messages are decoded from OTLP as they come in.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from statistics import median

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

import clew
from clew.store import otlp_protobuf
from clew.store.reader import Reader
from clew.store.records import Page, RunFilter
from clew.store.writer import Writer

SIZES = (10_000, 100_000, 1_000_000)
RUNS_IN_MESSAGE = 20
TIMES = 9


def template() -> ExportTraceServiceRequest:
    """Return the spans of one run of five rounds and six tool calls, as they are exported."""
    from workloads import Bench

    from clew.testing import CaptureExporter

    exporter = CaptureExporter()
    settings = clew.Settings(service_name="bench", seal_grace_s=0.0)
    clew.configure(settings=settings, span_exporters=[exporter])
    bench = Bench()
    clew.instrument()
    bench.agent(1, traced=True)
    clew.uninstrument()
    clew.shutdown()
    return ExportTraceServiceRequest.FromString(exporter.otlp_bytes())


def message(run: ExportTraceServiceRequest, shift_ns: int) -> bytes:
    """Return a message with copies of a run, each with ids and times of its own."""
    made = ExportTraceServiceRequest()
    for number in range(RUNS_IN_MESSAGE):
        copy = ExportTraceServiceRequest.FromString(run.SerializeToString())
        run_id = uuid.uuid4()
        for resource in copy.resource_spans:
            for scope in resource.scope_spans:
                for span in scope.spans:
                    span.trace_id = run_id.bytes
                    span.start_time_unix_nano += shift_ns + number * 1_000_000
                    span.end_time_unix_nano += shift_ns + number * 1_000_000
                    for attribute in span.attributes:
                        if attribute.key == "clew.run.id":
                            attribute.value.string_value = str(run_id)
        made.resource_spans.extend(copy.resource_spans)
    return made.SerializeToString()


def cpu_ms(work: Callable[[], object]) -> float:
    """Return the median CPU time of some uses, in ms."""
    took: list[float] = []
    for _ in range(TIMES):
        began = time.process_time()
        work()
        took.append((time.process_time() - began) * 1e3)
    return median(took)


def read(reader: Reader) -> tuple[float, ...]:
    """Return the CPU time (ms) of a list, a later page, one agent's list, and one run."""
    page = reader.runs(RunFilter(), Page())
    return (
        cpu_ms(lambda: reader.runs(RunFilter(), Page())),
        cpu_ms(lambda: reader.runs(RunFilter(), Page(after=page.next))),
        cpu_ms(lambda: reader.runs(RunFilter(agent="support-bot"), Page())),
        cpu_ms(lambda: reader.run(page.runs[0].trace_id)),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--most", type=int, default=SIZES[-1])
    options = parser.parse_args()
    run = template()
    spans = sum(len(s.spans) for r in run.resource_spans for s in r.scope_spans)
    folder = Path(tempfile.mkdtemp(prefix="clew-bench-"))
    stored = turns = 0
    spent = 0.0
    try:
        writer, reader = Writer(folder / "spans.db"), None
        print("spans       ingest/s of CPU   list ms   later page ms   one agent ms   one run ms")
        for size in (size for size in SIZES if size <= options.most):
            fresh = 0
            spent = 0.0
            while stored < size:
                body = message(run, turns * 60_000_000_000)
                began = time.process_time()
                writer.write(otlp_protobuf.decode(body).spans)
                spent += time.process_time() - began
                turns += 1
                fresh += spans * RUNS_IN_MESSAGE
                stored += spans * RUNS_IN_MESSAGE
            reader = reader or Reader(folder / "spans.db")
            figures = read(reader)
            cells = "".join(f"{figure:>13.2f}" for figure in figures)
            print(f"{stored:<12,}{fresh / spent:>12,.0f}{cells}", flush=True)
        if reader is not None:
            reader.close()
        writer.close()
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
