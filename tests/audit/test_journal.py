"""What is about to happen is on the disk first, and does not happen where it cannot be."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from tampering import read_back

import clew
from clew import _guard, semconv
from clew.audit.begun import by_run, held_against, without_spans
from clew.audit.verify import absent, verify
from clew.errors import AuditError, PolicyDenied
from clew.gates.tool import ToolGate, ToolRule
from clew.settings import Settings
from clew.store.journal import FOLDER, Entry, read
from clew.store.paths import store_path
from clew.store.writer import Writer
from clew.testing import CaptureExporter, Reply, ScriptedProvider

BODY = {"model": "gpt-5-mini", "messages": [{"role": "user", "content": "hello"}]}
Configured = Callable[..., CaptureExporter]


@pytest.fixture
def configured(tmp_path: Path) -> Iterator[Configured]:
    """Return what configures Clew with a journal in a folder of the test."""

    def configure(audit: str = "fail_closed", **settings: Any) -> CaptureExporter:
        exporter = CaptureExporter()
        chosen = Settings.from_environment(
            data_dir=tmp_path / "journal-data", audit=audit, export_delay_ms=20, **settings
        )
        clew.configure("tests", settings=chosen, span_exporters=[exporter])
        clew.instrument()
        return exporter

    yield configure
    clew.uninstrument()
    clew.shutdown()


def entries(tmp_path: Path) -> list[Entry]:
    """Return what the journal says."""
    return list(read(tmp_path / "journal-data"))


def broken(tmp_path: Path) -> None:
    """Make the journal impossible to write."""
    (tmp_path / "journal-data").mkdir(exist_ok=True)
    (tmp_path / "journal-data" / FOLDER).write_text("in the way")


def test_a_write_is_in_the_journal_before_it_happens(
    configured: Configured, tmp_path: Path
) -> None:
    """With its place in the run, and without its arguments; reading leaves no line."""
    configured()
    seen: list[list[Entry]] = []

    @clew.tool("refund")
    def refund(amount: int) -> None:
        seen.append(entries(tmp_path))

    with clew.run("desk") as run:
        with clew.tool("search", effect="read_only"):
            pass
        with clew.tool("pay", call_id="call-1", effect="idempotent_write", arguments="{}"):
            seen.append(entries(tmp_path))
        refund(7)
    assert [len(each) for each in seen] == [1, 2]
    first, second = entries(tmp_path)
    assert (first.kind, first.trace_id, first.seq) == ("tool", run.trace_id, 4)
    assert first.facts == {
        semconv.TOOL_NAME: "pay",
        semconv.TOOL_CALL_ID: "call-1",
        semconv.TOOL_EFFECT: "idempotent_write",
    }
    assert second.facts == {semconv.TOOL_NAME: "refund"}
    (file,) = (tmp_path / "journal-data" / FOLDER).iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


@pytest.mark.parametrize("way", ["block", "function", "coroutine", "async-block"])
async def test_what_cannot_be_written_down_does_not_happen(
    configured: Configured, tmp_path: Path, way: str
) -> None:
    """Every form of a tool call: the work is never begun, the error says why."""
    broken(tmp_path)
    exporter = configured()
    happened: list[str] = []

    @clew.tool("refund")
    def plain() -> None:
        happened.append("plain")

    @clew.tool("refund")
    async def coroutine() -> None:
        happened.append("coroutine")

    async def work() -> None:
        if way == "block":
            with clew.tool("refund", effect="non_idempotent_write"):
                happened.append("block")
        elif way == "async-block":
            async with clew.tool("refund", effect="non_idempotent_write"):
                happened.append("async-block")
        elif way == "function":
            plain()
        else:
            await coroutine()

    with clew.run("desk"), pytest.raises(AuditError, match="data folder"):
        await work()
    assert happened == []
    clew.shutdown()
    (span,) = exporter.by_name("execute_tool")
    assert (span.attributes or {})[semconv.TOOL_OUTCOME] == "denied"
    assert dict(_guard.failures) == {"write the journal": 1}


def test_best_effort_goes_on_and_counts(configured: Configured, tmp_path: Path) -> None:
    """The fault is logged once and counted; the work happens."""
    broken(tmp_path)
    configured("best_effort")
    happened: list[int] = []
    with clew.run("desk"):
        for number in range(3):
            with clew.tool("refund", effect="idempotent_write"):
                happened.append(number)
    assert happened == [0, 1, 2]
    assert dict(_guard.failures) == {"write the journal": 3}


def test_without_audit_there_is_no_journal(configured: Configured, tmp_path: Path) -> None:
    """Nothing is written, nobody is asked."""
    configured("off")
    with clew.run("desk"), clew.tool("refund", effect="idempotent_write"):
        pass
    assert not (tmp_path / "journal-data" / FOLDER).exists()


def test_enforced_decisions_are_in_the_journal(configured: Configured, tmp_path: Path) -> None:
    """Of gates and of the host's own code; what only observes is not."""
    configured(gates=(ToolGate({"refund": ToolRule(enabled=False)}),))
    with clew.run("desk"):
        with pytest.raises(PolicyDenied):
            clew.tool("refund", effect="idempotent_write").__enter__()
        clew.decide("own", "deny", reason="no", enforced=False)
        with clew.decide("own") as decision:
            decision.outcome = "deny"
    found = [
        (each.facts[semconv.DECISION_GATE], each.facts[semconv.DECISION_OUTCOME])
        for each in entries(tmp_path)
        if each.kind == "decision" and semconv.DECISION_GATE in each.facts
    ]
    assert [each.kind for each in entries(tmp_path)] == ["decision", "decision"]
    assert found == [("tool", "deny"), ("own", "deny")]


