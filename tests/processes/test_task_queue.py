"""A task queue: the worker's spans belong to the run that asked, and leave before the child ends."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import time
import uuid
from collections import Counter
from pathlib import Path

import pytest

from clew.testing import OtlpSink, Reply, ScriptedProvider

TASKS = 6
QUEUE = """
import os
from pathlib import Path

import celery
import clew
import httpx

folder = Path(os.environ["QUEUE"])
app = celery.Celery(
    "queue",
    broker="filesystem://",
    broker_transport_options={
        "data_folder_in": str(folder / "in"),
        "data_folder_out": str(folder / "in"),
        "control_folder": str(folder / "control"),
    },
)
app.conf.worker_hijack_root_logger = False
clew.configure("queue")
clew.instrument()


@app.task
def summarise(reference, path):
    body = {"model": "gpt-5-mini", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}]}
    with clew.resume(reference), httpx.Client(trust_env=False) as client:
        client.post(os.environ["PROVIDER"] + path, json=body).raise_for_status()
    (folder / f"done-{os.getpid()}").touch()
"""
PRODUCER = """
import clew
from queue_app import summarise

for number in range({tasks}):
    path = ("/v1/chat/completions", "/v1/messages")[number % 2]
    with clew.run("producer") as run:
        summarise.delay(run.suspend("waiting_for_input"), path)
    print(run.run_id)
clew.shutdown()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_tasks_in_forked_children_belong_to_their_runs(tmp_path: Path) -> None:
    """A prefork pool, one task for each child: nothing is lost when the child ends."""
    if importlib.util.find_spec("celery") is None:
        if os.environ.get("CI") == "true":
            pytest.fail("celery is not installed")
        pytest.skip("celery is not installed")
    for folder in ("in", "control"):
        (tmp_path / folder).mkdir()
    (tmp_path / "queue_app.py").write_text(QUEUE)
    with OtlpSink() as sink, ScriptedProvider(lambda _: Reply(text="yes")) as provider:
        environment = os.environ | {
            "OTEL_EXPORTER_OTLP_ENDPOINT": sink.base_url,
            "OTEL_BSP_SCHEDULE_DELAY": "60000",
            "CLEW_SEAL_GRACE_SECONDS": "0",
            "PROVIDER": provider.base_url,
            "QUEUE": str(tmp_path),
            "PYTHONPATH": str(tmp_path),
        }
        produced = subprocess.run(
            [sys.executable, "-c", PRODUCER.format(tasks=TASKS)],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert produced.returncode == 0, produced.stderr
        runs = set(produced.stdout.split())
        said = consume(tmp_path, environment)
        spans = list(sink.spans)
    assert "Clew" not in said, said
    assert len(runs) == TASKS
    assert len({(span.trace_id, span.span_id) for span in spans}) == len(spans)
    by_run = Counter(
        (str(uuid.UUID(bytes=span.trace_id)), span.name) for span in spans if span.name != "seal"
    )
    assert {(run, by_run[run, "invoke_agent producer"]) for run in runs} == {(r, 2) for r in runs}
    assert {(run, by_run[run, "chat gpt-5-mini"]) for run in runs} == {(r, 1) for r in runs}
    assert {(run, by_run[run, "run_sealed producer"]) for run in runs} == {(r, 2) for r in runs}
    assert {run for run, _ in by_run} == runs


def consume(folder: Path, environment: dict[str, str]) -> str:
    """Run a worker until every task is done; return what it said."""
    command = [
        *(sys.executable, "-m", "celery", "--app", "queue_app", "worker", "--pool", "prefork"),
        *("--concurrency", "2", "--max-tasks-per-child", "1", "--without-gossip"),
        *("--without-mingle", "--without-heartbeat", "--loglevel", "WARNING"),
    ]
    log = folder / "worker.log"
    with log.open("w") as output:
        worker = subprocess.Popen(
            command, cwd=folder, env=environment, stdout=output, stderr=output
        )
        try:
            deadline = time.monotonic() + 60
            while len(list(folder.glob("done-*"))) < TASKS and time.monotonic() < deadline:
                time.sleep(0.05)
            worker.terminate()
            worker.wait(30)
        finally:
            worker.kill()
            worker.wait()
    # Each child had one task: as many children as tasks.
    assert len(list(folder.glob("done-*"))) == TASKS, log.read_text()
    return log.read_text()
