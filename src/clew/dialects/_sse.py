"""Server-sent events (https://html.spec.whatwg.org/multipage/server-sent-events.html)."""

from __future__ import annotations

import re
from typing import Final

from clew.dialects._stream import EventReader

_BOM: Final = b"\xef\xbb\xbf"
_LINE_END: Final = re.compile(rb"\r\n|\n|\r")
_BLANK_LINE: Final = re.compile(rb"(?:\r\n|\n|\r(?!\n))(?:\r\n|\n|\r(?!\n))")
_LINE_ENDS: Final = re.compile(rb"[\r\n]*+")
DONE: Final = b"[DONE]"


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
        if not self._returns and event.startswith(b"data:") and event.count(b"\n") == 2:
            payload = event[5:]
        else:
            payload = _data(event)
        if payload is not None and payload.strip() == DONE:
            self.done = True
            return None
        return payload


def _data(event: bytes) -> bytes | None:
    if event.startswith(_BOM):
        event = event[3:]
    lines = [line[5:] for line in _LINE_END.split(event) if line.startswith(b"data:")]
    if lines:
        return b"\n".join(lines)
    # Not an event by the specification, but an error body sent under this content type is one.
    return event if event.lstrip().startswith(b"{") else None
