"""Anthropic messages, on Anthropic's own API and wherever else it is served.

https://docs.anthropic.com/en/api/messages, https://docs.anthropic.com/en/api/messages-streaming.
"""

from __future__ import annotations

from itertools import chain, compress, repeat
from operator import attrgetter, is_
from typing import Final

import msgspec
from msgspec import Struct

from clew.dialects._dialect import Answer, WireDialect
from clew.dialects._errors import error_of
from clew.dialects._read import EMPTY, Count, decode, is_empty, text
from clew.dialects._sse import TypedReader
from clew.dialects._stream import QUIET, TELLS
from clew.dialects._template import holes
from clew.dialects.finish_reasons import finish_reasons
from clew.facts import ErrorFacts, RequestFacts, ResponseFacts, ToolCall, Usage
from clew.typing import Route


class _Tool(Struct, gc=False):
    name: str | None = None
    type: str | None = None


class _Effort(Struct, gc=False):
    effort: str | None = None
    format: msgspec.Raw = EMPTY


class _Block(Struct, gc=False):
    type: str | None = None
    tool_use_id: str | None = None


class _Entry(Struct, gc=False):
    """A message of which only the existence matters."""


class _Message(_Entry):
    content: list[_Block] | str | None = None


class _Request(Struct):
    model: str | None = None
    stream: bool | None = None
    messages: list[_Entry] | None = None
    tools: list[_Tool] | None = None
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: float | None = None
    service_tier: str | None = None
    output_config: _Effort | None = None
    output_format: msgspec.Raw = EMPTY


class _RequestWithContent(_Request):
    messages: list[_Message] | None = None  # pyright: ignore[reportIncompatibleVariableOverride]


_REQUEST: Final = msgspec.json.Decoder(_Request)
_REQUEST_WITH_CONTENT: Final = msgspec.json.Decoder(_RequestWithContent)
_RESULT: Final = b'"tool_use_id"'
_CONTENT_OF: Final = attrgetter("content")
_RESULT_OF: Final = attrgetter("tool_use_id")


def read_request(body: bytes, route: Route) -> RequestFacts:
    """Read a messages request; content is looked at only when it carries tool results."""
    result_ids: tuple[str, ...] = ()
    if _RESULT in body:
        request = decode(_REQUEST_WITH_CONTENT, body)
        if request is not None:
            result_ids = _tool_result_ids(request.messages or [])
    else:
        request = decode(_REQUEST, body)
    if request is None:
        return RequestFacts(model=route.model, stream=route.stream)
    config = request.output_config
    json_asked = request.output_format is not EMPTY and not is_empty(request.output_format)
    if config is not None and not is_empty(config.format):
        json_asked = True
    tools: tuple[str, ...] | None = None
    if request.tools:
        tools = tuple([name for tool in request.tools if (name := tool.name or tool.type)])
    return RequestFacts(
        model=request.model or route.model,
        stream=request.stream is True or route.stream,
        max_tokens=request.max_tokens,
        temperature=request.temperature,
        top_p=request.top_p,
        top_k=request.top_k,
        reasoning_level=None if config is None else config.effort or None,
        service_tier=request.service_tier or None,
        output_type="json" if json_asked else None,
        messages=None if request.messages is None else len(request.messages),
        tools=tools,
        tool_result_ids=result_ids,
    )


def _tool_result_ids(messages: list[_Message]) -> tuple[str, ...]:
    """Ids of the results sent; the provider's own tools have results of other types.

    Without a loop of our own: a conversation is long, and few of its blocks are results.
    """
    contents = list(map(_CONTENT_OF, messages))
    lists = compress(contents, map(is_, map(type, contents), repeat(list)))
    results = filter(_RESULT_OF, chain.from_iterable(lists))
    return tuple([block.tool_use_id for block in results if block.type == "tool_result"])


class _CacheWrites(Struct, gc=False):
    ephemeral_1h_input_tokens: Count | None = None


class _ServerTools(Struct, gc=False):
    web_search_requests: Count | None = None


class _OutputDetails(Struct, gc=False):
    thinking_tokens: Count | None = None


class RawUsage(Struct):
    """A usage object as the wire has it. `input_tokens` is the uncached part only."""

    input_tokens: Count | None = None
    output_tokens: Count | None = None
    cache_creation_input_tokens: Count | None = None
    cache_read_input_tokens: Count | None = None
    cache_creation: _CacheWrites | None = None
    server_tool_use: _ServerTools | None = None
    output_tokens_details: _OutputDetails | None = None
    service_tier: str | None = None

    def overlay(self, later: RawUsage) -> None:
        """Let each field that `later` reports replace the earlier report."""
        for field in self.__struct_fields__:
            value = getattr(later, field)
            if value is not None:
                setattr(self, field, value)


def usage_of(raw: RawUsage | None) -> Usage | None:
    """Return token counts under the inclusive rule: cache reads and writes are input.

    https://docs.anthropic.com/en/docs/build-with-claude/prompt-caching#tracking-cache-performance
    """
    if raw is None:
        return None
    uncached = raw.input_tokens
    written = raw.cache_creation_input_tokens
    read = raw.cache_read_input_tokens
    writes, tools, details = raw.cache_creation, raw.server_tool_use, raw.output_tokens_details
    return Usage(
        input_tokens=None if uncached is None else uncached + (written or 0) + (read or 0),
        output_tokens=raw.output_tokens,
        cache_read_tokens=read,
        cache_write_tokens=written,
        cache_write_1h_tokens=None if writes is None else writes.ephemeral_1h_input_tokens,
        reasoning_tokens=None if details is None else details.thinking_tokens,
        web_searches=None if tools is None else tools.web_search_requests,
    )


