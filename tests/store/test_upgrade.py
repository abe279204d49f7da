"""Stores of every earlier schema open, are brought up to date, and a copy of each is kept."""

from __future__ import annotations

import hashlib
import json
import sqlite3
import stat
from contextlib import closing
from pathlib import Path

import pytest
import sample_messages
import sample_runs

from clew import semconv
from clew.errors import StoreError
from clew.rule_data import to_data
from clew.store import migrations
from clew.store.database import APPLICATION_ID, connect
from clew.store.migrations import MIGRATIONS, copy_of
from clew.store.reader import Reader
from clew.store.writer import Writer

CONTRACT = Path(__file__).parent / "contract.json"
STEPS = (
    "57afd83f77609095",
    "cb015bb42ee88c36",
    "3266a58e5e32adaa",
    "4f4130b291a29995",
    "7c880400e69b40f9",
    "8449b56893a489cd",
)
"""What each step was when it was released; a new one is added here at the end."""


def old_store(folder: Path, schema: int) -> tuple[Path, sample_runs.Sample]:
    """Return a store as a Clew of that schema wrote it, with a run in it."""
    run = sample_runs.triage()
    full = folder / "full.db"
    writer = Writer(full)
    writer.write(sample_messages.spans_of(run))
    writer.close()
    path = folder / "data" / "clew.db"
    path.parent.mkdir(mode=0o700)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute(migrations._RECORDS)
        for number, step in enumerate(MIGRATIONS[:schema], 1):
            for statement in step.statements:
                connection.execute(statement)
            connection.execute(
                "INSERT INTO migrations VALUES (?, ?, ?)", (number, step.name, number)
            )
        connection.execute("ATTACH ? AS newer", (str(full),))
        for table in ("resources", "scopes", "spans", "runs"):
            columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
            listed = ", ".join(columns)
            connection.execute(
                f"INSERT INTO {table} ({listed}) SELECT {listed} FROM newer.{table}"  # noqa: S608
            )
        connection.commit()
    return path, run


@pytest.mark.parametrize("schema", range(1, len(MIGRATIONS)))
def test_a_store_of_an_earlier_schema(schema: int, tmp_path: Path) -> None:
    """Its runs are read as they were, and it takes new ones; the copy is as it was before."""
    path, run = old_store(tmp_path, schema)
    with pytest.raises(StoreError, match="older Clew"):
        Reader(path)
    writer = Writer(path)
    newer = sample_runs.triage()
    writer.write(sample_messages.spans_of(newer))
    writer.close()
    reader = Reader(path)
    for each in (run, newer):
        record = reader.run(each.trace_id)
        assert record is not None
        assert len(record.spans) == len(sample_runs.triage().spans)
    reader.close()
    kept = copy_of(path, schema)
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    with closing(sqlite3.connect(kept)) as copy:
        assert copy.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert copy.execute("SELECT max(number) FROM migrations").fetchone() == (schema,)
        assert copy.execute("SELECT count(*) FROM runs").fetchone() == (1,)


def test_a_new_store_has_no_copy(tmp_path: Path) -> None:
    """Neither has one that is up to date."""
    path = tmp_path / "data" / "clew.db"
    for _ in range(2):
        Writer(path).close()
    assert not list(path.parent.glob("*.schema-*"))


def test_without_a_copy_nothing_is_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The store is refused, with what to do, and is as it was."""
    path, _ = old_store(tmp_path, 1)
    blocked = copy_of(path, 1).with_name("no folder") / "copy"
    monkeypatch.setattr(migrations, "copy_of", lambda *_: blocked)
    with pytest.raises(StoreError, match="no copy of it can be kept"):
        Writer(path)
    with closing(connect(path, read_only=True)) as connection:
        assert connection.execute("SELECT max(number) FROM migrations").fetchone() == (1,)


def test_released_steps_stay_as_they_are() -> None:
    """A step that was changed would leave stores in the field behind."""
    found = [
        hashlib.sha256("\0".join(" ".join(each.split()) for each in step.statements).encode())
        for step in MIGRATIONS
    ]
    assert tuple(each.hexdigest()[:16] for each in found)[: len(STEPS)] == STEPS


def test_the_attribute_contract_keeps_its_word() -> None:
    """No name that readers know disappears or changes its rule within a version of the contract.

    A new name is free; taking one away, or another rule, needs a new `CONTRACT_VERSION`, and then a
    new file (`python tests/store/test_upgrade.py`).
    """
    written = json.loads(CONTRACT.read_text())
    assert written["version"] == semconv.CONTRACT_VERSION
    now = {key: to_data(rule) for key, rule in semconv.RULES.items()}
    changed = {key for key, rule in written["attributes"].items() if now.get(key) != rule}
    assert changed == set()


def write_contract() -> None:
    """Write the contract of today."""
    now = {key: to_data(rule) for key, rule in sorted(semconv.RULES.items())}
    document = {"version": semconv.CONTRACT_VERSION, "attributes": now}
    CONTRACT.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    write_contract()
