"""Figures in words, and spans as a tree."""

# ruff: noqa: SIM300 - expected == actual, in this order
from __future__ import annotations

import pytest
import sample_messages
import sample_runs
from hypothesis import given
from hypothesis import strategies as st

from clew.sources import tree, wording
from clew.sources.forms import record_form, time_text
from clew.store.records import RunRecord, span_order
from clew.store.summary import fold

NS, US, MS, S = 1, 10**3, 10**6, 10**9


@pytest.mark.parametrize(
    ("length", "expected"),
    [
        (0, "0"),
        (-5, "0"),
        (850 * NS, "850 ns"),
        (412 * US, "412 µs"),
        (1 * MS, "1.00 ms"),
        (9_994_999, "9.99 ms"),
        (9_995_001, "10.0 ms"),
        (99_960 * US, "100 ms"),
        (276 * MS, "276 ms"),
        (999_600 * US, "1.00 s"),
        (8_420 * MS, "8.42 s"),
        (59_996 * MS, "1 min 00 s"),
        (3_599 * S, "59 min 59 s"),
        (3_600 * S, "1 h 00 min"),
        (47 * 3_600 * S, "47 h 00 min"),
        (50 * 3_600 * S, "2 d 2 h"),
    ],
)
def test_durations_have_about_three_digits(length: int, expected: str) -> None:
    """Units change where the next one reads better, without jumps at the borders."""
    assert expected == wording.duration(length)


@pytest.mark.parametrize(
    ("usd", "status", "expected"),
    [
        (None, None, wording.UNKNOWN),
        (None, "unpriced", "no price"),
        (None, "unknown", "no usage"),
        (0.0, "priced", "$0"),
        (0.0000004, "priced", "$0.000000400"),
        (0.00214, "priced", "$0.00214"),
        (0.0319, "provider_reported", "$0.0319"),
        (12.345, "priced", "$12.35"),
        (1234.5, "priced", "$1,234.50"),
        (0.005, "partial", "≥ $0.00500"),
    ],
)
def test_a_cost_that_is_unknown_is_never_zero(
    usd: float | None, status: str | None, expected: str
) -> None:
    """No cost says why, a lower bound says so, zero is zero."""
    assert expected == wording.cost(usd, status)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, wording.UNKNOWN),
        (0, "0"),
        (999, "999"),
        (1200, "1.2k"),
        (999_949, "999.9k"),
        (3_020_000, "3.02M"),
    ],
)
def test_tokens_take_little_space(value: int | None, expected: str) -> None:
    """Unknown is a dash; large numbers are shortened."""
    assert expected == wording.tokens(value)


def test_times_keep_their_nanoseconds() -> None:
    """RFC 3339 with nine digits, in UTC."""
    assert "2026-12-01T10:00:00.000000001Z" == time_text(sample_runs.START_NS + 1)


@given(st.integers(0, 2**64 - 1))
def test_every_time_of_otlp_can_be_written(time_ns: int) -> None:
    """Any 64-bit time has a text; the order of texts is the order of times."""
    assert time_text(time_ns) <= time_text(time_ns + 1)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, ""),
        (True, "true"),
        (1.0, "1.0"),
        (0.1 + 0.2, "0.3"),
        (5.4749999999999996e-05, "0.00005475"),
        (1e300, "1e+300"),
        (-0.0, "-0.0"),
        (["a", "b"], "a, b"),
        ({"bytesValue": "AP8="}, "base64:AP8="),
        ({"doubleValue": "NaN"}, "NaN"),
        ({"kvlistValue": {"a": [1, {"kvlistValue": {}}]}}, "a=1, "),
    ],
)
def test_every_kind_of_value_can_be_read(value: object, expected: str) -> None:
    """Lists, maps, bytes and non-finite doubles have a text."""
    assert expected == wording.value_text(value)


def record_of(run: sample_runs.Sample) -> RunRecord:
    spans = sorted(sample_messages.spans_of(run), key=span_order)
    return RunRecord(summary=fold(spans, run.trace_id), spans=tuple(spans))


@pytest.mark.parametrize("make", [sample_runs.triage, sample_runs.suspended, sample_runs.failed])
def test_a_tree_has_every_span_once_below_its_parent(make) -> None:
    """Reading order keeps parents before children and siblings in sequence."""
    run = make()
    for section in tree.sections(record_of(run)):
        above: list[str] = []
        for node in section.nodes:
            del above[node.depth :]
            assert (above[-1] if above else None) == node.span.parent_id
            above.append(node.span.span_id)
    nodes = [node for section in tree.sections(record_of(run)) for node in section.nodes]
    assert [each.span_id for each in run.spans] == [each.span.span_id for each in nodes]


def test_a_span_without_its_parent_is_marked() -> None:
    """While the outermost span has not ended, what has arrived stands at the margin."""
    (section,) = tree.sections(record_of(sample_runs.running()))
    assert [(0, True), (0, True)] == [(each.depth, each.orphan) for each in section.nodes]


def test_the_json_form_has_null_for_what_is_unknown() -> None:
    """A run without usage has no numbers of tokens and no cost."""
    form = record_form(record_of(sample_runs.failed()))["run"]
    tokens = dict.fromkeys(("input", "output", "cache_read", "cache_write", "reasoning"))
    assert (tokens, None, "unknown", 1) == (
        form["tokens"],
        form["cost_usd"],
        form["cost_status"],
        form["rounds_without_usage"],
    )
