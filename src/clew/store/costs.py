"""What model calls cost, summed by day (UTC), by agent and by model.

A sum is of the costs that are known. Calls without a known cost are counted beside it, never added
as zero, and a sum with such calls, or with calls of which a part is missing, is a lower bound.
"""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final, TypeVar

from msgspec import Struct

from clew.store.records import QueryError
from clew.store.scopes import EVERYTHING, Scope

Number = TypeVar("Number", int, float)
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

    def __add__(self, other: CostSum) -> CostSum:
        """Return the sum over the calls of both; what neither knows stays unknown."""
        return CostSum(
            calls=self.calls + other.calls,
            unpriced=self.unpriced + other.unpriced,
            unknown=self.unknown + other.unknown,
            partial=self.partial + other.partial,
            input_tokens=_known(self.input_tokens, other.input_tokens),
            output_tokens=_known(self.output_tokens, other.output_tokens),
            cost_usd=_known(self.cost_usd, other.cost_usd),
        )

    def named(self, name: str | None) -> CostRow:
        """Return this sum as the row of a day, an agent or a model."""
        return CostRow(name=name, **{each: getattr(self, each) for each in _NAMES})


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
        f"SELECT c.day, c.agent, nullif(c.model, ''), {_SUMS} FROM run_costs c "  # noqa: S608 - our own words
        f"WHERE {where} GROUP BY c.day, c.agent, c.model"
    )
    total = CostSum()
    days: defaultdict[int, CostSum] = defaultdict(CostSum)
    agents: defaultdict[str | None, CostSum] = defaultdict(CostSum)
    models: defaultdict[str | None, CostSum] = defaultdict(CostSum)
    for day, agent, model, *sums in connection.execute(sql, values):
        part = CostSum(**dict(zip(_NAMES, sums, strict=True)))
        total += part
        days[day] += part
        agents[agent] += part
        models[model] += part
    return CostTable(
        total=total,
        days=_every_day(wanted, days),
        agents=_dearest(agents),
        models=_dearest(models),
        more_agents=max(0, len(agents) - MOST_ROWS),
        more_models=max(0, len(models) - MOST_ROWS),
    )


def _known(one: Number | None, other: Number | None) -> Number | None:
    if one is None or other is None:
        return other if one is None else one
    return one + other


def _dearest(found: dict[str | None, CostSum]) -> tuple[CostRow, ...]:
    rows = [each.named(name) for name, each in found.items()]
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
        where.append("c.agent = ?")
        values.append(wanted.agent)
    if not wanted.scope.everything:
        scope, named = wanted.scope.conditions()
        where.append(f"c.trace_id IN (SELECT trace_id FROM runs WHERE {' AND '.join(scope)})")  # noqa: S608
        values += named
    return " AND ".join(where), values


def _every_day(wanted: CostFilter, found: dict[int, CostSum]) -> tuple[CostRow, ...]:
    rows: list[CostRow] = []
    for place in range(wanted.days):
        day = wanted.first + timedelta(days=place)
        rows.append(found.get((day - EPOCH).days, CostSum()).named(day.isoformat()))
    return tuple(rows)


def today() -> date:
    """Return the day that it is, in UTC."""
    return datetime.now(UTC).date()
