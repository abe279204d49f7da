"""Decoding JSON into partial structs, so that one odd field never costs the others.

A dialect describes the few fields it needs as a `msgspec.Struct`; everything else is skipped
without becoming a Python object. When a body does not fit the struct (a field of another type,
text that is not UTF-8, numbers that JSON does not know), it is read once more as plain JSON and
each field is fitted by itself: what fits stays, what does not becomes the field's default.
"""

from __future__ import annotations

import functools
import json
import math
import types
import typing
from typing import Annotated, Any, Final, TypeVar

import msgspec

T = TypeVar("T")

MAX_COUNT: Final = 2**63 - 1
"""Counts above this are no counts: OpenTelemetry's integers have 64 bits."""

Count = Annotated[int, msgspec.Meta(ge=0, le=MAX_COUNT)]
"""A count in a struct: checked as it is decoded."""

EMPTY: Final = msgspec.Raw()
_EMPTY_VALUES: Final = frozenset((b"", b"null", b'""', b"[]", b"{}"))


class _Unfit:
    __slots__ = ()


_UNFIT: Final = _Unfit()


def decode(decoder: msgspec.json.Decoder[T], body: bytes | msgspec.Raw) -> T | None:
    """Decode `body`, field by field if need be; None when it is not JSON of the right kind."""
    try:
        return decoder.decode(body)
    except (ValueError, RecursionError):  # msgspec's errors are ValueErrors
        return _decode_slowly(decoder, bytes(body))


def loads(body: bytes | msgspec.Raw) -> Any:
    """Read plain JSON in spite of a BOM, stray bytes, NaN and endless digits; None if it is not."""
    try:
        return json.loads(bytes(body).decode("utf-8-sig", "replace"), parse_int=_parse_int)  # pyright: ignore[reportArgumentType]
    except (ValueError, RecursionError):
        return None


def is_empty(raw: msgspec.Raw) -> bool:
    """Tell whether an undecoded value is absent, null, or an empty string, list or object."""
    return len(raw) < 5 and bytes(raw) in _EMPTY_VALUES  # pyright: ignore[reportArgumentType]


def count(value: Any) -> int | None:
    """Return a count as a non-negative integer; None for whatever else a provider sent.

    Integral floats and decimal strings are counts too (JSON writers exist that make them so).
    """
    if type(value) is float:
        value = int(value) if value.is_integer() else None
    elif type(value) is str:
        value = int(value) if value.isascii() and value.isdigit() and len(value) < 20 else None
    return value if type(value) is int and 0 <= value <= MAX_COUNT else None


def number(value: Any) -> float | None:
    """Return a finite number, or None."""
    if type(value) is int or (type(value) is float and math.isfinite(value)):
        return value
    return None


def text(value: Any) -> str | None:
    """Return a string that is not empty, or None."""
    return value if type(value) is str and value else None


def word(value: Any) -> str | None:
    """Return a code as text: a non-empty string as it is, an integer in decimal."""
    if type(value) is int:
        return str(value)
    return text(value)


def _parse_int(digits: str) -> int | float:
    return int(digits) if len(digits) < 40 else math.inf


def _decode_slowly(decoder: msgspec.json.Decoder[T], body: bytes) -> T | None:
    value = loads(body)
    if value is None:
        return None
    fitted = fit(decoder.type, value)
    return None if isinstance(fitted, _Unfit) else fitted


def fit(kind: Any, value: Any) -> Any:
    """Make `value` (plain JSON) an instance of `kind`, leaving out the parts that do not fit."""
    origin = typing.get_origin(kind)
    if origin is typing.Union or origin is types.UnionType:
        return _fit_union(kind, value)
    if origin is list:
        return _fit_list(kind, value)
    if kind is Any:
        return value
    if kind is msgspec.Raw:
        return _fit_raw(value)
    if origin is Annotated:
        return _UNFIT if (whole := count(value)) is None else whole
    if kind is int:
        return value if type(value) is int else _UNFIT
    if kind is float:
        return _UNFIT if (real := number(value)) is None else float(real)
    if kind in (str, bool, types.NoneType):
        return value if type(value) is kind else _UNFIT
    return _fit_struct(kind, value)


def _fit_union(kind: Any, value: Any) -> Any:
    for option in typing.get_args(kind):
        fitted = fit(option, value)
        if fitted is not _UNFIT:
            return fitted
    return _UNFIT


def _fit_list(kind: Any, value: Any) -> Any:
    if not isinstance(value, list):
        return _UNFIT
    (entry_kind,) = typing.get_args(kind)
    entries = typing.cast("list[Any]", value)
    fitted = [fit(entry_kind, entry) for entry in entries]
    return [entry for entry in fitted if entry is not _UNFIT]


def _fit_raw(value: Any) -> Any:
    try:
        return msgspec.Raw(msgspec.json.encode(value))
    except (ValueError, TypeError, RecursionError):
        return _UNFIT


def _fit_struct(kind: Any, value: Any) -> Any:
    fields = _struct_fields(kind)
    if fields is None or not isinstance(value, dict):
        return _UNFIT
    given: dict[str, Any] = {}
    for key, entry in typing.cast("dict[str, Any]", value).items():
        field = fields.get(key)
        if field is None:
            continue
        fitted = fit(field[1], entry)
        if fitted is not _UNFIT:
            given[field[0]] = fitted
    return kind(**given)


@functools.cache
def _struct_fields(kind: Any) -> dict[str, tuple[str, Any]] | None:
    if not (isinstance(kind, type) and issubclass(kind, msgspec.Struct)):
        return None
    return {field.encode_name: (field.name, field.type) for field in msgspec.structs.fields(kind)}
