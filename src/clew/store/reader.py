"""Queries, each on a read-only connection of its own from a small pool."""

from __future__ import annotations

import queue
import sqlite3
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import msgspec

from clew.errors import StoreError
from clew.store.database import connect, explained
from clew.store.migrations import pending
from clew.store.records import (
    Page,
    Resource,
    RunFilter,
    RunPage,
    RunRecord,
    Scope,
    SpanRecord,
    cursor,
    span_order,
)
from clew.store.rows import SELECT, from_row
from clew.store.summary import RunFold

_FOLD: Final = msgspec.json.Decoder(RunFold)
_SPAN: Final = msgspec.json.Decoder(SpanRecord)
_RESOURCE: Final = msgspec.json.Decoder(Resource)
_SCOPE: Final = msgspec.json.Decoder(Scope)


class Reader:
    """Reads a store; safe to use from several threads, beside any writer.

    Args:
        path: the file; it must be there.
        connections: how many threads may read at the same time; others wait.

    Raises:
        StoreError: there is no store, it cannot be read, or it is newer than this program.
    """

    def __init__(self, path: Path, *, connections: int = 8) -> None:
        self.path = path
        self._free: queue.LifoQueue[sqlite3.Connection | None] = queue.LifoQueue()
        self._lock = threading.Lock()
        self._resources: dict[int, Resource] = {}
        self._scopes: dict[int, Scope] = {}
        first = connect(path, read_only=True)
        try:
            _check(first, path)
        except BaseException:
            first.close()
            raise
        for _ in range(connections - 1):
            self._free.put(None)  # opened when it is needed
        self._free.put(first)
        self._connections = connections

    def close(self) -> None:
        """Close the connections, waiting for those in use."""
        for _ in range(self._connections):
            connection = self._free.get()
            if connection is not None:
                connection.close()
        self._connections = 0

    def runs(self, wanted: RunFilter, page: Page) -> RunPage:
        """Return one page of runs, newest first."""
        where, values = _conditions(wanted)
        position = page.position()
        if position is not None:
            where.append("(start_ns, trace_id) < (?, ?)")
            values += [position[0], bytes.fromhex(position[1])]
        sql = (
            f"SELECT fold FROM runs WHERE {' AND '.join(where) or '1'} "  # noqa: S608 - our own words
            "ORDER BY start_ns DESC, trace_id DESC LIMIT ?"
        )
        with self._connection() as connection:
            rows = connection.execute(sql, (*values, page.limit + 1)).fetchall()
            found = tuple(_FOLD.decode(row[0]).summary() for row in rows[: page.limit])
        return RunPage(runs=found, next=cursor(found[-1]) if len(rows) > page.limit else None)

    def run(self, trace_id: str) -> RunRecord | None:
        """Return a run with all its spans, None if there is none with this id."""
        key = bytes.fromhex(trace_id)
        with self._connection() as connection:
            # One transaction: summary and spans are of the same moment.
            connection.execute("BEGIN")
            try:
                row = connection.execute(
                    "SELECT fold FROM runs WHERE trace_id = ?", (key,)
                ).fetchone()
                if row is None:
                    return None
                rows = connection.execute(f"{SELECT} WHERE trace_id = ?", (key,)).fetchall()
                others = connection.execute(
                    "SELECT record FROM span_conflicts WHERE trace_id = ? ORDER BY id", (key,)
                ).fetchall()
                self._learn(connection, rows)
            finally:
                connection.execute("ROLLBACK")
        with explained(self.path):
            spans = [from_row(each, self._resources, self._scopes) for each in rows]
            spans.sort(key=span_order)
            return RunRecord(
                summary=_FOLD.decode(row[0]).summary(),
                spans=tuple(spans),
                conflicts=tuple(_SPAN.decode(each[0]) for each in others),
            )

    def version(self, trace_id: str) -> str | None:
        """Return a text that changes when a run does, None if there is none with this id."""
        with self._connection() as connection:
            row = connection.execute(
                "SELECT fold FROM runs WHERE trace_id = ?", (bytes.fromhex(trace_id),)
            ).fetchone()
        return None if row is None else str(row[0])

    def find(self, prefix: str, limit: int) -> tuple[str, ...]:
        """Return the trace ids that begin with these hex digits, at most `limit` of them."""
        low, high = (bytes.fromhex(prefix.ljust(32, digit)) for digit in "0f")
        with self._connection() as connection:
            rows = connection.execute(
                "SELECT trace_id FROM runs WHERE trace_id BETWEEN ? AND ? ORDER BY 1 LIMIT ?",
                (low, high, limit),
            ).fetchall()
        return tuple(row[0].hex() for row in rows)

    def agents(self) -> tuple[str, ...]:
        """Return the names of the agents that have runs here, at most 200."""
        # A plain DISTINCT would walk the index of every run; this jumps from name to name.
        sql = """
            WITH RECURSIVE names (name) AS (
                SELECT min(agent) FROM runs
                UNION ALL
                SELECT (SELECT min(agent) FROM runs WHERE agent > name) FROM names
                WHERE name IS NOT NULL
            )
            SELECT name FROM names WHERE name IS NOT NULL LIMIT 200
        """
        with self._connection() as connection:
            return tuple(row[0] for row in connection.execute(sql).fetchall())

    @contextmanager
    def _connection(self) -> Generator[sqlite3.Connection]:
        if not self._connections:
            raise StoreError(f"the store {self.path} is closed")
        connection = self._free.get()
        try:
            if connection is None:
                connection = connect(self.path, read_only=True)
            with explained(self.path):
                yield connection
        finally:
            self._free.put(connection)

    def _learn(self, connection: sqlite3.Connection, rows: list[Any]) -> None:
        """Read the resources and scopes that these spans need and that are not yet known."""
        for identity in {row[11] for row in rows} - self._resources.keys():
            record = connection.execute(
                "SELECT record FROM resources WHERE id = ?", (identity,)
            ).fetchone()
            self._resources[identity] = _RESOURCE.decode(record[0])
        for identity in {row[12] for row in rows} - self._scopes.keys():
            record = connection.execute(
                "SELECT record FROM scopes WHERE id = ?", (identity,)
            ).fetchone()
            self._scopes[identity] = _SCOPE.decode(record[0])


def _check(connection: sqlite3.Connection, path: Path) -> None:
    if pending(connection, path) is not None:
        raise StoreError(
            f"the store {path} was written by an older Clew: "
            "start `clew serve` once, it brings the file up to date"
        )


def _conditions(wanted: RunFilter) -> tuple[list[str], list[Any]]:
    where: list[str] = []
    values: list[Any] = []
    for column, test, value in (
        ("agent", "=", wanted.agent),
        ("status", "=", wanted.status),
        ("start_ns", ">=", wanted.since_ns),
        ("start_ns", "<", wanted.until_ns),
    ):
        if value is not None:
            where.append(f"{column} {test} ?")
            values.append(value)
    if wanted.denied:
        where.append("denials > 0")
    if wanted.failed:
        where.append("errors > 0")
    if not wanted.everything:
        # The plus keeps SQLite from walking all runs by time where a narrower index exists.
        where.append("+is_run = 1" if where else "is_run = 1")
    return where, values
