"""A dialect put together from the functions that read its parts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from msgspec import Struct

from clew._guard import record_failure
from clew.dialects._errors import error_body
from clew.dialects._stream import EventReader
from clew.dialects._whole import WholeBodyReader, is_json
from clew.facts import NO_RESPONSE, RequestFacts, ResponseFacts
from clew.typing import Route, StreamReader


class Answer(Struct, frozen=True, gc=False):
    """A whole response, as a dialect reads it."""

    body: bytes
    status: int
    route: Route
    headers: Mapping[str, str] | None = None

    def header(self, name: str) -> str | None:
        """Return a header by its lower-case name, however it was spelled."""
        if not self.headers:
            return None
        value = self.headers.get(name)
        if value is None:
            value = next((self.headers[key] for key in self.headers if key.lower() == name), None)
        return value


_TYPES_KEPT: Final = 16
_ERROR: Final = b'"error"'
_NO_ERROR: Final = (b'"error":null', b'"error": null')


class WireDialect:
    """One wire format. The functions it is made of may raise; it does not.

    Args:
        name: the dialect's name.
        request: reads a request body.
        response: reads a whole response body.
        reader: makes a reader for a streamed answer.
        json_reader: the same for one that comes as JSON.
        names_errors: whether every answer that has failed has a field `error`.
        conversation: the member of a request that each request adds to (see `Dialect`).
    """

    __slots__ = (
        "_json_reader",
        "_names_errors",
        "_reader",
        "_request",
        "_response",
        "_shown",
        "conversation",
        "name",
    )

    def __init__(
        self,
        name: str,
        request: Callable[[bytes, Route], RequestFacts],
        response: Callable[[Answer], ResponseFacts],
        reader: Callable[[Route], StreamReader],
        json_reader: Callable[[Route], StreamReader] | None = None,
        *,
        names_errors: bool = False,
        conversation: str | None = None,
    ) -> None:
        self.name = name
        self.conversation = conversation
        self._request = request
        self._response = response
        self._reader = reader
        self._json_reader = json_reader
        self._names_errors = names_errors
        self._shown: dict[str, Callable[[bytes], object] | None] = {}

    def request(self, body: bytes, route: Route) -> RequestFacts:
        """Read a request body. Any bytes give facts, never an exception."""
        try:
            return self._request(body, route)
        except Exception:
            record_failure("read a request")
            return RequestFacts(model=route.model, stream=route.stream)

    def response(
        self, body: bytes, status: int, route: Route, headers: Mapping[str, str] | None = None
    ) -> ResponseFacts:
        """Read a whole response body. Any bytes give facts, never an exception."""
        answer = Answer(body, status, route, headers)
        try:
            if status >= 400:
                return ResponseFacts(error=error_body(body, answer.header("x-amzn-errortype")))
            return self._response(answer)
        except Exception:
            record_failure("read a response")
            return NO_RESPONSE

    def may_wait(self, body: bytes) -> bool:
        """Tell whether an answer with a status of success surely is none that has failed."""
        if not self._names_errors:
            return False
        if _ERROR not in body:
            return True
        return body.count(_ERROR) == sum(map(body.count, _NO_ERROR))

    def stream(self, route: Route, content_type: str) -> StreamReader:
        """Return a reader for a streamed answer of this dialect."""
        if not is_json(content_type):
            return self._reader(route)
        if self._json_reader is not None:
            return self._json_reader(route)
        return WholeBodyReader(self, route, self._reader)

    def shows_output(self, route: Route, content_type: str) -> Callable[[bytes], object] | None:
        """Return what finds output in the first bytes of a streamed answer, without reading them.

        None where that cannot be told. Where it finds any, `started` is true once they are read.
        """
        try:
            return self._shown[content_type]
        except KeyError:
            reader = self.stream(route, content_type)
            found = reader.shows_output() if isinstance(reader, EventReader) else None
            if len(self._shown) < _TYPES_KEPT:
                self._shown[content_type] = found
            return found

    def __repr__(self) -> str:
        return f"<dialect {self.name}>"
