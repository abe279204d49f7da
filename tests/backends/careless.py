"""What a careless application puts into its own telemetry: a marker word in every place."""

from __future__ import annotations

import time
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue

from clew.allow_list import AllowList

MARKER = "zqleakmarkword"


def mark(place: str) -> str:
    """Return the marker of a place: prose, as content is."""
    return f"{MARKER} in {place}, with spaces"


def pair(key: str, value: Any) -> KeyValue:
    """Return an attribute with a text, or with an `AnyValue` of your own."""
    if isinstance(value, AnyValue):
        return KeyValue(key=key, value=value)
    return KeyValue(key=key, value=AnyValue(string_value=value))


def attributes(place: str, keys: list[str]) -> list[KeyValue]:
    """Return attributes under foreign keys and under every allowed key, nested values too."""
    listed = AnyValue()
    listed.array_value.values.add(string_value=mark(f"{place} list"))
    nested = AnyValue()
    nested.kvlist_value.values.append(pair(MARKER, mark(f"{place} nested")))
    raw = AnyValue(bytes_value=mark(f"{place} bytes").encode())
    found = [
        pair("llm.prompt", mark(place)),
        pair("gen_ai.input.messages", f'[{{"role": "user", "content": "{MARKER}"}}]'),
        pair(f"my.{MARKER}.key", mark("key")),
        *(pair(f"other.{number}", each) for number, each in enumerate((listed, nested, raw))),
    ]
    values = (mark(place), listed, nested, raw)
    return [*found, *(pair(key, values[n % 4]) for n, key in enumerate(keys))]


def message(trace_id: str, agent: str) -> ExportTraceServiceRequest:
    """Return one span with a marker in each place that OTLP has for text."""
    allowed = AllowList.default()
    sent = ExportTraceServiceRequest()
    resource = sent.resource_spans.add(schema_url=f"https://{MARKER}.example/schema")
    resource.resource.attributes.extend(attributes("resource", sorted(allowed.resource)))
    # The service's name decides where Jaeger looks.
    resource.resource.attributes.append(pair("deployment.environment.name", "careless"))
    scope = resource.scope_spans.add(schema_url=f"https://{MARKER}.example/scope")
    scope.scope.name = mark("scope name")
    scope.scope.version = mark("scope version")
    scope.scope.attributes.extend(attributes("scope", sorted(allowed.spans)))
    now = time.time_ns()
    span = scope.spans.add(
        trace_id=bytes.fromhex(trace_id),
        span_id=b"\1" * 8,
        name=f"chat {MARKER}",
        trace_state=f"ot=th:c,{MARKER}=1",
        start_time_unix_nano=now,
        end_time_unix_nano=now + 10**6,
    )
    keys = [key for key in sorted(allowed.spans) if key != "gen_ai.agent.name"]
    span.attributes.extend(attributes("span", keys))
    span.attributes.append(pair("gen_ai.agent.name", agent))
    span.status.code = 2
    span.status.message = mark("status")
    for name in ("exception", mark("event name")):
        event = span.events.add(name=name, time_unix_nano=now)
        event.attributes.extend(attributes("event", sorted(allowed.spans)))
        event.attributes.append(pair("exception.message", mark("exception message")))
        event.attributes.append(pair("exception.stacktrace", mark("stack")))
    link = span.links.add(trace_id=b"\2" * 16, span_id=b"\3" * 8, trace_state=f"{MARKER}=2")
    link.attributes.extend(attributes("link", sorted(allowed.spans)))
    return sent


def metrics(agent: str) -> ExportMetricsServiceRequest:
    """Return metrics of the application's own, and one of Clew's with a label that is not its."""
    sent = ExportMetricsServiceRequest()
    resource = sent.resource_metrics.add()
    resource.resource.attributes.append(pair("service.name", "careless"))
    resource.resource.attributes.append(pair("host.name", mark("resource of metrics")))
    scope = resource.scope_metrics.add()
    scope.scope.name = mark("scope of metrics")
    now = time.time_ns()
    for name in ("clew.runs.started", f"app.{MARKER}.total", "http.server.requests"):
        metric = scope.metrics.add(name=name, unit="1")
        metric.sum.is_monotonic = True
        metric.sum.aggregation_temporality = 2
        point = metric.sum.data_points.add(
            as_int=7, start_time_unix_nano=now - 10**9, time_unix_nano=now
        )
        point.attributes.append(pair("gen_ai.agent.name", agent))
        point.attributes.append(pair("clew.tenant", mark("label")))
        point.attributes.append(pair(f"{MARKER}.label", "x"))
        exemplar = point.exemplars.add(as_int=1, time_unix_nano=now)
        exemplar.filtered_attributes.append(pair("prompt", mark("exemplar")))
    return sent
