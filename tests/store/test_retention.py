"""Retention: by age, by size, both ways reconciled, and nothing else is touched."""

# ruff: noqa: SIM300 - expected == actual, in this order
from __future__ import annotations

import os
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prompt_rows import DAY, SECOND, START_NS, digits, record, row

from clew.errors import ClewError, ConfigurationError, StoreError
from clew.store import payloads
from clew.store.database import connect
from clew.store.erasure import HOLDS, Holds, set_hold
from clew.store.migrations import MIGRATIONS, migrate
from clew.store.prompt_index import PromptReader, RecordStore
from clew.store.prompt_records import EVERYTHING, PromptFilter
from clew.store.records import Page
from clew.store.retention import GRACE_S, Retention, Swept, sweep

ARABIC = "".join(chr(0x660 + int(digit)) if digit != "-" else digit for digit in "2020-01-01")
MIDNIGHT = START_NS + 14 * 3600 * SECOND
"""2026-12-02T00:00:00Z: the end of the first day."""


def save(store: RecordStore, *times: int, start: int = 1) -> int:
    """Save a record with a payload for each start time; return the size of the last payload."""
    size = 0
    for number, start_ns in enumerate(times, start):
        one = row(number, start_ns=start_ns)
        size = store.save([(one, record(one))])
    return size


def left(folder: Path) -> tuple[list[int], list[int]]:
    """Return the numbers of the rows and of the files that are there."""
    reader = PromptReader(folder)
    rows = reader.records(PromptFilter(), Page(), EVERYTHING).records
    reader.close()
    files = [int(each.stem, 16) for each in (folder / "prompts").glob("*/*.json")]
    return sorted(int(each.request_id, 16) for each in rows), sorted(files)


def test_rows_and_payloads_of_a_day_go_together(store: RecordStore, folder: Path) -> None:
    """A day goes as a whole: neither a row nor a file of it outlives the other."""
    size = save(store, MIDNIGHT - 1, MIDNIGHT, MIDNIGHT + DAY)
    swept = sweep(folder, Retention(keep_days=1), now_ns=MIDNIGHT + DAY + 5)
    assert Swept(rows=1, files=1, by_age=1, kept_rows=2, kept_files=2,
                 bytes=swept.bytes, kept_bytes=swept.kept_bytes) == swept  # fmt: skip
    assert size == swept.bytes
    assert ([2, 3], [2, 3]) == left(folder)
    assert ["2026-12-02", "2026-12-03"] == sorted(
        each.name for each in (folder / "prompts").iterdir()
    )


@given(
    start=st.integers(0, 30 * DAY).map(lambda offset: START_NS + offset),
    now=st.integers(0, 60 * DAY).map(lambda offset: START_NS + offset),
    days=st.integers(1, 40),
)
def test_a_record_is_kept_for_the_days_that_were_promised(start: int, now: int, days: int) -> None:
    """Never less than that many times 24 hours, and never two days more."""
    from clew.store.retention import _planned, _Row

    rows = [_Row(digits(1), start, None)]
    planned = _planned(Path(), Retention(keep_days=days), now, rows, [], Holds())
    age = now - start
    if planned.rows:
        assert age > days * DAY
    else:
        assert age < (days + 1) * DAY


def test_rows_without_payload_go_by_age_too(store: RecordStore, folder: Path) -> None:
    """The number of rows is returned, though there is no payload folder at all."""
    store.save([(row(1), None), (row(2, start_ns=MIDNIGHT), None)])
    assert not (folder / "prompts").exists()
    swept = sweep(folder, Retention(keep_days=1), now_ns=MIDNIGHT + DAY)
    assert (1, 0, 1, 1) == (swept.rows, swept.files, swept.by_age, swept.kept_rows)
    assert ([2], []) == left(folder)


def test_the_oldest_go_where_all_are_too_large(store: RecordStore, folder: Path) -> None:
    """Down to the bound, oldest first, and no further; rows without payload stay."""
    size = save(store, *(START_NS + n for n in range(5)))
    store.save([(row(9, start_ns=START_NS - 1), None)])
    swept = sweep(folder, Retention(max_bytes=3 * size + 1), now_ns=START_NS + SECOND)
    assert (2, 2, 2 * size, 2) == (swept.rows, swept.files, swept.bytes, swept.by_size)
    assert 3 * size == swept.kept_bytes
    assert ([3, 4, 5, 9], [3, 4, 5]) == left(folder)
    assert 0 == sweep(folder, Retention(max_bytes=3 * size), now_ns=START_NS + SECOND).rows


def test_a_row_whose_file_is_gone_goes(store: RecordStore, folder: Path) -> None:
    """And a file that no row names, once nobody can be about to write the row."""
    save(store, START_NS, START_NS + 1, START_NS + 2)
    day = folder / "prompts" / "2026-12-01"
    (day / f"{digits(1)}.json").unlink()
    connection = connect(store.path)
    connection.execute("DELETE FROM prompt_requests WHERE request_id = ?", (digits(2),))
    connection.close()
    young = sweep(folder, Retention(keep_days=40_000))
    assert (1, 0, 1, 0) == (young.rows, young.files, young.without_file, young.without_row)
    assert ([3], [2, 3]) == left(folder)
    old = time.time() - GRACE_S - 60
    os.utime(day / f"{digits(2)}.json", (old, old))
    swept = sweep(folder, Retention(keep_days=40_000))
    assert (0, 1, 1) == (swept.rows, swept.files, swept.without_row)
    assert ([3], [3]) == left(folder)


