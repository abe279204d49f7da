"""Points in time as a user types them."""

from __future__ import annotations

import time
from typing import Final

from clew.errors import ClewError
from clew.sources.moments import age_ns, moment_ns

_MOST: Final = 2**63 - 1
"""What stores keep: further away is as far as that."""


def since(text: str) -> int:
    """Return what a user means by `2h`, `7d`, `2026-01-31` or `2026-01-31T12:00` (ns since 1970).

    A time without an offset is UTC.

    Raises:
        ClewError: it is none of these.
    """
    age = age_ns(text)
    found = moment_ns(text) if age is None else time.time_ns() - age
    if found is None:
        raise ClewError(
            f"{text[:80]!r} is no time: write 2h, 7d, 2026-01-31 or 2026-01-31T12:00+01:00"
        )
    return max(-_MOST, min(found, _MOST))
