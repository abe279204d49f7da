"""Two model calls side by side: their system prompts by block, tools, messages and parameters.

Which blocks correspond is said by `clew.prompts.compare`, which needs no text; where both texts are
there, a changed block is compared line by line too.
"""

from __future__ import annotations

from collections.abc import Sequence
from difflib import SequenceMatcher
from itertools import zip_longest
from typing import Any, Final

import msgspec
from msgspec import Struct

from clew.prompts.compare import BlockChange, Comparison, compare
from clew.sources.prompt_report import maps_of
from clew.sources.wording import UNKNOWN
from clew.store.prompt_records import PromptRecord, PromptRow, RecordedBlock, ToolDefinition
from clew.web.parts import MessagePart, cut, look_of, message_part

_MOST_LINES: Final = 1500
"""Lines of a block on both sides that are compared one by one."""
_MOST_MESSAGES: Final = 400
_AROUND: Final = 3
"""Equal lines shown before and after a change."""
WHOLE: Final = "(whole prompt)"
"""Stands for the id of a block where there is no map."""


class LinePair(Struct, frozen=True, kw_only=True):
    """A line on both sides, or on one of them."""

    before: str | None = None
    after: str | None = None
    same: bool = False
    skipped: int = 0
    """Above 0: that many equal lines stand here and are not shown."""


class Side(Struct, frozen=True, kw_only=True):
    """One block on one side."""

    id: str
    look: str
    words: str
    """Layer, stability and source."""
    bytes: int


class Pair(Struct, frozen=True, kw_only=True):
    """A block on both sides, or on one of them."""

    what: str
    """`same`, `changed`, `added`, `removed`, `reordered` or `unknown`."""
    id: str
    occurrence: int
    before: Side | None
    after: Side | None
    lines: tuple[LinePair, ...] | None
    """None where a text that should be there is not."""


class ToolChange(Struct, frozen=True, kw_only=True):
    """What became of a tool definition."""

    name: str
    what: str
    """`added`, `removed` or `changed`; `unknown` where nothing tells."""
    chars_before: int | None = None
    chars_after: int | None = None


class ValueChange(Struct, frozen=True, kw_only=True):
    """A value of the header that differs."""

    name: str
    before: str
    after: str


class MessageChange(Struct, frozen=True, kw_only=True):
    """How the histories relate."""

    same: int
    """Messages at the beginning that are equal."""
    before: tuple[MessagePart, ...]
    after: tuple[MessagePart, ...]
    known: bool
    """False where a history is not there: then only lengths are compared."""
    length_before: int | None
    length_after: int | None


class Diff(Struct, frozen=True, kw_only=True):
    """The difference between two calls."""

    comparison: Comparison
    pairs: tuple[Pair, ...]
    tools: tuple[ToolChange, ...]
    values: tuple[ValueChange, ...]
    messages: MessageChange

    @property
    def counts(self) -> dict[str, int]:
        """How many blocks were changed, added, removed, reordered, or are unknown."""
        names = ("changed", "added", "removed", "reordered", "unknown", "same")
        return {name: sum(each.what == name for each in self.pairs) for name in names}

    @property
    def identical(self) -> bool:
        """True where nothing differs that can be compared."""
        return (
            self.comparison.outcome == "identical"
            and not self.tools
            and not self.values
            and self.messages.same == (self.messages.length_before or 0)
            and self.messages.length_before == self.messages.length_after
        )


def between(one: tuple[PromptRow, PromptRecord], other: tuple[PromptRow, PromptRecord]) -> Diff:
    """Compare two calls, each with its row and its record."""
    (row_before, before), (row_after, after) = one, other
    comparison = compare(*maps_of(one, other))
    return Diff(
        comparison=comparison,
        pairs=_pairs(comparison, before, after),
        tools=_tools(row_before, before.tools, row_after, after.tools),
        values=_values(row_before, before, row_after, after),
        messages=_messages(row_before, before, row_after, after),
    )


