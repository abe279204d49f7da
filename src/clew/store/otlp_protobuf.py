"""OTLP in protobuf: bytes of an `ExportTraceServiceRequest` to records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from clew.store.otlp import MAX_DEPTH, Batch, OtlpError, ambiguous, bytes_value, double_value, fault
from clew.store.records import Event, Link, Resource, Scope, SpanRecord, span_type


def decode(data: bytes) -> Batch:
    """Read one message.

    Raises:
        OtlpError: these bytes are no such message.
    """
    try:
        request = ExportTraceServiceRequest.FromString(data)
    except DecodeError:
        raise OtlpError("the body is not an OTLP trace message in protobuf") from None
    spans: list[SpanRecord] = []
    rejected, reason = 0, ""
    for resource_spans in request.resource_spans:
        resource = Resource(
            attributes=_attributes(resource_spans.resource.attributes),
            schema_url=resource_spans.schema_url,
        )
        for scope_spans in resource_spans.scope_spans:
            scope = Scope(
                name=scope_spans.scope.name,
                version=scope_spans.scope.version,
                attributes=_attributes(scope_spans.scope.attributes),
                schema_url=scope_spans.schema_url,
            )
            for message in scope_spans.spans:
                span = _span(message, resource, scope)
                if isinstance(span, SpanRecord):
                    spans.append(span)
                else:
                    rejected, reason = rejected + 1, reason or span
    return Batch(spans=tuple(spans), rejected=rejected, reason=reason)


def _span(message: Any, resource: Resource, scope: Scope) -> SpanRecord | str:
    trace_id: str = message.trace_id.hex()
    span_id: str = message.span_id.hex()
    start_ns: int = message.start_time_unix_nano
    end_ns: int = message.end_time_unix_nano
    parent_id: str = message.parent_span_id.hex()
    problem = fault(trace_id, span_id, parent_id, start_ns, end_ns)
    if problem is not None:
        return problem
    attributes = _attributes(message.attributes)
    status = message.status
    return SpanRecord(
        trace_id=trace_id,
        span_id=span_id,
        parent_id=parent_id if parent_id.strip("0") else None,
        type=span_type(attributes, scope.name),
        name=message.name,
        kind=message.kind,
        start_ns=start_ns,
        end_ns=end_ns,
        status=status.code,
        status_message=status.message,
        trace_state=message.trace_state,
        flags=message.flags,
        attributes=attributes,
        events=tuple(
            Event(name=e.name, time_ns=e.time_unix_nano, attributes=_attributes(e.attributes))
            for e in message.events
        )
        if message.events
        else (),
        links=tuple(
            Link(
                trace_id=each.trace_id.hex(),
                span_id=each.span_id.hex(),
                trace_state=each.trace_state,
                attributes=_attributes(each.attributes),
            )
            for each in message.links
        )
        if message.links
        else (),
        dropped=(
            message.dropped_attributes_count,
            message.dropped_events_count,
            message.dropped_links_count,
        ),
        resource=resource,
        scope=scope,
    )


def _attributes(pairs: Sequence[Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for pair in pairs:
        value = pair.value
        kind = value.WhichOneof("value")
        # The two commonest first: this loop is most of what receiving a span costs.
        if kind == "string_value":
            found[pair.key] = value.string_value
        elif kind == "int_value":
            found[pair.key] = value.int_value
        else:
            found[pair.key] = _value(value, kind, 0)
    if len(found) != len(pairs):
        return ambiguous((p.key, _value(p.value, p.value.WhichOneof("value"), 0)) for p in pairs)
    return found


def _value(value: Any, kind: str | None, depth: int) -> Any:
    if depth > MAX_DEPTH:
        raise OtlpError(f"an attribute value is nested more than {MAX_DEPTH} deep")
    match kind:
        case "string_value":
            return value.string_value
        case "bool_value":
            return value.bool_value
        case "int_value":
            return value.int_value
        case "double_value":
            return double_value(value.double_value)
        case "array_value":
            return [
                _value(each, each.WhichOneof("value"), depth + 1)
                for each in value.array_value.values
            ]
        case "kvlist_value":
            inner = {
                pair.key: _value(pair.value, pair.value.WhichOneof("value"), depth + 1)
                for pair in value.kvlist_value.values
            }
            return {"kvlistValue": inner}
        case "bytes_value":
            return bytes_value(value.bytes_value)
        case _:
            return None
