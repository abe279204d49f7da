"""Bringing a store's schema up to date: the steps of `clew.store.schema` that it lacks.

All steps that a file lacks run in one transaction, each with its own record in the table
`migrations`. A file with a step that is not in this list was written by a newer Clew, and refused.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from contextlib import closing
from pathlib import Path
from typing import Final

from clew.errors import StoreError
from clew.store.database import APPLICATION_ID, explained, transaction
from clew.store.schema import MIGRATIONS

_RECORDS: Final = """
    CREATE TABLE migrations (
        number INTEGER PRIMARY KEY,
        name TEXT NOT NULL,
        applied_ns INTEGER NOT NULL
    )
"""


def migrate(connection: sqlite3.Connection, path: Path) -> None:
    """Bring the schema up to date. Of a store that has one already, a copy is kept (`copy_of`).

    Raises:
        StoreError: the file is newer than this program, is somebody else's database, or there is
            no room for the copy; then nothing was changed.
    """
    first = pending(connection, path)
    if first is None:
        return
    if first > 1:
        _keep_copy(connection, path, first - 1)
    # In one transaction: who opens the file meanwhile sees all steps or none. Another process may
    # have been faster while this one waited.
    with explained(path), transaction(connection):
        while (number := pending(connection, path)) is not None:
            _apply(connection, number)


def copy_of(path: Path, schema: int) -> Path:
    """Return where the copy of a store lies that was made before its schema was changed."""
    return path.with_name(f"{path.name}.schema-{schema}")


def _keep_copy(connection: sqlite3.Connection, path: Path, schema: int) -> None:
    kept = copy_of(path, schema)
    if kept.exists():
        return
    beside = kept.with_name(f"{kept.name}.{os.getpid()}-{threading.get_ident()}.tmp")
    try:
        os.close(os.open(beside, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        with closing(sqlite3.connect(beside)) as copy:
            connection.backup(copy)
            found = copy.execute("SELECT max(number) FROM migrations").fetchone()[0]
        if found == schema:
            beside.rename(kept)
        else:  # another process was faster, and has kept one
            beside.unlink()
    except (OSError, sqlite3.Error) as error:
        beside.unlink(missing_ok=True)
        raise StoreError(
            f"the store {path} has an older schema ({schema}), and no copy of it can be kept at "
            f"{kept} before it is changed: {type(error).__name__}. Free space, or make one there"
        ) from None


def pending(connection: sqlite3.Connection, path: Path) -> int | None:
    """Return the number of the next step to take, None when there is none.

    Raises:
        StoreError: the file is newer than this program, or is somebody else's database.
    """
    with explained(path):
        owner = connection.execute("PRAGMA application_id").fetchone()[0]
        tables = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]
        if owner != APPLICATION_ID:
            if owner or tables:
                raise StoreError(f"the store {path} is a database of another program")
            return 1
        applied = connection.execute("SELECT max(number) FROM migrations").fetchone()[0]
    if applied > len(MIGRATIONS):
        raise StoreError(
            f"the store {path} was written by a newer Clew (schema {applied}, this one knows "
            f"{len(MIGRATIONS)}): update Clew, or choose another folder with CLEW_DATA_DIR"
        )
    return applied + 1 if applied < len(MIGRATIONS) else None


def _apply(connection: sqlite3.Connection, number: int) -> None:
    if number == 1:
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(_RECORDS)
    migration = MIGRATIONS[number - 1]
    for statement in migration.statements:
        connection.execute(statement)
    connection.execute(
        "INSERT INTO migrations (number, name, applied_ns) VALUES (?, ?, ?)",
        (number, migration.name, time.time_ns()),
    )
