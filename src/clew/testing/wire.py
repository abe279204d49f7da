"""What a wire format is to the scripted provider; one file of this package for each."""

from __future__ import annotations

from typing import Any, Protocol, cast

from clew.testing.loopback import ReceivedRequest
from clew.testing.script import Reply, ScriptedError


class WireFormat(Protocol):
    """How one provider API writes its answers."""

    stream_type: str = "text/event-stream; charset=utf-8"
    """Media type of a streamed answer."""

    def matches(self, method: str, path: str) -> bool:
        """Tell whether a request belongs to this API; `path` comes without its query."""
        ...

    def headers(self, number: int) -> dict[str, str]:
        """Return the headers that this provider sends with every answer."""
        ...

    def streams(self, request: ReceivedRequest) -> bool:
        """Tell whether the answer to a request is streamed; by its body's `stream`, if not told."""
        return asks_for_stream(request)

    def body(self, reply: Reply, request: ReceivedRequest) -> dict[str, Any]:
        """Return the body of a plain answer."""
        ...

    def events(self, reply: Reply, request: ReceivedRequest) -> list[bytes]:
        """Return the events of a streamed answer, framed."""
        ...

    def error_headers(self, error: ScriptedError, status: int) -> dict[str, str]:
        """Return the headers that come with an error besides the others; most have none."""
        return {}

    def error_body(self, error: ScriptedError, status: int, number: int) -> dict[str, Any]:
        """Return the body of an error."""
        ...

    def error_event(self, error: ScriptedError, number: int) -> bytes:
        """Return the event by which a stream tells of an error, framed."""
        ...


def asks_for_stream(request: ReceivedRequest) -> bool:
    """Tell whether the request's body asks for a streamed answer."""
    return requested(request, "stream") is True


def requested(request: ReceivedRequest, *keys: str) -> Any:
    """Return the field at the path `keys` of the request's JSON body; None if it has none."""
    try:
        value = request.json()
    except ValueError:
        return None
    for key in keys:
        value = cast("dict[str, Any]", value).get(key) if isinstance(value, dict) else None
    return value
