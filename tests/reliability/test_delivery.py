"""A receiver fails in each way that receivers do: the service ends in time, nothing is lost unseen.

Over each protocol; what holds for one alone has a file of its own.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from fresh import free_port
from protocols import FAULTS, PROTOCOLS, Protocol
from receivers import certificate, verdicts
from services import KILLED, LONG, WHOLE, in_time, lost_of, small_files

by_protocol = pytest.mark.parametrize("protocol", PROTOCOLS)
with_and_without = pytest.mark.parametrize("spool", [True, False], ids=["spool", "memory"])


def begin(program: str, environment: dict[str, str]) -> subprocess.Popen[str]:
    """Start a service whose spans are exported, and whose runs are sealed, at once."""
    at_once = {
        "OTEL_BSP_SCHEDULE_DELAY": "20",
        "OTEL_METRICS_EXPORTER": "none",
        "CLEW_SEAL_GRACE_SECONDS": "0.01",
    }
    return subprocess.Popen(
        [sys.executable, "-c", program], env={**os.environ, **at_once, **environment},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip


def check_whole(records: list[Any], runs: list[str]) -> None:
    assert verdicts(records, runs) == dict.fromkeys(runs, WHOLE)


@with_and_without
@pytest.mark.parametrize(("protocol", "fault"), FAULTS)
def test_a_collector_that_fails(
    protocol: Protocol, fault: str, spool: bool, service: Any, tmp_path: Path
) -> None:
    """With a spool every run is whole once the collector is back; without, the loss is counted.

    Either way the service ends within its deadline, with its exit code.
    """
    how = dict(protocol.faults[fault])
    port = free_port()
    folder = tmp_path / "spool"
    environment = {
        "OTEL_BSP_SCHEDULE_DELAY": "20",
        **protocol.environment(port, folder if spool else None),
    }
    first: list[Any] = []
    if how.pop("down", False):
        ended = service(**environment)
    else:
        after = how.pop("after", None)
        with protocol.receiver(port=port, **how) as failing:
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
    with protocol.receiver(port=port) as back:
        again = service(RUNS="1", **environment)
        records = first + back.records()
    in_time(again)
    check_whole(records, ended.runs + again.runs)
    assert list(folder.rglob("*.otlp")) == []


@by_protocol
def test_the_stock_encoder_has_a_spool_too(
    protocol: Protocol, service: Any, tmp_path: Path
) -> None:
    """What waits was written by one encoder, and is sent by a process with the other."""
    port = free_port()
    environment = protocol.environment(port, tmp_path / "spool")
    ended = service(CLEW_OTLP_ENCODER="stock", **environment)
    in_time(ended)
    with protocol.receiver(port=port) as back:
        again = service(RUNS="1", **environment)
        records = back.records()
    assert lost_of(ended.err) == 0
    check_whole(records, ended.runs + again.runs)


@by_protocol
def test_a_collector_with_a_low_limit(protocol: Protocol, service: Any, tmp_path: Path) -> None:
    """What waits is sent in halves, until each part is small enough."""
    port = free_port()
    folder = tmp_path / "spool"
    environment = {**protocol.environment(port, folder), **protocol.halves}
    ended = service(**environment)
    with protocol.receiver(port=port, most=2500) as back:
        again = service(RUNS="1", **environment)
        for _ in range(protocol.turns):
            if not list(folder.rglob("*.otlp")):
                break
            service(RUNS="0", **environment)
        records = back.records()
        assert max(len(body) for body in back.taken) <= 2500
    check_whole(records, ended.runs + again.runs)


@by_protocol
def test_a_certificate_that_is_not_trusted(
    protocol: Protocol, service: Any, tmp_path: Path
) -> None:
    """Spans wait until the operator has named the authority."""
    files = certificate(tmp_path)
    with protocol.receiver(tls=files) as server:
        environment = protocol.environment(server.base_url, tmp_path / "spool")
        ended = service(**environment)
        in_time(ended)
        assert server.taken == []
        trusted = {"OTEL_EXPORTER_OTLP_CERTIFICATE": str(files.public)}
        again = service(RUNS="1", **environment, **trusted)
        check_whole(server.records(), ended.runs + again.runs)


@with_and_without
@by_protocol
def test_a_name_that_nobody_knows(
    protocol: Protocol, spool: bool, service: Any, tmp_path: Path
) -> None:
    """DNS failure: spans wait, or are counted."""
    address = f"http://nowhere.invalid:{protocol.port}"
    ended = service(**protocol.environment(address, tmp_path / "spool" if spool else None))
    in_time(ended)
    waiting = sum(int(each.name.split("-")[3]) for each in tmp_path.rglob("*.otlp"))
    assert (waiting, lost_of(ended.err)) == ((15, 0) if spool else (0, 15))


@by_protocol
@pytest.mark.parametrize("fault", ["the disk is full", "permission denied"])
def test_a_spool_that_cannot_be_written(
    fault: str, protocol: Protocol, service: Any, tmp_path: Path
) -> None:
    """The service does not notice; what is lost is counted, and logged once."""
    folder = tmp_path / "spool"
    if fault == "permission denied":
        folder.write_text("")  # not even root can make a folder in a file
    ended = service(
        before=small_files if fault == "the disk is full" else None,
        PYTHONDONTWRITEBYTECODE="1",
        **protocol.environment(free_port(), folder),
    )
    in_time(ended)
    assert lost_of(ended.err) == 15
    assert ended.err.count("Clew could not write to the spool") == 1
    assert not list(tmp_path.rglob("*.tmp"))


@by_protocol
def test_what_waits_survives_kill_9(protocol: Protocol, service: Any, tmp_path: Path) -> None:
    """The next process sends it, in order, and every run is whole; nothing twice."""
    port = free_port()
    environment = {
        "OTEL_BSP_SCHEDULE_DELAY": "20",
        **protocol.environment(port, tmp_path / "spool"),
    }
    with begin(KILLED, environment) as child:
        assert child.stdout is not None
        runs: list[str] = []
        for line in child.stdout:
            if line == "waiting\n":
                break
            runs.append(line.split()[1])
        child.send_signal(signal.SIGKILL)
        child.wait(10)
    with protocol.receiver(port=port) as back:
        again = service(RUNS="1", **environment)
        records = back.records()
    check_whole(records, runs + again.runs)
    assert len({(each.trace_id, each.span_id) for each in records}) == len(records)
    order = list(dict.fromkeys(each.trace_id for each in records if each.trace_id in runs))
    assert order == runs


@by_protocol
def test_a_collector_that_comes_back_while_the_service_runs(
    protocol: Protocol, tmp_path: Path
) -> None:
    """What waits is sent without another span having to end."""
    port = free_port()
    with begin(LONG, protocol.environment(port, tmp_path / "spool")) as child:
        assert child.stdout is not None
        runs = [child.stdout.readline().split()[1] for _ in range(3)]
        with protocol.receiver(port=port) as back:
            patience = time.monotonic() + 20
            while set(verdicts(back.records(), runs).values()) != {WHOLE}:
                assert time.monotonic() < patience, verdicts(back.records(), runs)
                time.sleep(0.05)
            out, _ = child.communicate("\n", timeout=20)
    assert (child.returncode, out) == (0, "done\n")
