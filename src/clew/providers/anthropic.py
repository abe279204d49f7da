"""Anthropic's messages.

https://docs.anthropic.com/en/api/messages, https://docs.anthropic.com/en/api/messages-streaming
"""

from __future__ import annotations

import re
from typing import Any, Final

from clew.dialects.anthropic_messages import anthropic_messages
from clew.providers.base import ChatRequest, Image, Message, Thinking, ToolRequest
from clew.providers.gather import Gatherer, OpenCall, entries, mapping, string
from clew.providers.http import HttpProvider
from clew.providers.messages import image_text, linked, object_of, present, system_text

VERSION: Final = "2023-06-01"
MAX_TOKENS: Final = 4096
"""The API wants a limit; this is it where a request has none."""

_NOT_IN_IDS: Final = re.compile(r"[^A-Za-z0-9_-]")
_CHOICES: Final = {"auto": "auto", "none": "none", "required": "any"}


class AnthropicProvider(HttpProvider):
    """The adapter `anthropic`."""

    name = "anthropic"
    semconv_name = "anthropic"
    key_variables = ("ANTHROPIC_API_KEY",)
    default_base_url = "https://api.anthropic.com"
    default_max_tokens = MAX_TOKENS
    dialect = anthropic_messages

    def path(self, request: ChatRequest, *, stream: bool) -> str:
        """Return the endpoint."""
        return "/v1/messages"

    def auth(self, key: str) -> dict[str, str]:
        """Return the key's header."""
        return {"x-api-key": key}

    def fixed_headers(self) -> dict[str, str]:
        """Return the version of the API."""
        return {"anthropic-version": VERSION}

    def body(self, request: ChatRequest, *, stream: bool) -> dict[str, Any]:
        """Return the body; system prompts, wherever they stand, are in `system`."""
        system = system_text(request.messages)
        body: dict[str, Any] = {
            "model": request.model,
            "max_tokens": request.max_tokens or MAX_TOKENS,
        }
        if len(system) == 1:
            body["system"] = system[0]
        elif system:
            body["system"] = [{"type": "text", "text": text} for text in system]
        body["messages"] = _turns(linked(request.messages))
        if request.tools:
            body["tools"] = [
                {
                    "name": tool.name,
                    "description": tool.description,
                    "input_schema": tool.parameters,
                }
                for tool in request.tools
            ]
            if request.tool_choice is not None:
                kind = _CHOICES.get(request.tool_choice)
                body["tool_choice"] = (
                    {"type": "tool", "name": request.tool_choice}
                    if kind is None
                    else {"type": kind}
                )
        body |= present(
            temperature=request.temperature,
            top_p=request.top_p,
            stop_sequences=list(request.stop) or None,
            stream=True if stream else None,
        )
        return body

    def gatherer(self) -> Gatherer:
        """Return what puts an answer together."""
        return MessageGatherer(self.name)


def _turns(messages: list[Message]) -> list[dict[str, Any]]:
    """Return the messages; results that follow each other are one turn of the user."""
    turns: list[dict[str, Any]] = []
    results: list[dict[str, Any]] = []
    for message in messages:
        if message.role == "system":
            continue
        if message.role == "tool":
            if not results:
                turns.append({"role": "user", "content": results})
            results.append(_result(message))
            continue
        results = []
        if message.role == "user":
            turns.append({"role": "user", "content": _content(message)})
        elif said := _said(message):
            turns.append({"role": "assistant", "content": said})
    return turns


def _content(message: Message) -> Any:
    if isinstance(message.content, str):
        return message.content
    return [
        {
            "type": "image",
            "source": {
                "type": "base64",
                "media_type": part.media_type,
                "data": image_text(part),
            },
        }
        if isinstance(part, Image)
        else {"type": "text", "text": part.text}
        for part in message.content
    ]


def _said(message: Message) -> list[dict[str, Any]]:
    """Return the blocks of an assistant's message; an empty text is no block."""
    blocks: list[dict[str, Any]] = [
        block.native
        for block in message.thinking
        if block.provider == AnthropicProvider.name and block.native is not None
    ]
    if message.text:
        blocks.append({"type": "text", "text": message.text})
    blocks += [_call(call) for call in message.tool_calls]
    return blocks


def _call(call: ToolRequest) -> dict[str, Any]:
    return {
        "type": "tool_use",
        "id": _id(call.id),
        "name": call.name,
        "input": object_of(call),
    }


def _result(message: Message) -> dict[str, Any]:
    result: dict[str, Any] = {
        "type": "tool_result",
        "tool_use_id": _id(message.tool_call_id),
        "content": message.text,
    }
    if message.is_error:
        result["is_error"] = True
    return result


def _id(call_id: str | None) -> str:
    return _NOT_IN_IDS.sub("_", call_id or "")


class MessageGatherer(Gatherer):
    """Puts a message together, block by block."""

    def __init__(self, provider: str) -> None:
        super().__init__(provider)
        self._blocks: dict[Any, dict[str, Any]] = {}
        """Blocks of thinking, by index."""

    def whole(self, body: dict[str, Any]) -> None:
        """Take a whole message."""
        for index, entry in enumerate(entries(body.get("content"))):
            self._start(index, mapping(entry))

    def event(self, event: dict[str, Any]) -> None:
        """Take one event."""
        kind, index = event.get("type"), event.get("index")
        if kind == "content_block_start":
            self._start(index, mapping(event.get("content_block")))
        elif kind == "content_block_delta":
            self._delta(index, mapping(event.get("delta")))

    def _start(self, index: Any, block: dict[str, Any]) -> None:
        kind = block.get("type")
        if kind == "text":
            self.add_text(block.get("text"))
        elif kind in ("thinking", "redacted_thinking"):
            self._blocks[index] = dict(block)
            self.add_thinking(block.get("thinking"))
        elif kind == "tool_use":
            call = OpenCall(index, string(block.get("id")) or None, string(block.get("name")))
            call.value = block.get("input")
            self.calls.append(call)

    def _delta(self, index: Any, delta: dict[str, Any]) -> None:
        kind = delta.get("type")
        if kind == "text_delta":
            self.add_text(delta.get("text"))
        elif kind == "input_json_delta":
            piece = string(delta.get("partial_json"))
            for call in self.calls:
                if call.key == index and piece:
                    call.written.append(piece)
        elif kind in ("thinking_delta", "signature_delta") and index in self._blocks:
            block = self._blocks[index]
            for name in ("thinking", "signature"):
                if name in delta:
                    block[name] = string(block.get(name)) + string(delta[name])
            self.add_thinking(delta.get("thinking"))

    def blocks(self) -> list[Thinking]:
        """Return the blocks of thinking: they go back signed as they came."""
        if not self._blocks:
            return super().blocks()
        return [
            Thinking(
                text=string(block.get("thinking")),
                provider=self.provider,
                native=dict(block),
            )
            for block in self._blocks.values()
        ]
