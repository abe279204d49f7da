"""What an OTLP exporter of ours does with a batch, whatever carries it: HTTP or gRPC.

A batch that is too large for the receiver is sent in halves, and only a span that is too large
alone is cut down. What is not delivered is counted.
"""

from __future__ import annotations

import enum
import itertools
import random
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from opentelemetry.attributes import BoundedAttributes
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult

from clew import semconv
from clew._guard import warn_once
from clew.pipeline import otlp_writer

LONGEST: Final = 1024
"""Characters of a text that stay on a span that had to be cut down."""
MOST_RETRIES: Final = 6
_DEFAULT_TIMEOUT_S: Final = 10.0

Encode = Callable[[Sequence[ReadableSpan]], bytes]


class Verdict(enum.Enum):
    """What becomes of a message after its request."""

    TAKEN = "taken"
    LARGE = "large"
    """It may be taken in smaller parts."""
    HOPELESS = "hopeless"
    """It will be refused the same way each time."""
    SOON = "soon"
    """The receiver is away or busy: it may be asked again."""
    LATER = "later"
    """It may be taken once somebody has mended something (credentials, an address)."""


class Answer(NamedTuple):
    """What a receiver said to one request."""

    verdict: Verdict = Verdict.SOON
    status: int | None = None
    """The HTTP status; None where there was no answer, or over gRPC."""
    code: str | None = None
    """The name of the gRPC status code; None over HTTP."""
    error: Exception | None = None
    """Why there was no answer, or what gRPC made of it."""
    date: str | None = None
    """The receiver's clock: its header `Date`."""
    retry_after: float | None = None
    """Seconds after which it wants to be asked again."""

    @property
    def taken(self) -> bool:
        """Whether the request was taken."""
        return self.verdict is Verdict.TAKEN

    @property
    def said(self) -> str:
        """The answer in a word."""
        return str(self.status or self.code or type(self.error).__name__)


class Sending:
    """A part of an OTLP exporter. It stands before the stock exporter among its bases."""

    encode: Encode = staticmethod(otlp_writer.encode)
    """Spans in, an `ExportTraceServiceRequest` out."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.rejected = 0
        """Spans that the receiver says it did not take (partial success)."""
        self.lost: int = 0
        """Spans that were not delivered."""
        self.cut = 0
        """Spans whose long texts were cut because they were too large for the receiver."""
        self.usable = True
        """Whether the stock exporter has the parts that are used here; else it does the work."""
        self.most = 0
        """Bytes of a message that are sent at the most; 0: without a bound."""
        self._ended = threading.Event()

    # --- what carries it ------------------------------------------------------------------------

    @property
    def endpoint(self) -> str:
        """Where spans go, as an address."""
        raise NotImplementedError

    @property
    def timeout_s(self) -> float:
        """Seconds that a batch has at the most."""
        return _DEFAULT_TIMEOUT_S

    def _once(self, data: bytes, timeout: float) -> Answer:
        """Send a message once, and return what came back; never raises."""
        raise NotImplementedError

    # --- a batch ---------------------------------------------------------------------------------

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Export spans; with a stock exporter that works in another way, as that one does."""
        if not self.usable:
            sent = self._stock_export(spans) is SpanExportResult.SUCCESS
            self.lost += 0 if sent else len(spans)
        elif self._ended.is_set():
            sent = False
            self.lost += len(spans)
        else:
            sent = self._send(spans)
        return SpanExportResult.SUCCESS if sent else SpanExportResult.FAILURE

    def _stock_export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        raise NotImplementedError

    def ask(self, spans: Sequence[ReadableSpan], timeout: float) -> Answer:
        """Send spans once, without another attempt, and return what came back."""
        if not self.usable:
            sent = self._stock_export(spans) is SpanExportResult.SUCCESS
            return Answer(Verdict.TAKEN if sent else Verdict.LATER)
        return self._once(self.encode(spans), timeout)

    def forget(self) -> None:
        """Count from zero (in a forked child: what was lost is the parent's)."""
        self.lost = self.rejected = self.cut = 0

    def shutdown(self, *args: Any, **kwargs: Any) -> None:
        """Stop waiting for another attempt, and close the connections."""
        self._ended.set()
        super().shutdown(*args, **kwargs)  # type: ignore[misc]

    def _send(self, spans: Sequence[ReadableSpan], data: bytes | None = None) -> bool:
        data = self.encode(spans) if data is None else data
        if not data:
            return True
        if not 0 < self.most < len(data):
            answer = self._post(data)
            if answer.taken:
                return True
            if answer.verdict is not Verdict.LARGE:
                return self._undelivered(len(spans), data, answer)
        if len(spans) > 1:
            middle = len(spans) // 2
            return self._send(spans[:middle]) & self._send(spans[middle:])
        return self._send_cut(spans[0], data)

    def _send_cut(self, span: ReadableSpan, data: bytes) -> bool:
        """Send a span that is too large without its long texts."""
        smaller = _cut(span)
        written = b"" if smaller is None else self.encode([smaller])
        if not written or len(written) >= len(data) or 0 < self.most < len(written):
            return self._undelivered(1, data, Answer(Verdict.HOPELESS))
        self.cut += 1
        warn_once(
            "send a span that is too large",
            "A span was too large for the OTLP receiver (%d bytes): its long texts were cut. "
            "Set CLEW_CONTENT_LIMIT, or send content to the local store.",
            len(data),
        )
        answer = self._post(written)
        if answer.verdict is Verdict.LARGE:
            answer = answer._replace(verdict=Verdict.HOPELESS)
        return answer.taken or self._undelivered(1, written, answer)

    def _post(self, data: bytes) -> Answer:
        """Send a message, again and again while the receiver is busy, within the time-out."""
        until = time.monotonic() + self.timeout_s
        for attempt in itertools.count():
            answer = self._once(data, max(0.01, until - time.monotonic()))
            if answer.verdict is not Verdict.SOON or attempt + 1 >= MOST_RETRIES:
                return answer
            seconds = answer.retry_after
            if seconds is None:
                seconds = 2**attempt * random.uniform(0.8, 1.2)  # noqa: S311 - no secret
            if seconds > until - time.monotonic() or self._ended.wait(seconds):
                return answer
        raise AssertionError  # pragma: no cover - the loop does not end

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
        else:
            warn_once(
                "deliver spans",
                "The OTLP receiver does not take spans (%s): they are lost, and counted",
                answer.said,
            )
        return False

    def _note_rejected(self, body: bytes) -> None:
        """Look at an answer for spans that the receiver did not take.

        https://opentelemetry.io/docs/specs/otlp/#partial-success
        """
        if not body:
            return
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
            ExportTraceServiceResponse,
        )

        rejected = ExportTraceServiceResponse.FromString(body).partial_success.rejected_spans
        if rejected:
            self.rejected += rejected
            warn_once(
                "deliver all spans",
                "The OTLP receiver did not take %d spans of a batch; they are not sent again.",
                rejected,
            )


def stock_encode(spans: Sequence[ReadableSpan]) -> bytes:
    """Return the message as OpenTelemetry's encoder writes it."""
    from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans

    return encode_spans(spans).SerializePartialToString()


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