def _pairs(comparison: Comparison, before: PromptRecord, after: PromptRecord) -> tuple[Pair, ...]:
    earlier, later = before.system.blocks, after.system.blocks
    if comparison.basis == "whole":
        return _whole(comparison, before, after)
    by_after = {each.after: each for each in comparison.changes if each.after is not None}
    removed = [each for each in comparison.changes if each.after is None]
    texts = _bytes(before), _bytes(after)
    pairs: list[Pair] = []
    matched = {each.before for each in comparison.changes}
    untouched = [place for place in range(len(earlier)) if place not in matched]
    for place, block in enumerate(later):
        change = by_after.get(place)
        origin = untouched.pop(0) if change is None and untouched else None
        if change is not None:
            origin = change.before
        while removed and (removed[0].before or 0) < (origin if origin is not None else -1):
            pairs.append(_gone(removed.pop(0), earlier, texts[0]))
        pairs.append(_pair(change, _at(earlier, origin), block, texts))
    pairs += [_gone(each, earlier, texts[0]) for each in removed]
    return tuple(pairs)


def _at(blocks: Sequence[RecordedBlock], place: int | None) -> RecordedBlock | None:
    return None if place is None or place >= len(blocks) else blocks[place]


def _pair(
    change: BlockChange | None,
    before: RecordedBlock | None,
    after: RecordedBlock,
    texts: tuple[bytes | None, bytes | None],
) -> Pair:
    one = None if before is None or texts[0] is None else cut(texts[0], before.start, before.end)
    other = None if texts[1] is None else cut(texts[1], after.start, after.end)
    there = other is not None and (before is None or one is not None)
    return Pair(
        what="same" if change is None else change.what,
        id=after.id,
        occurrence=1 if change is None else change.occurrence,
        before=None if before is None else _side(before),
        after=_side(after),
        lines=line_pairs(one, other) if there else None,
    )


def _gone(change: BlockChange, earlier: Sequence[RecordedBlock], text: bytes | None) -> Pair:
    block = earlier[change.before or 0]
    one = None if text is None else cut(text, block.start, block.end)
    return Pair(
        what="removed",
        id=change.id,
        occurrence=change.occurrence,
        before=_side(block),
        after=None,
        lines=None if one is None else line_pairs(one, None),
    )


def _side(block: RecordedBlock) -> Side:
    return Side(
        id=block.id,
        look=look_of(block.layer),
        words=f"{block.layer} · {block.stability} · {block.source}",
        bytes=block.bytes,
    )


def _whole(comparison: Comparison, before: PromptRecord, after: PromptRecord) -> tuple[Pair, ...]:
    """Compare two texts of which one has no map, as one block each."""
    if not before.system.bytes and not after.system.bytes:
        return ()
    sides = [
        Side(id=WHOLE, look="other", words="no map", bytes=record.system.bytes)
        for record in (before, after)
    ]
    one, other = before.system.text, after.system.text
    there = one is not None and other is not None
    what = {"identical": "same", "changed": "changed", "not_comparable": "unknown"}
    return (
        Pair(
            what=what[comparison.outcome],
            id=WHOLE,
            occurrence=1,
            before=sides[0],
            after=sides[1],
            lines=line_pairs(one, other) if there else None,
        ),
    )


def _bytes(record: PromptRecord) -> bytes | None:
    text = record.system.text
    return None if text is None else text.encode("utf-8", "surrogatepass")


def line_pairs(before: str | None, after: str | None) -> tuple[LinePair, ...]:
    """Return two texts line beside line; None: there is no such side.

    Of a long stretch of equal lines between changes only its ends are there. Very long texts are
    not compared line by line: all of one side comes before all of the other.
    """
    one = [] if before is None else before.splitlines()
    other = [] if after is None else after.splitlines()
    if one == other:
        return tuple(LinePair(before=each, after=each, same=True) for each in one)
    if not one or not other or len(one) + len(other) > _MOST_LINES:
        left_out = [LinePair(before=each) for each in one]
        return (*left_out, *(LinePair(after=each) for each in other))
    found: list[LinePair] = []
    matcher = SequenceMatcher(None, one, other, autojunk=False)
    for kind, left, left_end, right, right_end in matcher.get_opcodes():
        pairs = zip_longest(one[left:left_end], other[right:right_end])
        lines = [LinePair(before=a, after=b, same=kind == "equal") for a, b in pairs]
        found += _shortened(lines) if kind == "equal" else lines
    return tuple(found)


