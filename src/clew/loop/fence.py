"""The write fence: a tool that writes is executed only after that was put down durably.

A run is leased to one process at a time, and every write is noted before it is made. So a second
process that resumes the same run does not write again, and a write of which nobody knows whether it
happened (the process died in the middle) is refused instead of repeated.
"""

from __future__ import annotations

import secrets
import sqlite3
import threading
import time
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final, Protocol

from msgspec import Struct

from clew.errors import ClewError, StoreError
from clew.store.paths import data_dir, prepare

LEASE_S: Final = 900.0
FILE_NAME: Final = "writes.db"
_BUSY_S: Final = 10.0
_UNFINISHED: Final = "begun"


class FenceRefusedError(ClewError):
    """A write may not be made.

    Attributes:
        reason: `lease_lost` (another process has the run), `already_executed`, or
            `outcome_unknown` (it was begun before and never finished, and is not idempotent).
    """

    def __init__(self, reason: str) -> None:
        super().__init__(f"the write fence refuses this: {reason}")
        self.reason = reason


class Write(Struct, frozen=True, kw_only=True):
    """One execution of a tool that writes."""

    run_id: str
    round: int
    place: int
    """Which of the round's tool calls it is, from 0."""
    tool: str
    effect: str

    @property
    def key(self) -> str:
        """What makes it the same write: where in its run the tool was asked for."""
        return f"{self.round}.{self.place}.{self.tool}"


class Fence(Protocol):
    """Keeps writes from being made twice, or by two processes."""

    def enter(self, run_id: str) -> str:
        """Lease a run; return the lease.

        Raises:
            FenceRefusedError: another process has it.
        """
        ...

    def before(self, lease: str, write: Write) -> None:
        """Put down that a write is about to be made.

        Raises:
            FenceRefusedError: it may not be.
            StoreError: it cannot be put down.
        """
        ...

    def after(self, lease: str, write: Write) -> None:
        """Put down that a write was made (or failed by itself)."""
        ...

    def leave(self, lease: str, run_id: str) -> None:
        """Give the lease back."""
        ...


class SqliteFence:
    """A fence in a SQLite file, by default `writes.db` in the data folder.

    Args:
        path: the file.
        lease_s: seconds after which a lease is taken over by the next process that asks.
        clock: returns the seconds since the epoch.
    """

    def __init__(
        self,
        path: Path | None = None,
        *,
        lease_s: float = LEASE_S,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.path = path or data_dir() / FILE_NAME
        self._lease_s = lease_s
        self._clock = clock
        self._lock = threading.Lock()

    def enter(self, run_id: str) -> str:
        """Lease a run."""
        lease = secrets.token_hex(16)
        with self._open() as connection:
            now = self._clock()
            row = connection.execute(
                "SELECT expires FROM leases WHERE run_id = ?", (run_id,)
            ).fetchone()
            if row is not None and row[0] > now:
                raise FenceRefusedError("lease_lost")
            connection.execute(
                "INSERT OR REPLACE INTO leases (run_id, lease, expires) VALUES (?, ?, ?)",
                (run_id, lease, now + self._lease_s),
            )
        return lease

    def before(self, lease: str, write: Write) -> None:
        """Put down that a write is about to be made; the lease begins anew."""
        with self._open() as connection:
            now = self._clock()
            changed = connection.execute(
                "UPDATE leases SET expires = ? WHERE run_id = ? AND lease = ?",
                (now + self._lease_s, write.run_id, lease),
            )
            if changed.rowcount != 1:
                raise FenceRefusedError("lease_lost")
            row = connection.execute(
                "SELECT state FROM writes WHERE run_id = ? AND write = ?",
                (write.run_id, write.key),
            ).fetchone()
            if row is not None:
                if row[0] != _UNFINISHED:
                    raise FenceRefusedError("already_executed")
                if write.effect != "idempotent_write":
                    raise FenceRefusedError("outcome_unknown")
            connection.execute(
                "INSERT OR REPLACE INTO writes (run_id, write, tool, effect, state, begun)"
                " VALUES (?, ?, ?, ?, ?, ?)",
                (write.run_id, write.key, write.tool, write.effect, _UNFINISHED, now),
            )

    def after(self, lease: str, write: Write) -> None:
        """Put down that a write was made."""
        with self._open() as connection:
            connection.execute(
                "UPDATE writes SET state = 'done' WHERE run_id = ? AND write = ?",
                (write.run_id, write.key),
            )

    def leave(self, lease: str, run_id: str) -> None:
        """Give the lease back."""
        with self._open() as connection:
            connection.execute("DELETE FROM leases WHERE run_id = ? AND lease = ?", (run_id, lease))

    @contextmanager
    def _open(self) -> Generator[sqlite3.Connection]:
        """Give a connection inside a transaction that nobody else writes in, durable at its end."""
        try:
            prepare(self.path)
            with (
                self._lock,
                closing(
                    sqlite3.connect(self.path, timeout=_BUSY_S, isolation_level=None)
                ) as connection,
            ):
                connection.execute("PRAGMA synchronous = FULL")
                connection.execute("BEGIN IMMEDIATE")
                connection.execute(
                    "CREATE TABLE IF NOT EXISTS leases (run_id TEXT PRIMARY KEY,"
                    " lease TEXT NOT NULL, expires REAL NOT NULL) STRICT"
                )
                connection.execute(
                    "CREATE TABLE IF NOT EXISTS writes (run_id TEXT NOT NULL, write TEXT NOT NULL,"
                    " tool TEXT NOT NULL, effect TEXT NOT NULL, state TEXT NOT NULL,"
                    " begun REAL NOT NULL, PRIMARY KEY (run_id, write)) STRICT"
                )
                yield connection
                connection.execute("COMMIT")
        except sqlite3.Error as error:
            kind = type(error).__name__
            raise StoreError(f"the write fence in {self.path} cannot be used: {kind}") from None
