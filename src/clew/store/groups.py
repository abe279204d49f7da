"""Groups of runs that are alike in all that a search asks for by name.

A group is what its runs have in common: agent, status, tenant, whether they were denied anything or
failed, which models and which decisions they had. There are few of them, however many runs there
are, so a search looks for groups first and then for the newest runs in these (`clew.store.search`).

Tools vary more than all else from run to run. So a run is in one group that says nothing of tools,
and for each of its tools in one more that names it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from typing import Any, Final

import msgspec
from msgspec import Struct

from clew import semconv
from clew.store.records import RunSummary, SpanRecord, text
from clew.store.summary import is_model_call

LONGEST: Final = 256
"""Characters of a name that a search looks at."""
_MOST_LEFT: Final = 500
"""Groups that may wait to be looked through."""

Name = tuple[str, str]
"""What is named (`model`, `gate`, `outcome`, `decision` or `tool`), and how."""


class Group(Struct, frozen=True, array_like=True):
    """What the runs of a group have in common; its JSON is the group's key."""

    is_run: int
    agent: str | None
    status: str | None
    tenant: str | None
    denied: int
    failed: int
    tool: str | None
    """None in the group that says nothing of tools."""
    names: tuple[Name, ...]
    """Models and decisions, in order."""

    @property
    def listed(self) -> tuple[Name, ...]:
        """All names that lead to this group."""
        return self.names if self.tool is None else (*self.names, ("tool", self.tool))


_GROUP: Final = msgspec.json.Decoder(Group)
_COLUMNS: Final = ("is_run", "agent", "status", "tenant", "denied", "failed", "tool")
_NEW_GROUP: Final = (
    f"INSERT INTO run_groups (key, {', '.join(_COLUMNS)}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"  # noqa: S608 - our own words
)
_NEW_NAME: Final = "INSERT INTO group_names (what, value, group_id) VALUES (?, ?, ?)"
_NEW_RUN: Final = (
    "INSERT INTO group_runs (group_id, start_ns, trace_id, cost_usd, actor) VALUES (?, ?, ?, ?, ?)"
)
_OF_RUN: Final = """
    SELECT g.id, g.key, r.start_ns, r.cost_usd, r.actor
    FROM group_runs r JOIN run_groups g ON g.id = r.group_id WHERE r.trace_id = ?
"""


def names_of(span: SpanRecord) -> Iterable[Name]:
    """Return by which names the run of a span can be found."""
    found = span.attributes
    if is_model_call(span) and (model := model_of(span)):
        yield "model", model[:LONGEST]
    if span.type == "tool" and (tool := text(found, semconv.TOOL_NAME)):
        yield "tool", tool[:LONGEST]
    if span.type == "decision":
        gate = text(found, semconv.DECISION_GATE)
        outcome = text(found, semconv.DECISION_OUTCOME)
        if gate:
            yield "gate", gate[:LONGEST]
        if outcome:
            yield "outcome", outcome[:LONGEST]
        if gate and outcome:
            yield "decision", decision(gate, outcome)


def model_of(span: SpanRecord) -> str | None:
    """Return the model that answered, or the one that was asked."""
    found = span.attributes
    return text(found, semconv.RESPONSE_MODEL) or text(found, semconv.REQUEST_MODEL)


def decision(gate: str, outcome: str) -> str:
    """Return the value that stands for one decision with both of these."""
    return f"{outcome} {gate}"[:LONGEST]


Left = dict[int, str]
"""Groups that runs have left, by their ids: each group's key."""


