"""Value rules as conditions of the Collector's transformation language (OTTL).

https://github.com/open-telemetry/opentelemetry-collector-contrib/blob/v0.161.0/pkg/ottl/LANGUAGE.md

A condition must never let pass what its rule drops unless it says so (`grade`). Regular
expressions are Go's (RE2): `$` is the end of the text there. Lists are matched in their JSON form,
which is what `IsMatch` makes of them.
"""

from __future__ import annotations

import math
import string
from typing import Any, Final, Literal

from msgspec import Struct

from clew import rule_data
from clew.errors import ConfigurationError
from clew.rules import Rule

Grade = Literal["exact", "coarser", "stricter"]
"""How a condition compares with its rule: the same, lets more pass, lets less pass."""

_IDENTIFIER: Final = "[A-Za-z0-9_][A-Za-z0-9_.:/@+=~#-]"
_UUID: Final = "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_DIGEST: Final = "[0-9a-f]{64}"
_MOST_REPEATED: Final = 1000
"""The largest count that Go's regular expressions repeat."""
_PLAIN: Final = frozenset(string.ascii_letters + string.digits + "_-/ ,;:=@~#")
_EVERYWHERE_THE_SAME: Final = frozenset('"\\<>&\u2028\u2029')
"""Characters that JSON writes in another way than they are."""


class Condition(Struct, frozen=True, kw_only=True):
    """What a rule comes to in the Collector."""

    holds: str
    """An OTTL condition; empty where nothing passes."""
    grade: Grade
    note: str = ""
    """What the difference is, where there is one."""
    other: str | None = None
    """What stands in for a text that is none of the closed set."""
    text: str = ""
    """A condition on the type alone, for `other`."""


def condition(rule: Rule, value: str) -> Condition:
    """Translate a rule.

    Args:
        rule: the rule.
        value: the OTTL path of the value.

    Raises:
        ConfigurationError: the rule is of a kind that data cannot name.
    """
    return _of(rule_data.to_data(rule), value)


def _of(data: dict[str, Any], value: str) -> Condition:
    name = data["rule"]
    text = f"IsString({value})"
    match name:
        case "identifier" | "opaque" | "hex" | "uuid" | "closed_set":
            found = Condition(
                holds=f"{text} and {matches(value, f'^(?:{_pattern(data)})$')}", grade="exact"
            )
            if data.get("max_length", 0) > _MOST_REPEATED:
                long = f"{text} and Len({value}) <= {data['max_length']}"
                found = Condition(
                    holds=f"{long} and {matches(value, f'^(?:{_pattern(data)})$')}", grade="exact"
                )
            if data.get("other") is not None:
                return Condition(holds=found.holds, grade="exact", other=data["other"], text=text)
            return found
        case "number_range":
            return Condition(holds=_within(value, data["low"], data["high"]), grade="exact")
        case "flag":
            return Condition(holds=f"IsBool({value})", grade="exact")
        case "keyed_digest":
            return Condition(
                holds=f"{text} and {matches(value, f'^{_DIGEST}$')}",
                grade="coarser",
                note="what looks like a digest passes; nobody can tell with which key it was made",
            )
        case "captured":
            return Condition(
                holds=text,
                grade="coarser",
                note="any text passes: the Collector cannot see whether it was captured on purpose",
            )
        case _:
            return _each(data, value)


def _each(data: dict[str, Any], value: str) -> Condition:
    inner: dict[str, Any] = data["of"]
    entry, grade, note = _entry(inner)
    if not entry:
        return Condition(holds="", grade="stricter", note="lists of these never pass")
    if data.get("fill") is not None and grade == "exact":
        grade, note = "stricter", "a list with one entry that does not obey is dropped as a whole"
    listed = f"^[[](?:{entry}(?:,{entry})*)?]$"
    first = ""
    if entry.startswith('"'):
        # JSON writes bytes as text; lists that a library makes are of one type.
        first = f" and (Len({value}) == 0 or IsString({value}[0]))"
        if grade == "exact":
            grade, note = "coarser", "among texts an entry of bytes passes if its base64 obeys"
    return Condition(
        holds=f"IsList({value}) and Len({value}) <= {data['max_items']}{first} "
        f"and {matches(value, listed)}",
        grade=grade,
        note=note,
    )


