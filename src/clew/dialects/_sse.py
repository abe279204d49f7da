"""Server-sent events (https://html.spec.whatwg.org/multipage/server-sent-events.html)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from clew.dialects._stream import EventReader

_BOM: Final = b"\xef\xbb\xbf"
_LINE_END: Final = re.compile(rb"\r\n|\n|\r")
_BLANK_LINE: Final = re.compile(rb"(?:\r\n|\n|\r(?!\n))(?:\r\n|\n|\r(?!\n))")
_LINE_ENDS: Final = re.compile(rb"[\r\n]*+")
_TYPE_FIRST: Final = re.compile(rb'event: ?([a-z_.]++)\ndata: ?\{|data: ?\{"type": ?"([a-z_.]++)",')
_TYPE_LAST: Final = re.compile(rb"\nevent: ?([a-z_.]++)\n\n\Z")
_DONE: Final = b"[DONE]"
_NEW_LINE: Final = 10


class SseReader(EventReader):
    """Splits a body into server-sent events, wherever the pieces were cut."""

    __slots__ = ("_returns", "done")

    def __init__(self) -> None:
        super().__init__()
        self.done = False
        """True once the closing `[DONE]` was seen."""
        self._returns = False

    def _feed(self, data: bytes) -> None:
        if not self._returns and b"\r" in data:
            self._returns = True
        super()._feed(data)

    def _is_event(self, data: bytes) -> bool:
        return (
            not self._returns and data.find(b"\n\n") == len(data) - 2 > 0 and data[0] != _NEW_LINE
        )

    def _end_of_event(self, buffer: bytes | bytearray, start: int) -> int:
        if not self._returns:
            end = buffer.find(b"\n\n", start)
            return -1 if end < 0 else end + 2
        found = _BLANK_LINE.search(buffer, start)
        return -1 if found is None else found.end()

    def _start_of_event(self, buffer: bytes | bytearray, position: int) -> int:
        found = _LINE_ENDS.match(buffer, position)
        return position if found is None else found.end()

    def _payload(self, event: bytes) -> bytes | None:
        payload = None
        if not self._returns:
            lines = event.count(b"\n")
            if lines == 2 and event.startswith(b"data:"):
                payload = event[5:]
            elif lines == 3 and event.startswith(b"event:"):
                at = event.find(b"\ndata:")
                payload = event[at + 6 :] if at > 0 else None
        if payload is None:
            payload = _data(event)
        if payload is not None and payload.strip() == _DONE:
            self.done = True
            return None
        return payload


class TypedReader(SseReader):
    """For dialects whose events say by their type that they carry generated output only.

    The type stands in the `event` field, else first in the data. What is known of one such event
    is its bytes up to the type and, where the field comes last, the bytes from there on.
    """

    __slots__ = ("_typed_head", "_typed_size", "_typed_tail", "_typed_tail_size")
    quiet_types: frozenset[bytes] = frozenset()
    """Types of events that never say anything but output."""

    def __init__(self) -> None:
        super().__init__()
        self._typed_head: bytes | tuple[()] = ()
        self._typed_size = self._typed_tail_size = 0
        self._typed_tail = b""

    def _is_quiet(self, event: bytes) -> bool:
        if not self.started or b"\r" in event:
            return False
        found = _TYPE_FIRST.match(event)
        if found is not None:
            head, size, tail, kind = found[0], found.end(), b"\n\n", found[1] or found[2]
        else:
            found = _TYPE_LAST.search(event)
            if found is None:
                return False
            head, size, tail, kind = b"data:", 5, found[0], found[1]
        if kind not in self.quiet_types or event.find(b"\n", size) != len(event) - len(tail):
            return False
        self._typed_head, self._typed_size = head, size
        self._typed_tail, self._typed_tail_size = tail, len(tail)
        return event.startswith(head)

    def _learn(self, event: bytes, *, latest_counts: bool) -> None:
        if not self._is_quiet(event):  # else its type is all there is to learn
            super()._learn(event, latest_counts=latest_counts)

    def _quiet_form(self) -> tuple[bytes, bytes] | None:
        if not self._typed_head:
            return super()._quiet_form()
        return self._typed_head, self._typed_tail

    def _are_inside(self, texts: Sequence[bytes]) -> bool:
        if not self._typed_head:
            return super()._are_inside(texts)
        said = b"".join(texts)
        return b"\n" not in said and b"\r" not in said

    def _skim(self, buffer: bytes | bytearray, position: int) -> int:
        head, tail = self._typed_head, self._typed_tail
        if not self._returns:
            while buffer.startswith(head, position):
                end = buffer.find(b"\n", position + self._typed_size)
                if end < 0 or not buffer.startswith(tail, end):
                    break
                position = end + self._typed_tail_size
                self.chunks += 1
        return super()._skim(buffer, position)


def _data(event: bytes) -> bytes | None:
    if event.startswith(_BOM):
        event = event[3:]
    lines = [line[5:] for line in _LINE_END.split(event) if line.startswith(b"data:")]
    if lines:
        return b"\n".join(lines)
    # Not an event by the specification, but an error body sent under this content type is one.
    return event if event.lstrip().startswith(b"{") else None
