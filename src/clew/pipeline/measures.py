"""From an event to measurements: which instruments it feeds, with which labels.

Counters are summed here and added once for all events with the same labels; histograms take every
value. Used by one thread at a time.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from clew import semconv
from clew.facts import CALL_OPERATIONS, ROUND_OPERATIONS, RequestFacts, ResponseFacts, Usage
from clew.pipeline import instruments
from clew.pipeline.labels import Labels, Words
from clew.pipeline.late import LateCosts, Pending
from clew.pricing import Cost
from clew.rules import OTHER
from clew.settings import Settings
from clew.typing import Route

_SEGMENTS_KEPT = 100_000
_LATE_KEPT = 10_000
_USAGE_EXPECTED = ROUND_OPERATIONS | CALL_OPERATIONS
_TOKENS = (
    ("input", "input_tokens"),
    ("output", "output_tokens"),
    ("cache_read", "cache_read_tokens"),
    ("cache_write", "cache_write_tokens"),
    ("reasoning", "reasoning_tokens"),
)
_Series = tuple[str, tuple[tuple[str, Any], ...]]


class ModelCall(Protocol):
    """A finished round or call (`clew.rounds.Round`), as far as it is measured."""

    agent: Any
    route: Route
    request: RequestFacts
    attempts: int
    grouped: bool
    counted: bool
    late: Pending | None


class Measures:
    """Turns events into measurements.

    Args:
        settings: which tenants and reasons are labels.
    """

    def __init__(self, settings: Settings) -> None:
        self.words = Words(settings)
        self.instruments: dict[str, Any] | None = None
        """The instruments by name; None until they are made."""
        self.late: list[tuple[Pending, Labels]] = []
        """Rounds whose cost is still to come."""
        self._sums: dict[_Series, float] = {}
        self._open_segments: set[str] = set()

    def add_up(self) -> None:
        """Give the counters what has come together."""
        sums, self._sums = self._sums, {}
        if self.instruments is not None:
            for (name, labels), amount in sums.items():
                self.instruments[name].add(amount, dict(labels))

    def forget(self) -> None:
        """Forget what was not given to the instruments yet (in a forked child)."""
        self._sums.clear()
        self.late.clear()
        self._open_segments.clear()

    def settle_late(self, costs: LateCosts) -> None:
        """Count the costs of rounds that ended before the prices were loaded."""
        late, self.late = self.late, []
        for pending, facts in late:
            if costs.settle(pending) and pending.cost is not None:
                self._count_cost(pending.cost, facts)

    # --- events ----------------------------------------------------------------------------------

    def run_began(self, agent: Any, resumed: bool) -> None:
        """Count a start; a resumed run is only active again."""
        facts = self.words.agent(agent)
        if not resumed:
            self._add(instruments.RUNS_STARTED, 1, facts)
        if len(self._open_segments) < _SEGMENTS_KEPT:
            self._open_segments.add(agent.segment.id)
            self._add(instruments.RUNS_ACTIVE, 1, facts)

    def run_ended(self, agent: Any, status: str, reason: str | None) -> None:
        """Count an ending; a run that waits (without a reason) is only inactive."""
        # A segment that is not known here began before a fork: it is the parent's to count.
        if agent.segment.id not in self._open_segments:
            return
        self._open_segments.discard(agent.segment.id)
        facts = self.words.agent(agent)
        self._add(instruments.RUNS_ACTIVE, -1, facts)
        if reason is not None:
            facts[semconv.RUN_STATUS] = status
            facts[semconv.RUN_TERMINATION_REASON] = reason
            self._add(instruments.RUNS_ENDED, 1, facts)

    def round_ended(
        self,
        call: ModelCall,
        response: ResponseFacts,
        end: tuple[str | None, str | None],
        cost: Cost,
        spent_ns: int,
        first_chunk_s: float | None,
    ) -> None:
        """Measure a model call; `end` is the stream's outcome and the `error.type`."""
        words, route = self.words, call.route
        outcome, failure = end
        facts = words.agent(call.agent)
        facts[semconv.OPERATION] = words.operation(route.operation)
        facts[semconv.PROVIDER] = words.provider(route.provider or OTHER)
        facts[semconv.REQUEST_MODEL] = words.request_model(call.request.model or route.model)
        facts[semconv.RESPONSE_MODEL] = words.response_model(response.model)
        facts[semconv.ERROR_TYPE] = words.error(failure)
        facts[semconv.STREAM_OUTCOME] = words.stream_outcome(outcome)
        self._record(instruments.DURATION, max(0, spent_ns) / 1e9, facts)
        if first_chunk_s is not None:
            self._record(instruments.FIRST_CHUNK, max(0.0, first_chunk_s), facts)
        self._count_attempts(call, failure, facts)
        if route.operation == "count_tokens":
            return
        if response.usage is not None:
            self._count_usage(response.usage, facts)
        elif route.operation in _USAGE_EXPECTED:
            self._add(instruments.USAGE_ABSENT, 1, facts)
        if call.late is None:
            self._count_cost(cost, facts)
        elif len(self.late) < _LATE_KEPT:
            self.late.append((call.late, facts))

    def tool_ended(self, agent: Any, tool: str, outcome: str, spent_ns: int) -> None:
        """Measure a tool call."""
        facts = self.words.agent(agent)
        facts[semconv.TOOL_NAME] = self.words.tool(tool)
        facts[semconv.TOOL_OUTCOME] = self.words.tool_outcome(outcome)
        self._record(instruments.TOOL_DURATION, max(0, spent_ns) / 1e9, facts)

    def decided(
        self, agent: Any, gate: str, outcome: str, enforced: bool, reason: str | None
    ) -> None:
        """Count a decision."""
        facts = self.words.agent(agent)
        facts[semconv.DECISION_GATE] = self.words.gate(gate)
        facts[semconv.DECISION_OUTCOME] = self.words.decision_outcome(outcome)
        facts[semconv.DECISION_ENFORCED] = bool(enforced)
        facts[semconv.DECISION_REASON] = self.words.reason(reason)
        self._add(instruments.DECISIONS, 1, facts)

    def fell_back(self, agent: Any, provider: str | None) -> None:
        """Count a move to the next provider."""
        facts = self.words.agent(agent)
        facts[semconv.PROVIDER] = self.words.provider(provider or OTHER)
        self._add(instruments.FALLBACKS, 1, facts)

    def budget(self, name: str, unit: str, limit: float | None, used: float) -> None:
        """Set how full a budget is."""
        facts = {
            semconv.BUDGET_NAME: self.words.budget(name),
            semconv.BUDGET_UNIT: self.words.budget_unit(unit),
        }
        if self.instruments is not None:
            if limit is not None:
                self.instruments[instruments.BUDGET_LIMIT].set(limit, facts)
            self.instruments[instruments.BUDGET_USED].set(used, facts)

    # --- measurements ----------------------------------------------------------------------------

    def _add(self, name: str, amount: float, facts: Mapping[str, Any]) -> None:
        key = (name, _labels(name, facts))
        self._sums[key] = self._sums.get(key, 0) + amount

    def _record(self, name: str, value: float, facts: Mapping[str, Any]) -> None:
        if self.instruments is not None:
            self.instruments[name].record(value, dict(_labels(name, facts)))

    def _count_attempts(self, call: ModelCall, failure: str | None, facts: Labels) -> None:
        """Count HTTP requests, and the round.

        Where no logical call is known, every request of a retried call is a round of its own: a
        failed one is only an attempt then.
        """
        earlier = max(1, call.attempts) - 1
        if earlier:
            failed = {**facts, semconv.ATTEMPT_OUTCOME: "failed"}
            self._add(instruments.ATTEMPTS, earlier, failed)
        last = "ok" if failure is None else "failed"
        self._add(instruments.ATTEMPTS, 1, {**facts, semconv.ATTEMPT_OUTCOME: last})
        if call.counted and (call.grouped or failure is None):
            self._add(instruments.ROUNDS, 1, facts)

    def _count_usage(self, usage: Usage, facts: Labels) -> None:
        for kind, field in _TOKENS:
            tokens = getattr(usage, field)
            if tokens is None:
                continue
            self._add(instruments.TOKENS, tokens, {**facts, semconv.METRIC_TOKEN_TYPE: kind})
            if kind in ("input", "output"):
                typed = {**facts, semconv.TOKEN_TYPE: kind}
                self._record(instruments.TOKEN_USAGE, tokens, typed)

    def _count_cost(self, cost: Cost, facts: Labels) -> None:
        if cost.usd is not None:
            self._add(instruments.COST, cost.usd, {**facts, semconv.COST_STATUS: cost.status})
        elif cost.status == "unpriced":
            self._add(instruments.COST_UNPRICED, 1, facts)


def _labels(name: str, facts: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    """Return the labels that an instrument may have, and no others."""
    keys = instruments.INSTRUMENTS[name].labels
    return tuple((key, facts[key]) for key in keys if facts.get(key) is not None)
