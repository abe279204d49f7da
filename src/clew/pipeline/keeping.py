"""Keep rules: a run that is sampled out is recorded all the same, and kept if it matters.

Its spans wait in a bounded buffer. A denial, a request for an approval, an error, a tool call that
writes, or a cost above a bound releases them all, in order, and those still to come; otherwise they
are forgotten when the run is sealed. A span that ends after that is released only if its run was,
or if it matters itself. What is no run (a call on its own) is decided on when its outermost span
ends.
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
_REMEMBERED: Final = 16_384
"""Traces that are kept, whose further spans are known to belong to them."""


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
        self._held: OrderedDict[int, list[LightSpan]] = OrderedDict()
        """The spans that wait, by trace."""
        self._kept: OrderedDict[int, None] = OrderedDict()
        """The traces that are kept, the latest last."""
        self._size = 0
        self._lock = threading.Lock()
        self.overflowed = 0
        """Spans that were given up because too many waited."""

    def begin(self, trace_id: int) -> None:
        """Take note of a run that is sampled out."""
        with self._lock:
            if trace_id not in self._kept:
                self._held.setdefault(trace_id, [])

    def knows(self, trace_id: int) -> bool:
        """Tell whether a run is one of those that are held or kept."""
        return trace_id in self._held or trace_id in self._kept

    def finish(self, span: LightSpan) -> None:
        """Take a span that has ended."""
        trace_id = span.trace_part().trace_id
        attributes: Any = span._attributes
        over = self._is_last(span, attributes, trace_id)
        matters = self._matters(span, attributes, trace_id)
        released: list[LightSpan] = []
        with self._lock:
            waiting = self._held.get(trace_id)
            if waiting is None:
                if trace_id in self._kept:
                    self._kept.move_to_end(trace_id)
                    released = [span]
                elif matters:
                    released = [span]
            else:
                waiting.append(span)
                self._size += 1
                if matters:
                    released = waiting
                    self._size -= len(waiting)
                    del self._held[trace_id]
                    self._keep(trace_id)
                elif over:
                    self._size -= len(self._held.pop(trace_id))
                elif self._size > self._most:
                    self._give_up()
        for each in released:
            self._release(each)

    def _is_last(self, span: LightSpan, attributes: Any, trace_id: int) -> bool:
        """Tell whether nothing is to come of what a span belongs to."""
        if attributes.get(semconv.RUN_EVENT) == "sealed":
            later = self._segments.of_trace(trace_id)
            return later is None or later.id == attributes.get(semconv.SEGMENT_ID)
        return span.parent is None and semconv.RUN_ROOT not in attributes

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

    def _keep(self, trace_id: int) -> None:
        """Take note that a trace is kept."""
        self._kept[trace_id] = None
        if len(self._kept) > _REMEMBERED:
            self._kept.popitem(last=False)

    def _give_up(self) -> None:
        """Forget what waits of the run that began first; it is the last to be looked at again."""
        for trace_id, waiting in self._held.items():
            if waiting:
                self._size -= len(waiting)
                self.overflowed += len(waiting)
                for span in waiting:
                    span.let_go()
                waiting.clear()
                self._held.move_to_end(trace_id)
                return

    def clear(self) -> None:
        """Forget everything (in a forked child: the runs belong to the parent)."""
        self._lock = threading.Lock()
        self._held.clear()
        self._kept.clear()
        self._size = 0
