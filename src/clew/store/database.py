"""Opening the SQLite file, and saying in Clew's words what is wrong with it."""

from __future__ import annotations

import sqlite3
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec

from clew.errors import StoreError

APPLICATION_ID: Final = 0x636C6577
"""Marks an SQLite file as a store of Clew (`clew` in ASCII)."""
_BUSY_S: Final = 5.0
_DAMAGED: Final = "is damaged: keep a copy and start with a new file"


def connect(path: Path, *, read_only: bool = False, busy_s: float = _BUSY_S) -> sqlite3.Connection:
    """Open a connection without implicit transactions; the caller closes it.

    Raises:
        StoreError: the file is missing, not a database, or not to be opened.
    """
    if read_only and not path.is_file():
        raise StoreError(f"there is no store at {path}: `clew serve` or `clew import` makes one")
    mode = "ro" if read_only else "rw"
    with explained(path):
        connection = sqlite3.connect(
            f"{path.absolute().as_uri()}?mode={mode}",
            uri=True,
            timeout=busy_s,
            isolation_level=None,
            check_same_thread=False,
        )
        try:
            _prepare(connection, read_only=read_only)
        except BaseException:
            connection.close()
            raise
    return connection


def _prepare(connection: sqlite3.Connection, *, read_only: bool) -> None:
    if read_only:
        connection.execute("PRAGMA query_only = 1")
    else:
        connection.execute("PRAGMA journal_mode = WAL")
        # What was acknowledged survives a power cut, at one fsync for each transaction.
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA journal_size_limit = 67108864")
    connection.execute("PRAGMA cache_size = -16384")
    connection.execute("PRAGMA temp_store = MEMORY")
    # Reads the header: a file that is no database is noticed here, not at the first query.
    connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()


@contextmanager
def explained(path: Path) -> Generator[None]:
    """Turn the errors of SQLite inside the block into a `StoreError` that says what to do."""
    try:
        yield
    except sqlite3.Error as error:
        raise explain(error, path) from error
    except msgspec.MsgspecError as error:  # a column that is not the JSON that was written
        raise StoreError(f"the store {path} {_DAMAGED}") from error


def explain(error: sqlite3.Error, path: Path) -> StoreError:
    """Say what an error of SQLite means for the store at `path`.

    https://www.sqlite.org/rescode.html
    """
    name = getattr(error, "sqlite_errorname", None) or type(error).__name__
    match name.split("_")[1] if name.startswith("SQLITE_") else name:
        case "FULL":
            problem = "is full: free space on its disk, or move it with CLEW_DATA_DIR"
        case "BUSY" | "LOCKED":
            problem = "is locked by another program that is writing to it"
        case "CORRUPT":
            problem = _DAMAGED
        case "NOTADB":
            problem = "is not a database of Clew"
        case "CANTOPEN" | "PERM" | "AUTH":
            problem = "cannot be opened: check that you may read its file and its folder"
        case "READONLY":
            problem = "cannot be written: check the permissions of its file and its folder"
        case "IOERR":
            problem = "cannot be read or written: its disk reports an error"
        case _:
            problem = f"cannot be used ({name})"
    return StoreError(f"the store {path} {problem}")


@contextmanager
def transaction(connection: sqlite3.Connection) -> Generator[None]:
    """Write all of the block or nothing; waits for other writers before it begins."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


class Claim:
    """The right of one process to serve a store; it ends with the process, whatever happens.

    Raises:
        StoreError: another process has it.
    """

    def __init__(self, path: Path) -> None:
        lock = path.with_name(path.name + ".lock")
        try:
            lock.touch(mode=0o600)
        except OSError as error:
            raise StoreError(f"the store {path} cannot be served: {error.strerror}") from None
        self._connection = sqlite3.connect(
            lock, timeout=0, isolation_level=None, check_same_thread=False
        )
        try:
            self._connection.execute("BEGIN EXCLUSIVE")
        except sqlite3.Error:
            self._connection.close()
            raise StoreError(
                f"the store {path} is already served by another `clew serve`: "
                "stop that one, or give this one a folder of its own with --data-dir"
            ) from None

    def release(self) -> None:
        """Give the right back."""
        self._connection.close()
