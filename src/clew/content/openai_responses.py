"""OpenAI's responses (https://platform.openai.com/docs/api-reference/responses)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from clew.content.shapes import (
    Field,
    Message,
    Part,
    Pieces,
    Reader,
    by_fields,
    function,
    mapping,
    message,
    nothing,
    objects,
    one_of,
    other,
    reasoning,
    text,
    text_of,
    tool_call,
    tool_response,
    uri,
)


def _part(item: dict[str, Any]) -> list[Part]:
    kind = item.get("type")
    if kind in ("input_text", "output_text", "text", "summary_text", "refusal"):
        return text(item.get("text") or item.get("refusal"))
    if kind == "input_image" and isinstance(item.get("image_url"), str):
        return [uri(item["image_url"])]
    if kind in ("input_image", "input_file"):
        if isinstance(item.get("file_data"), str):
            return [uri(item["file_data"], "document")]
        modality = "image" if kind == "input_image" else "document"
        return [{"type": "file", "modality": modality, "file_id": text_of(item.get("file_id"))}]
    return [other(item)]


def _parts(content: Any) -> list[Part]:
    if isinstance(content, str):
        return text(content)
    return [part for item in objects(content) for part in _part(item)]


def _item(item: dict[str, Any]) -> Message:
    """Return one entry of a request's `input` or of a response's `output`."""
    kind = item.get("type")
    if kind == "function_call":
        call = tool_call(item.get("name"), item.get("arguments"), item.get("call_id"))
        return message("assistant", [call])
    if kind == "function_call_output":
        output = item.get("output")
        result = output if isinstance(output, str) else _parts(output)
        return message("tool", [tool_response(result, item.get("call_id"))])
    if kind == "reasoning":
        thoughts = [part for each in objects(item.get("summary")) for part in _part(each)]
        thoughts += [part for each in objects(item.get("content")) for part in _part(each)]
        return message(
            "assistant", [p for each in thoughts for p in reasoning(each.get("content"))]
        )
    if kind in (None, "message"):
        return message(item.get("role"), _parts(item.get("content")))
    return message("assistant", [other(item)])


def _tool(tool: dict[str, Any]) -> list[dict[str, Any]]:
    if tool.get("type") != "function":
        return [one_of(tool)]
    return [function(tool.get("name"), tool.get("description"), tool.get("parameters"))]


def _entry(item: dict[str, Any]) -> list[Message]:
    return [_item(item)]


def _text_alone(given: Any) -> list[Message]:
    return [message("user", text(given))] if isinstance(given, str) else []


_FIELDS: Final = (
    Field("instructions", "system_instructions", nothing, text, often_listed=False),
    Field("input", "input_messages", _entry, _text_alone),
    Field("tools", "tool_definitions", _tool, nothing),
)


def _response(data: dict[str, Any]) -> list[Message]:
    parts = [part for item in objects(data.get("output")) for part in _item(item)["parts"]]
    return [message("assistant", parts)] if parts else []


def _events(events: Iterable[dict[str, Any]]) -> list[Message]:
    pieces = Pieces()
    for event in events:
        kind = text_of(event.get("type"))
        whole = mapping(event.get("response"))
        if kind in ("response.completed", "response.incomplete") and whole.get("output"):
            return _response(whole)
        place = (event.get("output_index"), event.get("content_index"))
        if kind in ("response.output_text.delta", "response.refusal.delta"):
            pieces.add(place, "text", "content", event.get("delta"))
        elif kind in ("response.reasoning_summary_text.delta", "response.reasoning_text.delta"):
            pieces.add(place, "reasoning", "content", event.get("delta"))
        elif kind == "response.output_item.added":
            item = mapping(event.get("item"))
            if item.get("type") == "function_call":
                call = {"type": "tool_call", "name": item.get("name"), "id": item.get("call_id")}
                pieces.put((event.get("output_index"), None), call)
        elif kind == "response.function_call_arguments.delta":
            where = (event.get("output_index"), None)
            pieces.add(where, "tool_call", "arguments", event.get("delta"))
    return [pieces.message()] if pieces.parts else []


RESPONSES = Reader(by_fields(*_FIELDS), _response, _events, _FIELDS, closing=b"response.completed")
