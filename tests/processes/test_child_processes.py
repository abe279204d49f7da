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

sys.path.insert(0, str(Path(__file__).parents[1] / "reliability" / "support"))

WORK = """
import clew


def set_up():
    clew.configure("work")


def step(reference):
    with clew.resume(reference):
        with clew.tool("step"):
            pass


def set_up_and_step(reference):
    set_up()
    step(reference)
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
        target = work.step if method == "fork" else work.set_up_and_step
        for reference in references:
            child = context.Process(target=target, args=(reference,))
            child.start()
            child.join()
            assert child.exitcode == 0
"""


WAYS = [
    ("process", "fork"),
    ("process", "spawn"),
    ("process", "forkserver"),
    ("pool", "fork"),
    ("pool", "spawn"),
    ("pool", "forkserver"),
    ("executor", "fork"),
    ("executor", "spawn"),
    ("executor", "forkserver"),
]


def run_main(folder: Path, *arguments: str, **environment: str) -> set[str]:
    """Run the program until its end; return its runs."""
    (folder / "work.py").write_text(WORK)
    (folder / "main.py").write_text(MAIN)
    done = subprocess.run(
        [sys.executable, "main.py", *arguments],
        cwd=folder,
        env=os.environ
        | {"OTEL_BSP_SCHEDULE_DELAY": "60000", "CLEW_SEAL_GRACE_SECONDS": "0"}
        | environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return set(done.stdout.split())


def expected(runs: set[str]) -> dict[tuple[str, str], int]:
    """Return how many spans of each name each run has."""
    assert len(runs) == 4
    return {
        **{(run, "invoke_agent triage"): 2 for run in runs},
        **{(run, "run_started triage"): 2 for run in runs},
        **{(run, "run_sealed triage"): 2 for run in runs},
        **{(run, "execute_tool step"): 1 for run in runs},
    }


@pytest.mark.parametrize(("kind", "method"), WAYS)
def test_what_a_child_did_is_exported(kind: str, method: str, tmp_path: Path) -> None:
    """Each run has both of its segments, each span once, however the child came to be."""
    if not hasattr(os, "fork"):
        pytest.skip("this system does not fork")
    with OtlpSink() as sink:
        runs = run_main(tmp_path, kind, method, OTEL_EXPORTER_OTLP_ENDPOINT=sink.base_url)
        spans = list(sink.spans)
    assert len({(span.trace_id, span.span_id) for span in spans}) == len(spans)
    found = Counter((str(uuid.UUID(bytes=span.trace_id)), span.name) for span in spans)
    assert found == expected(runs)


@pytest.mark.parametrize("spool", [True, False], ids=["spool", "memory"])
@pytest.mark.parametrize(("kind", "method"), [("process", "fork"), ("pool", "fork")])
def test_over_grpc(kind: str, method: str, spool: bool, tmp_path: Path) -> None:
    """A forked child opens a connection of its own, also when its parent has one in use."""
    if not hasattr(os, "fork"):
        pytest.skip("this system does not fork")
    if os.environ.get("CI") != "true":
        pytest.importorskip("grpc")
    from grpc_receivers import GrpcReceiver

    with GrpcReceiver() as receiver:
        runs = run_main(
            tmp_path,
            kind,
            method,
            OTEL_EXPORTER_OTLP_ENDPOINT=receiver.base_url,
            OTEL_EXPORTER_OTLP_PROTOCOL="grpc",
            OTEL_METRICS_EXPORTER="none",
            **({"CLEW_SPOOL_DIR": str(tmp_path / "spool")} if spool else {}),
        )
        spans = receiver.records()
    assert len({(span.trace_id, span.span_id) for span in spans}) == len(spans)
    found = Counter((str(uuid.UUID(hex=span.trace_id)), span.name) for span in spans)
    assert found == expected(runs)
