"""Blocks: named stretches of an assembled prompt, which tile its UTF-8 bytes exactly.

A `Block` says who put a stretch of the prompt there, how stable it is and how big. A list of blocks
is a map of a text only if it tiles it: `tiles` is the one test, and what does not pass it is no
map. Names that a reader does not know (written by a newer Clew, or by somebody else) are kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

from msgspec import Struct
from msgspec.structs import replace

from clew import semconv

Layer = Literal["identity", "contract", "capabilities", "knowledge", "working", "runtime"]
Stability = Literal["static", "epoch", "volatile"]
BlockSource = Literal["template", "file", "store", "synthesis", "live_state", "config"]

LAYERS: Final[tuple[str, ...]] = semconv.PROMPT_LAYERS
"""What a block is for, in the order in which prompts have them."""

STABILITIES: Final[tuple[str, ...]] = semconv.PROMPT_STABILITIES
"""`static` is the same every turn, `epoch` changes on a named event, `volatile` at any time."""

SOURCES: Final[tuple[str, ...]] = semconv.PROMPT_SOURCES
"""Where the text of a block came from."""

_BYTES_PER_TOKEN: Final = 4


class Block(Struct, frozen=True, kw_only=True, gc=False):
    """One named stretch of a prompt."""

    id: str
    layer: str
    """One of `LAYERS`; a reader takes any text."""
    stability: str
    """One of `STABILITIES`; a reader takes any text."""
    source: str
    """One of `SOURCES`; a reader takes any text."""
    start: int
    """Offset of the first byte in the prompt's UTF-8."""
    end: int
    """Offset behind the last byte."""
    chars: int
    """Length in code points."""

    @property
    def bytes(self) -> int:
        """Length in UTF-8 bytes."""
        return self.end - self.start

    @property
    def tokens(self) -> int:
        """An estimate: a token for every four bytes, rounded up."""
        return -(-self.bytes // _BYTES_PER_TOKEN)

    def moved(self, by: int) -> Block:
        """Return this block `by` bytes further on."""
        return replace(self, start=self.start + by, end=self.end + by) if by else self


def tiles(blocks: Sequence[Block], size: int) -> bool:
    """Tell whether blocks cover `size` bytes: from 0, without gap, overlap, empty block or rest."""
    at = 0
    for block in blocks:
        if block.start != at or block.end <= at:
            return False
        at = block.end
    return bool(blocks) and at == size


def fits(blocks: Sequence[Block], data: bytes) -> bool:
    """Tell whether blocks are a map of a text's UTF-8: they tile it, between whole characters."""
    if not tiles(blocks, len(data)):
        return False
    try:
        return all(len(data[b.start : b.end].decode()) == b.chars for b in blocks)
    except UnicodeDecodeError:
        return False


UNREADABLE: Final = "\N{REPLACEMENT CHARACTER}"
"""Stands for the text of a block whose range is none of the text's."""


def text_of(block: Block, data: bytes) -> str:
    """Return the text of a block of a prompt, from the prompt's UTF-8.

    A range that is past the end or cuts a character gives `UNREADABLE`: ranges are read from files
    that somebody else may have written.
    """
    if not 0 <= block.start <= block.end <= len(data):
        return UNREADABLE
    try:
        return data[block.start : block.end].decode()
    except UnicodeDecodeError:
        return UNREADABLE
