"""A streamed body cut into its events, as bytes that stay what they are until one is changed."""

from __future__ import annotations

import json
import re
from typing import Any, Final

_BLANK: Final = re.compile(rb"(?:\r\n|\n|\r(?!\n))(?:\r\n|\n|\r(?!\n))")
_LINES: Final = re.compile(rb"[^\r\n]*(?:\r\n|\n|\r|\Z)")
_DONE: Final = b"[DONE]"
_BOM: Final = b"\xef\xbb\xbf"


class Frame:
    """One event of a stream."""

    __slots__ = ("_sse", "changed", "document", "raw", "text")

    def __init__(self, raw: bytes, *, sse: bool) -> None:
        self.raw = raw
        """The event as it came, the line end behind it included."""
        self._sse = sse
        self.changed = False
        """Set by who has changed the document."""
        self.document: Any = None
        """The JSON that it carries: an object, an array, or None."""
        self.text: str | None = None
        """What it carries instead."""
        data = _data(raw) if sse else raw.strip()
        if data and data != _DONE:
            try:
                self.document = json.loads(data)
            except (ValueError, RecursionError):
                self.document = None
            if not isinstance(self.document, (dict, list)):
                self.document = None
                self.text = data.decode("utf-8", "replace")

    def bytes(self) -> bytes:
        """Return the event, written anew if its document was changed."""
        if not self.changed:
            return self.raw
        # ASCII: a surrogate that a provider has cut off its other half stays what it was.
        data = json.dumps(self.document, separators=(",", ":")).encode("ascii")
        if not self._sse:
            return data + self.raw[len(self.raw.rstrip()) :]
        lines: list[bytes] = []
        for line in _LINES.findall(self.raw.removeprefix(_BOM)):
            if not line.startswith(b"data:"):
                lines.append(line)
            elif data:
                lines.append(b"data: " + data + line[len(line.rstrip(b"\r\n")) :])
                data = b""
        return b"".join(lines)


def _data(event: bytes) -> bytes:
    lines = event.removeprefix(_BOM).splitlines()
    data = [line[5:].removeprefix(b" ") for line in lines if line.startswith(b"data:")]
    return b"\n".join(data).strip()


class Frames:
    """Cuts a body into its events, wherever the pieces were cut. Nothing is lost or added.

    Args:
        sse: whether it has server-sent events; else each line is one.
    """

    __slots__ = ("_looked", "_pending", "_sse")

    def __init__(self, *, sse: bool) -> None:
        self._sse = sse
        self._pending = bytearray()
        self._looked = 0

    def feed(self, data: bytes) -> list[Frame]:
        """Take the next bytes; return the events that are complete."""
        pending = self._pending
        pending += data
        start = 0
        found: list[Frame] = []
        while (end := self._end(start)) > 0:
            found.append(Frame(bytes(pending[start:end]), sse=self._sse))
            start = self._looked = end
        del pending[:start]
        self._looked = max(0, len(pending) - 4)
        return found

    def end(self) -> list[Frame]:
        """Return what is left when the body has ended: an event without its end, or none."""
        left = self.rest()
        return [Frame(left, sse=self._sse)] if left else []

    def rest(self) -> bytes:
        """Return the bytes of an event that has not ended, and forget them."""
        left = bytes(self._pending)
        self._pending.clear()
        self._looked = 0
        return left

    def _end(self, start: int) -> int:
        looked = max(start, self._looked)
        if not self._sse:
            return self._pending.find(b"\n", looked) + 1
        found = _BLANK.search(self._pending, looked)
        return -1 if found is None else found.end()


def framing(content_type: str) -> bool | None:
    """Tell whether a media type is of server-sent events, or of lines; None for anything else."""
    if content_type == "text/event-stream":
        return True
    if content_type in ("application/x-ndjson", "application/ndjson", "application/jsonl"):
        return False
    return None
