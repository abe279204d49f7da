"""Content as it may be kept at a level: media replaced, and secrets masked unless it is `full`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, overload

import msgspec
from msgspec.structs import replace

from clew import levels
from clew.content import writing
from clew.prompts.blocks import tiles
from clew.redaction import FAILED, Redactor
from clew.store.prompt_records import RecordedBlock

_WHOLE: Final = 40_000
"""Characters of a prompt that is looked at as a whole, too, so that no secret hides in a seam."""
_UNLIMITED: Final = 1 << 62


class Masks:
    """Makes content fit for one level.

    Args:
        level: `levels.REDACTED` or `levels.FULL`.
        digest: makes the keyed digest of media.
    """

    def __init__(self, level: int, digest: Callable[[bytes], str]) -> None:
        self._digest = digest
        self._redactor = None if level >= levels.FULL else Redactor()

    @overload
    def text(self, text: str) -> str: ...
    @overload
    def text(self, text: str | None) -> str | None: ...
    def text(self, text: str | None) -> str | None:
        """Return a text; at `redacted` with secrets masked, and capped."""
        if text is None:
            return None
        whole = writing.exact(text)
        return whole if self._redactor is None else self._redactor.text(whole)

    def value(self, value: Any) -> Any:
        """Return a JSON value; None where it cannot be serialised."""
        if value is None:
            return None
        try:
            kept = writing.plain(value, self._digest)
            if self._redactor is not None:
                kept = self._redactor.redact(kept)
            msgspec.json.encode(kept)
        except Exception:
            return None
        return kept

    def system(
        self, text: str | None, blocks: Sequence[RecordedBlock]
    ) -> tuple[str | None, tuple[RecordedBlock, ...]]:
        """Return a system prompt and its map, whose offsets are into the text that is returned.

        Masked, a prompt is masked block by block. Where that does not find what a look at the
        whole finds, or the prompt is too long for one, the text is masked as a whole and has no
        map.
        """
        if text is None:
            return None, ()
        whole = writing.exact(text)
        if self._redactor is None:
            return whole, tuple(blocks) if whole == text else ()
        if not blocks or len(whole) > _WHOLE or whole != text:
            return self._redactor.text(whole), ()
        data = whole.encode()
        pieces = [data[block.start : block.end].decode() for block in blocks]
        thorough = Redactor(text_limit=_UNLIMITED)
        seen = thorough.text(whole)
        if seen == FAILED or "".join(thorough.text(piece) for piece in pieces) != seen:
            return self._redactor.text(whole), ()
        return _tiled([self._redactor.text(piece) for piece in pieces], blocks)


def _tiled(
    pieces: list[str], blocks: Sequence[RecordedBlock]
) -> tuple[str, tuple[RecordedBlock, ...]]:
    placed: list[RecordedBlock] = []
    at = 0
    for piece, block in zip(pieces, blocks, strict=True):
        end = at + len(piece.encode())
        placed.append(replace(block, start=at, end=end))
        at = end
    text = "".join(pieces)
    return text, tuple(placed) if tiles(placed, at) else ()
