"""Content as JSON text for an attribute: media replaced, secrets masked, valid under any limit."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, cast

import msgspec

from clew.redaction import Redactor
from clew.rules import CapturedText

OMITTED: Final = "clew.omitted"
_DEEPEST: Final = 32
MOST: Final = 100_000
"""Values of one attribute that are kept."""
_VECTOR: Final = 32
"""Numbers in a row from which on a list is a vector."""
_DATA_URL: Final = re.compile(
    r"data:([A-Za-z0-9.+/-]{0,100})(?:;[A-Za-z0-9=._-]{1,64})*;base64,([A-Za-z0-9+/=_-]*)"
)
_LONG: Final = 1024
_LONG_BASE64: Final = re.compile(r"(?<![A-Za-z0-9+/_-])[A-Za-z0-9+/_-]{1024,}={0,2}")
_CUT: Final = re.compile(r"…\[cut: (\d+) characters\]$")
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
    maker = Plain(digest)
    plain = maker.walk(value, 0)
    exponents = maker.exponents
    if redactor is not None:
        plain = redactor.redact(plain)
    if isinstance(plain, list):
        entries = cast("list[Any]", plain)

        def texts(cap: int | None) -> list[str]:
            return [dumped(shortened(each, cap), exponents=exponents) for each in entries]

        return CapturedText(fitted(texts, limit, messages=messages))
    return CapturedText(_fitted(plain, limit, exponents=exponents))


def plain(value: Any, digest: Digest) -> Any:
    """Return content as bounded JSON values, media replaced by their kind, size and digest.

    Args:
        value: JSON values; anything else becomes the name of its type.
        digest: makes the keyed digest of media.
    """
    return Plain(digest).walk(value, 0)


def exact(text: str) -> str:
    """Return a plain text that UTF-8 can say: half of a surrogate pair is no character."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace").decode()
    return str.__str__(text)  # of a subclass, such as a segmented prompt, the text alone


_encode: Final = msgspec.json.Encoder().encode


def dumped(value: Any, *, exponents: bool = False) -> str:
    """Return plain JSON values as compact JSON, characters beyond ASCII as they are.

    Args:
        value: the values.
        exponents: whether a number among them is written with an exponent (`1e+16`).
    """
    try:
        if not exponents:
            return _encode(value).decode()
    except (ValueError, TypeError, RecursionError):  # half a surrogate pair, from a detector
        pass
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def fitted(texts: Callable[[int | None], list[str]], limit: int, *, messages: bool) -> str:
    """Return entries as a JSON array of at most `limit` characters (100 or more).

    Args:
        texts: returns each entry as JSON, with long texts inside shortened to so many characters.
        limit: characters.
        messages: whether the entries are messages.
    """
    written = texts(None)
    for cap in _CAPS:
        if _size(written) <= limit:
            break
        written = texts(cap)
    if _size(written) > limit:
        written = _with_gap(written, limit, messages=messages)
    return f"[{','.join(written)}]"


def _size(written: list[str]) -> int:
    return sum(map(len, written)) + max(2, len(written) + 1)


def _fitted(value: Any, limit: int, *, exponents: bool) -> str:
    text = dumped(value, exponents=exponents)
    for cap in _CAPS:
        if len(text) <= limit:
            return text
        text = dumped(shortened(value, cap), exponents=exponents)
    if len(text) <= limit:
        return text
    if isinstance(value, Mapping):
        return dumped({OMITTED: len(cast("Mapping[Any, Any]", value))})
    return dumped("[omitted]")


def _with_gap(entries: list[str], limit: int, *, messages: bool) -> list[str]:
    """Keep as many entries at both ends as fit, and say how many are left out between them."""
    kept = len(entries)
    while kept > 0:
        kept = kept * 3 // 4
        first = kept // 2
        gap = _gap(len(entries) - kept, messages=messages)
        last = entries[len(entries) - (kept - first) :] if kept - first else []
        written = [*entries[:first], gap, *last]
        if _size(written) <= limit:
            return written
    return [_gap(len(entries), messages=messages)]


def _gap(count: int, *, messages: bool) -> str:
    part = {"type": OMITTED, "count": count}
    return dumped({"role": "_OTHER", "parts": [part]} if messages else part)


def shortened(value: Any, cap: int | None) -> Any:
    """Return a value whose texts have at most so many characters; None: as it is."""
    if cap is None:
        return value
    if isinstance(value, str):
        if len(value) <= cap + 32:
            return value
        known = _CUT.search(value)
        length = known[1] if known else len(value)
        return f"{value[:cap]}…[cut: {length} characters]"
    if isinstance(value, dict):
        items = cast("dict[str, Any]", value).items()
        return {key: shortened(item, cap) for key, item in items}
    if isinstance(value, list):
        return [shortened(item, cap) for item in cast("list[Any]", value)]
    return value


class Plain:
    """Makes plain, bounded JSON values; media become their kind, media type, size and digest."""

    def __init__(self, digest: Digest) -> None:
        self._digest = digest
        self.left = MOST
        """How many values may still come."""
        self.exponents = False
        """Whether a number among those that came is written with an exponent."""

    def walk(self, value: Any, depth: int) -> Any:
        """Return a value that stands at a depth."""
        self.left -= 1
        if self.left < 0 or depth > _DEEPEST:
            return "[omitted]"
        kind = value.__class__
        if kind is str:
            return self._text(value)
        if kind is dict:
            return self._mapping(value, depth)
        if kind is list:
            return self._list(value, depth)
        if value is None or kind is bool:
            return value
        return self._other(value, depth)

    def _other(self, value: Any, depth: int) -> Any:
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, int):
            return int(value) if abs(value) < 2**63 else str(value)[:64]
        if isinstance(value, float):
            self.exponents = self.exponents or "e" in repr(value)
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
            # What neither pattern can be in need not be searched by it.
            if "data:" in value:
                value = _DATA_URL.sub(lambda url: self._summary(url[1], url[2]), value)
            if len(value) >= _LONG:
                value = _LONG_BASE64.sub(lambda run: self._summary("base64", run[0]), value)
        elif value.__class__ is str and value.isascii():
            return value
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
            if self.left < 0:
                break
        return kept

    def _list(self, value: Sequence[Any], depth: int) -> Any:
        if len(value) >= _VECTOR and all(type(item) in (int, float) for item in value):
            raw = json.dumps(list(value)).encode()
            return {"type": "vector", "length": len(value), "digest": self._digest(raw)}
        kept: list[Any] = []
        for item in value:
            kept.append(self.walk(item, depth + 1))
            if self.left < 0:
                break
        return kept


def _measured(data: str | bytes) -> tuple[int, bytes]:
    """Return how many bytes some base64 stands for, and what its digest is made of."""
    if isinstance(data, bytes):
        return len(data), data
    return len(data.rstrip("=")) * 3 // 4, data.encode("utf-8", "replace")
