"""Digests of finished spans, and the chain that the seal of their segment closes.

Runs on the export thread, behind the allow-list: a digest covers what leaves, and costs the caller
nothing. Where spans leave by another provider's exporters, ours get their digest as they end.
"""

from __future__ import annotations

import functools
import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from typing import Any, Final

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import StatusCode

from clew import integrity, semconv
from clew.integrity import Key, Signer
from clew.pipeline.light import UNSET, LightSpan
from clew.semconv import RUN_EVENT, SEGMENT_ID, SEQ, SPAN_DIGEST
from clew.settings import Settings

_SEGMENTS_KEPT: Final = 4096
_SIZE: Final = 16
_ERROR: Final = StatusCode.ERROR
_NOTHING: Final = bytes(_SIZE)


class Chains:
    """Gives spans their digests, and seals theirs.

    Args:
        key: makes the digests.
        signer: signs those of segments, if somebody does.
    """

    def __init__(self, key: Key, signer: Signer | None = None) -> None:
        self._key = key
        self._signer = signer
        self._segments: OrderedDict[str, bytearray] = OrderedDict()
        self._lock = threading.Lock()

    @classmethod
    def of(cls, settings: Settings) -> Chains | None:
        """Return the chains that settings ask for.

        Raises:
            ConfigurationError: the signing key cannot be used.
            MissingExtraError: it can't because a package is missing.
        """
        if not settings.integrity:
            return None
        secret = settings.integrity_key
        path = settings.signing_key_file
        return cls(
            Key(None if secret is None else secret.get_secret_value().encode()),
            None if path is None else Signer(path),
        )

    def finished(self, span: ReadableSpan, end_ns: int, failed: bool) -> dict[str, Any]:
        """Return the attributes to set on a span of ours that is about to end.

        Args:
            span: the span, with all its other attributes.
            end_ns: when it ends (ns since the epoch).
            failed: whether its status is error.
        """
        before = span.attributes or {}
        after = dict(before)
        self.add(span, after, (end_ns, failed))
        return {key: value for key, value in after.items() if before.get(key) != value}

    def add(
        self,
        span: ReadableSpan,
        attributes: dict[str, Any],
        ending: tuple[int, bool] | None = None,
    ) -> None:
        """Add the digest to the attributes of a span of a run; of a seal, also the segment's.

        Args:
            span: the span.
            attributes: what leaves of its attributes.
            ending: when it ends and whether it failed, of a span that has not ended yet.
        """
        segment_id, seq = attributes.get(SEGMENT_ID), attributes.get(SEQ)
        if segment_id is None or seq is None:
            return
        attributes.pop(SPAN_DIGEST, None)
        if attributes.get(RUN_EVENT) == "sealed":
            self._seal(span, segment_id, attributes, ending)
            return
        key = self._key
        digest = key.of(_facts(span, attributes, ending))
        attributes[SPAN_DIGEST] = key.written(digest)
        self._keep(segment_id, seq, digest)

    def _keep(self, segment_id: str, seq: int, digest: bytes) -> None:
        with self._lock:
            kept = self._segments.get(segment_id)
            if kept is None:
                kept = self._segments[segment_id] = bytearray()
                if len(self._segments) > _SEGMENTS_KEPT:
                    self._segments.popitem(last=False)
            begin = (seq - 1) * _SIZE
            if len(kept) == begin:  # as a rule they come in order
                kept += digest
                return
            if len(kept) < begin:
                kept.extend(bytes(begin - len(kept)))
            kept[begin : begin + _SIZE] = digest

    def _seal(
        self,
        span: ReadableSpan,
        segment_id: str,
        attributes: dict[str, Any],
        ending: tuple[int, bool] | None,
    ) -> None:
        with self._lock:
            kept = self._segments.pop(segment_id, bytearray())
        for key in (semconv.SEGMENT_DIGEST, semconv.SEAL_SIGNATURE, semconv.SEAL_SIGNATURE_KEY_ID):
            attributes.pop(key, None)
        if self._key.id is not None:
            attributes[semconv.DIGEST_KEY_ID] = self._key.id
        facts = _facts(span, attributes, ending)
        data = integrity.seal_data(facts, _counted(kept, attributes))
        digest = self._key.of(data)
        attributes[semconv.SEGMENT_DIGEST] = self._key.written(digest)
        if self._signer is not None:
            attributes[semconv.SEAL_SIGNATURE] = self._signer.sign(digest)
            attributes[semconv.SEAL_SIGNATURE_KEY_ID] = self._signer.id

    def clear(self) -> None:
        """Forget everything (in a forked child: the segments belong to the parent)."""
        self._lock = threading.Lock()
        self._segments.clear()


def _facts(
    span: ReadableSpan, attributes: Mapping[str, Any], ending: tuple[int, bool] | None
) -> bytes:
    if type(span) is LightSpan:
        trace_id, span_id, parent = span.trace_part().trace_id, span.span_id, span._parent
        start, end, status = span._start_time or 0, span._end_time, span._status
        failed = status is not UNSET and status.status_code is _ERROR
    else:
        ids, parent = span.context, span.parent
        assert ids is not None  # noqa: S101 - a finished span has its ids
        trace_id, span_id = ids.trace_id, ids.span_id
        start, end = span.start_time or 0, span.end_time
        failed = span.status.status_code is _ERROR
    if ending is not None:
        end, failed = ending
    return integrity.encode(
        _hex_128(trace_id),
        f"{span_id:016x}",
        None if parent is None else f"{parent.span_id:016x}",
        (start, end or start),
        failed,
        attributes,
    )


@functools.lru_cache(maxsize=64)
def _hex_128(trace_id: int) -> str:
    return f"{trace_id:032x}"


def _counted(kept: bytearray, seal: Mapping[str, Any]) -> Iterator[tuple[int, bytes]]:
    """Give the digests that a seal counts: those of spans that had ended by then."""
    still_open = frozenset(seal.get(semconv.SEAL_OPEN_SEQS, ()))
    last = seal.get(semconv.SEAL_LAST_SEQ, 0)
    for seq in range(1, min(last, len(kept) // _SIZE) + 1):
        digest = bytes(kept[(seq - 1) * _SIZE : seq * _SIZE])
        if digest != _NOTHING and seq not in still_open:
            yield seq, digest
