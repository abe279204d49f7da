"""Numbers of a recorded call in words."""

from __future__ import annotations

import pytest

from clew.sources.wording import UNKNOWN
from clew.web import prompt_words


@pytest.mark.parametrize(
    ("value", "expected"),
    [(None, UNKNOWN), (0, "0"), (999, "999"), (1000, "1.0k"), (53_240, "53.2k"),
     (1_200_000, "1200.0k")],
)  # fmt: skip
def test_tokens_in_words(value: int | None, expected: str) -> None:
    """Below a thousand as they are, else thousands with one decimal."""
    assert expected == prompt_words.tokens(value)


@pytest.mark.parametrize(
    ("value", "expected"),
    [(None, UNKNOWN), (0.0, "$0"), (0.00001, "< $0.0001"), (0.00431, "$0.0043"),
     (0.01, "$0.010"), (1.2345, "$1.234")],
)  # fmt: skip
def test_cost_in_words(value: float | None, expected: str) -> None:
    """Four decimals below a cent, else three; nothing that was paid reads as zero."""
    assert expected == prompt_words.cost(value)


@pytest.mark.parametrize(
    ("value", "expected"), [(None, UNKNOWN), (0.0, "0.0 %"), (0.1234, "12.3 %"), (1.0, "100.0 %")]
)
def test_shares_in_words(value: float | None, expected: str) -> None:
    """One decimal."""
    assert expected == prompt_words.share(value)
