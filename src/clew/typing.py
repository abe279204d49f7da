"""The protocols between the floors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol, runtime_checkable

from clew.facts import RequestFacts, ResponseFacts


class Route(NamedTuple):
    """A recognised model endpoint: what a method and a path stand for."""

    dialect: Dialect
    operation: str
    """`chat`, `generate_content`, `embeddings`, ...; `unknown` on a known host only."""
    provider: str | None
    """`gen_ai.provider.name` if the host or the path tells it, else None."""
    model: str | None = None
    """The model or deployment named in the path, percent-decoded."""
    stream: bool = False
    """True when the path itself asks for a streamed answer."""


@runtime_checkable
class StreamReader(Protocol):
    """Reads one streamed response, in whatever pieces it arrives."""

    started: bool
    """True once generated output of any kind (text, reasoning, tool call) was seen."""
    chunks: int
    """How many events the stream has carried so far."""

    def feed(self, data: bytes) -> None:
        """Take the next bytes of the (decompressed) body. Never raises."""
        ...

    def result(self) -> ResponseFacts:
        """Return what has been learnt so far; callable at any time, more than once."""
        ...


class Dialect(Protocol):
    """What one wire format means: bytes in, facts out. Pure, without spans or I/O."""

    name: str

    def request(self, body: bytes, route: Route) -> RequestFacts:
        """Read a request body. Any bytes give facts, never an exception."""
        ...

    def response(
        self, body: bytes, status: int, route: Route, headers: Mapping[str, str] | None = None
    ) -> ResponseFacts:
        """Read a whole response body. Any bytes give facts, never an exception.

        `headers` are the response's, under any spelling of their names; some providers put an
        error's type or token counts there.
        """
        ...

    def stream(self, route: Route, content_type: str) -> StreamReader:
        """Return a reader for a streamed answer of this dialect."""
        ...
