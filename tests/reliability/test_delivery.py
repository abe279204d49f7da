"""A receiver fails in each way that receivers do: the service ends in time, nothing is lost unseen."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import receivers
from receivers import Receiver, verdicts
from services import KILLED, WHOLE, free_port, in_time, lost_of, small_files

FAULTS: dict[str, dict[str, Any]] = {
    "collector down at start": {"down": True},
    "collector dies midway": {"after": (1, -1)},
    "collector never answers": {"status": 0},
    "collector too busy (429)": {"status": 429, "headers": {"retry-after": "60"}},
    "collector not ready (503)": {"status": 503, "headers": {"retry-after": "60"}},
    "collector not ready, no Retry-After": {"status": 503},
    "credentials refused (401)": {"status": 401},
}


@pytest.mark.parametrize("spool", [True, False], ids=["spool", "memory"])
@pytest.mark.parametrize("fault", FAULTS)
def test_a_collector_that_fails(fault: str, spool: bool, service: Any, tmp_path: Path) -> None:
    """With a spool every run is whole once the collector is back; without, the loss is counted.

    Either way the service ends within its deadline, with its exit code.
    """
    how = dict(FAULTS[fault])
    port = free_port()
    environment = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{port}",
        "OTEL_BSP_SCHEDULE_DELAY": "20",
        **({"CLEW_SPOOL_DIR": str(tmp_path / "spool")} if spool else {}),
    }
    first: list[Any] = []
    if how.pop("down", False):
        ended = service(**environment)
    else:
        after = how.pop("after", None)
        with Receiver(port=port, **how) as failing:
            failing.after = after
            ended = service(**environment)
            first = failing.records()
    in_time(ended)
    assert len(ended.runs) == 3
    if not spool:
        arrived = {each.span_id for each in first}
        assert lost_of(ended.err) == 15 - len(arrived)
        return
    assert lost_of(ended.err) == 0
    with Receiver(port=port) as back:
        again = service(RUNS="1", **environment)
        records = first + back.records()
    in_time(again)
    assert verdicts(records, ended.runs + again.runs) == dict.fromkeys(
        ended.runs + again.runs, WHOLE
    )
    waiting = list((tmp_path / "spool").rglob("*.otlp"))
    assert waiting == []


def test_a_collector_with_a_low_limit(service: Any, tmp_path: Path) -> None:
    """413: what waits is sent in halves, until each part is small enough."""
    port = free_port()
    environment = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{port}",
        "CLEW_SPOOL_DIR": str(tmp_path / "spool"),
    }
    ended = service(**environment)
    with Receiver(port=port, most=2500) as back:
        again = service(RUNS="1", **environment)
        records = back.records()
        assert max(len(body) for body in back.taken) <= 2500
    assert verdicts(records, ended.runs + again.runs) == dict.fromkeys(
        ended.runs + again.runs, WHOLE
    )


def test_a_certificate_that_is_not_trusted(service: Any, tmp_path: Path) -> None:
    """Spans wait until the operator has named the authority."""
    context, authority = receivers.certificate(tmp_path)
    with Receiver(tls=context) as server:
        environment = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": server.base_url.replace("http:", "https:"),
            "CLEW_SPOOL_DIR": str(tmp_path / "spool"),
        }
        ended = service(**environment)
        in_time(ended)
        assert server.taken == []
        trusted = {"OTEL_EXPORTER_OTLP_CERTIFICATE": str(authority)}
        again = service(RUNS="1", **environment, **trusted)
        assert verdicts(server.records(), ended.runs + again.runs) == dict.fromkeys(
            ended.runs + again.runs, WHOLE
        )


@pytest.mark.parametrize("spool", [True, False], ids=["spool", "memory"])
def test_a_name_that_nobody_knows(spool: bool, service: Any, tmp_path: Path) -> None:
    """DNS failure: spans wait, or are counted."""
    more = {"CLEW_SPOOL_DIR": str(tmp_path / "spool")} if spool else {}
    ended = service(OTEL_EXPORTER_OTLP_ENDPOINT="http://nowhere.invalid:4318", **more)
    in_time(ended)
    waiting = sum(int(each.name.split("-")[3]) for each in tmp_path.rglob("*.otlp"))
    assert (waiting, lost_of(ended.err)) == ((15, 0) if spool else (0, 15))


@pytest.mark.parametrize("fault", ["the disk is full", "permission denied"])
def test_a_spool_that_cannot_be_written(fault: str, service: Any, tmp_path: Path) -> None:
    """The service does not notice; what is lost is counted, and logged once."""
    folder = tmp_path / "spool"
    if fault == "permission denied":
        folder.write_text("")  # not even root can make a folder in a file
    ended = service(
        before=small_files if fault == "the disk is full" else None,
        OTEL_EXPORTER_OTLP_ENDPOINT=f"http://127.0.0.1:{free_port()}",
        CLEW_SPOOL_DIR=str(folder),
        PYTHONDONTWRITEBYTECODE="1",
    )
    in_time(ended)
    assert lost_of(ended.err) == 15
    assert ended.err.count("Clew could not write to the spool") == 1
    assert not list(tmp_path.rglob("*.tmp"))


def test_what_waits_survives_kill_9(service: Any, tmp_path: Path) -> None:
    """The next process sends it, in order, and every run is whole; nothing twice."""
    port = free_port()
    environment = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{port}",
        "OTEL_BSP_SCHEDULE_DELAY": "20",
        "OTEL_METRICS_EXPORTER": "none",
        "CLEW_SEAL_GRACE_SECONDS": "0.01",
        "CLEW_SPOOL_DIR": str(tmp_path / "spool"),
    }
    child = subprocess.Popen(
        [sys.executable, "-c", KILLED], env={**os.environ, **environment},
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert child.stdout is not None
    runs: list[str] = []
    for line in child.stdout:
        if line == "waiting\n":
            break
        runs.append(line.split()[1])
    child.send_signal(signal.SIGKILL)
    child.wait(10)
    child.stdout.close()
    with Receiver(port=port) as back:
        again = service(RUNS="1", **environment)
        records = back.records()
    assert verdicts(records, runs + again.runs) == dict.fromkeys(runs + again.runs, WHOLE)
    assert len({(each.trace_id, each.span_id) for each in records}) == len(records)
    order = list(dict.fromkeys(each.trace_id for each in records if each.trace_id in runs))
    assert order == runs


LONG = """
import os, sys, time
import clew
clew.configure("service")
clew_run = None
for number in range(3):
    with clew.run("desk") as run:
        with clew.tool("search"):
            pass
    print("run", f"{run.run_id.int:032x}", flush=True)
    time.sleep(0.3)
sys.stdin.readline()
print("done", flush=True)
"""


def test_a_collector_that_comes_back_while_the_service_runs(tmp_path: Path) -> None:
    """What waits is sent without another span having to end."""
    port = free_port()
    child = subprocess.Popen(
        [sys.executable, "-c", LONG],
        env={
            **os.environ,
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{port}",
            "OTEL_BSP_SCHEDULE_DELAY": "20",
            "OTEL_METRICS_EXPORTER": "none",
            "CLEW_SEAL_GRACE_SECONDS": "0.01",
            "CLEW_SPOOL_DIR": str(tmp_path / "spool"),
        },
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert child.stdout is not None
    runs = [child.stdout.readline().split()[1] for _ in range(3)]
    with Receiver(port=port) as back:
        patience = time.monotonic() + 20
        while set(verdicts(back.records(), runs).values()) != {WHOLE}:
            assert time.monotonic() < patience, verdicts(back.records(), runs)
            time.sleep(0.05)
        out, _ = child.communicate("\n", timeout=20)
    assert (child.returncode, out) == (0, "done\n")
