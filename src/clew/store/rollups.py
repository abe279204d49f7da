"""What is kept beside runs so that lists and costs are quick: written with the spans, never later.

- `run_facets`: which models, tools and decisions a run has, in the order of a list.
- `run_costs`: calls, tokens and cost of a run by day (UTC), agent and model.
- `run_agents`: the names of the agents of a run by their ids.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from typing import Any, Final

from msgspec import Struct

from clew import semconv
from clew.store.records import SpanRecord, integer, number, text
from clew.store.summary import is_model_call

ROLLUPS: Final = ("run_facets", "run_costs", "run_agents")
"""The tables, each with a column `trace_id`."""
DAY_NS: Final = 86_400 * 10**9
LONGEST: Final = 256
"""Characters of a name that a search looks at."""
_FREE: Final = frozenset(
    {"count_tokens", "moderation", "compaction", "create_cache", "fetch_response"}
)
"""Operations that cost nothing unless their span says otherwise."""
_FACET: Final = (
    "INSERT OR IGNORE INTO run_facets (kind, value, start_ns, trace_id) VALUES (?, ?, ?, ?)"
)
_AGENT: Final = "INSERT OR IGNORE INTO run_agents (trace_id, agent_id, agent) VALUES (?, ?, ?)"
_COUNTS: Final = ("calls", "unpriced", "unknown", "partial")
_SUMS: Final = ("input_tokens", "output_tokens", "cost_usd")
_COST: Final = f"""
    INSERT INTO run_costs (day, trace_id, agent_id, model, {", ".join((*_COUNTS, *_SUMS))})
    VALUES ({", ".join("?" * 11)})
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


class _Sum(Struct):
    calls: int = 0
    unpriced: int = 0
    unknown: int = 0
    partial: int = 0
    input_tokens: int | None = None
    output_tokens: int | None = None
    cost_usd: float | None = None

    def add(self, span: SpanRecord) -> None:
        found = span.attributes
        self.calls += 1
        status, cost = text(found, semconv.COST_STATUS), number(found, semconv.COST_USD)
        if cost is not None:
            self.cost_usd = (self.cost_usd or 0.0) + cost
            self.partial += status == "partial"
        elif status == "unpriced":
            self.unpriced += 1
        else:
            self.unknown += 1
        tokens = integer(found, semconv.USAGE_INPUT)
        if tokens is not None:
            self.input_tokens = (self.input_tokens or 0) + tokens
        tokens = integer(found, semconv.USAGE_OUTPUT)
        if tokens is not None:
            self.output_tokens = (self.output_tokens or 0) + tokens


def may_cost(span: SpanRecord) -> bool:
    """Tell whether a span is a call that is billed, so that an unknown cost of it is worth telling.

    Another library's span around a round of ours is not: it would count twice.
    """
    found = span.attributes
    if not is_model_call(span) or found.get(semconv.AGGREGATE) is True:
        return False
    billed = semconv.COST_STATUS in found or semconv.COST_USD in found
    return billed or found.get(semconv.OPERATION) not in _FREE


def model_of(span: SpanRecord) -> str | None:
    """Return the model that answered, or the one that was asked."""
    found = span.attributes
    return text(found, semconv.RESPONSE_MODEL) or text(found, semconv.REQUEST_MODEL)


def facets(span: SpanRecord) -> Iterable[tuple[str, str]]:
    """Return by what the run of a span can be found: kind and value."""
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


def decision(gate: str, outcome: str) -> str:
    """Return the value that stands for one decision with both of these."""
    return f"{outcome} {gate}"[:LONGEST]


class Rollups:
    """Collects what one message adds, and writes it inside the message's transaction."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._facets: set[tuple[str, str, int, bytes]] = set()
        self._agents: set[tuple[bytes, str, str]] = set()
        self._costs: dict[tuple[int, bytes, str, str], _Sum] = {}

    def add(
        self, key: bytes, spans: Iterable[SpanRecord], before_ns: int | None, start_ns: int
    ) -> None:
        """Take the new spans of one run.

        Args:
            key: its trace id.
            spans: those that were not there yet.
            before_ns: when the run began, as far as was known before; None for a new run.
            start_ns: when it began, as is known now.
        """
        if before_ns is not None and before_ns != start_ns:
            self._connection.execute(
                "UPDATE run_facets SET start_ns = ? WHERE trace_id = ?", (start_ns, key)
            )
        for span in spans:
            for kind, value in facets(span):
                self._facets.add((kind, value, start_ns, key))
            agent_id = text(span.attributes, semconv.AGENT_ID)
            name = text(span.attributes, semconv.AGENT_NAME)
            if agent_id and name and span.type in {"run", "agent", "event"}:
                self._agents.add((key, agent_id, name))
            if may_cost(span):
                place = (span.start_ns // DAY_NS, key, agent_id or "", model_of(span) or "")
                self._costs.setdefault(place, _Sum()).add(span)

    def write(self) -> None:
        """Write what was collected."""
        self._connection.executemany(_FACET, sorted(self._facets))
        self._connection.executemany(_AGENT, sorted(self._agents))
        rows: list[tuple[Any, ...]] = [
            (*place, *(getattr(total, each) for each in (*_COUNTS, *_SUMS)))
            for place, total in sorted(self._costs.items())
        ]
        self._connection.executemany(_COST, rows)
