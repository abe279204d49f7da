"""The question behind a list of runs, put so that SQLite answers it from indexes."""

from __future__ import annotations

import sqlite3
from typing import Any, Final

from clew.store.records import Page, RunFilter
from clew.store.rollups import LONGEST, decision
from clew.store.scopes import NOTHING

_FEW: Final = 2000
"""Up to so many runs that have what is searched for are looked at one by one."""

Question = tuple[str, list[Any]]
_Parts = tuple[list[str], list[Any]]
_Facet = tuple[str, str]


def question(connection: sqlite3.Connection, wanted: RunFilter, page: Page) -> Question:
    """Return the SQL for the column `fold` of one page, newest first, and one row more.

    Raises:
        QueryError: the cursor is none that a list gave.
    """
    where, values = conditions(wanted)
    facets = facets_of(wanted)
    driver = _driver(connection, facets, alone=not where)
    place, at = _place(wanted, page, "f" if driver else "runs")
    where += place
    values += at
    for facet in facets:
        if facet != driver:
            where.append(_probe("f" if driver else "runs"))
            values += facet
    if driver is not None:
        whole = " AND ".join([*where, _run(wanted)])
        sql = (
            "SELECT fold FROM run_facets f CROSS JOIN runs INDEXED BY runs_listed "  # noqa: S608 - our own words
            "ON runs.start_ns = f.start_ns AND runs.trace_id = f.trace_id "
            f"WHERE f.kind = ? AND f.value = ? AND {whole} "
            "ORDER BY f.start_ns DESC, f.trace_id DESC LIMIT ?"
        )
        return sql, [*driver, *values, page.limit + 1]
    # Where an index beside the wide one knows better, the plus leaves it the choice.
    wide = facets or wanted.cost_from is not None or wanted.cost_to is not None
    index = " INDEXED BY runs_listed" if wide or wanted.everything else ""
    kind = f"+{_run(wanted)}" if wide or len(where) > len(place) else _run(wanted)
    sql = (
        f"SELECT fold FROM runs{index} WHERE {' AND '.join([*where, kind])} "  # noqa: S608
        "ORDER BY start_ns DESC, runs.trace_id DESC LIMIT ?"
    )
    return sql, [*values, page.limit + 1]


def facets_of(wanted: RunFilter) -> list[_Facet]:
    """Return what the spans of a run must have: kind and value."""
    found: list[_Facet] = []
    if wanted.model is not None:
        found.append(("model", wanted.model[:LONGEST]))
    if wanted.tool is not None:
        found.append(("tool", wanted.tool[:LONGEST]))
    if wanted.gate is not None and wanted.outcome is not None:
        found.append(("decision", decision(wanted.gate, wanted.outcome)))
    elif wanted.gate is not None:
        found.append(("gate", wanted.gate[:LONGEST]))
    elif wanted.outcome is not None:
        found.append(("outcome", wanted.outcome))
    return found


def conditions(wanted: RunFilter) -> _Parts:
    """Return the conditions on the columns of a run, times and kind left out."""
    where: list[str] = []
    values: list[Any] = []
    for column, test, value in (
        ("agent", "=", wanted.agent),
        ("status", "=", wanted.status),
        ("cost_usd", ">=", wanted.cost_from),
        ("cost_usd", "<=", wanted.cost_to),
    ):
        if value is not None:
            where.append(f"{column} {test} ?")
            values.append(value)
    if wanted.denied:
        where.append("denials > 0")
    if wanted.failed:
        where.append("errors > 0")
    if not wanted.scope.everything:
        scope, named = wanted.scope.conditions()
        covered = " AND ".join(scope)
        values += named
        if wanted.waiting_of != NOTHING:
            waiting, named = wanted.waiting_of.conditions()
            covered = (
                f"(({covered}) OR (status = 'waiting_for_approval' AND {' AND '.join(waiting)}))"
            )
            values += named
        where.append(covered)
    return where, values


def _run(wanted: RunFilter) -> str:
    return "1" if wanted.everything else "is_run = 1"


def _place(wanted: RunFilter, page: Page, table: str) -> _Parts:
    """Return the conditions on the time, and on where the page before ended."""
    where: list[str] = []
    values: list[Any] = []
    for test, value in ((">=", wanted.since_ns), ("<", wanted.until_ns)):
        if value is not None:
            where.append(f"{table}.start_ns {test} ?")
            values.append(value)
    position = page.position()
    if position is not None:
        where.append(f"({table}.start_ns, {table}.trace_id) < (?, ?)")
        values += [position[0], bytes.fromhex(position[1])]
    return where, values


def _probe(table: str) -> str:
    return (
        "EXISTS (SELECT 1 FROM run_facets p WHERE p.kind = ? AND p.value = ? "  # noqa: S608
        f"AND p.start_ns = {table}.start_ns AND p.trace_id = {table}.trace_id)"
    )


def _driver(connection: sqlite3.Connection, facets: list[_Facet], *, alone: bool) -> _Facet | None:
    """Return the facet to walk along; None where filters of the run itself leave fewer."""
    counted = [(_count(connection, each), each) for each in facets]
    if not counted:
        return None
    count, rarest = min(counted)
    return rarest if count < _FEW or alone or len(facets) > 1 else None


def _count(connection: sqlite3.Connection, facet: _Facet) -> int:
    """Return how many runs have a facet, at most `_FEW`."""
    return connection.execute(
        "SELECT count(*) FROM (SELECT 1 FROM run_facets WHERE kind = ? AND value = ? LIMIT ?)",
        (*facet, _FEW),
    ).fetchone()[0]
