"""Checks the digests of a segment's spans, and of the segment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from clew import integrity, semconv
from clew.audit.keys import KeyRing
from clew.audit.report import Finding
from clew.integrity import Key
from clew.store.records import SpanRecord, text

if TYPE_CHECKING:
    from clew.audit.verify import Segment

_PLAIN: Final = Key()


class SegmentCheck(Struct, frozen=True, kw_only=True):
    """What the digests of one segment say."""

    findings: tuple[Finding, ...] = ()
    checked_by: str | None = None
    notes: tuple[str, ...] = ()


def facts_of(span: SpanRecord) -> bytes:
    """Return the covered facts of a span that was read back, encoded."""
    return integrity.encode(
        span.trace_id,
        span.span_id,
        span.parent_id,
        (span.start_ns, span.end_ns),
        span.status == 2,
        span.attributes,
    )


def fields_that_differ(one: SpanRecord, other: SpanRecord) -> tuple[str, ...]:
    """Return which covered facts of two copies of a span differ."""
    differing: list[str] = []
    for name, values in (
        ("parent_id", (one.parent_id, other.parent_id)),
        ("start", (one.start_ns // 1000, other.start_ns // 1000)),
        (
            "duration",
            ((one.end_ns - one.start_ns) // 1000, (other.end_ns - other.start_ns) // 1000),
        ),
        ("failed", (one.status == 2, other.status == 2)),
        *((key, (one.attributes.get(key), other.attributes.get(key))) for key in integrity.COVERED),
    ):
        if values[0] != values[1]:
            differing.append(name)
    if not differing and _digest_text(one) != _digest_text(other):
        differing.append(semconv.SPAN_DIGEST)
    return tuple(differing)


def check_segment(segment: Segment, keys: KeyRing, anchors: Mapping[str, str]) -> SegmentCheck:
    """Recompute what can be recomputed.

    Digests made with a key that is not at hand say nothing, and a note says so.
    """
    notes: list[str] = []
    found = {each.span_id: integrity.read(_digest_text(each)) for each in segment.spans}
    if not any(found.values()):
        sealed = segment.seal is not None and _segment_digest(segment.seal) is not None
        if not sealed:
            return SegmentCheck(notes=("spans carry no digests",))
    key = _key_of(segment, keys, notes)
    findings: list[Finding] = []
    for span in segment.spans:
        digest = found[span.span_id]
        if digest is None:
            findings.append(_finding("no_digest", span))
        elif key is not None and (
            digest[0] != (key.id is not None) or key.of(facts_of(span)) != digest[1]
        ):
            findings.append(_finding("digest_mismatch", span))
    excused = _foreign_exporters(segment, found)
    if excused:
        # Other libraries' spans get no digest where they leave by another provider's exporters.
        findings = [each for each in findings if each.problem != "no_digest"]
    checked_by = None
    if segment.seal is not None:
        more, checked_by = _check_seal(segment, key, keys, anchors, notes)
        findings.extend(more)
        if key is _PLAIN and checked_by is not None and _late(segment):
            notes.append("spans came after the seal, and nothing vouches for them")
            checked_by = None
    elif key is not None and key.id is not None and not excused:
        # Until the seal is there, a span without a digest may be one that has lost it.
        checked_by = f"key {key.id}"
    if key is _PLAIN and keys.keys and checked_by is None:
        notes.append("keys are at hand, and the digests were made without one")
    return SegmentCheck(
        findings=tuple(findings),
        checked_by=None if findings else checked_by,
        notes=tuple(notes),
    )


def _late(segment: Segment) -> bool:
    """Tell whether there are spans that the seal does not count."""
    last, never = segment.last_seq() or 0, segment.open_seqs()
    return any(each.seq is not None and (each.seq > last or each.seq in never)
               for each in segment.spans)  # fmt: skip


def _foreign_exporters(segment: Segment, found: Mapping[str, Any]) -> bool:
    without = [each for each in segment.spans if found[each.span_id] is None]
    return bool(without) and all(each.type == "foreign" for each in without)


def _key_of(segment: Segment, keys: KeyRing, notes: list[str]) -> Key | None:
    """Return the key that the digests of a segment were made with; None: it is not at hand."""
    kinds = [integrity.read(_digest_text(each)) for each in segment.spans]
    if segment.seal is not None:
        kinds.append(integrity.read(_segment_digest(segment.seal)))
    keyed = [each for each in kinds if each is not None and each[0]]
    if not keyed:
        return _PLAIN
    key_id = text(segment.seal.attributes, semconv.DIGEST_KEY_ID) if segment.seal else None
    key = keys.key(key_id)
    if key is not None:
        return key
    if key_id is None:
        for each in keys.keys.values():
            if any(_verifies(each, span) for span in segment.spans):
                return each
    which = f"key {key_id}" if key_id else "a key that is not among those given"
    notes.append(f"digests were made with {which}: they cannot be compared without it")
    return None


def _verifies(key: Key, span: SpanRecord) -> bool:
    digest = integrity.read(_digest_text(span))
    return digest is not None and digest[0] and key.of(facts_of(span)) == digest[1]


def _check_seal(
    segment: Segment, key: Key | None, keys: KeyRing, anchors: Mapping[str, str], notes: list[str]
) -> tuple[list[Finding], str | None]:
    seal = segment.seal
    assert seal is not None  # noqa: S101 - the caller has looked
    written = _segment_digest(seal)
    digest = integrity.read(written)
    if digest is None:
        return [_finding("no_digest", seal)], None
    vouched = _vouched(seal, written, digest[1], keys, anchors, notes)
    if isinstance(vouched, Finding):
        return [vouched], None
    if key is None:
        return [], None
    expected = _chained(segment)
    if expected is None:
        notes.append("a span is missing, so the chain of its segment cannot be checked")
        return [], None
    if key.of(integrity.seal_data(facts_of(seal), expected)) != digest[1]:
        return [_finding("chain_mismatch", seal)], None
    return [], f"key {key.id}" if key.id is not None else vouched


def _vouched(
    seal: SpanRecord,
    written: str | None,
    digest: bytes,
    keys: KeyRing,
    anchors: Mapping[str, str],
    notes: list[str],
) -> str | Finding | None:
    """Return what vouches for the digest of a segment, or what contradicts it."""
    anchored = anchors.get(seal.segment_id or "")
    if anchored is not None and anchored != written:
        return _finding("chain_mismatch", seal)
    signature = text(seal.attributes, semconv.SEAL_SIGNATURE)
    key_id = text(seal.attributes, semconv.SEAL_SIGNATURE_KEY_ID)
    if signature is not None and key_id is not None:
        key = keys.signatures.get(key_id)
        if key is None:
            notes.append(f"the seal is signed with key {key_id}, which is not at hand")
        elif not key.verifies(signature, digest):
            return _finding("bad_signature", seal)
        else:
            return f"signature {key_id}"
    return "anchor" if anchored is not None else None


def _chained(segment: Segment) -> list[tuple[int, bytes]] | None:
    """Return the digests that the seal counts, in order; None where a span is not there."""
    last, never = segment.last_seq(), segment.open_seqs()
    if last is None:
        return None
    by_seq = {each.seq: each for each in segment.spans}
    if last > len(by_seq) + len(never):
        return None
    chained: list[tuple[int, bytes]] = []
    for seq in range(1, last + 1):
        if seq in never:
            continue
        span = by_seq.get(seq)
        if span is None:
            return None
        digest = integrity.read(_digest_text(span))
        if digest is not None:
            chained.append((seq, digest[1]))
    return chained


def _finding(problem: Any, span: SpanRecord) -> Finding:
    return Finding(problem=problem, span_id=span.span_id, seq=span.seq, segment=span.segment)


def _digest_text(span: SpanRecord) -> str | None:
    return text(span.attributes, semconv.SPAN_DIGEST)


def _segment_digest(seal: SpanRecord) -> str | None:
    return text(seal.attributes, semconv.SEGMENT_DIGEST)


def names(findings: Sequence[Finding]) -> tuple[str, ...]:
    """Return the ids of the spans that findings are about."""
    return tuple(dict.fromkeys(each.span_id for each in findings if each.span_id is not None))
