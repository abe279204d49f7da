"""A process that is killed at any moment: the record says what is missing, and never too much."""

from __future__ import annotations

import collections
import json
import os
import random
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from clew.audit.keys import KeyRing
from clew.audit.verify import verify
from clew.integrity import Key
from clew.sources.otlp_json import record_of
from clew.store import otlp_protobuf
from clew.store.records import SpanRecord
from clew.testing import OtlpSink

PROGRAM = textwrap.dedent(
    """
    import os, sys, time
    import clew
    from clew.settings import Settings

    log = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    settings = Settings.from_environment(
        export_delay_ms=5, seal_grace_s=0.002, integrity_key="k", batch_size=64
    )
    clew.configure("killed", settings=settings)
    os.write(1, b"ready\\n")
    for _ in range(100_000):
        with clew.run("desk") as run:
            segment = run.agent.segment
            for number in range(6):
                with clew.tool("search", effect="read_only") as call:
                    clew.decide("tool", "allow", subject="search")
                os.write(log, f"{run.trace_id} {call.seq}\\n".encode())
                time.sleep(0.001)
    """
)


def kills(number: int, folder: Path, seed: int) -> dict[str, int]:
    """Kill a process as often as asked; return how many runs there are of each status."""
    chance = random.Random(seed)  # noqa: S311 - no secret
    ring = KeyRing([Key(b"k")])
    counted: collections.Counter[str] = collections.Counter()
    for round_ in range(number):
        log = folder / f"log-{round_}"
        with OtlpSink() as sink:
            child = subprocess.Popen(
                [sys.executable, "-c", PROGRAM, str(log)],
                stdout=subprocess.PIPE,
                env={**os.environ, "OTEL_EXPORTER_OTLP_ENDPOINT": sink.base_url,
                     "OTEL_METRICS_EXPORTER": "none"},
            )  # fmt: skip
            assert child.stdout is not None
            assert child.stdout.readline() == b"ready\n"
            patience = time.monotonic() + 30
            while not any(span.name.startswith("run_sealed") for span in sink.spans):
                assert time.monotonic() < patience
                time.sleep(0.01)
            time.sleep(chance.uniform(0, 0.3))
            os.kill(child.pid, signal.SIGKILL)
            child.wait(10)
            child.stdout.close()
            spans = [span for body in sink.bodies for span in otlp_protobuf.decode(body).spans]
        counted.update(judge(spans, log, ring))
    return dict(counted)


def judge(spans: list[SpanRecord], log: Path, ring: KeyRing) -> list[str]:
    """Verify each run that arrived, against what its process wrote down itself."""
    ended: collections.defaultdict[str, set[int]] = collections.defaultdict(set)
    for line in log.read_text().splitlines() if log.exists() else ():
        trace_id, seq = line.split()
        ended[trace_id].add(int(seq))
    by_run: collections.defaultdict[str, list[SpanRecord]] = collections.defaultdict(list)
    for span in spans:
        by_run[span.trace_id].append(span)
    statuses: list[str] = []
    for trace_id, found in by_run.items():
        report = verify(record_of(trace_id, found), ring)
        there = {span.seq for span in found}
        lacking = ended[trace_id] - there
        assert report.integrity != "ALTERED", json.dumps([str(each) for each in report.findings])
        assert report.status in ("COMPLETE", "OPEN", "INCOMPLETE")
        if report.status == "COMPLETE":
            assert lacking == set()
        if report.status == "INCOMPLETE":
            assert lacking <= set(report.segments[0].missing_seqs)
        statuses.append(report.status)
    return statuses


def test_a_killed_process_is_never_called_complete(tmp_path: Path) -> None:
    """At a few random moments; `make soak` has two hundred of them."""
    found = kills(6, tmp_path, seed=time.time_ns())
    assert set(found) <= {"COMPLETE", "OPEN", "INCOMPLETE"}
    assert found.get("COMPLETE", 0) > 0


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_two_hundred_kills(tmp_path: Path) -> None:
    """At two hundred random moments every verdict is right."""
    found = kills(200, tmp_path, seed=time.time_ns())
    assert set(found) <= {"COMPLETE", "OPEN", "INCOMPLETE"}
    assert found["COMPLETE"] > 0
    assert found["OPEN"] > 0
