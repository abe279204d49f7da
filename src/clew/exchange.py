"""One HTTP exchange with a model, as any HTTP client library's tap sees it.

`Exchange` is library-neutral: a tap tells it what is sent, what comes back and how it ends; it
opens and finishes the round. `LogicalCall` groups the attempts of one SDK call into one round.
"""

from __future__ import annotations

import contextvars
import sys
import time
import zlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.context import Context

from clew._guard import guard, record_failure
from clew.dialects import recognise
from clew.facts import NO_RESPONSE, RequestFacts, ResponseFacts
from clew.pipeline.runtime import Runtime
from clew.rounds import Ending, Round
from clew.spans import is_cancellation
from clew.typing import Route, StreamReader

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

TRACE_HEADERS = frozenset({"traceparent", "tracestate", "baggage"})
_STREAM_TYPES = ("text/event-stream", "application/x-ndjson", "application/vnd.amazon.eventstream")
_KEPT_BODY = 64 * 1024 * 1024
_ROUTES_KEPT = 4096

_EXCHANGE = otel_context.create_key("clew-exchange")
try:  # the key by which OpenTelemetry's HTTP instrumentations are told to stand aside
    from opentelemetry.context import _SUPPRESS_HTTP_INSTRUMENTATION_KEY as _SUPPRESS_HTTP
except ImportError:  # it is not public
    _SUPPRESS_HTTP = "suppress_http_instrumentation"

_routes: dict[tuple[str, str, str], Route | None] = {}
_call: contextvars.ContextVar[LogicalCall | None] = contextvars.ContextVar(
    "clew_logical_call", default=None
)


def route_of(runtime: Runtime, method: str, host: str, path: str) -> Route | None:
    """Recognise a model call; remembered per method, host (with port) and path."""
    key = (method, host, path)
    try:
        return _routes[key]
    except KeyError:
        pass
    route = recognise(method, host, path, hosts=runtime.settings.provider_hosts)
    if len(_routes) >= _ROUTES_KEPT:
        _routes.clear()
    _routes[key] = route
    return route


def forget_routes() -> None:
    """Forget what was recognised (the operator's hosts may be others now)."""
    _routes.clear()


class LogicalCall:
    """One call of an SDK method that may send several requests: its attempts are one round."""

    __slots__ = ("_failed_at", "_token", "failure", "round")

    def __init__(self) -> None:
        self.round: Round | None = None
        self.failure: Ending | None = None
        self._failed_at = 0
        self._token = _call.set(self)

    def attempt_failed(self, ending: Ending) -> None:
        """Remember how an attempt failed; another may follow."""
        self.failure = ending
        self._failed_at = time.perf_counter_ns()

    def next_attempt(self) -> Round | None:
        """Return the round that another attempt belongs to, if the last one failed."""
        if self.round is None or self.failure is None:
            return None
        self.round.wait_ns += time.perf_counter_ns() - self._failed_at
        self.failure = None
        return self.round

    def finish(self, error: BaseException | None) -> None:
        """End the call: a failed last attempt is how the round ended."""
        with guard("finish a logical call"):
            try:
                _call.reset(self._token)
            except ValueError:
                _call.set(None)
            if self.round is not None and self.failure is not None:
                last = self.failure
                if error is not None and is_cancellation(error):
                    last = Ending(status=last.status, error=error)
                self.round.finish(last)