def _shortened(lines: list[LinePair]) -> list[LinePair]:
    if len(lines) <= 2 * _AROUND + 2:
        return lines
    skipped = LinePair(same=True, skipped=len(lines) - 2 * _AROUND)
    return [*lines[:_AROUND], skipped, *lines[-_AROUND:]]


def _tools(
    row_before: PromptRow,
    before: Sequence[ToolDefinition],
    row_after: PromptRow,
    after: Sequence[ToolDefinition],
) -> tuple[ToolChange, ...]:
    comparable = row_before.digest_key is not None and row_before.digest_key == row_after.digest_key
    digests = [{each.name: each for each in row.tools} for row in (row_before, row_after)]
    earlier, later = ({each.name: each for each in tools} for tools in (before, after))
    found: list[ToolChange] = []
    for name in dict.fromkeys([*earlier, *later]):
        one, other = earlier.get(name), later.get(name)
        if one is None or other is None:
            found.append(
                ToolChange(
                    name=name,
                    what="added" if one is None else "removed",
                    chars_before=None if one is None else one.chars,
                    chars_after=None if other is None else other.chars,
                )
            )
            continue
        what = _tool_state(one, other, [each.get(name) for each in digests], comparable)
        if what != "same":
            found.append(
                ToolChange(name=name, what=what, chars_before=one.chars, chars_after=other.chars)
            )
    return tuple(found)


def _tool_state(
    one: ToolDefinition,
    other: ToolDefinition,
    known: Sequence[ToolDefinition | None],
    comparable: bool,
) -> str:
    if one.chars != other.chars:
        return "changed"
    digests = [None if each is None else each.digest for each in known]
    if comparable and None not in digests:
        return "same" if digests[0] == digests[1] else "changed"
    if one.schema is not None or other.schema is not None:
        same = (one.schema, one.description) == (other.schema, other.description)
        return "same" if same else "changed"
    return "unknown"


def _values(
    row_before: PromptRow, before: PromptRecord, row_after: PromptRow, after: PromptRecord
) -> tuple[ValueChange, ...]:
    rows = row_before, row_after
    compared: list[tuple[str, Any, Any]] = [
        (name, *(getattr(row, key) for row in rows))
        for name, key in (
            ("model", "model"),
            ("provider", "provider"),
            ("answered by", "answered"),
            ("finish reason", "finish_reason"),
            ("status", "status"),
        )
    ]
    parameters = [record.parameters or {} for record in (before, after)]
    compared += [
        (f"parameter {key}", parameters[0].get(key), parameters[1].get(key))
        for key in sorted({*parameters[0], *parameters[1]})
    ]
    return tuple(
        ValueChange(name=name, before=_shown(one), after=_shown(other))
        for name, one, other in compared
        if one != other
    )


def _shown(value: Any) -> str:
    if value is None:
        return UNKNOWN
    if isinstance(value, str):
        return value
    return msgspec.json.encode(value).decode("utf-8", "replace")[:500]


def _messages(
    row_before: PromptRow, before: PromptRecord, row_after: PromptRow, after: PromptRecord
) -> MessageChange:
    one, other = before.messages, after.messages
    if one is None or other is None:
        return MessageChange(
            same=0,
            before=(),
            after=(),
            known=False,
            length_before=row_before.history_length,
            length_after=row_after.history_length,
        )
    same = 0
    while same < min(len(one), len(other)) and one[same] == other[same]:
        same += 1
    return MessageChange(
        same=same,
        before=tuple(
            message_part(each, place)
            for place, each in enumerate(one[same : same + _MOST_MESSAGES], same + 1)
        ),
        after=tuple(
            message_part(each, place)
            for place, each in enumerate(other[same : same + _MOST_MESSAGES], same + 1)
        ),
        known=True,
        length_before=len(one),
        length_after=len(other),
    )


def form(found: Diff) -> dict[str, Any]:
    """Return a difference as JSON has it, without the texts."""
    return {
        "identical": found.identical,
        "system": msgspec.to_builtins(found.comparison),
        "tools": msgspec.to_builtins(found.tools),
        "values": msgspec.to_builtins(found.values),
        "messages": {
            "same": found.messages.same if found.messages.known else None,
            "before": found.messages.length_before,
            "after": found.messages.length_after,
        },
    }
