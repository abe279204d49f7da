"""Points in time as a user types them, the same on the web and on the command line."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Final

_AGE: Final = re.compile(r"(\d{1,18})\s*([smhdw])", re.ASCII)
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def age_ns(text: str) -> int | None:
    """Return the nanoseconds of an age such as `90s`, `2h` or `7d`; None if it is none."""
    found = _AGE.fullmatch(text.strip().lower())
    return int(found[1]) * _SECONDS[found[2]] * 10**9 if found else None


def moment_ns(text: str) -> int | None:
    """Return the nanoseconds from 1970 to a day or a moment in ISO 8601; None if it is neither.

    A time without an offset is UTC, and a day is its beginning. Before 1970 they are negative.
    """
    try:
        found = datetime.fromisoformat(text.strip())
    except ValueError:
        return None
    since = (found if found.tzinfo else found.replace(tzinfo=UTC)) - _EPOCH
    return since // timedelta(microseconds=1) * 1000
