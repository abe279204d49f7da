"""Metrics of every run, round, tool call and decision, whether or not its trace is sampled.

The caller's path appends one tuple to a deque, without a lock. Labels, sums and the calls of
OpenTelemetry's instruments happen on the export thread (and on the metric reader's, before it
collects), one `add` for all events with the same labels.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from opentelemetry.metrics import Observation

from clew import semconv
from clew._guard import guard, logger, record_failure
from clew.facts import CALL_OPERATIONS, ROUND_OPERATIONS, ResponseFacts
from clew.pipeline import instruments, runtime
from clew.pipeline.labels import Labels, Words
from clew.pricing import Cost

if TYPE_CHECKING:
    from collections import Counter

    from clew.pipeline.exporters import Fanout
    from clew.pipeline.filter import Filter
    from clew.pipeline.runtime import Runtime

_KEPT = 100_000
"""Events that wait at the most (a drain is due every second)."""
_LATE_KEPT = 10_000
_USAGE_EXPECTED = ROUND_OPERATIONS | CALL_OPERATIONS
_TOKENS = (
    ("input", "input_tokens"),
    ("output", "output_tokens"),
    ("cache_read", "cache_read_tokens"),
    ("cache_write", "cache_write_tokens"),
    ("reasoning", "reasoning_tokens"),
)


class Meters(Protocol):
    """Where the instruments live (see `clew.pipeline.meters`)."""

    def open(self, drain: Any) -> Any:
        """Return a meter; start what collects from it, which calls `drain` before it does."""
        ...

    def forked(self) -> bool:
        """Let go of the parent's threads; tell whether a new meter must be opened."""
        ...

    def begin_close(self, deadline: float) -> None:
        """Begin the last collection, if there is a thread that can do it."""
        ...

    def end_close(self, deadline: float) -> bool:
        """End it before the monotonic time `deadline`; tell whether that was in time."""
        ...