@pytest.mark.parametrize("way", ["sync", "async"])
async def test_a_model_call_whose_decision_cannot_be_written_down_is_not_sent(
    configured: Configured, tmp_path: Path, way: str
) -> None:
    """An allowing decision is enforced too: without its record the call does not happen."""
    from clew.gates.budget import BudgetGate, Limit

    broken(tmp_path)
    configured(gates=(BudgetGate(Limit(per="run", requests=5)),))
    with ScriptedProvider() as provider, clew.run("desk"):
        provider.add(Reply(text="hi"))
        url = f"{provider.base_url}/v1/chat/completions"
        if way == "sync":
            with httpx.Client() as client, pytest.raises(AuditError):
                client.post(url, json=BODY)  # noqa: ASYNC212 - the sync twin
        else:
            async with httpx.AsyncClient() as client:
                with pytest.raises(AuditError):
                    await client.post(url, json=BODY)
        assert provider.requests == []


def test_a_line_that_a_crash_cut_off_is_left_out(configured: Configured, tmp_path: Path) -> None:
    """The lines around it are read; further ones are appended behind it."""
    configured()
    with clew.run("desk"), clew.tool("refund", effect="idempotent_write"):
        pass
    (file,) = (tmp_path / "journal-data" / FOLDER).iterdir()
    with file.open("ab") as handle:
        handle.write(b'{"time_ns": 1, "kind": "to\n')
    with clew.run("desk"), clew.tool("refund", effect="idempotent_write"):
        pass
    assert len(entries(tmp_path)) == 2


def test_what_follows_a_line_that_was_cut_off_is_read(
    configured: Configured, tmp_path: Path
) -> None:
    """A full disk cuts off a line without its end: what another process adds is not lost with it."""
    configured()
    with clew.run("desk"), clew.tool("refund", effect="idempotent_write"):
        pass
    (file,) = (tmp_path / "journal-data" / FOLDER).iterdir()
    with file.open("ab") as handle:
        handle.write(b'{"time_ns":1,"kind":"tool","trace_id":"{\\"time_ns\\":')
    with clew.run("desk"), clew.tool("pay", effect="idempotent_write"):
        pass
    assert [each.facts[semconv.TOOL_NAME] for each in entries(tmp_path)] == ["refund", "pay"]


def test_several_processes_write_to_one_journal(tmp_path: Path) -> None:
    """No line comes into another."""
    program = textwrap.dedent(
        """
        import clew, sys
        from clew.settings import Settings
        from clew.testing import CaptureExporter
        settings = Settings.from_environment(audit="fail_closed", data_dir=sys.argv[1])
        clew.configure("x", settings=settings, span_exporters=[CaptureExporter()])
        with clew.run("desk"):
            for _ in range(50):
                with clew.tool("refund", effect="idempotent_write"):
                    pass
        """
    )
    folder = tmp_path / "journal-data"
    running = [subprocess.Popen([sys.executable, "-c", program, str(folder)]) for _ in range(4)]
    assert [each.wait(60) for each in running] == [0, 0, 0, 0]
    found = entries(tmp_path)
    by_run: dict[str, list[int | None]] = {}
    for each in found:
        by_run.setdefault(each.trace_id, []).append(each.seq)
    assert list(map(len, by_run.values())) == [50] * 4
    assert all(seqs == list(range(3, 53)) for seqs in by_run.values())


