"""What a tool is given and what it gives, kept as it was at that moment, in bounded time.

The tool may change its arguments, and nobody may be made to wait for a copy of a million values:
what is taken is plain and bounded, and what is larger becomes its kind and size. No code of the
host's is run: no `repr`, no iterator, no serialiser of a model.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import itertools
from collections import deque
from decimal import Decimal
from enum import Enum
from typing import Any, Final, cast
from uuid import UUID

import msgspec

from clew.content.shapes import parsed
from clew.content.writing import OMITTED

LONGEST: Final = 4_000
"""Entries of a list or mapping that is taken."""
_CONTAINERS: Final = 500
"""Lists and mappings that are taken in all; sixteen entries count as much as one of them."""
_DEEPEST: Final = 32
_BYTES: Final = 1 << 16
"""Bytes of a buffer that are copied."""
_PARSED: Final = 1 << 20
"""Characters of a JSON text up to which it is read."""
_SCALARS: Final = frozenset({str, int, float, bool, type(None), bytes})
_size: Final[Any] = dict.__len__  # type: ignore[type-arg]
_items: Final[Any] = dict.items  # type: ignore[type-arg]
_LISTS: Final[tuple[Any, ...]] = (list, tuple, set, frozenset, deque)
_NUMBERS_AND_TEXTS: Final[tuple[tuple[type, Any], ...]] = (
    (str, str.__str__),
    (int, int.__int__),
    (float, float.__float__),
)
"""Each with what tells the value of a subclass."""
_LEAVES: Final = (Decimal, UUID, dt.datetime, dt.date, dt.time, dt.timedelta)
_ARRAYS: Final = frozenset({"numpy", "pandas", "torch", "polars", "jax", "jaxlib", "tensorflow"})
"""Libraries whose objects tell their shape at no cost."""


def taken(value: Any) -> Any:
    """Return what a value says now: JSON values and bytes, and for the rest its kind and size.

    Numbers, texts and None stay; times, decimals and uuids become text, an enumeration its value,
    a set a list, a dataclass its fields. Everything else is the name of its type in brackets; what
    is too large `{"type": "clew.omitted", "of": ..., "count": ...}`; what holds itself
    `"[recursion]"`.
    """
    return _Taking().take(value, 0)


def read(value: Any) -> Any:
    """Return what was taken, with JSON texts read: the whole, and objects and lists inside."""
    if isinstance(value, dict):
        items = cast("dict[str, Any]", value).items()
        return {key: read(item) if _may_hold(item) else item for key, item in items}
    if isinstance(value, str) and len(value) <= _PARSED:
        return parsed(value)
    return value


def _may_hold(value: Any) -> bool:
    # Of a text that is a number nobody knows whether it was meant as one.
    return isinstance(value, dict) or (isinstance(value, str) and value.lstrip()[:1] in "{[")


class _Taking:
    """One value that is being taken."""

    def __init__(self) -> None:
        self.left = _CONTAINERS
        self.around: set[int] = set()
        """What the value at hand stands in, by id."""

    def take(self, value: Any, depth: int) -> Any:
        """Return a value that stands at a depth."""
        # Not `isinstance`: what an object says of its class may be anybody's code, too.
        kind = cast("Any", type(value))
        if kind in _SCALARS:
            return value
        if kind in _LEAVES:
            return _leaf(value)
        for base in _LISTS:
            if issubclass(kind, base):
                return self._within(value, base.__len__(value), self._list, depth, base)
        if issubclass(kind, dict):
            return self._within(value, _size(value), self._mapping, depth, None)
        if issubclass(kind, Enum):
            return self.take(value._value_, depth + 1) if depth < _DEEPEST else _named(value)
        for base, exact in _NUMBERS_AND_TEXTS:
            if issubclass(kind, base):
                return exact(value)
        if issubclass(kind, (bytes, bytearray)):
            size = len(value)
            return bytes(value) if size <= _BYTES else _omitted(value, bytes=size)
        names = _field_names(kind)
        if names is not None:
            return self._within(value, len(names), self._fields, depth, names)
        return _shaped(value)

    def _within(self, value: Any, size: int, entries: Any, depth: int, how: Any) -> Any:
        """Return what stands in a value, unless that is the value itself, or too much."""
        if id(value) in self.around:
            return "[recursion]"
        if depth >= _DEEPEST:
            return _named(value)
        if size > LONGEST or self.left <= 0:
            return _omitted(value, count=size)
        self.left -= 1 + size // 16
        self.around.add(id(value))
        try:
            return entries(value, how, depth + 1)
        finally:
            self.around.discard(id(value))

    def _list(self, value: Any, base: Any, depth: int) -> list[Any]:
        # Of a subclass, too, what it holds: its own methods may be anybody's code.
        items = list(base.__iter__(value))
        if set(map(type, items)) <= _SCALARS:
            return items
        found: list[Any] = []
        for number, item in enumerate(items):
            if self.left <= 0 and type(item) not in _SCALARS:
                found.append({"type": OMITTED, "count": len(items) - number})
                break
            found.append(self.take(item, depth))
        return found

    def _mapping(self, value: Any, _: Any, depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, item in list(_items(value)):
            name = key if type(key) is str else _key(key)
            found[name] = item if type(item) in _SCALARS else self.take(item, depth)
        return found

    def _fields(self, value: Any, names: list[str], depth: int) -> dict[str, Any]:
        missing = object()
        found = ((name, getattr(value, name, missing)) for name in names)
        return {name: self.take(item, depth) for name, item in found if item is not missing}


def _field_names(kind: Any) -> list[str] | None:
    """Return the fields of a record; None for what is none."""
    if issubclass(kind, msgspec.Struct):
        return list(kind.__struct_fields__)
    if dataclasses.is_dataclass(kind):
        return [each.name for each in dataclasses.fields(kind)]
    return None


def _leaf(value: Any) -> Any:
    try:
        return msgspec.to_builtins(value)
    except Exception:  # a time zone may be anybody's code
        return _named(value)


def _key(key: Any) -> str:
    kind = cast("Any", type(key))
    if kind in (int, float, bool, type(None)):
        return str(key)
    if issubclass(kind, Enum):
        key = key._value_
        kind = cast("Any", type(key))
    if issubclass(kind, str):
        return str.__str__(key)
    found = _leaf(key) if kind in _LEAVES else None
    return found if isinstance(found, str) else _named(key)


def _named(value: object) -> str:
    return f"[{type(value).__name__}]"


def _omitted(value: object, **size: Any) -> dict[str, Any]:
    return {"type": OMITTED, "of": type(value).__name__, **size}


def _shaped(value: Any) -> Any:
    """Return the name of an object's type; with the shape, where that is known to cost nothing."""
    if type(value).__module__.partition(".")[0] not in _ARRAYS:
        return _named(value)
    try:
        shape: list[Any] = list(itertools.islice(iter(value.shape), 8))
    except Exception:
        return _named(value)
    plain = all(type(each) is int for each in shape)
    return _omitted(value, shape=shape) if plain else _named(value)
