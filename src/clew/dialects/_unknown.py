"""A path nobody knows on a host that serves models: status and timing, nothing else."""

from __future__ import annotations

from typing import Final

from clew.dialects._dialect import Answer, WireDialect
from clew.facts import RequestFacts, ResponseFacts
from clew.typing import Route


class UnknownReader:
    """Counts what arrives; whether such a stream was complete cannot be told."""

    __slots__ = ("chunks", "started")

    def __init__(self) -> None:
        self.started = False
        self.chunks = 0

    def feed(self, data: bytes) -> None:
        """Take the next bytes of the body. Never raises."""
        self.chunks += 1 if data else 0

    def result(self) -> ResponseFacts:
        """Return no facts."""
        return ResponseFacts()


def route_request(_body: bytes, route: Route) -> RequestFacts:
    """Return what the route says."""
    return RequestFacts(model=route.model, stream=route.stream)


def no_response(_answer: Answer) -> ResponseFacts:
    """Return no facts (an error's type and code are read for every dialect alike)."""
    return ResponseFacts()


unknown: Final = WireDialect(
    "unknown", route_request, no_response, lambda _: UnknownReader(), lambda _: UnknownReader()
)
