"""Spans as an OTLP message, written straight into its wire form.

The stock encoder builds a tree of message objects first, which is nearly all of its cost. This one
yields the same message (opentelemetry/proto/trace/v1/trace.proto; the wire form is described at
https://protobuf.dev/programming-guides/encoding/). An attribute that OTLP cannot say (an integer of
more than 64 bits, half a surrogate pair, an object) is left out alone; the others stay.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, cast

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, SpanKind

from clew import semconv
from clew._guard import record_failure
from clew.pipeline.light import UNSET, LightSpan, LightSpans
from clew.pipeline.pausing import pausing
from clew.rules import Closed, Each, Identifier

_MAX: Final = 2**63
_DEPTH: Final = 32
_TWO_BYTES: Final = 1 << 14
_CACHED: Final = 4096
_LONGEST_CACHED: Final = 64
_fixed64: Final = struct.Struct("<Q").pack
_double: Final = struct.Struct("<d").pack
_times: Final = struct.Struct("<BQBQ").pack
_SMALL: Final = tuple(bytes((n,)) for n in range(128))
_KINDS: Final = {kind: bytes((0x30, kind.value + 1)) for kind in SpanKind}
_LOCAL_FLAGS: Final = b"\x85\x01" + struct.pack("<I", 0x100)
_REMOTE_FLAGS: Final = b"\x85\x01" + struct.pack("<I", 0x300)
_LINK_LOCAL: Final = b"\x35" + struct.pack("<I", 0x100)
_LINK_REMOTE: Final = b"\x35" + struct.pack("<I", 0x300)
_STATUS: Final = (b"\x7a\x00", b"\x7a\x02\x18\x01", b"\x7a\x02\x18\x02")
_EMPTY: Final = b""
_names: dict[str, bytes] = {}

_RECURRING: Final = frozenset(
    key
    for key, rule in semconv.RULES.items()
    if isinstance(rule, Closed) or type(rule) is Identifier
) | {semconv.RUN_ID, semconv.SEGMENT_ID, semconv.AGENT_ID}
"""Keys that have few distinct texts, or that many spans in a row have alike."""
_LISTS: Final = frozenset(key for key, rule in semconv.RULES.items() if isinstance(rule, Each))

_pairs: dict[tuple[str, Any], bytes] = {}
"""Attributes of spans whose text (or list of texts) comes again and again, each as its message."""


class _Forms(NamedTuple):
    """What stands before a value in a span's attribute with one key, by the value's type."""

    key: bytes
    one_byte: bytes
    two_bytes: bytes
    double: bytes
    flags: tuple[bytes, bytes]
    """The whole attribute when it is false, and when it is true."""


_forms: dict[str, _Forms] = {}


def encode(spans: Sequence[ReadableSpan]) -> bytes:
    """Return the `ExportTraceServiceRequest` of spans; one that cannot be written is left out."""
    groups: dict[int, dict[int, list[bytes]]] = {}
    resources: dict[int, Resource] = {}
    scopes: dict[int, InstrumentationScope | None] = {}
    same: dict[int, int] = {}
    last_maker: LightSpans | None = None
    last_group: list[bytes] = []
    for span in pausing(spans):
        try:
            if type(span) is LightSpan:
                written = _light(span)
                if span._maker is last_maker:
                    last_group.append(written)
                    continue
            else:
                written = _span(span)
        except Exception:
            record_failure("write a span")
            continue
        resource, scope = span.resource, cast("Any", span).instrumentation_scope
        key = same.get(id(resource))
        if key is None:
            key = same[id(resource)] = _known(resources, resource)
        inner = same.get(id(scope))
        if inner is None:
            inner = same[id(scope)] = _known(scopes, scope)
        group = groups.setdefault(key, {}).setdefault(inner, [])
        group.append(written)
        if type(span) is LightSpan:
            last_maker, last_group = span._maker, group
    parts: list[bytes] = []
    for key, by_scope in groups.items():
        parts.append(_message(0x0A, _resource_spans(resources[key], by_scope, scopes)))
    return b"".join(parts)


def _known(seen: dict[int, Any], thing: Any) -> int:
    """Return the key of an object that is equal to one seen before, or its own."""
    for key, other in seen.items():
        if other == thing:
            return key
    seen[id(thing)] = thing
    return id(thing)


def _resource_spans(
    resource: Resource,
    by_scope: Mapping[int, list[bytes]],
    scopes: Mapping[int, InstrumentationScope | None],
) -> bytes:
    parts = [_message(0x0A, _attributes(0x0A, resource.attributes))]
    for key, written in by_scope.items():
        scope = scopes[key]
        inside = [_message(0x0A, _EMPTY if scope is None else _scope(scope)), *written]
        if scope is not None and scope.schema_url:
            inside.append(_text(0x1A, scope.schema_url))
        parts.append(_message(0x12, b"".join(inside)))
    if resource.schema_url:
        parts.append(_text(0x1A, resource.schema_url))
    return b"".join(parts)


def _scope(scope: InstrumentationScope) -> bytes:
    parts = [_text(0x0A, scope.name)] if scope.name else []
    if scope.version:
        parts.append(_text(0x12, scope.version))
    if scope.attributes:
        parts.append(_attributes(0x1A, scope.attributes))
    return b"".join(parts)


def _light(span: LightSpan) -> bytes:
    """Write what `_span` does, in fewer steps: nothing is bounded, and most have no extras."""
    ids, parent, status = span.trace_part(), span._parent, span._status
    start, end = span._start_time, span._end_time
    plain = not (span._events or span._links or ids.trace_state)
    ended = _STATUS[0]
    if status is not UNSET:
        plain = plain and not status.description
        ended = _STATUS[status.status_code.value]
    if not plain or not start or not end or (parent is not None and parent.is_remote):
        return _span(span)
    name = span._name
    named = _names.get(name)
    if named is None:
        named = _text(0x2A, name) if name else _EMPTY
        if len(_names) < _CACHED and len(name) <= 128:
            _names[name] = named
    inside = (
        b"\x0a\x10"
        + ids.trace_id.to_bytes(16, "big")
        + b"\x12\x08"
        + span.span_id.to_bytes(8, "big")
        + (_EMPTY if parent is None else b"\x22\x08" + parent.span_id.to_bytes(8, "big"))
        + named
        + _KINDS[span._kind]
        + _times(0x39, start, 0x41, end)
        + _span_attributes(span.raw_attributes())
        + ended
        + _LOCAL_FLAGS
    )
    size = len(inside)
    return b"\x12" + (_SMALL[size] if size < 128 else _varint(size)) + inside


def _span(span: ReadableSpan) -> bytes:
    ids = cast("SpanContext", span.get_span_context())
    parent = span.parent
    parts = [_ids(ids)]
    if ids.trace_state:
        state = ",".join([f"{key}={value}" for key, value in ids.trace_state.items()])
        parts.append(_text(0x1A, state))
    if parent is not None:
        parts.append(b"\x22\x08" + parent.span_id.to_bytes(8, "big"))
    if span.name:
        parts.append(_text(0x2A, span.name))
    parts.append(_KINDS[span.kind])
    if span.start_time:
        parts.append(b"\x39" + _fixed64(span.start_time))
    if span.end_time:
        parts.append(b"\x41" + _fixed64(span.end_time))
    if span.attributes:
        parts.append(_span_attributes(span.attributes))
    if span.dropped_attributes:
        parts.append(b"\x50" + _varint(span.dropped_attributes))
    if span.events:
        parts.extend(_message(0x5A, _event(event)) for event in span.events)
    if span.dropped_events:
        parts.append(b"\x60" + _varint(span.dropped_events))
    if span.links:
        parts.extend(_message(0x6A, _link(link)) for link in span.links)
    if span.dropped_links:
        parts.append(b"\x70" + _varint(span.dropped_links))
    status = span.status
    if status.description:
        inside = _text(0x12, status.description)
        if status.status_code.value:
            inside += b"\x18" + _SMALL[status.status_code.value]
        parts.append(_message(0x7A, inside))
    else:
        parts.append(_STATUS[status.status_code.value])
    parts.append(_REMOTE_FLAGS if parent is not None and parent.is_remote else _LOCAL_FLAGS)
    return _message(0x12, b"".join(parts))


def _ids(ids: SpanContext) -> bytes:
    trace_id, span_id = ids.trace_id.to_bytes(16, "big"), ids.span_id.to_bytes(8, "big")
    return b"\x0a\x10" + trace_id + b"\x12\x08" + span_id


def _event(event: Event) -> bytes:
    parts: list[bytes] = []
    if event.timestamp:
        parts.append(b"\x09" + _fixed64(event.timestamp))
    if event.name:
        parts.append(_text(0x12, event.name))
    if event.attributes:
        parts.append(_attributes(0x1A, event.attributes))
    if event.dropped_attributes:
        parts.append(b"\x20" + _varint(event.dropped_attributes))
    return b"".join(parts)


def _link(link: Link) -> bytes:
    ids = link.context
    parts = [_ids(ids)]
    if link.attributes:
        parts.append(_attributes(0x22, link.attributes))
    if link.dropped_attributes:
        parts.append(b"\x28" + _varint(link.dropped_attributes))
    parts.append(_LINK_REMOTE if ids.is_remote else _LINK_LOCAL)
    return b"".join(parts)


def _span_attributes(attributes: Mapping[str, Any]) -> bytes:
    """Write the attributes of a span: this runs for every one of them on the export thread."""
    small, forms, pairs = _SMALL, _forms, _pairs
    parts: list[bytes] = []
    add = parts.append
    for key, value in attributes.items():
        kind = value.__class__
        try:
            if kind is str:
                add(pairs.get((key, value)) or _text_pair(key, value))
                continue
            form = forms.get(key) or _form(key)
            if kind is int and 0 <= value < _TWO_BYTES:
                number: int = value
                if number < 128:
                    add(form.one_byte + small[number])
                else:
                    add(form.two_bytes + bytes((number & 127 | 128, number >> 7)))
            elif kind is float:
                add(form.double + _double(value))
            elif kind is bool:
                add(form.flags[1 if value else 0])
            elif kind is tuple and key in _LISTS:
                add(_list_pair(key, value))
            else:
                add(_message(0x4A, form.key + _value(value, 0)))
        except (ValueError, TypeError, OverflowError, RecursionError):
            continue
    return b"".join(parts)


def _attributes(tag: int, attributes: Mapping[str, Any]) -> bytes:
    parts: list[bytes] = []
    for key, value in attributes.items():
        try:
            parts.append(_message(tag, (_text(0x0A, key) if key else _EMPTY) + _value(value, 0)))
        except (ValueError, TypeError, OverflowError, RecursionError):
            continue
    return b"".join(parts)


def _form(key: str) -> _Forms:
    """Return what is alike in all attributes with a key.

    Raises:
        ValueError: OTLP cannot say the key.
    """
    written = _text(0x0A, key) if key else _EMPTY

    def before(value: bytes, more: int) -> bytes:
        return b"\x4a" + _varint(len(written) + len(value) + more) + written + value

    form = _Forms(
        written,
        before(b"\x12\x02\x18", 1),
        before(b"\x12\x03\x18", 2),
        before(b"\x12\x09\x21", 8),
        (before(b"\x12\x02\x10\x00", 0), before(b"\x12\x02\x10\x01", 0)),
    )
    if len(_forms) < _CACHED and len(key) <= 128:
        _forms[key] = form
    return form


def _text_pair(key: str, value: str) -> bytes:
    text = value.encode()
    size, small = len(text), _SMALL
    written = (_forms.get(key) or _form(key)).key
    if size < 126:
        inside = written + b"\x12" + small[size + 2] + b"\x0a" + small[size] + text
    else:
        any_value = b"\x0a" + _varint(size) + text
        inside = written + b"\x12" + _varint(len(any_value)) + any_value
    whole = len(inside)
    pair = b"\x4a" + (small[whole] if whole < 128 else _varint(whole)) + inside
    if size <= _LONGEST_CACHED and key in _RECURRING:
        _remember(key, value, pair)
    return pair


def _list_pair(key: str, value: tuple[Any, ...]) -> bytes:
    try:
        pair = _pairs.get((key, value))
        if pair is not None:
            return pair
        # Only of texts: equal numbers and flags are not the same on the wire.
        kept = all(each.__class__ is str for each in value)
    except TypeError:  # something in it has no hash
        kept = False
    pair = _message(0x4A, (_forms.get(key) or _form(key)).key + _value(value, 0))
    if kept and len(pair) <= 2 * _LONGEST_CACHED:
        _remember(key, value, pair)
    return pair


def _remember(key: str, value: Any, pair: bytes) -> None:
    if len(_pairs) >= _CACHED:
        _pairs.clear()
    _pairs[key, value] = pair


def _value(value: Any, depth: int) -> bytes:
    """Return a value with its tag in a key-value pair."""
    inside = _any(value, depth)
    size = len(inside)
    return b"\x12" + (_SMALL[size] if size < 128 else _varint(size)) + inside


def _any(value: Any, depth: int) -> bytes:
    if value is None:
        return _EMPTY
    if isinstance(value, bool):
        return b"\x10\x01" if value else b"\x10\x00"
    if isinstance(value, str):
        return _text(0x0A, value)
    if isinstance(value, int):
        if not -_MAX <= value < _MAX:
            raise OverflowError("OTLP's integers have 64 bits")
        return b"\x18" + _varint(value if value >= 0 else value + (1 << 64))
    if isinstance(value, float):
        return b"\x21" + _double(value)
    if isinstance(value, bytes):
        return b"\x3a" + _varint(len(value)) + value
    if depth >= _DEPTH:
        raise RecursionError("a value is nested too deeply")
    if isinstance(value, Sequence):
        entries = cast("Sequence[Any]", value)
        return _message(0x2A, b"".join([_message(0x0A, _any(each, depth + 1)) for each in entries]))
    if isinstance(value, Mapping):
        items = cast("Mapping[Any, Any]", value).items()
        named = [(str(key), each) for key, each in items]
        pairs = [
            _message(0x0A, (_text(0x0A, key) if key else _EMPTY) + _value(each, depth + 1))
            for key, each in named
        ]
        return _message(0x32, b"".join(pairs))
    raise TypeError("OTLP has no such value")


def _text(tag: int, text: str) -> bytes:
    data = text.encode()
    size = len(data)
    return _SMALL[tag] + (_SMALL[size] if size < 128 else _varint(size)) + data


def _message(tag: int, inside: bytes) -> bytes:
    size = len(inside)
    return _SMALL[tag] + (_SMALL[size] if size < 128 else _varint(size)) + inside


def _varint(number: int) -> bytes:
    if number < 128:
        return _SMALL[number]
    if number < 16384:
        return bytes((number & 127 | 128, number >> 7))
    written = bytearray()
    while number > 127:
        written.append(number & 127 | 128)
        number >>= 7
    written.append(number)
    return bytes(written)
