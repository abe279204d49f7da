"""A page of a list of runs: groups that fit are found first, then the newest runs in these.

What a search asks for by name is what groups of runs have in common (`clew.store.groups`). So the
work of a search follows from how many groups there are and how long the page is, not from how many
runs there are: two conditions that never meet leave no group, and nothing is looked through.

Costs and actors differ from run to run. Where few runs have what is asked for, each is looked at.
Where many have, a page fills quickly, unless all of them are old: then the newer runs in the
groups that have any are passed over, in an index that says all there is to know.

Where hardly two runs are alike, there are as many groups as runs. A common condition then has its
page among the newest runs; a search that finds little looks at each group once.
"""

from __future__ import annotations

import heapq
import itertools
import sqlite3
from collections.abc import Iterable, Iterator
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from clew.store.groups import LONGEST, Name, decision
from clew.store.records import Page, RunFilter
from clew.store.scopes import EVERYTHING, NOTHING, Scope

_FEW: Final = 2000
"""Up to so many runs with a cost, or of an actor, are looked at one by one."""
_WAITING: Final = "waiting_for_approval"
_ORDER: Final = "ORDER BY r.start_ns DESC, r.trace_id DESC LIMIT ?"
_COSTING: Final = (
    "run_groups g CROSS JOIN group_runs r INDEXED BY group_runs_cost ON r.group_id = g.id"
)
_MANY: Final = 200
"""Where more groups fit, the newest runs are looked at before the groups."""
_RECENT: Final = 10
"""How many of them, for each place of the page."""
_LEAST: Final = 8
"""Runs of a group that are read at once, at the least."""

_Place = tuple[int, bytes]
"""Start (ns) and trace id: where a run stands in a list."""


class _Conditions:
    """Conditions joined by AND, with their values in order."""

    def __init__(self) -> None:
        self._where: list[str] = []
        self.values: list[Any] = []

    def add(self, condition: str, *values: Any) -> None:
        self._where.append(condition)
        self.values += values

    def plus(self, *others: _Conditions) -> _Conditions:
        """Return these and those of others."""
        found = _Conditions()
        for each in (self, *others):
            found._where += each._where
            found.values += each.values
        return found

    def __str__(self) -> str:
        return " AND ".join(self._where) or "1"

    def __bool__(self) -> bool:
        return bool(self._where)


class _Stretch(Struct, frozen=True):
    """A part of a list, by where its runs stand."""

    since_ns: int | None
    until_ns: int | None
    before: _Place | None

    def conditions(self) -> _Conditions:
        """On a run, as `r`."""
        found = _Conditions()
        if self.since_ns is not None:
            found.add("r.start_ns >= ?", self.since_ns)
        if self.before is not None:
            found.add("(r.start_ns, r.trace_id) < (?, ?)", *self.before)
        if self.until_ns is not None:
            # Of two ends an index is entered at one: at the later page's, where there is one.
            plus = "" if self.before is None else "+"
            found.add(f"{plus}r.start_ns < ?", self.until_ns)
        return found


class _Question(Struct, frozen=True, kw_only=True):
    """Which groups, and which of their runs."""

    groups: _Conditions
    """On `run_groups`, as `g`."""
    stretch: _Stretch
    cost: _Conditions
    """On its cost, as `r`."""
    actor: _Conditions
    """On its actor, as `r`."""
    limit: int


def folds(connection: sqlite3.Connection, wanted: RunFilter, page: Page) -> list[str]:
    """Return the column `fold` of the runs of one page, newest first, and of one more.

    Raises:
        QueryError: the cursor is none that a list gave.
    """
    limit = page.limit + 1
    position = page.position()
    before = None if position is None else (position[0], bytes.fromhex(position[1]))
    stretch = _Stretch(wanted.since_ns, wanted.until_ns, before)
    if _asks_for_nothing(wanted):
        lists = [
            _all(connection, is_run, stretch, limit) for is_run in (1, 0)[: 1 + wanted.everything]
        ]
    else:
        lists = [_places(connection, _question(wanted, wanted.scope, stretch, limit))]
        if wanted.waiting_of != NOTHING and wanted.status in {None, _WAITING}:
            waiting = _question(wanted, wanted.waiting_of, stretch, limit)
            waiting.groups.add("g.status = ?", _WAITING)
            lists.append(_places(connection, waiting))
    # A run that is in two lists stands there twice in a row.
    places = (place for place, _ in itertools.groupby(heapq.merge(*lists, reverse=True)))
    return [
        row[0]
        for _, trace_id in itertools.islice(places, limit)
        for row in connection.execute("SELECT fold FROM runs WHERE trace_id = ?", (trace_id,))
    ]


