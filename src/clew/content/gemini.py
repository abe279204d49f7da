"""Gemini's content (https://ai.google.dev/api/generate-content)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from clew.content.shapes import (
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
    modality,
    nothing,
    objects,
    place_of,
    reasoning,
    text,
    text_of,
    tool_call,
    tool_response,
)


def _either(data: dict[str, Any], name: str, snake: str) -> Any:
    """The API takes both spellings."""
    return data[name] if name in data else data.get(snake)


def _part(part: dict[str, Any]) -> list[Part]:
    if isinstance(part.get("text"), str):
        return reasoning(part["text"]) if part.get("thought") is True else text(part["text"])
    inline = mapping(_either(part, "inlineData", "inline_data"))
    if inline:
        return [blob(_either(inline, "mimeType", "mime_type"), inline.get("data"))]
    file = mapping(_either(part, "fileData", "file_data"))
    if file:
        mime = text_of(_either(file, "mimeType", "mime_type"))
        where = text_of(_either(file, "fileUri", "file_uri"))
        return [{"type": "uri", "modality": modality(mime), "mime_type": mime, "uri": where}]
    call = mapping(_either(part, "functionCall", "function_call"))
    if call:
        return [tool_call(call.get("name"), call.get("args"), call.get("id"))]
    answer = mapping(_either(part, "functionResponse", "function_response"))
    if answer:
        return [tool_response(answer.get("response"), answer.get("id"))]
    return [{"type": next((key for key in part if isinstance(key, str)), "unknown")[:64]}]


def _parts(content: Any) -> list[Part]:
    if isinstance(content, str):
        return text(content)
    parts = listed(mapping(content).get("parts"))
    return [each for part in objects(parts) for each in _part(part)]


_ROLES = {"model": "assistant", "function": "tool"}


def _message(item: dict[str, Any]) -> list[Message]:
    role = _ROLES.get(text_of(item.get("role")), item.get("role"))
    return [message(role, _parts(item))]


def _one_content(given: Any) -> list[Message]:
    if isinstance(given, str):
        return [message("user", text(given))]
    return _message(mapping(given)) if isinstance(given, dict) else []


def _tool(tool: dict[str, Any]) -> list[dict[str, Any]]:
    declared = list(objects(_either(tool, "functionDeclarations", "function_declarations")))
    if not declared:
        return [{"type": key, "name": key} for key in tool]
    return [
        function(
            each.get("name"),
            each.get("description"),
            each.get("parameters") or each.get("parametersJsonSchema"),
        )
        for each in declared
    ]


_SYSTEM, _SNAKE = "systemInstruction", "system_instruction"
_FIELDS: Final = (
    Field(_SYSTEM, "system_instructions", nothing, _parts, often_listed=False),
    Field(_SNAKE, "system_instructions", nothing, _parts, _SYSTEM, often_listed=False),
    Field("contents", "input_messages", _message, _one_content),
    Field("tools", "tool_definitions", _tool, nothing),
)


def _response(data: dict[str, Any]) -> list[Message]:
    return [
        message("assistant", _parts(each.get("content")), finish_reason=each.get("finishReason"))
        for each in objects(data.get("candidates"))
    ]


def _events(events: Iterable[dict[str, Any]]) -> list[Message]:
    candidates: dict[Any, Pieces] = {}
    for event in events:
        for candidate in objects(event.get("candidates")):
            pieces = candidates.setdefault(place_of(candidate.get("index")) or 0, Pieces())
            for part in _parts(candidate.get("content")):
                if part["type"] in ("text", "reasoning"):
                    pieces.add(part["type"], part["type"], "content", part["content"])
                else:
                    pieces.put(len(pieces.parts) + 1, part)
            reason = candidate.get("finishReason")
            pieces.finish_reason = reason if isinstance(reason, str) else pieces.finish_reason
    return [pieces.message() for pieces in candidates.values()]


GEMINI = Reader(by_fields(*_FIELDS), _response, _events, _FIELDS)
