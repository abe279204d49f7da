"""A span of ours that costs a fraction of the SDK's.

The SDK's span cleans, bounds and copies every attribute on the caller's path. Ours need none of
that: they pass the allow-list on the export thread, which is stricter. This span is used when the
tracer provider is Clew's own and has no processor but Clew's; else the SDK makes the span.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Protocol

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

from clew._guard import record_failure
from clew.ids import RunIdGenerator, random_64, random_bits

UNSET = Status(StatusCode.UNSET)
"""The status of nearly all spans: the same object, so that it is told at a glance."""
_ERROR = Status(StatusCode.ERROR)
_EVENTS_KEPT = 128
_NO_PARENT = Context()
_LOCAL = False  # no remote context
_SAMPLED = TraceFlags.SAMPLED


class Describer(Protocol):
    """Knows attributes of a span that nobody needs before the span is looked at."""

    def describe(self, attributes: dict[str, Any]) -> None:
        """Add them; they have obeyed their rules."""
        ...

    def count_up(self) -> object:
        """Count what it stands for, where nobody will look at the span."""
        ...


class Keeping(Protocol):
    """Decides which of the runs that are sampled out are kept (`clew.pipeline.keeping`)."""

    def begin(self, trace_id: int) -> None:
        """Take note of such a run."""
        ...

    def knows(self, trace_id: int) -> bool:
        """Tell whether a run is one of them."""
        ...

    def finish(self, span: LightSpan) -> None:
        """Take one of their spans, which has ended."""
        ...

    def clear(self) -> None:
        """Forget everything."""
        ...


class LightSpan(ReadableSpan, trace.Span):
    """A recording span; what is set on it is looked at when it is exported.

    What nearly all spans have alike stands on the class, so that starting one writes only what
    is its own. The span context is made when somebody asks for it: few do.

    Args:
        name: the span's name.
        parent: the context of the span above; None for a root span.
        kind: the span's kind.
        attributes: attributes that have obeyed their rules; the span takes the dict over.
        start_time: when it started (ns since the epoch).
        maker: what all spans of one provider share.
    """

    _instrumentation_info = None
    _end_time: int | None = None
    _events: Sequence[Event] = ()
    _links: Sequence[Link] = ()
    _status = UNSET
    _made: SpanContext | None = None
    describer: Describer | None = None
    """Asked once for more attributes, by whoever looks first: the export thread as a rule."""
    plain = False
    """True where it may wait and may be dropped, as rounds and most tool calls."""
    touched = False
    """True once somebody else wrote on this span: it then has to pass the filter."""
    foreign_state = False
    """True where a trace state was inherited: it comes from elsewhere, and goes to children."""

    def __init__(
        self,
        name: str,
        parent: SpanContext | None,
        kind: SpanKind,
        attributes: dict[str, Any],
        start_time: int,
        maker: LightSpans,
    ) -> None:
        self._name = name
        self._parent = parent
        self._kind = kind
        self._attributes = attributes
        self._start_time = start_time
        self._maker = maker
        self.span_id = random_bits(64) or random_64()

    @property
    def _context(self) -> SpanContext:  # type: ignore[override]
        if self._made is None:
            above = self._parent
            assert above is not None  # noqa: S101 - a root span is given its context
            self._made = SpanContext(
                above.trace_id, self.span_id, _LOCAL, above.trace_flags, above.trace_state
            )
        return self._made

    @property
    def _resource(self) -> Resource:  # type: ignore[override]
        return self._maker.resource

    @property
    def _instrumentation_scope(self) -> InstrumentationScope:  # type: ignore[override]
        return self._maker.scope

    def get_span_context(self) -> SpanContext:
        """Return the span's context."""
        return self._made or self._context

    def trace_part(self) -> SpanContext:
        """Return a context whose trace id, flags and state are this span's.

        Its span id may be that of the span above: a context of its own is made for nobody.
        """
        return self._made or self._parent or self._context

    @property
    def is_held(self) -> bool:
        """Whether its run is sampled out, and kept only if something in it asks for that."""
        return self._maker.keeper is not None

    def fail(self) -> None:
        """Say that what it stands for has failed, where that is known after its end only."""
        self._status = _ERROR

    def let_go(self) -> None:
        """Take note that nobody will look at it: nothing is to wait for that."""
        if self.describer is not None:
            self.describer.count_up()

    def is_recording(self) -> bool:
        """Tell whether the span is still open."""
        return self._end_time is None

    def raw_attributes(self) -> dict[str, Any]:
        """Return the attributes themselves; write only what has obeyed its rule."""
        attributes: Any = self._attributes
        describer = self.describer
        if describer is not None:
            self.describer = None
            try:
                describer.describe(attributes)
            except Exception:
                record_failure("describe a span")
        return attributes

    @property
    def attributes(self) -> Mapping[str, Any]:
        """The attributes, to be read."""
        return MappingProxyType(self.raw_attributes())

    def set_attributes(self, attributes: Mapping[str, Any]) -> None:
        """Set attributes."""
        for key, value in attributes.items():
            self.set_attribute(key, value)

    def set_attribute(self, key: str, value: Any) -> None:
        """Set one attribute; what is no key is passed over, as the SDK does."""
        if self._end_time is None and isinstance(key, str):
            self.touched = True
            self._attributes[key] = value  # type: ignore[index]

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
            if attributes:
                self._attributes.update(attributes)  # type: ignore[union-attr]
            if failed:
                self._status = _ERROR
            self._end_time = end_time
            if self.plain:
                self._maker.queue(self)
            else:
                self._maker.finish(self)

    def end(self, end_time: int | None = None) -> None:
        """End the span and hand it on."""
        if self._end_time is None:
            self._end_time = end_time or time.time_ns()
            self._maker.finish(self)


