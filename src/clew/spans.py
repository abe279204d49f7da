"""The life of a span of ours: started on enter, finished exactly once.

`Node` is the one lifecycle class; runs, rounds, tool calls and decisions are nodes.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, cast

from opentelemetry.context import Context
from opentelemetry.trace import INVALID_SPAN, Link, Span, SpanKind, StatusCode

from clew import context, semconv
from clew._guard import record_failure, warn_once
from clew.levels import METADATA, NONE, NOT_AT_NONE, name_of
from clew.pipeline.asked import AskedCalls
from clew.pipeline.light import LightSpan
from clew.pipeline.runtime import Journaling, Runtime
from clew.pipeline.stamp import Segment
from clew.rules import DROPPED, OTHER, Identifier

if TYPE_CHECKING:
    from clew.dialects.conversation import Conversation
    from clew.runs import Run

_CALLS_REMEMBERED = 1024
_rules = semconv.RULES
_names: dict[str, dict[str, None]] = {
    key: rule.known for key, rule in _rules.items() if type(rule) is Identifier
}
"""Identifiers that were seen before, by key."""


def error_type(error: BaseException) -> str:
    """Return the qualified name of an exception's class (a builtin's bare name), never its text."""
    kind = type(error)
    module = kind.__module__
    name = kind.__qualname__ if module == "builtins" else f"{module}.{kind.__qualname__}"
    kept = semconv.RULES[semconv.ERROR_TYPE].apply(name)
    return OTHER if kept is DROPPED else kept


class Terminated(asyncio.CancelledError):
    """Stands for the end of the process in spans that were open; it is never raised."""


Terminated.__module__ = "clew"  # `error.type` is `clew.Terminated`


def is_cancellation(error: BaseException) -> bool:
    """Tell whether an exception means that somebody stopped the work, not that it failed."""
    return isinstance(error, (asyncio.CancelledError, KeyboardInterrupt, GeneratorExit))


def ungrouped(error: BaseException | None) -> BaseException | None:
    """Return the one error, or the first of one type only, that task groups made a group of."""
    leaves: list[BaseException | None] = []
    waiting = [error]
    while waiting:
        each = waiting.pop()
        if isinstance(each, BaseExceptionGroup):
            waiting += reversed(cast("BaseExceptionGroup[BaseException]", each).exceptions)
        else:
            leaves.append(each)
    return leaves[0] if len({type(each) for each in leaves}) == 1 else error


def identifier(value: Any, key: str, what: str) -> str:
    """Return an identifier given in code, or `_OTHER` with a warning when it is none."""
    if type(value) is str and value in _names[key]:
        return value
    kept = _rules[key].apply(value)
    if kept is DROPPED:
        warn_once(
            f"use a {what} that is no identifier",
            "A %s given in code is not an identifier (letters, digits and _.:/@+=~#-, no spaces, "
            "at most 128 characters) and is recorded as _OTHER.",
            what,
        )
        return OTHER
    return kept


def allowed(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the attributes that are set and obey their rules."""
    kept: dict[str, Any] = {}
    for key, value in attributes.items():
        put(kept, key, value)
    return kept


def put(attributes: dict[str, Any], key: str, value: Any) -> None:
    """Set an attribute, if it has a value and the value obeys its rule."""
    if value is not None:
        result = _rules[key].apply(value)
        if result is not DROPPED:
            attributes[key] = result


def without_digests(attributes: dict[str, Any]) -> None:
    """Leave out what the capture level `none` forbids."""
    for key in NOT_AT_NONE.intersection(attributes):
        del attributes[key]