class Groups:
    """Moves runs between groups, inside the transaction of one message.

    Args:
        connection: the store.
        left: groups that were left by earlier messages. A run on its way passes through groups that
            the next one passes through, too, so they are looked through now and then only.
    """

    def __init__(self, connection: sqlite3.Connection, left: Left) -> None:
        self._connection = connection
        self._ids: dict[str, int] = {}
        self._left = left
        self._rows: list[tuple[Any, ...]] = []

    def add(
        self,
        key: bytes,
        spans: Iterable[SpanRecord],
        run: RunSummary,
        *,
        stored: bool,
        tenant: str | None,
        actor: str | None,
    ) -> None:
        """Put a run into the groups that it belongs to now.

        Args:
            key: its trace id.
            spans: those that were not there yet.
            run: the run with these spans.
            stored: whether the run was there before.
            tenant: whose it is, as the store says.
            actor: for whom it acts, as the store says.
        """
        names = {name for span in spans for name in names_of(span)}
        before = self._before(key) if stored else {}
        for each in before.values():
            names.update(each.group.listed)
        now = {_encoded(group): group for group in _groups_of(run, tenant, names)}
        place = (run.start_ns, run.cost_usd, actor)
        if now.keys() == before.keys() and all(each.place == place for each in before.values()):
            return
        if before:
            self._connection.execute("DELETE FROM group_runs WHERE trace_id = ?", (key,))
            for text_of, each in before.items():
                if text_of not in now:
                    self._left[each.identity] = text_of
        self._rows += [
            (self._id(text_of, group), run.start_ns, key, run.cost_usd, actor)
            for text_of, group in now.items()
        ]

    def write(self) -> None:
        """Write what was collected."""
        self._connection.executemany(_NEW_RUN, sorted(self._rows, key=_in_order))
        if len(self._left) > _MOST_LEFT:
            remove_empty(self._connection, self._left)

    def _before(self, key: bytes) -> dict[str, _Stored]:
        rows = self._connection.execute(_OF_RUN, (key,)).fetchall()
        return {
            text_of: _Stored(identity, _GROUP.decode(text_of), (start_ns, cost_usd, actor))
            for identity, text_of, start_ns, cost_usd, actor in rows
        }

    def _id(self, text_of: str, group: Group) -> int:
        known = self._ids.get(text_of)
        if known is None:
            found = self._connection.execute(
                "SELECT id FROM run_groups WHERE key = ?", (text_of,)
            ).fetchone()
            known = found[0] if found else self._made(text_of, group)
            self._ids[text_of] = known
        return known

    def _made(self, text_of: str, group: Group) -> int:
        values = (getattr(group, column) for column in _COLUMNS)
        identity = self._connection.execute(_NEW_GROUP, (text_of, *values)).lastrowid
        if identity is None:
            raise sqlite3.IntegrityError("a group has no id")
        self._connection.executemany(_NEW_NAME, [(*name, identity) for name in group.listed])
        return identity


class _Stored(Struct, frozen=True):
    identity: int
    group: Group
    place: tuple[int, float | None, str | None]


def remove_empty(connection: sqlite3.Connection, left: Left) -> None:
    """Remove those of these groups that no run is in, and their names; forget them all."""
    for identity, key in left.items():
        removed = connection.execute(
            "DELETE FROM run_groups WHERE id = :id AND key = :key "
            "AND NOT EXISTS (SELECT 1 FROM group_runs WHERE group_id = :id)",
            {"id": identity, "key": key},
        ).rowcount
        if removed:
            connection.executemany(
                "DELETE FROM group_names WHERE what = ? AND value = ? AND group_id = ?",
                [(*name, identity) for name in _GROUP.decode(key).listed],
            )
    left.clear()


def remove_all_empty(connection: sqlite3.Connection) -> None:
    """Remove every group that no run is in, and its names."""
    connection.execute(
        "DELETE FROM run_groups WHERE NOT EXISTS "
        "(SELECT 1 FROM group_runs WHERE group_id = run_groups.id)"
    )
    connection.execute("DELETE FROM group_names WHERE group_id NOT IN (SELECT id FROM run_groups)")


def _groups_of(run: RunSummary, tenant: str | None, names: set[Name]) -> list[Group]:
    tools: list[str | None] = [value for what, value in names if what == "tool"]
    others = tuple(sorted(name for name in names if name[0] != "tool"))
    return [
        Group(
            int(run.is_run),
            run.agent,
            run.status,
            tenant,
            int(bool(run.denials and run.denials > 0)),
            int(run.errors > 0),
            tool,
            others,
        )
        for tool in (None, *tools)
    ]


def _encoded(group: Group) -> str:
    return msgspec.json.encode(group).decode()


def _in_order(row: tuple[Any, ...]) -> tuple[Any, ...]:
    return row[:3]
