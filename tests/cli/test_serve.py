"""`clew serve` as a process: it stores, is stopped, refuses a second one, survives a kill."""

# ruff: noqa: SIM300 - expected == actual, in this order
from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import sample_messages
import sample_runs
from commands import RUN, Clew, process


@pytest.fixture
def serving(data_dir: Path) -> Iterator[tuple[subprocess.Popen[str], Any]]:
    """A `clew serve` of its own, and what it printed."""
    with subprocess.Popen(
        [sys.executable, "-c", RUN, "serve", "--port", "0", "--json"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "CLEW_DATA_DIR": str(data_dir)},
    ) as child:  # fmt: skip
        assert child.stdout
        printed = ""
        while not printed.endswith("}\n"):
            line = child.stdout.readline()
            if not line:
                break
            printed += line
        yield child, json.loads(printed)
        if child.poll() is None:
            child.kill()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_serve_stores_until_it_is_stopped(
    serving: tuple[subprocess.Popen[str], Any], clew: Clew, number: signal.Signals
) -> None:
    """It prints its address, takes spans, ends cleanly on a signal, and has lost nothing."""
    child, printed = serving
    run = sample_runs.triage()
    answer = httpx.post(
        f"{printed['address']}/v1/traces",
        content=sample_messages.protobuf(run),
        headers={"content-type": "application/x-protobuf"},
        trust_env=False,
    )
    assert 200 == answer.status_code
    child.send_signal(number)
    assert 0 == child.wait(20)
    assert child.stderr
    assert "Traceback" not in child.stderr.read()
    assert len(run.spans) == len(json.loads(clew("show", run.run_id, "--json")[1])["spans"])


def test_a_second_serve_is_refused(
    serving: tuple[subprocess.Popen[str], Any], data_dir: Path, tmp_path: Path
) -> None:
    """The same store, or the same port, is a clear error; the first one goes on."""
    _, printed = serving
    same_store = process("serve", "--port", "0", CLEW_DATA_DIR=str(data_dir))
    port = printed["address"].rpartition(":")[2]
    same_port = process("serve", "--port", port, CLEW_DATA_DIR=str(tmp_path / "other"))
    for done, message in ((same_store, "already served"), (same_port, f"port {port}")):
        assert (1, "", 1) == (done.returncode, done.stdout, done.stderr.count("\n"))
        assert message in done.stderr
    assert 200 == httpx.get(printed["address"], trust_env=False).status_code


def test_import_works_beside_serve(
    serving: tuple[subprocess.Popen[str], Any], clew: Clew, tmp_path: Path
) -> None:
    """Another program may store spans while a server runs, and the server shows them."""
    _, printed = serving
    run = sample_runs.triage()
    file = tmp_path / "run.json"
    file.write_bytes(sample_messages.otlp_json(run))
    assert 0 == clew("import", str(file))[0]
    assert 200 == httpx.get(f"{printed['address']}/runs/{run.run_id}", trust_env=False).status_code


def test_what_was_accepted_survives_a_kill(
    serving: tuple[subprocess.Popen[str], Any], clew: Clew
) -> None:
    """A message that was answered with 200 is there after SIGKILL; the store opens again."""
    child, printed = serving
    runs = [sample_runs.triage() for _ in range(5)]
    for run in runs:
        httpx.post(
            f"{printed['address']}/v1/traces",
            content=sample_messages.protobuf(run),
            headers={"content-type": "application/x-protobuf"},
            trust_env=False,
        ).raise_for_status()
    child.kill()
    child.wait(20)
    time.sleep(0.05)
    listed = json.loads(clew("runs", "--json")[1])["runs"]
    assert {run.run_id for run in runs} == {each["run_id"] for each in listed}
