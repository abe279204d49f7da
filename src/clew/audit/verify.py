"""Is anything of a run missing or altered? Proven from its spans alone, whatever the source.

Complete: within a segment `clew.seq` counts from 1 without gaps, and the seal says how many spans
there were. Unaltered: each span carries a digest of its facts, the seal one over all of them
(`clew.integrity`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import islice
from typing import Any, Final, cast

from msgspec.structs import replace

from clew import integrity, semconv
from clew.audit.digests import SegmentCheck, check_segment, facts_of, fields_that_differ
from clew.audit.keys import KeyRing
from clew.audit.report import Completeness, Finding, Integrity, RunReport, SegmentReport
from clew.pipeline.sampling import kept_at
from clew.store.erasure import Tombstone
from clew.store.records import RunRecord, SpanRecord, integer, run_id_of, text

_NO_KEYS: Final = KeyRing()
_SHOWN: Final = 20
_LISTED: Final = 10_000
_DIGITS: Final = 20
_COMPLETE_DECISION: Final = (
    semconv.DECISION_ID,
    semconv.DECISION_GATE,
    semconv.DECISION_OUTCOME,
    semconv.DECISION_BY,
    semconv.DECISION_PROPOSED_AT,
    semconv.DECISION_DECIDED_AT,
    semconv.DECISION_ENFORCED,
)
_OURS: Final = frozenset(
    {semconv.RUN_EVENT, semconv.RUN_ROOT, semconv.DECISION_GATE, semconv.TOOL_OUTCOME}
)
"""Facts that make a span one of Clew's, whatever the name of its scope is."""


class Segment:
    """The spans of one segment, as a verifier sees them."""

    def __init__(self, segment_id: str | None) -> None:
        self.id = segment_id
        self.spans: list[SpanRecord] = []
        self.seal: SpanRecord | None = None

    @property
    def number(self) -> int | None:
        """Its number in the run."""
        return self.spans[0].segment if self.spans else self.seal.segment if self.seal else None

    @property
    def previous_id(self) -> str | None:
        """The segment that it continues."""
        found = (text(each.attributes, semconv.SEGMENT_PREVIOUS_ID) for each in self.spans)
        return next((each for each in found if each is not None), None)

    @property
    def restarts(self) -> bool:
        """Whether the run began anew with it."""
        return any(each.attributes.get(semconv.SEGMENT_RESTART) is True for each in self.spans)

    def open_seqs(self) -> frozenset[int]:
        """Numbers of the spans that had not ended when the segment was sealed."""
        return frozenset(_numbers(self.seal, semconv.SEAL_OPEN_SEQS))

    def last_seq(self) -> int | None:
        """The last number that the seal counts."""
        return integer(self.seal.attributes, semconv.SEAL_LAST_SEQ) if self.seal else None


def verify(
    record: RunRecord,
    keys: KeyRing = _NO_KEYS,
    *,
    anchors: Mapping[str, str] | None = None,
) -> RunReport:
    """Prove what can be proven of a run.

    Args:
        record: the run, from any source.
        keys: keys to check digests and signatures with.
        anchors: digests of segments that were kept elsewhere, by segment id.
    """
    segments = _segments(record.spans)
    status, reason, reports, missing = _completeness(segments)
    findings, copies = _conflicts(record)
    findings.extend(_disguised(record.spans))
    checks = {each.id: check_segment(each, keys, anchors or {}) for each in segments}
    for check in checks.values():
        findings.extend(check.findings)
    unnumbered = sum(_is_unnumbered(each) for each in record.spans)
    notes = [note for each in checks.values() for note in each.notes]
    if unnumbered and segments:
        notes.append(f"{unnumbered} spans of Clew's have no number: nothing vouches for them")
    decisions = [each for each in record.spans if each.type == "decision"]
    return RunReport(
        run_id=run_id_of(record.summary.trace_id),
        agent=record.summary.agent,
        status=status,
        integrity=_integrity(tuple(checks.values()), findings, whole=not unnumbered),
        reason=reason,
        open_since_ns=_open_since(segments) if status == "OPEN" else None,
        segments=tuple(_with_check(report, checks[report.segment_id]) for report in reports),
        missing_segments=missing,
        findings=tuple(findings),
        copies=copies + record.summary.duplicates,
        decisions=len(decisions),
        decisions_incomplete=sum(not _is_complete(each) for each in decisions),
        notes=tuple(dict.fromkeys(notes)),
    )


