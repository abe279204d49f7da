"""What model calls cost, summed by day (UTC), by agent and by model.

A sum is of the costs that are known. Calls without a known cost are counted beside it, never added
as zero, and a sum with such calls, or with calls of which a part is missing, is a lower bound.
"""

from __future__ import annotations

import sqlite3
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final

from msgspec import Struct

from clew.store.records import QueryError
from clew.store.scopes import EVERYTHING, Scope

EPOCH: Final = date(1970, 1, 1)
MOST_DAYS: Final = 400
"""The longest time that one question covers."""
MOST_ROWS: Final = 200
"""Most agents, and most models, in one answer; the cheaper ones are summed in `others`."""


class CostFilter(Struct, frozen=True, kw_only=True):
    """Which calls are summed: those that began from the first day to the last one, in UTC."""

    first: date
    last: date
    agent: str | None = None
    """The agent that called, which may be one inside the run's."""
    model: str | None = None
    scope: Scope = EVERYTHING
    """Whose runs may be read."""

    def __post_init__(self) -> None:
        if self.last < self.first:
            raise QueryError("the first day must not be after the last one")
        if self.days > MOST_DAYS:
            raise QueryError(f"at most {MOST_DAYS} days can be asked for at once")

    @property
    def days(self) -> int:
        """How many days there are."""
        return (self.last - self.first).days + 1


class CostSum(Struct, frozen=True, kw_only=True):
    """A sum over calls."""

    calls: int = 0
    unpriced: int = 0
    """Calls for whose model there is no price."""
    unknown: int = 0
    """Calls whose usage nobody reported."""
    partial: int = 0
    """Calls whose cost is known in part."""
    input_tokens: int | None = None
    output_tokens: int | None = None
    cost_usd: float | None = None
    """None where no cost is known."""

    @property
    def lower_bound(self) -> bool:
        """True where the real cost is higher than the sum, or may be."""
        return bool(self.unpriced or self.unknown or self.partial)


class CostRow(CostSum, frozen=True, kw_only=True):
    """The sum of one day, agent or model; None where calls name none."""

    name: str | None


class CostTable(Struct, frozen=True, kw_only=True):
    """The sums of one question."""

    total: CostSum
    days: tuple[CostRow, ...]
    """Oldest first; every day that was asked for, those without calls too."""
    agents: tuple[CostRow, ...]
    """The dearest first."""
    models: tuple[CostRow, ...]
    more_agents: int = 0
    """Agents that are not listed."""
    more_models: int = 0


_SUMS: Final = """
    sum(c.calls), sum(c.unpriced), sum(c.unknown), sum(c.partial),
    sum(c.input_tokens), sum(c.output_tokens), sum(c.cost_usd)
"""
_NAMES: Final = ("calls", "unpriced", "unknown", "partial", "input_tokens", "output_tokens")
_AGENT: Final = "LEFT JOIN run_agents a ON a.trace_id = c.trace_id AND a.agent_id = c.agent_id"


def cost_table(connection: sqlite3.Connection, wanted: CostFilter) -> CostTable:
    """Ask a store."""
    where, values = _conditions(wanted)
    joined = _AGENT if wanted.agent is not None else ""

    def grouped(by: str, join: str = joined) -> list[Any]:
        sql = (
            f"SELECT {by}, {_SUMS} FROM run_costs c {join} WHERE {where} GROUP BY 1 "  # noqa: S608 - our own words
            "ORDER BY coalesce(sum(c.cost_usd), -1) DESC, 1"
        )
        return connection.execute(sql, values).fetchall()

    # One transaction: the three tables are of the same moment.
    connection.execute("BEGIN")
    try:
        days = grouped("c.day")
        agents = grouped("a.agent", _AGENT)
        models = grouped("nullif(c.model, '')")
        total = connection.execute(
            f"SELECT {_SUMS} FROM run_costs c {joined} WHERE {where}",  # noqa: S608
            values,
        ).fetchone()
    finally:
        connection.execute("ROLLBACK")
    return CostTable(
        total=CostSum(**_given(total)),
        days=_every_day(wanted, {row[0]: row for row in days}),
        agents=tuple(_row(row) for row in agents[:MOST_ROWS]),
        models=tuple(_row(row) for row in models[:MOST_ROWS]),
        more_agents=max(0, len(agents) - MOST_ROWS),
        more_models=max(0, len(models) - MOST_ROWS),
    )


def _conditions(wanted: CostFilter) -> tuple[str, list[Any]]:
    where = ["c.day BETWEEN ? AND ?"]
    values: list[Any] = [(wanted.first - EPOCH).days, (wanted.last - EPOCH).days]
    if wanted.model is not None:
        where.append("c.model = ?")
        values.append(wanted.model)
    if wanted.agent is not None:
        where.append("a.agent = ?")
        values.append(wanted.agent)
    if not wanted.scope.everything:
        scope, named = wanted.scope.conditions()
        where.append(f"c.trace_id IN (SELECT trace_id FROM runs WHERE {' AND '.join(scope)})")  # noqa: S608
        values += named
    return " AND ".join(where), values


def _given(sums: Any) -> dict[str, Any]:
    *counts, cost = sums
    given = dict(zip(_NAMES, counts, strict=True))
    for name in ("calls", "unpriced", "unknown", "partial"):
        given[name] = given[name] or 0
    return {**given, "cost_usd": cost}


def _row(row: Any) -> CostRow:
    return CostRow(name=row[0], **_given(row[1:]))


def _every_day(wanted: CostFilter, found: dict[int, Any]) -> tuple[CostRow, ...]:
    rows: list[CostRow] = []
    for place in range(wanted.days):
        day = wanted.first + timedelta(days=place)
        row = found.get((day - EPOCH).days)
        given: dict[str, Any] = {} if row is None else _given(row[1:])
        rows.append(CostRow(name=day.isoformat(), **given))
    return tuple(rows)


def today() -> date:
    """Return the day that it is, in UTC."""
    return datetime.now(UTC).date()
