"""The OTLP exporter over HTTP: the stock one with a faster encoder, and nothing lost to size.

Settings, environment variables, headers, TLS and mTLS, compression, retries and `Retry-After` are
the stock exporter's. Ours are the encoding, and what happens to a batch that is too large for the
receiver: it is sent in halves, and only a span that is too large alone is cut down.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, cast

from opentelemetry.attributes import BoundedAttributes
from opentelemetry.exporter.otlp.proto.http import trace_exporter as stock
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult

from clew import semconv
from clew._guard import record_failure, warn_once
from clew.pipeline import otlp_writer

TOO_LARGE: Final = 413
LONGEST: Final = 1024
"""Characters of a text that stay on a span that had to be cut down."""
_DEFAULT_MOST: Final = 64 << 20


class Answer(NamedTuple):
    """What a receiver said to one request."""

    status: int | None = None
    """The HTTP status; None where there was no answer."""
    error: Exception | None = None
    """Why there was none."""
    date: str | None = None
    """The receiver's clock: its header `Date`."""
    retry_after: float | None = None
    """Seconds after which it wants to be asked again."""

    @property
    def taken(self) -> bool:
        """Whether the request was taken. A redirect is not followed, so it is none."""
        return self.status is not None and 200 <= self.status < 300


class FastOTLPSpanExporter(stock.OTLPSpanExporter):
    """Exports spans by OTLP over HTTP; takes the stock exporter's arguments."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.rejected = 0
        """Spans that the receiver says it did not take (partial success)."""
        self.lost: int = 0
        """Spans that were not delivered."""
        self.cut = 0
        """Spans whose long texts were cut because they were too large for the receiver."""
        self._sends: Any = getattr(self, "_client", None)
        self._most = getattr(self, "_max_request_size", _DEFAULT_MOST)
        self._usable = callable(getattr(self._sends, "export", None))
        if self._usable:
            self._listen()

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Export spans; with a stock exporter that works in another way, as that one does."""
        if not self._usable or getattr(self, "_shutdown", False):
            result = super().export(spans)
            self.lost += len(spans) if result is not SpanExportResult.SUCCESS else 0
            return result
        sent = self._send(spans)
        return SpanExportResult.SUCCESS if sent else SpanExportResult.FAILURE

    def forget(self) -> None:
        """Count from zero (in a forked child: what was lost is the parent's)."""
        self.lost = self.rejected = self.cut = 0

    def _send(self, spans: Sequence[ReadableSpan], data: bytes | None = None) -> bool:
        data = otlp_writer.encode(spans) if data is None else data
        if not data:
            return True
        too_large = 0 < self._most < len(data)
        if not too_large:
            answer = self._post(data)
            if answer.taken:
                return True
            if answer.status != TOO_LARGE:
                return self._undelivered(len(spans), data, answer)
        if len(spans) > 1:
            middle = len(spans) // 2
            return self._send(spans[:middle]) & self._send(spans[middle:])
        return self._send_cut(spans[0], data)

    def _post(self, data: bytes) -> Answer:
        """Send a message, again and again while the receiver is busy, within the time-out."""
        result = self._sends.export(data)
        return Answer(result.status_code, result.error)

    def _undelivered(self, number: int, data: bytes, answer: Answer) -> bool:
        """Note that a batch was not delivered; return whether it is not lost all the same."""
        self.lost += number
        if answer.status is not None and 300 <= answer.status < 400:
            warn_once(
                "follow a redirect",
                "The OTLP receiver answers %d, a redirect, which is not followed: set the address "
                "that it points to",
                answer.status,
            )
        return False

    def _send_cut(self, span: ReadableSpan, data: bytes) -> bool:
        """Send a span that is too large without its long texts."""
        smaller = _cut(span)
        written = b"" if smaller is None else otlp_writer.encode([smaller])
        if not written or len(written) >= len(data) or 0 < self._most < len(written):
            return self._undelivered(1, data, Answer(TOO_LARGE))
        self.cut += 1
        warn_once(
            "send a span that is too large",
            "A span was too large for the OTLP receiver (%d bytes): its long texts were cut. "
            "Set CLEW_CONTENT_LIMIT, or send content to the local store.",
            len(data),
        )
        answer = self._post(written)
        return answer.taken or self._undelivered(1, written, answer)

    @property
    def endpoint(self) -> str:
        """Where spans go."""
        return str(getattr(self, "_endpoint", ""))

    def ask(self, spans: Sequence[ReadableSpan], timeout: float) -> Answer:
        """Send spans once, without another attempt, and return what came back."""
        if not self._usable:
            sent = super().export(spans) is SpanExportResult.SUCCESS
            return Answer(200 if sent else None)
        data = self._sends._compress(otlp_writer.encode(spans))
        result = self._sends._submit(data, timeout)
        headers: Mapping[str, str] = {} if result.status_code is None else result.headers()
        return Answer(result.status_code, result.error, headers.get("date"))

    def _listen(self) -> None:
        """Look at answers for spans that the receiver did not take.

        https://opentelemetry.io/docs/specs/otlp/#partial-success-1
        """
        submit = getattr(self._sends, "_submit", None)
        if not callable(submit):
            return

        def submit_and_look(*args: Any, **kwargs: Any) -> Any:
            result = cast("Any", submit(*args, **kwargs))
            try:
                self._look(result)
            except Exception:
                record_failure("read an OTLP answer")
            return result

        self._sends._submit = submit_and_look

    def _look(self, result: Any) -> None:
        if result.status_code is None or not 200 <= result.status_code < 300:
            return
        body = result.content()
        if not body:
            return
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
            ExportTraceServiceResponse,
        )

        kind = result.headers().get("content-type", "")
        if "json" in kind:
            return
        rejected = ExportTraceServiceResponse.FromString(body).partial_success.rejected_spans
        if rejected:
            self.rejected += rejected
            warn_once(
                "deliver all spans",
                "The OTLP receiver did not take %d spans of a batch; they are not sent again.",
                rejected,
            )


def _cut(span: ReadableSpan) -> ReadableSpan | None:
    """Return a copy without long texts, and without events; None where there is nothing to cut."""
    attributes = span.attributes or {}
    kept: dict[str, Any] = {}
    for key, value in attributes.items():
        if key in semconv.CONTENT or (isinstance(value, (str, bytes)) and len(value) > LONGEST):
            continue
        kept[key] = value
    if len(kept) == len(attributes) and not span.events:
        return None
    left = BoundedAttributes(attributes=kept, immutable=False)
    left.dropped = len(attributes) - len(kept) + span.dropped_attributes
    return ReadableSpan(
        name=span.name,
        context=span.get_span_context(),
        parent=span.parent,
        resource=span.resource,
        attributes=left,
        links=span.links,
        kind=span.kind,
        status=span.status,
        start_time=span.start_time,
        end_time=span.end_time,
        instrumentation_scope=span.instrumentation_scope,
    )
