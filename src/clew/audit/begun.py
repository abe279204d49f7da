"""What the journal says was begun, held against the spans that are there.

A write or an enforced decision stands in the journal before it happens (`clew.store.journal`). One
without a span is work of which the record knows nothing more: its process died, or its spans were
lost on the way.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace

from clew import semconv
from clew.audit.report import Begun, RunReport
from clew.store.journal import Entry
from clew.store.records import RunRecord, text


def by_run(entries: Iterable[Entry]) -> dict[str, list[Entry]]:
    """Return the entries of each run, by trace id; those outside runs are left out."""
    found: defaultdict[str, list[Entry]] = defaultdict(list)
    for entry in entries:
        if entry.segment_id is not None:
            found[entry.trace_id].append(entry)
    return dict(found)


def held_against(report: RunReport, record: RunRecord, entries: Sequence[Entry]) -> RunReport:
    """Return the report with what was begun and has no span.

    Such a run is not COMPLETE, unless the seals name it as what never ended.
    """
    known = {each.span_id for each in (*record.spans, *record.conflicts)}
    lacking = [each for each in entries if each.span_id not in known]
    if not lacking:
        return report
    never = {
        (each.segment_id, seq)
        for each in report.segments
        if each.sealed
        for seq in each.never_ended
    }
    unknown = [each for each in lacking if (each.segment_id, each.seq) not in never]
    begun = tuple(map(_begun, lacking))
    if report.status != "COMPLETE" or not unknown:
        return replace(report, begun=begun)
    return replace(
        report,
        status="OPEN",
        reason=f"the journal has {_counted(unknown)} of which there is no span",
        open_since_ns=min(each.time_ns for each in unknown),
        begun=begun,
    )


def without_spans(report: RunReport, entries: Sequence[Entry], *, lost: bool) -> RunReport:
    """Return the report on a run of which only the journal knows.

    Args:
        report: what is said of it without the journal (`clew.audit.verify.absent`).
        entries: its entries.
        lost: whether its spans should be there: neither sampled out nor erased.
    """
    begun = tuple(map(_begun, entries))
    if not lost:
        return replace(report, begun=begun)
    return replace(
        report,
        status="OPEN",
        reason=f"no span of it is there; the journal has {_counted(entries)}",
        open_since_ns=min(each.time_ns for each in entries),
        begun=begun,
    )


def _counted(entries: Sequence[Entry]) -> str:
    calls = sum(each.kind == "tool" for each in entries)
    words = [
        f"{count} {word}{'s' if count > 1 else ''}"
        for count, word in ((calls, "tool call"), (len(entries) - calls, "decision"))
        if count
    ]
    return " and ".join(words)


def _begun(entry: Entry) -> Begun:
    facts: Mapping[str, object] = entry.facts
    key = semconv.TOOL_NAME if entry.kind == "tool" else semconv.DECISION_GATE
    return Begun(
        kind=entry.kind,
        name=text(facts, key) or "",
        time_ns=entry.time_ns,
        span_id=entry.span_id,
        segment_id=entry.segment_id,
        seq=entry.seq,
    )
