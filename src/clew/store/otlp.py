"""What the two encodings of OTLP have in common: the outcome of reading a message.

https://opentelemetry.io/docs/specs/otlp/ and
https://github.com/open-telemetry/opentelemetry-proto (trace/v1/trace.proto).
"""

from __future__ import annotations

import math
from base64 import b64encode
from collections.abc import Iterable
from typing import Any, Final

from msgspec import Struct

from clew.errors import ClewError
from clew.store.records import SpanRecord

MAX_TIME_NS: Final = 2**63 - 1
MAX_DEPTH: Final = 32
"""How deep attribute values may be nested."""


class OtlpError(ClewError, ValueError):
    """Bytes that are no OTLP message."""


class Batch(Struct, frozen=True, kw_only=True):
    """The spans of one OTLP message."""

    spans: tuple[SpanRecord, ...]
    rejected: int = 0
    """Spans that OTLP does not allow: without valid ids, or with impossible times."""
    reason: str = ""
    """Why the first of these was rejected."""


def bytes_value(value: bytes) -> dict[str, Any]:
    """Write bytes as an attribute value."""
    return {"bytesValue": b64encode(value).decode()}


def double_value(value: float) -> Any:
    """Write a double as an attribute value: itself, or an object where JSON has no number."""
    if math.isfinite(value):
        return value
    return {"doubleValue": "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"}


def ambiguous(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Read attributes in which a key stands more than once, which OTLP does not allow.

    Where the values differ, readers do too: the value is the list of them, so that nothing is
    taken for a fact that another reader sees otherwise.
    """
    found: dict[str, list[Any]] = {}
    for key, value in pairs:
        values = found.setdefault(key, [])
        if not any(type(each) is type(value) and each == value for each in values):
            values.append(value)
    return {key: values[0] if len(values) == 1 else values for key, values in found.items()}


def fault(trace_id: str, span_id: str, parent_id: str, start_ns: int, end_ns: int) -> str | None:
    """Return why a span cannot be kept, or None."""
    if len(trace_id) != 32 or trace_id == "0" * 32:
        return "a span has no valid trace id (16 bytes, not all zero)"
    if len(span_id) != 16 or span_id == "0" * 16:
        return "a span has no valid span id (8 bytes, not all zero)"
    if len(parent_id) not in (0, 16):
        return "a span has a parent id that is not 8 bytes"
    if not 0 <= start_ns <= MAX_TIME_NS or not 0 <= end_ns <= MAX_TIME_NS:
        return "a span has a time beyond the year 2262"
    return None
