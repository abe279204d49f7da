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
from clew.store import search
from clew.store.costs import CostFilter, CostTable, cost_table
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
from clew.store.scopes import EVERYTHING
from clew.store.scopes import Scope as ReadScope
from clew.store.summary import RunFold

_FOLD: Final = msgspec.json.Decoder(RunFold)
_SPAN: Final = msgspec.json.Decoder(SpanRecord)
_RESOURCE: Final = msgspec.json.Decoder(Resource)
_MOST_NAMES: Final = 200
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
        with self._connection() as connection:
            folds = search.folds(connection, wanted, page)
            found = tuple(_FOLD.decode(each).summary() for each in folds[: page.limit])
        return RunPage(runs=found, next=cursor(found[-1]) if len(folds) > page.limit else None)

    def covers(self, trace_id: str, scope: ReadScope) -> bool:
        """Tell whether there is a run with this id that the scope covers."""
        where, values = scope.conditions()
        sql = f"SELECT 1 FROM runs WHERE trace_id = ? AND {' AND '.join(where)}"  # noqa: S608
        with self._connection() as connection:
            found = connection.execute(sql, (bytes.fromhex(trace_id), *values)).fetchone()
        return found is not None

    def costs(self, wanted: CostFilter) -> CostTable:
        """Return what model calls cost, by day, agent and model."""
        with self._connection() as connection:
            return cost_table(connection, wanted)

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

    def agents(self, scope: ReadScope = EVERYTHING) -> tuple[str, ...]:
        """Return the names of the agents that have runs here, at most 200."""
        where, values = scope.conditions()
        # An actor is none of what groups have in common; it has few runs.
        table = "run_groups" if scope.actor is None else "runs"
        sql = (
            f"SELECT DISTINCT agent FROM {table} WHERE {' AND '.join(where)} "  # noqa: S608
            f"AND agent IS NOT NULL ORDER BY 1 LIMIT {_MOST_NAMES}"
        )
        with self._connection() as connection:
            rows = connection.execute(sql, values).fetchall()
        return tuple(row[0] for row in rows)

    def names(self, kind: str) -> tuple[str, ...]:
        """Return names that runs can be searched by, at most 200: of `model`, `tool` or `gate`.

        A plain DISTINCT would walk the index of every group; this jumps from name to name.
        """
        least = "SELECT min(value) FROM group_names WHERE what = ?"
        sql = f"""
            WITH RECURSIVE names (name) AS (
                {least}
                UNION ALL
                SELECT ({least} AND value > name) FROM names WHERE name IS NOT NULL
            )
            SELECT name FROM names WHERE name IS NOT NULL LIMIT {_MOST_NAMES}
        """  # noqa: S608 - our own words
        with self._connection() as connection:
            rows = connection.execute(sql, (kind, kind)).fetchall()
        return tuple(row[0] for row in rows)

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
