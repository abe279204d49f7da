"""An OTLP receiver over gRPC that can be made to fail in each way that receivers do."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import grpc
from google.protobuf.any_pb2 import Any as AnyMessage
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status

from clew.store import otlp_protobuf
from clew.store.records import SpanRecord

SERVICE = "opentelemetry.proto.collector.trace.v1.TraceService"


class GrpcReceiver:
    """Takes spans, or answers as it is told.

    Args:
        port: where to listen; 0 takes a free port.
        status: what it answers: `OK` takes, `NEVER` never answers, `DIES` ends the server;
            else the name of a code.
        retry_s: seconds in a `RetryInfo`; None: without one.
        answer: the message that says it was taken.
        most: bytes of a message that it takes.
        tls: files with a certificate and its key.
    """

    def __init__(
        self,
        *,
        port: int = 0,
        status: str = "OK",
        retry_s: float | None = None,
        answer: bytes = b"",
        most: int = 1 << 30,
        tls: tuple[Path, Path] | None = None,
    ) -> None:
        self.port = port
        self.status = status
        self.retry_s = retry_s
        self.answer = answer
        self.after: tuple[int, str] | None = None
        """After so many requests its status becomes another."""
        self.statuses: list[str] = []
        """What it answers first, in turn."""
        self.taken: list[bytes] = []
        self.metadata: list[dict[str, Any]] = []
        self.asked = 0
        self._tls = tls
        self._most = most
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        self._server = grpc.server(
            ThreadPoolExecutor(4),
            options=[("grpc.so_reuseport", 0), ("grpc.max_receive_message_length", self._most)],
        )
        handler = grpc.unary_unary_rpc_method_handler(self._respond)
        self._server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(SERVICE, {"Export": handler}),)
        )
        address = f"127.0.0.1:{self.port}"
        if self._tls is None:
            self.port = self._server.add_insecure_port(address)
        else:
            public, private = (each.read_bytes() for each in self._tls)
            credentials = grpc.ssl_server_credentials([(private, public)])
            self.port = self._server.add_secure_port(address, credentials)
        self._server.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: object, traceback: TracebackType | None
    ) -> None:
        self._server.stop(0).wait(10)

    @property
    def base_url(self) -> str:
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self.port}"

    def _respond(self, body: bytes, context: Any) -> bytes:
        with self._lock:
            self.asked += 1
            self.metadata.append(dict(context.invocation_metadata()))
            if self.after is not None and self.asked > self.after[0]:
                self.status = self.after[1]
            status = self.statuses.pop(0) if self.statuses else self.status
            if status == "OK":
                self.taken.append(body)
                return self.answer
        if status in ("NEVER", "DIES"):
            ended = threading.Event()
            context.add_callback(ended.set)
            if status == "DIES":
                threading.Thread(target=self._server.stop, args=(0,)).start()
            ended.wait(60)
            return b""
        code = grpc.StatusCode[status]
        if self.retry_s is not None:
            info = RetryInfo()
            info.retry_delay.FromNanoseconds(int(self.retry_s * 1e9))
            details = AnyMessage()
            details.Pack(info)
            message = Status(code=code.value[0], details=[details]).SerializeToString()
            context.set_trailing_metadata((("grpc-status-details-bin", message),))
        context.abort(code, "as told")
        raise AssertionError

    def records(self) -> list[SpanRecord]:
        """Return every span that was taken, copies included, in the order of arrival."""
        return [span for body in self.taken for span in otlp_protobuf.decode(body).spans]
