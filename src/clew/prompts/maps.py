"""`BlockMap`: what is known of one system text without the text: ids, sizes and keyed digests.

It is read from the attributes of a round, or made of a prompt that is at hand; what compares
prompts works on these, so that it works with capture off.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar, cast

from msgspec import Struct

from clew import semconv
from clew.digests import Digests
from clew.prompts.blocks import Block, fits

T = TypeVar("T")


class BlockMap(Struct, frozen=True, kw_only=True):
    """One system text. The tuples are parallel, one entry for each block, or all are empty."""

    ids: tuple[str, ...] = ()
    layers: tuple[str, ...] = ()
    stabilities: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    sizes: tuple[int, ...] = ()
    """UTF-8 bytes of each block."""
    digests: tuple[str, ...] = ()
    """Keyed digest of each block's UTF-8."""
    size: int | None = None
    """UTF-8 bytes of the whole text."""
    digest: str | None = None
    """Keyed digest of the whole text's UTF-8."""
    key_id: str | None = None
    """Which key the digests were made with."""

    @property
    def mapped(self) -> bool:
        """Whether the blocks are known."""
        return bool(self.ids)


def of_attributes(attributes: Mapping[str, Any]) -> BlockMap | None:
    """Read a round's attributes; None where they say nothing about a system text.

    Arrays that are not parallel, or whose sizes do not add up to the whole, are no map: what
    remains is the text as a whole. Words that are not known are kept.
    """
    size, digest = attributes.get(semconv.PROMPT_BYTES), attributes.get(semconv.PROMPT_DIGEST)
    key_id = attributes.get(semconv.DIGEST_KEY_ID)
    whole = BlockMap(
        size=size if type(size) is int else None,
        digest=digest if isinstance(digest, str) else None,
        key_id=key_id if isinstance(key_id, str) else None,
    )
    ids, layers, stabilities, sources = (
        _entries(attributes.get(key), str) for key in semconv.PROMPT_BLOCKS[:4]
    )
    sizes = _entries(attributes.get(semconv.PROMPT_BLOCK_BYTES), int)
    digests = _entries(attributes.get(semconv.PROMPT_BLOCK_DIGESTS), str)
    columns = (ids, layers, stabilities, sources, sizes, digests)
    if attributes.get(semconv.PROMPT_MAPPED) is not True or len(set(map(len, columns))) != 1:
        return None if whole.digest is None and whole.size is None else whole
    if not ids or (whole.size is not None and sum(sizes) != whole.size):
        return None if whole.digest is None and whole.size is None else whole
    return BlockMap(
        ids=ids,
        layers=layers,
        stabilities=stabilities,
        sources=sources,
        sizes=sizes,
        digests=digests,
        size=sum(sizes),
        digest=whole.digest,
        key_id=whole.key_id,
    )


def of_text(text: str | bytes, blocks: Sequence[Block], digests: Digests) -> BlockMap:
    """Make the map of a text that is at hand; blocks that do not tile it are left out."""
    data = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    kept = tuple(blocks) if fits(blocks, data) else ()
    return BlockMap(
        ids=tuple([block.id for block in kept]),
        layers=tuple([block.layer for block in kept]),
        stabilities=tuple([block.stability for block in kept]),
        sources=tuple([block.source for block in kept]),
        sizes=tuple([block.bytes for block in kept]),
        digests=tuple([digests.of(data[block.start : block.end]) for block in kept]),
        size=len(data),
        digest=digests.of(data),
        key_id=digests.key_id,
    )


def _entries(value: Any, kind: type[T]) -> tuple[T, ...]:
    """Return a sequence's entries if all are of a kind."""
    if not isinstance(value, (list, tuple)):
        return ()
    entries = cast("Sequence[Any]", value)
    return tuple(entries) if all(type(entry) is kind for entry in entries) else ()
