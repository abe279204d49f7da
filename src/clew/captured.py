"""What is captured of a model call or a tool call, and where it goes.

There are two ways out, and no third: `deliver` puts content onto spans, when the settings say so,
and `CapturedCall.ended` hands a finished call to the recorder, when calls are recorded. Both read
and mask later, on threads of their own; a tool call is read when it ends.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

import msgspec

from clew import levels, semconv
from clew._guard import record_failure
from clew.pipeline.runtime import Recorder, Runtime
from clew.rules import CapturedText

if TYPE_CHECKING:
    from clew.settings import Settings
    from clew.store.prompt_records import Attempt
    from clew.typing import Beginning

_MOST_BYTES = 16 * 1024 * 1024
"""Bytes of a body that are kept; of a larger one there is no content."""
_LIMITS = ("OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT", "OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT")
_MESSAGES = (semconv.INPUT_MESSAGES, semconv.OUTPUT_MESSAGES)
_SMALLEST = 100
_MOST_ATTEMPTS = 64
_OVERHEAD = 4096
"""Bytes that a finished call takes beside its bodies, about."""


def wanted(runtime: Runtime, level: int) -> bool:
    """Tell whether a call is captured at a level: whether there is a place for it, too."""
    if level >= levels.METADATA and runtime.recorder is not None:
        return True
    return level >= levels.REDACTED and "spans" in runtime.settings.content_to


def deliver(runtime: Runtime, level: int, found: Mapping[str, Any]) -> dict[str, CapturedText]:
    """Return captured content as attributes of its span: the one place that content passes.

    Args:
        runtime: the runtime.
        level: the capture level of the call.
        found: values by attribute key; None: there is none.
    """
    # Nothing of this is loaded where nothing is captured.
    from clew.content import writing
    from clew.content.listing import Listing, written
    from clew.redaction import Redactor

    settings = runtime.settings
    if "spans" not in settings.content_to:
        return {}
    limit = _limit(settings)
    redactor = None if level >= levels.FULL else Redactor()
    digests = runtime.digests

    def digest(data: bytes) -> str:
        return digests.get().of(data)

    attributes: dict[str, CapturedText] = {}
    for key, value in found.items():
        messages = key in _MESSAGES
        if isinstance(value, Listing):
            text = written(
                value, limit=limit, digest=digest, redactor=redactor, messages=messages, key=digests
            )
            if text is not None:
                attributes[key] = text
        elif value is not None:
            attributes[key] = writing.write(
                value, limit=limit, digest=digest, redactor=redactor, messages=messages
            )
    return attributes


_limits: tuple[Settings, int] | None = None


def _limit(settings: Settings) -> int:
    """Return how many characters an attribute takes: the SDK cuts in the middle of JSON, too."""
    global _limits  # noqa: PLW0603 - looking at the environment each time takes long
    known = _limits
    if known is None or known[0] is not settings:
        texts = [os.environ.get(name, "").strip() for name in _LIMITS]
        given = [int(text) for text in texts if text.isdecimal()]
        _limits = known = (settings, max(_SMALLEST, min([settings.content_limit, *given])))
    return known[1]


class CapturedCall:
    """One model call as it is captured: its bodies and attempts, kept until it ends.

    At level `metadata` only the request is kept, for the recorder to measure it. What is read of it
    once the call has ended is read on other threads.
    """

    __slots__ = (
        "_began",
        "_beginning",
        "_body",
        "_dialect",
        "_ended",
        "_failed",
        "_number",
        "_pieces",
        "_recorder",
        "_runtime",
        "_start",
        "end_ns",
        "failure",
        "gave",
        "given",
        "hop",
        "level",
        "request",
        "request_bytes",
        "round",
        "stream_type",
        "system",
    )

    def __init__(
        self,
        runtime: Runtime,
        level: int,
        dialect: str,
        body: bytes | None,
        beginning: Beginning | None = None,
    ) -> None:
        self._runtime = runtime
        self._beginning = beginning
        """What the request may begin with, where that is known."""
        self._recorder: Recorder | None = runtime.recorder
        self.level = level
        """The capture level of the call."""
        self._dialect = dialect
        self._sends(body)
        self._body: bytes | None = None
        self._pieces: Kept | None = None
        self.stream_type: str | None = None
        """The media type of an answer that is a stream of events."""
        self.system: str | None = None
        """The system text of a call that is no bytes."""
        self.given: Any = None
        """What a callable was given, where that is kept: JSON values, as far as there are."""
        self.gave: Any = None
        """What it returned."""
        self._failed: list[tuple[int, int, int, int | None, str | None, int | None]] = []
        self._number = 1
        self._start = self._began = self._ended = time.perf_counter_ns()
        self.round: Any = None
        """The `clew.rounds.Round`, once it has ended."""
        self.failure: str | None = None
        """`error.type`, where the call failed."""
        self.hop: int | None = None
        """Place of the provider in a chain; the chain itself has gone on when this is read."""
        self.end_ns = 0
        """When it ended (ns since the epoch)."""

    def _sends(self, body: bytes | None) -> None:
        size = self.request_bytes = None if body is None else len(body)
        self.request = body if size is not None and size <= _MOST_BYTES else None
        """The request body that an answer belongs to; None where it is not in memory."""

    def took(self, body: bytes, stream_type: str | None = None) -> None:
        """Take a whole response body; `stream_type` where it is a stream of events."""
        if self.level >= levels.REDACTED:
            self._body = body if len(body) <= _MOST_BYTES else None
            self._pieces = None
            self.stream_type = stream_type

    def follow(self, content_type: str) -> Kept | None:
        """Return what is to be given the bytes of a stream as they come; None: nothing keeps them.

        Args:
            content_type: the stream's media type.
        """
        if self.level < levels.REDACTED:
            return None
        self._body = None
        self.stream_type = content_type
        self._pieces = Kept()
        return self._pieces

    def called_with(self, arguments: Mapping[str, Any], system: str | None) -> None:
        """Take what a callable is given; never raises. What it is given may change later."""
        self.system = system
        if self.level >= levels.REDACTED:
            self.given = _kept({key: arguments[key] for key in arguments if key != "self"})

    def returned(self, result: Any) -> None:
        """Take what a callable has returned; never raises."""
        if self.level >= levels.REDACTED:
            self.gave = _kept(result)

    # --- attempts ------------------------------------------------------------------------------

    def failed(self, status: int | None, error: str | None) -> None:
        """Note how an attempt has ended, after which there may be another."""
        attempt = (
            self._number, self._began, time.perf_counter_ns(), status, error, self.request_bytes,
        )  # fmt: skip
        if self._failed and self._failed[-1][0] == self._number:
            self._failed[-1] = attempt  # the body of an error that was read later
        elif len(self._failed) < _MOST_ATTEMPTS:
            self._failed.append(attempt)

    def again(self, body: bytes | None) -> None:
        """Begin another attempt: what it sends is the request that an answer belongs to."""
        self._number += 1
        self._began = time.perf_counter_ns()
        self._sends(body)

    def attempts(self) -> tuple[Attempt, ...]:
        """Return the attempts of a call that has ended."""
        from clew.store.prompt_records import Attempt

        ending = self.round.ending
        last = (
            self._number, self._began, self._ended, ending.status, self.failure, self.request_bytes,
        )  # fmt: skip
        earlier = [attempt for attempt in self._failed if attempt[0] != self._number]
        return tuple(
            Attempt(
                number=number,
                start_ms=round((began - self._start) / 1e6, 3),
                duration_ms=round((ended - began) / 1e6, 3),
                status=status,
                error=error,
                request_bytes=size,
            )
            for number, began, ended, status, error, size in (*earlier, last)
        )

    # --- where it goes ---------------------------------------------------------------------------

    def ended(self, round_: Any, failure: str | None, end_ns: int) -> None:
        """Hand the call to the recorder, if calls are recorded. Never raises, never waits.

        Args:
            round_: the `clew.rounds.Round`, which has ended.
            failure: its `error.type`, if it failed.
            end_ns: when it ended (ns since the epoch).
        """
        recorder = self._recorder
        if recorder is None:
            return
        try:
            self.round, self.failure, self.end_ns = round_, failure, end_ns
            self._ended = time.perf_counter_ns()
            recorder.submit(self)
        except Exception:
            record_failure("record a model call")

    @property
    def size(self) -> int:
        """Bytes that it holds in memory, about."""
        pieces = self._pieces
        answered = len(self._body or b"") if pieces is None else pieces.size
        return len(self.request or b"") + answered + _OVERHEAD

    def answer(self) -> bytes | None:
        """Return the bytes of the answer as far as they came; None where they were not kept."""
        return self._body if self._pieces is None else self._pieces.body()

    def attributes(self) -> dict[str, CapturedText]:
        """Return the content as attributes of the round. Never raises: what fails is left out."""
        if self.level < levels.REDACTED or "spans" not in self._runtime.settings.content_to:
            return {}
        try:
            from clew import content

            found: dict[str, Any] = {}
            if self.request is not None:
                asked = content.listings_of(self._dialect, self.request, self._beginning)
                found[semconv.SYSTEM_INSTRUCTIONS] = asked.system_instructions
                found[semconv.INPUT_MESSAGES] = asked.input_messages
                found[semconv.TOOL_DEFINITIONS] = asked.tool_definitions
            found[semconv.OUTPUT_MESSAGES] = self._messages()
            return deliver(self._runtime, self.level, found)
        except Exception:
            record_failure("capture content")
            return {}

    def _messages(self) -> list[dict[str, Any]] | None:
        from clew import content

        body = self.answer()
        if body is None:
            return None
        if self.stream_type is not None:
            return content.of_stream(self._dialect, self.stream_type, body)
        return content.of_response(self._dialect, body)


def _kept(value: Any) -> Any:
    try:
        return plain(value)
    except Exception:
        record_failure("capture a callable")
        return None


class Kept:
    """The bytes of a stream, as far as they are not too many."""

    __slots__ = ("_pieces", "size")

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self.size = 0

    def take(self, data: bytes) -> None:
        """Take the next bytes."""
        self.size += len(data)
        if self.size <= _MOST_BYTES:
            self._pieces.append(data)

    def body(self) -> bytes | None:
        """Return what was taken; None where it was too much."""
        return b"".join(self._pieces) if self.size <= _MOST_BYTES else None


class ToolContent:
    """The arguments and the result of a tool call, as they are now, to be put onto its span.

    They are read, masked and written when somebody looks at the span: on the export thread.
    """

    __slots__ = ("_given", "_level", "_result", "_runtime")

    def __init__(self, runtime: Runtime, level: int, given: Any, result: Any) -> None:
        self._runtime = runtime
        self._level = level
        self._given = given
        self._result = result

    def count_up(self) -> None:
        """Do nothing: content is not counted."""

    def describe(self, attributes: dict[str, Any]) -> None:
        """Add what there is. Never raises."""
        try:
            from clew.content.snapshots import read

            found = {
                semconv.TOOL_CALL_ARGUMENTS: read(self._given),
                semconv.TOOL_CALL_RESULT: read(self._result),
            }
            attributes.update(deliver(self._runtime, self._level, found))
        except Exception:
            record_failure("capture a tool call")


def taken(value: Any) -> Any:
    """Return what a tool takes or gives, as it is now: plain, bounded, and at little cost."""
    if value is None or type(value) is str:
        return value
    from clew.content import snapshots

    return snapshots.taken(value)


def plain(value: Any) -> Any:
    """Return JSON values for what a callable takes and gives; a text that is JSON is parsed.

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