def test_what_a_killed_process_had_begun_is_on_the_disk(tmp_path: Path) -> None:
    """The write that was under way when the process was killed is in the journal."""
    program = textwrap.dedent(
        """
        import clew, sys, time
        from clew.settings import Settings
        settings = Settings.from_environment(audit="fail_closed", data_dir=sys.argv[1])
        clew.configure("x", settings=settings, span_exporters=[])
        with clew.run("desk"), clew.tool("refund", effect="idempotent_write"):
            print("begun", flush=True)
            time.sleep(60)
        """
    )
    child = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path / "journal-data")],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "begun\n"
    os.kill(child.pid, signal.SIGKILL)
    child.wait(10)
    child.stdout.close()
    (entry,) = entries(tmp_path)
    assert (entry.kind, entry.facts[semconv.TOOL_NAME]) == ("tool", "refund")
    assert abs(time.time_ns() - entry.time_ns) < 60 * 10**9
    # Nothing else is known of the run: `clew verify` has it from the journal.
    folder = tmp_path / "journal-data"
    Writer(store_path(folder)).close()
    done = verified(folder, "--since", "1h", "--json")
    (report,) = map(json.loads, done.stdout.splitlines())
    assert (done.returncode, report["status"]) == (3, "OPEN")
    assert report["run_id"].replace("-", "") == entry.trace_id
    assert report["reason"] == "no span of it is there; the journal has 1 tool call"
    (begun,) = report["begun"]
    assert (begun["name"], begun["span_id"], begun["seq"]) == ("refund", entry.span_id, entry.seq)
    assert f"no span {entry.span_id} (seq 3 of segment" in verified(folder, entry.trace_id).stdout


def verified(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run `clew verify` over a data folder."""
    return subprocess.run(
        [Path(sys.executable).with_name("clew"), "verify", *arguments],
        env={**os.environ, "CLEW_DATA_DIR": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_write_without_a_span_is_named(configured: Configured, tmp_path: Path) -> None:
    """Whatever the seal says: the run is not complete, and the write that has no span is named."""
    exporter = configured(seal_grace_s=0.0)
    with clew.run("desk") as run, clew.tool("refund", effect="idempotent_write"):
        pass
    clew.shutdown()
    folder = tmp_path / "journal-data"
    record = read_back(exporter.otlp_json(), tmp_path)
    found = by_run(read(folder))
    assert set(found) == {run.trace_id}
    whole = held_against(verify(record), record, found[run.trace_id])
    assert (whole.status, whole.begun) == ("COMPLETE", ())
    later = msgspec.structs.replace(found[run.trace_id][0], span_id="ab" * 8, seq=9)
    report = held_against(verify(record), record, [*found[run.trace_id], later])
    assert (report.status, report.open_since_ns) == ("OPEN", later.time_ns)
    assert report.reason == "the journal has 1 tool call of which there is no span"
    assert [(each.name, each.seq) for each in report.begun] == [("refund", 9)]


def test_a_write_that_the_seal_names_as_open_is_accounted_for(
    configured: Configured, tmp_path: Path
) -> None:
    """It had not ended when the segment was sealed: that is known, and it is named all the same."""
    exporter = configured(seal_grace_s=0.0)
    with clew.run("desk") as run:
        call = clew.tool("refund", effect="idempotent_write")
        call.__enter__()
    clew.shutdown()
    record = read_back(exporter.otlp_json(), tmp_path)
    report = held_against(
        verify(record), record, by_run(read(tmp_path / "journal-data"))[run.trace_id]
    )
    assert report.status == "COMPLETE"
    assert report.segments[0].never_ended == (3,)
    assert [(each.name, each.seq) for each in report.begun] == [("refund", 3)]


def test_a_run_that_was_sampled_out_or_erased_is_not_lost(
    configured: Configured, tmp_path: Path
) -> None:
    """Its entries are named, and the report says as before why there is no span."""
    configured()
    with clew.run("desk") as run, clew.tool("refund", effect="idempotent_write"):
        pass
    entries_of = by_run(read(tmp_path / "journal-data"))[run.trace_id]
    report = without_spans(absent(run.trace_id, 0.0), entries_of, lost=False)
    assert (report.status, len(report.begun)) == ("UNKNOWN", 1)
    assert report.reason == "no span of it is there: it was sampled out"