class _Content(Struct, gc=False):
    type: str | None = None
    id: str | None = None
    name: str | None = None
    text: msgspec.Raw = EMPTY
    thinking: msgspec.Raw = EMPTY


class Message(Struct):
    """A message as the wire has it."""

    type: str | None = None
    id: str | None = None
    model: str | None = None
    content: list[_Content] | None = None
    stop_reason: str | None = None
    usage: RawUsage | None = None
    error: msgspec.Raw = EMPTY


_MESSAGE: Final = msgspec.json.Decoder(Message)


def read_response(answer: Answer) -> ResponseFacts:
    """Read a whole messages response."""
    if answer.route.operation == "count_tokens":  # its `input_tokens` is the answer, not a usage
        return ResponseFacts()
    message = decode(_MESSAGE, answer.body)
    return ResponseFacts() if message is None else message_facts(message)


def message_facts(message: Message) -> ResponseFacts:
    """Return the facts of one whole message."""
    words = (message.stop_reason or None,) if message.type != "error" and message.id else ()
    usage = message.usage
    return ResponseFacts(
        id=message.id or None,
        model=message.model or None,
        finish_reasons=finish_reasons(words),
        finish_reasons_raw=words,
        tool_calls=tuple(
            [
                ToolCall(block.id or None, block.name or None)
                for block in message.content or ()
                if block.type == "tool_use"
            ]
        ),
        usage=None if usage is None else usage_of(usage),
        error=None if message.error is EMPTY else error_of(message.error),
        service_tier=None if usage is None else usage.service_tier or None,
    )


class _Delta(Struct, gc=False):
    type: str | None = None
    stop_reason: str | None = None
    text: msgspec.Raw = EMPTY
    thinking: msgspec.Raw = EMPTY
    partial_json: msgspec.Raw = EMPTY


class _Event(Struct):
    type: str | None = None
    index: int | None = None
    message: Message | None = None
    content_block: _Content | None = None
    delta: _Delta | None = None
    usage: RawUsage | None = None
    error: msgspec.Raw = EMPTY


_EVENT: Final = msgspec.json.Decoder(_Event)


class MessagesReader(TypedReader):
    """Puts a streamed message together; keeps names, ids and counts, never text."""

    __slots__ = ("_calls", "_error", "_id", "_model", "_reason", "_seen", "_stopped", "_usage")
    quiet_types = frozenset((b"content_block_delta",))
    holes = holes("text", "thinking", "partial_json", "signature", "cited_text")

    def __init__(self) -> None:
        super().__init__()
        self._id: str | None = None
        self._model: str | None = None
        self._reason: str | None = None
        self._seen = False
        self._stopped = False
        self._usage: RawUsage | None = None
        self._error: ErrorFacts | None = None
        self._calls: dict[int, ToolCall] = {}

    def apply(self, payload: bytes) -> int:
        """Take one event."""
        event = decode(_EVENT, payload)
        if event is None:
            return TELLS
        kind = event.type
        if kind == "content_block_delta":
            if event.delta is not None and _has_output(event.delta):
                self.started = True
            return QUIET
        if kind == "content_block_start":
            self._block(event)
        elif kind == "message_start" and event.message is not None:
            self._start(event.message)
        elif kind == "message_delta":
            if event.delta is not None and event.delta.stop_reason:
                self._reason = event.delta.stop_reason
            self._report(event.usage)
        elif kind == "message_stop":
            self._stopped = True
        if not is_empty(event.error):
            self._error = error_of(event.error)
        return TELLS

    def _start(self, message: Message) -> None:
        self._seen = True
        self._id = self._id or text(message.id)
        self._model = self._model or text(message.model)
        self._reason = self._reason or text(message.stop_reason)
        self._report(message.usage)

    def _block(self, event: _Event) -> None:
        block = event.content_block
        if block is None:
            return
        if block.type == "tool_use":
            index = event.index if event.index is not None else len(self._calls)
            self._calls[index] = ToolCall(text(block.id), text(block.name))
        if block.type not in ("text", "thinking") or not (
            is_empty(block.text) and is_empty(block.thinking)
        ):
            self.started = True

    def _report(self, usage: RawUsage | None) -> None:
        if usage is None:
            return
        if self._usage is None:
            self._usage = usage
        else:
            self._usage.overlay(usage)

    def facts(self) -> ResponseFacts:
        """Return the facts learnt so far."""
        words = (self._reason,) if self._seen or self._reason else ()
        return ResponseFacts(
            id=self._id,
            model=self._model,
            finish_reasons=finish_reasons(words),
            finish_reasons_raw=words,
            tool_calls=tuple([self._calls[index] for index in sorted(self._calls)]),
            usage=usage_of(self._usage),
            error=self._error,
            service_tier=None if self._usage is None else text(self._usage.service_tier),
            complete=self._stopped,
        )


def _has_output(delta: _Delta) -> bool:
    return not (is_empty(delta.text) and is_empty(delta.thinking) and is_empty(delta.partial_json))


anthropic_messages: Final = WireDialect(
    "anthropic_messages",
    read_request,
    read_response,
    lambda _: MessagesReader(),
    names_errors=True,
    conversation="messages",
)
