"""Bounds on the reading and the writing side, in CPU time, far above what a quiet machine needs."""

# ruff: noqa: SIM300 - expected == actual, in this order
from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from pathlib import Path

import sample_messages
import sample_runs

from clew.store import otlp_protobuf
from clew.store.reader import Reader
from clew.store.records import Page, RunFilter
from clew.store.writer import Writer

RUNS = 400


def cpu_seconds(work: Callable[[], object]) -> float:
    """CPU time of the whole process, the writer's thread included: the best of three."""
    times: list[float] = []
    for _ in range(3):
        before = time.process_time()
        work()
        times.append(time.process_time() - before)
    return min(times)


def test_spans_are_stored_fast_and_lists_stay_fast(store_file: Path) -> None:
    """5,000 spans per second of CPU go in; a list takes under 50 ms, a run under 20 ms."""
    writer = Writer(store_file)

    def fresh_messages() -> list[bytes]:
        template = sample_messages.message(*(sample_runs.triage() for _ in range(20)))
        messages: list[bytes] = []
        for _ in range(RUNS // 20):
            for resource_spans in template.resource_spans:
                trace_id = uuid.uuid4().bytes
                for scope_spans in resource_spans.scope_spans:
                    for span in scope_spans.spans:
                        span.trace_id = trace_id
            messages.append(template.SerializeToString())
        return messages

    def store(messages: list[bytes]) -> int:
        return sum(writer.write(otlp_protobuf.decode(each).spans).stored for each in messages)

    waiting = [fresh_messages() for _ in range(3)]
    spans = RUNS * len(sample_runs.triage().spans)
    assert cpu_seconds(lambda: store(waiting.pop())) < spans / 5000
    reader = Reader(store_file)
    page = reader.runs(RunFilter(), Page())
    assert 50 == len(page.runs)
    assert cpu_seconds(lambda: reader.runs(RunFilter(agent="triage"), Page(after=page.next))) < 0.05
    assert cpu_seconds(lambda: reader.run(page.runs[0].trace_id)) < 0.02
    reader.close()
    writer.close()
