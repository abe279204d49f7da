"""OpenAI images and audio, where they report usage.

https://platform.openai.com/docs/api-reference/images, .../audio. Uploads are multipart forms.
Speech comes back as sound, so only its request (and its event stream) says anything.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec
from msgspec import Struct

from clew.dialects._dialect import Answer, WireDialect
from clew.dialects._errors import error_of
from clew.dialects._openai_usage import RawUsage, usage_of
from clew.dialects._read import EMPTY, count, decode, is_empty, text
from clew.dialects._sse import SseReader
from clew.dialects._stream import QUIET, TELLS
from clew.dialects._template import holes
from clew.facts import ErrorFacts, RequestFacts, ResponseFacts
from clew.typing import Route

_OUTPUT_TYPES: Final = {"image_generation": "image", "speech": "speech", "transcription": "text"}
_FIELD: Final = re.compile(
    rb'name="(model|stream|n)"[^\r\n]*(?:\r?\n[^\r\n]+)*\r?\n\r?\n([^\r\n]{0,256})\r?\n--'
)


class _Request(Struct):
    model: str | None = None
    stream: bool | None = None
    n: int | None = None
    stream_format: str | None = None


class _Response(Struct):
    type: str | None = None
    model: str | None = None
    usage: RawUsage | None = None
    error: msgspec.Raw = EMPTY


_REQUEST: Final = msgspec.json.Decoder(_Request)
_RESPONSE: Final = msgspec.json.Decoder(_Response)


def read_request(body: bytes, route: Route) -> RequestFacts:
    """Read a request, JSON or a form."""
    if body.startswith(b"--"):
        form = {name: value.decode("utf-8", "replace") for name, value in _FIELD.findall(body)}
        return RequestFacts(
            model=text(form.get(b"model")) or route.model,
            stream=form.get(b"stream", "").lower() in ("true", "1"),
            choice_count=count(form.get(b"n")),
            output_type=_OUTPUT_TYPES.get(route.operation),
        )
    request = decode(_REQUEST, body) or _Request()
    return RequestFacts(
        model=text(request.model) or route.model,
        stream=bool(request.stream) or request.stream_format == "sse",
        choice_count=request.n,
        output_type=_OUTPUT_TYPES.get(route.operation),
    )


def read_response(answer: Answer) -> ResponseFacts:
    """Read a whole response; sound and plain text say nothing."""
    response = decode(_RESPONSE, answer.body) if answer.body.lstrip()[:1] == b"{" else None
    if response is None:
        return ResponseFacts()
    return ResponseFacts(
        model=text(response.model),
        usage=usage_of(response.usage, answer.route.provider),
        error=error_of(response.error),
    )


class MediaReader(SseReader):
    """Follows partial images, transcripts and sound; the closing event has the usage."""

    __slots__ = ("_closed", "_error", "_provider", "_usage")
    holes = holes("delta", "audio", "b64_json", "text")

    def __init__(self, route: Route) -> None:
        super().__init__()
        self._provider = route.provider
        self._usage: RawUsage | None = None
        self._error: ErrorFacts | None = None
        self._closed = False

    def apply(self, payload: bytes) -> int:
        """Take one event."""
        event = decode(_RESPONSE, payload)
        if event is None:
            return TELLS
        kind = event.type or ""
        if not is_empty(event.error):
            self._error = error_of(event.error)
            return TELLS
        self.started = True
        if event.usage is not None:
            self._usage = event.usage
        if kind.endswith((".done", ".completed")):
            self._closed = True
            return TELLS
        return QUIET if event.usage is None else TELLS

    def facts(self) -> ResponseFacts:
        """Return the facts learnt so far."""
        return ResponseFacts(
            usage=usage_of(self._usage, self._provider),
            error=self._error,
            complete=self._closed or self.done,
        )


openai_media: Final = WireDialect("openai_media", read_request, read_response, MediaReader)
