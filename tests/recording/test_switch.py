"""The switch of an installation, and the thread that sweeps."""

# ruff: noqa: SIM300 - expected == actual, in this order
from __future__ import annotations

import json
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from prompt_rows import DAY, record, row
from recorded import Start, Wire, send
from recorder_kit import own_threads
from wires import CHAT_ANSWER

import clew
from clew.errors import StoreError
from clew.recording import starting, switch
from clew.recording.sweeper import Sweeper, retention_of
from clew.recording.switch import Switch
from clew.settings import Settings
from clew.store.prompt_index import RecordStore
from clew.store.retention import Retention

URL = "https://api.openai.com/v1/chat/completions"
BODY = {"model": "gpt-4o-mini", "messages": [{"role": "user", "content": "hi"}]}


def until(done: Callable[[], object], seconds: float = 10) -> None:
    """Wait for something, boundedly."""
    end = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < end, "that did not happen in time"
        time.sleep(0.01)


def test_it_is_off_until_somebody_says_so(tmp_path: Path) -> None:
    """No file: off, and 7 days."""
    assert Switch(enabled=False, retention_days=7) == switch.read(tmp_path)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    """The days stay where none are given, or none that are above 0."""
    folder = tmp_path / "new"
    assert Switch(enabled=True, retention_days=30) == switch.write(
        folder, enabled=True, retention_days=30
    )
    for days in (None, 0, -1):
        switch.write(folder, enabled=False, retention_days=days)
        assert Switch(enabled=False, retention_days=30) == switch.read(folder)
    path = switch.path_of(folder)
    assert 0o600 == stat.S_IMODE(path.stat().st_mode)
    assert ["prompt-capture.json"] == [each.name for each in folder.iterdir()]
    assert {"enabled": False, "retention_days": 30} == json.loads(path.read_text())


@pytest.mark.parametrize("text", ["", "{", "[]", "7", '"on"', "\xff", "null"])
def test_a_damaged_switch_is_off_and_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, text: str
) -> None:
    """What cannot be read is no reason to record; writing mends it."""
    switch.path_of(tmp_path).write_text(text, "latin-1")
    assert Switch() == switch.read(tmp_path)
    assert 1 == sum("is damaged: recording is off" in message for message in caplog.messages)
    assert switch.write(tmp_path, enabled=True).enabled
    assert switch.read(tmp_path).enabled


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"enabled": "yes"}', Switch()),
        ('{"enabled": 1}', Switch()),
        ('{"enabled": true}', Switch(enabled=True)),
        ('{"enabled": true, "retention_days": 0}', Switch(enabled=True)),
        ('{"enabled": true, "retention_days": "30"}', Switch(enabled=True)),
        ('{"enabled": true, "retention_days": true}', Switch(enabled=True)),
        ('{"enabled": true, "retention_days": 14, "more": 1}',
         Switch(enabled=True, retention_days=14)),
    ],
)  # fmt: skip
def test_only_true_is_on_and_only_days_are_days(
    tmp_path: Path, text: str, expected: Switch
) -> None:
    """Anything else is off, or 7 days: never for ever."""
    switch.path_of(tmp_path).write_text(text)
    assert expected == switch.read(tmp_path)


