"""Telling from an event's bytes that it says nothing new.

Most events of a stream differ from the one before in a few words of text, a time, a counter.
`learn` takes such an event apart: its JSON structure, and the values that may change without
meaning anything for the answer (holes). A template then recognises later events by comparing
bytes, without decoding. It cannot be deceived by content: a quotation mark inside a JSON string
is escaped, so what looks like structure is structure.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, NamedTuple

_STRING: Final = rb'[^"\\]*+(?:\\.[^"\\]*+)*+'
_NUMBER: Final = rb"-?\d++(?:\.\d++)?+(?:[eE][-+]?\d++)?+"
_SPACE: Final = rb"[ \t]*+"
_INSIDE: Final = re.compile(_STRING, re.DOTALL)
_TOKEN: Final = re.compile(
    rb'"(?P<string>' + _STRING + rb')"(?P<colon>\s*+:)?+|(?P<number>' + _NUMBER + rb")"
    rb"|(?P<space>[ \t]++)|[^\"\d\s-]++|\s|-",
    re.DOTALL,
)
_DIGITS: Final = b"0123456789"
_compiled: dict[bytes, re.Pattern[bytes]] = {}
_MAX_COMPILED: Final = 256
_MAX_EVENT: Final = 64 * 1024


class Holes(NamedTuple):
    """Keys whose values may change while an event still says nothing new."""

    texts: frozenset[bytes]
    """Generated text, padding, times."""
    names: frozenset[bytes] = frozenset((b"id", b"model", b"item_id"))
    """Values of which the first one counts: they may change once one was given."""
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


class Anatomy(NamedTuple):
    """An event taken apart."""

    event: bytes
    skeleton: bytes
    """The event with its holes emptied."""
    holes: tuple[Hole, ...]
    padding: tuple[tuple[int, int], ...]
    """Blanks before a closing brace: some providers put a random number of them there."""
    last_literal: int
    """Where the last number that matters ends."""

    def value(self, position: int) -> bytes:
        """Return what stood in a hole."""
        hole = self.holes[position]
        return self.event[hole.start : hole.end]


def dissect(event: bytes, known: Holes) -> Anatomy | None:
    """Take an event apart; None when it is too large or nothing in it may change."""
    start = event.find(b"{")
    if start < 0 or len(event) > _MAX_EVENT:
        return None
    found: list[Hole] = []
    padding: list[tuple[int, int]] = []
    last_literal = 0
    key = b""
    for token in _TOKEN.finditer(event, start):
        kind = token.lastgroup
        if kind == "colon":
            key = token["string"]
        elif kind == "string":
            text = key in known.texts
            if text or (key in known.names and token["string"]):
                found.append(Hole(*token.span("string"), text, is_number=False))
        elif kind == "number":
            if key in known.literal_numbers:
                last_literal = token.end()
            else:
                found.append(Hole(*token.span(), is_text=False, is_number=True))
        elif kind == "space" and event.startswith(b"}", token.end()):
            padding.append(token.span())
    if not found:
        return None
    return Anatomy(
        event, _skeleton(event, found, padding), tuple(found), tuple(padding), last_literal
    )


def _skeleton(event: bytes, found: list[Hole], padding: list[tuple[int, int]]) -> bytes:
    spans = [(hole.start, hole.end, b"0" if hole.is_number else b"") for hole in found]
    spans += [(start, end, b"") for start, end in padding]
    pieces: list[bytes] = []
    position = 0
    for start, end, instead in sorted(spans):
        pieces += (event[position:start], instead)
        position = end
    pieces.append(event[position:])
    return b"".join(pieces)


class Template:
    """What one kind of uneventful event looks like."""

    __slots__ = ("anatomy", "fits", "head", "latest_counts", "texts", "varying")

    def __init__(
        self, anatomy: Anatomy, varying: frozenset[int], *, latest_counts: bool = False
    ) -> None:
        self.anatomy = anatomy
        self.varying = varying
        self.latest_counts = latest_counts
        """True when the last of these events must be read in the end: it reports counts."""
        changing = [anatomy.holes[position] for position in sorted(varying)]
        event = anatomy.event
        self.head = event[: changing[0].start]
        self.texts: tuple[bytes, bytes] | None = None
        """For one or two changing texts: the bytes between them, and after."""
        self.fits: Callable[[bytes], bool]
        """Tells whether an event that begins with `head` says nothing new."""
        if anatomy.padding:
            self.fits = self._shape(changing)
        elif len(changing) <= 2 and not any(hole.is_number for hole in changing):
            middle = event[changing[0].end : changing[1].start] if len(changing) == 2 else b""
            self.texts = (middle, event[changing[-1].end :])
            self.fits = _texts(self.head, *self.texts)
        elif (
            not changing[0].is_number
            and all(hole.is_number for hole in changing[1:])
            and anatomy.last_literal < changing[1].start
        ):
            literal = event[changing[0].end : changing[1].start]
            rest = event[changing[1].start :]
            self.fits = _counts(self.head, literal, rest, self._shape(changing))
        else:
            self.fits = self._shape(changing)

    def _shape(self, changing: list[Hole]) -> Callable[[bytes], bool]:
        """Compare with a pattern from the first changing value to the last."""
        event = self.anatomy.event
        start = changing[0].start
        parts: list[tuple[int, int, bytes]] = [
            (hole.start, hole.end, _NUMBER if hole.is_number else _STRING) for hole in changing
        ]
        parts += [(first, last, _SPACE) for first, last in self.anatomy.padding if first >= start]
        pattern = b""
        position = start
        for first, last, part in sorted(parts):
            pattern += re.escape(event[position:first]) + part
            position = last
        tail = event[position:]
        return _pattern(len(self.head), _compile(pattern), tail)


def learn(anatomy: Anatomy, siblings: list[Template], *, latest_counts: bool) -> Template | None:
    """Make a template of an event that said nothing new.

    What changed since a sibling (a template of the same structure) may change again. The sibling
    is taken off the list: the new template covers its events.
    """
    varying = {position for position, hole in enumerate(anatomy.holes) if hole.is_text}
    if not any(anatomy.value(position) for position in varying):
        return None
    for sibling in siblings:
        if sibling.anatomy.skeleton == anatomy.skeleton:
            varying |= sibling.varying
            varying |= {
                position
                for position in range(len(anatomy.holes))
                if sibling.anatomy.value(position) != anatomy.value(position)
            }
            siblings.remove(sibling)
            break
    return Template(anatomy, frozenset(varying), latest_counts=latest_counts)


def string_end(event: bytes, start: int) -> int:
    """Return the position of the quotation mark that closes the string begun before `start`."""
    found = _INSIDE.match(event, start)
    return -1 if found is None else found.end()


def _texts(head: bytes, middle: bytes, tail: bytes) -> Callable[[bytes], bool]:
    start, middle_size, tail_size = len(head), len(middle), len(tail)

    def fits(event: bytes) -> bool:
        end = string_end(event, start)
        if middle:
            if not event.startswith(middle, end):
                return False
            end = string_end(event, end + middle_size)
        return end == len(event) - tail_size and event.endswith(tail)

    return fits


def _counts(
    head: bytes, literal: bytes, rest: bytes, exactly: Callable[[bytes], bool]
) -> Callable[[bytes], bool]:
    start, size = len(head), len(literal)
    rest = rest.translate(None, _DIGITS)

    def fits(event: bytes) -> bool:
        end = event.find(b'"', start)
        if event.startswith(literal, end):
            return event[end + size :].translate(None, _DIGITS) == rest
        return exactly(event)

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
