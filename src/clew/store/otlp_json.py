"""OTLP in JSON: text to records, and records back to one document.

https://opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding - ids are hex, 64-bit integers are
decimal strings (numbers are read too), keys are lowerCamelCase, unknown keys are skipped.
"""

from __future__ import annotations

from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Iterable, Sequence
from typing import Any, Final, cast

import msgspec
from msgspec import Struct

from clew.store.otlp import MAX_DEPTH, Batch, OtlpError, ambiguous, bytes_value, double_value, fault
from clew.store.records import (
    SPAN_KINDS,
    STATUS_CODES,
    Event,
    Link,
    Resource,
    Scope,
    SpanRecord,
    span_type,
)

_HEX: Final = frozenset("0123456789abcdef")
_NO_VALUE: Final = "not OTLP in JSON: an attribute value is of no known kind"


class _Model(Struct, rename="camel"):
    pass


class _KeyValue(_Model):
    key: str = ""
    value: dict[str, Any] | None = None


class _Resource(_Model):
    attributes: list[_KeyValue] | None = None


class _Scope(_Model):
    name: str | None = None
    version: str | None = None
    attributes: list[_KeyValue] | None = None


class _Event(_Model):
    name: str | None = None
    time_unix_nano: int | str | None = None
    attributes: list[_KeyValue] | None = None


class _Link(_Model):
    trace_id: str | None = None
    span_id: str | None = None
    trace_state: str | None = None
    attributes: list[_KeyValue] | None = None


class _Status(_Model):
    code: int | str | None = None
    message: str | None = None


class _Span(_Model):
    trace_id: str | None = None
    span_id: str | None = None
    parent_span_id: str | None = None
    trace_state: str | None = None
    flags: int | None = None
    name: str | None = None
    kind: int | str | None = None
    start_time_unix_nano: int | str | None = None
    end_time_unix_nano: int | str | None = None
    attributes: list[_KeyValue] | None = None
    events: list[_Event] | None = None
    links: list[_Link] | None = None
    status: _Status | None = None
    dropped_attributes_count: int | None = None
    dropped_events_count: int | None = None
    dropped_links_count: int | None = None


class _ScopeSpans(_Model):
    scope: _Scope | None = None
    spans: list[_Span] | None = None
    schema_url: str | None = None


class _ResourceSpans(_Model):
    resource: _Resource | None = None
    scope_spans: list[_ScopeSpans] | None = None
    schema_url: str | None = None


class _Request(_Model):
    resource_spans: list[_ResourceSpans] | None = None
    resource_metrics: Any = None
    resource_logs: Any = None


_decoder = msgspec.json.Decoder(_Request)


def decode(data: bytes | str) -> Batch:
    """Read one document, `{"resourceSpans": [...]}`; one of metrics or logs is an empty batch.

    Raises:
        OtlpError: this is no such document.
    """
    try:
        request = _decoder.decode(data)
    except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError) as error:
        raise OtlpError(f"not OTLP in JSON: {_reason(error)}") from None
    except RecursionError:
        raise OtlpError("not OTLP in JSON: nested too deep") from None
    if request.resource_spans is None:
        if request.resource_metrics is None and request.resource_logs is None:
            raise OtlpError('not OTLP in JSON: the key "resourceSpans" is missing')
        return Batch(spans=())
    return _batch(request.resource_spans)


def _reason(error: Exception) -> str:
    # A ValueError's text may quote what was sent; only structural messages are passed on.
    return str(error) if isinstance(error, msgspec.DecodeError) else type(error).__name__


def _batch(messages: Iterable[_ResourceSpans]) -> Batch:
    spans: list[SpanRecord] = []
    rejected, reason = 0, ""
    for resource_spans in messages:
        sent = resource_spans.resource
        resource = Resource(
            attributes=_attributes(sent.attributes if sent else None),
            schema_url=resource_spans.schema_url or "",
        )
        for scope_spans in resource_spans.scope_spans or ():
            named = scope_spans.scope or _Scope()
            scope = Scope(
                name=named.name or "",
                version=named.version or "",
                attributes=_attributes(named.attributes),
                schema_url=scope_spans.schema_url or "",
            )
            for message in scope_spans.spans or ():
                span = _span(message, resource, scope)
                if isinstance(span, SpanRecord):
                    spans.append(span)
                else:
                    rejected, reason = rejected + 1, reason or span
    return Batch(spans=tuple(spans), rejected=rejected, reason=reason)


