"""Records to one OTLP JSON document, `{"resourceSpans": [...]}`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast

import msgspec

from clew.store.records import Resource, Scope, SpanRecord


def encode(spans: Iterable[SpanRecord]) -> bytes:
    """Write `spans` as one document, grouped by resource and scope, otherwise in their order."""
    groups: dict[bytes, tuple[Resource, dict[bytes, tuple[Scope, list[dict[str, Any]]]]]] = {}
    for span in spans:
        resource_key = msgspec.json.encode(span.resource, order="sorted")
        scope_key = msgspec.json.encode(span.scope, order="sorted")
        _, scopes = groups.setdefault(resource_key, (span.resource, {}))
        _, written = scopes.setdefault(scope_key, (span.scope, []))
        written.append(_span(span))
    document = {
        "resourceSpans": [
            {
                "resource": {"attributes": _attributes(resource.attributes)},
                "scopeSpans": [
                    {
                        "scope": {
                            "name": scope.name,
                            "version": scope.version,
                            "attributes": _attributes(scope.attributes),
                        },
                        "spans": written,
                        "schemaUrl": scope.schema_url,
                    }
                    for scope, written in scopes.values()
                ],
                "schemaUrl": resource.schema_url,
            }
            for resource, scopes in groups.values()
        ]
    }
    return msgspec.json.encode(document)


def _span(span: SpanRecord) -> dict[str, Any]:
    written: dict[str, Any] = {
        "traceId": span.trace_id,
        "spanId": span.span_id,
        "parentSpanId": span.parent_id or "",
        "traceState": span.trace_state,
        "flags": span.flags,
        "name": span.name,
        "kind": span.kind,
        "startTimeUnixNano": str(span.start_ns),
        "endTimeUnixNano": str(span.end_ns),
        "attributes": _attributes(span.attributes),
        "droppedAttributesCount": span.dropped[0],
        "events": [
            {
                "name": each.name,
                "timeUnixNano": str(each.time_ns),
                "attributes": _attributes(each.attributes),
            }
            for each in span.events
        ],
        "droppedEventsCount": span.dropped[1],
        "links": [
            {
                "traceId": each.trace_id,
                "spanId": each.span_id,
                "traceState": each.trace_state,
                "attributes": _attributes(each.attributes),
            }
            for each in span.links
        ],
        "droppedLinksCount": span.dropped[2],
        "status": {"code": span.status, "message": span.status_message},
    }
    return {key: value for key, value in written.items() if value not in ("", [], 0)}


def _attributes(attributes: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [{"key": key, "value": _value(value)} for key, value in attributes.items()]


def _value(value: Any) -> dict[str, Any]:
    match value:
        case None:
            return {}
        case bool():
            return {"boolValue": value}
        case int():
            return {"intValue": str(value)}
        case float():
            return {"doubleValue": value}
        case str():
            return {"stringValue": value}
        case list():
            return {"arrayValue": {"values": [_value(each) for each in cast("list[Any]", value)]}}
        case {"kvlistValue": inner}:
            return {"kvlistValue": {"values": _attributes(cast("dict[str, Any]", inner))}}
        case _:
            return value
