"""The same faults of a receiver over gRPC: the service ends in time, nothing is lost unseen."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from receivers import certificate, verdicts
from services import KILLED, WHOLE, free_port, in_time, lost_of, small_files

if os.environ.get("CI") != "true":
    pytest.importorskip("grpc")

from grpc_receivers import GrpcReceiver

GRPC = {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc", "OTEL_BSP_SCHEDULE_DELAY": "20"}


FAULTS: dict[str, dict[str, Any]] = {
    "collector down at start": {"down": True},
    "collector dies midway": {"after": (1, "DIES")},
    "collector never answers": {"status": "NEVER"},
    "UNAVAILABLE with RetryInfo": {"status": "UNAVAILABLE", "retry_s": 60.0},
    "UNAVAILABLE without": {"status": "UNAVAILABLE"},
    "RESOURCE_EXHAUSTED with RetryInfo": {"status": "RESOURCE_EXHAUSTED", "retry_s": 60.0},
    "RESOURCE_EXHAUSTED without": {"status": "RESOURCE_EXHAUSTED"},
    "UNAUTHENTICATED": {"status": "UNAUTHENTICATED"},
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
        **GRPC,
        "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{port}",
        **({"CLEW_SPOOL_DIR": str(tmp_path / "spool")} if spool else {}),
    }
    first: list[Any] = []
    if how.pop("down", False):
        ended = service(**environment)
    else:
        after = how.pop("after", None)
        with GrpcReceiver(port=port, **how) as failing:
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
    with GrpcReceiver(port=port) as back:
        again = service(RUNS="1", **environment)
        records = first + back.records()
    in_time(again)
    assert verdicts(records, ended.runs + again.runs) == dict.fromkeys(
        ended.runs + again.runs, WHOLE
    )
    assert list((tmp_path / "spool").rglob("*.otlp")) == []


def test_the_stock_encoder_has_a_spool_too(service: Any, tmp_path: Path) -> None:
    """What waits was written by one encoder, and is sent by a process with the other."""
    port = free_port()
    environment = {
        **GRPC,
        "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{port}",
        "CLEW_SPOOL_DIR": str(tmp_path / "spool"),
    }
    ended = service(CLEW_OTLP_ENCODER="stock", **environment)
    in_time(ended)
    with GrpcReceiver(port=port) as back:
        again = service(RUNS="1", **environment)
        records = back.records()
    assert lost_of(ended.err) == 0
    assert verdicts(records, ended.runs + again.runs) == dict.fromkeys(
        ended.runs + again.runs, WHOLE
    )


def test_a_collector_with_a_low_limit(service: Any, tmp_path: Path) -> None:
    """What waits is sent in halves, until each part is small enough."""
    port = free_port()
    environment = {
        **GRPC,
        "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{port}",
        "CLEW_SPOOL_DIR": str(tmp_path / "spool"),
        "CLEW_SHUTDOWN_SECONDS": "8",
    }
    ended = service(**environment)
    with GrpcReceiver(port=port, most=2500) as back:
        again = service(RUNS="1", **environment)
        assert max(len(body) for body in back.taken) <= 2500
        for _ in range(3):  # each process has a second for what waits
            if not list((tmp_path / "spool").rglob("*.otlp")):
                break
            service(RUNS="0", **environment)
        records = back.records()
    assert verdicts(records, ended.runs + again.runs) == dict.fromkeys(
        ended.runs + again.runs, WHOLE
    )


def test_a_certificate_that_is_not_trusted(service: Any, tmp_path: Path) -> None:
    """Spans wait until the operator has named the authority."""
    _, authority = certificate(tmp_path)
    with GrpcReceiver(tls=(authority, tmp_path / "server.key")) as server:
        environment = {
            **GRPC,
            "OTEL_EXPORTER_OTLP_ENDPOINT": server.base_url,
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
    ended = service(OTEL_EXPORTER_OTLP_ENDPOINT="http://nowhere.invalid:4317", **GRPC, **more)
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
        **GRPC,
    )
    in_time(ended)
    assert lost_of(ended.err) == 15
    assert ended.err.count("Clew could not write to the spool") == 1
    assert not list(tmp_path.rglob("*.tmp"))


def test_what_waits_survives_kill_9(service: Any, tmp_path: Path) -> None:
    """The next process sends it, in order, and every run is whole; nothing twice."""
    port = free_port()
    environment = {
        **GRPC,
        "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{port}",
        "OTEL_METRICS_EXPORTER": "none",
        "CLEW_SEAL_GRACE_SECONDS": "0.01",
        "CLEW_SPOOL_DIR": str(tmp_path / "spool"),
    }
    child = subprocess.Popen(
        [sys.executable, "-c", KILLED], env={**os.environ, **environment},
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
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
    with GrpcReceiver(port=port) as back:
        again = service(RUNS="1", **environment)
        records = back.records()
    assert verdicts(records, runs + again.runs) == dict.fromkeys(runs + again.runs, WHOLE)
    assert len({(each.trace_id, each.span_id) for each in records}) == len(records)
    order = list(dict.fromkeys(each.trace_id for each in records if each.trace_id in runs))
    assert order == runs


GREENLETS = """
from gevent import monkey
monkey.patch_all()
import time
import gevent
import clew
clew.configure("greenlets")
longest = 0.0
def tick():
    global longest
    while True:
        began = time.monotonic()
        gevent.sleep(0.01)
        longest = max(longest, time.monotonic() - began)
gevent.spawn(tick)
for _ in range(3):
    with clew.run("desk") as run:
        pass
    gevent.sleep(0.2)
print("run", f"{run.run_id.int:032x}")
clew.shutdown()
print("held up" if longest > 1 else "went on", flush=True)
print("done", flush=True)
"""


def test_greenlets_do_not_wait_for_a_receiver(service: Any) -> None:
    """Under gevent a request waits as greenlets do; else it would hold up the whole process."""
    if os.environ.get("CI") != "true":
        pytest.importorskip("gevent")
    with GrpcReceiver(status="NEVER") as server:
        ended = service(GREENLETS, OTEL_EXPORTER_OTLP_ENDPOINT=server.base_url, **GRPC)
        assert server.asked > 0
    in_time(ended)
    assert ended.out.splitlines()[1:] == ["went on", "done"]
