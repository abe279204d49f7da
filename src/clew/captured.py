"""What is captured of a model call or a tool call, and where it goes.

`deliver` is the one place that captured content passes: now it goes onto spans, when the settings
say so. Reading and masking happen when the call has ended, on the caller's path.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, cast

import msgspec

from clew import levels, semconv
from clew._guard import record_failure
from clew.facts import ResponseFacts
from clew.pipeline.runtime import Runtime
from clew.rules import CapturedText
from clew.typing import StreamReader

_MOST_BYTES = 16 * 1024 * 1024
"""Bytes of a body that are kept; of a larger one there is no content."""
_LIMITS = ("OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT", "OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT")
_SMALLEST = 100


def wanted(runtime: Runtime, level: int) -> bool:
    """Tell whether content is captured at a level: whether there is a place for it, too."""
    return level >= levels.REDACTED and bool(runtime.settings.content_to)


def deliver(runtime: Runtime, level: int, found: Mapping[str, Any]) -> dict[str, CapturedText]:
    """Return captured content as attributes of its span: the one place that content passes.

    Args:
        runtime: the runtime.
        level: the capture level of the call.
        found: values by attribute key; None: there is none.
    """
    # Nothing of this is loaded where nothing is captured.
    from clew.content import writing
    from clew.redaction import Redactor

    settings = runtime.settings
    if "spans" not in settings.content_to:
        return {}
    limit = max(_SMALLEST, min(settings.content_limit, *_sdk_limits(settings.content_limit)))
    attributes: dict[str, CapturedText] = {}
    for key, value in found.items():
        if value is not None:
            attributes[key] = writing.write(
                value,
                limit=limit,
                digest=lambda data: runtime.digests.get().of(data),
                redactor=None if level >= levels.FULL else Redactor(),
                messages=key in (semconv.INPUT_MESSAGES, semconv.OUTPUT_MESSAGES),
            )
    return attributes


def _sdk_limits(usual: int) -> tuple[int, ...]:
    """Return the limits at which the SDK cuts attributes, in the middle of JSON if need be."""
    texts = (os.environ.get(name, "").strip() for name in _LIMITS)
    return tuple(int(text) if text.isdecimal() else usual for text in texts)


class CapturedCall:
    """The bodies of one model call, kept until it ends."""

    __slots__ = ("_body", "_dialect", "_level", "_pieces", "_request", "_runtime", "_stream_type")

    def __init__(self, runtime: Runtime, level: int, dialect: str, body: bytes | None) -> None:
        self._runtime = runtime
        self._level = level
        self._dialect = dialect
        self._request = body if body is not None and len(body) <= _MOST_BYTES else None
        self._body: bytes | None = None
        self._pieces: _Following | None = None
        self._stream_type = ""

    def took(self, body: bytes, stream_type: str | None = None) -> None:
        """Take a whole response body; `stream_type` where it is a stream of events."""
        self._body = body if len(body) <= _MOST_BYTES else None
        self._pieces = None
        self._stream_type = stream_type or ""

    def follow(self, reader: StreamReader, content_type: str) -> StreamReader:
        """Return a reader that keeps what it is fed, and otherwise does what `reader` does."""
        self._body = None
        self._stream_type = content_type
        self._pieces = _Following(reader)
        return self._pieces

    def attributes(self) -> dict[str, CapturedText]:
        """Return the content as attributes of the round. Never raises: what fails is left out."""
        try:
            from clew import content

            asked = content.Content()
            if self._request is not None:
                asked = content.of_request(self._dialect, self._request)
            found = {
                semconv.SYSTEM_INSTRUCTIONS: asked.system_instructions,
                semconv.INPUT_MESSAGES: asked.input_messages,
                semconv.TOOL_DEFINITIONS: asked.tool_definitions,
                semconv.OUTPUT_MESSAGES: self._answer(),
            }
            return deliver(self._runtime, self._level, found)
        except Exception:
            record_failure("capture content")
            return {}

    def _answer(self) -> list[dict[str, Any]] | None:
        from clew import content

        body = self._body
        if self._pieces is not None:
            body = self._pieces.body()
        if body is None:
            return None
        if self._stream_type or self._pieces is not None:
            return content.of_stream(self._dialect, self._stream_type, body)
        return content.of_response(self._dialect, body)


class _Following:
    """A stream reader that keeps what it is fed."""

    def __init__(self, reader: StreamReader) -> None:
        self._reader = reader
        self._kept: list[bytes] = []
        self._size = 0
        self.started = reader.started
        self.chunks = reader.chunks

    def feed(self, data: bytes) -> None:
        """Take the next bytes."""
        self._size += len(data)
        if self._size <= _MOST_BYTES:
            self._kept.append(data)
        self._reader.feed(data)
        self.started, self.chunks = self._reader.started, self._reader.chunks

    def result(self) -> ResponseFacts:
        """As the reader says."""
        return self._reader.result()

    def body(self) -> bytes | None:
        """Return what was fed; None where it was too much."""
        return b"".join(self._kept) if self._size <= _MOST_BYTES else None


def of_tool(runtime: Runtime, level: int, arguments: Any, result: Any) -> dict[str, CapturedText]:
    """Return the arguments and the result of a tool call as attributes. Never raises."""
    try:
        found = {
            semconv.TOOL_CALL_ARGUMENTS: plain(arguments),
            semconv.TOOL_CALL_RESULT: plain(result),
        }
        return deliver(runtime, level, found)
    except Exception:
        record_failure("capture a tool call")
        return {}


def plain(value: Any) -> Any:
    """Return JSON values for what a tool takes and gives; a text that is JSON is parsed.

    Objects that have no such form stay, and are written as the name of their type: a `repr` may
    say anything.
    """
    from clew.content.shapes import parsed

    if isinstance(value, Mapping):
        items = cast("Mapping[Any, Any]", value).items()
        return {str(key): plain(item) for key, item in items}
    try:
        return parsed(msgspec.to_builtins(value, builtin_types=(bytes,), str_keys=True))
    except (TypeError, ValueError, msgspec.MsgspecError, RecursionError):
        return value
