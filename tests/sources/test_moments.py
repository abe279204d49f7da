"""Points in time as a user types them: ages, days and moments."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clew.sources.moments import age_ns, moment_ns

SECOND = 10**9


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90s", 90),
        ("5m", 300),
        ("2h", 7_200),
        ("7D", 604_800),
        (" 1 w ", 604_800),
        ("0d", 0),
        ("", None),
        ("h", None),
        ("7", None),
        ("-2h", None),
        ("2h30m", None),
        ("\u0662h", None),
        ("9" * 19 + "s", None),
        ("2026-12-01", None),
    ],
)
def test_an_age(text: str, seconds: int | None) -> None:
    """A number and a unit; anything else is no age."""
    assert age_ns(text) == (None if seconds is None else seconds * SECOND)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1970-01-02", 86_400 * SECOND),
        (" 1970-01-01T01:00 ", 3_600 * SECOND),
        ("1970-01-01T01:00:00.000001+01:00", 1_000),
        ("1969-12-31T23:59:59Z", -SECOND),
        ("9999-12-31T23:59:59.999999-23:00", 253_402_383_599_999_999_000),
        ("", None),
        ("yesterday", None),
        ("2026-13-01", None),
        ("2h", None),
    ],
)
def test_a_moment(text: str, expected: int | None) -> None:
    """UTC where no offset is given; before 1970 it is negative; anything else is no moment."""
    assert moment_ns(text) == expected


@given(st.datetimes(timezones=st.just(UTC)), st.integers(-1439, 1439))
def test_every_moment_that_can_be_written_is_read(moment: datetime, minutes: int) -> None:
    """To the microsecond, whatever its offset."""
    offset = timedelta(minutes=minutes)
    text = moment.replace(tzinfo=None).isoformat()
    sign = "-" if minutes < 0 else "+"
    text += f"{sign}{abs(minutes) // 60:02}:{abs(minutes) % 60:02}"
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    assert moment_ns(text) == (moment - epoch - offset) // timedelta(microseconds=1) * 1000


@given(st.text(max_size=30))
def test_no_text_is_a_fault(text: str) -> None:
    """Any text is a number of nanoseconds or None."""
    assert isinstance(age_ns(text), int | None)
    assert isinstance(moment_ns(text), int | None)
