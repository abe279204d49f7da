"""SageMaker endpoints: whatever the container speaks, mostly one of two shapes.

https://docs.aws.amazon.com/sagemaker/latest/dg/jumpstart-foundation-models-use-sdk-invoke.html.
Containers with a chat template take `messages` and answer in the chat completions shape, the
others take `inputs` as Hugging Face's text generation does.
"""

from __future__ import annotations

from typing import Final

import msgspec

from clew.dialects import openai_chat
from clew.dialects._dialect import Answer, WireDialect
from clew.dialects._eventstream import EventStreamReader
from clew.dialects._openai_chat_stream import ChatReader
from clew.dialects._stream import EventReader
from clew.dialects.by_paths import BY_PATHS, PATHS, PathsEventsReader, PathsLinesReader
from clew.facts import RequestFacts, ResponseFacts
from clew.typing import Route

_TEXTS: Final = BY_PATHS["text_generation_inference"]


def read_request(body: bytes, route: Route) -> RequestFacts:
    """Read a request; `messages` make it a chat."""
    facts = openai_chat.read_request(body, route)
    if facts.messages is not None:
        return msgspec.structs.replace(
            facts, operation="chat", model=route.model, stream=route.stream
        )
    return msgspec.structs.replace(_TEXTS.request(body, route), stream=route.stream)


def read_response(answer: Answer) -> ResponseFacts:
    """Read a whole response."""
    if b'"choices"' in answer.body:
        return openai_chat.read_response(answer)
    return _TEXTS.response(answer.body, answer.status, answer.route)


class PartsReader(EventStreamReader):
    """Puts payload parts together and reads the events or lines inside."""

    __slots__ = ("_inner", "_route")

    def __init__(self, route: Route) -> None:
        super().__init__()
        self._route = route
        self._inner: EventReader | None = None

    def frame(self, kind: str, payload: bytes) -> bytes | None:
        """Take one part."""
        if kind != "PayloadPart":
            return None
        if self._inner is None:
            self._inner = self._reader(payload)
        self._inner.feed(payload)
        self.started = self._inner.started
        return None

    def _reader(self, payload: bytes) -> EventReader:
        paths = PATHS["text_generation_inference"]
        if payload.lstrip().startswith(b"{"):
            return PathsLinesReader(paths)
        return ChatReader(self._route) if b'"choices"' in payload else PathsEventsReader(paths)

    def facts(self) -> ResponseFacts:
        """Return the facts learnt so far."""
        facts = ResponseFacts(complete=False)
        if self._inner is not None:
            facts = self._inner.result()
        return facts if self.error is None else msgspec.structs.replace(facts, error=self.error)


sagemaker: Final = WireDialect("sagemaker", read_request, read_response, PartsReader)
