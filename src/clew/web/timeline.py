"""A run laid out for the eye: sections, a time axis for each, and one row for each span."""

from __future__ import annotations

from collections import Counter
from typing import Final

from msgspec import Struct

from clew import semconv
from clew.sources import tree, wording
from clew.store.records import SPAN_TYPES, RunRecord, SpanRecord, integer, number, text

ROWS_AT_ONCE: Final = 1000
"""Most spans on one page; longer runs are paged."""
_NARROWEST: Final = 0.4
"""Percent of the axis that the shortest bar takes."""
_DEEPEST: Final = 16
_MOST_STEPS: Final = 10
_BAD_TOOL_OUTCOMES: Final = frozenset({"error", "timeout", "unknown", "not_offered"})


class Bar(Struct, frozen=True, kw_only=True):
    """Where a span lies on its axis, in percent."""

    x: float
    width: float
    wait: float | None = None
    """Width of the part before the first chunk of a stream."""
    mark: bool = False
    """Drawn as a point in time, not as a bar."""


class Row(Struct, frozen=True, kw_only=True):
    """One span, ready to be shown."""

    span: SpanRecord
    depth: int
    orphan: bool
    start: str
    duration: str
    facts: tuple[str, ...]
    outcome: str | None
    denied: bool
    """Something was denied here: never told by colour alone."""
    failed: bool
    error: str | None
    tokens_in: str
    tokens_out: str
    cost: str
    bar: Bar


class Segment(Struct, frozen=True, kw_only=True):
    """One segment of the run with its own axis."""

    number: int | None
    started: str
    duration: str
    gap: str | None
    """How long the run waited before this segment."""
    steps: int
    """Equal steps of the axis."""
    ticks: tuple[str, ...]
    rows: tuple[Row, ...]


class Kind(Struct, frozen=True, kw_only=True):
    """One entry of the legend."""

    type: str
    count: int


class Timeline(Struct, frozen=True, kw_only=True):
    """What one page of the timeline shows."""

    segments: tuple[Segment, ...]
    kinds: tuple[Kind, ...]
    active: str
    """Sum of the lengths of the segments, without the waits between them."""
    first: int
    """Place of the first row on this page, from 0."""
    shown: int
    total: int


def lay_out(record: RunRecord, *, first: int = 0, selected: str | None = None) -> Timeline:
    """Lay out one page of a run.

    Args:
        record: the run.
        first: place of the first row to show.
        selected: a span id; the page that has it is shown instead.
    """
    found = tree.sections(record)
    order = [node.span.span_id for section in found for node in section.nodes]
    if selected in order:
        first = order.index(selected) // ROWS_AT_ONCE * ROWS_AT_ONCE
    segments: list[Segment] = []
    place, before = 0, None
    for section in found:
        start = max(0, first - place)
        nodes = section.nodes[start : max(0, first + ROWS_AT_ONCE - place)]
        if nodes:
            segments.append(_segment(section, nodes, before))
        place += len(section.nodes)
        before = section
    counts = Counter(each.type for each in record.spans)
    return Timeline(
        segments=tuple(segments),
        kinds=tuple(Kind(type=each, count=counts[each]) for each in SPAN_TYPES if counts[each]),
        active=wording.duration(sum(max(0, each.end_ns - each.start_ns) for each in found)),
        first=first,
        shown=sum(len(each.rows) for each in segments),
        total=len(order),
    )


def _segment(
    section: tree.Section, nodes: tuple[tree.Node, ...], before: tree.Section | None
) -> Segment:
    length = max(1, section.end_ns - section.start_ns)
    step, steps = axis(length)
    whole = step * steps
    return Segment(
        number=section.segment,
        started=wording.moment(section.start_ns),
        duration=wording.duration(length),
        gap=wording.duration(section.start_ns - before.end_ns)
        if before is not None and section.start_ns > before.end_ns
        else None,
        steps=steps,
        ticks=tuple(_tick(step * each, step) for each in range(steps)),
        rows=tuple(_row(node, section.start_ns, whole) for node in nodes),
    )


def axis(length_ns: int) -> tuple[int, int]:
    """Return a round step (1, 2 or 5 times a power of ten) and how many of them cover a length."""
    magnitude = 1
    while True:
        for factor in (1, 2, 5):
            step = factor * magnitude
            if step * _MOST_STEPS >= length_ns:
                return step, max(1, -(-length_ns // step))
        magnitude *= 10


def _tick(at_ns: int, step_ns: int) -> str:
    """Write a place on the axis in the unit that suits its step."""
    for unit, size in (("s", 10**9), ("ms", 10**6), ("µs", 10**3)):
        if step_ns * _MOST_STEPS > size:
            return f"{at_ns / size:g} {unit}" if at_ns else "0"
    return f"{at_ns} ns" if at_ns else "0"


def _row(node: tree.Node, start_ns: int, whole_ns: int) -> Row:
    span = node.span
    found = span.attributes
    outcome = wording.outcome(span)
    denied = outcome in {"deny", "denied"}
    failed = span.status == 2 or (span.type == "tool" and outcome in _BAD_TOOL_OUTCOMES)
    model_call = span.type in {"round", "call", "foreign"}
    tokens_in = integer(found, semconv.USAGE_INPUT) if model_call else None
    tokens_out = integer(found, semconv.USAGE_OUTPUT) if model_call else None
    return Row(
        span=span,
        depth=min(node.depth, _DEEPEST),
        orphan=node.orphan,
        start=wording.offset(span.start_ns - start_ns) if span.start_ns != start_ns else "0",
        duration="" if span.type == "event" else wording.duration(span.duration_ns),
        facts=tuple(wording.facts(span)),
        outcome=outcome,
        denied=denied,
        failed=failed and not denied,
        error=text(found, semconv.ERROR_TYPE) if failed else None,
        tokens_in="" if tokens_in is None else wording.tokens(tokens_in),
        tokens_out="" if tokens_out is None else wording.tokens(tokens_out),
        cost=wording.span_cost(span),
        bar=_bar(span, start_ns, whole_ns),
    )


def _bar(span: SpanRecord, start_ns: int, whole_ns: int) -> Bar:
    x = min(100.0, max(0.0, 100 * (span.start_ns - start_ns) / whole_ns))
    width = min(100 - x, 100 * span.duration_ns / whole_ns)
    mark = span.type in {"decision", "event"} and width < _NARROWEST
    wait = None
    first_chunk = number(span.attributes, semconv.RESPONSE_TIME_TO_FIRST_CHUNK)
    if span.type != "foreign" and first_chunk is not None and first_chunk > 0:
        wait = min(width, 100 * first_chunk * 1e9 / whole_ns)
    return Bar(
        x=round(min(x, 100 - _NARROWEST), 3),
        width=round(max(width, _NARROWEST), 3),
        wait=None if wait is None else round(wait, 3),
        mark=mark,
    )
