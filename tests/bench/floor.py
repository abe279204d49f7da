"""The unit of every figure: one span of the stock SDK with 25 attributes, set one by one.

Also an instrumentation that writes just that and nothing else, around the same methods of the
client libraries that are called: what the least useful instrumentation costs in the same place.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.trace import Span, SpanKind, Tracer

PATIENCE_MS = 20_000
MODEL = "gpt-4o-2024-08-06"
ATTRIBUTES = {
    "gen_ai.operation.name": "chat",
    "gen_ai.provider.name": "openai",
    "gen_ai.request.model": MODEL,
    "gen_ai.response.model": MODEL,
    "gen_ai.response.id": "chatcmpl-9nB1xT7fVh3oPq2",
    "gen_ai.response.finish_reasons": ("stop",),
    "gen_ai.request.temperature": 0.2,
    "gen_ai.usage.input_tokens": 1210,
    "gen_ai.usage.output_tokens": 64,
    "gen_ai.usage.cache_read.input_tokens": 1024,
    "gen_ai.conversation.id": "5f2b7b0e-3a55-4d0c-9a59-0d7e0f1a2b3c",
    "server.address": "api.openai.com",
    "server.port": 443,
    "http.request.method": "POST",
    "http.response.status_code": 200,
    "clew.run.id": "5f2b7b0e-3a55-4d0c-9a59-0d7e0f1a2b3c",
    "clew.segment.id": "0f1e2d3c4b5a6978",
    "clew.segment": 1,
    "clew.seq": 3,
    "clew.round": 2,
    "clew.request.messages": 12,
    "clew.request.bytes": 1500,
    "clew.response.bytes": 900,
    "clew.cost.usd": 0.0021,
    "clew.cost.status": "priced",
}
METHODS = {
    "openai": ("openai.resources.chat.completions", "Completions", "AsyncCompletions"),
    "anthropic": ("anthropic.resources.messages", "Messages", "AsyncMessages"),
}
"""Where a library's `create` lives: its module, and the classes for synchronous and other calls."""
_NOWHERE = Context()
"""The parent of floor spans is nobody: a run that is not sampled would take them with it."""


class Discard(SpanExporter):
    """Takes spans and does nothing with them."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        return SpanExportResult.SUCCESS


class Subject(NamedTuple):
    """What is measured, ready to be used."""

    flush: Callable[[], object]
    run: Callable[[], AbstractContextManager[object]]
    tool: Callable[[str], AbstractContextManager[object]]


def exporter(endpoint: str | None) -> SpanExporter:
    """Return the stock OTLP exporter, or one that discards."""
    if endpoint is None:
        return Discard()
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    return OTLPSpanExporter(endpoint=f"{endpoint}/v1/traces")


def stock_provider(spans_to: SpanExporter) -> TracerProvider:
    """Return a provider of the SDK with its own batch processor."""
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(spans_to, max_queue_size=20_000))
    return provider


def begin(tracer: Tracer, context: Context | None = None) -> Span:
    return tracer.start_span("chat gpt-4o", context, kind=SpanKind.CLIENT)


def finish(span: Span) -> None:
    for key, value in ATTRIBUTES.items():
        span.set_attribute(key, value)
    span.end()


class Around:
    """A floor span around a block: a run, or a tool call."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer

    def __enter__(self) -> None:
        self._span = begin(self._tracer, _NOWHERE)

    def __exit__(self, *error: object) -> None:
        finish(self._span)


def subject(provider: TracerProvider) -> Subject:
    """Return the floor as what is measured: one span for a run, one for a tool call."""
    tracer = provider.get_tracer("floor")
    return Subject(
        lambda: provider.force_flush(PATIENCE_MS),
        lambda: Around(tracer),
        lambda call_id: Around(tracer),  # noqa: ARG005
    )


class Patch(NamedTuple):
    """A method of a class as it was, and as an instrumentation wants it."""

    kind: type
    name: str
    before: Any
    after: Any


def patches(library: str, provider: TracerProvider) -> list[Patch]:
    """Return a span of the floor around each call of a library's `create`; nothing is put on yet.

    The span of a stream ends when `create` returns.
    """
    tracer = provider.get_tracer("floor")
    place, *names = METHODS[library]
    module = importlib.import_module(place)
    found: list[Patch] = []
    for name, around in zip(names, (_traced, _traced_async), strict=True):
        kind = getattr(module, name)
        found.append(Patch(kind, "create", kind.create, around(kind.create, tracer)))
    return found


def _traced(create: Callable[..., Any], tracer: Tracer) -> Callable[..., Any]:
    @functools.wraps(create)
    def traced(*args: Any, **more: Any) -> Any:
        span = begin(tracer, _NOWHERE)
        try:
            return create(*args, **more)
        finally:
            finish(span)

    return traced


def _traced_async(
    create: Callable[..., Awaitable[Any]], tracer: Tracer
) -> Callable[..., Awaitable[Any]]:
    @functools.wraps(create)
    async def traced(*args: Any, **more: Any) -> Any:
        span = begin(tracer, _NOWHERE)
        try:
            return await create(*args, **more)
        finally:
            finish(span)

    return traced
