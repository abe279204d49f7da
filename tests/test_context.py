"""The way to OpenTelemetry's current context."""

from __future__ import annotations

from contextvars import ContextVar

from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import INVALID_SPAN, NonRecordingSpan, SpanContext

from clew import context


def test_the_current_context_is_that_of_opentelemetry():
    """What is attached here is current there, and the other way round."""
    mine = Context({"a": 1})
    token = context.attach(mine)
    assert otel_context.get_current() is mine
    context.detach(token)
    theirs = otel_context.attach(otel_context.set_value("b", 2))
    assert context.current() == otel_context.get_current()
    otel_context.detach(theirs)
    assert context.current() == otel_context.get_current()


def test_another_implementation_is_asked_through_the_public_functions():
    """OTEL_PYTHON_CONTEXT may choose one that keeps the context elsewhere."""

    class Elsewhere:
        _current_context = ContextVar("elsewhere")

    for other in (None, Elsewhere(), object()):
        assert context.entrance(other) == (otel_context.get_current, otel_context.attach)


def test_the_current_span_is_that_of_opentelemetry():
    """The key of the span is found out, not copied."""
    span = NonRecordingSpan(SpanContext(1, 2, is_remote=False))
    within = trace.set_span_in_context(span, Context())
    assert context.span_in(within) is span
    assert context.span_in(Context()) is INVALID_SPAN
    assert trace.get_current_span(Context({context.SPAN: span})) is span
