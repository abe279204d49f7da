"""What changed between two system texts, block by block, without either text.

Blocks are aligned by their ids along a longest common subsequence; where an id comes several times,
the occurrence with the same text is preferred, then the one of the same number. So a block that
was inserted is one addition, and nothing behind it counts as moved.

Digests of different keys say nothing about each other: then only sizes can tell that something
changed, and otherwise the answer is that it is not known.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from clew.prompts.maps import BlockMap

What = Literal["changed", "added", "removed", "reordered", "unknown"]
Outcome = Literal["identical", "changed", "not_comparable"]
_MATCH = 4
_SAME_TEXT = 2
_SAME_NUMBER = 1


class BlockChange(Struct, frozen=True, kw_only=True):
    """What became of one block."""

    id: str
    occurrence: int
    """From 1: which of the blocks of this id, in the later text (in the earlier, if removed)."""
    what: What
    """`unknown`: it is in both at its place, and nothing tells whether its text is the same."""
    before: int | None = None
    """Its place in the earlier text, from 0; None: it was not there."""
    after: int | None = None
    """Its place in the later text."""
    bytes_before: int | None = None
    bytes_after: int | None = None
    changed: bool | None = None
    """Whether its text changed, where it is in both (a block may also be reordered); None: not
    known."""


class Comparison(Struct, frozen=True, kw_only=True):
    """The difference between two system texts."""

    outcome: Outcome
    basis: Literal["blocks", "whole"]
    """`whole` where a side has no map: then there are no changes by block."""
    changes: tuple[BlockChange, ...] = ()
    """In the order of the later text; what was removed stands before what took its place."""
    bytes_before: int | None = None
    bytes_after: int | None = None


class CacheBreak(Struct, frozen=True, kw_only=True):
    """Where a text stops being the one that was sent before, as a prompt cache sees it."""

    outcome: Outcome
    what: What | Literal["whole"] | None = None
    """What happened there; `whole` where a side has no map. None: nothing, or not known."""
    id: str | None = None
    """The block, in the later text (in the earlier, if it was removed)."""
    index: int | None = None
    """How many blocks at the beginning are unchanged."""
    kept_bytes: int | None = None
    """Their bytes: as far as this text goes, what a cache can still serve."""
    lost_bytes: int | None = None
    """The bytes of the later text behind them."""


def compare(before: BlockMap, after: BlockMap) -> Comparison:
    """Compare two system texts: by block where both have a map, else as a whole."""
    if not (before.mapped and after.mapped):
        return Comparison(
            outcome=_whole(before, after),
            basis="whole",
            bytes_before=before.size,
            bytes_after=after.size,
        )
    changes = tuple(_changes(before, after))
    if any(change.what != "unknown" for change in changes):
        outcome: Outcome = "changed"
    else:
        outcome = "not_comparable" if changes else "identical"
    return Comparison(
        outcome=outcome,
        basis="blocks",
        changes=changes,
        bytes_before=before.size,
        bytes_after=after.size,
    )


def first_break(before: BlockMap, after: BlockMap) -> CacheBreak:
    """Tell which block of a text is the first that is not as it was in the text sent before.

    A block of another name and the same text breaks nothing.
    """
    if not (before.mapped and after.mapped):
        outcome = _whole(before, after)
        return CacheBreak(outcome=outcome, what="whole" if outcome == "changed" else None)
    index = 0
    shorter = min(len(before.ids), len(after.ids))
    while index < shorter and _same(before, index, after, index):
        index += 1
    place = CacheBreak(
        outcome="identical",
        index=index,
        kept_bytes=sum(after.sizes[:index]),
        lost_bytes=sum(after.sizes[index:]),
    )
    if index == len(before.ids) == len(after.ids):
        return place
    if index < shorter and _same(before, index, after, index) is None:
        return replace(place, outcome="not_comparable")
    what, name = _first_change(before, after, index)
    return replace(place, outcome="changed", what=what, id=name)


def lost_tokens(
    *, read_before: int | None, written_before: int | None, read_after: int | None
) -> int | None:
    """Return how many tokens that were in the provider's cache had to be read anew.

    In the cache are, after a round, the tokens it read from there and those it wrote. None where
    the rounds do not tell.

    Args:
        read_before: cached input tokens of the earlier round.
        written_before: tokens that it wrote to the cache.
        read_after: cached input tokens of the later round.
    """
    if read_after is None or (read_before is None and written_before is None):
        return None
    return max(0, (read_before or 0) + (written_before or 0) - read_after)


def _first_change(before: BlockMap, after: BlockMap, index: int) -> tuple[What, str]:
    """Say what happened at the first place that differs, and to which block."""
    changes = _changes(before, after)
    here = [each for each in changes if each.after == index and each.what == "added"]
    here += [each for each in changes if each.before == index and each.what == "removed"]
    here += [each for each in changes if index in (each.before, each.after)]
    for change in here:
        if change.what != "unknown":
            return change.what, change.id
    return "changed", after.ids[index] if index < len(after.ids) else before.ids[index]


def _whole(before: BlockMap, after: BlockMap) -> Outcome:
    comparable = before.key_id is not None and before.key_id == after.key_id
    if comparable and before.digest is not None and after.digest is not None:
        return "identical" if before.digest == after.digest else "changed"
    if before.size is not None and after.size is not None and before.size != after.size:
        return "changed"
    return "not_comparable"


def _same(before: BlockMap, i: int, after: BlockMap, j: int) -> bool | None:
    """Tell whether two blocks have the same text; None: it is not known."""
    if before.sizes[i] != after.sizes[j]:
        return False
    if before.key_id is None or before.key_id != after.key_id:
        return None
    return before.digests[i] == after.digests[j]


def _occurrences(ids: tuple[str, ...]) -> list[int]:
    counts: dict[str, int] = {}
    found: list[int] = []
    for name in ids:
        counts[name] = counts.get(name, 0) + 1
        found.append(counts[name])
    return found


def _changes(before: BlockMap, after: BlockMap) -> list[BlockChange]:
    """Return what became of every block that is not where and as it was."""
    earlier, later = _occurrences(before.ids), _occurrences(after.ids)
    aligned = _aligned(before, after, earlier, later)
    moved = _moved(before, after, aligned)
    pairs = {**{j: i for i, j in aligned}, **moved}
    changes: list[BlockChange] = []
    gone = sorted(set(range(len(before.ids))) - set(pairs.values()))
    upcoming = [*aligned, (len(before.ids), len(after.ids))]
    for j, name in enumerate(after.ids):
        while upcoming[0][1] < j:
            upcoming.pop(0)
        # What is gone stands in front of what took its place.
        while gone and gone[0] < upcoming[0][0]:
            changes.append(_removed(before, gone.pop(0), earlier))
        i = pairs.get(j)
        if i is None:
            changes.append(_added(after, j, later))
            continue
        same = _same(before, i, after, j)
        if same and j not in moved:
            continue
        changes.append(
            BlockChange(
                id=name,
                occurrence=later[j],
                what="reordered" if j in moved else "unknown" if same is None else "changed",
                before=i,
                after=j,
                bytes_before=before.sizes[i],
                bytes_after=after.sizes[j],
                changed=None if same is None else not same,
            )
        )
    return changes + [_removed(before, i, earlier) for i in gone]


def _added(after: BlockMap, j: int, occurrences: list[int]) -> BlockChange:
    return BlockChange(
        id=after.ids[j],
        occurrence=occurrences[j],
        what="added",
        after=j,
        bytes_after=after.sizes[j],
    )


def _removed(before: BlockMap, i: int, occurrences: list[int]) -> BlockChange:
    return BlockChange(
        id=before.ids[i],
        occurrence=occurrences[i],
        what="removed",
        before=i,
        bytes_before=before.sizes[i],
    )


def _moved(before: BlockMap, after: BlockMap, aligned: list[tuple[int, int]]) -> dict[int, int]:
    """Pair what is left over by id, blocks of the same text first: place after, place before."""
    left = sorted(set(range(len(before.ids))) - {i for i, _ in aligned})
    right = sorted(set(range(len(after.ids))) - {j for _, j in aligned})
    found: dict[int, int] = {}
    for same_text in (True, False):
        for j in right:
            if j in found:
                continue
            for i in left:
                if before.ids[i] != after.ids[j]:
                    continue
                if same_text and not _same(before, i, after, j):
                    continue
                found[j] = i
                left.remove(i)
                break
    return found


def _aligned(
    before: BlockMap, after: BlockMap, earlier: list[int], later: list[int]
) -> list[tuple[int, int]]:
    """Return the places of blocks that kept their order, as pairs (before, after)."""
    start, end = 0, 0
    shorter = min(len(before.ids), len(after.ids))

    def equal(i: int, j: int) -> bool:
        return before.ids[i] == after.ids[j] and bool(_same(before, i, after, j))

    while start < shorter and equal(start, start):
        start += 1
    while end < shorter - start and equal(-1 - end, -1 - end):
        end += 1
    n, m = len(before.ids) - end, len(after.ids) - end
    pairs = [(i, i) for i in range(start)]
    pairs += _longest(before, after, earlier, later, (start, n, m))
    return pairs + [(n + k, m + k) for k in range(end)]


def _longest(
    before: BlockMap,
    after: BlockMap,
    earlier: list[int],
    later: list[int],
    bounds: tuple[int, int, int],
) -> list[tuple[int, int]]:
    """Align the part between a common beginning and a common end."""
    start, n, m = bounds
    # Many matches come first; the bonuses choose among alignments of equally many.
    scale = _MATCH * (min(n, m) - start + 1)
    scores = [[0] * (m - start + 1) for _ in range(n - start + 1)]

    def worth(i: int, j: int) -> int:
        if before.ids[i] != after.ids[j]:
            return 0
        if _same(before, i, after, j):
            return scale + _SAME_TEXT
        return scale + (_SAME_NUMBER if earlier[i] == later[j] else 0)

    for i in range(n - 1, start - 1, -1):
        row, below = scores[i - start], scores[i - start + 1]
        for j in range(m - 1, start - 1, -1):
            best = max(below[j - start], row[j - start + 1])
            value = worth(i, j)
            row[j - start] = max(best, value + below[j - start + 1]) if value else best
    pairs: list[tuple[int, int]] = []
    i = j = start
    while i < n and j < m:
        here = scores[i - start][j - start]
        value = worth(i, j)
        if value and here == value + scores[i - start + 1][j - start + 1]:
            pairs.append((i, j))
            i, j = i + 1, j + 1
        elif here == scores[i - start + 1][j - start]:
            i += 1
        else:
            j += 1
    return pairs
