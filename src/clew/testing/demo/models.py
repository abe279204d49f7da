"""A model as the demo's agents see it, over the OpenAI and the Anthropic client."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from anthropic import Anthropic
    from openai import OpenAI


@dataclass(frozen=True, kw_only=True)
class ToolSpec:
    """A tool that is offered to a model."""

    name: str
    description: str
    parameters: dict[str, str]
    """JSON types by parameter name; all are required."""

    @property
    def schema(self) -> dict[str, Any]:
        """The parameters as a JSON schema."""
        return {
            "type": "object",
            "properties": {name: {"type": kind} for name, kind in self.parameters.items()},
            "required": list(self.parameters),
        }


@dataclass(frozen=True, kw_only=True)
class Asked:
    """A tool call that a model asked for."""

    id: str
    name: str
    arguments: str
    """JSON text."""


@dataclass(frozen=True, kw_only=True)
class Turn:
    """One turn of a conversation: somebody's words, tool calls asked for, or a tool's result."""

    role: str
    """`user`, `assistant` or `tool`."""
    text: str = ""
    asked: tuple[Asked, ...] = ()
    result_of: str | None = None
    """The id of the tool call whose result `text` is."""


@dataclass(frozen=True, kw_only=True)
class Conversation:
    """What a model is given: a system text, the turns so far, the tools it may ask for."""

    system: str
    tools: tuple[ToolSpec, ...] = ()
    turns: list[Turn] = field(default_factory=list[Turn])


class Model(Protocol):
    """A model behind some client."""

    def ask(self, conversation: Conversation, *, stream: bool) -> Turn:
        """Send the conversation and return the model's turn."""
        ...


@dataclass(frozen=True, kw_only=True)
class OpenAIModel:
    """A model behind the OpenAI client's chat completions."""

    client: OpenAI
    name: str
    limits: dict[str, Any] = field(default_factory=dict[str, Any])
    """Further request fields, such as a limit for the answer's length."""

    def ask(self, conversation: Conversation, *, stream: bool) -> Turn:
        """Send the conversation and return the model's turn."""
        options: dict[str, Any] = dict(self.limits)
        if conversation.tools:
            options["tools"] = [
                {
                    "type": "function",
                    "function": {
                        "name": tool.name,
                        "description": tool.description,
                        "parameters": tool.schema,
                    },
                }
                for tool in conversation.tools
            ]
        messages: Any = [
            {"role": "system", "content": conversation.system},
            *map(_openai_message, conversation.turns),
        ]
        client: Any = self.client
        options |= {"model": self.name, "messages": messages}
        if not stream:
            return _openai_turn(client.chat.completions.create(**options).choices[0].message)
        # Not the client's stream helper: that raises when an answer ends at its length limit, and
        # small models talk on.
        options |= {"stream": True, "stream_options": {"include_usage": True}}
        with client.chat.completions.create(**options) as chunks:
            return _openai_streamed_turn(chunks)


@dataclass(frozen=True, kw_only=True)
class AnthropicModel:
    """A model behind the Anthropic client's messages."""

    client: Anthropic
    name: str
    max_tokens: int = 400

    def ask(self, conversation: Conversation, *, stream: bool) -> Turn:
        """Send the conversation and return the model's turn."""
        tools: Any = [
            {"name": tool.name, "description": tool.description, "input_schema": tool.schema}
            for tool in conversation.tools
        ]
        messages: Any = [_anthropic_message(turn) for turn in conversation.turns]
        options: dict[str, Any] = {
            "model": self.name,
            "max_tokens": self.max_tokens,
            "system": conversation.system,
            "messages": messages,
            "tools": tools,
        }
        if not stream:
            client: Any = self.client
            return _anthropic_turn(client.messages.create(**options).content)
        with self.client.messages.stream(**options) as events:
            return _anthropic_turn(events.get_final_message().content)


def _openai_message(turn: Turn) -> dict[str, Any]:
    if turn.result_of is not None:
        return {"role": "tool", "tool_call_id": turn.result_of, "content": turn.text}
    message: dict[str, Any] = {"role": turn.role, "content": turn.text or None}
    if turn.asked:
        message["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for call in turn.asked
        ]
    return message


def _openai_turn(message: Any) -> Turn:
    return Turn(
        role="assistant",
        text=message.content or "",
        asked=tuple(
            Asked(id=call.id, name=call.function.name, arguments=call.function.arguments)
            for call in message.tool_calls or ()
        ),
    )


def _openai_streamed_turn(chunks: Iterable[Any]) -> Turn:
    text: list[str] = []
    calls: dict[int, dict[str, str]] = {}
    for chunk in chunks:
        for choice in chunk.choices:
            text.append(choice.delta.content or "")
            for piece in choice.delta.tool_calls or ():
                call = calls.setdefault(piece.index, {"id": "", "name": "", "arguments": ""})
                call["id"] += piece.id or ""
                call["name"] += piece.function.name or ""
                call["arguments"] += piece.function.arguments or ""
    asked = tuple(Asked(**call) for _, call in sorted(calls.items()))
    return Turn(role="assistant", text="".join(text), asked=asked)


def _anthropic_message(turn: Turn) -> dict[str, Any]:
    if turn.result_of is not None:
        result = {"type": "tool_result", "tool_use_id": turn.result_of, "content": turn.text}
        return {"role": "user", "content": [result]}
    blocks: list[dict[str, Any]] = [{"type": "text", "text": turn.text}] if turn.text else []
    blocks += [
        {"type": "tool_use", "id": call.id, "name": call.name, "input": json.loads(call.arguments)}
        for call in turn.asked
    ]
    return {"role": turn.role, "content": blocks}


def _anthropic_turn(blocks: Sequence[Any]) -> Turn:
    return Turn(
        role="assistant",
        text="".join(block.text for block in blocks if block.type == "text"),
        asked=tuple(
            Asked(id=block.id, name=block.name, arguments=json.dumps(block.input))
            for block in blocks
            if block.type == "tool_use"
        ),
    )