def absent(
    trace_id: str, ratio: float | None = None, *, erased: Mapping[str, Tombstone] | None = None
) -> RunReport:
    """Report on a run of which nothing was found.

    Args:
        trace_id: 32 hex digits.
        ratio: the share of runs that was sampled, if it is known.
        erased: tombstones, by run id.
    """
    stone = (erased or {}).get(run_id_of(trace_id))
    sampled_out = ratio is not None and not kept_at(int(trace_id, 16), ratio)
    if stone is not None:
        when = datetime.fromtimestamp(stone.time_ns // 1_000_000_000, UTC)
        reason = f"its {stone.spans} spans were erased on {when:%Y-%m-%d} ({stone.reason})"
    elif sampled_out:
        reason = "no span of it is there: it was sampled out"
    elif ratio is not None:
        reason = "no span of it is there, and it was not sampled out: if it ran, it was lost"
    else:
        reason = "no span of it is there"
    return RunReport(
        run_id=run_id_of(trace_id), status="UNKNOWN", integrity="CONSISTENT", reason=reason
    )


def _segments(spans: Iterable[SpanRecord]) -> list[Segment]:
    found: dict[str | None, Segment] = {}
    for span in spans:
        if span.seq is None or span.segment_id is None:
            continue
        segment = found.setdefault(span.segment_id, Segment(span.segment_id))
        if span.attributes.get(semconv.RUN_EVENT) == "sealed" and segment.seal is None:
            segment.seal = span
        else:
            segment.spans.append(span)
    return sorted(found.values(), key=lambda each: (each.number or 0, each.id or ""))


def _completeness(
    segments: Sequence[Segment],
) -> tuple[Completeness, str, list[SegmentReport], tuple[int, ...]]:
    reports = [_report(each) for each in segments]
    if not segments:
        return "UNKNOWN", "no span says that it belongs to a run of Clew", reports, ()
    forked = _forks(segments)
    if forked:
        return "FORKED", f"segment {forked} was continued more than once", reports, ()
    missing = _missing_segments(segments)
    lost = [each for each in reports if each.missing_seqs]
    if missing or lost:
        words = [f"segment {number} is missing" for number in missing[:_SHOWN]]
        words += ["and more"] * (len(missing) > _SHOWN)
        words += [
            f"segment {each.segment} ({each.segment_id}) lacks {_shown(each)}" for each in lost
        ]
        return "INCOMPLETE", "; ".join(words), reports, missing
    still_open = [each for each in reports if not each.sealed]
    if still_open:
        words = [f"segment {each.segment} ({each.segment_id}) is not sealed" for each in still_open]
        return "OPEN", "; ".join(words), reports, ()
    return "COMPLETE", "every span that was counted is there", reports, ()


def _shown(report: SegmentReport) -> str:
    shown = ", ".join(str(each) for each in report.missing_seqs[:_SHOWN])
    more = f" and {report.missing - _SHOWN} more" if report.missing > _SHOWN else ""
    return f"seq {shown}{more}"


def _report(segment: Segment) -> SegmentReport:
    seqs = [each.seq for each in segment.spans if each.seq is not None]
    seal, last = segment.seal, segment.last_seq()
    if seal is None or last is None:
        return SegmentReport(
            segment=segment.number, segment_id=segment.id, sealed=False, spans=len(seqs)
        )
    never = segment.open_seqs()
    there = frozenset(seqs)
    gaps = _gaps(sorted(there | never), last)
    return SegmentReport(
        segment=segment.number,
        segment_id=segment.id,
        sealed=True,
        spans=len(seqs),
        counted=integer(seal.attributes, semconv.SEAL_SPANS),
        missing=last - sum(1 <= each <= last for each in there | never),
        missing_seqs=tuple(islice(gaps, _LISTED)),
        never_ended=tuple(sorted(never - there)),
        late=sum(each > last or each in never for each in there),
    )


def _gaps(there: Sequence[int], last: int) -> Iterator[int]:
    """Give the numbers from 1 to `last` that are not there: whoever forged a seal may say many."""
    before = 0
    for seq in (*there, last + 1):
        yield from range(before + 1, min(seq, last + 1))
        before = max(before, seq)


def _with_check(report: SegmentReport, check: SegmentCheck) -> SegmentReport:
    if check.checked_by is None:
        return report
    return replace(report, checked_by=check.checked_by)


def _forks(segments: Sequence[Segment]) -> str | None:
    """Return the segment that two others continue."""
    continued: defaultdict[str, int] = defaultdict(int)
    for each in segments:
        if each.previous_id is not None:
            continued[each.previous_id] += 1
    return next((segment for segment, times in continued.items() if times > 1), None)


def _missing_segments(segments: Sequence[Segment]) -> tuple[int, ...]:
    numbers = sorted({each.number for each in segments if each.number is not None})
    return tuple(islice(_gaps(numbers, max(numbers, default=0)), _LISTED))


def _open_since(segments: Sequence[Segment]) -> int | None:
    starts = [
        min(each.start_ns for each in segment.spans)
        for segment in segments
        if segment.seal is None and segment.spans
    ]
    return min(starts, default=None)


def _conflicts(record: RunRecord) -> tuple[list[Finding], int]:
    """Tell spans that are there twice with other facts from those that are there twice."""
    findings: list[Finding] = []
    copies = 0
    known = {each.span_id: each for each in record.spans}
    for other in record.conflicts:
        first = known.get(other.span_id)
        if (
            first is not None
            and facts_of(first) == facts_of(other)
            and _digest(first) == _digest(other)
        ):
            copies += 1
            continue
        findings.append(
            Finding(
                problem="other_content",
                span_id=other.span_id,
                seq=other.seq,
                segment=other.segment,
                fields=fields_that_differ(first, other) if first is not None else (),
            )
        )
    taken: dict[tuple[str, int], SpanRecord] = {}
    for span in record.spans:
        if span.seq is None or span.segment_id is None:
            continue
        first = taken.setdefault((span.segment_id, span.seq), span)
        if first is not span:
            findings.append(
                Finding(
                    problem="same_seq", span_id=span.span_id, seq=span.seq, segment=span.segment
                )
            )
    return findings, copies


def _digest(span: SpanRecord) -> Any:
    return span.attributes.get(semconv.SPAN_DIGEST)


def _disguised(spans: Sequence[SpanRecord]) -> Iterator[Finding]:
    """Find what only Clew writes under another library's name, which no digest covers."""
    for span in spans:
        if span.type == "foreign" and not _OURS.isdisjoint(span.attributes):
            yield Finding(
                problem="wrong_scope", span_id=span.span_id, seq=span.seq, segment=span.segment
            )


def _is_unnumbered(span: SpanRecord) -> bool:
    return span.type != "foreign" and (span.seq is None or span.segment_id is None)


def _integrity(
    checks: Sequence[SegmentCheck], findings: Sequence[Finding], *, whole: bool
) -> Integrity:
    if findings:
        return "ALTERED"
    proven = whole and bool(checks) and all(each.checked_by is not None for each in checks)
    return "SIGNED" if proven else "CONSISTENT"


def _is_complete(span: SpanRecord) -> bool:
    """Tell whether a decision says all that one has to."""
    found = span.attributes
    if any(key not in found for key in _COMPLETE_DECISION):
        return False
    refuses = found[semconv.DECISION_OUTCOME] in ("deny", "require_approval")
    return not refuses or semconv.DECISION_EXECUTED in found or not found[semconv.DECISION_ENFORCED]


def _numbers(span: SpanRecord | None, key: str) -> tuple[int, ...]:
    value = span.attributes.get(key) if span is not None else None
    if isinstance(value, str):
        value = integrity.as_list(value)
    if not isinstance(value, Sequence) or isinstance(value, str):
        return ()
    entries = (str(each) for each in cast("Sequence[Any]", value))
    return tuple(
        int(each) for each in entries if each.isascii() and each.isdigit() and len(each) < _DIGITS
    )