class _Hidden:
    """Stands for a provider's processors where they cannot be seen: then no span is light."""

    _span_processors = ()


class LightSpans:
    """Makes light spans for one provider of Clew's own.

    Args:
        provider: the provider; its sampler decides over root spans.
        scope: the instrumentation scope of the spans.
        resource: the resource of the spans, as it may leave.
        finish: takes each span that has ended.
        queue: takes the plain ones among them.
        alone: whether the provider is Clew's; in another's, only runs that its sampler has
            dropped have light spans.
    """

    def __init__(
        self,
        provider: TracerProvider,
        scope: InstrumentationScope,
        resource: Resource,
        finish: Callable[[LightSpan], None],
        queue: Callable[[LightSpan], None],
        *,
        alone: bool = True,
    ) -> None:
        self.resource = resource
        self.scope = scope
        self.finish = finish
        self.queue = queue
        self._sampler = provider.sampler
        self._ids = RunIdGenerator()
        processors: Any = getattr(provider, "_active_span_processor", None) if alone else None
        self._processors: Any = processors if hasattr(processors, "_span_processors") else _Hidden
        self.keeper: Keeping | None = None
        self.held: LightSpans | None = None
        """Makes the spans of runs that are sampled out, where some of them are kept."""

    def hold(self, provider: TracerProvider, keeper: Keeping) -> None:
        """Record the runs that are sampled out, and let `keeper` decide which are kept."""
        self.held = LightSpans(provider, self.scope, self.resource, keeper.finish, keeper.finish)
        self.held.keeper = keeper

    def renew(self, resource: Resource) -> None:
        """Take another resource (in a forked child: it is another instance)."""
        self.resource = resource
        if self.held is not None:
            self.held.resource = resource
            if self.held.keeper is not None:
                self.held.keeper.clear()

    def start(
        self,
        name: str,
        around: trace.Span,
        kind: SpanKind,
        attributes: dict[str, Any],
        start_time: int,
        links: Sequence[Link] = (),
    ) -> trace.Span | None:
        """Start a span below `around`; one that is not sampled records nothing.

        None where the provider has a processor besides Clew's: the SDK has to make the span,
        unless its run is sampled out, so that nobody else sees it, and may be kept.
        """
        if len(self._processors._span_processors) != 1:
            if self.held is None:
                return None
            return self._start_held(around, name, kind, attributes, start_time, links)
        if type(around) is LightSpan:
            above = around._made or around._context
            span = LightSpan(name, above, kind, attributes, start_time, around._maker)
            if links or around.foreign_state:
                # A link or a trace state comes from elsewhere and has to pass the filter.
                span._links, span.foreign_state, span.touched = links, around.foreign_state, True
            return span
        return self._start_below(around, name, kind, attributes, start_time, links)

    def _start_held(
        self,
        around: trace.Span,
        name: str,
        kind: SpanKind,
        attributes: dict[str, Any],
        start_time: int,
        links: Sequence[Link],
    ) -> trace.Span | None:
        """Start a span of a run that is sampled out and may be kept; None for any other."""
        held = self.held
        above = around.get_span_context()
        if held is None or held.keeper is None:
            return None
        if above.is_valid:
            if above.trace_flags & _SAMPLED or not held.keeper.knows(above.trace_id):
                return None
        # The SDK would draw another id for what is no run.
        elif not self._ids.is_chosen() or self._root(name, kind)[1]:
            return None
        return self._start_below(around, name, kind, attributes, start_time, links)

    def _start_below(
        self,
        around: trace.Span,
        name: str,
        kind: SpanKind,
        attributes: dict[str, Any],
        start_time: int,
        links: Sequence[Link],
    ) -> trace.Span:
        above = around.get_span_context()
        if above.is_valid:
            context = SpanContext(
                above.trace_id, random_64(), _LOCAL, above.trace_flags, above.trace_state
            )
            sampled = bool(above.trace_flags & _SAMPLED)
        else:
            above = None
            context, sampled = self._root(name, kind)
        maker = self
        if not sampled:
            held = self.held
            if held is None or held.keeper is None:
                return NonRecordingSpan(context)
            if above is None:
                held.keeper.begin(context.trace_id)
            elif not held.keeper.knows(context.trace_id):
                return NonRecordingSpan(context)
            maker = held
        span = LightSpan(name, above, kind, attributes, start_time, maker)
        span.span_id, span._made = context.span_id, context
        span._links, span.foreign_state = links, bool(context.trace_state)
        span.touched = bool(links) or span.foreign_state
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
