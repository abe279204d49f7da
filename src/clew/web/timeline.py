"""A run laid out for the eye: sections, a time axis for each, and one row for each span."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from clew import semconv
from clew.sources import tree, wording
from clew.store.records import (
    SPAN_TYPES,
    QueryError,
    RunRecord,
    SpanRecord,
    integer,
    number,
    text,
)
from clew.web.shown import Shown

ROWS_AT_ONCE: Final = 400
"""Most spans on one page; longer runs are paged, or scrolled through where there is script."""
OUTCOMES: Final = ("problem", "denied", "failed", "ok", "waiting")
"""What the rows of a timeline can be filtered by."""
_NARROWEST: Final = 0.4
"""Percent of the axis that the shortest bar takes."""
_DEEPEST: Final = 16
_MOST_STEPS: Final = 10
_MINUTE: Final = 60 * 10**9
_LONGEST_QUESTION: Final = 200
_BAD_TOOL_OUTCOMES: Final = frozenset({"error", "timeout", "unknown", "not_offered"})
_WAITING: Final = frozenset({"awaiting_approval", "awaiting_input", "require_approval"})
_APPROVALS: Final = ("self", "unresolved", "initiator_unknown", "second_person")
"""Who granted approvals, the one to look at first."""


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
    place: int
    """Place among all spans of the run, from 0."""
    depth: int
    orphan: bool
    open: bool
    """The span has not ended."""
    start_ns: int
    """Nanoseconds from the start of the segment."""
    start: str
    duration: str
    facts: tuple[str, ...]
    outcome: str | None
    denied: bool
    """Something was denied here: never told by colour alone."""
    failed: bool
    error: str | None
    tokens: str
    cost: str
    wait_ns: int | None
    bar: Bar
    aside: bool = False
    """Shown for what is below it only; the filter does not accept it itself."""


class Segment(Struct, frozen=True, kw_only=True):
    """One segment of the run with its own axis."""

    place: int
    """Place among the segments, from 0."""
    number: int | None
    start_ns: int
    length_ns: int
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
    """Place of the first row on this page among those that are accepted, from 0."""
    shown: int
    accepted: int
    """Rows that the filter accepts, with those they stand below."""
    total: int
    approval: str | None
    """Who granted the approvals of this run, the most doubtful of them."""


class RowFilter(Struct, frozen=True, kw_only=True):
    """Which rows of a timeline are wanted."""

    words: str = ""
    """Found in a row's name or facts, whatever the case."""
    kinds: frozenset[str] = frozenset(SPAN_TYPES)
    outcome: str | None = None
    """One of `OUTCOMES`."""

    def __post_init__(self) -> None:
        if self.outcome is not None and self.outcome not in OUTCOMES:
            raise QueryError(f"outcome must be one of {', '.join(OUTCOMES)}")
        if not self.kinds <= set(SPAN_TYPES):
            raise QueryError(f"kind must be one of {', '.join(SPAN_TYPES)}")
        if len(self.words) > _LONGEST_QUESTION:
            raise QueryError(f"q must have at most {_LONGEST_QUESTION} characters")

    @property
    def everything(self) -> bool:
        """True where nothing is left out."""
        return not self.words and self.outcome is None and len(self.kinds) == len(SPAN_TYPES)

    def wants(self, row: Row) -> bool:
        """Tell whether a row is looked for; its kind is another question."""
        if self.words and self.words.casefold() not in row_text(row).casefold():
            return False
        match self.outcome:
            case None:
                return True
            case "denied":
                return row.denied
            case "failed":
                return row.failed
            case "problem":
                return row.denied or row.failed
            case "waiting":
                return row.outcome in _WAITING
            case _:
                return not (row.denied or row.failed or row.outcome in _WAITING)


def row_text(row: Row) -> str:
    """Return what is searched of a row."""
    return " ".join([row.span.name, row.outcome or "", row.error or "", *row.facts])


