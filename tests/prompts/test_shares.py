"""Tokens for each block: estimated from bytes, or scaled to the reported input, and labelled."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clew.prompts.shares import Share, divided, shares


def test_estimates():
    """A token for every four bytes, rounded up; parts of the bytes of all blocks."""
    assert shares([1, 4, 5, 0]) == [
        Share(tokens=1, basis="estimated", part=0.1),
        Share(tokens=1, basis="estimated", part=0.4),
        Share(tokens=2, basis="estimated", part=0.5),
        Share(tokens=0, basis="estimated", part=0.0),
    ]
    assert shares([]) == []
    assert shares([0]) == [Share(tokens=0, basis="estimated", part=0.0)]


def test_scaled():
    """The reported input is divided by bytes among the blocks and the rest."""
    assert shares([100, 300], reported_input=200, rest_bytes=400) == [
        Share(tokens=25, basis="scaled", part=0.25, of_input=0.125),
        Share(tokens=75, basis="scaled", part=0.75, of_input=0.375),
    ]


def test_nothing_is_scaled_to_a_whole_of_unknown_size():
    """The report is about the whole input: without the size of the rest it remains an estimate."""
    assert shares([40, 40], reported_input=100) == [
        Share(tokens=10, basis="estimated", part=0.5, of_input=0.1),
        Share(tokens=10, basis="estimated", part=0.5, of_input=0.1),
    ]
    assert shares([40], rest_bytes=100) == [Share(tokens=10, basis="estimated", part=1.0)]


def test_an_estimate_is_never_more_than_the_whole():
    """Where the estimate is above what was reported, the part of the input is all of it."""
    assert shares([400], reported_input=50)[0].of_input == 1.0


def test_an_input_of_no_tokens():
    """Zero that was reported is zero."""
    assert shares([40], reported_input=0, rest_bytes=0) == [
        Share(tokens=0, basis="scaled", part=1.0, of_input=0.0)
    ]


@given(st.lists(st.integers(0, 10**6), max_size=30), st.integers(0, 10**7), st.integers(0, 10**7))
def test_blocks_and_rest_add_up_to_the_report(sizes, reported, rest):
    """Rounding loses and adds no token."""
    found = shares(sizes, reported_input=reported, rest_bytes=rest)
    if sum(sizes) + rest == 0:
        assert all(share.basis == "estimated" for share in found)
        return
    parts = divided(reported, [*sizes, rest])
    assert sum(parts) == reported
    assert [share.tokens for share in found] == parts[:-1]
    exact = [reported * size / (sum(sizes) + rest) for size in sizes]
    assert all(abs(share.tokens - each) < 1.001 for share, each in zip(found, exact, strict=True))


@pytest.mark.parametrize(
    ("whole", "weights", "expected"),
    [(10, [1, 1, 1], [4, 3, 3]), (1, [0, 0, 1], [0, 0, 1]), (5, [0, 0], [0, 0]), (0, [3], [0])],
)
def test_divided(whole, weights, expected):
    """Largest remainders first, earlier ones before later; nothing where there is no weight."""
    assert divided(whole, weights) == expected
