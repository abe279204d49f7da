"""Approvals between processes: one suspends, the command line decides, another one resumes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from clew.cli import main

SERVICE = """
import json, sys
import clew
from clew.errors import ApprovalRequired, PolicyDenied
from clew.gates.approval import ApprovalGate
from clew.gates.approval_store import SqliteApprovals
from clew.settings import Settings
from clew.testing import CaptureExporter

exporter = CaptureExporter()
gates = (ApprovalGate({"refund"}, store=SqliteApprovals(), four_eyes=True),)
clew.configure("svc", settings=Settings.from_environment(gates=gates), span_exporters=[exporter])
reference = sys.argv[1] if len(sys.argv) > 1 else None
run = clew.resume(reference, actor="ann") if reference else clew.run("desk", actor="ann")
done = "nothing"
try:
    with run, clew.tool("refund", call_id="c1", arguments='{"euros": 64}'):
        done = "refund"
except (ApprovalRequired, PolicyDenied) as stopped:
    done = type(stopped).__name__
clew.shutdown()
print(json.dumps({"done": done, "run": run.run_id.hex, "spans": [
    {"name": s.name, "trace": f"{s.context.trace_id:032x}", **dict(s.attributes)}
    for s in exporter.spans]}))
"""


def service(tmp_path: Path, *arguments: str) -> Any:
    environment = {**os.environ, "CLEW_DATA_DIR": str(tmp_path / "data"), "CLEW_DIGEST_KEY": "k"}
    ended = subprocess.run(
        [sys.executable, "-c", SERVICE, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=environment,
    )
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


def command(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        main(("approvals", *arguments))
    out, err = capsys.readouterr()
    return int(ended.value.code or 0), out, err


def test_three_processes_and_one_trace(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One process suspends, the command line approves, another process resumes and executes."""
    first = service(tmp_path)
    assert first["done"] == "ApprovalRequired"
    code, out, _ = command(capsys, "list", "--json")
    (listed,) = json.loads(out)
    assert (code, listed["agent"], listed["calls"][0]["name"]) == (0, "desk", "refund")

    refused = command(capsys, "approve", listed["id"], "--as", "ann")
    assert (refused[0], refused[1]) == (1, "")
    assert refused[2].endswith(
        "cannot be decided so: four_eyes (the run acts for the same person, or nobody knows for "
        "whom: another one has to)\n"
    )
    assert command(capsys, "approve", listed["id"], "--as", "bob", "--digest", "0000")[0] == 1
    shown = listed["digest"][:12]
    code, out, err = command(capsys, "approve", listed["id"][:8], "--as", "bob", "--digest", shown)
    assert (code, err) == (0, "approved: refund\n")

    second = service(tmp_path, out.strip())
    assert (second["done"], second["run"]) == ("refund", first["run"])
    spans = first["spans"] + second["spans"]
    assert {span["trace"] for span in spans} == {first["run"]}
    runs = [span for span in spans if span["name"] == "invoke_agent desk"]
    assert [span["clew.run.status"] for span in runs] == ["waiting_for_approval", "completed"]
    assert [span["clew.segment"] for span in runs] == [1, 2]
    assert [span["clew.run.decisions"] for span in runs] == [1, 2]
    assert [span["clew.run.tool_calls"] for span in runs] == [1, 2]
    waits, passes = [span for span in spans if span["name"] == "decide approval"]
    assert (waits["clew.decision.outcome"], waits["clew.decision.executed"]) == (
        "require_approval",
        False,
    )
    assert (passes["clew.decision.by"], passes["clew.decision.executed"]) == (
        "second_person",
        True,
    )
    assert passes["clew.decision.wait_ms"] > 0
    assert runs[0]["clew.actor"] == runs[1]["clew.actor"] != passes["clew.actor"]
    assert command(capsys, "list")[1:] == ("", "nothing waits for an approval\n")


def test_a_denial_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`clew approvals deny` takes the same ways; the resumed run is denied."""
    service(tmp_path)
    code, out, _ = command(capsys, "list")
    assert (code, "refund" in out) == (0, True)
    approval_id = out.splitlines()[1].split()[0]
    code, out, _ = command(capsys, "deny", approval_id, "--as", "ann", "--json")
    decided = json.loads(out)
    assert (decided["status"], decided["attribution"]) == ("denied", "self")
    assert service(tmp_path, decided["reference"])["done"] == "PolicyDenied"
    assert command(capsys, "deny", approval_id, "--as", "ann")[0] == 1
