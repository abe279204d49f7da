"""Batches of an OTLP exporter that wait on the disk while the receiver does not take them.

A batch is sent once. If the receiver is away, busy or refuses for a reason that may pass, the batch
goes to the spool, and the receiver is asked again after the time that it names or after a growing
one; until then batches go to the spool at once, so that they stay in order and the export thread
never waits. What waits is sent first, oldest first, also what an earlier process has left. A batch
whose answer got lost is sent twice: readers count identical copies once.

It is the same over HTTP and gRPC, with either encoder: what waits are OTLP messages.
"""

from __future__ import annotations

import random
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult

from clew import semconv
from clew._guard import guard, warn_once
from clew.pipeline.otlp_http import FastOTLPSpanExporter
from clew.pipeline.otlp_sending import LONGEST, Answer, Sending, Verdict
from clew.pipeline.spool import Spool, Waiting, folder_for

if TYPE_CHECKING:
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

_AT_ONCE_S: Final = 1.0
"""Seconds that are spent on what waits before new spans have their turn."""
_FIRST_S: Final = 1.0
_LONGEST_S: Final = 30.0
_RETRY_AFTER_MOST_S: Final = 300.0


class Spooling(Sending):
    """A part of an exporter that has a spool behind it; it stands first among its bases.

    Args:
        spool_dir: the folder of the spools of all receivers.
        most: bytes that wait at the most.
        args: as the stock exporter takes them.
        kwargs: the same.
    """

    spool: Spool

    def __init__(self, spool_dir: Path, most: int, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.spool = Spool(folder_for(spool_dir, self.endpoint), most)
        self.deadline: float | None = None
        """Monotonic time by which requests have to be done (at shutdown)."""
        self._unsent: deque[tuple[bytes, int]] = deque()
        """The batch in whose delivery the export thread is; whoever takes it deals with it."""
        self._not_before = 0.0
        self._failures = 0
        if not self.usable:
            warn_once(
                "use the spool",
                "CLEW_SPOOL_DIR has no effect: this version of OpenTelemetry's exporter works in "
                "a way that Clew does not know",
            )

    @property
    def spans_lost(self) -> int:
        """Spans that were neither delivered nor wait."""
        return self.lost + self.rejected + self.spool.dropped

    def forget(self) -> None:
        """Count from zero, and leave what is being sent to the parent process."""
        super().forget()
        self._unsent.clear()
        self.spool.dropped = self.spool.failed = 0

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Send spans, or have them wait on the disk; fails only where neither can be done."""
        if not self.usable:
            return super().export(spans)
        if self._ended.is_set() or not self._is_time() or not self._sent_the_oldest():
            return _result(sent=self.keep(spans))
        data = self.encode(spans)
        self._unsent.append((data, len(spans)))
        sent = self._send(spans, data)
        if self._unsent:
            self._unsent.clear()
        return _result(sent=sent)

    def keep(self, spans: Sequence[ReadableSpan]) -> bool:
        """Have spans wait on the disk, without trying to send them."""
        data = self.encode(spans)
        if not data or self.spool.add(data, len(spans)):
            return True
        self.lost += len(spans)
        return False

    def shutdown(self, *args: Any, **kwargs: Any) -> None:
        """Have what is in the middle of being sent wait on the disk, and stop."""
        with guard("keep spans at shutdown"):
            self._keep_unsent()
        super().shutdown(*args, **kwargs)

    def _keep_unsent(self) -> None:
        try:
            data, number = self._unsent.popleft()
        except IndexError:
            return
        if data and not self.spool.add(data, number):
            self.lost += number

    def replay(self) -> None:
        """Send what waits, if it is time; called at every turn of the export thread."""
        if self.usable and self.spool.look() and self._is_time():
            self._sent_the_oldest()

    # --- one request ----------------------------------------------------------------------------

    def _post(self, data: bytes) -> Answer:
        timeout = self.timeout_s
        if self.deadline is not None:
            timeout = min(timeout, self.deadline - time.monotonic())
            if timeout <= 0:
                return Answer()
        return self._once(data, timeout)

    def _undelivered(self, number: int, data: bytes, answer: Answer) -> bool:
        """Have a batch wait; where the disk does not take it, ask the receiver with patience."""
        if answer.verdict is Verdict.HOPELESS:
            warn_once(
                "deliver spans",
                "The OTLP receiver refuses spans (%s): they are not sent again",
                answer.said,
            )
            return super()._undelivered(number, data, answer)
        self._wait(answer)
        if self._unsent:
            self._unsent.clear()
        elif self.deadline is not None:
            return True  # it was put on the disk meanwhile, at shutdown
        if self.spool.add(data, number):
            return True
        if self.deadline is None and super()._post(data).taken:
            self._failures = 0
            return True
        return super()._undelivered(number, data, answer)

    def _wait(self, answer: Answer) -> None:
        """Do not ask the receiver again for a while."""
        self._failures += 1
        seconds = answer.retry_after
        if seconds is None:
            seconds = min(_LONGEST_S, _FIRST_S * 2 ** (self._failures - 1))
            seconds *= random.uniform(0.8, 1.2)  # noqa: S311 - no secret
        self._not_before = time.monotonic() + min(seconds, _RETRY_AFTER_MOST_S)
        warn_once(
            "reach the OTLP receiver",
            "The OTLP receiver does not take spans (%s): they wait in %s",
            answer.said,
            self.spool.folder,
        )

    def _is_time(self) -> bool:
        return time.monotonic() >= self._not_before

    # --- what waits ------------------------------------------------------------------------------

    def _sent_the_oldest(self) -> bool:
        """Send what waits; return whether new spans may go now."""
        if not self.spool.look():
            return True
        until = time.monotonic() + _AT_ONCE_S
        try:
            with self.spool.claimed() as mine:
                if not mine:
                    return True  # another process sends it
                while found := self.spool.files():
                    for one in found:
                        if not self._sent_one(one):
                            return False
                        if time.monotonic() > until:
                            return False
        except OSError:  # it cannot be read: nothing to wait for
            return True
        self.spool.waiting = False
        return True

    def _sent_one(self, waiting: Waiting) -> bool:
        """Send one batch and remove it; False: not now."""
        data = self.spool.read(waiting)
        if data is None:
            return True
        answer = self._post(data)
        if answer.taken:
            self._failures = 0
        elif answer.verdict is Verdict.LARGE:
            if not self._sent_halves(data):
                return False
        elif answer.verdict is Verdict.HOPELESS:
            self.lost += waiting.spans
        else:
            self._wait(answer)
            return False
        self.spool.remove(waiting)
        return True

    def _sent_halves(self, data: bytes) -> bool:
        """Send a batch that is too large in halves, and a span that is too large without texts."""
        halves = split(data)
        if not halves:
            self.lost += 1
            return True
        for half in halves:
            answer = self._post(half)
            if answer.taken:
                continue
            if answer.verdict is Verdict.LARGE:
                if not self._sent_halves(half):
                    return False
            elif answer.verdict is Verdict.HOPELESS:
                self.lost += _count(half)
            else:
                self._wait(answer)
                return False
        return True


def _result(*, sent: bool) -> SpanExportResult:
    return SpanExportResult.SUCCESS if sent else SpanExportResult.FAILURE


class SpoolingOTLPSpanExporter(Spooling, FastOTLPSpanExporter):
    """Exports spans by OTLP over HTTP, with a spool behind it."""


def split(data: bytes) -> list[bytes]:
    """Return a batch as two, or one span without its long texts; nothing where it has none."""
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    request = ExportTraceServiceRequest.FromString(data)
    total = _spans_in(request)
    if total == 1:
        return [request.SerializeToString()] if _cut(request) else []
    halves: list[bytes] = []
    for first, last in ((0, total // 2), (total // 2, total)):
        half = ExportTraceServiceRequest.FromString(data)
        place = 0
        for resource in half.resource_spans:
            for scope in resource.scope_spans:
                size = len(scope.spans)
                low, high = max(first - place, 0), max(min(last - place, size), 0)
                kept = list(scope.spans[low:high])
                del scope.spans[:]
                scope.spans.extend(kept)
                place += size
        halves.append(half.SerializeToString())
    return halves


def _cut(request: ExportTraceServiceRequest) -> bool:
    """Take the long texts and the events off a span; return whether there were any."""
    cut = False
    for resource in request.resource_spans:
        for scope in resource.scope_spans:
            for span in scope.spans:
                kept = [
                    each
                    for each in span.attributes
                    if each.key not in semconv.CONTENT and each.ByteSize() <= LONGEST
                ]
                gone = len(span.attributes) - len(kept)
                cut = cut or gone > 0 or len(span.events) > 0
                del span.attributes[:]
                span.attributes.extend(kept)
                span.dropped_attributes_count += gone
                span.dropped_events_count += len(span.events)
                del span.events[:]
    return cut


def _spans_in(request: ExportTraceServiceRequest) -> int:
    return sum(len(s.spans) for r in request.resource_spans for s in r.scope_spans)


def _count(data: bytes) -> int:
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    return _spans_in(ExportTraceServiceRequest.FromString(data))
