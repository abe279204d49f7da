"""The root span processor: stamps foreign spans at start, queues finished ones for export."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor
from opentelemetry.trace import SpanContext

from clew import context, semconv
from clew._guard import guard, record_failure
from clew.levels import NONE, name_of
from clew.pipeline import enrich
from clew.pipeline.exporters import Fanout
from clew.pipeline.filter import Filter
from clew.pipeline.light import LightSpan
from clew.pipeline.pausing import pausing
from clew.pipeline.stamp import foreign_stamp

if TYPE_CHECKING:
    from clew.pipeline.chains import Chains
    from clew.pipeline.runtime import Runtime
    from clew.pipeline.stamp import Segment

Foreign = tuple[ReadableSpan, bool, Mapping[str, Any] | None]
"""A finished span that is no light one, whether it is folded, and identity that it has lost."""
_NO_ATTRIBUTES: Mapping[str, Any] = {}


class RootProcessor(SpanProcessor):
    """The one processor that Clew puts on a tracer provider.

    Args:
        runs_only: export only traces that Clew has a part in (when the provider is another's).
    """

    def __init__(self, *, runs_only: bool) -> None:
        self.runs_only = runs_only
        self.runtime: Runtime | None = None
        self.exports = False

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        """Give a foreign span in a run's trace its identity."""
        runtime = self.runtime
        if runtime is None:
            return
        try:
            scope = span.instrumentation_scope
            if scope is not None and scope.name == semconv.SCOPE:
                return
            parent = span.parent
            ids = span.get_span_context()
            folds = runtime.folds
            if not folds.seen:
                folds.seen = True
                runtime.observers.append(folds.told)
            folds.opened(ids.span_id, parent.span_id if parent is not None else None)
            if runtime.capturing and runtime.capture_level != NONE:
                within = context.current() if parent_context is None else parent_context
                if runtime.level_in(within) == NONE:
                    span.set_attribute(semconv.CAPTURE_LEVEL, name_of(NONE))
            segment = runtime.segments.of_trace(ids.trace_id)
            if segment is not None:
                node = context.current_node(parent_context)
                agent = node.agent if node is not None else None
                seq = segment.next_seq()
                segment.foreign[ids.span_id] = seq
                span.set_attributes(foreign_stamp(segment, seq, agent.id if agent else None))
        except Exception:
            record_failure("stamp a span")

    def on_end(self, span: ReadableSpan) -> None:
        """Queue a finished span."""
        runtime = self.runtime
        if runtime is None:
            return
        segment: Segment | None = None
        ids = cast("SpanContext", span.context)
        try:
            scope = span.instrumentation_scope
            ours = scope is not None and scope.name == semconv.SCOPE
            folded = False
            if not ours:
                segment = runtime.segments.of_trace(ids.trace_id)
                attributes = span.attributes or _NO_ATTRIBUTES
                folded = runtime.folds.ended(ids.span_id, ids.trace_id, attributes)
                if self.runs_only and segment is None and not folded:
                    return
            if not self.exports or not ids.trace_flags.sampled:
                return
            attributes = span.attributes or _NO_ATTRIBUTES
            mark = ours and semconv.RUN_EVENT in attributes
            important = mark or (
                ours and (semconv.DECISION_GATE in attributes or semconv.RUN_ROOT in attributes)
            )
            stamp = None
            if segment is not None and semconv.SEQ not in attributes:
                # The SDK drops the oldest attributes where there are too many.
                stamp = foreign_stamp(segment, segment.foreign.get(ids.span_id, 0), None)
            now = mark and attributes[semconv.RUN_EVENT] != "sealed"
            runtime.worker.submit((span, folded, stamp), important=important, now=now)
        except Exception:
            record_failure("queue a span")
        finally:
            if segment is not None:  # after it was queued: the seal counts what has ended
                with guard("count a span"):
                    segment.ended(segment.foreign.pop(ids.span_id, 0))

    def ended(self, span: LightSpan) -> None:
        """Queue a finished light span: it is ours, and it is sampled."""
        runtime = self.runtime
        if runtime is None or not self.exports:
            let_go(span)
            return
        try:
            attributes: Any = span._attributes
            if semconv.TOOL_NAME in attributes:  # a tool call, like most that come here
                runtime.worker.submit_soon(span)
                return
            mark = semconv.RUN_EVENT in attributes
            important = (
                mark or semconv.DECISION_GATE in attributes or semconv.RUN_ROOT in attributes
            )
            # What a seal says has waited for a grace already.
            now = mark and attributes[semconv.RUN_EVENT] != "sealed"
            runtime.worker.submit(span, important=important, now=now)
        except Exception:
            record_failure("queue a span")

    def shutdown(self) -> None:
        """Shut down with the provider."""
        runtime = self.runtime
        if runtime is not None:
            with guard("shut down"):
                runtime.settle(everywhere=True)
                runtime.worker.shutdown(runtime.settings.shutdown_s)

    def force_flush(self, timeout_millis: int = 30000) -> bool:
        """Export what has ended until now."""
        runtime = self.runtime
        if runtime is None:
            return True
        runtime.settle(everywhere=True)
        return runtime.worker.flush(timeout_millis / 1000)


class Exporting:
    """Turns queued spans into filtered copies and hands them to the exporters.

    Args:
        filter_: the allow-list at work.
        fanout: the exporters.
        chains: what gives spans their digests; None: they get none.
    """

    def __init__(self, filter_: Filter, fanout: Fanout, chains: Chains | None = None) -> None:
        self.filter = filter_
        self.fanout = fanout
        self._chains = chains if filter_.passes(semconv.SPAN_DIGEST) else None
        self.runtime: Runtime | None = None
        self._trusts_ours = filter_.trusts_ours()

    def export(self, batch: list[LightSpan | Foreign]) -> None:
        """Export a batch: light spans, and others with whether they are folded.

        A span that cannot be copied costs only itself.
        """
        copies = self._copies(batch)
        if copies:
            self.fanout.export(copies)

    def renew(self) -> None:
        """Be another instance, which has made no digests yet: in a forked child."""
        self.filter.renew_instance()
        if self._chains is not None:
            self._chains.clear()

    def keeps(self) -> bool:
        """Tell whether spans can wait for another process."""
        return self.fanout.keeps()

    def keep(self, batch: list[LightSpan | Foreign]) -> None:
        """Have a batch wait for another process: there is no time to export it."""
        copies = self._copies(batch)
        if copies:
            self.fanout.keep(copies)

    def hurry(self, deadline: float) -> None:
        """Tell the exporters by when (monotonic time) they have to be done."""
        self.fanout.hurry(deadline)

    def _copies(self, batch: list[LightSpan | Foreign]) -> list[ReadableSpan]:
        copies: list[ReadableSpan] = []
        as_they_are = self._trusts_ours
        chains = self._chains
        late = None if self.runtime is None else self.runtime.late
        for entry in pausing(batch):
            try:
                if isinstance(entry, tuple):
                    copies.append(self._copy(*entry))
                elif not as_they_are or entry.touched:
                    copies.append(self._copy(entry, folded=False))
                else:
                    attributes = entry.raw_attributes()
                    if late is not None and late.waiting:
                        attributes.update(late.attributes(entry.span_id))
                    if chains is not None:
                        chains.add(entry, attributes)
                    copies.append(entry)
            except Exception:
                record_failure("filter a span")
        return copies

    def _copy(
        self, span: ReadableSpan, folded: bool, stamp: Mapping[str, Any] | None = None
    ) -> ReadableSpan:
        attributes = _attributes_of(span)
        if stamp is not None:
            attributes = {**attributes, **stamp}
        if folded:
            attributes = enrich.folded(attributes)
        elif self.runtime is not None and not isinstance(span, LightSpan) and _is_foreign(span):
            attributes = enrich.priced(attributes, self.runtime.prices)
        elif self.runtime is not None and self.runtime.late.waiting:
            late = self.runtime.late.attributes(cast("SpanContext", span.context).span_id)
            if late:
                attributes = {**attributes, **late}
        copy = self.filter.apply(span, attributes)
        if self._chains is not None:
            self._chains.add(copy, cast("Any", copy)._attributes)
        return copy

    def close(self, deadline: float) -> None:
        """Shut the exporters down."""
        self.fanout.close(deadline)


def let_go(span: Any) -> None:
    """Take note that nobody will look at a finished span."""
    if isinstance(span, LightSpan):
        with guard("let go of a span"):
            span.let_go()


def _is_foreign(span: ReadableSpan) -> bool:
    scope = span.instrumentation_scope
    return scope is None or scope.name != semconv.SCOPE


def _attributes_of(span: ReadableSpan) -> Mapping[str, Any]:
    if isinstance(span, LightSpan):
        return span.raw_attributes()
    return span.attributes or _NO_ATTRIBUTES
