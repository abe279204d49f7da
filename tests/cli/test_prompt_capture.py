"""`clew prompt capture` and `sweep`: whether calls are recorded, and how long they are kept."""

# ruff: noqa: SIM300 - expected == actual, in this order
from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
from commands import Clew
from prompt_rows import DAY, digits, record, row
from recorded_calls import save

from clew.recording import switch

# --- capture --------------------------------------------------------------------------------------


def test_recording_is_switched_on_and_off(prompt: Clew, data_dir: Path) -> None:
    """For the whole folder; the days stay where none are given."""
    code, out, err = prompt("capture", "on", "--retain", "30")
    assert (0, "recording is on; records are kept for 30 days\n") == (code, out)
    assert "there is no content: services need CLEW_CAPTURE=redacted or full" in err
    assert switch.Switch(enabled=True, retention_days=30) == switch.read(data_dir)
    assert "recording is off; records are kept for 30 days\n" == prompt("capture", "off")[1]
    assert switch.Switch(enabled=False, retention_days=30) == switch.read(data_dir)
    assert "recording is off; records are kept for 30 days\n" == prompt("capture")[1]


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        *((word, True) for word in ("on", "true", "enable", "ON")),
        *((word, False) for word in ("off", "false", "disable")),
    ],
)
def test_words_for_on_and_off(prompt: Clew, data_dir: Path, word: str, expected: bool) -> None:
    """Three each."""
    switch.write(data_dir, enabled=not expected)
    assert 0 == prompt("capture", word)[0]
    assert expected == switch.read(data_dir).enabled


@pytest.mark.parametrize("word", ["maybe", "1", "yes", ""])
def test_any_other_word_is_an_error(prompt: Clew, data_dir: Path, word: str) -> None:
    """And changes nothing."""
    code, out, err = prompt("capture", word)
    assert (2, "") == (code, out)
    assert "say on or off" in err
    assert not switch.path_of(data_dir).exists()


@pytest.mark.parametrize("days", ["0", "-1"])
def test_days_that_are_none_leave_what_holds(prompt: Clew, data_dir: Path, days: str) -> None:
    """Never for ever."""
    switch.write(data_dir, enabled=True, retention_days=14)
    assert 0 == prompt("capture", "on", "--retain", days)[0]
    assert 14 == switch.read(data_dir).retention_days


def test_settings_that_force_it_are_said(
    prompt: Clew, data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The switch is set, and the answer is what holds."""
    monkeypatch.setenv("CLEW_PROMPT_CAPTURE", "off")
    _, out, err = prompt("capture", "on")
    assert "recording is off" in out
    assert "the settings of this environment force it off" in err
    assert switch.read(data_dir).enabled
    monkeypatch.setenv("CLEW_PROMPT_RETENTION_DAYS", "3")
    _, out, _ = prompt("capture", "--json")
    assert {
        "capture_enabled": False,
        "forced": True,
        "level": "metadata",
        "retention_days": 3,
        "max_bytes": 1024**3,
    } == json.loads(out)


# --- sweep ----------------------------------------------------------------------------------------


def test_a_sweep_says_what_it_removed(prompt: Clew, data_dir: Path) -> None:
    """Or would remove; as text and as JSON."""
    now = time.time_ns()
    old, young = row(1, start_ns=now - 9 * DAY), row(2, start_ns=now)
    save(data_dir, (old, record(old)), (young, record(young)))
    size = (next((data_dir / "prompts").glob(f"*/{digits(1)}.json"))).stat().st_size
    kept = (next((data_dir / "prompts").glob(f"*/{digits(2)}.json"))).stat().st_size
    lines = [
        f"would remove 1 rows and 1 payloads ({size} bytes)",
        "       1  older than 7 days",
        f"    kept  1 rows, {kept} bytes",
    ]
    assert (0, "\n".join(lines) + "\n", "") == prompt("sweep", "--dry-run")
    _, out, _ = prompt("sweep", "--json")
    found = json.loads(out)
    assert (False, 1, 1, 1) == tuple(
        found[key] for key in ("dry_run", "rows", "files", "kept_rows")
    )
    assert "removed 0 rows" in prompt("sweep")[1]
    _, out, _ = prompt("sweep", "--max-bytes", "0")
    assert "       1  beyond 0 bytes\n" in out
    assert 2 == prompt("sweep", "--keep-days", "0")[0]


def test_the_server_sweeps_whether_or_not_anything_is_recorded(
    prompt: Clew, data_dir: Path, tmp_path: Path
) -> None:
    """At start, with recording off; it stops with the server."""
    now = time.time_ns()
    old, young = row(1, start_ns=now - 90 * DAY), row(2, start_ns=now)
    save(data_dir, (old, record(old)), (young, record(young)))
    log = tmp_path / "log"
    with log.open("wb") as out:
        server = subprocess.Popen(
            [sys.executable, "-c", "from clew.cli import main; main()", "serve", "--port", "0"],
            stdout=out,
            stderr=out,
        )
        try:
            for _ in range(300):
                if len(list(data_dir.glob("prompts/*/*.json"))) == 1:
                    break
                time.sleep(0.05)
        finally:
            server.terminate()
            assert 0 == server.wait(20), log.read_text()
    listed = json.loads(prompt("list", "--json")[1])["requests"]
    assert [digits(2)] == [each["request_id"] for each in listed]
