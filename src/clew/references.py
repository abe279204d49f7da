"""Run references: a small text that lets another process continue a run.

    clew1~<traceparent>~<segment>~<segment id>~<rounds>~<totals>~<agent>

The version may go on with a letter for the capture level that the run asked for (n, m, r or f),
and a digit for the strictest class of data that went into its prompts (0: `public_content`).
The first field after the version is a W3C traceparent (https://www.w3.org/TR/trace-context/),
the totals are those of `Totals.to_fields`. A reference holds no content and no secret.
"""

from __future__ import annotations

import re
import uuid

from msgspec import Struct

from clew.errors import RunReferenceError
from clew.pipeline.totals import Totals
from clew.semconv import COST_STATUSES
from clew.typing import DATA_CLASSES

_VERSION = "clew1"
_LEVELS = "nmrf"
_VERSIONS = re.compile(rf"{_VERSION}([{_LEVELS}]?)([0-{len(DATA_CLASSES) - 1}]?)")
_TRACEPARENT = re.compile(r"00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")
_SEGMENT_ID = re.compile(r"[0-9a-f]{16}")


class Reference(Struct, frozen=True, kw_only=True):
    """What a run reference says."""

    run_id: uuid.UUID
    span_id: int
    flags: int
    segment: int
    segment_id: str
    rounds: int
    totals: Totals
    agent: str
    capture: int | None = None
    """The capture level that was asked for; None: none was."""
    data_class: str | None = None
    """The strictest class of what went into the prompts; None: nothing was declared."""

    def __str__(self) -> str:
        traceparent = f"00-{self.run_id.int:032x}-{self.span_id:016x}-{self.flags:02x}"
        level = "" if self.capture is None else _LEVELS[self.capture]
        strictest = "" if self.data_class is None else str(DATA_CLASSES.index(self.data_class))
        return "~".join(
            (
                _VERSION + level + strictest,
                traceparent,
                str(self.segment),
                self.segment_id,
                str(self.rounds),
                self.totals.to_fields(),
                self.agent,
            )
        )

    @classmethod
    def parse(cls, text: str) -> Reference:
        """Read a reference.

        Raises:
            RunReferenceError: the text is not one.
        """
        try:
            version, traceparent, segment, segment_id, rounds, totals, agent = text.split("~", 6)
            match = _TRACEPARENT.fullmatch(traceparent)
            known = _VERSIONS.fullmatch(version)
            if known is None or match is None or not _SEGMENT_ID.fullmatch(segment_id):
                raise ValueError("not a run reference")
            run_id = uuid.UUID(hex=match[1])
            if not (segment.isdigit() and rounds.isdigit() and run_id.int):
                raise ValueError("a counter is not a number, or the run id is nil")
            return cls(
                run_id=run_id,
                span_id=int(match[2], 16),
                flags=int(match[3], 16),
                segment=int(segment),
                segment_id=segment_id,
                rounds=int(rounds),
                totals=Totals.from_fields(totals, COST_STATUSES),
                agent=agent,
                capture=_LEVELS.index(known[1]) if known[1] else None,
                data_class=DATA_CLASSES[int(known[2])] if known[2] else None,
            )
        except (ValueError, AttributeError):
            shown = text if isinstance(text, str) and len(text) <= 80 else f"{str(text)[:77]}..."
            raise RunReferenceError(
                f"{shown!r} is not a run reference; give the text that run.reference() returned"
            ) from None
