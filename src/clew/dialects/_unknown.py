"""A path nobody knows on a host that serves models: status and timing, nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from clew.dialects._errors import error_body
from clew.facts import RequestFacts, ResponseFacts
from clew.typing import Route, StreamReader


class UnknownReader:
    """Counts what arrives."""

    __slots__ = ("chunks", "started")

    def __init__(self) -> None:
        self.started = False
        self.chunks = 0

    def feed(self, data: bytes) -> None:
        """Take the next bytes of the body. Never raises."""
        self.chunks += 1

    def result(self) -> ResponseFacts:
        """Return no facts: whether such a stream was complete cannot be told."""
        return ResponseFacts()


class Unknown:
    """Reads nothing but an error's type and code."""

    name = "unknown"

    def request(self, body: bytes, route: Route) -> RequestFacts:
        """Return what the route says."""
        return RequestFacts(model=route.model, stream=route.stream)

    def response(
        self, body: bytes, status: int, route: Route, headers: Mapping[str, str] | None = None
    ) -> ResponseFacts:
        """Return an error's type and code, if there is one."""
        return ResponseFacts(error=error_body(body, status))

    def stream(self, route: Route, content_type: str) -> StreamReader:
        """Return a reader that counts."""
        return UnknownReader()


unknown: Final = Unknown()
