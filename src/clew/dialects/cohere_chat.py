"""Cohere chat, version 2 and the legacy version 1.

https://docs.cohere.com/reference/chat, https://docs.cohere.com/reference/chat-v1. Cohere bills
`billed_units`, which leave its own prompt preamble out: they are the counts, and `tokens` stands
in where there are none.
"""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import Struct

from clew.dialects._dialect import Answer, WireDialect
from clew.dialects._errors import error_of
from clew.dialects._lines import LinesReader
from clew.dialects._read import EMPTY, Count, decode, is_empty, number, text
from clew.dialects._sse import SseReader
from clew.dialects._stream import QUIET, TELLS, EventReader
from clew.dialects._template import holes
from clew.dialects.finish_reasons import finish_reasons
from clew.facts import ErrorFacts, RequestFacts, ResponseFacts, ToolCall, Usage
from clew.typing import Route


class _Named(Struct, gc=False):
    name: str | None = None


class _Tool(Struct):
    name: str | None = None
    function: _Named | None = None


class _Message(Struct, gc=False):
    tool_call_id: str | None = None


class _Entry(Struct, gc=False):
    pass


class _Format(Struct, gc=False):
    type: str | None = None


class _Request(Struct):
    model: str | None = None
    stream: bool | None = None
    message: msgspec.Raw = EMPTY
    messages: list[_Message] | None = None
    chat_history: list[_Entry] | None = None
    tools: list[_Tool] | None = None
    max_tokens: int | None = None
    temperature: float | None = None
    p: float | None = None
    k: float | None = None
    seed: int | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    response_format: _Format | None = None


_REQUEST: Final = msgspec.json.Decoder(_Request)


def read_request(body: bytes, route: Route) -> RequestFacts:
    """Read a request of either version."""
    request = decode(_REQUEST, body)
    if request is None:
        return RequestFacts(model=route.model)
    messages = None if request.messages is None else len(request.messages)
    if messages is None and not is_empty(request.message):
        messages = 1 + len(request.chat_history or ())
    tools = request.tools
    asked = request.response_format.type if request.response_format is not None else None
    return RequestFacts(
        model=text(request.model) or route.model,
        stream=bool(request.stream),
        max_tokens=request.max_tokens,
        temperature=number(request.temperature),
        top_p=number(request.p),
        top_k=number(request.k),
        frequency_penalty=number(request.frequency_penalty),
        presence_penalty=number(request.presence_penalty),
        seed=request.seed,
        output_type={"json_object": "json", "text": "text"}.get(asked or ""),
        messages=messages,
        tools=tuple([name for tool in tools if (name := _tool_name(tool))]) if tools else None,
        tool_result_ids=tuple(
            [message.tool_call_id for message in request.messages or () if message.tool_call_id]
        ),
    )


def _tool_name(tool: _Tool) -> str | None:
    return text(tool.function.name) if tool.function is not None else text(tool.name)


class Tokens(Struct, gc=False):
    """Counts, billed or real."""

    input_tokens: Count | None = None
    output_tokens: Count | None = None
    reasoning_tokens: Count | None = None


class RawUsage(Struct):
    """Version 2's `usage`, version 1's `meta`."""

    billed_units: Tokens | None = None
    tokens: Tokens | None = None
    cached_tokens: Count | None = None


def usage_of(raw: RawUsage | None) -> Usage | None:
    """Return the billed counts, else the real ones."""
    if raw is None:
        return None
    billed, real = raw.billed_units or Tokens(), raw.tokens or Tokens()
    input_tokens, output_tokens = billed.input_tokens, billed.output_tokens
    if input_tokens is None and output_tokens is None:
        input_tokens, output_tokens = real.input_tokens, real.output_tokens
    if input_tokens is None and output_tokens is None:
        return None
    return Usage(
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        cache_read_tokens=raw.cached_tokens,
        reasoning_tokens=real.reasoning_tokens,
    )


class _Call(Struct):
    id: str | None = None
    name: str | None = None
    function: _Named | None = None


class _Answer(Struct):
    content: msgspec.Raw = EMPTY
    tool_plan: msgspec.Raw = EMPTY
    tool_calls: list[_Call] | _Call | None = None


class _Response(Struct):
    id: str | None = None
    response_id: str | None = None
    model: str | None = None
    message: _Answer | None = None
    tool_calls: list[_Call] | None = None
    finish_reason: str | None = None
    usage: RawUsage | None = None
    meta: RawUsage | None = None
    error: msgspec.Raw = EMPTY


class _Delta(Struct):
    message: _Answer | None = None
    finish_reason: str | None = None
    usage: RawUsage | None = None
    error: msgspec.Raw = EMPTY


class _Event(Struct):
    type: str | None = None
    event_type: str | None = None
    id: str | None = None
    index: int | None = None
    delta: _Delta | None = None
    text: msgspec.Raw = EMPTY
    tool_call_delta: msgspec.Raw = EMPTY
    tool_calls: list[_Call] | None = None
    finish_reason: str | None = None
    response: _Response | None = None
    error: msgspec.Raw = EMPTY


