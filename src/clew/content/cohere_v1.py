"""Cohere's chat, version 1 (https://docs.cohere.com/reference/chat-v1)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from clew.content.shapes import (
    Content,
    Message,
    Part,
    Pieces,
    Reader,
    function,
    mapping,
    message,
    objects,
    text,
    text_of,
    tool_call,
    tool_response,
)

_ROLES = {"CHATBOT": "assistant", "USER": "user", "SYSTEM": "system", "TOOL": "tool"}


def _calls(calls: Any) -> list[Part]:
    return [tool_call(call.get("name"), call.get("parameters")) for call in objects(calls)]


def _results(results: Any) -> list[Part]:
    return [tool_response(result.get("outputs")) for result in objects(results)]


def _history(item: dict[str, Any]) -> Message:
    role = text_of(item.get("role"))
    parts = [
        *text(item.get("message")),
        *_calls(item.get("tool_calls")),
        *_results(item.get("tool_results")),
    ]
    return message(_ROLES.get(role.upper(), role), parts)


def _tool(tool: dict[str, Any]) -> dict[str, Any]:
    """Parameters are not a schema here: each has a type, a description, and may be required."""
    described = mapping(tool.get("parameter_definitions"))
    schema: dict[str, Any] | None = None
    if described:
        required = [name for name, one in described.items() if mapping(one).get("required") is True]
        schema = {"type": "object", "properties": described, "required": required}
    return function(tool.get("name"), tool.get("description"), schema)


def _request(data: dict[str, Any]) -> Content:
    messages = [_history(item) for item in objects(data.get("chat_history"))]
    if text_of(data.get("message")):
        messages.append(message("user", text(data["message"])))
    results = _results(data.get("tool_results"))
    if results:
        messages.append(message("tool", results))
    tools = [_tool(tool) for tool in objects(data.get("tools"))]
    return Content(
        system_instructions=text(data.get("preamble")) or None,
        input_messages=messages or None,
        tool_definitions=tools or None,
    )


def _response(data: dict[str, Any]) -> list[Message]:
    parts = [*text(data.get("text")), *_calls(data.get("tool_calls"))]
    reason = data.get("finish_reason")
    if not parts:
        return []
    return [message("assistant", parts, finish_reason=reason if isinstance(reason, str) else None)]


def _events(events: Iterable[dict[str, Any]]) -> list[Message]:
    pieces = Pieces()
    for event in events:
        kind = event.get("event_type")
        if kind == "text-generation":
            pieces.add("text", "text", "content", event.get("text"))
        elif kind == "tool-calls-generation":
            for place, call in enumerate(_calls(event.get("tool_calls"))):
                pieces.put(("call", place), call)
        elif kind == "stream-end":
            reason = event.get("finish_reason")
            pieces.finish_reason = reason if isinstance(reason, str) else pieces.finish_reason
    return [pieces.message()] if pieces.parts else []


COHERE_V1 = Reader(_request, _response, _events)
