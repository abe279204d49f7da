"""The chat completions shape on the wire, as far as facts go."""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import Struct

from clew.dialects._openai_usage import RawUsage
from clew.dialects._read import EMPTY, is_empty, text
from clew.facts import ToolCall


class Named(Struct, gc=False):
    """A function or custom tool, by its name."""

    name: str | None = None


class Tool(Struct):
    """A tool offered: a function, a custom tool, or one of the provider's own (its type)."""

    type: str | None = None
    function: Named | None = None
    custom: Named | None = None
    name: str | None = None


class Message(Struct, gc=False):
    """A message of the request."""

    tool_call_id: str | None = None


class ResponseFormat(Struct, gc=False):
    """What form the answer is asked to have."""

    type: str | None = None


class Reasoning(Struct, gc=False):
    """How hard to think, in the form OpenRouter takes it."""

    effort: str | None = None


class ChatRequest(Struct):
    """A request."""

    model: str | None = None
    model_id: str | None = None
    stream: bool | None = None
    messages: list[Message] | None = None
    tools: list[Tool] | None = None
    functions: list[Named] | None = None
    max_completion_tokens: int | None = None
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: float | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    seed: int | None = None
    random_seed: int | None = None
    n: int | None = None
    reasoning_effort: str | None = None
    reasoning: Reasoning | None = None
    service_tier: str | None = None
    response_format: ResponseFormat | None = None
    modalities: list[str] | None = None


class Call(Struct, gc=False):
    """A tool call, whole or a piece of one."""

    index: int | None = None
    id: str | None = None
    function: Named | None = None
    custom: Named | None = None


class ChatMessage(Struct):
    """An answer's message, whole or a piece of one."""

    content: msgspec.Raw = EMPTY
    refusal: msgspec.Raw = EMPTY
    reasoning: msgspec.Raw = EMPTY
    reasoning_content: msgspec.Raw = EMPTY
    audio: msgspec.Raw = EMPTY
    images: msgspec.Raw = EMPTY
    tool_calls: list[Call] | None = None
    function_call: Named | None = None

    def has_output(self) -> bool:
        """Tell whether any generated output is in it."""
        if self.tool_calls or self.function_call:
            return True
        for part in (
            self.content,
            self.reasoning,
            self.reasoning_content,
            self.refusal,
            self.audio,
            self.images,
        ):
            if part is not EMPTY and not is_empty(part):
                return True
        return False


class Choice(Struct):
    """One choice, whole or a piece of one."""

    index: int | None = None
    finish_reason: str | None = None
    stop_reason: str | None = None
    message: ChatMessage | None = None
    delta: ChatMessage | None = None
    text: msgspec.Raw = EMPTY
    error: msgspec.Raw = EMPTY


class GroqExtras(Struct):
    """Groq reports the usage of a stream here."""

    usage: RawUsage | None = None


class ChatResponse(Struct):
    """A whole response, or one chunk of a stream."""

    id: str | None = None
    model: str | None = None
    model_id: str | None = None
    choices: list[Choice] | None = None
    usage: RawUsage | None = None
    error: msgspec.Raw = EMPTY
    service_tier: str | None = None
    system_fingerprint: str | None = None
    provider: str | None = None
    x_groq: GroqExtras | None = None


REQUEST: Final = msgspec.json.Decoder(ChatRequest)
RESPONSE: Final = msgspec.json.Decoder(ChatResponse)


def call_name(call: Call) -> str | None:
    """Return the name of the function or custom tool that is called."""
    named = call.function or call.custom
    return text(named.name) if named is not None else None


def tool_calls(message: ChatMessage | None) -> list[ToolCall]:
    """Return the calls that a whole message asks for, in order."""
    if message is None:
        return []
    if message.tool_calls is None and message.function_call is None:
        return []
    calls: list[ToolCall] = []
    for call in message.tool_calls or ():
        named = call.function or call.custom
        name = None if named is None else named.name
        calls.append(ToolCall(call.id or None, name or None))
    if not calls and message.function_call is not None and message.function_call.name:
        calls.append(ToolCall(None, message.function_call.name))
    return calls