class Metrics:
    """Counts what happens. The methods of the caller's path never block and never raise.

    Args:
        started: the runtime that is measured.
        meters: where the instruments live.
        filter_: counts what the allow-list kept out.
        fanout: counts what was not exported.
    """

    def __init__(
        self, started: Runtime, meters: Meters, *, filter_: Filter, fanout: Fanout
    ) -> None:
        self._runtime = started
        self._meters = meters
        self._filter = filter_
        self._fanout = fanout
        self._words = Words(started.settings)
        self._events: deque[tuple[Any, ...]] = deque()
        self.lost = 0
        """Events that were dropped because nobody drained."""
        self._asleep = False
        self._sums: dict[tuple[str, tuple[tuple[str, Any], ...]], float] = {}
        self._open_segments: set[str] = set()
        self._late: list[tuple[Any, Labels]] = []
        self._before: dict[str, int] = {}
        self._privacy_before: dict[str, int] = {}
        self._instruments: dict[str, Any] | None = None
        self._lock = threading.Lock()
        self._last_turn = threading.Event()
        self._deadline: float | None = None
        if hasattr(os, "register_at_fork"):
            me: weakref.ref[Metrics] = weakref.ref(self)
            os.register_at_fork(after_in_child=lambda: _after_fork(me))

    def start(self) -> None:
        """Open the instruments, and let the export thread drain the events."""
        with self._lock:
            self._open()
        self._runtime.worker.chores.append(self.drain)
        self._runtime.worker.last_chores.append(self._last_turn.set)

    # --- the caller's path -----------------------------------------------------------------------

    def _put(self, event: tuple[Any, ...]) -> None:
        if len(self._events) >= _KEPT:
            self.lost += 1
            return
        self._events.append(event)
        if self._asleep:
            self._asleep = False
            self._runtime.worker.start()

    def run_began(self, agent: Any, *, resumed: bool) -> None:
        """A run was started, or resumed."""
        self._put((Metrics._run_began, agent, resumed))

    def run_ended(self, agent: Any, status: str, reason: str | None) -> None:
        """A segment of a run has ended; the run has, unless it waits."""
        self._put((Metrics._run_ended, agent, status, reason))

    def round_ended(self, call: Any, ending: Any, cost: Cost, failure: str | None) -> None:
        """A round or call has ended.

        Args:
            call: the `clew.rounds.Round`.
            ending: its `clew.rounds.Ending`.
            cost: what it cost, unless its price is still to come.
            failure: its `error.type`.
        """
        spent = (ending.end_ns or call.now_ns()) - call.start_ns
        self._put(
            (
                Metrics._round_ended,
                call,
                ending.response,
                (ending.outcome, failure),
                cost,
                spent,
                ending.first_chunk_s,
            )
        )

    def tool_ended(self, agent: Any, tool: str, outcome: str, spent_ns: int) -> None:
        """A tool call has ended; `tool` is a name given in code, or `_OTHER`."""
        self._put((Metrics._tool_ended, agent, tool, outcome, spent_ns))

    def decided(
        self, agent: Any, gate: str, outcome: str, enforced: bool, reason: str | None
    ) -> None:
        """A gate has decided."""
        self._put((Metrics._decided, agent, gate, outcome, enforced, reason))

    def fell_back(self, agent: Any, provider: str | None) -> None:
        """A round went on to the next provider, because `provider` failed."""
        self._put((Metrics._fell_back, agent, provider))

    def budget(self, name: str, unit: str, *, limit: float | None, used: float) -> None:
        """Tell how full a budget is.

        Args:
            name: the budget's name, from the configuration.
            unit: `usd`, `tokens`, `rounds`, `tool_calls` or `seconds`.
            limit: its limit; None when it has none.
            used: what was used of it.
        """
        self._put((Metrics._budget, name, unit, limit, used))

    # --- draining, under the lock ----------------------------------------------------------------

    def drain(self, patience: float = 0.0) -> None:
        """Turn the events until now into measurements; wait for late prices, if there are any."""
        with self._lock:
            if self._instruments is None:
                self._open()
            events = self._events
            for _ in range(len(events)):
                handle, *facts = events.popleft()
                try:
                    handle(self, *facts)
                except Exception:
                    record_failure("measure an event")
            if self._late and self._runtime.prices.wait(patience):
                self._settle_late()
            sums, self._sums = self._sums, {}
            for (name, labels), amount in sums.items():
                self._instrument(name).add(amount, dict(labels))

    def _open(self) -> None:
        """Create the instruments; in a forked child, once more."""
        meter = self._meters.open(self._drain_for_reader)
        self._instruments = instruments.create(meter, _CALLBACKS)

    def _drain_for_reader(self) -> None:
        """Drain before a collection; the last one waits for the export thread's last turn."""
        patience = 0.0
        if self._deadline is not None:
            left = self._deadline - time.monotonic()
            self._last_turn.wait(max(0.0, min(1.0, left / 4)))
            patience = max(0.0, left / 2)
        with guard("measure what happened"):
            self.drain(patience)

    def _instrument(self, name: str) -> Any:
        return {} if self._instruments is None else self._instruments[name]

    def _add(self, name: str, amount: float, facts: Mapping[str, Any]) -> None:
        key = (name, _labels(name, facts))
        self._sums[key] = self._sums.get(key, 0) + amount

    def _record(self, name: str, value: float, facts: Mapping[str, Any]) -> None:
        self._instrument(name).record(value, dict(_labels(name, facts)))

    def _run_began(self, agent: Any, resumed: bool) -> None:
        facts = self._words.agent(agent)
        if not resumed:
            self._add(instruments.RUNS_STARTED, 1, facts)
        if len(self._open_segments) < _KEPT:
            self._open_segments.add(agent.segment.id)
            self._add(instruments.RUNS_ACTIVE, 1, facts)

    def _run_ended(self, agent: Any, status: str, reason: str | None) -> None:
        # A segment that is not known here began before a fork: it is the parent's to count.
        if agent.segment.id not in self._open_segments:
            return
        self._open_segments.discard(agent.segment.id)
        facts = self._words.agent(agent)
        self._add(instruments.RUNS_ACTIVE, -1, facts)
        if reason is not None:
            facts[semconv.RUN_STATUS] = status
            facts[semconv.RUN_TERMINATION_REASON] = reason
            self._add(instruments.RUNS_ENDED, 1, facts)

    def _round_ended(
        self,
        call: Any,
        response: ResponseFacts,
        end: tuple[str | None, str | None],
        cost: Cost,
        spent_ns: int,
        first_chunk_s: float | None,
    ) -> None:
        words, route = self._words, call.route
        outcome, failure = end
        facts = words.agent(call.agent)
        facts[semconv.OPERATION] = words.operation(route.operation)
        facts[semconv.PROVIDER] = words.provider(route.provider or "_OTHER")
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
        elif len(self._late) < _LATE_KEPT:
            self._late.append((call.late, facts))

    def _count_attempts(self, call: Any, failure: str | None, facts: Labels) -> None:
        """Count HTTP requests, and the round.

        Where no logical call is known, every request of a retried call is a round of its own: a
        failed one is only an attempt then.
        """
        earlier = max(1, call.attempts) - 1
        if earlier:
            self._add(instruments.ATTEMPTS, earlier, {**facts, semconv.ATTEMPT_OUTCOME: "failed"})
        last = "ok" if failure is None else "failed"
        self._add(instruments.ATTEMPTS, 1, {**facts, semconv.ATTEMPT_OUTCOME: last})
        if call.counted and (call.grouped or failure is None):
            self._add(instruments.ROUNDS, 1, facts)

    def _count_usage(self, usage: Any, facts: Labels) -> None:
        for kind, field in _TOKENS:
            tokens = getattr(usage, field)
            if tokens is None:
                continue
            self._add(instruments.TOKENS, tokens, {**facts, semconv.METRIC_TOKEN_TYPE: kind})
            if kind in ("input", "output"):
                self._record(instruments.TOKEN_USAGE, tokens, {**facts, semconv.TOKEN_TYPE: kind})

    def _count_cost(self, cost: Cost, facts: Labels) -> None:
        if cost.usd is not None:
            self._add(instruments.COST, cost.usd, {**facts, semconv.COST_STATUS: cost.status})
        elif cost.status == "unpriced":
            self._add(instruments.COST_UNPRICED, 1, facts)

    def _settle_late(self) -> None:
        """Count the costs of rounds that ended before the prices were loaded."""
        late, self._late = self._late, []
        for pending, facts in late:
            if self._runtime.late.settle(pending) and pending.cost is not None:
                self._count_cost(pending.cost, facts)

    def _tool_ended(self, agent: Any, tool: str, outcome: str, spent_ns: int) -> None:
        facts = self._words.agent(agent)
        facts[semconv.TOOL_NAME] = self._words.tool(tool)
        facts[semconv.TOOL_OUTCOME] = self._words.tool_outcome(outcome)
        self._record(instruments.TOOL_DURATION, max(0, spent_ns) / 1e9, facts)

    def _decided(
        self, agent: Any, gate: str, outcome: str, enforced: bool, reason: str | None
    ) -> None:
        facts = self._words.agent(agent)
        facts[semconv.DECISION_GATE] = self._words.gate(gate)
        facts[semconv.DECISION_OUTCOME] = self._words.decision_outcome(outcome)
        facts[semconv.DECISION_ENFORCED] = bool(enforced)
        facts[semconv.DECISION_REASON] = self._words.reason(reason)
        self._add(instruments.DECISIONS, 1, facts)

    def _fell_back(self, agent: Any, provider: str | None) -> None:
        facts = self._words.agent(agent)
        facts[semconv.PROVIDER] = self._words.provider(provider or "_OTHER")
        self._add(instruments.FALLBACKS, 1, facts)

    def _budget(self, name: str, unit: str, limit: float | None, used: float) -> None:
        facts = {
            semconv.BUDGET_NAME: self._words.budget(name),
            semconv.BUDGET_UNIT: self._words.budget_unit(unit),
        }
        if limit is not None:
            self._instrument(instruments.BUDGET_LIMIT).set(limit, facts)
        self._instrument(instruments.BUDGET_USED).set(used, facts)

    # --- what is asked for, not told ---------------------------------------------------------------

    def pipeline(self, name: str) -> Iterable[Observation]:
        """Return how many spans (and events of metrics) wait, were dropped, or were not sent."""
        worker = self._runtime.worker
        values = {
            instruments.PIPELINE_QUEUED: (worker.waiting(), len(self._events)),
            instruments.PIPELINE_DROPPED: (worker.dropped, self.lost),
            instruments.PIPELINE_FAILED: (self._fanout.failed, None),
        }
        for signal, value in zip(("spans", "metrics"), values[name], strict=True):
            if value is not None:
                value -= self._before.get(f"{name} {signal}", 0)
                yield Observation(value, {semconv.PIPELINE_SIGNAL: signal})

    def privacy(self) -> Iterable[Observation]:
        """Return how many values the allow-list kept out, by rule."""
        for rule, count in _copy(self._filter.dropped).items():
            label = {semconv.PRIVACY_RULE: self._words.rule(rule)}
            yield Observation(count - self._privacy_before.get(rule, 0), label)

    # --- the end, and a fork -----------------------------------------------------------------------

    def begin_close(self, deadline: float) -> None:
        """Begin the last collection, beside the last export of spans."""
        self._deadline = deadline
        with guard("close the metrics"):
            self._meters.begin_close(deadline)

    def end_close(self, deadline: float) -> None:
        """Collect and export for the last time, before the monotonic time `deadline`."""
        self._last_turn.set()
        with guard("close the metrics"):
            if not self._meters.end_close(deadline):
                logger.warning("Clew has lost its last metrics: they were not exported in time")

    def reset_after_fork(self) -> None:
        """Start from zero in a forked child: what was counted is the parent's."""
        self._lock = threading.Lock()
        self._last_turn = threading.Event()
        self._events.clear()
        self._sums.clear()
        self._late.clear()
        self._open_segments.clear()
        self._asleep = True
        worker = self._runtime.worker
        self._before = {
            f"{instruments.PIPELINE_DROPPED} spans": worker.dropped,
            f"{instruments.PIPELINE_DROPPED} metrics": self.lost,
            f"{instruments.PIPELINE_FAILED} spans": self._fanout.failed,
        }
        self._privacy_before = _copy(self._filter.dropped)
        if self._meters.forked():
            self._instruments = None


