"""What `clew verify` says of a run."""

from __future__ import annotations

from typing import Final, Literal

from msgspec import Struct

Completeness = Literal["COMPLETE", "INCOMPLETE", "OPEN", "FORKED", "UNKNOWN"]
"""`COMPLETE`: every span that the seals count is there. `INCOMPLETE`: some are not. `OPEN`: a
segment has started and is not sealed. `FORKED`: two segments continue the same one. `UNKNOWN`:
nothing in the trace tells."""

Integrity = Literal["SIGNED", "CONSISTENT", "ALTERED"]
"""`SIGNED`: checked with a key or an anchor. `CONSISTENT`: nothing contradicts, which whoever
rewrites all of it can bring about too. `ALTERED`: something contradicts."""

EXIT_CODES: Final = {"proven": 0, "contradicted": 1, "undecided": 3}
"""Exit codes of `clew verify`: every run is complete and none altered; at least one is not; else
at least one is open or unknown."""


class Finding(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Something wrong with one span."""

    problem: Literal[
        "digest_mismatch", "no_digest", "other_content", "same_seq", "chain_mismatch",
        "bad_signature", "wrong_scope",
    ]  # fmt: skip
    span_id: str | None = None
    seq: int | None = None
    segment: int | None = None
    fields: tuple[str, ...] = ()
    """Facts that differ, where there is a second copy to compare with."""


class SegmentReport(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the spans of one segment prove."""

    segment: int | None
    segment_id: str | None
    sealed: bool
    spans: int
    """Spans that are there, the seal left out."""
    counted: int | None = None
    """Spans that the seal counts."""
    missing: int = 0
    """Spans that ended and are not there."""
    missing_seqs: tuple[int, ...] = ()
    """Their sequence numbers, the first ten thousand."""
    never_ended: tuple[int, ...] = ()
    """Sequence numbers of spans that had not ended when the segment was sealed."""
    late: int = 0
    """Spans that were not counted because they ended or began after the seal."""
    checked_by: str | None = None
    """What vouches for the segment: `key <id>`, `signature <id>` or `anchor`."""


class Begun(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the journal has, and of which there is no span."""

    kind: Literal["tool", "decision"]
    name: str
    """Of the tool, or of the gate."""
    time_ns: int
    """When it was about to happen (ns since 1970)."""
    span_id: str
    segment_id: str | None = None
    seq: int | None = None


class RunReport(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is proven of one run."""

    run_id: str
    agent: str | None = None
    status: Completeness
    integrity: Integrity
    reason: str = ""
    """In plain words, why the status is what it is."""
    open_since_ns: int | None = None
    """When the open segment started (ns since 1970)."""
    segments: tuple[SegmentReport, ...] = ()
    missing_segments: tuple[int, ...] = ()
    findings: tuple[Finding, ...] = ()
    copies: int = 0
    """Identical copies of spans that are there more than once."""
    decisions: int = 0
    decisions_incomplete: int = 0
    """Decisions that lack what a record of one has to say."""
    begun: tuple[Begun, ...] = ()
    """What the journal says was about to happen, and of which there is no span."""
    notes: tuple[str, ...] = ()


def outcome(reports: tuple[RunReport, ...], *, signed: bool = False) -> str:
    """Return the key of `EXIT_CODES` for several runs together.

    Args:
        reports: what is said of each.
        signed: whether a run of which there are spans has to be `SIGNED`.
    """
    if any(
        each.integrity == "ALTERED"
        or each.status in ("INCOMPLETE", "FORKED")
        or (signed and each.integrity != "SIGNED" and bool(each.segments))
        for each in reports
    ):
        return "contradicted"
    return "proven" if all(each.status == "COMPLETE" for each in reports) else "undecided"
