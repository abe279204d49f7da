"""`clew runs` and `clew show`: which runs there are, and one of them span by span."""

# ruff: noqa: SIM300 - expected == actual, in this order
from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
import sample_runs
from commands import RUN, Clew, fill

from clew.cli.output import clean
from clew.store.database import connect


def test_runs_are_listed(clew: Clew, data_dir: Path) -> None:
    """Through a pipe the table is plain text with whole ids; `--json` is the twin of the page."""
    start = sample_runs.START_NS
    runs = (sample_runs.triage(base_ns=start), sample_runs.failed(base_ns=start + 1))
    fill(data_dir, *runs)
    code, out, err = clew("runs")
    lines = out.splitlines()
    assert (0, "", 3) == (code, err, len(lines))
    assert [runs[1].run_id, runs[0].run_id] == [line.split()[0] for line in lines[1:]]
    assert "$0.0319" in lines[2]
    assert "no usage" in lines[1]
    assert "\x1b" not in out
    listed = json.loads(clew("runs", "--json")[1])
    assert [runs[1].run_id, runs[0].run_id] == [each["run_id"] for each in listed["runs"]]
    assert listed["runs"][1]["tokens"]["cache_read"] == 5200


def test_runs_are_filtered_and_paged(clew: Clew, data_dir: Path) -> None:
    """Filters narrow the list; the rest is offered on stderr, the cursor in JSON."""
    start = sample_runs.START_NS
    runs = [sample_runs.running(base_ns=start + each) for each in range(3)]
    fill(data_dir, *runs, sample_runs.foreign())
    first = json.loads(clew("runs", "--json", "--limit", "2")[1])
    second = json.loads(clew("runs", "--json", "--limit", "2", "--after", first["next"])[1])
    assert [each.run_id for each in reversed(runs)] == [
        each["run_id"] for each in first["runs"] + second["runs"]
    ]
    assert "--after" in clew("runs", "--limit", "2")[2]
    assert "no run matches\n" == clew("runs", "--status", "failed")[2]
    assert 4 == len(json.loads(clew("runs", "--json", "--everything")[1])["runs"])
    code, _, err = clew("runs", "--status", "fine")
    assert (1, True) == (code, "status must be one of" in err)


@pytest.mark.parametrize("form", ["dashed", "hex", "prefix", "upper"])
def test_a_run_is_shown_by_any_form_of_its_id(clew: Clew, data_dir: Path, form: str) -> None:
    """Every span is a line, in order, indented below its parent."""
    run = sample_runs.triage()
    fill(data_dir, run)
    reference = {
        "dashed": run.run_id, "hex": run.trace_id, "prefix": run.run_id[:10],
        "upper": run.run_id.upper(),
    }[form]  # fmt: skip
    code, out, err = clew("show", reference)
    assert (0, "") == (code, err)
    lines = out.split("\n\n")[1].splitlines()
    assert [each.name for each in run.spans] == [
        next(span.name for span in run.spans if line[17:].strip().startswith(span.name + " ")
             or line[17:].strip() == span.name) for line in lines
    ]  # fmt: skip
    assert [str(number) for number in range(1, len(lines) + 1)] == [
        each.split()[0] for each in lines
    ]
    assert "decide tool  deny  refund_payment · trust_zone" in out
    assert "9\u202f150 tokens (5\u202f200 cache read, 1\u202f024 cache write)" in out
    record = json.loads(clew("show", reference, "--json")[1])
    assert [each.span_id for each in run.spans] == [each["span_id"] for each in record["spans"]]


def test_missing_ambiguous_and_unreadable_are_three_errors(clew: Clew, data_dir: Path) -> None:
    """Each says what it is, and all leave stdout empty."""
    unreadable = clew("show", "aaaa")
    fill(
        data_dir,
        sample_runs.running("aaaa1111-0000-4000-8000-000000000001"),
        sample_runs.running("aaaa2222-0000-4000-8000-000000000002"),
    )
    missing = clew("show", "bbbb")
    ambiguous = clew("show", "aaaa")
    for (code, out, err), message in (
        (unreadable, "there is no store"),
        (missing, "there is no run 'bbbb'"),
        (ambiguous, "several runs begin with 'aaaa': aaaa1111-"),
    ):
        assert (1, "") == (code, out)
        assert message in err


@pytest.mark.parametrize("fault", ["newer", "not a database", "damaged"])
def test_an_unreadable_store_is_told(clew: Clew, data_dir: Path, fault: str) -> None:
    """Whatever is wrong with the file, the command says so in one sentence."""
    fill(data_dir, sample_runs.triage())
    path = data_dir / "clew.db"
    if fault == "newer":
        connection = connect(path)
        connection.execute("INSERT INTO migrations VALUES (999, 'future', 0)")
        connection.close()
    elif fault == "damaged":
        path.write_bytes(path.read_bytes()[:4096] + b"\xa5" * 40_000)
    else:
        path.write_text("hello" * 2000)
    for arguments in (("runs",), ("show", "a"), ("import", str(path))):
        code, out, err = clew(*arguments)
        assert (1, "", 1) == (code, out, err.count("\n"))
    assert fault in clew("runs")[2].replace("a newer", "newer")


def test_control_characters_do_not_reach_the_terminal(clew: Clew, data_dir: Path) -> None:
    """Names and values that could drive a terminal are shown harmlessly, in every form."""
    hostile = "\x1b]0;owned\x07\x1b[2J\u202e\r\nforged line\x9b31m"
    run = sample_runs.Sample(service=hostile)
    root = run.root(hostile, 0, 10)
    root.name = hostile
    run.tool(hostile, 1, 2, root, hostile)
    run.decide(hostile, hostile, 3, root, hostile, hostile)
    fill(data_dir, run)
    for arguments in (
        ("runs",),
        ("show", run.run_id),
        ("runs", "--json"),
        ("show", run.run_id, "--json"),
    ):
        out = clew(*arguments)[1]
        assert not set(out) & set("\x1b\x07\x9b\r\x00")
        if "--json" not in arguments:
            assert "\u202e" not in out
            assert not [line for line in out.splitlines() if line.startswith("forged")]
    assert "\\x1b[2J" == clean("\x1b[2J")


def test_a_terminal_gets_colour_and_a_tree(data_dir: Path) -> None:
    """On a terminal rich draws; the words are the same."""
    run = sample_runs.triage()
    fill(data_dir, run)
    for arguments, words in (
        (["runs"], [run.run_id[:8], "triage", "completed"]),
        (["show", run.run_id], [run.run_id, "├── ", "refund_payment", "✕ deny"]),
    ):
        shown = on_terminal(arguments)
        assert "\x1b[" in shown
        for word in words:
            assert word in shown


def on_terminal(arguments: list[str]) -> str:
    ours, theirs = pty.openpty()
    child = subprocess.Popen(
        [sys.executable, "-c", RUN, *arguments],
        stdout=theirs, stdin=theirs, stderr=theirs,
        env={**os.environ, "TERM": "xterm-256color", "COLUMNS": "140", "LINES": "50"},
    )  # fmt: skip
    os.close(theirs)
    collected = b""
    while True:
        try:
            piece = os.read(ours, 65536)
        except OSError:
            break
        if not piece:
            break
        collected += piece
    os.close(ours)
    assert 0 == child.wait(30)
    return collected.decode()