class Exchange:
    """One request of a recognised model call, and its response."""

    __slots__ = ("call", "guarded_request", "round", "route", "runtime", "started")

    def __init__(
        self, runtime: Runtime, route: Route, request: Any, call: LogicalCall | None, round_: Round
    ) -> None:
        self.runtime = runtime
        self.route = route
        self.guarded_request = request
        self.call = call
        self.round = round_
        self.started = time.perf_counter_ns()

    def context(self) -> Context:
        """Return the context for the sending: the round is current, HTTP spans are suppressed."""
        inner = trace.set_span_in_context(self.round.span)
        inner = otel_context.set_value(_EXCHANGE, self, inner)
        return otel_context.set_value(_SUPPRESS_HTTP, True, inner)

    def raised(self, error: BaseException) -> None:
        """The sending raised."""
        with guard("record a failed request"):
            self._end(Ending(error=error, outcome=_interrupted(error)))

    def responded(self, status: int, content_type: str, body: bytes) -> None:
        """A whole response has come."""
        with guard("read a response"):
            route = self.route
            if status < 400 and self.streams(content_type):
                reader = route.dialect.stream(route, content_type)
                reader.feed(body)
                response = reader.result()
                outcome = "complete" if response.complete else "failed"
                ending = Ending(
                    response=response,
                    status=status,
                    outcome=outcome,
                    chunks=reader.chunks,
                    response_bytes=len(body),
                )
            else:
                response = route.dialect.response(body, status, route)
                ending = Ending(response=response, status=status, response_bytes=len(body))
            self._end(ending)

    def streams(self, content_type: str) -> bool:
        """Tell whether a response with this content type is a stream of events."""
        return content_type.startswith(_STREAM_TYPES) or self.route.stream

    def _end(self, ending: Ending) -> None:
        """End the round, or only this attempt when the SDK may try again."""
        failed = ending.error is not None or (ending.status or 0) >= 400
        if failed and self.call is not None and _call.get() is self.call:
            self.call.attempt_failed(ending)
            return
        self.round.finish(ending)


def _interrupted(error: BaseException) -> str | None:
    return "cancelled" if is_cancellation(error) else None


def begin(
    runtime: Runtime,
    request: Any,
    *,
    method: str,
    url: tuple[str, str, int | None, str],
    body: Callable[[], bytes | None],
) -> Exchange | None:
    """Begin an exchange when a request is a model call that no outer tap has begun already.

    Args:
        runtime: the runtime.
        request: the client library's request object, for identity only.
        method: the HTTP method.
        url: scheme, host, port (None for the scheme's own) and path with query.
        body: returns the request body, or None when it is not in memory.
    """
    scheme, host, port, target = url
    path = target.partition("?")[0]
    route = route_of(runtime, method, host if port is None else f"{host}:{port}", path)
    if route is None:
        return None
    active = otel_context.get_value(_EXCHANGE)
    if isinstance(active, Exchange) and active.guarded_request is request:
        return None
    call = _call.get()
    round_ = call.next_attempt() if call is not None else None
    if round_ is None:
        data = body()
        facts = route.dialect.request(data, route) if data else RequestFacts()
        round_ = Round(route, facts, grouped=call is not None, resend=0)
        if port is None:
            port = {"https": 443, "http": 80}.get(scheme)
        round_.open(runtime, host, port, len(data) if data else 0)
        if call is not None:
            call.round = round_
    round_.attempts += 1
    return Exchange(runtime, route, request, call, round_)


def active_exchange() -> Exchange | None:
    """Return the exchange whose request is being sent here."""
    active = otel_context.get_value(_EXCHANGE)
    return active if isinstance(active, Exchange) else None


def may_propagate(runtime: Runtime, host: str) -> bool:
    """Tell whether trace headers may go to a host."""
    return host in runtime.settings.propagate_to


