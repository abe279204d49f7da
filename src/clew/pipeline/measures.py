"""From an event to measurements: which instruments it feeds, with which labels.

Counters are summed here and added once for all events with the same labels; histograms take every
value. Used by one thread at a time.
"""

from __future__ import annotations

from typing import Any, Protocol

from clew import semconv
from clew.facts import CALL_OPERATIONS, ROUND_OPERATIONS, RequestFacts, Usage
from clew.pipeline import instruments
from clew.pipeline.labels import Labels, Words
from clew.pipeline.late import LateCosts, Pending
from clew.pipeline.profiles import CallNames, Names
from clew.pricing import Cost
from clew.rules import OTHER
from clew.settings import Settings
from clew.typing import Route

_SEGMENTS_KEPT = 100_000
_LATE_KEPT = 10_000
_USAGE_EXPECTED = ROUND_OPERATIONS | CALL_OPERATIONS
_TOKENS = tuple(
    (
        f"{kind}_tokens",
        (semconv.METRIC_TOKEN_TYPE, kind),
        (semconv.TOKEN_TYPE, kind) if kind in ("input", "output") else None,
    )
    for kind in ("input", "output", "cache_read", "cache_write", "reasoning")
)
"""Fields of a usage, each with the label of the counter and, if it has one, the histogram's."""
_FAILED = (semconv.ATTEMPT_OUTCOME, "failed")
_OK = (semconv.ATTEMPT_OUTCOME, "ok")
_FACTS_KEPT = 4096


class Series:
    """One instrument with one set of labels."""

    __slots__ = ("labels", "name")

    def __init__(self, name: str, labels: Labels) -> None:
        self.name = name
        self.labels = labels


class Facts:
    """Label values of an event, and the series that they have led to."""

    __slots__ = ("_series", "values")

    def __init__(self, values: Labels) -> None:
        self.values = values
        self._series: dict[tuple[str, tuple[str, Any] | None], Series] = {}

    def series(self, name: str, extra: tuple[str, Any] | None = None) -> Series:
        """Return the series of an instrument: with the labels that it may have, and no others.

        Args:
            name: name of the instrument.
            extra: one more label and its value.
        """
        found = self._series.get((name, extra))
        if found is None:
            values = self.values if extra is None else {**self.values, extra[0]: extra[1]}
            keys = instruments.EVERY[name].labels
            labels = {key: values[key] for key in keys if values.get(key) is not None}
            found = self._series[name, extra] = Series(name, labels)
        return found


class ModelCall(Protocol):
    """A finished round or call (`clew.rounds.Round`), as far as it is measured."""

    agent: Any
    route: Route
    request: RequestFacts
    attempts: int
    grouped: bool
    counted: bool
    late: Pending | None
    start_ns: int
    ended_ns: int
    ending: Any
    """Its `clew.endings.Ending`; what the answer says is read by `count_up`."""
    failure: str | None
    """Its `error.type`, where it has failed; the same holds for it."""

    def count_up(self) -> Cost:
        """Read what it says, if that was not done; return what it cost, if that is known."""
        ...


