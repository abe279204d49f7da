"""What a body says about an error: the provider's own type and code, never its message."""

from __future__ import annotations

from typing import Any, cast

import msgspec

from clew.dialects._read import is_empty, loads, word
from clew.facts import ErrorFacts

_UNKNOWN = ErrorFacts()


def error_of(value: msgspec.Raw) -> ErrorFacts | None:
    """Return the facts of an `error` field; None when it is absent or null."""
    return None if is_empty(value) else error_in(loads(value))


def error_body(body: bytes, status: int) -> ErrorFacts | None:
    """Return the facts of an error response; None below status 400."""
    if status < 400:
        return None
    value = loads(body)
    if isinstance(value, list) and value:  # Google's OpenAI-compatible and array endpoints
        value = cast("list[Any]", value)[0]
    if not isinstance(value, dict):
        return _UNKNOWN
    found = cast("dict[str, Any]", value)
    for key in ("error", "errors", "detail"):
        inner = found.get(key)
        if isinstance(inner, list) and inner:
            inner = cast("list[Any]", inner)[0]
        if isinstance(inner, dict):
            return error_in(inner)
    return error_in(found)


def error_in(value: Any) -> ErrorFacts:
    """Return the facts of an error object.

    `type` is the provider's `type`, or Google's `status`; `code` is its `code`.
    """
    if not isinstance(value, dict):
        return _UNKNOWN
    found = cast("dict[str, Any]", value)
    kind = word(found.get("type")) or word(found.get("status")) or word(found.get("__type"))
    return ErrorFacts(kind, word(found.get("code")))
