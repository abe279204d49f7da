"""Keep rules: a run that is sampled out is recorded all the same, and kept if it matters.

Its spans wait in a bounded buffer. A denial, a request for an approval, an error, a tool call that
writes, or a cost above a bound releases them all, in order, and those still to come; otherwise they
are forgotten when the run is sealed.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Final

from opentelemetry.trace import StatusCode

from clew import semconv
from clew.pipeline.light import LightSpan
from clew.pipeline.stamp import Segments

KEEP_RULES: Final = ("deny", "require_approval", "error", "write")
_ERROR: Final = StatusCode.ERROR


class Keeper:
    """Holds the spans of runs that are sampled out.

    Args:
        rules: which of `KEEP_RULES` are in force.
        above_usd: runs are kept whose cost so far is above this; None: for no cost.
        most: spans that are held at the most. When there are more, the run that began first is
            given up: it is counted, and if it is kept later it is not whole.
        release: takes each span that is kept.
        segments: the open segments, for their costs.
    """

    def __init__(
        self,
        rules: frozenset[str],
        above_usd: float | None,
        most: int,
        release: Callable[[LightSpan], None],
        segments: Segments,
    ) -> None:
        self._outcomes = rules & {"deny", "require_approval"}
        self._errors = "error" in rules
        self._writes = "write" in rules
        self._above = above_usd
        self._most = most
        self._release = release
        self._segments = segments
        self._held: OrderedDict[int, list[LightSpan] | None] = OrderedDict()
        """The spans that wait, by trace; None for a run that is kept."""
        self._size = 0
        self._lock = threading.Lock()
        self.overflowed = 0
        """Spans that were given up because too many waited."""

    def begin(self, trace_id: int) -> None:
        """Take note of a run that is sampled out."""
        with self._lock:
            self._held.setdefault(trace_id, [])

    def knows(self, trace_id: int) -> bool:
        """Tell whether a run is one of those that are held or kept."""
        return trace_id in self._held

    def finish(self, span: LightSpan) -> None:
        """Take a span that has ended."""
        trace_id = span.get_span_context().trace_id
        attributes: Any = span._attributes
        sealed = attributes.get(semconv.RUN_EVENT) == "sealed"
        matters = self._matters(span, attributes, trace_id)
        with self._lock:
            waiting = self._held.get(trace_id)
            if waiting is None:
                released = [span]
            else:
                waiting.append(span)
                self._size += 1
                released = waiting if matters else []
                if matters:
                    self._size -= len(waiting)
                    self._held[trace_id] = None
                elif self._size > self._most:
                    self._give_up()
            if sealed:
                self._size -= len(self._held.pop(trace_id, None) or ())
        for each in released:
            self._release(each)

    def _matters(self, span: LightSpan, attributes: Any, trace_id: int) -> bool:
        if self._outcomes and attributes.get(semconv.DECISION_OUTCOME) in self._outcomes:
            return True
        if self._errors and span._status.status_code is _ERROR:
            return True
        if self._writes:
            effect = attributes.get(semconv.TOOL_EFFECT)
            if effect is not None and effect != "read_only":
                return True
        if self._above is not None:
            segment = self._segments.of_trace(trace_id)
            if segment is not None and (segment.cumulative().cost_usd or 0) > self._above:
                return True
        return False

    def _give_up(self) -> None:
        """Forget what waits of the run that began first."""
        for waiting in self._held.values():
            if waiting:
                self._size -= len(waiting)
                self.overflowed += len(waiting)
                waiting.clear()
                return

    def clear(self) -> None:
        """Forget everything (in a forked child: the runs belong to the parent)."""
        self._lock = threading.Lock()
        self._held.clear()
        self._size = 0
