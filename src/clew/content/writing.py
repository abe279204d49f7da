"""Content as JSON text for an attribute: media replaced, secrets masked, valid under any limit."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, cast

from clew.redaction import Redactor
from clew.rules import CapturedText

OMITTED: Final = "clew.omitted"
_DEEPEST: Final = 32
_MOST: Final = 100_000
_VECTOR: Final = 32
"""Numbers in a row from which on a list is a vector."""
_DATA_URL: Final = re.compile(
    r"data:([A-Za-z0-9.+/-]{0,100})(?:;[A-Za-z0-9=._-]{1,64})*;base64,([A-Za-z0-9+/=_-]*)"
)
_LONG_BASE64: Final = re.compile(r"(?<![A-Za-z0-9+/_-])[A-Za-z0-9+/_-]{1024,}={0,2}")
_CAPS: Final = (2000, 1000, 500, 250, 120, 60, 30)

Digest = Callable[[bytes], str]


def write(
    value: Any, *, limit: int, digest: Digest, redactor: Redactor | None, messages: bool = False
) -> CapturedText:
    """Return content as JSON of at most `limit` characters (100 or more), always valid.

    Args:
        value: JSON values; anything else is left out.
        limit: characters; long texts inside are shortened with a mark and their length, then
            entries in the middle are left out, with their number.
        digest: makes the keyed digest of media.
        redactor: masks secrets; None at the level `full`.
        messages: whether the entries are messages, which decides on the form of the mark.
    """
    plain = _Plain(digest).walk(value, 0)
    if redactor is not None:
        plain = redactor.redact(plain)
    return CapturedText(_fitted(plain, limit, messages=messages))


def plain(value: Any, digest: Digest) -> Any:
    """Return content as bounded JSON values, media replaced by their kind, size and digest.

    Args:
        value: JSON values; anything else becomes the name of its type.
        digest: makes the keyed digest of media.
    """
    return _Plain(digest).walk(value, 0)


def exact(text: str) -> str:
    """Return a plain text that UTF-8 can say: half of a surrogate pair is no character."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace").decode()
    return str.__str__(text)  # of a subclass, such as a segmented prompt, the text alone


def _dumped(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def _fitted(value: Any, limit: int, *, messages: bool) -> str:
    text = _dumped(value)
    if len(text) <= limit:
        return text
    for cap in _CAPS:
        value = _shortened(value, cap)
        text = _dumped(value)
        if len(text) <= limit:
            return text
    if isinstance(value, list):
        return _with_gap(cast("list[Any]", value), limit, messages=messages)
    if isinstance(value, Mapping):
        return _dumped({OMITTED: len(cast("Mapping[Any, Any]", value))})
    return _dumped("[omitted]")


def _with_gap(entries: list[Any], limit: int, *, messages: bool) -> str:
    """Keep as many entries at both ends as fit, and say how many are left out between them."""
    kept = len(entries)
    while kept > 0:
        kept = kept * 3 // 4
        first = kept // 2
        gap = _gap(len(entries) - kept, messages=messages)
        last = entries[len(entries) - (kept - first) :] if kept - first else []
        text = _dumped([*entries[:first], gap, *last])
        if len(text) <= limit:
            return text
    return _dumped([_gap(len(entries), messages=messages)])


def _gap(count: int, *, messages: bool) -> dict[str, Any]:
    part = {"type": OMITTED, "count": count}
    return {"role": "_OTHER", "parts": [part]} if messages else part


def _shortened(value: Any, cap: int) -> Any:
    if isinstance(value, str):
        if len(value) <= cap + 32:
            return value
        known = re.search(r"…\[cut: (\d+) characters\]$", value)
        length = known[1] if known else len(value)
        return f"{value[:cap]}…[cut: {length} characters]"
    if isinstance(value, dict):
        items = cast("dict[str, Any]", value).items()
        return {key: _shortened(item, cap) for key, item in items}
    if isinstance(value, list):
        return [_shortened(item, cap) for item in cast("list[Any]", value)]
    return value


class _Plain:
    """Makes plain, bounded JSON values; media become their kind, media type, size and digest."""

    def __init__(self, digest: Digest) -> None:
        self._digest = digest
        self._left = _MOST

    def walk(self, value: Any, depth: int) -> Any:
        self._left -= 1
        if self._left < 0 or depth > _DEEPEST:
            return "[omitted]"
        if isinstance(value, str):
            return self._text(value)
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, int):
            return int(value) if abs(value) < 2**63 else str(value)[:64]
        if isinstance(value, float):
            return float(value) if math.isfinite(value) else str(value)
        if isinstance(value, (bytes, bytearray)):
            return self._summary("", bytes(value))
        if isinstance(value, Mapping):
            return self._mapping(cast("Mapping[Any, Any]", value), depth)
        if isinstance(value, Sequence):
            return self._list(cast("Sequence[Any]", value), depth)
        return f"[{type(value).__name__}]"

    def _text(self, value: str) -> str:
        if len(value) > 22:
            value = _DATA_URL.sub(lambda url: self._summary(url[1], url[2]), value)
            value = _LONG_BASE64.sub(lambda run: self._summary("base64", run[0]), value)
        return exact(value)

    def _summary(self, kind: str, data: str | bytes) -> str:
        size, raw = _measured(data)
        return f"[{kind or 'data'}, {size} bytes, digest {self._digest(raw)}]"

    def _mapping(self, value: Mapping[Any, Any], depth: int) -> dict[str, Any]:
        if value.get("type") == "blob" and isinstance(value.get("content"), str):
            size, raw = _measured(value["content"])
            rest = {str(key): self.walk(item, depth + 1) for key, item in value.items()
                    if key != "content"}  # fmt: skip
            return {**rest, "content": "", "bytes": size, "digest": self._digest(raw)}
        kept: dict[str, Any] = {}
        for key, item in value.items():
            kept[self._text(str(key))] = self.walk(item, depth + 1)
            if self._left < 0:
                break
        return kept

    def _list(self, value: Sequence[Any], depth: int) -> Any:
        if len(value) >= _VECTOR and all(type(item) in (int, float) for item in value):
            raw = json.dumps(list(value)).encode()
            return {"type": "vector", "length": len(value), "digest": self._digest(raw)}
        kept: list[Any] = []
        for item in value:
            kept.append(self.walk(item, depth + 1))
            if self._left < 0:
                break
        return kept


def _measured(data: str | bytes) -> tuple[int, bytes]:
    """Return how many bytes some base64 stands for, and what its digest is made of."""
    if isinstance(data, bytes):
        return len(data), data
    return len(data.rstrip("=")) * 3 // 4, data.encode("utf-8", "replace")