class StreamTap:
    """Follows one response body that arrives in pieces, and ends its round exactly once.

    A tap of a client library calls `feed` for each piece, then one of `exhausted`, `failed` or
    `closed`, or `dropped` from a finaliser. None of them raises.
    """

    __slots__ = (
        "_body",
        "_decode",
        "_exchange",
        "_idle_since",
        "_idle_size",
        "_status",
        "done",
        "first_ns",
        "reader",
        "size",
    )

    def __init__(
        self, exchange: Exchange, status: int, content_type: str, encoding: str | None
    ) -> None:
        self._exchange = exchange
        self._status = status
        self._decode = _decoder(encoding)
        self.reader: StreamReader | None = None
        self._body: list[bytes] | None = None
        if status < 400 and exchange.streams(content_type):
            self.reader = exchange.route.dialect.stream(exchange.route, content_type)
        else:
            self._body = []
        self.size = 0
        self.first_ns = 0
        self.done = False
        self._idle_size = -1
        self._idle_since = 0.0
        exchange.runtime.watch(self)

    def feed(self, data: bytes) -> None:
        """Take the next piece of the body, as it came over the wire."""
        self.size += len(data)
        try:
            if self._decode is not None:
                data = self._decode(data)
            reader = self.reader
            if reader is not None:
                reader.feed(data)
                if not self.first_ns and reader.started:
                    self.first_ns = time.perf_counter_ns()
            elif self._body is not None and self.size <= _KEPT_BODY:
                self._body.append(data)
        except Exception:
            record_failure("read a stream")

    def fast_feed(self) -> Callable[[bytes], None] | None:
        """Return the reader's own `feed` once only counting is left to do here."""
        if self._decode is None and self.first_ns and self.reader is not None:
            return self.reader.feed
        return None

    def exhausted(self) -> None:
        """The body has ended by itself."""
        if self.reader is None:
            self._finish(None)
        else:
            self._finish("complete" if self._facts().complete else "failed")

    def failed(self, error: BaseException) -> None:
        """Reading raised."""
        outcome = "failed"
        if is_cancellation(error):
            outcome = "cancelled"
        elif "Timeout" in type(error).__name__ or isinstance(error, TimeoutError):
            outcome = "timeout"
        self._finish(outcome, error)

    def closed(self) -> None:
        """The caller, or a finaliser of the caller's, has closed the body."""
        if self.done:
            return
        if self.reader is not None and self._facts().complete:
            self._finish("complete")
            return
        passing = sys.exc_info()[1]
        if isinstance(passing, GeneratorExit):
            self._finish("abandoned")
        elif passing is not None and is_cancellation(passing):
            self._finish("cancelled", passing)
        else:
            self._finish("closed")

    def dropped(self) -> None:
        """The body was collected. Called from a finaliser: the work is done on another thread."""
        if not self.done:
            when = self._exchange.round.now_ns()
            self._exchange.runtime.worker.call_soon(lambda: self._collected(when))

    def _collected(self, end_ns: int) -> None:
        if self.reader is not None and self._facts().complete:
            self._finish("complete", end_ns=end_ns)
        else:
            self._finish("abandoned", end_ns=end_ns)

    def check_idle(self, now: float, limit: float) -> None:
        """End the round when nothing was read for `limit` seconds (monotonic)."""
        progress = self.size + (self.reader.chunks if self.reader is not None else 0)
        if progress != self._idle_size:
            self._idle_size = progress
            self._idle_since = now
        elif now - self._idle_since >= limit:
            self._finish("held")

    def hold(self) -> None:
        """End the round of a stream that is still half-read when Clew shuts down."""
        self._finish("held")

    def _facts(self) -> ResponseFacts:
        try:
            if self.reader is not None:
                return self.reader.result()
            route = self._exchange.route
            return route.dialect.response(b"".join(self._body or ()), self._status, route)
        except Exception:
            record_failure("read a response")
            return NO_RESPONSE

    def _finish(
        self, outcome: str | None, error: BaseException | None = None, end_ns: int | None = None
    ) -> None:
        if self.done:
            return
        self.done = True
        exchange = self._exchange
        exchange.runtime.unwatch(self)
        with guard("finish a stream"):
            first = (self.first_ns - exchange.started) / 1e9 if self.first_ns else None
            ending = Ending(
                response=self._facts(),
                status=self._status,
                error=error,
                outcome=outcome,
                chunks=self.reader.chunks if self.reader is not None else None,
                response_bytes=self.size,
                first_chunk_s=first,
                end_ns=end_ns,
            )
            self._body = None
            exchange._end(ending)


def _decoder(encoding: str | None) -> Callable[[bytes], bytes] | None:
    """Return what undoes a content encoding piece by piece; None where there is nothing to undo."""
    name = (encoding or "").strip().lower()
    if name in ("", "identity"):
        return None
    if name == "gzip":
        return zlib.decompressobj(zlib.MAX_WBITS | 16).decompress
    if name == "deflate":
        return zlib.decompressobj().decompress
    if name == "br":
        with guard("find a brotli decoder"):
            import brotli  # type: ignore[import-not-found, import-untyped]

            decompressor: Any = brotli.Decompressor()
            return getattr(decompressor, "decompress", None) or decompressor.process
    if name == "zstd":
        with guard("find a zstandard decoder"):
            import zstandard  # type: ignore[import-not-found, import-untyped]

            return zstandard.ZstdDecompressor().decompressobj().decompress
    return lambda _: b""


def trace_headers_in(names: Iterable[str]) -> list[str]:
    """Return which of the header names carry a trace."""
    return [name for name in names if name.lower() in TRACE_HEADERS]


def content_type_of(headers: Mapping[str, str]) -> str:
    """Return the media type of a response, lower-case, without its parameters."""
    return headers.get("content-type", "").partition(";")[0].strip().lower()
