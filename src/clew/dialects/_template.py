"""Telling from an event's bytes that it says nothing new.

Most events of a stream differ from the one before in a few words of text, a time, a counter.
`learn` takes such an event apart: its JSON structure, and the values that may change without
meaning anything for the answer (holes). A template then recognises later events by comparing
bytes, without decoding. It cannot be deceived by content: a quotation mark inside a JSON string
is escaped, so what looks like structure is structure.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from clew._json_text import STRING, texts_of

_NUMBER: Final = rb"-?\d++(?:\.\d++)?+(?:[eE][-+]?\d++)?+"
_BLANKS: Final = rb"[ \t]*+"
_INSIDE: Final = re.compile(STRING, re.DOTALL)
# Between two strings there is punctuation only, so a pair found out of step has no known key.
_PAIR: Final = re.compile(
    rb'"([^"\\]*+)"\s*+:\s*+(?:"(' + STRING + rb')"|(' + _NUMBER + rb"))", re.DOTALL
)
_EVENT_ID: Final = re.compile(rb"(?:^|\n)id: ?(" + _NUMBER + rb")\r?\n")
_PADDING: Final = re.compile(rb"[ \t]++(?=\})")
_DIGITS: Final = b"0123456789"
_MAX_EVENT: Final = 64 * 1024
_MAX_COMPILED: Final = 256
_compiled: dict[bytes, re.Pattern[bytes]] = {}


class Holes(NamedTuple):
    """Keys whose values may change while an event still says nothing new."""

    texts: frozenset[bytes]
    """Generated text and padding."""
    names: frozenset[bytes] = frozenset(
        (b"id", b"model", b"item_id", b"responseId", b"modelVersion", b"created_at", b"createTime")
    )
    """Values that may change once they were given: the first one counts, or none does."""
    literal_numbers: frozenset[bytes] = frozenset((b"index",))
    """Numbers that do matter."""


def holes(*texts: str) -> Holes:
    """Return holes for these texts and the usual names."""
    return Holes(frozenset(text.encode() for text in texts))


class Hole(NamedTuple):
    """A value in an event: where it is and what it was."""

    start: int
    end: int
    is_text: bool
    is_number: bool
    value: bytes


class Anatomy(NamedTuple):
    """An event taken apart."""

    event: bytes
    skeleton: bytes
    """The event with marks in place of its holes."""
    holes: list[Hole]
    padding: list[tuple[int, int]]
    """Blanks before a closing brace: some providers put a random number of them there."""
    last_literal: int
    """Where the last number that matters ends."""


def dissect(event: bytes, known: Holes) -> Anatomy | None:
    """Take an event apart; None when it is too large or carries no text."""
    start = event.find(b"{")
    if start < 0 or len(event) > _MAX_EVENT:
        return None
    texts, names, literals = known
    found: list[Hole] = []
    last_literal = 0
    some_text = False
    if start:
        event_id = _EVENT_ID.search(event, 0, start)
        if event_id is not None:
            found.append(Hole(*event_id.span(1), False, True, event_id[1]))  # noqa: FBT003
    for pair in _PAIR.finditer(event, start):
        key, string, number = pair.groups()
        if string is not None:
            is_text = key in texts
            if is_text or (string and key in names):
                some_text = some_text or (is_text and bool(string))
                found.append(Hole(*pair.span(2), is_text, False, string))  # noqa: FBT003
        elif key in literals:
            last_literal = pair.end()
        else:
            found.append(Hole(*pair.span(3), False, True, number))  # noqa: FBT003
    if not some_text:
        return None
    padding = [blank.span() for blank in _PADDING.finditer(event, start)] if b" }" in event else []
    return Anatomy(event, _skeleton(event, found, padding), found, padding, last_literal)


def _skeleton(event: bytes, found: list[Hole], padding: list[tuple[int, int]]) -> bytes:
    # The marks are no JSON, so an empty literal value is not taken for a hole.
    spans = [(hole.start, hole.end, b"\1" if hole.is_number else b"\0") for hole in found]
    if padding:
        spans = sorted(spans + [(start, end, b"") for start, end in padding])
    pieces: list[bytes] = []
    position = 0
    for start, end, instead in spans:
        pieces += (event[position:start], instead)
        position = end
    pieces.append(event[position:])
    return b"".join(pieces)


class Template:
    """What one kind of uneventful event looks like.

    Args:
        event: one of them.
        changing: the values in it that may change, in order.
        known: the keys of such values.
        latest_counts: whether the last of these events must be read in the end: it reports counts.
        anatomy: the event taken apart, where that has been done.
        varying: which of its holes may change.
    """

    __slots__ = (
        "_anatomy",
        "_known",
        "_varying",
        "event",
        "fits",
        "head",
        "latest_counts",
        "texts",
    )

    def __init__(
        self,
        event: bytes,
        changing: Sequence[Hole],
        known: Holes,
        *,
        latest_counts: bool,
        anatomy: Anatomy | None = None,
        varying: set[int] | None = None,
    ) -> None:
        self.event = event
        self._known = known
        self._anatomy = anatomy
        self._varying = varying
        self.latest_counts = latest_counts
        self.head = event[: changing[0].start]
        self.texts: tuple[bytes, bytes] | None = None
        """For one or two changing texts: the bytes between them, and after."""
        self.fits: Callable[[bytes], bool]
        """Tells whether an event that begins with `head` says nothing new."""
        numbers = [hole.is_number for hole in changing]
        if anatomy is not None and anatomy.padding:
            self.fits = self._shape(changing, anatomy.padding)
        elif len(changing) <= 2 and not any(numbers):
            middle = event[changing[0].end : changing[1].start] if len(changing) == 2 else b""
            self.texts = (middle, event[changing[-1].end :])
            self.fits = _texts(len(self.head), *self.texts)
        elif (
            numbers[0]
            or not all(numbers[1:])
            or (anatomy is not None and anatomy.last_literal > changing[1].start)
        ):
            self.fits = self._shape(changing, ())
        else:
            literal = event[changing[0].end : changing[1].start]
            rest = event[changing[1].start :]
            self.fits = _counts(len(self.head), literal, rest)

    def taken_apart(self) -> tuple[Anatomy, set[int]] | None:
        """Return the anatomy of the event, and which of its holes may change."""
        if self._anatomy is None:
            self._anatomy = dissect(self.event, self._known)
            if self._anatomy is None:
                return None
        if self._varying is None:
            self._varying = _with_text(self._anatomy)
        return self._anatomy, self._varying

    def _shape(
        self, changing: Sequence[Hole], padding: Sequence[tuple[int, int]]
    ) -> Callable[[bytes], bool]:
        """Compare with a pattern from the first changing value to the last."""
        event = self.event
        start = changing[0].start
        parts: list[tuple[int, int, bytes]] = [
            (hole.start, hole.end, _NUMBER if hole.is_number else STRING) for hole in changing
        ]
        parts += [(first, last, _BLANKS) for first, last in padding if first >= start]
        pattern = b""
        position = start
        for first, last, part in sorted(parts):
            pattern += re.escape(event[position:first]) + part
            position = last
        return _pattern(len(self.head), _compile(pattern), event[position:])


def learn(
    event: bytes, known: Holes, siblings: list[Template], *, latest_counts: bool
) -> Template | None:
    """Make a template of an event that said nothing new; None where it cannot be one.

    What changed since a sibling (a template of the same structure) may change again. The sibling
    is taken off the list: the new template covers its events.
    """
    if not siblings:
        texts = _texts_in(event, known)
        if texts is not None:
            return Template(event, texts, known, latest_counts=latest_counts)
    anatomy = dissect(event, known)
    if anatomy is None:
        return None
    varying = _with_text(anatomy)
    for sibling in siblings:
        apart = sibling.taken_apart()
        if apart is not None and apart[0].skeleton == anatomy.skeleton:
            varying |= apart[1]
            varying |= {
                position
                for position, hole in enumerate(anatomy.holes)
                if apart[0].holes[position].value != hole.value
            }
            siblings.remove(sibling)
            break
    changing = [anatomy.holes[position] for position in sorted(varying)]
    return Template(
        event, changing, known, latest_counts=latest_counts, anatomy=anatomy, varying=varying
    )


def _with_text(anatomy: Anatomy) -> set[int]:
    return {position for position, hole in enumerate(anatomy.holes) if hole.is_text and hole.value}


def _texts_in(event: bytes, known: Holes) -> list[Hole] | None:
    """Return the one or two texts of an event: what `dissect` would find to change, for less."""
    start = event.find(b"{")
    if start < 0 or len(event) > _MAX_EVENT or b" }" in event:
        return None
    found = [
        Hole(*text.span(1), True, False, text[1])  # noqa: FBT003
        for text in texts_of(known.texts).finditer(event, start)
        if text[1]
    ]
    return found if 1 <= len(found) <= 2 else None


def _is_inside(event: bytes, start: int, end: int) -> bool:
    """Tell whether all of it is inside one JSON string that a quotation mark at `end` closes."""
    if event.find(b'"', start) == end and event[end - 1 : end] != b"\\":
        return True
    if (
        event.count(b'"', start, end) == event.count(b'\\"', start, end)
        and event.find(b'\\\\"', start, end) < 0
        and event[end - 1 : end] != b"\\"
    ):
        return True
    found = _INSIDE.match(event, start, end)
    return found is not None and found.end() == end


def _texts(start: int, middle: bytes, tail: bytes) -> Callable[[bytes], bool]:
    middle_size, tail_size = len(middle), len(tail)

    def fits(event: bytes) -> bool:
        end = len(event) - tail_size
        if end < start or not event.endswith(tail):
            return False
        if not middle:
            return _is_inside(event, start, end)
        between = event.find(middle, start, end)
        return (
            between >= 0
            and _is_inside(event, start, between)
            and _is_inside(event, between + middle_size, end)
        )

    return fits


def _counts(start: int, literal: bytes, rest: bytes) -> Callable[[bytes], bool]:
    size = len(literal)
    rest = rest.translate(None, _DIGITS)

    def fits(event: bytes) -> bool:
        end = event.find(b'"', start)
        if event.startswith(literal, end):
            return event[end + size :].translate(None, _DIGITS) == rest
        end = event.find(literal, start)
        if end < 0 or not _is_inside(event, start, end):
            return False
        return event[end + size :].translate(None, _DIGITS) == rest

    return fits


def _pattern(start: int, pattern: re.Pattern[bytes], tail: bytes) -> Callable[[bytes], bool]:
    match, size = pattern.match, len(tail)

    def fits(event: bytes) -> bool:
        return event.endswith(tail) and match(event, start, len(event) - size) is not None

    return fits


def _compile(pattern: bytes) -> re.Pattern[bytes]:
    compiled = _compiled.get(pattern)
    if compiled is None:
        if len(_compiled) >= _MAX_COMPILED:
            _compiled.clear()
        compiled = _compiled[pattern] = re.compile(pattern + rb"\Z", re.DOTALL)
    return compiled