def test_an_unreadable_switch_is_off_and_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A folder in its place cannot be read as a file."""
    switch.path_of(tmp_path).mkdir()
    assert Switch() == switch.read(tmp_path)
    assert 1 == sum("cannot be read" in message for message in caplog.messages)
    with pytest.raises(StoreError, match="cannot be written: Is a directory"):
        switch.write(tmp_path, enabled=True)


def test_a_running_process_is_switched(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """On and off again, without a restart; calls in between are recorded, others are not."""
    monkeypatch.setattr(starting, "LOOK_S", 0.02)
    session = start(prompt_capture=None)
    runtime = session.runtime
    send(URL, Wire(CHAT_ANSWER), json={**BODY, "user": "before"})
    switch.write(session.folder, enabled=True)
    until(lambda: runtime.recorder is not None)
    send(URL, Wire(CHAT_ANSWER), json={**BODY, "user": "during"})
    assert 1 == len(session.rows())
    switch.write(session.folder, enabled=False)
    until(lambda: runtime.recorder is None)
    send(URL, Wire(CHAT_ANSWER), json={**BODY, "user": "after"})
    assert ["during"] == [(each.parameters or {})["user"] for each in session.records()]
    switch.write(session.folder, enabled=True)
    until(lambda: runtime.recorder is not None)
    send(URL, Wire(CHAT_ANSWER), json={**BODY, "user": "again"})
    assert ["during", "again"] == [(each.parameters or {})["user"] for each in session.records()]


def test_settings_win_over_the_switch(start: Start) -> None:
    """Forced off stays off, whatever the switch says."""
    settings = {"prompt_capture": False}
    folder = Path(clew.Settings.from_environment().data_dir)
    switch.write(folder, enabled=True)
    session = start(**settings)
    send(URL, Wire(CHAT_ANSWER), json=BODY)
    assert [] == session.rows()


def test_the_switch_holds_for_every_process_of_the_folder(start: Start) -> None:
    """Another process, started while it is on, records into the same folder."""
    session = start(prompt_capture=None)
    switch.write(session.folder, enabled=True)
    program = (
        "import clew, httpx\n"
        "clew.configure(span_exporters=[])\n"
        "clew.instrument()\n"
        "answer = lambda request: httpx.Response(200, json={'choices': []})\n"
        "client = httpx.Client(transport=httpx.MockTransport(answer))\n"
        f"client.post({URL!r}, json={BODY!r})\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
    (row_,) = session.rows()
    assert "metadata" == row_.level


# --- sweeping -----------------------------------------------------------------------------------


def old_records(folder: Path, *ages: int) -> None:
    store = RecordStore(folder)
    for number, age in enumerate(ages, 1):
        one = row(number, start_ns=time.time_ns() - age * DAY)
        store.save([(one, record(one))])
    store.close()


def test_the_first_sweep_is_at_start(tmp_path: Path) -> None:
    """A process that restarts more often than every six hours sweeps all the same."""
    old_records(tmp_path, 3, 0)
    sweeper = Sweeper(tmp_path, lambda: Retention(keep_days=1))
    sweeper.start()
    sweeper.start()
    until(lambda: sweeper.sweeps == 1)
    assert sweeper.stop(5)
    assert sweeper.last is not None
    assert (1, 1) == (sweeper.last.rows, sweeper.last.kept_rows)


def test_it_sweeps_again_and_asks_how_long_to_keep(tmp_path: Path) -> None:
    """A changed retention holds from the next sweep on."""
    old_records(tmp_path, 3, 10)
    days = iter([30, 5, 2])
    sweeper = Sweeper(tmp_path, lambda: Retention(keep_days=next(days, 2)), interval=0.01)
    sweeper.start()
    until(lambda: sweeper.last is not None and sweeper.last.kept_rows == 0)
    assert sweeper.stop(5)
    assert sweeper.sweeps >= 3


def test_a_sweep_that_fails_is_not_the_last(tmp_path: Path) -> None:
    """What goes wrong is counted and logged once."""
    from clew import _guard

    def broken() -> Retention:
        raise OSError

    sweeper = Sweeper(tmp_path, broken, interval=0.01)
    sweeper.start()
    until(lambda: sweeper.sweeps >= 2)
    assert sweeper.stop(5)
    assert _guard.failures["sweep the records"] >= 2
    _guard.forget()


def test_a_sweeper_that_never_started_stops(tmp_path: Path) -> None:
    """Stopping is always possible."""
    assert Sweeper(tmp_path, Retention).stop(1)


def test_recording_sweeps_at_start_and_stops_with_the_process(start: Start) -> None:
    """Old records go when a recording process starts; no thread is left after shutdown."""
    before = own_threads()
    folder = Path(clew.Settings.from_environment().data_dir)
    old_records(folder, 40, 1)
    session = start()
    until(lambda: len(session.rows()) == 1)
    clew.shutdown()
    assert own_threads() - before == set()


def test_a_process_that_writes_too_much_sweeps_at_once(start: Start) -> None:
    """The bound on the size does not wait for six hours."""
    session = start(prompt_max_bytes=6000)
    body = {**BODY, "user": "x" * 1000}
    for _ in range(10):
        send(URL, Wire(CHAT_ANSWER), json=body)
        session.rows()

    def size() -> int:
        files = session.folder.glob("prompts/*/*.json")
        return sum(each.stat().st_size for each in files)

    until(lambda: size() <= 6000)
    assert 1 <= len(session.rows()) < 10


def test_retention_comes_from_the_settings_or_the_switch(tmp_path: Path) -> None:
    """What the settings force wins; else what the switch says; else 7 days."""
    plain = Settings(data_dir=tmp_path, prompt_max_bytes=5)
    assert Retention(keep_days=7, max_bytes=5) == retention_of(plain)
    switch.write(tmp_path, enabled=False, retention_days=14)
    assert Retention(keep_days=14, max_bytes=5) == retention_of(plain)
    forced = Settings(data_dir=tmp_path, prompt_retention_days=3)
    assert 3 == retention_of(forced).keep_days
