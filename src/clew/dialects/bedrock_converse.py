"""Amazon Bedrock Converse.

https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_Converse.html
"""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import Struct

from clew.dialects._converse_shape import Gathered, Tier, read_converse
from clew.dialects._dialect import Answer, WireDialect
from clew.dialects._eventstream import EventStreamReader
from clew.dialects._read import decode, number, text
from clew.facts import RequestFacts, ResponseFacts
from clew.typing import Route


class _Named(Struct, gc=False):
    name: str | None = None


class _Tool(Struct, rename="camel"):
    tool_spec: _Named | None = None
    system_tool: _Named | None = None


class _ToolConfig(Struct):
    tools: list[_Tool] | None = None


class _Config(Struct, rename="camel", gc=False):
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: float | None = None


class _Extra(Struct, gc=False):
    top_k: float | None = None


class _TextFormat(Struct, gc=False):
    type: str | None = None


class _OutputConfig(Struct, rename="camel"):
    text_format: _TextFormat | None = None


class _Entry(Struct, gc=False):
    pass


class _Request(Struct, rename="camel"):
    messages: list[_Entry] | None = None
    tool_config: _ToolConfig | None = None
    inference_config: _Config | None = None
    additional_model_request_fields: _Extra | None = None
    output_config: _OutputConfig | None = None
    service_tier: Tier | None = None


class _Result(Struct, rename="camel", gc=False):
    tool_use_id: str | None = None


class _Block(Struct, rename="camel"):
    tool_result: _Result | None = None


class _Message(Struct):
    content: list[_Block] | None = None


class _Results(Struct):
    messages: list[_Message] | None = None


_REQUEST: Final = msgspec.json.Decoder(_Request)
_RESULTS: Final = msgspec.json.Decoder(_Results)


def read_request(body: bytes, route: Route) -> RequestFacts:
    """Read a request; the model is in the path."""
    request = decode(_REQUEST, body)
    if request is None:
        return RequestFacts(model=route.model, stream=route.stream)
    config = request.inference_config or _Config()
    extra = request.additional_model_request_fields or _Extra()
    tools = request.tool_config.tools if request.tool_config is not None else None
    asked = request.output_config.text_format if request.output_config is not None else None
    return RequestFacts(
        model=route.model,
        stream=route.stream,
        max_tokens=config.max_tokens,
        temperature=number(config.temperature),
        top_p=number(config.top_p),
        top_k=number(config.top_k if config.top_k is not None else extra.top_k),
        service_tier=text(request.service_tier.type) if request.service_tier is not None else None,
        output_type="json" if asked is not None and asked.type == "json_schema" else None,
        messages=None if request.messages is None else len(request.messages),
        tools=tuple([name for tool in tools if (name := _tool_name(tool))]) if tools else None,
        tool_result_ids=_tool_result_ids(body),
    )


def _tool_name(tool: _Tool) -> str | None:
    named = tool.tool_spec or tool.system_tool
    return text(named.name) if named is not None else None


def _tool_result_ids(body: bytes) -> tuple[str, ...]:
    if b'"toolResult"' not in body:
        return ()
    results = decode(_RESULTS, body)
    return tuple(
        [
            block.tool_result.tool_use_id
            for message in (results.messages if results is not None else None) or ()
            for block in message.content or ()
            if block.tool_result is not None and block.tool_result.tool_use_id
        ]
    )


def read_response(answer: Answer) -> ResponseFacts:
    """Read a whole response."""
    if answer.route.operation == "count_tokens":  # its `inputTokens` is the answer, not a usage
        return ResponseFacts()
    return read_converse(answer.body)


class ConverseReader(EventStreamReader):
    """Follows a streamed answer."""

    __slots__ = ("_gathered",)

    def __init__(self) -> None:
        super().__init__()
        self._gathered = Gathered()

    def frame(self, kind: str, payload: bytes) -> bytes | None:
        """Take one event."""
        if self._gathered.take(kind, payload):
            self.started = True
        return b"" if kind == "contentBlockDelta" else None

    def facts(self) -> ResponseFacts:
        """Return the facts learnt so far."""
        facts = self._gathered.facts()
        return facts if self.error is None else msgspec.structs.replace(facts, error=self.error)


bedrock_converse: Final = WireDialect(
    "bedrock_converse",
    read_request,
    read_response,
    lambda _: ConverseReader(),
    conversation="messages",
)