def names_asked_for(wanted: RunFilter) -> list[Name]:
    """Return what the runs of a group must have had: what is named, and how. Tools left out."""
    found: list[Name] = []
    if wanted.model is not None:
        found.append(("model", wanted.model[:LONGEST]))
    if wanted.gate is not None and wanted.outcome is not None:
        found.append(("decision", decision(wanted.gate, wanted.outcome)))
    elif wanted.gate is not None:
        found.append(("gate", wanted.gate[:LONGEST]))
    elif wanted.outcome is not None:
        found.append(("outcome", wanted.outcome))
    return found


def _asks_for_nothing(wanted: RunFilter) -> bool:
    return wanted == RunFilter(
        since_ns=wanted.since_ns,
        until_ns=wanted.until_ns,
        everything=wanted.everything,
        waiting_of=wanted.waiting_of,
    )


def _question(wanted: RunFilter, scope: Scope, stretch: _Stretch, limit: int) -> _Question:
    groups, cost, actor = _Conditions(), _Conditions(), _Conditions()
    if wanted.tool is None:
        groups.add("g.tool IS NULL")
    else:
        groups.add("g.tool = ?", wanted.tool[:LONGEST])
    for column, value in (("agent", wanted.agent), ("status", wanted.status)):
        if value is not None:
            groups.add(f"g.{column} = ?", value)
    for column, asked in (
        ("denied", wanted.denied),
        ("failed", wanted.failed),
        ("is_run", not wanted.everything),
    ):
        if asked:
            groups.add(f"g.{column} = 1")
    for what, value in names_asked_for(wanted):
        groups.add(
            "EXISTS (SELECT 1 FROM group_names n "
            "WHERE n.what = ? AND n.value = ? AND n.group_id = g.id)",
            what,
            value,
        )
    # An actor is none of what groups have in common.
    shared = replace(scope, actor=None)
    if scope.actor is None or shared not in (NOTHING, EVERYTHING):
        where, values = shared.conditions()
        groups.add(" AND ".join(where), *values)
    for test, value in ((">=", wanted.cost_from), ("<=", wanted.cost_to)):
        if value is not None:
            cost.add(f"r.cost_usd {test} ?", value)
    if scope.actor is not None:
        actor.add("r.actor = ?", scope.actor)
    return _Question(groups=groups, stretch=stretch, cost=cost, actor=actor, limit=limit)


# --- places, newest first -------------------------------------------------------------------------


def _all(
    connection: sqlite3.Connection, is_run: int, stretch: _Stretch, limit: int
) -> list[_Place]:
    time = stretch.conditions()
    return connection.execute(
        "SELECT r.start_ns, r.trace_id FROM runs r INDEXED BY runs_by_time "  # noqa: S608 - our own words
        f"WHERE r.is_run = ? AND {time} {_ORDER}",
        (is_run, *time.values, limit),
    ).fetchall()


