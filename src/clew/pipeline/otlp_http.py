"""The OTLP exporter over HTTP: the stock one with a faster encoder, and nothing lost to size.

Settings, environment variables, headers, TLS and mTLS, compression, retries and `Retry-After` are
the stock exporter's. Two generations of it are known: one that has a client for requests, and the
one before, which sends a message by `_export`.
"""

from __future__ import annotations

import inspect
import math
import time
from collections.abc import Mapping, Sequence
from email.utils import parsedate_to_datetime
from typing import Any, Final

from opentelemetry.exporter.otlp.proto.http import trace_exporter as stock
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult

from clew._guard import guard
from clew.pipeline.otlp_sending import Answer, Sending, Verdict

TOO_LARGE: Final = 413
HOPELESS: Final = frozenset({400, 405, 411, 414, 415, 422, 431, 501})
"""Answers that will be the same next time: such a batch is given up and counted."""
BUSY: Final = frozenset({429, 502, 503, 504})
"""https://opentelemetry.io/docs/specs/otlp/#retryable-response-codes"""
_DEFAULT_MOST: Final = 64 << 20


class FastOTLPSpanExporter(Sending, stock.OTLPSpanExporter):
    """Exports spans by OTLP over HTTP; takes the stock exporter's arguments."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._sends: Any = getattr(self, "_client", None)
        self._earlier = _sends_by_itself(self)
        self._client_known = callable(getattr(self._sends, "export", None)) and callable(
            getattr(self._sends, "_submit", None)
        )
        self.most = int(getattr(self, "_max_request_size", _DEFAULT_MOST))
        self.usable = self._client_known or self._earlier
        if self._client_known:
            self._listen()

    @property
    def endpoint(self) -> str:
        """Where spans go."""
        return str(getattr(self, "_endpoint", ""))

    @property
    def timeout_s(self) -> float:
        """Seconds that a batch has at the most."""
        holder = self._sends if self._client_known else self
        return float(getattr(holder, "_timeout", super().timeout_s))

    def _stock_export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        return stock.OTLPSpanExporter.export(self, spans)

    def _post(self, data: bytes) -> Answer:
        if not self._client_known:
            return super()._post(data)
        result = self._sends.export(data)
        return _answer(result.status_code, result.error, {})

    def _once(self, data: bytes, timeout: float) -> Answer:
        result: Any = None
        response: Any = None
        try:
            if self._client_known:
                result = self._sends._submit(self._sends._compress(data), timeout)
            else:
                response = self._by_itself(data, timeout)
        except Exception as error:
            return Answer(error=error)
        if result is not None:
            status: int | None = result.status_code
            return _answer(status, result.error, {} if status is None else result.headers())
        answer = _answer(response.status_code, None, response.headers)
        if answer.taken:
            self._look(response.content, response.headers)
        return answer

    def _by_itself(self, data: bytes, timeout: float) -> Any:
        """Send a message as the earlier generation does."""
        send: Any = getattr(self, "_export")  # noqa: B009 - not every version has it
        if len(inspect.signature(send).parameters) > 1:
            return send(data, timeout)
        before: Any = getattr(self, "_timeout", timeout)
        self._timeout = timeout
        try:
            return send(data)
        finally:
            self._timeout = before

    def _listen(self) -> None:
        """Look at what is answered, whoever sends."""
        submit = self._sends._submit

        def submit_and_look(*args: Any, **kwargs: Any) -> Any:
            result = submit(*args, **kwargs)
            with guard("read an OTLP answer"):
                if result.status_code is not None and 200 <= result.status_code < 300:
                    self._look(result.content(), result.headers())
            return result

        self._sends._submit = submit_and_look

    def _look(self, body: bytes | None, headers: Mapping[str, str]) -> None:
        with guard("read an OTLP answer"):
            if body and "json" not in headers.get("content-type", ""):
                self._note_rejected(body)


def _sends_by_itself(exporter: Any) -> bool:
    """Tell whether an exporter is of the earlier generation."""
    return callable(getattr(exporter, "_export", None)) and hasattr(exporter, "_session")


def _answer(status: int | None, error: Exception | None, headers: Mapping[str, str]) -> Answer:
    """Judge an HTTP answer. A redirect is not followed, so that the batch was not taken."""
    if status is None or status in BUSY:
        verdict = Verdict.SOON
    elif 200 <= status < 300:
        verdict = Verdict.TAKEN
    elif status == TOO_LARGE:
        verdict = Verdict.LARGE
    else:
        verdict = Verdict.HOPELESS if status in HOPELESS else Verdict.LATER
    return Answer(
        verdict,
        status,
        error=error,
        date=headers.get("date"),
        retry_after=seconds_of(headers.get("retry-after")),
    )


def seconds_of(text: str | None) -> float | None:
    """Return the seconds of a header `Retry-After`, which has seconds or a date (RFC 9110)."""
    if text is None:
        return None
    try:
        seconds = float(text)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(text).timestamp() - time.time()
        except (TypeError, ValueError, OverflowError):
            return None
    return max(0.0, seconds) if math.isfinite(seconds) else None
