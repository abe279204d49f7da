"""`clew import`: spans from files, into a store."""

# ruff: noqa: SIM300 - expected == actual, in this order
from __future__ import annotations

import json
from pathlib import Path

import pytest
import sample_messages
import sample_runs
from commands import Clew, fill


def test_a_file_is_imported_once(clew: Clew, data_dir: Path, tmp_path: Path) -> None:
    """Spans are stored; a second time they are known; the ids of the runs are the output."""
    runs = [sample_runs.triage(), sample_runs.suspended()]
    file = tmp_path / "runs.jsonl"
    file.write_bytes(b"\n".join(sample_messages.otlp_json(run) for run in runs))
    spans = sum(len(run.spans) for run in runs)
    code, out, err = clew("import", str(file))
    assert (0, [run.run_id for run in runs]) == (code, out.split())
    assert f"stored {spans} spans of 2 traces" in err
    again = json.loads(clew("import", str(file), "--json")[1])
    assert {
        "stored": 0, "identical_copies": spans, "conflicting_copies": 0, "rejected": 0,
        "runs": [run.run_id for run in runs],
    } == again  # fmt: skip


def test_what_show_exports_can_be_imported(
    clew: Clew, data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`clew show --otlp` writes one document that loses nothing on its way into another store."""
    run = sample_runs.suspended()
    fill(data_dir, run)
    file = tmp_path / "run.json"
    file.write_text(clew("show", run.run_id, "--otlp")[1])
    before = clew("show", run.run_id, "--json")[1]
    assert {"resourceSpans"} == set(json.loads(file.read_text()))
    assert before == clew("show", run.run_id, "--json", "--source", str(file))[1]
    monkeypatch.setenv("CLEW_DATA_DIR", str(tmp_path / "other"))
    assert 0 == clew("import", str(file))[0]
    assert before == clew("show", run.run_id, "--json")[1]


def test_a_broken_line_keeps_what_came_before(clew: Clew, data_dir: Path, tmp_path: Path) -> None:
    """The line is named, and the spans before it are stored."""
    run = sample_runs.triage()
    file = tmp_path / "runs.jsonl"
    file.write_bytes(
        sample_messages.otlp_json(run) + b"\nbroken\n" + sample_messages.otlp_json(run)
    )
    code, out, err = clew("import", str(file))
    assert (1, "") == (code, out)
    assert "line 2" in err
    assert f"({len(run.spans)} spans before it are stored)" in err
    assert 0 == clew("show", run.run_id)[0]


@pytest.mark.parametrize("content", [b"", b"hello", b'{"resourceSpans": 1}', b"\x00\xff" * 50])
def test_a_file_that_is_no_otlp_leaves_nothing(
    clew: Clew, data_dir: Path, tmp_path: Path, content: bytes
) -> None:
    """A bad file is one sentence, and no store is made for it."""
    file = tmp_path / "bad.json"
    file.write_bytes(content)
    code, out, err = clew("import", str(file))
    assert (1, "", 1) == (code, out, err.count("\n"))
    assert not data_dir.exists()
    assert 1 == clew("import", str(tmp_path / "missing"))[0]
