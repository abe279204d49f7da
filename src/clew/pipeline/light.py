"""A span of ours that costs a fraction of the SDK's.

The SDK's span cleans, bounds and copies every attribute on the caller's path. Ours need none of
that: they pass the allow-list on the export thread, which is stricter. This span is used when the
tracer provider is Clew's own and has no processor but Clew's; else the SDK makes the span.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan, TracerProvider
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
)

from clew.ids import RunIdGenerator, random_64

_UNSET = Status(StatusCode.UNSET)
_ERROR = Status(StatusCode.ERROR)
_EVENTS_KEPT = 128
_NO_PARENT = Context()
_LOCAL = False  # no remote context
_SAMPLED = TraceFlags.SAMPLED


class LightSpan(ReadableSpan, trace.Span):
    """A recording span; what is set on it is looked at when it is exported."""

    def __init__(
        self,
        name: str,
        context: SpanContext,
        parent: SpanContext | None,
        kind: SpanKind,
        attributes: dict[str, Any],
        links: Sequence[Link],
        start_time: int,
        maker: LightSpans,
    ) -> None:
        self._name = name
        self._context = context
        self._kind = kind
        self._instrumentation_info = None
        self._instrumentation_scope = maker.scope
        self._parent = parent
        self._start_time = start_time
        self._end_time = None
        self._attributes = attributes
        self._events: Sequence[Event] = ()
        self._links = links
        self._resource = maker.resource
        self._status = _UNSET
        self._hand_on = maker.finish
        self.touched = False
        """True once somebody else wrote on this span: it then has to pass the filter."""

    def get_span_context(self) -> SpanContext:
        """Return the span's context."""
        return self._context  # type: ignore[return-value]

    def is_recording(self) -> bool:
        """Tell whether the span is still open."""
        return self._end_time is None

    def raw_attributes(self) -> dict[str, Any]:
        """Return the attributes themselves; write only what has obeyed its rule."""
        return self._attributes  # type: ignore[return-value]

    def set_attributes(self, attributes: Mapping[str, Any]) -> None:
        """Set attributes."""
        if self._end_time is None:
            self.touched = True
            self.raw_attributes().update(attributes)

    def set_attribute(self, key: str, value: Any) -> None:
        """Set one attribute."""
        if self._end_time is None:
            self.touched = True
            self.raw_attributes()[key] = value

    def add_event(self, name: str, attributes: Any = None, timestamp: int | None = None) -> None:
        """Add an event."""
        if self._end_time is None and len(self._events) < _EVENTS_KEPT:
            self.touched = True
            event = Event(name, dict(attributes or {}), timestamp or time.time_ns())
            self._events = (*self._events, event)

    def add_link(self, context: SpanContext, attributes: Any = None) -> None:
        """Add a link."""
        if self._end_time is None and len(self._links) < _EVENTS_KEPT:
            self.touched = True
            self._links = (*self._links, Link(context, dict(attributes or {})))

    def update_name(self, name: str) -> None:
        """Change the name."""
        if self._end_time is None:
            self.touched = True
            self._name = name

    def set_status(self, status: Status | StatusCode, description: str | None = None) -> None:
        """Set the status; a description is not kept."""
        code = status.status_code if isinstance(status, Status) else status
        settled = self._end_time is not None or self._status.status_code is StatusCode.OK
        if not settled and code is not StatusCode.UNSET:
            self._status = Status(code)

    def record_exception(
        self,
        exception: BaseException,
        attributes: Any = None,
        timestamp: int | None = None,
        escaped: bool = False,
    ) -> None:
        """Record the type of an exception, never its text."""
        kind = type(exception)
        name = kind.__qualname__
        if kind.__module__ != "builtins":
            name = f"{kind.__module__}.{name}"
        self.add_event("exception", {**(attributes or {}), "exception.type": name}, timestamp)

    def finish(self, attributes: Mapping[str, Any], end_time: int, *, failed: bool) -> None:
        """Set attributes that have obeyed their rules, end the span, and hand it on."""
        if self._end_time is None:
            self.raw_attributes().update(attributes)
            if failed:
                self._status = _ERROR
            self._end_time = end_time
            self._hand_on(self)

    def end(self, end_time: int | None = None) -> None:
        """End the span and hand it on."""
        if self._end_time is None:
            self._end_time = end_time or time.time_ns()
            self._hand_on(self)


class LightSpans:
    """Makes light spans for one provider of Clew's own.

    Args:
        provider: the provider; its sampler decides over root spans.
        scope: the instrumentation scope of the spans.
        resource: the resource of the spans, as it may leave.
        finish: takes each span that has ended.
    """

    def __init__(
        self,
        provider: TracerProvider,
        scope: InstrumentationScope,
        resource: Resource,
        finish: Callable[[LightSpan], None],
    ) -> None:
        self.resource = resource
        self.scope = scope
        self.finish = finish
        self._sampler = provider.sampler
        self._ids = RunIdGenerator()
        self._processors = getattr(provider, "_active_span_processor", None)

    def alone(self) -> bool:
        """Tell whether the provider has no processor but Clew's."""
        return len(getattr(self._processors, "_span_processors", ())) == 1

    def start(
        self,
        name: str,
        parent: Context | None,
        kind: SpanKind,
        attributes: dict[str, Any],
        links: Sequence[Link],
        start_time: int,
    ) -> trace.Span:
        """Start a span; one that is not sampled records nothing."""
        above = trace.get_current_span(parent).get_span_context()
        if above.is_valid:
            context = SpanContext(
                above.trace_id, random_64(), _LOCAL, above.trace_flags, above.trace_state
            )
            sampled = above.trace_flags & _SAMPLED
        else:
            above = None
            context, sampled = self._root(name, kind)
        if not sampled:
            return NonRecordingSpan(context)
        span = LightSpan(name, context, above, kind, attributes, links, start_time, self)
        # A link or a trace state comes from elsewhere and has to pass the filter.
        span.touched = bool(links) or bool(context.trace_state)
        return span

    def _root(self, name: str, kind: SpanKind) -> tuple[SpanContext, bool]:
        random = self._ids.is_trace_id_random()
        trace_id = self._ids.generate_trace_id()
        result = self._sampler.should_sample(_NO_PARENT, trace_id, name, kind)
        flags = TraceFlags.RANDOM_TRACE_ID if random else TraceFlags.DEFAULT
        sampled = result.decision.is_sampled()
        if sampled:
            flags |= _SAMPLED
        state = result.trace_state
        return SpanContext(trace_id, random_64(), _LOCAL, TraceFlags(flags), state), sampled
