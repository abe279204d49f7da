"""Books of budgets in a SQLite file: several processes share a day's or a month's limit.

    BudgetGate(Limit(per="everything", period="day", cost_usd=50), ledger=SqliteLedger())

A reservation is one transaction that no other process can come between (`BEGIN IMMEDIATE`), so
processes cannot overshoot together. Books survive a restart. What a process had reserved when it
died is given back: at once where it lived on the same machine (in the same container), and
otherwise after a while.

The file holds counts, and whose they are: ids of runs, actors, configurations and tenants as they
are. It is closed to other users.
"""

from __future__ import annotations

import contextlib
import os
import platform
import sqlite3
import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar, Final, NamedTuple

from clew.accounts import Amount, Entry
from clew.errors import StoreError
from clew.store.database import explained, transaction
from clew.store.paths import data_dir, prepare

FILE_NAME: Final = "budgets.db"
_VERSION: Final = 1
_BUSY_S: Final = 5.0
_KEPT_S: Final = 62 * 86_400
"""Accounts that nobody has booked on for two months belong to a time that is over."""
_TABLES: Final = """
CREATE TABLE accounts (
    key TEXT PRIMARY KEY,
    requests INTEGER NOT NULL, tokens INTEGER NOT NULL, cost_usd REAL NOT NULL,
    changed REAL NOT NULL
) STRICT;
CREATE INDEX accounts_changed ON accounts (changed);
CREATE TABLE reservations (
    ticket TEXT NOT NULL, key TEXT NOT NULL,
    requests INTEGER NOT NULL, tokens INTEGER NOT NULL, cost_usd REAL NOT NULL,
    place TEXT NOT NULL, pid INTEGER NOT NULL, born TEXT NOT NULL,
    expires REAL NOT NULL,
    PRIMARY KEY (ticket, key)
) STRICT;
CREATE INDEX reservations_of_account ON reservations (key)
"""
_left_by_fork: list[sqlite3.Connection] = []
"""Connections of a parent process: SQLite forbids a child to use or to close them."""


class _Process(NamedTuple):
    """A process, told from every other one that had or will have its number."""

    place: str
    pid: int
    born: str


class _Opened(NamedTuple):
    """The file as one process has it open."""

    pid: int
    inode: int
    connection: sqlite3.Connection