_RESPONSE: Final = msgspec.json.Decoder(_Response)
_EVENT: Final = msgspec.json.Decoder(_Event)


def _call(call: _Call) -> ToolCall:
    """Return a call; version 1 gives calls no ids."""
    return ToolCall(text(call.id), _tool_name(_Tool(call.name, call.function)))


def read_response(answer: Answer) -> ResponseFacts:
    """Read a whole response of either version."""
    response = decode(_RESPONSE, answer.body)
    if response is None:
        return ResponseFacts()
    calls = response.tool_calls
    if calls is None and response.message is not None:
        given = response.message.tool_calls
        calls = given if isinstance(given, list) else None
    words = (text(response.finish_reason),)
    return ResponseFacts(
        id=text(response.response_id) or text(response.id),
        model=text(response.model),
        finish_reasons=finish_reasons(words),
        finish_reasons_raw=words,
        tool_calls=tuple([_call(call) for call in calls or ()]),
        usage=usage_of(response.usage or response.meta),
        error=error_of(response.error),
    )


class _ChatReader(EventReader):
    __slots__ = ()
    _calls: dict[int, ToolCall]
    _closed: bool
    _error: ErrorFacts | None
    _id: str | None
    _reason: str | None
    _seen: bool
    _usage: RawUsage | None
    holes = holes("text", "thinking", "tool_plan", "arguments", "parameters")

    def __init__(self) -> None:
        super().__init__()
        self._calls = {}
        self._closed = self._seen = False
        self._error = self._id = self._reason = self._usage = None

    def apply(self, payload: bytes) -> int:
        """Take one event."""
        event = decode(_EVENT, payload)
        if event is None:
            return TELLS
        self._seen = True
        self._id = self._id or text(event.id)
        kind = event.type or event.event_type or ""
        delta = event.delta
        if kind == "tool-call-start":
            self._started_call(event)
        elif kind.endswith("-delta") or kind == "text-generation":
            self._output(event)
            return QUIET
        elif kind == "tool-calls-chunk":
            self.started = True
        elif kind == "tool-calls-generation":
            self.started = True
            self._calls = {i: _call(call) for i, call in enumerate(event.tool_calls or ())}
        elif kind == "message-end" and delta is not None:
            self._end(delta.finish_reason, delta.usage, delta.error)
        elif kind == "stream-end":
            self._end_v1(event)
        if not is_empty(event.error):
            self._error = error_of(event.error)
        return TELLS

    def _started_call(self, event: _Event) -> None:
        self.started = True
        message = event.delta.message if event.delta is not None else None
        call = message.tool_calls if message is not None else None
        if isinstance(call, _Call):
            self._calls[event.index if event.index is not None else len(self._calls)] = _call(call)

    def _output(self, event: _Event) -> None:
        message = event.delta.message if event.delta is not None else None
        if not is_empty(event.text) or (
            message is not None
            and (
                message.tool_calls is not None
                or not (is_empty(message.content) and is_empty(message.tool_plan))
            )
        ):
            self.started = True

    def _end(self, reason: str | None, usage: RawUsage | None, error: msgspec.Raw) -> None:
        self._closed = True
        self._reason, self._usage = text(reason), usage
        self._error = error_of(error) or self._error

    def _end_v1(self, event: _Event) -> None:
        response = event.response or _Response()
        self._id = text(response.response_id) or self._id
        self._end(event.finish_reason or response.finish_reason, response.meta, response.error)
        if response.tool_calls:
            self._calls = {i: _call(call) for i, call in enumerate(response.tool_calls)}

    def facts(self) -> ResponseFacts:
        """Return the facts learnt so far."""
        words = (self._reason,) if self._seen else ()
        return ResponseFacts(
            id=self._id,
            finish_reasons=finish_reasons(words),
            finish_reasons_raw=words,
            tool_calls=tuple([self._calls[index] for index in sorted(self._calls)]),
            usage=usage_of(self._usage),
            error=self._error,
            complete=self._closed,
        )


_SLOTS: Final = ("_calls", "_closed", "_error", "_id", "_reason", "_seen", "_usage")


class ChatEventsReader(_ChatReader, SseReader):
    """A version 2 stream."""

    __slots__ = _SLOTS


class ChatLinesReader(_ChatReader, LinesReader):
    """A version 1 stream."""

    __slots__ = _SLOTS


cohere_chat: Final = WireDialect(
    "cohere_chat",
    read_request,
    read_response,
    lambda _: ChatEventsReader(),
    names_errors=True,
    conversation="messages",
)
cohere_chat_v1: Final = WireDialect(
    "cohere_chat_v1", read_request, read_response, lambda _: ChatLinesReader(), names_errors=True
)
