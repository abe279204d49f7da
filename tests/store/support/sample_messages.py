"""Sample runs as messages of OTLP, in protobuf and in JSON, and as spans."""

from __future__ import annotations

import json
from base64 import b64encode
from typing import Any

import httpx
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from sample_runs import KINDS, MS, Sample, Sent

from clew.store import otlp_protobuf
from clew.store.records import SpanRecord


def message(*runs: Sample) -> ExportTraceServiceRequest:
    """All spans of these runs as one message."""
    request = ExportTraceServiceRequest()
    for run in runs:
        resource_spans = request.resource_spans.add()
        resource_spans.resource.attributes.extend(_pairs(run.resource))
        scopes: dict[str, Any] = {}
        for sent in run.spans:
            if sent.scope not in scopes:
                scopes[sent.scope] = resource_spans.scope_spans.add()
                scopes[sent.scope].scope.name = sent.scope
                scopes[sent.scope].scope.version = "1.0"
            _fill(scopes[sent.scope].spans.add(), sent)
    return request


def protobuf(*runs: Sample) -> bytes:
    """All spans of these runs as an OTLP message in protobuf."""
    return message(*runs).SerializeToString()


def document(*runs: Sample) -> dict[str, Any]:
    """All spans of these runs as an OTLP document for JSON."""
    return {
        "resourceSpans": [
            {
                "resource": {"attributes": _json_pairs(run.resource)},
                "scopeSpans": [
                    {
                        "scope": {"name": scope, "version": "1.0"},
                        "spans": [_json_span(each) for each in run.spans if each.scope == scope],
                    }
                    for scope in dict.fromkeys(each.scope for each in run.spans)
                ],
            }
            for run in runs
        ]
    }


def otlp_json(*runs: Sample) -> bytes:
    """All spans of these runs as an OTLP message in JSON."""
    return json.dumps(document(*runs)).encode()


def _fill(span: Any, sent: Sent) -> None:
    span.trace_id = bytes.fromhex(sent.run.trace_id)
    span.span_id = bytes.fromhex(sent.span_id)
    span.parent_span_id = bytes.fromhex(sent.parent_id)
    span.name = sent.name
    span.kind = KINDS[sent.kind]
    span.flags = 0x101
    span.start_time_unix_nano = sent.start_ns
    span.end_time_unix_nano = sent.end_ns
    span.attributes.extend(_pairs(sent.attributes))
    span.status.code = sent.status
    for name, at, attributes in sent.events:
        event = span.events.add(name=name, time_unix_nano=sent.run.base_ns + round(at * MS))
        event.attributes.extend(_pairs(attributes))
    for trace_id, span_id in sent.links:
        span.links.add(trace_id=bytes.fromhex(trace_id), span_id=bytes.fromhex(span_id))


def _pairs(attributes: dict[str, Any]) -> list[KeyValue]:
    return [KeyValue(key=key, value=any_value(value)) for key, value in attributes.items()]


def any_value(value: Any) -> AnyValue:
    """A Python value as an attribute value in protobuf."""
    match value:
        case bool():
            return AnyValue(bool_value=value)
        case int():
            return AnyValue(int_value=value)
        case float():
            return AnyValue(double_value=value)
        case str():
            return AnyValue(string_value=value)
        case bytes():
            return AnyValue(bytes_value=value)
        case list():
            array = AnyValue()
            array.array_value.values.extend(any_value(each) for each in value)
            return array
        case dict():
            pairs = AnyValue()
            pairs.kvlist_value.values.extend(_pairs(value))
            return pairs
        case _:
            return AnyValue()


def _json_span(sent: Sent) -> dict[str, Any]:
    return {
        "traceId": sent.run.trace_id,
        "spanId": sent.span_id,
        "parentSpanId": sent.parent_id,
        "name": sent.name,
        "kind": KINDS[sent.kind],
        "flags": 0x101,
        "startTimeUnixNano": str(sent.start_ns),
        "endTimeUnixNano": str(sent.end_ns),
        "attributes": _json_pairs(sent.attributes),
        "status": {"code": sent.status} if sent.status else {},
        "events": [
            {
                "name": name,
                "timeUnixNano": str(sent.run.base_ns + round(at * MS)),
                "attributes": _json_pairs(attributes),
            }
            for name, at, attributes in sent.events
        ],
        "links": [{"traceId": trace_id, "spanId": span_id} for trace_id, span_id in sent.links],
    }


def _json_pairs(attributes: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"key": key, "value": _json_value(value)} for key, value in attributes.items()]


def _json_value(value: Any) -> dict[str, Any]:
    match value:
        case bool():
            return {"boolValue": value}
        case int():
            return {"intValue": str(value)}
        case float():
            return {"doubleValue": value}
        case str():
            return {"stringValue": value}
        case bytes():
            return {"bytesValue": b64encode(value).decode()}
        case list():
            return {"arrayValue": {"values": [_json_value(each) for each in value]}}
        case dict():
            return {"kvlistValue": {"values": _json_pairs(value)}}
        case _:
            return {}


def spans_of(*runs: Sample) -> tuple[SpanRecord, ...]:
    """All spans of these runs, read from a message."""
    return otlp_protobuf.decode(protobuf(*runs)).spans


def send(address: str, *runs: Sample) -> None:
    """Send these runs to a receiver, as a service would."""
    httpx.post(
        f"{address}/v1/traces",
        content=protobuf(*runs),
        headers={"content-type": "application/x-protobuf"},
        trust_env=False,
        timeout=60,
    ).raise_for_status()
