"""Gemini's content (https://ai.google.dev/api/generate-content)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from clew.content.shapes import (
    Content,
    Message,
    Part,
    Pieces,
    Reader,
    blob,
    function,
    listed,
    mapping,
    message,
    modality,
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


def _messages(contents: Any) -> list[Message]:
    if isinstance(contents, str):
        return [message("user", text(contents))]
    return [
        message(_ROLES.get(text_of(item.get("role")), item.get("role")), _parts(item))
        for item in objects(listed(contents))
    ]


def _request(data: dict[str, Any]) -> Content:
    tools: list[dict[str, Any]] = []
    for tool in objects(data.get("tools")):
        declared = list(objects(_either(tool, "functionDeclarations", "function_declarations")))
        for each in declared:
            schema = each.get("parameters") or each.get("parametersJsonSchema")
            tools.append(function(each.get("name"), each.get("description"), schema))
        if not declared:
            tools.extend({"type": key, "name": key} for key in tool)
    system = _parts(_either(data, "systemInstruction", "system_instruction"))
    return Content(
        system_instructions=system or None,
        input_messages=_messages(data.get("contents")) or None,
        tool_definitions=tools or None,
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


GEMINI = Reader(_request, _response, _events)
