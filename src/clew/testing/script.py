"""What a scripted provider says: replies, without any provider's format.

    Reply(text="Hello")                                        an answer
    Reply(tool_calls=(ScriptedToolCall(name="find", arguments={"id": 7}),))
    Reply.failure(429, retry_after_ms=20)                      an error in the provider's shape
    Reply.verbatim(b"not json", content_type="text/html")      exactly these bytes
    Reply.silence()                                            never answers

Token counts follow the rule of `clew.facts.Usage` (totals are inclusive); the format turns them
into the provider's own fields.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Self

from clew.facts import Usage

DEFAULT_USAGE: Final = Usage(input_tokens=12, output_tokens=7)
ARGUMENT_PIECE: Final = 12
"""Characters of tool-call arguments in one streamed delta."""


@dataclass(frozen=True, kw_only=True)
class ScriptedToolCall:
    """A tool call that the scripted model asks for."""

    name: str
    arguments: Mapping[str, Any] | str = field(default_factory=dict[str, Any])
    """A JSON object, or its text exactly as it shall be sent."""
    id: str | None = None
    """Made up by the format when None."""

    @property
    def argument_text(self) -> str:
        """The arguments as JSON text."""
        if isinstance(self.arguments, str):
            return self.arguments
        return json.dumps(self.arguments, separators=(",", ":"))

    @property
    def argument_pieces(self) -> tuple[str, ...]:
        """The arguments in the pieces in which they are streamed; none when they are empty."""
        text = "" if self.arguments == {} else self.argument_text
        return tuple(text[at : at + ARGUMENT_PIECE] for at in range(0, len(text), ARGUMENT_PIECE))


@dataclass(frozen=True, kw_only=True)
class ScriptedError:
    """An error; what is None gets the provider's usual word for the status."""

    message: str = "The scripted provider refuses this request."
    type: str | None = None
    code: str | None = None
    param: str | None = None


@dataclass(frozen=True, kw_only=True)
class Reply:
    """One answer of a scripted provider.

    Whether it is sent whole or streamed is decided by the request, as with the real providers.
    `cut_after` and `hang_after` count what is sent one by one: events of a stream, the pieces of
    `raw`, or the two halves of a plain body.
    """

    text: str | tuple[str, ...] | None = None
    """The assistant's text; a tuple gives the pieces in which it is streamed."""
    reasoning: str | tuple[str, ...] | None = None
    """Thinking, in formats that show it."""
    tool_calls: tuple[ScriptedToolCall, ...] = ()
    usage: Usage | Mapping[str, Any] | None = DEFAULT_USAGE
    """Counts, or the provider's own usage object verbatim; None leaves usage out altogether."""
    finish_reason: str | None = None
    """In the provider's words; None takes the usual one for the content."""
    model: str | None = None
    """The model that answers; None echoes the requested one."""
    id: str | None = None
    status: int = 200
    error: ScriptedError | None = None
    """Sent as the body; with `error_after`, as an event of the stream."""
    error_after: int | None = None
    """Number of stream events after which `error` is sent and the stream ends."""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    raw: tuple[bytes, ...] | None = None
    """Pieces of a body sent verbatim, whatever the request asked for."""
    content_type: str | None = None
    delay: float = 0.0
    """Seconds before the status line."""
    event_delay: float | tuple[float, ...] = 0.0
    """Seconds before each event, or before the first, second, ... event."""
    cut_after: int | None = None
    """Close the connection after so many events."""
    reset: bool = False
    """Cut with RST instead of FIN."""
    hang_after: int | None = None
    """Send nothing more after so many events, and keep the connection open."""
    silent: bool = False
    """Never answer at all."""

    @classmethod
    def failure(
        cls,
        status: int,
        message: str = ScriptedError.message,
        *,
        type: str | None = None,  # noqa: A002 - the providers' own word
        code: str | None = None,
        retry_after: float | None = None,
        retry_after_ms: int | None = None,
        headers: Mapping[str, str] | None = None,
        delay: float = 0.0,
    ) -> Self:
        """Return an HTTP error in the provider's shape.

        Args:
            status: the HTTP status.
            message: the human text of the error.
            type: the provider's error type; None for its usual one.
            code: the provider's error code; None for its usual one.
            retry_after: `retry-after` in seconds.
            retry_after_ms: `retry-after-ms` in milliseconds.
            headers: further response headers.
            delay: seconds before the answer.
        """
        sent = dict(headers or {})
        if retry_after is not None:
            sent["retry-after"] = f"{retry_after:g}"
        if retry_after_ms is not None:
            sent["retry-after-ms"] = str(retry_after_ms)
        error = ScriptedError(message=message, type=type, code=code)
        return cls(status=status, error=error, headers=sent, delay=delay)

    @classmethod
    def verbatim(
        cls,
        *pieces: bytes,
        status: int = 200,
        content_type: str = "text/event-stream; charset=utf-8",
        **options: Any,
    ) -> Self:
        """Return exactly these bytes, one write for each piece; `options` are fields of `Reply`."""
        return cls(raw=pieces, status=status, content_type=content_type, **options)

    @classmethod
    def silence(cls) -> Self:
        """Take the request and never answer."""
        return cls(silent=True)

    @property
    def text_pieces(self) -> tuple[str, ...]:
        """The text in the pieces in which it is streamed."""
        return _pieces(self.text)

    @property
    def reasoning_pieces(self) -> tuple[str, ...]:
        """The thinking in the pieces in which it is streamed."""
        return _pieces(self.reasoning)

    def pause_before(self, event: int) -> float:
        """Return the seconds to wait before the event with this index (from 0)."""
        if isinstance(self.event_delay, tuple):
            return self.event_delay[event] if event < len(self.event_delay) else 0.0
        return self.event_delay


def sse(data: object, event: str | None = None) -> bytes:
    """Return one server-sent event; `data` is text, or is written as JSON.

    https://html.spec.whatwg.org/multipage/server-sent-events.html
    """
    text = data if isinstance(data, str) else json.dumps(data, separators=(",", ":"))
    head = "" if event is None else f"event: {event}\n"
    return f"{head}data: {text}\n\n".encode()


def _pieces(text: str | Sequence[str] | None) -> tuple[str, ...]:
    if text is None:
        return ()
    return tuple(re.findall(r"\S+\s*|\s+", text)) if isinstance(text, str) else tuple(text)
