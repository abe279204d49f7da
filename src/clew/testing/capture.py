"""An exporter that keeps what it is given, for assertions and for searches in the wire form."""

from __future__ import annotations

import base64
import threading
from collections.abc import Callable, Sequence
from typing import Any

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult


class CaptureExporter(SpanExporter):
    """Keeps finished spans in the order in which they are exported.

    Args:
        flush: called before the spans are read, so that a test need not wait for the export
            thread; the fixtures pass the tracer provider's.
    """

    def __init__(self, flush: Callable[[], object] | None = None) -> None:
        self.flush = flush
        self.stopped = False
        """True once the exporter was shut down."""
        self._spans: list[ReadableSpan] = []
        self._lock = threading.Lock()

    @property
    def spans(self) -> tuple[ReadableSpan, ...]:
        """Every span exported so far."""
        if self.flush is not None:
            self.flush()
        with self._lock:
            return tuple(self._spans)

    def by_name(self, name: str) -> tuple[ReadableSpan, ...]:
        """Return the spans whose name is `name`, or starts with it and a space.

        So `by_name("chat")` finds `chat gpt-5-mini`, and `by_name("chat gpt-5-mini")` too.
        """
        return tuple(
            span for span in self.spans if span.name == name or span.name.startswith(f"{name} ")
        )

    def clear(self) -> None:
        """Forget what was exported so far."""
        if self.flush is not None:
            self.flush()
        with self._lock:
            self._spans.clear()

    def otlp_bytes(self) -> bytes:
        """Return the OTLP protobuf bytes that an OTLP exporter would send for these spans."""
        from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans

        return encode_spans(self.spans).SerializeToString()

    def otlp_json(self) -> dict[str, Any]:
        """Return the spans as one OTLP JSON document: `{"resourceSpans": [...]}`.

        https://opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding
        """
        from google.protobuf.json_format import MessageToDict
        from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans

        document = MessageToDict(encode_spans(self.spans), use_integers_for_enums=True)
        document.setdefault("resourceSpans", [])
        for resource in document["resourceSpans"]:
            for scope in resource.get("scopeSpans", ()):
                for span in scope.get("spans", ()):
                    _hexadecimal(span)
        return document

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Keep the spans."""
        with self._lock:
            self._spans.extend(spans)
        return SpanExportResult.SUCCESS

    def shutdown(self) -> None:
        """Note that no more spans will come; what was kept stays readable."""
        self.stopped = True
        self.flush = None

    def force_flush(self, timeout_millis: int = 30000) -> bool:
        """Do nothing: spans are kept as they come."""
        return True


def _hexadecimal(span: dict[str, Any]) -> None:
    """Turn ids from base64, protobuf's usual JSON form of bytes, into OTLP's hexadecimal."""
    for holder in (span, *span.get("links", ())):
        for name in ("traceId", "spanId", "parentSpanId"):
            if name in holder:
                holder[name] = base64.b64decode(holder[name]).hex()
