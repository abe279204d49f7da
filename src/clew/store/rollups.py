"""What is kept beside runs so that lists and costs are quick: written with the spans, never later.

- `run_groups`, `group_names`, `group_runs`: runs by what a search asks for (`clew.store.groups`).
- `run_costs`: calls, tokens and cost of a run by day (UTC), agent and model, with the agent's name.
- `run_agents`: the names of the agents of a run by their ids.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any, Final

from clew import semconv
from clew.store.costs import CostSum
from clew.store.groups import Groups, Left, model_of
from clew.store.records import RunSummary, SpanRecord, integer, number, text
from clew.store.summary import is_model_call

ROLLUPS: Final = ("group_runs", "run_costs", "run_agents")
"""The tables with a column `trace_id`."""
DAY_NS: Final = 86_400 * 10**9
_FREE: Final = frozenset(
    {"count_tokens", "moderation", "compaction", "create_cache", "fetch_response"}
)
"""Operations that cost nothing unless their span says otherwise."""
_AGENT: Final = "INSERT OR IGNORE INTO run_agents (trace_id, agent_id, agent) VALUES (?, ?, ?)"
_AGENT_OF: Final = "SELECT agent FROM run_agents WHERE trace_id = ? AND agent_id = ?"
_LATE: Final = f"""
    UPDATE run_costs SET agent = ({_AGENT_OF})
    WHERE trace_id = ? AND agent_id = ? AND agent IS NULL
"""  # noqa: S608 - our own words
"""For an agent whose name is known only after its calls."""
_COUNTS: Final = ("calls", "unpriced", "unknown", "partial")
_SUMS: Final = ("input_tokens", "output_tokens", "cost_usd")
_COST: Final = f"""
    INSERT INTO run_costs (day, trace_id, agent_id, model, agent, {", ".join((*_COUNTS, *_SUMS))})
    VALUES ({", ".join("?" * 12)})
    ON CONFLICT (day, trace_id, agent_id, model) DO UPDATE SET
    {", ".join(f"{each} = {each} + excluded.{each}" for each in _COUNTS)},
    {
    ", ".join(
        f"{each} = CASE WHEN {each} IS NULL OR excluded.{each} IS NULL "
        f"THEN coalesce({each}, excluded.{each}) ELSE {each} + excluded.{each} END"
        for each in _SUMS
    )
}
"""  # noqa: S608 - our own words


def cost_of(span: SpanRecord) -> CostSum:
    """Return the sum over one call."""
    found = span.attributes
    cost, status = number(found, semconv.COST_USD), text(found, semconv.COST_STATUS)
    return CostSum(
        calls=1,
        unpriced=int(cost is None and status == "unpriced"),
        unknown=int(cost is None and status != "unpriced"),
        partial=int(cost is not None and status == "partial"),
        input_tokens=integer(found, semconv.USAGE_INPUT),
        output_tokens=integer(found, semconv.USAGE_OUTPUT),
        cost_usd=cost,
    )


def may_cost(span: SpanRecord) -> bool:
    """Tell whether a span is a call that is billed, so that an unknown cost of it is worth telling.

    Another library's span around a round of ours is not: it would count twice.
    """
    found = span.attributes
    if not is_model_call(span) or found.get(semconv.AGGREGATE) is True:
        return False
    billed = semconv.COST_STATUS in found or semconv.COST_USD in found
    return billed or found.get(semconv.OPERATION) not in _FREE


class Rollups:
    """Collects what one message adds, and writes it inside the message's transaction."""

    def __init__(self, connection: sqlite3.Connection, left: Left) -> None:
        self._connection = connection
        self._groups = Groups(connection, left)
        self._agents: set[tuple[bytes, str, str]] = set()
        self._late: set[tuple[bytes, str]] = set()
        self._costs: dict[tuple[int, bytes, str, str], CostSum] = {}

    def add(
        self,
        key: bytes,
        spans: Sequence[SpanRecord],
        run: RunSummary,
        *,
        stored: bool,
        tenant: str | None,
        actor: str | None,
    ) -> None:
        """Take the new spans of one run; see `Groups.add` for the arguments."""
        self._groups.add(key, spans, run, stored=stored, tenant=tenant, actor=actor)
        for span in spans:
            agent_id = text(span.attributes, semconv.AGENT_ID)
            name = text(span.attributes, semconv.AGENT_NAME)
            if agent_id and name and span.type in {"run", "agent", "event"}:
                self._agents.add((key, agent_id, name))
                if stored:
                    self._late.add((key, agent_id))
            if may_cost(span):
                place = (span.start_ns // DAY_NS, key, agent_id or "", model_of(span) or "")
                cost, known = cost_of(span), self._costs.get(place)
                self._costs[place] = cost if known is None else known + cost

    def write(self) -> None:
        """Write what was collected."""
        self._groups.write()
        for agent in sorted(self._agents):
            place = agent[:2]
            fresh = self._connection.execute(_AGENT, agent).rowcount
            if fresh and place in self._late:
                self._connection.execute(_LATE, (*place, *place))
        names = {(place[1], place[2]): self._name(place[1], place[2]) for place in self._costs}
        rows: list[tuple[Any, ...]] = [
            (
                *place,
                names[place[1], place[2]],
                *(getattr(total, each) for each in (*_COUNTS, *_SUMS)),
            )
            for place, total in sorted(self._costs.items())
        ]
        self._connection.executemany(_COST, rows)

    def _name(self, key: bytes, agent_id: str) -> str | None:
        found = self._connection.execute(_AGENT_OF, (key, agent_id)).fetchone()
        return None if found is None else found[0]
