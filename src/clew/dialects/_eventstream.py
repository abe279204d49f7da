"""Amazon's event stream encoding (`application/vnd.amazon.eventstream`).

https://docs.aws.amazon.com/transcribe/latest/dg/streaming-setting-up.html#streaming-event-stream:
a frame is total length, header length, a checksum of these, headers, payload, a checksum of all.
"""

from __future__ import annotations

import struct
from typing import Final

from clew.dialects._stream import MAX_EVENT, TELLS, EventReader
from clew.facts import ErrorFacts

_PRELUDE: Final = struct.Struct(">II")
_STRING: Final = 7
_SIZES: Final = {0: 0, 1: 0, 2: 1, 3: 2, 4: 4, 5: 8, 8: 8, 9: 16}
"""Sizes of header values by type; strings and byte arrays carry their own."""


def headers_of(data: bytes) -> dict[str, str]:
    """Return the string headers of a frame; what cannot be read ends them."""
    found: dict[str, str] = {}
    position = 0
    while position + 2 <= len(data):
        start = position + 1
        position = start + data[position]
        name = data[start:position].decode("utf-8", "replace")
        if position >= len(data):
            break
        kind = data[position]
        position += 1
        size = _SIZES.get(kind)
        if size is None:
            size = int.from_bytes(data[position : position + 2], "big")
            position += 2
            if kind == _STRING:
                found[name] = data[position : position + size].decode("utf-8", "replace")
        position += size
    return found


class EventStreamReader(EventReader):
    """Splits a body into frames. A dialect reads them with `frame`."""

    __slots__ = ("_frame_head", "_frame_size", "error")

    def __init__(self) -> None:
        super().__init__()
        self.error: ErrorFacts | None = None
        """An exception sent inside the stream."""
        # The bytes from the header length to where an uneventful payload may begin to differ.
        self._frame_head: bytes | tuple[()] = ()
        self._frame_size = b""

    def frame(self, kind: str, payload: bytes) -> bytes | None:
        """Take one event; answer with what it begins with if all that begin so say nothing new."""
        raise NotImplementedError

    def _start_of_event(self, buffer: bytes | bytearray, position: int) -> int:
        return position

    def _end_of_event(self, buffer: bytes | bytearray, start: int) -> int:
        # A frame tells its own length, so `start` (where to look for an end) is not needed.
        raise NotImplementedError

    def _feed(self, data: bytes) -> None:
        pending = self._pending
        pending += data
        position = 0
        while len(pending) - position >= 16:
            total, head = _PRELUDE.unpack_from(pending, position)
            if total < 16 or head > total - 16 or total > MAX_EVENT:
                # Not a frame, or none that is worth keeping: there is no way to find the next.
                self._skipping = True
            if self._skipping:
                position = len(pending)
                break
            if len(pending) - position < total:
                break
            self._frame(bytes(pending[position : position + total]), head)
            position += total
        del pending[:position]
        if self._skipping:
            pending.clear()

    def _frame(self, data: bytes, head: int) -> None:
        self.chunks += 1
        if data.startswith(self._frame_head, 12) and data[4:8] == self._frame_size:
            return
        headers = headers_of(data[12 : 12 + head])
        payload = data[12 + head : -4]
        exception = headers.get(":exception-type") or headers.get(":error-code")
        if exception is not None:
            self.error = ErrorFacts(exception, None)
            return
        begins = self.frame(headers.get(":event-type", ""), payload)
        if begins is not None and self.started and payload.startswith(begins):
            self._frame_head = data[12 : 12 + head] + begins
            self._frame_size = data[4:8]

    def _flush(self) -> None:
        """An unfinished frame says nothing."""

    def apply(self, payload: bytes) -> int:
        """Frames come by `frame`."""
        return TELLS

    def _payload(self, event: bytes) -> bytes | None:
        return None
