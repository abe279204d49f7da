"""Value rules as plain data, and back: what a list file holds and what is generated from the list.

A rule without parameters may be written as its name alone (`flag`); otherwise it is a mapping with
its name under `rule`:

    {"rule": "identifier", "max_length": 16}
    {"rule": "closed_set", "values": ["free", "paid"], "other": "_OTHER"}
    {"rule": "number_range", "low": 0, "high": 100}
    {"rule": "each", "of": {"rule": "identifier", "max_length": 32}, "max_items": 8}
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, cast

from clew.errors import ConfigurationError
from clew.rules import (
    Captured,
    Closed,
    Each,
    Flag,
    Hex,
    Identifier,
    KeyedDigest,
    Number,
    Opaque,
    Rule,
    Uuid,
)

NAMES: Final = (
    "identifier",
    "opaque",
    "hex",
    "uuid",
    "closed_set",
    "number_range",
    "flag",
    "each",
    "keyed_digest",
    "captured",
)
"""The rules that a list can name."""

_MOST: Final = 1_000_000
_DEEPEST: Final = 4


def to_data(rule: Rule) -> dict[str, Any]:
    """Return a rule as data.

    Raises:
        ConfigurationError: the rule is of a kind that data cannot name.
    """
    if isinstance(rule, Identifier):
        name = "opaque" if isinstance(rule, Opaque) else "identifier"
        return {"rule": name, "max_length": rule.max_length}
    if isinstance(rule, Hex):
        return {"rule": "hex", "max_length": rule.max_length}
    if isinstance(rule, Closed):
        data: dict[str, Any] = {"rule": "closed_set", "values": sorted(rule.values)}
        return data if rule.other is None else {**data, "other": rule.other}
    if isinstance(rule, Number):
        return {"rule": "number_range", "low": rule.low, "high": rule.high}
    if isinstance(rule, Each):
        data = {"rule": "each", "of": to_data(rule.rule), "max_items": rule.max_items}
        return data if rule.fill is None else {**data, "fill": rule.fill}
    if isinstance(rule, (Uuid, Flag, KeyedDigest, Captured)):
        return {"rule": rule.name}
    raise ConfigurationError(
        f"the rule {rule.name!r} is of type {type(rule).__name__} and cannot be written as data; "
        f"use one of: {', '.join(NAMES)}"
    )


def from_data(data: Any, key: str, depth: int = 0) -> Rule:
    """Read a rule.

    Args:
        data: the rule's name, or a mapping with it and its parameters.
        key: the attribute that it is for, named in errors.
        depth: how many `each` stand around it.

    Raises:
        ConfigurationError: the data is not a rule.
    """
    given: dict[str, Any]
    if isinstance(data, str):
        given = {"rule": data}
    elif isinstance(data, Mapping):
        given = {str(name): value for name, value in cast("Mapping[Any, Any]", data).items()}
    else:
        raise ConfigurationError(f"{key!r}: a rule is a name or a mapping, not {data!r}")
    name = given.pop("rule", None)
    make = _MAKERS.get(name) if isinstance(name, str) else None
    if make is None or depth > _DEEPEST:
        raise ConfigurationError(
            f"{key!r}: {name!r} is not a rule (or nested too deep); use one of: {', '.join(NAMES)}"
        )
    made = make(given, key, depth)
    if given:
        raise ConfigurationError(
            f"{key!r}: the rule {name!r} has no parameter {next(iter(given))!r}"
        )
    return made


def _length(given: dict[str, Any], key: str, usual: int, name: str = "max_length") -> int:
    value = given.pop(name, usual)
    if type(value) is not int or not 1 <= value <= _MOST:
        raise ConfigurationError(f"{key!r}: {name} is {value!r}; give a number from 1 to {_MOST}")
    return value


def _number(given: dict[str, Any], key: str, name: str, usual: float) -> float:
    value = given.pop(name, usual)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or math.isnan(value):
        raise ConfigurationError(f"{key!r}: {name} is {value!r}; give a number")
    return value


def _text(given: dict[str, Any], key: str, name: str) -> str | None:
    value = given.pop(name, None)
    if value is not None and not isinstance(value, str):
        raise ConfigurationError(f"{key!r}: {name} is {value!r}; give a text")
    return value


def _range(given: dict[str, Any], key: str, _depth: int) -> Rule:
    usual = Number()
    low = _number(given, key, "low", usual.low)
    high = _number(given, key, "high", usual.high)
    if low > high:
        raise ConfigurationError(f"{key!r}: low {low!r} is above high {high!r}: nothing would pass")
    return Number(low, high)


def _closed(given: dict[str, Any], key: str, _depth: int) -> Rule:
    values: Any = given.pop("values", None)
    if isinstance(values, (str, bytes)) or not isinstance(values, Sequence) or not values:
        raise ConfigurationError(f"{key!r}: closed_set needs `values`, a list of texts")
    texts = cast("Sequence[Any]", values)
    wrong = [value for value in texts if not isinstance(value, str)]
    if wrong:
        raise ConfigurationError(f"{key!r}: {wrong[0]!r} in `values` is not a text")
    return Closed(*cast("Sequence[str]", texts), other=_text(given, key, "other"))


def _each(given: dict[str, Any], key: str, depth: int) -> Rule:
    inner = from_data(given.pop("of", None), key, depth + 1)
    most = _length(given, key, 256, "max_items") if "max_items" in given else 256
    return Each(inner, max_items=most, fill=_text(given, key, "fill"))


_MAKERS: Final[dict[str, Callable[[dict[str, Any], str, int], Rule]]] = {
    "identifier": lambda given, key, _: Identifier(_length(given, key, 128)),
    "opaque": lambda given, key, _: Opaque(_length(given, key, 128)),
    "hex": lambda given, key, _: Hex(_length(given, key, 64)),
    "uuid": lambda _given, _key, _depth: Uuid(),
    "closed_set": _closed,
    "number_range": _range,
    "flag": lambda _given, _key, _depth: Flag(),
    "each": _each,
    "keyed_digest": lambda _given, _key, _depth: KeyedDigest(),
    "captured": lambda _given, _key, _depth: Captured(),
}