class Agent:
    """One agent in one segment: its name, its rounds, and the tool calls its model asked for."""

    __slots__ = (
        "accounted",
        "asked",
        "common",
        "conversation",
        "id",
        "offered",
        "rounds",
        "run",
        "segment",
        "unread",
    )

    def __init__(self, run: Run, segment: Segment, agent_id: str, rounds: int = 0) -> None:
        self.run = run
        self.segment = segment
        self.id = agent_id
        self.rounds = rounds
        self.offered: set[str] = set()
        self.asked = AskedCalls(_CALLS_REMEMBERED)
        """What was read of answers: `segment.count_up` reads those that wait."""
        self.accounted: set[str] = set()
        """Ids of tool calls that need not be looked up again: recorded, or answered before."""
        self.common = {**segment.common, semconv.AGENT_ID: agent_id}
        self.conversation: Conversation | None = None
        """What it has sent until now, once that is long."""
        self.unread = False
        """True where no span is kept and nobody looks at answers: those are not read then."""

    def account_for(self, *call_ids: str) -> None:
        """Note that tool calls are recorded, or that their results were seen."""
        if len(self.accounted) >= _CALLS_REMEMBERED:
            self.accounted.clear()
        self.accounted.update(call_ids)

    def knows(self, call_ids: Sequence[str]) -> bool:
        """Tell whether none of these tool calls need be looked up.

        An id that stands there twice is of two calls: some models begin anew with each answer.
        """
        accounted = self.accounted
        return accounted.issuperset(call_ids) and len(set(call_ids)) == len(call_ids)


