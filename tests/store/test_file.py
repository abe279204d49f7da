"""The file of the store: who may read it, how it is brought up to date, what goes wrong with it."""

# ruff: noqa: SIM300 - expected == actual, in this order
from __future__ import annotations

import os
import sqlite3
import stat
import threading
from pathlib import Path

import pytest
import sample_runs
from msgspec.structs import replace
from sample_messages import spans_of

from clew.errors import StoreError
from clew.store import paths
from clew.store.database import Claim, connect
from clew.store.migrations import MIGRATIONS
from clew.store.reader import Reader
from clew.store.records import Page, RunFilter
from clew.store.summary import fold
from clew.store.writer import Writer, WriteResult


def test_the_file_is_closed_to_others(writer: Writer) -> None:
    """The folder is made with 0700; the database and its side files have 0600."""
    writer.write(spans_of(sample_runs.running()))
    assert 0o700 == stat.S_IMODE(writer.path.parent.stat().st_mode)
    modes = {each.name: stat.S_IMODE(each.stat().st_mode) for each in writer.path.parent.iterdir()}
    assert {"clew.db": 0o600, "clew.db-wal": 0o600, "clew.db-shm": 0o600} == modes


def test_the_data_folder_follows_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """`CLEW_DATA_DIR` wins over `XDG_DATA_HOME`, which wins over the home folder."""
    monkeypatch.setenv("HOME", "/home/someone")
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    monkeypatch.delenv("CLEW_DATA_DIR", raising=False)
    assert Path("/home/someone/.local/share/clew/clew.db") == paths.store_path()
    monkeypatch.setenv("XDG_DATA_HOME", "/data")
    assert Path("/data/clew/clew.db") == paths.store_path()
    monkeypatch.setenv("CLEW_DATA_DIR", "/elsewhere")
    assert Path("/elsewhere/clew.db") == paths.store_path()


def test_a_new_file_has_every_migration_recorded(writer: Writer) -> None:
    """The list in the code and the table in the file agree; opening again adds nothing."""
    Writer(writer.path).close()
    connection = connect(writer.path, read_only=True)
    rows = connection.execute("SELECT number, name FROM migrations ORDER BY number").fetchall()
    connection.close()
    assert [(number, each.name) for number, each in enumerate(MIGRATIONS, 1)] == rows


def test_a_migration_that_fails_leaves_nothing_behind(
    store_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step and its record are one transaction: half a step is never in the file."""
    broken = (MIGRATIONS[0]._replace(statements=(*MIGRATIONS[0].statements, "NONSENSE")),)
    monkeypatch.setattr("clew.store.migrations.MIGRATIONS", broken)
    with pytest.raises(StoreError):
        Writer(store_file)
    connection = connect(store_file, read_only=True)
    assert [] == connection.execute("SELECT name FROM sqlite_schema").fetchall()
    connection.close()
    monkeypatch.undo()
    Writer(store_file).close()


def test_a_later_migration_runs_on_an_old_file(
    store_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file of today is brought up to date by a program that knows one step more."""
    first = Writer(store_file)
    run = sample_runs.running()
    first.write(spans_of(run))
    first.close()
    step = MIGRATIONS[0]._replace(name="more", statements=("ALTER TABLE runs ADD COLUMN more",))
    monkeypatch.setattr("clew.store.migrations.MIGRATIONS", (*MIGRATIONS, step))
    with pytest.raises(StoreError, match="older Clew"):
        Reader(store_file)
    Writer(store_file).close()
    reader = Reader(store_file)
    assert reader.run(run.trace_id) is not None
    reader.close()


def test_a_newer_store_is_refused(writer: Writer) -> None:
    """A file with an unknown migration is neither read nor written."""
    connection = connect(writer.path)
    connection.execute("INSERT INTO migrations VALUES (999, 'future', 0)")
    connection.close()
    for opening in (Reader, Writer):
        with pytest.raises(StoreError, match="newer Clew"):
            opening(writer.path)


def test_somebody_else_s_database_is_left_alone(store_file: Path) -> None:
    """An SQLite file of another program is refused, not changed."""
    store_file.parent.mkdir()
    connection = sqlite3.connect(store_file)
    connection.execute("CREATE TABLE accounts (id)")
    connection.close()
    for opening in (Reader, Writer):
        with pytest.raises(StoreError, match="another program"):
            opening(store_file)


def test_a_file_that_is_no_database_is_refused(store_file: Path) -> None:
    """Arbitrary bytes are a clear error and stay as they are."""
    store_file.parent.mkdir()
    store_file.write_bytes(b"hello " * 1000)
    for opening in (Reader, Writer):
        with pytest.raises(StoreError, match="not a database"):
            opening(store_file)
    assert b"hello " * 1000 == store_file.read_bytes()


def test_a_damaged_file_is_a_clear_error(store_file: Path) -> None:
    """Pages overwritten with garbage are noticed and named as damage."""
    writer = Writer(store_file)
    for _ in range(40):
        writer.write(spans_of(sample_runs.triage()))
    trace_id = spans_of(sample_runs.triage())[0].trace_id
    writer.close()
    content = bytearray(store_file.read_bytes())
    # The schema is in the first page: opening works, reading and writing find the damage.
    content[4096:] = b"\xa5" * (len(content) - 4096)
    store_file.write_bytes(content)
    with pytest.raises(StoreError, match="damaged"):
        Reader(store_file).run(trace_id)
    with pytest.raises(StoreError, match="damaged"):
        Writer(store_file).write(spans_of(sample_runs.triage()))


def test_a_missing_store_says_how_to_make_one(store_file: Path) -> None:
    """Reading where nothing is stored names the commands that store something."""
    with pytest.raises(StoreError, match="clew serve"):
        Reader(store_file)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_may_not_be_written_is_a_clear_error(tmp_path: Path) -> None:
    """Missing permissions are named as such."""
    tmp_path.chmod(0o500)
    with pytest.raises(StoreError, match="cannot be written"):
        Writer(tmp_path / "data" / "clew.db")
    tmp_path.chmod(0o700)


def test_a_folder_that_is_a_file_is_a_clear_error(tmp_path: Path) -> None:
    """A path that cannot be a folder is named as such."""
    (tmp_path / "data").write_text("")
    with pytest.raises(StoreError, match="cannot be written"):
        Writer(tmp_path / "data" / "clew.db")


def test_a_full_store_refuses_and_keeps_what_it_has(store_file: Path) -> None:
    """When there is no room left, a message is refused whole and the rest stays readable."""
    writer = Writer(store_file, max_bytes=200_000)
    stored = []
    with pytest.raises(StoreError, match="is full"):  # noqa: PT012 - at some point
        for _ in range(100):
            run = sample_runs.triage()
            writer.write(spans_of(run))
            stored.append(run.trace_id)
    reader = Reader(store_file)
    assert stored
    for trace_id in stored:
        record = reader.run(trace_id)
        assert record is not None
        assert len(sample_runs.triage().spans) == len(record.spans)
    assert len(stored) == len(reader.runs(RunFilter(), Page(limit=1000)).runs)
    reader.close()
    writer.close()


def test_a_locked_store_refuses_and_recovers(writer: Writer, reader: Reader) -> None:
    """While another program writes, a message is refused in time; afterwards it is stored."""
    run = sample_runs.running()
    other = connect(writer.path)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreError, match="is locked"):
        writer.write(spans_of(run))
    assert reader.run(run.trace_id) is None
    other.execute("ROLLBACK")
    other.close()
    assert WriteResult(stored=2) == writer.write(spans_of(run))