def _span(message: _Span, resource: Resource, scope: Scope) -> SpanRecord | str:
    trace_id, span_id = _hex(message.trace_id), _hex(message.span_id)
    start_ns = _integer(message.start_time_unix_nano)
    end_ns = _integer(message.end_time_unix_nano)
    parent_id = _hex(message.parent_span_id)
    problem = fault(trace_id, span_id, parent_id, start_ns, end_ns)
    if problem is not None:
        return problem
    attributes = _attributes(message.attributes)
    status = message.status or _Status()
    return SpanRecord(
        trace_id=trace_id,
        span_id=span_id,
        parent_id=parent_id if parent_id.strip("0") else None,
        type=span_type(attributes, scope.name),
        name=message.name or "",
        kind=_enum(message.kind, "SPAN_KIND_", SPAN_KINDS),
        start_ns=start_ns,
        end_ns=end_ns,
        status=_enum(status.code, "STATUS_CODE_", STATUS_CODES),
        status_message=status.message or "",
        trace_state=message.trace_state or "",
        flags=message.flags or 0,
        attributes=attributes,
        events=tuple(
            Event(
                name=each.name or "",
                time_ns=_integer(each.time_unix_nano),
                attributes=_attributes(each.attributes),
            )
            for each in message.events or ()
        ),
        links=tuple(
            Link(
                trace_id=_hex(each.trace_id),
                span_id=_hex(each.span_id),
                trace_state=each.trace_state or "",
                attributes=_attributes(each.attributes),
            )
            for each in message.links or ()
        ),
        dropped=(
            message.dropped_attributes_count or 0,
            message.dropped_events_count or 0,
            message.dropped_links_count or 0,
        ),
        resource=resource,
        scope=scope,
    )


def _hex(value: str | None) -> str:
    lowered = (value or "").lower()
    return lowered if _HEX.issuperset(lowered) else ""


def _integer(value: int | str | None) -> int:
    if isinstance(value, str):
        # int() also reads "1_000", " 1 " and digits of other scripts; OTLP does not.
        digits = value.removeprefix("-")
        if not (digits.isascii() and digits.isdigit()) or len(digits) > 20:
            raise OtlpError("not OTLP in JSON: a 64-bit integer is not a decimal number")
        return int(value)
    return value or 0


def _enum(value: int | str | None, prefix: str, names: tuple[str, ...]) -> int:
    if isinstance(value, str):
        name = value.removeprefix(prefix).lower()
        return names.index(name) if name in names else 0
    return value if value is not None and -(2**31) <= value < 2**31 else 0


def _attributes(pairs: Sequence[_KeyValue] | None) -> dict[str, Any]:
    if not pairs:
        return {}
    found = {pair.key: _value(pair.value, 0) for pair in pairs}
    if len(found) != len(pairs):
        return ambiguous((pair.key, _value(pair.value, 0)) for pair in pairs)
    return found


def _value(value: Any, depth: int) -> Any:
    if depth > MAX_DEPTH:
        raise OtlpError(f"an attribute value is nested more than {MAX_DEPTH} deep")
    if value is None or value == {}:
        return None
    if not isinstance(value, dict):
        raise OtlpError(_NO_VALUE)
    kind, inner = next(iter(cast("dict[str, Any]", value).items()))
    match kind:
        case "stringValue" if isinstance(inner, str):
            return inner
        case "boolValue" if isinstance(inner, bool):
            return inner
        case "intValue" if isinstance(inner, int | str) and not isinstance(inner, bool):
            whole = _integer(inner)
            if not -(2**63) <= whole < 2**63:
                raise OtlpError("not OTLP in JSON: an integer has more than 64 bits")
            return whole
        case "doubleValue" if isinstance(inner, int | float | str):
            return _double(inner)
        case "arrayValue":
            return [_value(each, depth + 1) for each in _list(inner)]
        case "kvlistValue":
            return {"kvlistValue": _pairs(inner, depth)}
        case "bytesValue" if isinstance(inner, str):
            return _bytes(inner)
        case _:
            raise OtlpError(_NO_VALUE)


def _list(holder: Any) -> list[Any]:
    values = cast("dict[str, Any]", holder).get("values") if isinstance(holder, dict) else ()
    if values is None:
        return []
    if not isinstance(values, list):
        raise OtlpError(_NO_VALUE)
    return cast("list[Any]", values)


def _pairs(holder: Any, depth: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for pair in _list(holder):
        match pair:
            case {"key": str(key)}:
                found[key] = _value(cast("dict[str, Any]", pair).get("value"), depth + 1)
            case _:
                raise OtlpError("not OTLP in JSON: a pair has no key")
    return found


def _double(value: float | str) -> Any:
    try:
        return double_value(float(value))
    except (ValueError, OverflowError):
        raise OtlpError("not OTLP in JSON: a double is not a number") from None


def _bytes(value: str) -> dict[str, Any]:
    try:
        return bytes_value(b64decode(value, validate=True))
    except (Base64Error, ValueError):
        raise OtlpError("not OTLP in JSON: bytes are not in base64") from None
