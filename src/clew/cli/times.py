"""Points in time as a user types them."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime
from typing import Final

from clew.errors import ClewError

_AGO: Final = re.compile(r"(\d+)\s*(s|m|h|d|w)")
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_MOST: Final = 2**63 - 1
"""What stores keep: further away is as far as that."""


def since(text: str) -> int:
    """Return what a user means by `2h`, `7d`, `2026-01-31` or `2026-01-31T12:00` (ns since 1970).

    A time without an offset is UTC.

    Raises:
        ClewError: it is none of these.
    """
    ago = _AGO.fullmatch(text.strip().lower())
    if ago:
        return max(-_MOST, time.time_ns() - int(ago[1]) * _SECONDS[ago[2]] * 10**9)
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        raise ClewError(
            f"{text[:80]!r} is no time: write 2h, 7d, 2026-01-31 or 2026-01-31T12:00+01:00"
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    whole = moment.replace(microsecond=0)
    found = int(whole.timestamp()) * 10**9 + moment.microsecond * 1000
    return max(-_MOST, min(found, _MOST))
