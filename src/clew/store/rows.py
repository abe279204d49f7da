"""Records to rows of the table `spans`, and back.

The attributes are one JSON column with sorted keys. What lists and questions need is repeated in
columns of its own; a value of the wrong type leaves its column empty and stays in the JSON.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Any, Final

import msgspec
from msgspec import Struct

from clew import semconv
from clew.store.records import (
    Event,
    Link,
    Resource,
    Scope,
    SpanRecord,
    integer,
    number,
    text,
)

COLUMNS: Final = (
    "trace_id", "span_id", "parent_id", "digest", "resource_id", "scope_id", "received_ns",
    "type", "name", "kind", "start_ns", "end_ns", "status", "error_type",
    "segment_id", "segment", "seq", "agent", "agent_id", "round", "provider", "model",
    "input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens",
    "reasoning_tokens", "cost_usd", "cost_status", "tool", "tool_outcome", "tool_effect",
    "gate", "outcome", "reason", "policy", "policy_version", "enforced", "executed", "subject",
    "decided_by", "data_class", "trust_zone", "attributes", "rest",
)  # fmt: skip
INSERT: Final = f"INSERT INTO spans ({', '.join(COLUMNS)}) VALUES ({', '.join('?' * len(COLUMNS))})"  # noqa: S608 - constants
SELECT: Final = (
    "SELECT trace_id, span_id, parent_id, type, name, kind, start_ns, end_ns, status, "
    "attributes, rest, resource_id, scope_id FROM spans"
)

_encoder: Final = msgspec.json.Encoder(order="sorted")
_attributes_decoder: Final = msgspec.json.Decoder(dict[str, Any])


class Rest(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What few spans have, kept together in one column."""

    status_message: str = ""
    trace_state: str = ""
    flags: int = 0
    events: tuple[Event, ...] = ()
    links: tuple[Link, ...] = ()
    dropped: tuple[int, int, int] = (0, 0, 0)


_rest_decoder: Final = msgspec.json.Decoder(Rest)


class Prepared(Struct, frozen=True):
    """A span on its way into the store: its keys, its digest and its encoded parts."""

    span: SpanRecord
    trace_id: bytes
    span_id: bytes
    digest: bytes
    attributes: str
    rest: str | None


def prepare(span: SpanRecord) -> Prepared:
    """Encode a span and take the digest of its content.

    Two copies of a span are identical when these digests are. What a collector may change on the
    way is left out: resource, scope, trace state, flags and the counts of what was dropped.
    """
    attributes = _encoder.encode(span.attributes)
    content = _encoder.encode(
        (
            span.parent_id,
            span.name,
            span.kind,
            span.start_ns,
            span.end_ns,
            span.status,
            span.status_message,
            span.events,
            span.links,
        )
    )
    digest = blake2b(content, digest_size=16)
    digest.update(attributes)
    rest = _encoder.encode(
        Rest(
            status_message=span.status_message,
            trace_state=span.trace_state,
            flags=span.flags,
            events=span.events,
            links=span.links,
            dropped=span.dropped,
        )
    )
    return Prepared(
        span,
        bytes.fromhex(span.trace_id),
        bytes.fromhex(span.span_id),
        digest.digest(),
        attributes.decode(),
        None if rest == b"{}" else rest.decode(),
    )


def to_row(
    prepared: Prepared, resource_id: int, scope_id: int, received_ns: int
) -> tuple[Any, ...]:
    """Return the values of `COLUMNS`."""
    span = prepared.span
    found = span.attributes
    return (
        prepared.trace_id,
        prepared.span_id,
        bytes.fromhex(span.parent_id) if span.parent_id else None,
        prepared.digest,
        resource_id,
        scope_id,
        received_ns,
        span.type,
        span.name,
        span.kind,
        span.start_ns,
        span.end_ns,
        span.status,
        text(found, semconv.ERROR_TYPE),
        text(found, semconv.SEGMENT_ID),
        integer(found, semconv.SEGMENT),
        integer(found, semconv.SEQ),
        text(found, semconv.AGENT_NAME),
        text(found, semconv.AGENT_ID),
        integer(found, semconv.ROUND),
        text(found, semconv.PROVIDER),
        text(found, semconv.RESPONSE_MODEL) or text(found, semconv.REQUEST_MODEL),
        integer(found, semconv.USAGE_INPUT),
        integer(found, semconv.USAGE_OUTPUT),
        integer(found, semconv.USAGE_CACHE_READ),
        integer(found, semconv.USAGE_CACHE_WRITE),
        integer(found, semconv.USAGE_REASONING),
        number(found, semconv.COST_USD),
        text(found, semconv.COST_STATUS),
        text(found, semconv.TOOL_NAME),
        text(found, semconv.TOOL_OUTCOME),
        text(found, semconv.TOOL_EFFECT),
        text(found, semconv.DECISION_GATE),
        text(found, semconv.DECISION_OUTCOME),
        text(found, semconv.DECISION_REASON),
        text(found, semconv.DECISION_POLICY),
        text(found, semconv.DECISION_POLICY_VERSION),
        _flag(found, semconv.DECISION_ENFORCED),
        _flag(found, semconv.DECISION_EXECUTED),
        text(found, semconv.DECISION_SUBJECT),
        text(found, semconv.DECISION_BY),
        text(found, semconv.DECISION_DATA_CLASS) or text(found, semconv.DATA_CLASS),
        text(found, semconv.DECISION_TRUST_ZONE),
        prepared.attributes,
        prepared.rest,
    )


def _flag(found: dict[str, Any], key: str) -> int | None:
    value = found.get(key)
    return int(value) if isinstance(value, bool) else None


def from_row(row: Any, resources: dict[int, Resource], scopes: dict[int, Scope]) -> SpanRecord:
    """Return the record behind a row of `SELECT`."""
    (trace_id, span_id, parent_id, kind_of, name, kind, start, end, status, found, rest, r, s) = row
    more = _rest_decoder.decode(rest) if rest else Rest()
    return SpanRecord(
        trace_id=trace_id.hex(),
        span_id=span_id.hex(),
        parent_id=parent_id.hex() if parent_id else None,
        type=kind_of,
        name=name,
        kind=kind,
        start_ns=start,
        end_ns=end,
        status=status,
        status_message=more.status_message,
        trace_state=more.trace_state,
        flags=more.flags,
        attributes=_attributes_decoder.decode(found),
        events=more.events,
        links=more.links,
        dropped=more.dropped,
        resource=resources[r],
        scope=scopes[s],
    )
