"""Children of multiprocessing end without `atexit` handlers: their spans leave all the same."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from collections import Counter
from pathlib import Path

import pytest

from clew.testing import OtlpSink

WORK = """
import clew


def set_up():
    clew.configure("work")


def step(reference):
    with clew.resume(reference):
        with clew.tool("step"):
            pass
"""
MAIN = """
import multiprocessing
import sys
from concurrent.futures import ProcessPoolExecutor

import clew
import work

if __name__ == "__main__":
    kind, method = sys.argv[1:]
    context = multiprocessing.get_context(method)
    initializer = None if method == "fork" else work.set_up
    if method == "fork":
        work.set_up()
    else:
        clew.configure("work")
    references = []
    for _ in range(4):
        with clew.run("triage") as run:
            references.append(run.suspend("waiting_for_input"))
        print(run.run_id)
    if kind == "executor":
        with ProcessPoolExecutor(2, mp_context=context, initializer=initializer) as pool:
            list(pool.map(work.step, references))
    elif kind == "pool":
        pool = context.Pool(2, initializer, maxtasksperchild=1)
        pool.map(work.step, references, chunksize=1)
        pool.close()
        pool.join()
    else:
        for reference in references:
            child = context.Process(target=work.step, args=(reference,))
            child.start()
            child.join()
            assert child.exitcode == 0
"""


@pytest.mark.parametrize(
    ("kind", "method"),
    [
        ("process", "fork"),
        ("pool", "fork"),
        ("pool", "spawn"),
        ("executor", "fork"),
        ("executor", "spawn"),
    ],
)
def test_what_a_child_did_is_exported(kind: str, method: str, tmp_path: Path) -> None:
    """Each run has both of its segments, each span once, however the child came to be."""
    if not hasattr(os, "fork"):
        pytest.skip("this system does not fork")
    (tmp_path / "work.py").write_text(WORK)
    (tmp_path / "main.py").write_text(MAIN)
    with OtlpSink() as sink:
        environment = os.environ | {
            "OTEL_EXPORTER_OTLP_ENDPOINT": sink.base_url,
            "OTEL_BSP_SCHEDULE_DELAY": "60000",
            "CLEW_SEAL_GRACE_SECONDS": "0",
        }
        done = subprocess.run(
            [sys.executable, "main.py", kind, method],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        spans = list(sink.spans)
    assert (done.returncode, done.stderr) == (0, "")
    runs = set(done.stdout.split())
    assert len(runs) == 4
    assert len({(span.trace_id, span.span_id) for span in spans}) == len(spans)
    found = Counter((str(uuid.UUID(bytes=span.trace_id)), span.name) for span in spans)
    assert found == {
        **{(run, "invoke_agent triage"): 2 for run in runs},
        **{(run, "run_started triage"): 2 for run in runs},
        **{(run, "run_sealed triage"): 2 for run in runs},
        **{(run, "execute_tool step"): 1 for run in runs},
    }