class Node:
    """A span of ours, from start to finish.

    Starting and finishing never raise. Without a configured Clew nothing is started and
    everything is a no-op.
    """

    __slots__ = (
        "_perf",
        "_unclaimed",
        "agent",
        "born",
        "decisions",
        "denials",
        "level",
        "parent_node",
        "runtime",
        "seq",
        "span",
        "start_ns",
    )
    keeps_content = False

    def __init__(self) -> None:
        self.runtime: Runtime | None = None
        self.agent: Agent | None = None
        self.parent_node: Node | None = None
        self.born: dict[str, Any]
        """What an SDK's span began with; set where there is one."""
        self.span: Span = INVALID_SPAN
        self.seq = 0
        self.start_ns = 0
        self.decisions = 0
        self.denials = 0
        self._perf = 0
        self._unclaimed = [None]

    def _begin(
        self,
        runtime: Runtime,
        name: str,
        attributes: dict[str, Any],
        *,
        kind: SpanKind = SpanKind.INTERNAL,
        parent: Context | None = None,
        links: Sequence[Link] = (),
        start_ns: int | None = None,
    ) -> None:
        """Start the span, with those of the attributes that obey their rules."""
        self._begin_with(
            runtime,
            name,
            allowed(attributes),
            kind=kind,
            parent=parent,
            links=links,
            start_ns=start_ns,
        )

    def _begin_with(
        self,
        runtime: Runtime,
        name: str,
        attributes: dict[str, Any],
        *,
        kind: SpanKind = SpanKind.INTERNAL,
        parent: Context | None = None,
        links: Sequence[Link] = (),
        start_ns: int | None = None,
    ) -> None:
        """Start the span with its identity; the attributes have obeyed their rules."""
        agent = self.agent
        if agent is not None:
            # A tool call has its number already.
            self.seq = attributes[semconv.SEQ] = self.seq or agent.segment.next_seq()
            attributes.update(agent.common)
        self._start(
            runtime, name, attributes, kind=kind, parent=parent, links=links, start_ns=start_ns
        )

    def _start(
        self,
        runtime: Runtime,
        name: str,
        attributes: dict[str, Any],
        *,
        kind: SpanKind,
        parent: Context | None = None,
        around: Span | None = None,
        links: Sequence[Link] = (),
        start_ns: int | None = None,
    ) -> None:
        """Start the span; `around` is the span that is current in `parent`, where it is at hand."""
        self.runtime = runtime
        if runtime.capturing:
            self._take_level(runtime, attributes, context.current() if parent is None else parent)
        if runtime.unsettled:
            runtime.settle()
        if start_ns is None:
            start_ns = time.time_ns()
        self.start_ns = start_ns
        self._perf = time.perf_counter_ns()
        try:
            span, light = None, runtime.light
            if light is not None:
                if around is None:
                    around = context.span_in(context.current() if parent is None else parent)
                span = light.start(name, around, kind, attributes, start_ns, links)
            if span is None:
                self.born = attributes
                span = runtime.tracer.start_span(
                    name,
                    context=parent,
                    kind=kind,
                    attributes=attributes,
                    links=links,
                    start_time=start_ns,
                )
            self.span = span
        except Exception:
            record_failure("start a span")

    def _take_level(self, runtime: Runtime, attributes: dict[str, Any], within: Context) -> None:
        """Learn the capture level of this span, and leave out what it does not permit."""
        if not hasattr(self, "level"):  # a run knows its own
            self.level = runtime.level_in(within)
            run = self.agent.run if self.agent is not None else None
            if run is None or getattr(run, "level", METADATA) != self.level:
                attributes[semconv.CAPTURE_LEVEL] = name_of(self.level)
        if self.level == NONE:
            without_digests(attributes)

    def keep(self, function: Any, args: Any, kwargs: Any) -> None:
        """Keep what the work is given, where content is captured: only tool calls do."""

    def gave(self, items: list[Any]) -> None:
        """Keep the items that a generator gave, where content is captured: only tool calls do."""

    def begin_and_end(
        self,
        runtime: Runtime,
        name: str,
        attributes: dict[str, Any],
        parent: Context,
        start_ns: int | None = None,
    ) -> None:
        """Record a span as a whole: from a time in the past until now, or with no length."""
        self._begin(runtime, name, attributes, parent=parent, start_ns=start_ns)
        end_ns = self.start_ns if start_ns is None else max(start_ns, time.time_ns())
        self._end_with({}, end_ns=end_ns)

    def span_id(self) -> int:
        """Return the id of the span; 0 when it was not started."""
        span = self.span
        return span.span_id if type(span) is LightSpan else span.get_span_context().span_id

    def write_to(
        self, journal: Journaling, kind: Literal["tool", "decision"], facts: Mapping[str, Any]
    ) -> bool:
        """Write what is about to happen to the journal; return whether it is there."""
        try:
            ids = self.span.get_span_context()
            at = (ids.trace_id, ids.span_id)
            segment_id = self.agent.segment.id if self.agent is not None else None
            return journal.write(kind, at, segment_id, self.seq or None, facts)
        except Exception:  # what cannot be written down is not written down
            record_failure("write the journal")
            return False

    def _claim(self) -> bool:
        """Return True to the one caller that may finish this node."""
        try:
            self._unclaimed.pop()  # atomic, with and without a global interpreter lock
        except IndexError:
            return False
        return True

    def is_open(self, runtime: Runtime) -> bool:
        """Tell whether the span was started in this runtime and has not ended."""
        return bool(self._unclaimed) and self.runtime is runtime and self.span is not INVALID_SPAN

    def interrupt(self, error: Terminated) -> None:
        """End the span because the process ends."""
        finish = getattr(self, "finish", None)
        if finish is not None:
            finish(error)
        elif self._claim():
            self._end({semconv.ERROR_TYPE: error_type(error)})

    def now_ns(self) -> int:
        """Return the wall-clock time in ns, by the monotonic time since the start."""
        return self.start_ns + time.perf_counter_ns() - self._perf

    def _end(
        self, attributes: Mapping[str, Any], *, failed: bool = False, end_ns: int | None = None
    ) -> None:
        """End the span with those of the attributes that obey their rules."""
        self._end_with(allowed(attributes), failed=failed, end_ns=end_ns)

    def _end_with(
        self, attributes: dict[str, Any], *, failed: bool = False, end_ns: int | None = None
    ) -> None:
        """Set the last attributes and end the span. Call only after `_claim` said True.

        Args:
            attributes: they have obeyed their rules.
            failed: whether the status is error.
            end_ns: when it ended, if not now (ns since the epoch).
        """
        span = self.span
        runtime = self.runtime
        if runtime is not None and (runtime.unsettled or runtime.capturing):
            runtime.settle()
            if runtime.capturing and getattr(self, "level", METADATA) == NONE:
                without_digests(attributes)
        if self.decisions:
            attributes[semconv.DECISIONS] = self.decisions
            attributes[semconv.DENIALS] = self.denials
        if end_ns is None:
            end_ns = self.start_ns + time.perf_counter_ns() - self._perf
        try:
            if type(span) is LightSpan:
                span.finish(attributes, end_ns, failed=failed)
            else:
                if span.is_recording():
                    span.set_attributes(attributes)
                    if getattr(span, "dropped_attributes", 0):
                        # The host has set more than the SDK keeps, so the oldest are gone: ours.
                        span.set_attributes({**self.born, **attributes})
                    if failed:
                        span.set_status(StatusCode.ERROR)
                    if runtime is not None and runtime.chains is not None:
                        found = runtime.chains.finished(cast("Any", span), end_ns, failed)
                        span.set_attributes(found)
                span.end(end_ns)
        except Exception:
            record_failure("end a span")
        if self.agent is not None:
            self.agent.segment.open_seqs.pop(self.seq, None)
