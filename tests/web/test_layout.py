"""How a run is laid out: axes, bars, pages of rows."""

# ruff: noqa: SIM300 - expected == actual, in this order
from __future__ import annotations

import pytest
import sample_messages
import sample_runs

from clew import semconv
from clew.allow_list import AllowList
from clew.store.records import RunRecord, span_order
from clew.store.summary import fold
from clew.web.shown import Filter, Shown
from clew.web.timeline import ROWS_AT_ONCE, axis, begun, lay_out


def record_of(run: sample_runs.Sample) -> Shown:
    spans = tuple(sorted(sample_messages.spans_of(run), key=span_order))
    return Filter(AllowList.default()).apply(
        RunRecord(summary=fold(spans, run.trace_id), spans=spans)
    )


@pytest.mark.parametrize(
    ("length", "step", "steps"),
    [
        (1, 1, 1),
        (10, 1, 10),
        (11, 2, 6),
        (8_420_000_000, 10**9, 9),
        (2_200_000_000, 500_000_000, 5),
    ],
)
def test_an_axis_has_round_steps(length: int, step: int, steps: int) -> None:
    """Steps are 1, 2 or 5 times a power of ten, at most ten of them, and cover the length."""
    assert (step, steps) == axis(length)


@pytest.mark.parametrize(
    ("offset", "said"),
    [
        (0, "0"),
        (-5_000_000, "\u22125.00 ms"),
        (59_990_000_000, "+59.99 s"),
        (60_000_000_000, "+1:00.000"),
        (75_001_000_000, "+1:15.001"),
        (119_999_999_999, "+1:59.999"),
        (3_600_000_000_000, "+1:00:00.0"),
        (90_061_500_000_000, "+25:01:01.5"),
    ],
)
def test_late_starts_are_told_apart(offset: int, said: str) -> None:
    """From a minute on a start has minutes, seconds and their parts."""
    assert said == begun(offset)


def test_bars_lie_where_their_spans_are() -> None:
    """Start and length of a bar are its span's share of the axis; order is to the nanosecond."""
    run = sample_runs.Sample()
    root = run.root("a", 0, 1000)
    run.tool("first", 250, 750, root)
    run.tool("late", 250.000001, 250.000002, root)
    (segment,) = lay_out(record_of(run)).segments
    whole, first, late = segment.rows
    assert (10, 0, 100) == (segment.steps, whole.bar.x, whole.bar.width)
    assert (25, 50) == (first.bar.x, first.bar.width)
    assert ("late", 25) == (late.span.attributes[semconv.TOOL_NAME], late.bar.x)
    assert late.bar.width > 0


def test_a_seal_does_not_stretch_the_axis() -> None:
    """The mark that comes seconds after the end lies at the edge, with its true time in words."""
    (segment,) = lay_out(record_of(sample_runs.triage())).segments
    assert "8.42 s" == segment.duration
    assert ("+13.42 s", True) == (segment.rows[-1].start, segment.rows[-1].bar.mark)


def test_a_long_run_is_paged() -> None:
    """Rows are bounded; a selected span brings its page."""
    run = sample_runs.Sample()
    root = run.root("a", 0, 10_000)
    for number in range(ROWS_AT_ONCE * 2):
        run.tool("t", number, number + 1, root)
    record = record_of(run)
    first = lay_out(record)
    assert (0, ROWS_AT_ONCE, 2 * ROWS_AT_ONCE + 1) == (first.first, first.shown, first.total)
    last = lay_out(record, selected=run.spans[-1].span_id)
    assert (2 * ROWS_AT_ONCE, 1) == (last.first, last.shown)
    beyond = lay_out(record, first=10**8)
    assert (0, [()]) == (beyond.shown, [each.rows for each in beyond.segments])


def test_spans_that_are_their_own_ancestors_are_shown_once() -> None:
    """Circles and missing parents lose no span and end."""
    run = sample_runs.Sample()
    one = run.add("one", 0, 1)
    two = run.add("two", 1, 2, one)
    one.parent_id = two.span_id
    selfish = run.add("selfish", 2, 3)
    selfish.parent_id = selfish.span_id
    lost = run.add("lost", 3, 4)
    lost.parent_id = "f" * 16
    (segment,) = lay_out(record_of(run)).segments
    assert ["lost", "one", "selfish", "two"] == sorted(row.span.name for row in segment.rows)
