"""The OTLP exporter over gRPC: the stock one with Clew's encoder, and a spool where one is set.

Settings, environment variables, metadata, TLS and mTLS and compression are the stock exporter's.
Connections are opened by the first batch: a process that forks before it has sent anything has
none. After `UNAVAILABLE` the next request opens a new one, so that a receiver that is back is found
at once and not when gRPC tries again by itself (up to two minutes later).
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

import grpc
from opentelemetry.exporter.otlp.proto.grpc import trace_exporter as stock
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult

from clew._forks import fork_waits
from clew._guard import guard
from clew.pipeline.otlp_sending import Answer, Sending, Verdict
from clew.pipeline.otlp_spool import Spooling

METHOD: Final = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
SOON: Final = frozenset(
    {"CANCELLED", "DEADLINE_EXCEEDED", "ABORTED", "OUT_OF_RANGE", "UNAVAILABLE", "DATA_LOSS"}
)
"""Codes that may be asked again (https://opentelemetry.io/docs/specs/otlp/#failures)."""
EXHAUSTED: Final = "RESOURCE_EXHAUSTED"
"""May be asked again where the receiver says when; it is also what a message too large gets."""
HOPELESS: Final = frozenset({"INVALID_ARGUMENT"})
_FORK_PATIENCE_S: Final = 1.0
"""Seconds that a fork waits for a request: a child cannot use a gRPC that is in the middle of one
(https://github.com/grpc/grpc/blob/master/doc/fork_support.md)."""
_LARGER: Final = "larger than max"
"""In the details of an answer to a message that is too large, by gRPC's C++, Go and Java."""
_STATUS: Final = "grpc-status-details-bin"
_RETRY_INFO: Final = "google.rpc.retryinfo-bin"

_left_by_fork: list[Any] = []
"""Connections of a parent process. They stay: closing them would end the parent's."""


class FastGrpcSpanExporter(Sending, stock.OTLPSpanExporter):
    """Exports spans by OTLP over gRPC; takes the stock exporter's arguments."""

    _opening = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._connecting = threading.Lock()
        _fit_gevent()
        super().__init__(*args, **kwargs)
        # A version that opens its connection by itself has one now, and no way to a new one.
        self._opens = callable(
            getattr(stock.OTLPSpanExporter, "_initialize_channel_and_stub", None)
        )
        self.usable = self._opens or hasattr(getattr(self, "_channel", None), "unary_unary")

    def _initialize_channel_and_stub(self) -> None:
        if self._opening:
            super()._initialize_channel_and_stub()

    @property
    def endpoint(self) -> str:
        """Where spans go, with the scheme `grpc`, or `grpcs` where TLS is spoken."""
        scheme = "grpc" if getattr(self, "_insecure", True) else "grpcs"
        return f"{scheme}://{getattr(self, '_endpoint', '')}"

    @property
    def timeout_s(self) -> float:
        """Seconds that a batch has at the most."""
        return float(getattr(self, "_timeout", super().timeout_s))

    def forget(self) -> None:
        """Count from zero, and open connections of one's own (in a forked child)."""
        super().forget()
        self._connecting = threading.Lock()
        if self._opens and getattr(self, "_channel", None) is not None:
            _left_by_fork.append((self._channel, self._client))
            self._channel = self._client = None

    def _stock_export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        return stock.OTLPSpanExporter.export(self, spans)

    def _connected(self) -> Any:
        with self._connecting:
            _fit_gevent()
            if self._opens and self._channel is None and not self._ended.is_set():
                self._opening = True
                try:
                    self._initialize_channel_and_stub()
                finally:
                    self._opening = False
            return self._channel

    def _disconnect(self) -> None:
        if self._opens and not self._ended.is_set():
            with self._connecting:
                channel, self._channel, self._client = cast("Any", self._channel), None, None
            if channel is not None:
                channel.close()

    def _once(self, data: bytes, timeout: float) -> Answer:
        try:
            with fork_waits(_FORK_PATIENCE_S):
                channel = self._connected()
                if channel is None:
                    return Answer(code="CANCELLED")
                call = channel.unary_unary(METHOD)
                body: bytes = call(data, timeout=timeout, metadata=self._headers)
        except grpc.RpcError as error:
            answer = _answer(error)
            if answer.code == "UNAVAILABLE":
                with guard("close a connection"):
                    self._disconnect()
            return answer
        except Exception as error:  # the channel was closed meanwhile
            return Answer(error=error)
        with guard("read an OTLP answer"):
            self._note_rejected(body)
        return Answer(Verdict.TAKEN, code="OK")


class SpoolingGrpcSpanExporter(Spooling, FastGrpcSpanExporter):
    """Exports spans by OTLP over gRPC, with a spool behind it."""


def _fit_gevent() -> None:
    """Have gRPC wait as gevent does, where gevent has taken the place of threads.

    Else one request holds up all greenlets of the process until it is answered.
    """
    monkey: Any = sys.modules.get("gevent.monkey")
    if monkey is None or not monkey.is_module_patched("threading"):
        return
    with guard("fit gRPC to gevent"):
        from grpc.experimental import gevent as fitting

        cast("Any", fitting).init_gevent()


def _answer(error: grpc.RpcError) -> Answer:
    code: str = getattr(cast("Any", error).code(), "name", "UNKNOWN")
    details = str(cast("Any", error).details() or "")
    after = _retry_after(error)
    if code == EXHAUSTED and _LARGER in details.lower():
        verdict = Verdict.LARGE
    elif code in SOON or (code == EXHAUSTED and after is not None):
        verdict = Verdict.SOON
    else:
        verdict = Verdict.HOPELESS if code in HOPELESS else Verdict.LATER
    return Answer(verdict, code=code, error=error, retry_after=after)


def _retry_after(error: grpc.RpcError) -> float | None:
    """Return the seconds of a `RetryInfo`, in the status's details or in metadata of its own.

    https://opentelemetry.io/docs/specs/otlp/#otlpgrpc-throttling
    """
    from google.rpc.error_details_pb2 import RetryInfo
    from google.rpc.status_pb2 import Status

    try:
        metadata: Mapping[str, Any] = dict(cast("Any", error).trailing_metadata() or ())
        info = RetryInfo()
        if _RETRY_INFO in metadata:
            info.ParseFromString(metadata[_RETRY_INFO])
        elif _STATUS in metadata:
            status = Status.FromString(metadata[_STATUS])
            if not any(each.Unpack(info) for each in status.details):
                return None
        else:
            return None
    except Exception:  # it is the receiver's, and no message
        return None
    return max(0.0, info.retry_delay.seconds + info.retry_delay.nanos / 1e9)
