"""OpenAI's chat completions and completions, and all who speak them.

https://platform.openai.com/docs/api-reference/chat
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from clew.content.shapes import (
    Content,
    Field,
    Message,
    Part,
    Pieces,
    Reader,
    blob,
    by_fields,
    function,
    listed,
    mapping,
    message,
    nothing,
    objects,
    one_of,
    other,
    place_of,
    reasoning,
    text,
    text_of,
    tool_call,
    tool_response,
    uri,
)


def parts_of(content: Any) -> list[Part]:
    """Return the parts of a message's `content`."""
    if isinstance(content, str):
        return text(content)
    return [part for item in objects(content) for part in _part(item)]


def _part(item: dict[str, Any]) -> list[Part]:
    kind = item.get("type")
    if kind in ("text", "refusal"):
        return text(item.get("text") or item.get("refusal"))
    if kind == "image_url":
        image = item.get("image_url")
        return [uri(image if isinstance(image, str) else mapping(image).get("url"))]
    if kind == "input_audio":
        audio = mapping(item.get("input_audio"))
        return [blob(f"audio/{text_of(audio.get('format')) or 'wav'}", audio.get("data"))]
    if kind == "file":
        file = mapping(item.get("file"))
        if isinstance(file.get("file_data"), str):
            return [uri(file["file_data"], "document")]
        return [{"type": "file", "modality": "document", "file_id": text_of(file.get("file_id"))}]
    return [other(item)]


def calls_of(calls: Any) -> list[Part]:
    """Return the tool calls of a message."""
    found: list[Part] = []
    for call in objects(calls):
        asked = mapping(call.get("function"))
        found.append(tool_call(asked.get("name"), asked.get("arguments"), call.get("id")))
    return found


def message_of(item: dict[str, Any], finish_reason: Any = None) -> Message:
    """Return one message of the chat format."""
    role = item.get("role")
    if role == "tool":
        content = item.get("content")
        result = content if isinstance(content, str) else parts_of(content)
        return message("tool", [tool_response(result, item.get("tool_call_id"))])
    thought = item.get("reasoning_content") or item.get("reasoning")
    parts = [
        *reasoning(thought),
        *parts_of(item.get("content")),
        *text(item.get("refusal")),
        *calls_of(item.get("tool_calls")),
    ]
    name = item.get("name")
    return message(
        role or "assistant",
        parts,
        name=name if isinstance(name, str) else None,
        finish_reason=finish_reason if isinstance(finish_reason, str) else None,
    )


def tool_of(tool: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the definition of one tool of the chat format."""
    described = mapping(tool.get("function"))
    if not described:
        return [one_of(tool)]
    name, description = described.get("name"), described.get("description")
    return [function(name, description, described.get("parameters"))]


def messages_of(item: dict[str, Any]) -> list[Message]:
    """Return an entry of `messages` in the chat format."""
    return [message_of(item)]


TOOLS: Final = Field("tools", "tool_definitions", tool_of, nothing)
# System messages are part of the chat history here, and stay in it.
_FIELDS: Final = (Field("messages", "input_messages", messages_of, nothing), TOOLS)


def _response(data: dict[str, Any]) -> list[Message]:
    return [
        message_of(mapping(choice.get("message")), choice.get("finish_reason"))
        for choice in objects(data.get("choices"))
    ]


def _events(events: Iterable[dict[str, Any]]) -> list[Message]:
    choices: dict[Any, Pieces] = {}
    for event in events:
        for choice in objects(event.get("choices")):
            place = place_of(choice.get("index")) or 0
            pieces = choices.get(place)
            if pieces is None:
                pieces = choices[place] = Pieces()
            delta = mapping(choice.get("delta"))
            if len(delta) == 1 and "content" in delta and choice.get("finish_reason") is None:
                pieces.add("text", "text", "content", delta["content"])  # nearly all of them
                continue
            thought = delta.get("reasoning_content") or delta.get("reasoning")
            pieces.add("reasoning", "reasoning", "content", thought)
            pieces.add("text", "text", "content", delta.get("content"))
            pieces.add("refusal", "text", "content", delta.get("refusal"))
            for call in objects(delta.get("tool_calls")):
                asked = mapping(call.get("function"))
                place = ("call", place_of(call.get("index")) or 0)
                pieces.put(
                    place, {"type": "tool_call", "name": asked.get("name"), "id": call.get("id")}
                )
                pieces.add(place, "tool_call", "arguments", asked.get("arguments"))
            reason = choice.get("finish_reason")
            pieces.finish_reason = reason if isinstance(reason, str) else pieces.finish_reason
    return [pieces.message() for pieces in choices.values()]


_GROWING: Final = frozenset(
    (b"content", b"reasoning_content", b"reasoning", b"refusal", b"arguments")
)
CHAT = Reader(by_fields(*_FIELDS), _response, _events, _FIELDS, ("choices",), _GROWING)


def _prompt(data: dict[str, Any]) -> Content:
    parts = [part for each in listed(data.get("prompt")) for part in text(each)]
    return Content(input_messages=[message("user", parts)] if parts else None)


def _completed(data: dict[str, Any]) -> list[Message]:
    return [
        message("assistant", text(choice.get("text")), finish_reason=choice.get("finish_reason"))
        for choice in objects(data.get("choices"))
    ]


def _completing(events: Iterable[dict[str, Any]]) -> list[Message]:
    choices: dict[Any, Pieces] = {}
    for event in events:
        for choice in objects(event.get("choices")):
            pieces = choices.setdefault(place_of(choice.get("index")) or 0, Pieces())
            pieces.add("text", "text", "content", choice.get("text"))
            reason = choice.get("finish_reason")
            pieces.finish_reason = reason if isinstance(reason, str) else pieces.finish_reason
    return [pieces.message() for pieces in choices.values()]


COMPLETIONS = Reader(_prompt, _completed, _completing)
