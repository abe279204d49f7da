"""Gemini's interactions (https://ai.google.dev/api/interactions-api).

What went in and came out are steps; earlier they were loose contents, and `outputs`.
"""

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
    one_of,
    other,
    place_of,
    reasoning,
    text,
    text_of,
    tool_call,
    tool_response,
)

_MEDIA = frozenset({"image", "audio", "video", "document"})
_ROLES = {"model": "assistant", "model_output": "assistant", "user_input": "user"}


def _summary(summary: Any) -> list[Part]:
    texts = [text_of(item.get("text")) for item in objects(listed(summary))]
    return reasoning("\n".join(filter(None, texts)))


def _part(item: dict[str, Any]) -> list[Part]:
    kind = text_of(item.get("type"))
    if kind == "text":
        return text(item.get("text"))
    if kind in _MEDIA:
        mime = text_of(item.get("mime_type"))
        if isinstance(item.get("data"), str):
            return [blob(mime, item["data"], kind)]
        where: Part = {"type": "uri", "modality": kind, "uri": text_of(item.get("uri"))}
        return [{**where, "mime_type": mime} if mime else where]
    if kind == "thought":
        return _summary(item.get("summary"))
    if kind == "function_call":
        return [tool_call(item.get("name"), item.get("arguments"), item.get("id"))]
    if kind == "function_result":
        result = item.get("result")
        parts = isinstance(result, list)
        return [tool_response(_parts(result) if parts else result, item.get("call_id"))]
    if kind in ("user_input", "model_output"):
        return _parts(item.get("content"))
    return [other(item)]


def _parts(content: Any) -> list[Part]:
    if isinstance(content, str):
        return text(content)
    return [part for item in objects(listed(content)) for part in _part(item)]


def _role(item: dict[str, Any]) -> str:
    role = item.get("role")
    kind = role if isinstance(role, str) else text_of(item.get("type"))
    if kind == "function_result":
        return "tool"
    return _ROLES.get(kind, "assistant" if kind in ("function_call", "thought") else "user")


def _input(given: Any) -> list[Message]:
    """Return messages: a text, steps, turns with a role, or contents, which are one message."""
    if isinstance(given, str):
        return [message("user", text(given))]
    found: list[Message] = []
    for item in objects(listed(given)):
        role = _role(item)
        parts = _parts(item.get("content")) if "role" in item else _part(item)
        if found and found[-1]["role"] == role and "role" not in item:
            found[-1]["parts"] += parts
        else:
            found.append(message(role, parts))
    return found


def _request(data: dict[str, Any]) -> Content:
    tools = [
        function(tool.get("name"), tool.get("description"), tool.get("parameters"))
        if tool.get("type") in (None, "function")
        else one_of(tool)
        for tool in objects(data.get("tools"))
    ]
    return Content(
        system_instructions=_parts(data.get("system_instruction")) or None,
        input_messages=_input(data.get("input")) or None,
        tool_definitions=tools or None,
    )


def _response(data: dict[str, Any]) -> list[Message]:
    steps = [
        step
        for step in objects(data.get("steps") or data.get("outputs"))
        if step.get("type") not in ("user_input", "function_result")
    ]
    parts = [part for step in steps for part in _part(step)]
    status = data.get("status")
    if not parts:
        return []
    return [message("assistant", parts, finish_reason=status if isinstance(status, str) else None)]


def _events(events: Iterable[dict[str, Any]]) -> list[Message]:
    pieces = Pieces()
    for event in events:
        place, delta = place_of(event.get("index")), mapping(event.get("delta"))
        begun = mapping(event.get("step")) or mapping(event.get("content"))
        kind = text_of(delta.get("type"))
        if begun.get("type") == "function_call":
            pieces.put(place, _called(begun))
        elif begun:
            for at, part in enumerate(_part(begun)):
                _add(pieces, (place, "begun", at) if at else place, part)
        if kind == "text":
            pieces.add(place, "text", "content", delta.get("text"))
        elif kind == "thought_summary":
            pieces.add(place, "reasoning", "content", mapping(delta.get("content")).get("text"))
        elif kind == "arguments_delta":
            pieces.add(place, "tool_call", "arguments", delta.get("arguments"))
        elif kind == "function_call":
            pieces.put(place, _called(delta))
        elif kind in _MEDIA:
            mime = text_of(delta.get("mime_type"))
            pieces.put(place, {"type": "blob", "modality": modality(mime) if mime else kind})
            pieces.add(place, "blob", "content", delta.get("data"))
        status = mapping(event.get("interaction")).get("status")
        pieces.finish_reason = status if isinstance(status, str) else pieces.finish_reason
    return [pieces.message()] if pieces.parts else []


def _called(item: dict[str, Any]) -> Part:
    """Return a call that has begun; its arguments may come piece by piece."""
    arguments = item.get("arguments") or None
    return {
        "type": "tool_call",
        "name": text_of(item.get("name")),
        "arguments": arguments,
        "id": item.get("id"),
    }


def _add(pieces: Pieces, place: Any, part: Part) -> None:
    if part["type"] in ("text", "reasoning"):
        pieces.add(place, part["type"], "content", part["content"])
    else:
        pieces.put(place, part)


INTERACTIONS = Reader(_request, _response, _events)
