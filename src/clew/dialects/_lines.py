"""Streams of JSON lines (`application/x-ndjson`, `application/stream+json`)."""

from __future__ import annotations

import re
from typing import Final

from clew.dialects._stream import EventReader

_BLANK: Final = re.compile(rb"\s*+")


class LinesReader(EventReader):
    """Splits a body into its lines, wherever the pieces were cut."""

    __slots__ = ()

    def _start_of_event(self, buffer: bytes | bytearray, position: int) -> int:
        found = _BLANK.match(buffer, position)
        return position if found is None else found.end()

    def _end_of_event(self, buffer: bytes | bytearray, start: int) -> int:
        return buffer.find(b"\n", start) + 1 or -1

    def _payload(self, event: bytes) -> bytes | None:
        # Cohere and some proxies write the same objects as server-sent events.
        if event.startswith(b"data:"):
            event = event[5:]
        start = event.find(b"{")
        return None if start < 0 else event[start:]
