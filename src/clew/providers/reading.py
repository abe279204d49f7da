"""Reading an answer: bytes in, events and a response out. No input or output of its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from clew.dialects._lines import LinesReader
from clew.dialects._read import loads
from clew.dialects._sse import SseReader
from clew.facts import NO_RESPONSE, ErrorFacts, ResponseFacts
from clew.providers import errors
from clew.providers.base import ChatRequest, ChatResponse, StreamEvent
from clew.providers.errors import ProviderError
from clew.providers.gather import mapping

if TYPE_CHECKING:
    from clew.providers.http import HttpProvider


class SsePayloads(SseReader):
    """Splits server-sent events and keeps their data."""

    __slots__ = ("payloads",)

    def __init__(self) -> None:
        super().__init__()
        self.payloads: list[bytes] = []

    def apply(self, payload: bytes) -> int:
        """Keep the data of one event."""
        self.payloads.append(payload)
        return 0

    def facts(self) -> ResponseFacts:
        """Return nothing: a dialect reads the facts."""
        return NO_RESPONSE


class LinePayloads(LinesReader):
    """Splits JSON lines and keeps them."""

    __slots__ = ("payloads",)

    def __init__(self) -> None:
        super().__init__()
        self.payloads: list[bytes] = []

    def apply(self, payload: bytes) -> int:
        """Keep one line."""
        self.payloads.append(payload)
        return 0

    def facts(self) -> ResponseFacts:
        """Return nothing: a dialect reads the facts."""
        return NO_RESPONSE


class Reading:
    """One answer of one provider, whole or in pieces.

    Args:
        provider: the adapter.
        request: what was asked.
        content_type: media type of the answer.
        stream: whether a stream was asked for.
        hop: place of the provider in a chain.
    """

    def __init__(
        self,
        provider: HttpProvider,
        request: ChatRequest,
        *,
        content_type: str = "",
        stream: bool,
        hop: int = 0,
    ) -> None:
        self._provider = provider
        self._request = request
        self._hop = hop
        self._route = provider.route(request, stream=stream)
        self._gatherer = provider.gatherer()
        self._reader = self._route.dialect.stream(self._route, content_type)
        self._frames = provider.frames()
        self._facts: ResponseFacts | None = None
        self._events: list[StreamEvent] = []
        self._raw: dict[str, Any] | None = None
        if request.capture_raw is True:
            self._raw = {"events": []} if stream else {}

    def whole(self, body: bytes, status: int, headers: Mapping[str, str]) -> ChatResponse:
        """Read a whole answer.

        Raises:
            ProviderError: it tells of an error, or is no answer.
        """
        value = loads(body)
        facts = self._facts = self._route.dialect.response(body, status, self._route, headers)
        if facts.error is not None:
            raise self._error(facts.error, value)
        if not isinstance(value, dict):
            raise self._provider.error("unknown", "sent no JSON object", self._request)
        answer = mapping(value)
        if self._raw is not None:
            self._raw = answer
        self._gatherer.whole(answer)
        self._events = self._gatherer.end()
        return self._answer()

    def feed(self, data: bytes) -> Iterator[StreamEvent]:
        """Take the next bytes of a streamed answer; yield what they bring.

        Raises:
            ProviderError: the stream tells of an error.
        """
        self._reader.feed(data)
        self._frames.feed(data)
        yield from self._drain()

    def end(self) -> Iterator[StreamEvent]:
        """Take the end of the stream; yield the rest and the whole answer.

        Raises:
            ProviderError: the stream has no closing event.
        """
        self._frames.result()  # the last event may lack its blank line
        yield from self._drain()
        facts = self._reader.result()
        if facts.error is not None:
            raise self._error(facts.error, None)
        if not facts.complete:
            raise self._provider.error("connection", "broke off its stream", self._request)
        yield from self._gatherer.end()
        yield StreamEvent(kind="end", response=self._answer())

    def events_of_whole(self) -> list[StreamEvent]:
        """Return the events of a whole answer that came where a stream was asked for."""
        return [*self._events, StreamEvent(kind="end", response=self.response())]

    def _drain(self) -> Iterator[StreamEvent]:
        payloads, self._frames.payloads = self._frames.payloads, []
        for payload in payloads:
            event = loads(payload)
            if not isinstance(event, dict):
                continue
            if self._raw is not None:
                self._raw["events"].append(event)
            value = mapping(event)
            if value.get("error"):
                raise self._error(self._reader.result().error or ErrorFacts(), None)
            self._gatherer.event(value)
            yield from self._gatherer.take_events()

    def _error(self, facts: ErrorFacts, body: Any) -> ProviderError:
        return self._provider.error(
            errors.of_answer(None, facts),
            "told of an error",
            self._request,
            facts=facts,
            raw=body if body is not None else self._raw,
        )

    def _answer(self) -> ChatResponse:
        answer = self.response()
        if not (answer.finish_reason or answer.text or answer.thinking or answer.tool_calls):
            raise self._provider.error("unknown", "sent no answer", self._request)
        return answer

    def response(self) -> ChatResponse:
        """Return what has come until now."""
        facts = self._facts or self._reader.result()
        gathered = self._gatherer
        reason, raw_reason = _first(facts.finish_reasons), _first(facts.finish_reasons_raw)
        if reason is None:
            reason, raw_reason = gathered.finish_reason() or (None, None)
        metadata = self._provider.metadata(facts)
        if self._raw is not None:
            metadata = {**(metadata or {}), "_raw": self._raw}
        return ChatResponse(
            text=gathered.text,
            thinking=gathered.thinking or None,
            thinking_blocks=tuple(gathered.blocks()),
            tool_calls=tuple([call.request() for call in gathered.calls]),
            finish_reason=reason,
            finish_reason_raw=raw_reason,
            usage=facts.usage,
            model=facts.model,
            id=facts.id,
            provider=self._provider.name,
            hop=self._hop,
            metadata=metadata,
        )


def _first(values: tuple[str | None, ...]) -> str | None:
    return values[0] if values else None
