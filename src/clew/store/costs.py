"""What model calls cost, summed by day (UTC), by agent and by model.

A sum is of the costs that are known. Calls without a known cost are counted beside it, never added
as zero, and a sum with such calls, or with calls of which a part is missing, is a lower bound.
"""

from __future__ import annotations

import sqlite3
from collections import defaultdict
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
_NAMES: Final = CostSum.__struct_fields__


def cost_table(connection: sqlite3.Connection, wanted: CostFilter) -> CostTable:
    """Ask a store, once: the three tables are of the same moment."""
    where, values = _conditions(wanted)
    sql = (
        f"SELECT c.day, a.agent, nullif(c.model, ''), {_SUMS} FROM run_costs c "  # noqa: S608 - our own words
        "LEFT JOIN run_agents a ON a.trace_id = c.trace_id AND a.agent_id = c.agent_id "
        f"WHERE {where} GROUP BY 1, 2, 3"
    )
    total = _Sums()
    days: defaultdict[int, _Sums] = defaultdict(_Sums)
    agents: defaultdict[str | None, _Sums] = defaultdict(_Sums)
    models: defaultdict[str | None, _Sums] = defaultdict(_Sums)
    for day, agent, model, *sums in connection.execute(sql, values):
        for each in (total, days[day], agents[agent], models[model]):
            each.add(sums)
    return CostTable(
        total=CostSum(**total.given()),
        days=_every_day(wanted, days),
        agents=_dearest(agents),
        models=_dearest(models),
        more_agents=max(0, len(agents) - MOST_ROWS),
        more_models=max(0, len(models) - MOST_ROWS),
    )


class _Sums:
    """Sums that grow; what no part knows stays unknown."""

    def __init__(self) -> None:
        self._found: list[Any] = [0, 0, 0, 0, None, None, None]

    def add(self, sums: list[Any]) -> None:
        for place, value in enumerate(sums):
            if value is not None:
                self._found[place] = (self._found[place] or 0) + value

    def given(self) -> dict[str, Any]:
        return dict(zip(_NAMES, self._found, strict=True))


def _dearest(found: dict[str | None, _Sums]) -> tuple[CostRow, ...]:
    rows = [CostRow(name=name, **sums.given()) for name, sums in found.items()]
    rows.sort(key=lambda each: (-1 if each.cost_usd is None else each.cost_usd, each.calls),
              reverse=True)  # fmt: skip
    return tuple(rows[:MOST_ROWS])


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


def _every_day(wanted: CostFilter, found: dict[int, _Sums]) -> tuple[CostRow, ...]:
    rows: list[CostRow] = []
    for place in range(wanted.days):
        day = wanted.first + timedelta(days=place)
        sums = found.get((day - EPOCH).days)
        given = {} if sums is None else sums.given()
        rows.append(CostRow(name=day.isoformat(), **given))
    return tuple(rows)


def today() -> date:
    """Return the day that it is, in UTC."""
    return datetime.now(UTC).date()
