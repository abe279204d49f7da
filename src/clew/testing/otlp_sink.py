"""An OTLP/HTTP receiver on loopback that keeps what real exporters send.

https://opentelemetry.io/docs/specs/otlp/#otlphttp
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from clew.testing.loopback import Connection, LoopbackServer, ReceivedRequest

if TYPE_CHECKING:
    from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
    from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
        ExportMetricsServiceRequest,
    )
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
    from opentelemetry.proto.trace.v1.trace_pb2 import Span

PROTOBUF: Final = "application/x-protobuf"


class OtlpSink(LoopbackServer):
    """Takes `/v1/traces`, `/v1/metrics` and `/v1/logs` as protobuf, gzip too.

    with OtlpSink() as sink:
        OTLPSpanExporter(endpoint=sink.traces_endpoint)
    """

    def __init__(self) -> None:
        super().__init__()
        self.traces: list[ExportTraceServiceRequest] = []
        self.metrics: list[ExportMetricsServiceRequest] = []
        self.logs: list[ExportLogsServiceRequest] = []
        self.bodies: list[bytes] = []
        """Every message as it came, decompressed, refused ones too."""
        self._refusals: list[tuple[int, bool]] = []

    @property
    def traces_endpoint(self) -> str:
        """The full address for spans."""
        return f"{self.base_url}/v1/traces"

    @property
    def spans(self) -> tuple[Span, ...]:
        """Every span received, copies included, in the order of arrival."""
        return tuple(self._spans())

    def refuse(self, status: int = 503, *, times: int = 1, keep: bool = False) -> None:
        """Answer the next messages with an error status.

        Args:
            status: what to answer.
            times: how many messages.
            keep: store the message all the same, as a receiver does whose answer got lost.
        """
        self._refusals.extend([(status, keep)] * times)

    def respond(self, request: ReceivedRequest, connection: Connection) -> None:
        """Keep a message and answer with its response message."""
        body = request.content()
        self.bodies.append(body)
        status, keep = self._refusals.pop(0) if self._refusals else (200, True)
        known = self._keep(request.path, body) if keep else True
        status = status if known else 404
        # A response message without fields has no bytes.
        connection.head(status, {"content-type": PROTOBUF}, 0)

    def _keep(self, path: str, body: bytes) -> bool:
        from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import (
            ExportLogsServiceRequest,
        )
        from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
            ExportMetricsServiceRequest,
        )
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
            ExportTraceServiceRequest,
        )

        if path == "/v1/traces":
            self.traces.append(ExportTraceServiceRequest.FromString(body))
        elif path == "/v1/metrics":
            self.metrics.append(ExportMetricsServiceRequest.FromString(body))
        elif path == "/v1/logs":
            self.logs.append(ExportLogsServiceRequest.FromString(body))
        else:
            return False
        return True

    def _spans(self) -> Iterator[Span]:
        for message in self.traces:
            for resource in message.resource_spans:
                for scope in resource.scope_spans:
                    yield from scope.spans
