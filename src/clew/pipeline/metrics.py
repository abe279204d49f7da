"""Metrics of every run, round, tool call and decision, whether or not its trace is sampled.

The caller's path appends one tuple to a deque, without a lock. Labels, sums and the calls of
OpenTelemetry's instruments happen on the export thread, and on a metric reader's thread before it
collects.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Protocol

from opentelemetry.metrics import Observation

from clew import semconv
from clew._forks import in_each_child
from clew._guard import guard, logger, record_failure
from clew.pipeline import instruments, runtime
from clew.pipeline.measures import Measures

if TYPE_CHECKING:
    from clew.pipeline.exporters import Fanout
    from clew.pipeline.filter import Filter
    from clew.pipeline.runtime import Runtime

_KEPT = 50_000
"""Events that wait at the most."""
_MANY = _KEPT // 5
"""Events at which the export thread is woken to drain them, before its delay is over."""


class Meters(Protocol):
    """Where the instruments live (see `clew.pipeline.meters`)."""

    def open(self, drain: Callable[[], None]) -> Any:
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
        self._measures = Measures(started.settings)
        self._events: deque[tuple[Any, ...]] = deque()
        self.lost = 0
        """Events that were dropped because nobody drained."""
        self._asleep = False
        self._inherited: dict[tuple[str, str], int] = {}
        """What the parent had counted, in a forked child."""
        self._lock = threading.Lock()
        self._last_turn = threading.Event()
        self._deadline: float | None = None
        in_each_child(self, _after_fork)

    def start(self) -> None:
        """Open the instruments, and let the export thread drain the events."""
        with self._lock:
            self._open()
        self._runtime.worker.each_turn(self.drain)
        self._runtime.worker.last_chores.append(self._turned)

    def _turned(self) -> None:
        # Not the event's own method: a forked child has another event.
        self._last_turn.set()

    # --- the caller's path -----------------------------------------------------------------------

    def _put(self, event: tuple[Any, ...]) -> None:
        waiting = len(self._events)
        if waiting >= _KEPT:
            self.lost += 1
            return
        self._events.append(event)
        if waiting and not waiting % _MANY:
            self._runtime.worker.wake()
        if self._asleep:
            self._asleep = False
            self._runtime.worker.start()

    def run_began(self, agent: Any, *, resumed: bool) -> None:
        """A run was started, or resumed."""
        self._put((Measures.run_began, agent, resumed))

    def run_ended(self, agent: Any, status: str, reason: str | None) -> None:
        """A segment of a run has ended; the run has, unless it waits (then without a reason)."""
        self._put((Measures.run_ended, agent, status, reason))

    def round_ended(self, call: Any) -> None:
        """A round or call (`clew.rounds.Round`) has ended."""
        self._put((Measures.round_ended, call))

    def tool_ended(self, agent: Any, tool: str, outcome: str, spent_ns: int) -> None:
        """A tool call has ended; `tool` is a name given in code, or `_OTHER`."""
        self._put((Measures.tool_ended, agent, tool, outcome, spent_ns))

    def decided(
        self, agent: Any, gate: str, outcome: str, enforced: bool, reason: str | None
    ) -> None:
        """A gate has decided."""
        self._put((Measures.decided, agent, gate, outcome, enforced, reason))

    def fell_back(self, agent: Any, provider: str | None) -> None:
        """A round went on to the next provider, because `provider` failed."""
        self._put((Measures.fell_back, agent, provider))

    def budget(self, name: str, unit: str, *, limit: float | None, used: float) -> None:
        """Tell how full a budget is.

        Args:
            name: the budget's name, from the configuration.
            unit: `usd`, `tokens`, `rounds`, `tool_calls` or `seconds`.
            limit: its limit; None when it has none.
            used: what was used of it.
        """
        self._put((Measures.budget, name, unit, limit, used))

    # --- draining --------------------------------------------------------------------------------

    def drain(self) -> None:
        """Turn the events until now into measurements."""
        with self._lock:
            measures, events = self._measures, self._events
            if measures.instruments is None:
                self._open()
            for _ in range(len(events)):
                measure, *facts = events.popleft()
                try:
                    measure(measures, *facts)
                except Exception:
                    record_failure("measure an event")
            if measures.late and self._runtime.prices.wait(0):
                measures.settle_late(self._runtime.late)
            measures.add_up()

    def _open(self) -> None:
        """Create the instruments; in a forked child, once more."""
        self._last_turn = threading.Event()
        meter = self._meters.open(self._drain_for_reader)
        self._measures.instruments = instruments.create(
            meter, _CALLBACKS, self._runtime.settings.metric_profile
        )

    def _drain_for_reader(self) -> None:
        """Drain before a collection.

        The last one waits for the export thread's last turn, and for prices that are loading.
        """
        deadline = self._deadline
        with guard("measure what happened"):
            if deadline is not None:
                left = deadline - time.monotonic()
                self._last_turn.wait(max(0.0, min(1.0, left / 4)))
            self.drain()
            if deadline is not None and self._measures.late:
                left = deadline - time.monotonic()
                self._runtime.prices.wait(max(0.0, left / 2))
                self.drain()

    # --- what is asked for, not told -------------------------------------------------------------

    def _totals(self) -> dict[tuple[str, str], int]:
        """Return what only ever grows: by metric and signal or rule."""
        dropped, failed = instruments.PIPELINE_DROPPED, instruments.PIPELINE_FAILED
        keeper = self._runtime.keeper
        given_up = 0 if keeper is None else keeper.overflowed
        totals = {
            (dropped, "spans"): self._runtime.worker.dropped + given_up,
            (dropped, "metrics"): self.lost,
            (failed, "spans"): self._fanout.failed,
        }
        recording = self._runtime.recording
        lost = None if recording is None else recording.lost()
        if lost is not None:
            totals[dropped, "records"], totals[failed, "records"] = lost
        # The export thread may be counting: `dict` copies at once.
        for rule, count in dict(self._filter.dropped).items():
            totals[instruments.PRIVACY_DROPPED, rule] = count
        return totals

    def observe(self, name: str) -> Iterable[Observation]:
        """Return the values of an observable instrument."""
        if name == instruments.PIPELINE_QUEUED:
            waiting = {"spans": self._runtime.worker.waiting(), "metrics": len(self._events)}
            for signal, count in waiting.items():
                yield Observation(count, {semconv.PIPELINE_SIGNAL: signal})
            return
        for key, count in self._totals().items():
            metric, what = key
            if metric == name:
                if name == instruments.PRIVACY_DROPPED:
                    label = {semconv.PRIVACY_RULE: self._measures.words.rule(what) or "_OTHER"}
                else:
                    label = {semconv.PIPELINE_SIGNAL: what}
                yield Observation(count - self._inherited.get(key, 0), label)

    # --- the end, and a fork ---------------------------------------------------------------------

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
        self._measures.forget()
        self._inherited = self._totals()
        self._asleep = True
        if self._meters.forked():
            self._measures.instruments = None


def _callback(name: str) -> Callable[[Any], Iterable[Observation]]:
    def observe(_: Any) -> Iterable[Observation]:
        # An instrument that exists already keeps its callback: look for the metrics of today.
        started = runtime.get()
        if started is None or started.metrics is None:
            return []
        return list(started.metrics.observe(name))

    return observe


_CALLBACKS = {
    name: _callback(name)
    for name, one in instruments.INSTRUMENTS.items()
    if one.kind.startswith("observable")
}


def _after_fork(metrics: Metrics) -> None:
    with guard("reset the metrics after a fork"):
        metrics.reset_after_fork()