def _places(connection: sqlite3.Connection, asked: _Question) -> Iterable[_Place]:
    """Return where the runs of a question stand."""
    for where, index in ((asked.actor, "runs_by_actor"), (asked.cost, "runs_by_cost")):
        source = f"runs r INDEXED BY {index}"
        if where and _count(connection, source, where, _FEW) <= _FEW:
            return _looked_at(connection, asked, source, where)
    fitting = _count(connection, "run_groups g", asked.groups, _MANY)
    if not fitting:
        return ()
    if fitting > _MANY:
        found = _recent(connection, asked)
        if len(found) >= asked.limit:
            return found
    elif asked.cost:
        costing = asked.groups.plus(asked.cost)
        if _count(connection, _COSTING, costing, _FEW) <= _FEW:
            return _sorted(connection, asked, costing)
    groups = _groups(connection, asked)
    at_once = max(_LEAST, asked.limit // max(1, len(groups)))
    return heapq.merge(
        *(_in_group(connection, asked, each, at_once) for each in groups), reverse=True
    )


def _count(connection: sqlite3.Connection, source: str, where: _Conditions, most: int) -> int:
    """Return how many there are, at most one more than `most`."""
    counted = connection.execute(
        f"SELECT count(*) FROM (SELECT 1 FROM {source} WHERE {where} LIMIT ?)",  # noqa: S608
        (*where.values, most + 1),
    )
    return counted.fetchone()[0]


def _looked_at(
    connection: sqlite3.Connection, asked: _Question, source: str, known: _Conditions
) -> list[_Place]:
    """Look at runs one by one.

    Args:
        connection: the store.
        asked: what they must have.
        source: the table that they are in, as `r`.
        known: which of them.
    """
    others = [each for each in (asked.actor, asked.cost) if each is not known]
    where = known.plus(asked.stretch.conditions(), *others)
    return connection.execute(
        f"SELECT r.start_ns, r.trace_id FROM {source} WHERE {where} AND EXISTS ("  # noqa: S608
        "SELECT 1 FROM group_runs m CROSS JOIN run_groups g ON g.id = m.group_id "
        f"WHERE m.trace_id = r.trace_id AND {asked.groups}) {_ORDER}",
        (*where.values, *asked.groups.values, asked.limit),
    ).fetchall()


def _recent(connection: sqlite3.Connection, asked: _Question) -> list[_Place]:
    """Look at the newest runs, whatever they are: of a common kind they are a page."""
    time = asked.stretch.conditions()
    most = _RECENT * asked.limit
    kinds = " UNION ALL ".join(
        "SELECT * FROM (SELECT r.start_ns, r.trace_id, r.cost_usd, r.actor "  # noqa: S608
        f"FROM runs r INDEXED BY runs_by_time WHERE r.is_run = {is_run} AND {time} {_ORDER})"
        for is_run in (1, 0)
    )
    source = f"(SELECT * FROM ({kinds}) r {_ORDER}) r"  # noqa: S608
    known = _Conditions()
    known.add("1", *time.values, most, *time.values, most, most)
    return _looked_at(connection, asked, source, known)


def _sorted(connection: sqlite3.Connection, asked: _Question, costing: _Conditions) -> list[_Place]:
    """Look at the runs that have the cost, whenever they were, in the groups that fit."""
    where = asked.stretch.conditions().plus(asked.actor)
    columns = "r.start_ns, r.trace_id" + (", r.actor" if asked.actor else "")
    return connection.execute(
        "SELECT r.start_ns, r.trace_id "  # noqa: S608
        f"FROM (SELECT {columns} FROM {_COSTING} WHERE {costing} LIMIT {_FEW}) r "
        f"WHERE {where} {_ORDER}",
        (*costing.values, *where.values, asked.limit),
    ).fetchall()


def _groups(connection: sqlite3.Connection, asked: _Question) -> list[int]:
    """Return the groups that the page is made of: those with the newest runs.

    Beyond as many groups as the page has places, none has a run that is new enough.
    """
    inside, groups = _inside(asked, asked.stretch), asked.groups
    if asked.cost:
        groups = asked.groups.plus()
        groups.add(
            "EXISTS (SELECT 1 FROM group_runs r INDEXED BY group_runs_cost "  # noqa: S608
            f"WHERE r.group_id = g.id AND {asked.cost})",
            *asked.cost.values,
        )
    rows = connection.execute(
        "SELECT g.id, (SELECT r.start_ns FROM group_runs r "  # noqa: S608
        f"WHERE r.group_id = g.id AND {inside} {_ORDER}) AS newest "
        f"FROM run_groups g WHERE {groups} ORDER BY newest DESC",
        (*inside.values, 1, *groups.values),
    ).fetchall()
    found: list[int] = []
    last: int | None = None
    for group_id, start_ns in rows:
        if start_ns is None or (len(found) >= asked.limit and start_ns != last):
            break
        found.append(group_id)
        last = start_ns
    return found


def _in_group(
    connection: sqlite3.Connection, asked: _Question, group_id: int, at_once: int
) -> Iterator[_Place]:
    """Go through a group from its newest run on, a few at once: most end after the first."""
    stretch = asked.stretch
    while True:
        where = _inside(asked, stretch)
        rows: list[_Place] = connection.execute(
            f"SELECT r.start_ns, r.trace_id FROM group_runs r WHERE r.group_id = ? AND {where} "  # noqa: S608
            f"{_ORDER}",
            (group_id, *where.values, at_once),
        ).fetchall()
        yield from rows
        if len(rows) < at_once:
            return
        stretch = replace(stretch, before=rows[-1])


def _inside(asked: _Question, stretch: _Stretch) -> _Conditions:
    """Return what a run of a group must have, so that the group is gone through by time."""
    found = stretch.conditions().plus(asked.actor)
    if asked.cost:
        # The plus keeps SQLite from the index of costs, which would have all of them sorted.
        found.add(str(asked.cost).replace("r.cost_usd", "+r.cost_usd"), *asked.cost.values)
    return found
