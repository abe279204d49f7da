"""The Bedrock Converse shape on the wire, as far as facts go; Nova models speak it natively."""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import Struct

from clew.dialects._read import Count, decode, is_empty, text
from clew.dialects.finish_reasons import finish_reasons
from clew.facts import ResponseFacts, ToolCall, Usage

_SERVER_SIDE: Final = "server_tool_use"


class CacheDetail(Struct, rename="camel", gc=False):
    """Tokens written to the cache with one lifetime."""

    ttl: str | None = None
    input_tokens: Count | None = None


class RawUsage(Struct, rename="camel"):
    """A usage object; `inputTokens` is the uncached part only."""

    input_tokens: Count | None = None
    output_tokens: Count | None = None
    total_tokens: Count | None = None
    cache_read_input_tokens: Count | None = None
    cache_read_input_token_count: Count | None = None
    cache_write_input_tokens: Count | None = None
    cache_write_input_token_count: Count | None = None
    cache_details: list[CacheDetail] | None = None


def usage_of(raw: RawUsage | None) -> Usage | None:
    """Return token counts under the inclusive rule: cache reads and writes are input.

    https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_TokenUsage.html
    """
    if raw is None:
        return None
    uncached, output_tokens = raw.input_tokens, raw.output_tokens
    if uncached is None and output_tokens is None:
        return None
    read = raw.cache_read_input_tokens
    read = raw.cache_read_input_token_count if read is None else read
    written = raw.cache_write_input_tokens
    written = raw.cache_write_input_token_count if written is None else written
    input_tokens = None if uncached is None else uncached + (read or 0) + (written or 0)
    total = raw.total_tokens
    long = [
        tokens
        for detail in raw.cache_details or ()
        if detail.ttl == "1h" and (tokens := detail.input_tokens) is not None
    ]
    return Usage(
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        cache_read_tokens=read,
        cache_write_tokens=written,
        cache_write_1h_tokens=sum(long) if long else None,
        mismatch=total is not None
        and input_tokens is not None
        and output_tokens is not None
        and input_tokens + output_tokens != total,
    )


class ToolUse(Struct, rename="camel"):
    """A tool call; of the type `server_tool_use` it is the provider's own."""

    tool_use_id: str | None = None
    name: str | None = None
    type: str | None = None


class Block(Struct, rename="camel"):
    """A content block."""

    tool_use: ToolUse | None = None


class Message(Struct):
    """A message."""

    content: list[Block] | None = None


class Output(Struct):
    """An output."""

    message: Message | None = None


class Tier(Struct, gc=False):
    """A service tier."""

    type: str | None = None


class ConverseResponse(Struct, rename="camel"):
    """A whole response."""

    output: Output | None = None
    stop_reason: str | None = None
    usage: RawUsage | None = None
    service_tier: Tier | None = None


class Start(Struct, rename="camel"):
    """What begins with a block."""

    tool_use: ToolUse | None = None


class Event(Struct, rename="camel"):
    """An event of a stream; its type stands outside."""

    content_block_index: int | None = None
    start: Start | None = None
    delta: dict[str, msgspec.Raw] | None = None
    stop_reason: str | None = None
    usage: RawUsage | None = None
    service_tier: Tier | None = None


RESPONSE: Final = msgspec.json.Decoder(ConverseResponse)
EVENT: Final = msgspec.json.Decoder(Event)
_DELTA_TEXTS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])


def read_converse(body: bytes) -> ResponseFacts:
    """Read a whole response."""
    response = decode(RESPONSE, body)
    if response is None:
        return ResponseFacts()
    words = (text(response.stop_reason),)
    message = response.output.message if response.output is not None else None
    blocks = message.content if message is not None else None
    return ResponseFacts(
        finish_reasons=finish_reasons(words),
        finish_reasons_raw=words,
        tool_calls=tuple(
            [
                ToolCall(text(block.tool_use.tool_use_id), text(block.tool_use.name))
                for block in blocks or ()
                if block.tool_use is not None and block.tool_use.type != _SERVER_SIDE
            ]
        ),
        usage=usage_of(response.usage),
        service_tier=text(response.service_tier.type)
        if response.service_tier is not None
        else None,
    )


class Gathered:
    """What the events of a stream have said."""

    __slots__ = ("calls", "closed", "reason", "seen", "tier", "usage")

    def __init__(self) -> None:
        self.calls: dict[int, ToolCall] = {}
        self.closed = False
        self.seen = False
        self.reason: str | None = None
        self.tier: str | None = None
        self.usage: RawUsage | None = None

    def take(self, kind: str, payload: bytes | msgspec.Raw) -> bool:
        """Add an event; tell whether it carried generated output."""
        self.seen = True
        event = decode(EVENT, payload)
        if event is None:
            return False
        if kind == "contentBlockDelta":
            return any(not _is_blank(value) for value in (event.delta or {}).values())
        if kind == "contentBlockStart":
            return self._start(event)
        if kind == "messageStop":
            self.reason, self.closed = text(event.stop_reason), True
        elif kind == "metadata":
            self.usage = event.usage or self.usage
            self.tier = event.service_tier.type if event.service_tier is not None else None
        return False

    def _start(self, event: Event) -> bool:
        call = event.start.tool_use if event.start is not None else None
        if call is None:
            return False
        if call.type != _SERVER_SIDE:
            index = event.content_block_index
            position = index if index is not None else len(self.calls)
            self.calls[position] = ToolCall(text(call.tool_use_id), text(call.name))
        return True

    def facts(self) -> ResponseFacts:
        """Return the facts gathered."""
        words = (self.reason,) if self.seen else ()
        return ResponseFacts(
            finish_reasons=finish_reasons(words),
            finish_reasons_raw=words,
            tool_calls=tuple([self.calls[index] for index in sorted(self.calls)]),
            usage=usage_of(self.usage),
            service_tier=self.tier,
            complete=self.closed,
        )


def _is_blank(value: msgspec.Raw) -> bool:
    """Tell whether a delta is empty: `""`, or an object of empty strings."""
    if is_empty(value):
        return True
    inner = decode(_DELTA_TEXTS, value) if bytes(value)[:1] == b"{" else None  # pyright: ignore[reportArgumentType]
    return inner is not None and all(is_empty(text) for text in inner.values())