def _entry(data: dict[str, Any]) -> tuple[str, Grade, str]:
    """Return the pattern of one entry in a list's JSON, and how exact it is."""
    match data["rule"]:
        case "identifier" | "opaque" | "hex" | "uuid":
            if data.get("max_length", 0) > _MOST_REPEATED:
                return f'"{_pattern(data)}"', "coarser", "the length of an entry is not checked"
            return f'"{_pattern(data)}"', "exact", ""
        case "closed_set":
            values = [each for each in data["values"] if _EVERYWHERE_THE_SAME.isdisjoint(each)]
            if "other" in data:
                values.append(data["other"])
                note = "a list with one entry outside the set is dropped as a whole"
                return f'"(?:{_alternatives(values)})"', "stricter", note
            if len(values) < len(data["values"]):
                note = "values with quotation marks or the like are dropped"
                return f'"(?:{_alternatives(values)})"' if values else "", "stricter", note
            return f'"(?:{_alternatives(values)})"', "exact", ""
        case "number_range":
            sign = "" if data["low"] >= 0 else "-?"
            number = f"{sign}[0-9]+(?:[.][0-9]+)?(?:[eE][+-]?[0-9]+)?"
            return number, "coarser", "the bounds of an entry are not checked"
        case "flag":
            return "(?:true|false)", "exact", ""
        case "keyed_digest":
            return f'"{_DIGEST}"', "coarser", "what looks like a digest passes"
        case _:  # captured texts and lists of lists: no pattern can vouch for them
            return "", "stricter", ""


def _pattern(data: dict[str, Any]) -> str:
    most = data.get("max_length", 0)
    match data["rule"]:
        case "identifier" | "opaque":
            return f"{_IDENTIFIER}{_times(0, most - 1)}"
        case "hex":
            return f"[0-9a-f]{_times(1, most)}"
        case "uuid":
            return _UUID
        case _:
            values = {*data["values"], *([data["other"]] if "other" in data else [])}
            return _alternatives(values)


def _times(least: int, most: int) -> str:
    if most > _MOST_REPEATED:
        return "+" if least else "*"
    return f"{{{least},{most}}}"


def _alternatives(values: Any) -> str:
    return "|".join(_literal(each) for each in sorted(values))


def _literal(text: str) -> str:
    """Write a text as a pattern of itself; the backslash is doubled for OTTL's quotes."""
    return "".join(each if each in _PLAIN else f"\\\\x{{{ord(each):x}}}" for each in text)


def matches(value: str, pattern: str) -> str:
    """Return the condition that a value matches a pattern."""
    quoted = pattern.replace('"', '\\"')
    return f'IsMatch({value}, "{quoted}")'


def _within(value: str, low: float, high: float) -> str:
    """Compare integers with integers and floats with floats: neither is rounded on the way.

    A comparison with a number that is no number, or with an infinite one, does not hold.
    """
    whole = [f"IsInt({value})"]
    if low > -(2**63):
        whole.append(f"{value} >= {math.ceil(low)}")
    if high < 2**63 - 1:
        whole.append(f"{value} <= {math.floor(high)}")
    real = [
        f"IsDouble({value})",
        f"{value} >= {_float(low, math.inf)}",
        f"{value} <= {_float(high, -math.inf)}",
    ]
    return f"(({' and '.join(whole)}) or ({' and '.join(real)}))"


def _float(bound: float, inwards: float) -> str:
    """Return the finite float that is nearest to a bound and within it."""
    if math.isinf(bound):
        nearest = math.copysign(1.7976931348623157e308, bound)
    else:
        nearest = float(bound)
        if nearest != bound and (nearest > bound) == (inwards < 0):
            nearest = math.nextafter(nearest, inwards)
    if math.isinf(nearest):
        raise ConfigurationError(f"{bound!r} is no bound that a float can have")
    digits, exponent, power = repr(nearest).partition("e")
    return f"{digits}{'' if '.' in digits else '.0'}{exponent}{power}"
