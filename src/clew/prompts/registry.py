"""The segmented prompts of this process, so that the tap knows them again on the wire.

Kept is a keyed digest of each text and its blocks, never the text: a prompt that the application
itself still holds is compared with, where that saves making a digest. The key of the look-up is
this process's own: prompts are made before Clew is configured, too. What leaves the process is made
with the configured key, once for each prompt, when it is first seen on the wire.
"""

from __future__ import annotations

import hmac
import os
import threading
import weakref
from collections import Counter, OrderedDict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from clew import semconv
from clew._forks import new_in_each_child
from clew.digests import Digests

if TYPE_CHECKING:
    from clew.prompts.blocks import Block

MOST_PROMPTS: Final = 4096
"""Prompts that are known; of more, those not made or seen for longest are forgotten."""
MOST_BLOCKS: Final = 65_536
"""Blocks of all of them together."""


class Known:
    """A registered prompt: its blocks, and the attributes of rounds that it was sent with."""

    __slots__ = ("_attributes", "_key_id", "blocks", "digest", "size")

    def __init__(self, blocks: tuple[Block, ...], size: int, digest: bytes) -> None:
        self.blocks = blocks
        self.size = size
        """UTF-8 bytes of the text."""
        self.digest = digest
        """The look-up's digest of the text."""
        self._key_id: str | None = None
        self._attributes: Mapping[str, Any] = {}

    def attributes(self, data: bytes, digests: Digests) -> Mapping[str, Any]:
        """Return the block map as attributes; they obey their rules.

        Args:
            data: the prompt's UTF-8, whose digest has found this prompt.
            digests: made with the configured key.
        """
        if self._key_id != digests.key_id:
            self._attributes = block_map(self.blocks, data, digests)
            self._key_id = digests.key_id
        return self._attributes

    def made(self, digests: Digests) -> Mapping[str, Any] | None:
        """Return the block map as attributes, where it has been made with these digests."""
        return self._attributes if self._key_id == digests.key_id else None


known: OrderedDict[bytes, Known] = OrderedDict()
"""Registered prompts by the look-up's digest, those not made or seen for longest first. Empty:
there is nothing to look for, and this is the one thing that the tap asks then, without the lock; so
no prompt is taken out to be put in again."""

_held: dict[tuple[int, int, int], tuple[weakref.ref[str], Known]] = {}
"""Prompts that the application holds, by their length and their ends; of several, the last."""
_ENDS: Final = 64

_sizes: Counter[int] = Counter()
"""How many prompts of each size are known: a text of another size need not be hashed."""
_blocks = 0
"""How many blocks they have together."""
_key = os.urandom(32)
_lock = threading.Lock()
new_in_each_child(globals(), "_lock", threading.Lock)


def register(data: bytes, blocks: tuple[Block, ...], text: str | None = None) -> None:
    """Make a prompt known.

    Args:
        data: its UTF-8.
        blocks: its blocks, which tile it.
        text: the prompt itself, of a type that can be referred to weakly.
    """
    global _blocks  # noqa: PLW0603
    digest = hmac.digest(_key, data, "sha256")
    with _lock:
        found = known.get(digest)
        if found is None:
            _sizes[len(data)] += 1
            _blocks += len(blocks)
        if found is None or found.blocks != blocks:
            _blocks += 0 if found is None else len(blocks) - len(found.blocks)
            found = known[digest] = Known(blocks, len(data), digest)
        known.move_to_end(digest)
        while len(known) > MOST_PROMPTS or (_blocks > MOST_BLOCKS and len(known) > 1):
            _, oldest = known.popitem(last=False)
            _blocks -= len(oldest.blocks)
            _sizes[oldest.size] -= 1
            if not _sizes[oldest.size]:
                del _sizes[oldest.size]
    if text is not None:
        _hold(text, found)


def _hold(text: str, found: Known) -> None:
    key = _ends(text)

    def let_go(reference: weakref.ref[str]) -> None:
        held = _held.get(key)
        if held is not None and held[0] is reference:
            _held.pop(key, None)

    _held[key] = (weakref.ref(text, let_go), found)


def _ends(text: str) -> tuple[int, int, int]:
    return len(text), hash(text[:_ENDS]), hash(text[-_ENDS:])


def find_held(text: str) -> Known | None:
    """Return the registered prompt of exactly this text, where the application holds one."""
    held = _held.get(_ends(text))
    if held is None or held[0]() != text:
        return None
    found = held[1]
    with _lock:
        if known.get(found.digest) is not found:
            return None
        known.move_to_end(found.digest)
    return found


def find(data: bytes) -> Known | None:
    """Return the registered prompt of exactly this UTF-8."""
    if len(data) not in _sizes:
        return None
    digest = hmac.digest(_key, data, "sha256")
    with _lock:
        found = known.get(digest)
        if found is not None:
            known.move_to_end(digest)
    return found


def forget() -> None:
    """Forget every prompt."""
    global _blocks  # noqa: PLW0603
    with _lock:
        _blocks = 0
        known.clear()
        _sizes.clear()
        _held.clear()


def block_map(blocks: Sequence[Block], data: bytes, digests: Digests) -> dict[str, Any]:
    """Return the attributes of a round whose system text is known, block by block."""
    attributes = whole(data, digests, mapped=True)
    if len(blocks) > semconv.MOST_PROMPT_BLOCKS:
        attributes[semconv.PROMPT_MAPPED] = False
        return attributes
    columns: dict[str, list[Any]] = {
        semconv.PROMPT_BLOCK_IDS: [block.id for block in blocks],
        semconv.PROMPT_BLOCK_LAYERS: [block.layer for block in blocks],
        semconv.PROMPT_BLOCK_STABILITIES: [block.stability for block in blocks],
        semconv.PROMPT_BLOCK_SOURCES: [block.source for block in blocks],
        semconv.PROMPT_BLOCK_BYTES: [block.bytes for block in blocks],
        semconv.PROMPT_BLOCK_DIGESTS: [digests.of(data[b.start : b.end]) for b in blocks],
    }
    # Of each array a rule keeps all entries (what does not fit is filled in), or this is no map.
    attributes.update({key: semconv.RULES[key].apply(column) for key, column in columns.items()})
    return attributes


def whole(data: bytes, digests: Digests, *, mapped: bool) -> dict[str, Any]:
    """Return the attributes that say what a system text is as a whole."""
    return {
        semconv.PROMPT_MAPPED: mapped,
        semconv.PROMPT_DIGEST: digests.of(data),
        semconv.PROMPT_BYTES: len(data),
        semconv.DIGEST_KEY_ID: digests.key_id,
    }
