"""Where the text of a streamed answer stands in its events, by wire format.

What an event adds to a text belongs to a channel: one text of the answer, cut over many events.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple, cast

from clew.content.shapes import place_of


class Delta(NamedTuple):
    """A piece of a text: `holder[key]`."""

    channel: tuple[Any, ...]
    holder: Any
    key: Any
    fixed: bool = False
    """True where the provider has signed the text, so that no other can be put there."""


def _object(value: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _objects(value: Any) -> Iterator[tuple[int, dict[str, Any]]]:
    if isinstance(value, list):
        for position, item in enumerate(cast("list[Any]", value)):
            if isinstance(item, dict):
                yield position, cast("dict[str, Any]", item)


_SAID: Final = ("content", "refusal", "reasoning_content", "reasoning")


def _openai_chat(event: dict[str, Any]) -> Iterator[Delta]:
    """https://platform.openai.com/docs/api-reference/chat/streaming, and who speaks like it."""
    for position, choice in _objects(event.get("choices")):
        index = place_of(choice.get("index", position))
        yield Delta((index, "text"), choice, "text")  # completions
        delta = _object(choice.get("delta"))
        for name in _SAID:
            yield Delta((index, name), delta, name)
        # Mistral's and OpenRouter's parts
        for name in ("content", "reasoning_details"):
            for _, part in _objects(delta.get(name)):
                yield Delta((index, name), part, "text")
                yield Delta((index, name, "summary"), part, "summary")
                for _, thought in _objects(part.get("thinking")):
                    yield Delta((index, name, "thinking"), thought, "text")
        yield Delta((index, "function"), _object(delta.get("function_call")), "arguments")
        for each, call in _objects(delta.get("tool_calls")):
            number = place_of(call.get("index", each))
            yield Delta((index, "tool", number), _object(call.get("function")), "arguments")


def _openai_responses(event: dict[str, Any]) -> Iterator[Delta]:
    """See https://platform.openai.com/docs/api-reference/responses-streaming."""
    kind = event.get("type")
    if isinstance(kind, str) and kind.endswith(".delta"):
        numbers = (
            place_of(event.get(name)) for name in ("output_index", "content_index", "summary_index")
        )
        yield Delta((kind, *numbers), event, "delta")


def _anthropic(event: dict[str, Any]) -> Iterator[Delta]:
    """See https://docs.anthropic.com/en/docs/build-with-claude/streaming."""
    for name in ("delta", "content_block"):
        part = _object(event.get(name))
        for key in ("text", "thinking", "partial_json"):
            yield Delta((place_of(event.get("index")), key), part, key, key == "thinking")


def _gemini(event: dict[str, Any]) -> Iterator[Delta]:
    """See https://ai.google.dev/api/generate-content."""
    for position, candidate in _objects(event.get("candidates")):
        index = place_of(candidate.get("index", position))
        for _, part in _objects(_object(candidate.get("content")).get("parts")):
            yield Delta((index, bool(part.get("thought"))), part, "text")


def _ollama(event: dict[str, Any]) -> Iterator[Delta]:
    """See https://docs.ollama.com/api/streaming."""
    message = _object(event.get("message"))
    for holder, key in (
        (message, "content"),
        (message, "thinking"),
        (event, "response"),
        (event, "thinking"),
    ):
        yield Delta((holder is message, key), holder, key)


def _cohere(event: dict[str, Any]) -> Iterator[Delta]:
    """See https://docs.cohere.com/docs/streaming."""
    index = place_of(event.get("index"))
    message = _object(_object(event.get("delta")).get("message"))
    content = _object(message.get("content"))
    yield Delta((index, "text"), content, "text")
    yield Delta((index, "thinking"), content, "thinking")
    yield Delta(("plan",), message, "tool_plan")
    function = _object(_object(message.get("tool_calls")).get("function"))
    yield Delta((index, "arguments"), function, "arguments")


_READERS: Final[dict[str, Callable[[dict[str, Any]], Iterator[Delta]]]] = {
    "openai_chat": _openai_chat,
    "openai_completions": _openai_chat,
    "openai_responses": _openai_responses,
    "anthropic_messages": _anthropic,
    "gemini_content": _gemini,
    "ollama": _ollama,
    "cohere_chat": _cohere,
}

FORMATS: Final = frozenset(_READERS)
"""The dialects whose events are known here."""

ECHOED: Final = frozenset(
    {
        "encrypted_content",
        "instructions",
        "logprobs",
        "metadata",
        "obfuscation",
        "signature",
        "thoughtSignature",
        "tools",
    }
)
"""Members of events that repeat the request, are opaque, or repeat a text piece by piece."""


def deltas(dialect: str, event: dict[str, Any]) -> list[Delta]:
    """Return the pieces of text that an event adds; none of them is empty."""
    found: list[Delta] = []
    for delta in _READERS[dialect](event):
        text = delta.holder.get(delta.key)
        if isinstance(text, str) and text:
            found.append(delta)
    return found
