"""Stand-ins for backends that cannot be run here, made from their public API documents.

`Tempo` answers the two endpoints that the source uses, as
https://grafana.com/docs/tempo/latest/api_docs/ describes them. `ClickHouse` is ClickHouse's own
engine (chdb, in this process) behind the part of the HTTP interface that the source uses,
https://clickhouse.com/docs/interfaces/http, with the tables of the Collector's exporter.
"""

from __future__ import annotations

import json
import random
import threading
from collections import defaultdict
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import traceql
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from clew.store import otlp_protobuf
from clew.store.records import SPAN_KINDS, STATUS_CODES, SpanRecord


class StandIn:
    """An HTTP server on loopback. `handle` answers: status, headers, body."""

    def __init__(self) -> None:
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _answer(self) -> None:
                length = int(self.headers.get("content-length") or 0)
                body = self.rfile.read(length)
                parts = urlsplit(self.path)
                given = {
                    name: values[0]
                    for name, values in parse_qs(parts.query, keep_blank_values=True).items()
                }
                headers = {name.lower(): value for name, value in self.headers.items()}
                outer.requests.append((parts.path, given, headers))
                status, kind, content = outer.handle(parts.path, given, headers, body)
                self.send_response(status)
                self.send_header("content-type", kind)
                self.send_header("content-length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            do_GET = do_POST = _answer  # noqa: N815 - the names are given

            def log_message(self, *_: Any) -> None:
                pass

        self.requests: list[tuple[str, dict[str, str], dict[str, str]]] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"127.0.0.1:{self._server.server_address[1]}"

    def handle(
        self, path: str, given: dict[str, str], headers: dict[str, str], body: bytes
    ) -> tuple[int, str, bytes]:
        """Return status, content type and body of an answer."""
        raise NotImplementedError

    def __enter__(self) -> Any:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


class Tempo(StandIn):
    """Holds traces; a search gives some of the matches, in no order, ids without leading zeros."""

    def __init__(self, message: bytes) -> None:
        super().__init__()
        self._traces: defaultdict[str, ExportTraceServiceRequest] = defaultdict(
            ExportTraceServiceRequest
        )
        self._spans: defaultdict[str, list[SpanRecord]] = defaultdict(list)
        for resource in ExportTraceServiceRequest.FromString(message).resource_spans:
            for scope in resource.scope_spans:
                for span in scope.spans:
                    kept = self._traces[span.trace_id.hex()].resource_spans.add()
                    kept.resource.CopyFrom(resource.resource)
                    inner = kept.scope_spans.add()
                    inner.scope.CopyFrom(scope.scope)
                    inner.spans.add().CopyFrom(span)
        for span in otlp_protobuf.decode(message).spans:
            self._spans[span.trace_id].append(span)

    def handle(
        self, path: str, given: dict[str, str], headers: dict[str, str], body: bytes
    ) -> tuple[int, str, bytes]:
        """Answer a search, or a trace by its id."""
        if path == "/api/search":
            return 200, "application/json", json.dumps(self._search(given)).encode()
        trace = self._traces.get(path.removeprefix("/api/traces/"))
        if trace is None:
            return 404, "text/plain", b"trace not found"
        if headers.get("accept") != "application/protobuf":
            return 406, "text/plain", b"this stand-in speaks protobuf"
        return 200, "application/protobuf", trace.SerializeToString()

    def _search(self, given: dict[str, str]) -> dict[str, Any]:
        parsed = traceql.parse(given["q"])
        low, high = int(given["start"]) * 10**9, int(given["end"]) * 10**9
        found = [
            trace_id
            for trace_id, spans in self._spans.items()
            if any(low <= each.end_ns and each.start_ns < high for each in spans)
            and (not parsed.attributes or any(parsed.holds(each.attributes) for each in spans))
        ]
        random.Random(7).shuffle(found)  # noqa: S311 - an order that nobody may rely on
        return {
            "traces": [
                {"traceID": each.lstrip("0"), "rootServiceName": "x", "durationMs": 1}
                for each in found[: int(given["limit"])]
            ],
            "metrics": {},
        }


TABLE = """
CREATE TABLE otel.otel_traces (
    Timestamp DateTime64(9) CODEC(Delta, ZSTD(1)),
    TraceId String CODEC(ZSTD(1)),
    SpanId String CODEC(ZSTD(1)),
    ParentSpanId String CODEC(ZSTD(1)),
    TraceState String CODEC(ZSTD(1)),
    SpanName LowCardinality(String) CODEC(ZSTD(1)),
    SpanKind LowCardinality(String) CODEC(ZSTD(1)),
    ServiceName LowCardinality(String) CODEC(ZSTD(1)),
    ResourceAttributes Map(LowCardinality(String), String) CODEC(ZSTD(1)),
    ScopeName String CODEC(ZSTD(1)),
    ScopeVersion String CODEC(ZSTD(1)),
    SpanAttributes Map(LowCardinality(String), String) CODEC(ZSTD(1)),
    Duration UInt64 CODEC(ZSTD(1)),
    StatusCode LowCardinality(String) CODEC(ZSTD(1)),
    StatusMessage String CODEC(ZSTD(1)),
    Events Nested (Timestamp DateTime64(9), Name LowCardinality(String),
                   Attributes Map(LowCardinality(String), String)) CODEC(ZSTD(1)),
    Links Nested (TraceId String, SpanId String, TraceState String,
                  Attributes Map(LowCardinality(String), String)) CODEC(ZSTD(1)),
    INDEX idx_trace_id TraceId TYPE bloom_filter(0.001) GRANULARITY 1
) ENGINE = MergeTree PARTITION BY toDate(Timestamp)
ORDER BY (ServiceName, SpanName, toDateTime(Timestamp))
"""
LOOKUP = """
CREATE TABLE otel.otel_traces_trace_id_ts (
    TraceId String, Start DateTime, End DateTime
) ENGINE = MergeTree PARTITION BY toDate(Start) ORDER BY (TraceId, Start)
"""
VIEW = """
CREATE MATERIALIZED VIEW otel.otel_traces_trace_id_ts_mv TO otel.otel_traces_trace_id_ts AS
SELECT TraceId, min(Timestamp) AS Start, max(Timestamp) AS End FROM otel.otel_traces
WHERE TraceId != '' GROUP BY TraceId
"""


def as_text(value: Any) -> str:
    """Write an attribute value as the exporter does: strings plain, lists as JSON."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() else repr(value)
    if isinstance(value, (list, dict)):
        return json.dumps(value, separators=(",", ":"))
    return str(value)


def texts(attributes: dict[str, Any]) -> dict[str, str]:
    """Return attributes as the exporter's columns hold them."""
    return {key: as_text(value) for key, value in attributes.items()}


class ClickHouse(StandIn):
    """ClickHouse's engine with the exporter's tables, filled with the spans of a message."""

    def __init__(self, message: bytes) -> None:
        super().__init__()
        from chdb import session

        self._session = session.Session()
        self._lock = threading.Lock()
        drop = "DROP DATABASE IF EXISTS otel"  # the engine is one for the whole process
        for statement in (drop, "CREATE DATABASE otel", TABLE, LOOKUP, VIEW):
            self._session.query(statement)
        rows = "\n".join(json.dumps(_row(e)) for e in otlp_protobuf.decode(message).spans)
        self._session.query(f"INSERT INTO otel.otel_traces FORMAT JSONEachRow\n{rows}")

    def handle(
        self, path: str, given: dict[str, str], headers: dict[str, str], body: bytes
    ) -> tuple[int, str, bytes]:
        """Run a statement with its parameters."""
        parameters = {
            name.removeprefix("param_"): value
            for name, value in given.items()
            if name.startswith("param_")
        }
        with self._lock:
            try:
                answer = self._session.query(body.decode(), "JSONEachRow", params=parameters)
            except Exception as error:  # the engine's own words, as the server would send them
                return 400, "text/plain", str(error).encode()
        return 200, "application/x-ndjson", answer.bytes()

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        self._session.close()


def _row(span: SpanRecord) -> dict[str, Any]:
    return {
        "Timestamp": _moment(span.start_ns),
        "TraceId": span.trace_id,
        "SpanId": span.span_id,
        "ParentSpanId": span.parent_id or "",
        "TraceState": span.trace_state,
        "SpanName": span.name,
        "SpanKind": SPAN_KINDS[span.kind].title(),
        "ServiceName": span.resource.service or "",
        "ResourceAttributes": texts(span.resource.attributes),
        "ScopeName": span.scope.name,
        "ScopeVersion": span.scope.version,
        "SpanAttributes": texts(span.attributes),
        "Duration": span.end_ns - span.start_ns,
        "StatusCode": STATUS_CODES[span.status].title(),
        "StatusMessage": span.status_message,
        "Events.Timestamp": [_moment(each.time_ns) for each in span.events],
        "Events.Name": [each.name for each in span.events],
        "Events.Attributes": [texts(each.attributes) for each in span.events],
        "Links.TraceId": [each.trace_id for each in span.links],
        "Links.SpanId": [each.span_id for each in span.links],
        "Links.TraceState": [each.trace_state for each in span.links],
        "Links.Attributes": [texts(each.attributes) for each in span.links],
    }


def _moment(time_ns: int) -> str:
    return f"{time_ns // 10**9}.{time_ns % 10**9:09d}"