class Measures:
    """Turns events into measurements.

    Args:
        settings: which tenants and reasons are labels.
    """

    def __init__(self, settings: Settings) -> None:
        self.words = Words(settings)
        self._names = Names(settings.metric_profile)
        self.instruments: dict[str, Any] | None = None
        """The instruments by name; None until they are made."""
        self.late: list[tuple[Pending, Facts]] = []
        """Rounds whose cost is still to come."""
        self._sums: dict[Series, float] = {}
        self._facts: dict[tuple[Any, ...], Facts] = {}
        self._open_segments: set[str] = set()

    def add_up(self) -> None:
        """Give the counters what has come together."""
        sums, self._sums = self._sums, {}
        if self.instruments is not None:
            for series, amount in sums.items():
                self.instruments[series.name].add(amount, series.labels)

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
        facts = self._of(self.words.agent(agent))
        if not resumed:
            self._add(1, facts.series(instruments.RUNS_STARTED))
        if len(self._open_segments) < _SEGMENTS_KEPT:
            self._open_segments.add(agent.segment.id)
            self._add(1, facts.series(instruments.RUNS_ACTIVE))

    def run_ended(self, agent: Any, status: str, reason: str | None) -> None:
        """Count an ending; a run that waits (without a reason) is only inactive."""
        # A segment that is not known here began before a fork: it is the parent's to count.
        if agent.segment.id not in self._open_segments:
            return
        self._open_segments.discard(agent.segment.id)
        values = self.words.agent(agent)
        self._add(-1, self._of(values).series(instruments.RUNS_ACTIVE))
        if reason is not None:
            values = {
                **values,
                semconv.RUN_STATUS: status,
                semconv.RUN_TERMINATION_REASON: reason,
            }
            self._add(1, self._of(values).series(instruments.RUNS_ENDED))

    def round_ended(self, call: ModelCall) -> None:
        """Measure a model call that has ended."""
        words, route = self.words, call.route
        operation = call.request.operation or route.operation
        cost = call.count_up()
        ending, failure = call.ending, call.failure
        response, first_chunk_s = ending.response, ending.first_chunk_s
        values = words.agent(call.agent)
        values[semconv.OPERATION] = words.operation(operation)
        values[semconv.PROVIDER] = words.provider(route.provider or OTHER)
        values[semconv.REQUEST_MODEL] = words.request_model(call.request.model or route.model)
        values[semconv.RESPONSE_MODEL] = words.response_model(response.model)
        values[semconv.ERROR_TYPE] = words.error(failure)
        values[semconv.STREAM_OUTCOME] = words.stream_outcome(ending.outcome)
        facts = self._of(values)
        names = self._names.of(operation)
        spent_ns = call.ended_ns - call.start_ns
        self._record(max(0, spent_ns) / 1e9, facts.series(names.duration))
        if first_chunk_s is not None and names.first_chunk is not None:
            self._record(max(0.0, first_chunk_s), facts.series(names.first_chunk))
        self._count_attempts(call, failure, facts)
        if operation == "count_tokens":
            return
        if response.usage is not None:
            self._count_usage(response.usage, facts, names)
        elif operation in _USAGE_EXPECTED:
            self._add(1, facts.series(instruments.USAGE_ABSENT))
        if call.late is None:
            self._count_cost(cost, facts)
        elif len(self.late) < _LATE_KEPT:
            self.late.append((call.late, facts))

    def tool_ended(self, agent: Any, tool: str, outcome: str, spent_ns: int) -> None:
        """Measure a tool call."""
        values = self.words.agent(agent)
        values[semconv.TOOL_NAME] = self.words.tool(tool)
        values[semconv.TOOL_OUTCOME] = self.words.tool_outcome(outcome)
        series = self._of(values).series(instruments.TOOL_DURATION)
        self._record(max(0, spent_ns) / 1e9, series)

    def decided(
        self, agent: Any, gate: str, outcome: str, enforced: bool, reason: str | None
    ) -> None:
        """Count a decision."""
        values = self.words.agent(agent)
        values[semconv.DECISION_GATE] = self.words.gate(gate)
        values[semconv.DECISION_OUTCOME] = self.words.decision_outcome(outcome)
        values[semconv.DECISION_ENFORCED] = bool(enforced)
        values[semconv.DECISION_REASON] = self.words.reason(reason)
        self._add(1, self._of(values).series(instruments.DECISIONS))

    def fell_back(self, agent: Any, provider: str | None) -> None:
        """Count a move to the next provider."""
        values = self.words.agent(agent)
        values[semconv.PROVIDER] = self.words.provider(provider or OTHER)
        self._add(1, self._of(values).series(instruments.FALLBACKS))

    def budget(self, name: str, unit: str, limit: float | None, used: float) -> None:
        """Set how full a budget is."""
        labels = {
            semconv.BUDGET_NAME: self.words.budget(name),
            semconv.BUDGET_UNIT: self.words.budget_unit(unit),
        }
        if self.instruments is not None:
            if limit is not None:
                self.instruments[instruments.BUDGET_LIMIT].set(limit, labels)
            self.instruments[instruments.BUDGET_USED].set(used, labels)

    # --- measurements ----------------------------------------------------------------------------

    def _of(self, values: Labels) -> Facts:
        """Return the facts with these values, always the same object: sums come together."""
        key = (*values, *values.values())
        facts = self._facts.get(key)
        if facts is None:
            if len(self._facts) >= _FACTS_KEPT:
                self._facts.clear()
            facts = self._facts[key] = Facts(values)
        return facts

    def _add(self, amount: float, series: Series) -> None:
        self._sums[series] = self._sums.get(series, 0) + amount

    def _record(self, value: float, series: Series) -> None:
        if self.instruments is not None:
            self.instruments[series.name].record(value, series.labels)

    def _count_attempts(self, call: ModelCall, failure: str | None, facts: Facts) -> None:
        """Count HTTP requests, and the round.

        Where no logical call is known, every request of a retried call is a round of its own: a
        failed one is only an attempt then.
        """
        earlier = max(1, call.attempts) - 1
        if earlier:
            self._add(earlier, facts.series(instruments.ATTEMPTS, _FAILED))
        last = _OK if failure is None else _FAILED
        self._add(1, facts.series(instruments.ATTEMPTS, last))
        if call.counted and (call.grouped or failure is None):
            self._add(1, facts.series(instruments.ROUNDS))

    def _count_usage(self, usage: Usage, facts: Facts, names: CallNames) -> None:
        for field, kind, histogram_kind in _TOKENS:
            tokens = getattr(usage, field)
            if tokens is None:
                continue
            self._add(tokens, facts.series(instruments.TOKENS, kind))
            if histogram_kind is not None and names.tokens is not None:
                self._record(tokens, facts.series(names.tokens, histogram_kind))
        for name, tokens in names.distributions(usage):
            self._record(tokens, facts.series(name))
        for name, modality, tokens in names.counts(usage):
            self._add(tokens, facts.series(name, (semconv.TOKEN_MODALITY, modality)))

    def _count_cost(self, cost: Cost, facts: Facts) -> None:
        if cost.usd is not None:
            status = (semconv.COST_STATUS, cost.status)
            self._add(cost.usd, facts.series(instruments.COST, status))
        elif cost.status == "unpriced":
            self._add(1, facts.series(instruments.COST_UNPRICED))
