"""Points in time as a user types them."""

from __future__ import annotations

import time

import pytest

from clew.cli.times import since
from clew.errors import ClewError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1970-01-02", 86_400 * 10**9),
        ("1970-01-01T01:00", 3_600 * 10**9),
        ("1970-01-01T01:00:00.000001+01:00", 1_000),
        ("2999-01-01", 2**63 - 1),
        ("0001-01-01", -(2**63 - 1)),
    ],
)
def test_a_moment(text: str, expected: int) -> None:
    """UTC where no offset is given; no further away than stores can keep."""
    assert since(text) == expected


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("2h", 7_200), ("7D", 604_800), (" 1w ", 604_800)]
)
def test_a_while_ago(text: str, seconds: int) -> None:
    """Counted back from now."""
    assert abs(time.time_ns() - since(text) - seconds * 10**9) < 60 * 10**9
    assert since("9999999999999w") == -(2**63 - 1)


@pytest.mark.parametrize("text", ["", "yesterday", "7", "h", "2026-13-01", "-2h"])
def test_what_is_no_time_is_said_to_be_none(text: str) -> None:
    """With what to write instead."""
    with pytest.raises(ClewError, match="is no time: write 2h"):
        since(text)
