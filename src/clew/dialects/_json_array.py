"""A stream that is one JSON array, its objects written as they come."""

from __future__ import annotations

import re
from typing import Final

from clew.dialects._stream import EventReader

_TOKEN: Final = re.compile(rb'["{}]')
_INSIDE: Final = re.compile(rb'[^"\\]*+(?:\\.[^"\\]*+)*+', re.DOTALL)
_BLANK: Final = re.compile(rb"\s*+")
_AFTER: Final = re.compile(rb"[\s,\]]*+")


class JsonArrayReader(EventReader):
    """Splits an array into its objects, wherever the pieces were cut.

    What separates objects (brackets, commas, line ends) belongs to the event that follows, line
    ends also to the one before. Also reads a single object, as an error body is.
    """

    __slots__ = ("_at", "_depth", "_in_string")

    def __init__(self) -> None:
        super().__init__()
        self._at = 0
        self._depth = 0
        self._in_string = False

    def _start_of_event(self, buffer: bytes | bytearray, position: int) -> int:
        self._at = max(self._at, position)
        if self._depth or self._in_string:
            return position
        after = _AFTER.match(buffer, position)
        # Nothing but what follows the last object: no event begins here.
        return len(buffer) if after is not None and after.end() == len(buffer) else position

    def _end_of_event(self, buffer: bytes | bytearray, start: int) -> int:
        position = self._at
        while True:
            if self._in_string:
                inside = _INSIDE.match(buffer, position)
                position = inside.end() if inside is not None else position
                if not buffer.startswith(b'"', position):
                    break
                self._in_string = False
                position += 1
                continue
            token = _TOKEN.search(buffer, position)
            if token is None:
                position = len(buffer)
                break
            position = token.end()
            if token[0] == b'"':
                self._in_string = True
            elif token[0] == b"{":
                self._depth += 1
            elif self._depth <= 1:
                self._depth = 0
                blank = _BLANK.match(buffer, position)
                self._at = blank.end() if blank is not None else position
                return self._at
            else:
                self._depth -= 1
        self._at = position
        return -1

    def _skim(self, buffer: bytes | bytearray, position: int) -> int:
        end = super()._skim(buffer, position)
        if end != position:
            self._at, self._depth, self._in_string = end, 0, False
        return end

    def _keep(self, buffer: bytes | bytearray, position: int) -> None:
        before = len(buffer)
        super()._keep(buffer, position)
        self._at = max(self._at - (before - len(self._pending)), 0)

    def _payload(self, event: bytes) -> bytes | None:
        start = event.find(b"{")
        return None if start < 0 else event[start:]