def lay_out(
    shown: Shown,
    *,
    first: int = 0,
    most: int = ROWS_AT_ONCE,
    selected: str | None = None,
    wanted: RowFilter | None = None,
) -> Timeline:
    """Lay out one page of a run.

    Args:
        shown: the run.
        first: place of the first row to show, among those that are accepted.
        most: rows at most.
        selected: a span id; the page that has it is shown instead.
        wanted: which rows; by default all.
    """
    wanted = wanted or RowFilter()
    sections = tree.sections(shown.record)
    choices = [_accepted(section, place, shown, wanted) for place, section in _placed(sections)]
    if selected is not None:
        order = [each for choice in choices for each in choice.ids()]
        if selected in order:
            first = order.index(selected) // most * most
    segments: list[Segment] = []
    accepted, count, before = 0, 0, None
    for place, (section, choice) in enumerate(zip(sections, choices, strict=True)):
        here = choice.rows(max(0, first - accepted), max(0, first + most - accepted))
        segments.append(_segment(section, here, before, place))
        count += len(here)
        accepted += len(choice)
        before = section
    counts = Counter(each.type for each in shown.record.spans)
    return Timeline(
        segments=tuple(segments),
        kinds=tuple(Kind(type=each, count=counts[each]) for each in SPAN_TYPES),
        active=wording.duration(sum(max(0, each.end_ns - each.start_ns) for each in sections)),
        first=first,
        shown=count,
        accepted=accepted,
        total=len(shown.record.spans),
        approval=approval(shown.record),
    )


class _Choice:
    """The accepted rows of a section: made when they are needed, where that is known without."""

    def __init__(
        self, section: tree.Section, place: int, shown: Shown, rows: Sequence[Row] | None
    ) -> None:
        self._section = section
        self._place = place
        self._shown = shown
        self._rows = rows

    def __len__(self) -> int:
        return len(self._section.nodes if self._rows is None else self._rows)

    def ids(self) -> list[str]:
        """Return the span ids, top to bottom."""
        if self._rows is None:
            return [each.span.span_id for each in self._section.nodes]
        return [each.span.span_id for each in self._rows]

    def rows(self, start: int = 0, end: int | None = None) -> tuple[Row, ...]:
        """Return a stretch of the rows."""
        if self._rows is not None:
            return tuple(self._rows[start:end])
        section = self._section
        step, steps = axis(max(1, section.end_ns - section.start_ns))
        return tuple(
            _row(node, self._place + start + number, section.start_ns, step * steps, self._shown)
            for number, node in enumerate(section.nodes[start:end])
        )


def _placed(sections: Sequence[tree.Section]) -> Iterator[tuple[int, tree.Section]]:
    """Return each section with the place of its first row."""
    place = 0
    for section in sections:
        yield place, section
        place += len(section.nodes)


def _accepted(section: tree.Section, place: int, shown: Shown, wanted: RowFilter) -> _Choice:
    every = _Choice(section, place, shown, None)
    if wanted.everything:
        return every
    return _Choice(section, place, shown, _filtered(every.rows(), wanted))


def _filtered(rows: Sequence[Row], wanted: RowFilter) -> list[Row]:
    """Keep what is looked for, and what it stands below."""
    kept: list[Row] = []
    depth = 0
    for row in reversed(rows):
        hit = wanted.wants(row) and row.span.type in wanted.kinds
        above = row.depth < depth
        if hit or (above and row.span.type in wanted.kinds):
            kept.append(row if hit else _aside(row))
        if hit or above:
            depth = row.depth
    kept.reverse()
    return kept


def _aside(row: Row) -> Row:
    return replace(row, aside=True)


