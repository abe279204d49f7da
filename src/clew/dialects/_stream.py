"""Reading events of a stream as they arrive, cheaply.

Most events of a stream differ from the one before in nothing but a few words of text. The reader
learns such an event as a template: the bytes before the text, between its texts, and after it. A
later event that has the same bytes in the same places, and no quotation mark inside the texts,
can tell nothing new about the answer, so it is only counted. A quotation mark inside a JSON
string is escaped, and an escaped one ends the comparison, so content cannot imitate structure.
Every other event is parsed.
"""

from __future__ import annotations

import re
from typing import Final

from clew._guard import record_failure
from clew.facts import NO_RESPONSE, ResponseFacts

MAX_EVENT: Final = 8 * 1024 * 1024
"""Events larger than this many bytes are passed over, not kept."""

_STRING: Final = re.compile(rb'[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_KEPT_TEMPLATES: Final = 4

TELLS: Final = 0
"""`apply` answers: the event said something; parse the next one like it too."""
QUIET: Final = 1
"""`apply` answers: an event with the same bytes around its texts would say nothing new."""


def text_holes(*keys: str) -> re.Pattern[bytes]:
    """Return a pattern that finds where the string values of `keys` begin."""
    names = "|".join(re.escape(key) for key in keys)
    return re.compile(rb'"(?:' + names.encode() + rb')"\s*+:\s*+"')


class Template:
    """An event's bytes around one or two texts."""

    __slots__ = ("head", "middle", "tail")

    def __init__(self, head: bytes, middle: bytes, tail: bytes) -> None:
        self.head = head
        self.middle = middle
        self.tail = tail

    def fits(self, event: bytes) -> bool:
        """Tell whether `event` differs from the learnt one in its texts only."""
        if not event.startswith(self.head):
            return False
        end = _string_end(event, len(self.head))
        if end >= 0 and self.middle:
            if not event.startswith(self.middle, end):
                return False
            end = _string_end(event, end + len(self.middle))
        return end >= 0 and end == len(event) - len(self.tail) and event.endswith(self.tail)


def learn(event: bytes, holes: re.Pattern[bytes]) -> Template | None:
    """Make a template of an event with one or two non-empty texts; None if it has none or more."""
    pieces: list[bytes] = []
    start = position = 0
    while (found := holes.search(event, position)) is not None:
        position = found.end()
        end = _string_end(event, position)
        if end < 0:
            return None
        if end > position:
            pieces.append(event[start:position])
            start = end
        position = end + 1
    if not pieces or len(pieces) > 2:
        return None
    return Template(pieces[0], pieces[1] if len(pieces) == 2 else b"", event[start:])


def _string_end(event: bytes, start: int) -> int:
    found = _STRING.match(event, start)
    return -1 if found is None else found.end() - 1


class EventReader:
    """Base of the stream readers: framing by `_end_of_event` and `_payload`, meaning by `apply`."""

    __slots__ = (
        "_head",
        "_head_size",
        "_middle",
        "_middle_size",
        "_pending",
        "_pending_applied",
        "_scanned",
        "_skipping",
        "_tail",
        "_tail_size",
        "_templates",
        "chunks",
        "started",
    )
    holes: re.Pattern[bytes] | None = None
    """Where the texts of an event begin; None switches the fast path off."""

    def __init__(self) -> None:
        self.started = False
        self.chunks = 0
        self._pending = bytearray()
        self._pending_applied = False
        self._scanned = 0
        self._skipping = False
        self._templates: list[Template] = []
        # An empty tuple is the prefix of nothing: no template, or an event is half read.
        self._head: bytes | tuple[()] = ()
        self._middle = self._tail = b""
        self._head_size = self._middle_size = self._tail_size = 0

    def feed(self, data: bytes) -> None:
        """Take the next bytes of the body. Never raises."""
        # The same as Template.fits, spelled out: this runs for each chunk in the caller's thread.
        if data.startswith(self._head):
            end = data.find(b'"', self._head_size)
            if self._middle:
                if data.startswith(self._middle, end):
                    end = data.find(b'"', end + self._middle_size)
                else:
                    end = -1
            if end == len(data) - self._tail_size and data.endswith(self._tail):
                self.chunks += 1
                return
            if self._templates[0].fits(data):  # an escaped quotation mark in a text
                self.chunks += 1
                return
        try:
            self._feed(data)
        except Exception:
            self._pending = bytearray()
            self._head = ()
            record_failure("read a stream")

    def result(self) -> ResponseFacts:
        """Return what has been learnt so far; callable at any time, more than once."""
        try:
            if self._pending and not self._pending_applied and not self._skipping:
                self._flush()
            return self.facts()
        except Exception:
            record_failure("read a stream")
            return NO_RESPONSE

    # --- what a dialect adds ---------------------------------------------------------------------
    def apply(self, payload: bytes) -> int:
        """Take the payload of one event; answer `TELLS` or `QUIET`."""
        raise NotImplementedError

    def is_payload(self, payload: bytes) -> bool:
        """Tell whether `payload` is a whole one (asked about the unfinished last event)."""
        return payload.rstrip().endswith((b"}", b"]"))

    def facts(self) -> ResponseFacts:
        """Return the facts learnt so far."""
        raise NotImplementedError

    # --- framing ---------------------------------------------------------------------------------
    def _end_of_event(self, buffer: bytes | bytearray, start: int) -> int:
        """Return the position after the event that ends at or after `start`, or -1."""
        raise NotImplementedError

    def _start_of_event(self, buffer: bytes | bytearray, position: int) -> int:
        """Pass over bytes between events."""
        return position

    def _payload(self, event: bytes) -> bytes | None:
        """Return an event's data, or None when it carries none."""
        raise NotImplementedError

    def _feed(self, data: bytes) -> None:
        pending = self._pending
        if pending:
            pending += data
            buffer: bytes | bytearray = pending
            scan = max(self._scanned - 3, 0)
        else:
            buffer = bytes(data)
            scan = 0
        position = 0
        while True:
            position = self._start_of_event(buffer, position)
            end = self._end_of_event(buffer, max(position, scan))
            if end < 0:
                break
            self._event(bytes(buffer[position:end]))
            position = end
        self._keep(buffer, position)

    def _keep(self, buffer: bytes | bytearray, position: int) -> None:
        rest = len(buffer) - position
        if self._skipping or rest > MAX_EVENT:
            self._skipping = True
            position = max(position, len(buffer) - 3)
        if isinstance(buffer, bytearray):
            del buffer[:position]
        else:
            self._pending = bytearray(buffer[position:])
        self._scanned = len(self._pending)
        self._select(self._templates[0] if self._templates and not self._pending else None)

    def _event(self, event: bytes) -> None:
        if self._skipping:
            self._skipping = False
            self.chunks += 1
            return
        if self._pending_applied:
            self._pending_applied = False
            return
        for position, template in enumerate(self._templates):
            if template.fits(event):
                self.chunks += 1
                if position:
                    self._templates.insert(0, self._templates.pop(position))
                return
        payload = self._payload(event)
        if payload is None:
            return
        self.chunks += 1
        if self.apply(payload) == QUIET and self.started and self.holes is not None:
            template = learn(event, self.holes)
            if template is not None:
                self._templates.insert(0, template)
                del self._templates[_KEPT_TEMPLATES:]

    def _flush(self) -> None:
        payload = self._payload(bytes(self._pending))
        if payload is not None and self.is_payload(payload):
            self.chunks += 1
            self.apply(payload)
            self._pending_applied = True

    def _select(self, template: Template | None) -> None:
        if template is None:
            self._head = ()
            return
        self._head, self._head_size = template.head, len(template.head)
        self._middle, self._middle_size = template.middle, len(template.middle)
        self._tail, self._tail_size = template.tail, len(template.tail)