class SqliteLedger:
    """Books in a SQLite file, by default `budgets.db` in the data folder.

    Args:
        path: the file. It must be on a disk of this machine: SQLite's locks are not to be trusted
            on network file systems.
        lease_s: seconds after which a reservation is given back whose process cannot be looked
            for, because it ran in another container. Longer than the longest call.
        clock: returns the time in seconds since the epoch.

    Raises:
        StoreError: the file cannot be used; from each method.
    """

    waits: ClassVar[bool] = True

    def __init__(
        self,
        path: Path | None = None,
        *,
        lease_s: float = 1800,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.path = path or data_dir() / FILE_NAME
        self._lease_s = lease_s
        self._clock = clock
        self._opened: _Opened | None = None
        self._lock = threading.Lock()
        self._lock_pid = os.getpid()

    def __del__(self) -> None:
        opened: _Opened | None = getattr(self, "_opened", None)
        if opened is None:
            return
        if opened.pid == os.getpid():
            opened.connection.close()
        else:
            _left_by_fork.append(opened.connection)

    def reserve(self, ticket: str, entries: Sequence[Entry], planned: Amount) -> str | None:
        """Book `planned` on all accounts, or on none: then return the reason code."""
        with self._open() as connection:
            self._give_back(connection)
            for entry in entries:
                booked = _booked(connection, entry.key, entry.opening)
                reason = entry.limit.exceeded(booked, planned)
                if reason is not None:
                    return reason
            now = self._clock()
            me = _this_process()
            for entry in {one.key: one for one in entries}.values():
                connection.execute(
                    "INSERT INTO accounts VALUES (?, ?, ?, ?, ?)"
                    " ON CONFLICT (key) DO UPDATE SET changed = excluded.changed",
                    (entry.key, *_row(entry.opening), now),
                )
                connection.execute(
                    "INSERT INTO reservations VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                    (ticket, entry.key, *_row(planned), *me, now + self._lease_s),
                )
            connection.execute("DELETE FROM accounts WHERE changed < ?", (now - _KEPT_S,))
        return None

    def correct(self, ticket: str, entries: Sequence[Entry], planned: Amount, used: Amount) -> None:
        """Replace what was reserved by what was used, which counts in any case."""
        del planned  # the file knows what was reserved, and whether it still is
        if not entries:
            return
        with self._open() as connection:
            connection.execute("DELETE FROM reservations WHERE ticket = ?", (ticket,))
            for key in dict.fromkeys(entry.key for entry in entries):
                connection.execute(
                    "INSERT INTO accounts VALUES (?, ?, ?, ?, ?) ON CONFLICT (key) DO UPDATE SET"
                    " requests = requests + excluded.requests, tokens = tokens + excluded.tokens,"
                    " cost_usd = cost_usd + excluded.cost_usd, changed = excluded.changed",
                    (key, *_row(used), self._clock()),
                )

    def used(self, key: str) -> Amount:
        """Return what an account has used, reservations included."""
        with self._open() as connection:
            self._give_back(connection)
            return _booked(connection, key, Amount())

    def _give_back(self, connection: sqlite3.Connection) -> None:
        """Drop what dead processes had reserved."""
        place = _place()
        connection.execute(
            "DELETE FROM reservations WHERE (place != ? OR born = '') AND expires < ?",
            (place, self._clock()),
        )
        owners = connection.execute(
            "SELECT DISTINCT place, pid, born FROM reservations WHERE place = ?", (place,)
        ).fetchall()
        for owner in (_Process(*row) for row in owners):
            if owner.born != _born(owner.pid):
                connection.execute(
                    "DELETE FROM reservations WHERE place = ? AND pid = ? AND born = ?", owner
                )

    @contextmanager
    def _open(self) -> Generator[sqlite3.Connection]:
        """Give a connection inside a transaction that nobody else writes in."""
        if self._lock_pid != os.getpid():  # forked, perhaps while another thread held the lock
            self._lock, self._lock_pid = threading.Lock(), os.getpid()
        with self._lock, explained(self.path):
            connection = self._connection()
            with transaction(connection):
                yield connection

    def _connection(self) -> sqlite3.Connection:
        """Return the connection of this process; the caller holds the lock."""
        opened, pid = self._opened, os.getpid()
        if opened is not None:
            with contextlib.suppress(OSError):
                if (opened.pid, opened.inode) == (pid, self.path.stat().st_ino):
                    return opened.connection
            if opened.pid == pid:
                opened.connection.close()  # the file was taken away
            else:
                _left_by_fork.append(opened.connection)
            self._opened = None
        prepare(self.path)
        connection = sqlite3.connect(
            self.path, timeout=_BUSY_S, isolation_level=None, check_same_thread=False
        )
        try:
            _make(connection, self.path)
        except BaseException:
            connection.close()
            raise
        self._opened = _Opened(pid, self.path.stat().st_ino, connection)
        return connection


def _make(connection: sqlite3.Connection, path: Path) -> None:
    """Set a connection up, and the tables where there are none."""
    deadline = time.monotonic() + _BUSY_S
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            break
        except sqlite3.OperationalError:
            # SQLite does not wait here for others who do the same.
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)
    # With a write-ahead log this is safe when a process dies; a power cut may take the last calls
    # with it.
    connection.execute("PRAGMA synchronous = NORMAL")
    with transaction(connection):
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if version > _VERSION:
            raise StoreError(f"the budgets in {path} were written by a newer Clew")
        if version < _VERSION:
            for statement in _TABLES.split(";"):
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {_VERSION}")


def _row(amount: Amount) -> tuple[int, int, float]:
    return amount.requests, amount.tokens, amount.cost_usd


def _booked(connection: sqlite3.Connection, key: str, opening: Amount) -> Amount:
    found = connection.execute(
        "SELECT requests, tokens, cost_usd FROM accounts WHERE key = ?", (key,)
    ).fetchone()
    reserved = connection.execute(
        "SELECT total(requests), total(tokens), total(cost_usd) FROM reservations WHERE key = ?",
        (key,),
    ).fetchone()
    account = opening if found is None else _amount(*found)
    return account.plus(_amount(*reserved))


def _amount(requests: float, tokens: float, cost_usd: float) -> Amount:
    return Amount(requests=int(requests), tokens=int(tokens), cost_usd=cost_usd)


def _this_process() -> _Process:
    pid = os.getpid()
    return _Process(_place(), pid, _born(pid) or "")


def _place() -> str:
    """Return where process numbers mean the same: the machine, and the container on it."""
    try:
        return f"{platform.node()} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return platform.node()


def _born(pid: int) -> str | None:
    """Return when a process of this machine began, as far as that is known; None: it is dead.

    https://man7.org/linux/man-pages/man5/proc_pid_stat.5.html: `starttime` is field 22, and the
    name before it may hold anything, parentheses too; a zombie (`Z`) has let go of everything.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()
        return None if fields[0] in {"Z", "X"} else fields[19]
    except (OSError, IndexError):
        pass
    if os.name != "posix":
        return ""  # asking would end it there
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except OSError:
        return ""  # it is somebody else's
    return ""
