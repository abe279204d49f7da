"""Reading events of a stream as they arrive, cheaply.

An event that a template knows to say nothing new (see `_template`) is only counted. Every other
one is parsed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter, methodcaller
from typing import Final

import msgspec

from clew._guard import record_failure
from clew._json_text import are_inside, some_text_of
from clew.dialects._template import Holes, Template, learn
from clew.facts import NO_RESPONSE, ResponseFacts

MAX_EVENT: Final = 8 * 1024 * 1024
"""Events larger than this many bytes are passed over, not kept."""

_KEPT_TEMPLATES: Final = 4
_MAX_WASTED: Final = 8
"""Templates learnt in a row for nothing, before it is given up for the rest of the stream."""

_FEW: Final = 4
_MAX_MISSES: Final = 16
"""Small lots in a row that were not one quiet event a piece, before that is looked for no more."""

_WHOLE: Final = msgspec.json.Decoder(msgspec.Raw)

_NO_OUTPUT: Final = frozenset((b"obfuscation", b"p", b"signature", b"event_id"))
"""Keys of texts that are no output: padding, and what providers add for themselves."""

TELLS: Final = 0
"""`apply` answers: the event said something; the next one like it must be parsed too."""
QUIET: Final = 1
"""`apply` answers: another event that differs in its holes only would say nothing new."""
COUNTS: Final = 2
"""`apply` answers: of the next events like it, the last one reports all that the others do."""


class EventReader:
    """Base of the stream readers: framing by `_end_of_event` and `_payload`, meaning by `apply`."""

    __slots__ = (
        "_hits",
        "_latest",
        "_misses",
        "_parsed",
        "_pending",
        "_pending_applied",
        "_scanned",
        "_skipping",
        "_templates",
        "_wasted",
        "chunks",
        "started",
    )
    holes: Holes | None = None
    """What may change in an event that says nothing new; None switches the fast path off."""

    def __init__(self) -> None:
        self.started = False
        self.chunks = 0
        self._pending = bytearray()
        self._pending_applied = False
        self._scanned = 0
        self._skipping = False
        self._templates: list[Template] = []
        self._parsed = self._hits = self._wasted = 0
        self._latest: bytes | None = None
        self._misses = 0

    def feed(self, data: bytes) -> None:
        """Take the next bytes of the body. Never raises."""
        try:
            self._feed(data)
        except Exception:
            self._pending = bytearray()
            record_failure("read a stream")

    def feed_all(self, whole: bytes, pieces: Sequence[bytes], *, last: bool = False) -> None:
        """Take the next bytes of the body. Never raises.

        Args:
            whole: the bytes.
            pieces: the same as they came. Where each is one event, as most servers send them, they
                are looked at all together.
            last: whether the body ends with them: then the last few say more than those before.
        """
        try:
            if last and len(pieces) > 2 * _FEW:
                ending = pieces[-_FEW:]
                self.feed_all(whole[: -sum(map(len, ending))], pieces[:-_FEW])
                for piece in ending:
                    self.feed(piece)
                return
            if self._take_quiet(whole, pieces):
                return
        except Exception:
            record_failure("read a stream")
        self.feed(whole)

    @classmethod
    def shows_output(cls) -> Callable[[bytes], object] | None:
        """Return what finds output in the first bytes of a body, without reading them."""
        return None if cls.holes is None else some_text_of(cls.holes.texts - _NO_OUTPUT).search

    def result(self) -> ResponseFacts:
        """Return what has been learnt so far; callable at any time, more than once."""
        try:
            self._settle()
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

    def facts(self) -> ResponseFacts:
        """Return the facts learnt so far."""
        raise NotImplementedError

    def _is_quiet(self, event: bytes) -> bool:
        """Tell from the bytes of an event that it says nothing new, without a template."""
        return False

    def _quiet_form(self) -> tuple[bytes, bytes] | None:
        """Return what an event that says nothing new begins and ends with, where one is known."""
        template = self._templates[0] if self._templates else None
        if template is None or template.texts is None or template.texts[0]:
            return None
        return template.head, template.texts[1]

    def _are_inside(self, texts: Sequence[bytes]) -> bool:
        """Tell whether what stands between head and tail of such events is text and no more."""
        return are_inside(texts)

    # --- framing ---------------------------------------------------------------------------------
    def _end_of_event(self, buffer: bytes | bytearray, start: int) -> int:
        """Return the position after the event that ends at or after `start`, or -1."""
        raise NotImplementedError

    def _start_of_event(self, buffer: bytes | bytearray, position: int) -> int:
        """Return where the next event begins, past the bytes between events."""
        raise NotImplementedError

    def _payload(self, event: bytes) -> bytes | None:
        """Return an event's data, or None when it carries none."""
        raise NotImplementedError

    def _is_event(self, data: bytes) -> bool:
        """Tell whether bytes surely are one event, and nothing else."""
        return False

    def _feed(self, data: bytes) -> None:
        pending = self._pending
        if not pending and self._is_event(data):
            self._event(bytes(data))
            return
        if pending:
            pending += data
            buffer: bytes | bytearray = pending
            scan = max(self._scanned - 3, 0)
        else:
            buffer = bytes(data)
            scan = 0
        position = 0
        while True:
            if not (self._skipping or self._pending_applied):
                position = self._skim(buffer, position)
            position = self._start_of_event(buffer, position)
            end = self._end_of_event(buffer, max(position, scan))
            if end < 0:
                break
            self._event(bytes(buffer[position:end]))
            position = end
        self._keep(buffer, position)

    def _skim(self, buffer: bytes | bytearray, position: int) -> int:
        """Pass over the events from `position` on that the last template knows, counting them."""
        template = self._templates[0] if self._templates else None
        if template is None or template.texts is None:
            return position
        head, (middle, tail) = template.head, template.texts
        head_size, middle_size, tail_size = len(head), len(middle), len(tail)
        last = -1
        while buffer.startswith(head, position):
            end = buffer.find(b'"', position + head_size)
            if middle:
                if not buffer.startswith(middle, end):
                    break
                end = buffer.find(b'"', end + middle_size)
            if end < 0 or not buffer.startswith(tail, end):
                break
            last, position = position, end + tail_size
            self.chunks += 1
        if last >= 0:
            self._latest = bytes(buffer[last:position])
        return position

    def _take_quiet(self, whole: bytes, pieces: Sequence[bytes]) -> bool:
        """Take pieces that are one event each, as most do; False where that is not looked for."""
        if self._pending or self._skipping or self._misses >= _MAX_MISSES:
            return False
        form = self._quiet_form()
        if form is None:
            self._take_parts(pieces, _FEW)  # there is something to learn from the first
            return True
        head, tail = form
        texts = [*map(itemgetter(slice(len(head), -len(tail))), pieces)]
        # As long as they have to be only if each piece is as long as its own head, text and tail.
        told = b"".join((head, (tail + head).join(texts), tail))
        if told != whole or not self._are_inside(texts):
            self._take_parts(pieces, _alike(head, pieces))
            return True
        self._misses = 0
        self.chunks += len(pieces)
        self._latest = bytes(pieces[-1])
        return True

    def _take_parts(self, pieces: Sequence[bytes], size: int) -> None:
        """Take the first pieces together and then the rest; each by itself where there are few."""
        if len(pieces) <= _FEW:
            self._misses += 1
            for piece in pieces:
                self.feed(piece)
            return
        for part in (pieces[:size], pieces[size:]):
            if len(part) > 1:
                self.feed_all(b"".join(part), part)
            else:
                self.feed(part[0])

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

    def _event(self, event: bytes) -> None:
        if self._skipping:
            self._skipping = False
            self.chunks += 1
            return
        if self._pending_applied:
            self._pending_applied = False
            return
        if self._is_quiet(event):
            self.chunks += 1
            return
        for position, template in enumerate(self._templates):
            if event.startswith(template.head) and template.fits(event):
                if position:
                    self._settle()
                    self._templates.insert(0, self._templates.pop(position))
                self.chunks += 1
                self._latest = event
                return
        self._settle()
        payload = self._payload(event)
        if payload is None:
            return
        self.chunks += 1
        self._parsed += 1
        answer = self.apply(payload)
        if answer and self.started:
            self._learn(event, latest_counts=answer == COUNTS)

    def _learn(self, event: bytes, *, latest_counts: bool) -> None:
        if self.holes is None or self._wasted >= _MAX_WASTED:
            return
        hits = self.chunks - self._parsed
        self._wasted = self._wasted + 1 if hits == self._hits else 0
        self._hits = hits
        template = learn(event, self.holes, self._templates, latest_counts=latest_counts)
        if template is None:
            return
        self._templates.insert(0, template)
        del self._templates[_KEPT_TEMPLATES:]

    def _settle(self) -> None:
        """Read the last of the events that were only counted, if it reports counts."""
        latest, self._latest = self._latest, None
        if latest is not None and self._templates and self._templates[0].latest_counts:
            payload = self._payload(latest)
            if payload is not None:
                self.apply(payload)

    def _flush(self) -> None:
        """Read an event at the end that lacks only what would have ended it."""
        payload = self._payload(bytes(self._pending))
        if payload is not None and _is_whole(payload):
            self.chunks += 1
            self.apply(payload)
            self._pending_applied = True


def _alike(head: bytes, pieces: Sequence[bytes]) -> int:
    """Return how many of the first pieces begin alike; half of all, where that is not many."""
    begin_so = [*map(methodcaller("startswith", head), pieces)]
    number = begin_so.index(False) if False in begin_so else 0
    return number if number > _FEW else len(pieces) // 2


def _is_whole(payload: bytes) -> bool:
    """Tell whether an event that has not ended has all of its data."""
    try:
        _WHOLE.decode(payload)
    except (ValueError, RecursionError):
        return False
    return True