def test_one_bad_message_does_not_take_others_with_it(writer: Writer, reader: Reader) -> None:
    """Messages that are written together fail or succeed each for itself."""
    good = sample_runs.running()
    bad = replace(spans_of(sample_runs.running())[0], kind=2**70)
    blocker = connect(writer.path)
    blocker.execute("BEGIN IMMEDIATE")
    futures = [
        writer.submit(each) for each in (spans_of(sample_runs.running()), (bad,), spans_of(good))
    ]
    blocker.execute("ROLLBACK")
    blocker.close()
    assert [False, True, False] == [each.exception(10) is not None for each in futures]
    assert reader.run(good.trace_id) is not None


def test_a_queue_that_is_full_refuses(store_file: Path) -> None:
    """A writer that cannot keep up says so at once instead of holding everything in memory."""
    writer = Writer(store_file, waiting=1, busy_s=5)
    blocker = connect(store_file)
    blocker.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreError, match="cannot keep up"):  # noqa: PT012 - at some point
        for _ in range(5):
            writer.submit(spans_of(sample_runs.running()))
    blocker.execute("ROLLBACK")
    blocker.close()
    writer.close()


def test_closing_stores_what_is_waiting(store_file: Path) -> None:
    """A message that was accepted is on disk once the writer is closed; later ones are refused."""
    writer = Writer(store_file)
    runs = [sample_runs.running() for _ in range(20)]
    futures = [writer.submit(spans_of(run)) for run in runs]
    writer.close()
    writer.close()
    assert [WriteResult(stored=2)] * 20 == [each.result(0) for each in futures]
    with pytest.raises(StoreError, match="is closed"):
        writer.submit(())


def test_many_threads_read_while_one_writes(writer: Writer, reader: Reader) -> None:
    """Readers see whole messages only, whatever is written meanwhile."""
    run = sample_runs.triage()
    sizes: set[int] = set()
    faults: list[BaseException] = []

    def read() -> None:
        try:
            for _ in range(30):
                record = reader.run(run.trace_id)
                sizes.add(len(record.spans) if record else 0)
                assert record is None or record.summary.spans == len(record.spans)
        except BaseException as error:
            faults.append(error)

    threads = [threading.Thread(target=read) for _ in range(12)]
    for thread in threads:
        thread.start()
    spans = spans_of(run)
    writer.write(spans[:10])
    writer.write(spans[10:])
    for thread in threads:
        thread.join()
    assert [] == faults
    assert sizes <= {0, 10, len(spans)}


def test_two_writers_share_one_file(writer: Writer, reader: Reader) -> None:
    """Two programs that store spans of one run lose nothing and count right."""
    run = sample_runs.triage()
    spans = spans_of(run)
    other = Writer(writer.path)
    for number, span in enumerate(spans):
        (writer if number % 2 else other).write((span,))
    other.close()
    record = reader.run(run.trace_id)
    assert record is not None
    assert fold(spans, run.trace_id) == record.summary


def test_a_store_is_served_once(writer: Writer) -> None:
    """The right to serve a store is given once at a time, and can be given back."""
    claim = Claim(writer.path)
    with pytest.raises(StoreError, match="already served"):
        Claim(writer.path)
    claim.release()
    Claim(writer.path).release()
