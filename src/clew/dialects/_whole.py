"""A streamed answer was asked for and a whole body came: read it when it has ended."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from clew._guard import record_failure
from clew.facts import NO_RESPONSE, ResponseFacts
from clew.typing import Dialect, Route, StreamReader

MAX_BODY: Final = 16 * 1024 * 1024
"""Bodies larger than this many bytes are not kept."""


def is_json(content_type: str) -> bool:
    """Tell whether a content type is JSON in one piece (not JSON lines)."""
    kind = content_type.partition(";")[0].strip().lower()
    return kind == "application/json" or (kind.endswith("+json") and "stream" not in kind)


class WholeBodyReader:
    """Keeps a body up to a bound and reads it with the dialect's `response`.

    Some servers send events under the content type of JSON: their first byte tells.
    """

    __slots__ = ("_body", "_dialect", "_events", "_reader", "_route", "chunks", "started")

    def __init__(
        self, dialect: Dialect, route: Route, reader: Callable[[Route], StreamReader]
    ) -> None:
        self.started = False
        self.chunks = 0
        self._body: bytearray | None = bytearray()
        self._dialect = dialect
        self._route = route
        self._reader = reader
        self._events: StreamReader | None = None

    def feed(self, data: bytes) -> None:
        """Take the next bytes of the body. Never raises."""
        if self._events is not None:
            self._events.feed(data)
            self.chunks, self.started = self._events.chunks, self._events.started
            return
        body = self._body
        if body is None:
            return
        if len(body) + len(data) > MAX_BODY:
            self._body = None
            return
        body += data
        if not self.started:
            first = bytes(body[:256]).lstrip()[:1]
            self.started = bool(first)
            if first in (b"d", b"e", b":"):
                self._events = self._reader(self._route)
                self._body = None
                self.feed(bytes(body))

    def result(self) -> ResponseFacts:
        """Return what has been learnt so far; callable at any time, more than once."""
        if self._events is not None:
            return self._events.result()
        if not self._body:
            return NO_RESPONSE
        try:
            return self._dialect.response(bytes(self._body), 200, self._route)
        except Exception:
            record_failure("read a response")
            return NO_RESPONSE
