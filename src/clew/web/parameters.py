"""Reading the parameters of an address: what cannot be meant is said."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from datetime import date
from typing import Final

from clew.sources.moments import age_ns, moment_ns
from clew.store.groups import LONGEST
from clew.store.records import QueryError

_FLAGS: Final = {"1": True, "true": True, "on": True, "0": False, "false": False, "": False}
_AMOUNT: Final = re.compile(r"\d{1,9}(\.\d{1,12})?")
_DAY: Final = re.compile(r"\d{4}-\d{2}-\d{2}")
_LONGEST_AGE: Final = 6
"""Letters: an age of five digits of days is longer than any run can be old."""
_LAST_NS: Final = 2**63 - 1


def flag(asked: Mapping[str, str], name: str) -> bool:
    """Read a parameter that is true or false.

    Raises:
        QueryError: it is neither.
    """
    value = asked.get(name, "").lower()
    if value not in _FLAGS:
        raise QueryError(f"{name} must be true or false")
    return _FLAGS[value]


def whole(
    asked: Mapping[str, str], name: str, default: int, *, least: int = 1, most: int = 10**9
) -> int:
    """Read a parameter that is a whole number.

    Raises:
        QueryError: it is none, or out of bounds.
    """
    value = asked.get(name, "")
    if not value:
        return default
    digits = value.removeprefix("-") if least < 0 else value
    if not (digits.isascii() and digits.isdigit()) or len(digits) > 9 or int(value) < least:
        raise QueryError(f"{name} must be a whole number of at least {least}")
    if int(value) > most:
        raise QueryError(f"{name} must be at most {most}")
    return int(value)


def word(asked: Mapping[str, str], name: str) -> str | None:
    """Read a name; None where none is given.

    Raises:
        QueryError: it is too long to be one.
    """
    value = asked.get(name, "").strip()
    if len(value) > LONGEST:
        raise QueryError(f"{name} must have at most {LONGEST} characters")
    return value or None


def amount(asked: Mapping[str, str], name: str) -> float | None:
    """Read an amount in US dollars; None where none is given.

    Raises:
        QueryError: it is none.
    """
    value = asked.get(name, "").strip()
    if not value:
        return None
    if not _AMOUNT.fullmatch(value) or not value.isascii():
        raise QueryError(f"{name} must be an amount in US dollars, such as 0.25")
    return float(value)


def moment(asked: Mapping[str, str], name: str, *, end: bool = False) -> int | None:
    """Read a time in nanoseconds since 1970: `24h` (ago), `2026-12-01`, `2026-12-01T10:00`.

    A time without an offset is UTC. With `end`, a day means its end.

    Raises:
        QueryError: it is none, or outside of what can be stored.
    """
    value = asked.get(name, "").strip()
    if not value:
        return None
    age = age_ns(value) if len(value) <= _LONGEST_AGE else None
    if age is not None:
        return max(0, time.time_ns() - age)
    # A plus in an address is a space.
    written = value.replace(" ", "+") if "T" in value else value
    found = moment_ns(written) if value.isascii() and len(value) <= 40 else None
    if found is not None and end and _DAY.fullmatch(value):
        found += 86_400 * 10**9
    if found is None or not 0 <= found <= _LAST_NS:
        raise QueryError(f"{name} must be a time, such as 24h, 2026-12-01 or 2026-12-01T10:00")
    return found


def day(asked: Mapping[str, str], name: str) -> date | None:
    """Read a day; None where none is given.

    Raises:
        QueryError: it is none between 1971 and 2200.
    """
    value = asked.get(name, "").strip()
    if not value:
        return None
    try:
        found = date.fromisoformat(value) if value.isascii() and len(value) == 10 else None
    except ValueError:
        found = None
    if found is None or not 1971 <= found.year <= 2200:
        raise QueryError(f"{name} must be a day, such as 2026-12-01")
    return found
