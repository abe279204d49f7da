"""Marks of a segment: heartbeats while it goes on, and the seal, the last word about its spans."""

from __future__ import annotations

import time
from copy import copy
from typing import Any

from msgspec import structs
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Span

from clew import semconv
from clew.pipeline.late import totals_attributes
from clew.pipeline.light import LightSpan
from clew.pipeline.runtime import Runtime
from clew.pipeline.stamp import Segment
from clew.pipeline.totals import Totals
from clew.spans import Agent, Node, identifier, put

_LOOKS = 4
"""How often in the time between two heartbeats it is looked for those that are due."""


class TotalsAtEnd:
    """The totals of a segment at one moment, read when somebody looks at their span."""

    __slots__ = ("_before", "_runtime", "_segment", "_span_id", "_totals")

    def __init__(self, runtime: Runtime, segment: Segment, span_id: int) -> None:
        self._runtime = runtime
        self._segment = segment
        self._span_id = span_id
        with segment.lock:
            self._before = self._totals = copy(segment.totals)
            segment.uncounted.append(self)

    def count(self, totals: Totals) -> None:
        """Take the totals: all that ended before that moment is in them, and nothing after it."""
        before, segment = self._before, self._segment
        self._totals = structs.replace(
            totals,
            rounds=before.rounds,
            tool_calls=before.tool_calls,
            decisions=before.decisions,
            denials=before.denials,
            rounds_without_usage=totals.rounds_without_usage - (totals.rounds - before.rounds),
        )
        late = self._runtime.late
        if segment.pending and [one for one in segment.pending if not late.settle(one)]:
            late.add_run(self._span_id, segment)

    def count_up(self) -> None:
        """Count what has ended until now."""
        self._segment.count_up()

    def describe(self, attributes: dict[str, Any]) -> None:
        """Add them."""
        self.count_up()
        attributes.update(totals_attributes(self._segment, self._totals))


def add_totals(attributes: dict[str, Any], runtime: Runtime, span: Span, segment: Segment) -> None:
    """Add the totals until now to a span that is about to end: off the caller's path, if it can."""
    totals = TotalsAtEnd(runtime, segment, span.get_span_context().span_id)
    if type(span) is LightSpan:
        span.describer = totals
    else:
        totals.describe(attributes)


def mark_started(
    runtime: Runtime, agent_name: str, agent: Agent, inner: Context, previous: str | None
) -> None:
    """Export a zero-length span at once, so that a run whose process dies is visible.

    Args:
        runtime: the runtime.
        agent_name: the run's agent.
        agent: the same in its segment.
        inner: the context in which the run's work belongs.
        previous: the id of the segment before this one, where there is one.
    """
    mark = Node()
    mark.agent = agent
    name = identifier(agent_name, semconv.AGENT_NAME, "agent name")
    attributes: dict[str, Any] = {
        semconv.RUN_EVENT: "started",
        semconv.RUN_STATUS: "running",
        semconv.AGENT_NAME: name,
    }
    if previous is not None:
        attributes[semconv.SEGMENT_PREVIOUS_ID] = previous
    mark._begin_with(runtime, f"run_started {name}", attributes, parent=inner)
    mark._end_with({}, end_ns=mark.start_ns)


def beat_from_now_on(runtime: Runtime, agent_name: str, span: Span, agent: Agent) -> None:
    """Export a mark with the totals so far from time to time, until the run has ended."""
    if not runtime.settings.heartbeat_s:
        return
    segment = agent.segment
    segment.beats = (agent_name, span.get_span_context(), agent)
    segment.beat_at = time.monotonic()
    if not runtime.beating:
        runtime.beating = True
        _look_later(runtime)


def _look_later(runtime: Runtime) -> None:
    def look() -> None:
        now = time.monotonic()
        going = [each for each in runtime.segments.opened() if each.beats is not None]
        runtime.beating = bool(going)
        for segment in going:
            if now - segment.beat_at >= runtime.settings.heartbeat_s:
                segment.beat_at = now
                _beat(runtime, segment)
        if going:
            _look_later(runtime)

    runtime.worker.call_later(runtime.settings.heartbeat_s / _LOOKS, look)


def _beat(runtime: Runtime, segment: Segment) -> None:
    beats = segment.beats
    if beats is None:
        return
    agent_name, root, agent = beats
    name = identifier(agent_name, semconv.AGENT_NAME, "agent name")
    mark = Node()
    mark.agent = agent
    attributes = {
        **totals_attributes(segment, segment.sums()),
        semconv.RUN_EVENT: "heartbeat",
        semconv.RUN_STATUS: "running",
        semconv.AGENT_NAME: name,
    }
    parent = trace.set_span_in_context(trace.NonRecordingSpan(root), Context())
    mark._begin_with(runtime, f"run_heartbeat {name}", attributes, parent=parent)
    mark._end_with({}, end_ns=mark.start_ns)


def seal_later(runtime: Runtime, agent_name: str, span: Span, agent: Agent) -> None:
    """Seal the segment after a grace for late spans; at shutdown at once."""
    segment = agent.segment
    segment.beats = None
    root = span.get_span_context()
    name = identifier(agent_name, semconv.AGENT_NAME, "agent name")

    def seal() -> None:
        if segment.sealed:
            return
        segment.sealed = True
        spans = segment.last_seq
        still_open = tuple(segment.open_seqs)
        mark = Node()
        mark.agent = agent
        parent = trace.set_span_in_context(trace.NonRecordingSpan(root), Context())
        attributes: dict[str, Any] = {semconv.RUN_EVENT: "sealed", semconv.AGENT_NAME: name}
        attributes[semconv.SEAL_SPANS] = spans - len(still_open)
        attributes[semconv.SEAL_LAST_SEQ] = spans
        put(attributes, semconv.SEAL_OPEN_SEQS, still_open)
        mark._begin_with(runtime, f"run_sealed {name}", attributes, parent=parent)
        totals: dict[str, Any] = {}
        add_totals(totals, runtime, mark.span, segment)
        mark._end_with(totals, end_ns=mark.start_ns)
        runtime.segments.close(segment)

    runtime.worker.call_later(runtime.settings.seal_grace_s, seal, at_shutdown=True)
