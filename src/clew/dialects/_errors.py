"""What a body says about an error: the provider's own type and code, never its message."""

from __future__ import annotations

from typing import Any, cast

import msgspec

from clew.dialects._read import is_empty, loads, text, word
from clew.facts import ErrorFacts

_UNKNOWN = ErrorFacts()


def error_of(value: msgspec.Raw) -> ErrorFacts | None:
    """Return the facts of an `error` field; None when it is absent or null."""
    return None if is_empty(value) else error_in(loads(value))


def error_body(body: bytes, amazon_type: str | None = None) -> ErrorFacts:
    """Return the facts of an error response.

    Args:
        body: whatever came; a body without an error object gives facts without values.
        amazon_type: the `x-amzn-errortype` header, `Type:namespace`, where Amazon names the error.
    """
    value = loads(body)
    if isinstance(value, list) and value:  # Google's OpenAI-compatible and array endpoints
        value = cast("list[Any]", value)[0]
    if not isinstance(value, dict):
        facts = _UNKNOWN
    else:
        found = cast("dict[str, Any]", value)
        inner = next(
            (entry for key in ("error", "errors", "detail") if (entry := found.get(key))), 0
        )
        if isinstance(inner, list) and inner:
            inner = cast("list[Any]", inner)[0]
        facts = error_in(inner if isinstance(inner, dict) else found)
    if amazon_type:
        return ErrorFacts(_amazon(amazon_type), facts.code)
    return facts


def error_in(value: Any) -> ErrorFacts:
    """Return the facts of an error object.

    `type` is the provider's `type`, Google's `status` or Amazon's `__type`; `code` is its `code`.
    """
    if not isinstance(value, dict):
        return _UNKNOWN
    found = cast("dict[str, Any]", value)
    kind = word(found.get("type")) or word(found.get("status")) or word(found.get("__type"))
    code = found.get("code")
    return ErrorFacts(kind and _amazon(kind), code if type(code) is int else text(code))


def _amazon(kind: str) -> str:
    """Take Amazon's namespaces off: `com.amazon.coral#Type`, `Type:http://...`."""
    return kind.rpartition("#")[2].partition(":http")[0]