def test_what_was_left_of_a_broken_write_goes(store: RecordStore, folder: Path) -> None:
    """A file that was never renamed into its place goes after the same grace."""
    save(store, START_NS)
    unfinished = folder / "prompts" / "2026-12-01" / f"{digits(7)}.json.4711.tmp"
    unfinished.write_text("{")
    assert 0 == sweep(folder, Retention(keep_days=40_000)).files
    old = time.time() - GRACE_S - 60
    os.utime(unfinished, (old, old))
    assert 1 == sweep(folder, Retention(keep_days=40_000)).files
    assert ([1], [1]) == left(folder)
    assert not unfinished.exists()


def test_only_names_that_are_dates_are_touched(store: RecordStore, folder: Path) -> None:
    """Whatever else lies there stays, names that only look like dates included."""
    save(store, START_NS)
    others = [
        "prompts/notes.txt",
        "prompts/2026-13-45/x.json",
        f"prompts/2025-02-30/{digits(1)}.json",
        f"prompts/2020-1-1/{digits(1)}.json",
        f"prompts/20200101/{digits(1)}.json",
        f"prompts/2020-01-01-old/{digits(1)}.json",
        f"prompts/{ARABIC}/{digits(1)}.json",
        "prompts/2020-01-01/README",
        f"prompts/2020-01-01/{'A' * 32}.json",
        f"prompts/2020-01-01/{digits(1)}.json.bak",
        f"2020-01-01/{digits(1)}.json",
    ]
    for name in others:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("mine")
    swept = sweep(folder, Retention(keep_days=1, max_bytes=0), now_ns=START_NS + 400 * DAY)
    assert (1, 1) == (swept.rows, swept.files)
    assert [] == [name for name in others if not (folder / name).exists()]


@pytest.mark.skipif(not hasattr(os, "symlink"), reason="this system has no links")
def test_links_are_not_followed(store: RecordStore, folder: Path, tmp_path: Path) -> None:
    """A day that is a link to a folder elsewhere, and a payload that is a link, stay."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / f"{digits(1)}.json").write_text("mine")
    (folder / "prompts").mkdir()
    (folder / "prompts" / "2020-01-01").symlink_to(elsewhere)
    (folder / "prompts" / "2020-01-02").mkdir()
    (folder / "prompts" / "2020-01-02" / f"{digits(2)}.json").symlink_to(elsewhere / "x")
    swept = sweep(folder, Retention(keep_days=1), now_ns=START_NS)
    assert (0, 0) == (swept.rows, swept.files)
    assert (elsewhere / f"{digits(1)}.json").exists()
    assert (folder / "prompts" / "2020-01-02" / f"{digits(2)}.json").is_symlink()


def test_a_dry_run_counts_and_removes_nothing(store: RecordStore, folder: Path) -> None:
    """It says what the sweep would do, exactly."""
    save(store, START_NS, MIDNIGHT, MIDNIGHT + 1)
    now = MIDNIGHT + DAY
    said = sweep(folder, Retention(keep_days=1, max_bytes=1), now_ns=now, dry_run=True)
    assert ([1, 2, 3], [1, 2, 3]) == left(folder)
    assert (3, 3, 1, 2) == (said.rows, said.files, said.by_age, said.by_size)
    assert said == sweep(folder, Retention(keep_days=1, max_bytes=1), now_ns=now)
    assert ([], []) == left(folder)


def test_an_empty_folder_is_swept(folder: Path) -> None:
    """No store, no payloads: nothing to do, and nothing is made."""
    assert Swept() == sweep(folder, Retention())
    assert not folder.exists()


def test_files_without_a_store_are_swept(folder: Path) -> None:
    """Payloads whose index was lost go by their day."""
    old = row(1, start_ns=START_NS)
    payloads.write(folder, record(old))
    swept = sweep(folder, Retention(keep_days=1), now_ns=START_NS + 3 * DAY)
    assert (0, 1, 1) == (swept.rows, swept.files, swept.by_age)
    assert [] == list((folder / "prompts").iterdir())


def test_a_dry_run_leaves_an_old_store_as_it_is(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store without the table has no rows; a real sweep brings it up to date."""
    folder.mkdir()
    path = folder / "clew.db"
    path.touch()
    connection = connect(path)
    with monkeypatch.context() as patch:
        patch.setattr("clew.store.migrations.MIGRATIONS", MIGRATIONS[:1])
        migrate(connection, path)
    before = connection.execute("SELECT count(*) FROM migrations").fetchone()
    assert 0 == sweep(folder, Retention(), dry_run=True).kept_rows
    assert before == connection.execute("SELECT count(*) FROM migrations").fetchone()
    connection.close()
    assert 0 == sweep(folder, Retention()).kept_rows