def _segment(
    section: tree.Section, rows: tuple[Row, ...], before: tree.Section | None, place: int
) -> Segment:
    length = max(1, section.end_ns - section.start_ns)
    step, steps = axis(length)
    return Segment(
        place=place,
        number=section.segment,
        start_ns=section.start_ns,
        length_ns=length,
        started=wording.moment(section.start_ns),
        duration=wording.duration(length),
        gap=wording.duration(section.start_ns - before.end_ns)
        if before is not None and section.start_ns > before.end_ns
        else None,
        steps=steps,
        ticks=tuple(_tick(step * each, step) for each in range(steps)),
        rows=rows,
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


def _row(node: tree.Node, place: int, start_ns: int, whole_ns: int, shown: Shown) -> Row:
    span = node.span
    found = span.attributes
    outcome = wording.outcome(span)
    denied = outcome in {"deny", "denied"}
    failed = span.status == 2 or (span.type == "tool" and outcome in _BAD_TOOL_OUTCOMES)
    first_chunk = number(found, semconv.RESPONSE_TIME_TO_FIRST_CHUNK)
    wait_ns = None
    if span.type != "foreign" and first_chunk is not None and first_chunk > 0:
        wait_ns = min(span.duration_ns, round(first_chunk * 1e9))
    still = span.span_id in shown.open
    return Row(
        span=span,
        place=place,
        depth=min(node.depth, _DEEPEST),
        orphan=node.orphan,
        open=still,
        start_ns=span.start_ns - start_ns,
        start=begun(span.start_ns - start_ns),
        duration=_duration(span, still),
        facts=_facts(span, span.span_id in shown.adopted),
        outcome=outcome,
        denied=denied,
        failed=failed and not denied,
        error=text(found, semconv.ERROR_TYPE) if failed else None,
        tokens=_tokens(span),
        cost=wording.span_cost(span),
        wait_ns=wait_ns,
        bar=_bar(span, start_ns, whole_ns, wait_ns),
    )


def begun(offset_ns: int) -> str:
    """Write how long after the start of its segment a span began.

    From a minute on as `+1:15.001`: what follows within a second must be told apart.
    """
    if offset_ns < _MINUTE:
        return wording.offset(offset_ns) if offset_ns else "0"
    minutes, rest = divmod(offset_ns, _MINUTE)
    seconds, milli = divmod(rest // 10**6, 1000)
    if minutes < 60:
        return f"+{minutes}:{seconds:02d}.{milli:03d}"
    return f"+{minutes // 60}:{minutes % 60:02d}:{seconds:02d}.{milli // 100}"


def _duration(span: SpanRecord, still: bool) -> str:
    if span.type == "event":
        return ""
    return "" if still else wording.duration(span.duration_ns)


def _tokens(span: SpanRecord) -> str:
    if span.type not in {"round", "call", "foreign"}:
        return ""
    asked = integer(span.attributes, semconv.USAGE_INPUT)
    answered = integer(span.attributes, semconv.USAGE_OUTPUT)
    if asked is None and answered is None:
        return ""
    return f"{wording.tokens(asked)} → {wording.tokens(answered)}"


def _facts(span: SpanRecord, adopted: bool) -> tuple[str, ...]:
    said = list(wording.facts(span))
    granted = _granted(span)
    if granted is not None:
        said.append(wording.APPROVERS[granted])
    if adopted:
        said.append("inside something still going on")
    return tuple(said)


def _granted(span: SpanRecord) -> str | None:
    """Return by whom an approval was granted; None for denials and everything else."""
    found = span.attributes
    if span.type != "decision" or found.get(semconv.DECISION_GATE) != "approval":
        return None
    if found.get(semconv.DECISION_OUTCOME) != "allow":
        return None
    by = text(found, semconv.DECISION_BY)
    if by == "policy":
        return None
    return by if by in _APPROVALS else "unresolved"


def approval(record: RunRecord) -> str | None:
    """Return who granted the approvals of a run, the most doubtful first; None without any."""
    granted = {_granted(each) for each in record.spans}
    return next((each for each in _APPROVALS if each in granted), None)


def _bar(span: SpanRecord, start_ns: int, whole_ns: int, wait_ns: int | None) -> Bar:
    x = min(100.0, max(0.0, 100 * (span.start_ns - start_ns) / whole_ns))
    width = min(100 - x, 100 * span.duration_ns / whole_ns)
    mark = span.type in {"decision", "event"} and width < _NARROWEST
    wait = None if wait_ns is None else min(width, 100 * wait_ns / whole_ns)
    return Bar(
        x=round(min(x, 100 - _NARROWEST), 3),
        width=round(max(width, _NARROWEST), 3),
        wait=None if wait is None else round(wait, 3),
        mark=mark,
    )


# --- the JSON twin ------------------------------------------------------------------------------


def rows_form(laid_out: Timeline) -> dict[str, Any]:
    """Return segments and rows as JSON values.

    Times are nanoseconds: `start_ns` and `wait_ns` of a row from the start of its segment and of
    its span. `next` is what `after` continues with, null at the end.
    """
    rows = [row_form(row, segment.place) for segment in laid_out.segments for row in segment.rows]
    last = laid_out.first + laid_out.shown
    return {
        "segments": [
            {
                "place": each.place,
                "segment": each.number,
                "start_time_unix_nano": str(each.start_ns),
                "length_ns": each.length_ns,
            }
            for each in laid_out.segments
        ],
        "rows": rows,
        "accepted": laid_out.accepted,
        "total": laid_out.total,
        "next": last - 1 if last < laid_out.accepted else None,
    }


def row_form(row: Row, segment: int) -> dict[str, Any]:
    """Return one row as JSON values."""
    span = row.span
    return {
        "place": row.place,
        "segment": segment,
        "span_id": span.span_id,
        "type": span.type,
        "name": span.name,
        "seq": span.seq,
        "depth": row.depth,
        "start_ns": row.start_ns,
        "length_ns": span.duration_ns,
        "wait_ns": row.wait_ns,
        "start": row.start,
        "duration": row.duration,
        "tokens": row.tokens,
        "cost": row.cost,
        "facts": row.facts,
        "outcome": row.outcome,
        "error": row.error,
        "denied": row.denied,
        "failed": row.failed,
        "orphan": row.orphan,
        "open": row.open,
        "aside": row.aside,
    }