def _labels(name: str, facts: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    """Return the labels that an instrument may have, and no others."""
    keys = instruments.INSTRUMENTS[name].labels
    return tuple((key, facts[key]) for key in keys if facts.get(key) is not None)


def _copy(counter: Counter[str]) -> dict[str, int]:
    """Copy a counter that another thread may be changing."""
    return dict(counter)


def _current() -> Metrics | None:
    started = runtime.get()
    return started.metrics if started is not None else None


def _pipeline(name: str) -> Any:
    def observe(_: Any) -> Iterable[Observation]:
        metrics = _current()
        return [] if metrics is None else list(metrics.pipeline(name))

    return observe


def _privacy(_: Any) -> Iterable[Observation]:
    metrics = _current()
    return [] if metrics is None else list(metrics.privacy())


# An instrument that exists already keeps its callbacks, so they look for the metrics of today.
_CALLBACKS = {
    instruments.PIPELINE_QUEUED: _pipeline(instruments.PIPELINE_QUEUED),
    instruments.PIPELINE_DROPPED: _pipeline(instruments.PIPELINE_DROPPED),
    instruments.PIPELINE_FAILED: _pipeline(instruments.PIPELINE_FAILED),
    instruments.PRIVACY_DROPPED: _privacy,
}


def _after_fork(reference: weakref.ref[Metrics]) -> None:
    metrics = reference()
    if metrics is not None:
        with guard("reset the metrics after a fork"):
            metrics.reset_after_fork()