def test_a_sweep_can_be_stopped(store: RecordStore, folder: Path) -> None:
    """It ends early, says so, and the next one goes on."""
    save(store, START_NS, START_NS + 1)
    now = START_NS + 9 * DAY
    swept = sweep(folder, Retention(), now_ns=now, stop=lambda: True)
    assert (0, 0, False) == (swept.rows, swept.files, swept.complete)
    asked = iter([False, True])
    half = sweep(folder, Retention(), now_ns=now, stop=lambda: next(asked))
    assert (2, 0, False) == (half.rows, half.files, half.complete)
    rest = sweep(folder, Retention(), now_ns=now)
    assert (0, 2, True) == (rest.rows, rest.files, rest.complete)


def test_a_store_that_is_none_is_an_error(folder: Path) -> None:
    """A file that is no database is not taken for an empty one: nothing is removed."""
    payloads.write(folder, record())
    (folder / "clew.db").write_bytes(b"not a database" * 100)
    with pytest.raises(StoreError, match="is not a database"):
        sweep(folder, Retention(keep_days=1), now_ns=START_NS + 90 * DAY)
    assert 1 == len(list((folder / "prompts").glob("*/*.json")))


@pytest.mark.parametrize(("days", "size"), [(0, 1), (-1, 1), (1, -1)])
def test_a_retention_that_keeps_nothing_is_refused(days: int, size: int) -> None:
    """At least a day."""
    with pytest.raises(ConfigurationError, match="at least 1 day"):
        Retention(keep_days=days, max_bytes=size)


def test_a_retention_longer_than_time_keeps_all(store: RecordStore, folder: Path) -> None:
    """Days beyond the calendar are no error."""
    save(store, START_NS)
    assert 0 == sweep(folder, Retention(keep_days=10**9), now_ns=START_NS).rows


@pytest.mark.skipif(os.geteuid() == 0, reason="root may remove everything")
def test_a_file_that_cannot_be_removed_is_counted(store: RecordStore, folder: Path) -> None:
    """The others go."""
    save(store, START_NS, START_NS - DAY)
    day = folder / "prompts" / "2026-12-01"
    day.chmod(0o500)
    swept = sweep(folder, Retention(keep_days=1), now_ns=START_NS + 9 * DAY)
    day.chmod(0o700)
    assert (2, 1, 1) == (swept.rows, swept.files, swept.failed)


def test_records_of_today_survive_a_sweep_of_today(store: RecordStore, folder: Path) -> None:
    """With the shortest retention there is, what was just written stays."""
    now = time.time_ns()
    save(store, now)
    day = datetime.fromtimestamp(now // SECOND, UTC).date()
    assert 0 == sweep(folder, Retention(keep_days=1)).rows
    assert [day.isoformat()] == [each.name for each in (folder / "prompts").iterdir()]


RUN = "6fa459ea-ee8a-4ca4-894e-db77e160355e"


def test_what_is_under_a_legal_hold_stays(store: RecordStore, folder: Path) -> None:
    """Runs and tenants: neither age nor size nor a lost half takes them, until they are released."""
    given = ({"run_id": RUN}, {"tenant": "held"}, {}, {"run_id": RUN}, {"tenant": "held"})
    for number, more in enumerate(given, 1):
        one = row(number, **more)
        store.save([(one, record(one))])
    day = folder / "prompts" / "2026-12-01"
    (day / f"{digits(4)}.json").unlink()
    connection = connect(store.path)
    connection.execute("DELETE FROM prompt_requests WHERE request_id = ?", (digits(5),))
    connection.close()
    for hold in ({"run_id": RUN}, {"tenant": "held"}):
        set_hold(folder, "hold", reason="case", by="ann", **hold)
    now = START_NS + 90 * DAY
    swept = sweep(folder, Retention(keep_days=1), now_ns=now)
    assert (1, 1, 4) == (swept.rows, swept.files, swept.held)
    small = sweep(folder, Retention(keep_days=1000, max_bytes=0), now_ns=START_NS + DAY)
    assert (0, 0) == (small.rows, small.files)
    assert ([1, 2, 4], [1, 2, 5]) == left(folder)
    for hold in ({"run_id": RUN}, {"tenant": "held"}):
        set_hold(folder, "release", reason="over", by="ann", **hold)
    swept = sweep(folder, Retention(keep_days=1), now_ns=now)
    assert (3, 3, 0) == (swept.rows, swept.files, swept.held)
    assert ([], []) == left(folder)


def test_holds_that_cannot_be_read_keep_everything(store: RecordStore, folder: Path) -> None:
    """Nothing is removed while it is not known what must stay."""
    save(store, START_NS)
    (folder / HOLDS).write_text("{")
    with pytest.raises(ClewError, match=r"holds.jsonl, line 1"):
        sweep(folder, Retention(keep_days=1), now_ns=START_NS + 90 * DAY)
    assert ([1], [1]) == left(folder)
