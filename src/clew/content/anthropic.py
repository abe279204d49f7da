"""Anthropic's messages (https://docs.anthropic.com/en/api/messages)."""

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


def _source(block: dict[str, Any], kind: str) -> list[Part]:
    source = mapping(block.get("source"))
    if source.get("type") == "base64":
        return [blob(source.get("media_type"), source.get("data"), kind)]
    if source.get("type") == "url":
        return [uri(source.get("url"), kind)]
    if source.get("type") == "text":
        return text(source.get("data"))
    if source.get("type") == "file":
        return [{"type": "file", "modality": kind, "file_id": text_of(source.get("file_id"))}]
    return [other(block)]


def _parts(content: Any) -> list[Part]:
    if isinstance(content, str):
        return text(content)
    return [part for block in objects(content) for part in _part(block)]


def _part(block: dict[str, Any]) -> list[Part]:
    kind = text_of(block.get("type"))
    if kind == "text":
        return text(block.get("text"))
    if kind == "thinking":
        return reasoning(block.get("thinking"))
    if kind in ("image", "document"):
        return _source(block, kind)
    if kind == "tool_use":
        return [tool_call(block.get("name"), block.get("input"), block.get("id"))]
    if kind == "tool_result":
        content = block.get("content")
        result = content if isinstance(content, str) else _parts(content)
        return [tool_response(result, block.get("tool_use_id"))]
    if kind == "server_tool_use":
        call = {"type": text_of(block.get("name")), "input": block.get("input")}
        part: Part = {"type": "server_tool_call", "name": call["type"], "server_tool_call": call}
        return [{**part, "id": text_of(block.get("id"))}]
    return [other(block)]


def _tool(tool: dict[str, Any]) -> list[dict[str, Any]]:
    if tool.get("type") not in (None, "custom"):
        return [one_of(tool)]
    return [function(tool.get("name"), tool.get("description"), tool.get("input_schema"))]


def _message(item: dict[str, Any]) -> list[Message]:
    return [message(item.get("role"), _parts(item.get("content")))]


_FIELDS: Final = (
    Field("system", "system_instructions", _part, _parts, often_listed=False),
    Field("messages", "input_messages", _message, nothing),
    Field("tools", "tool_definitions", _tool, nothing),
)


def _response(data: dict[str, Any]) -> list[Message]:
    parts = _parts(data.get("content"))
    reason = data.get("stop_reason")
    if not parts and reason is None:
        return []
    return [message("assistant", parts, finish_reason=reason if isinstance(reason, str) else None)]


def _events(events: Iterable[dict[str, Any]]) -> list[Message]:
    pieces = Pieces()
    for event in events:
        place = place_of(event.get("index"))
        delta = mapping(event.get("delta"))
        kind = event.get("type")
        if kind == "content_block_start":
            block = mapping(event.get("content_block"))
            if block.get("type") == "tool_use":
                name, call_id = block.get("name"), block.get("id")
                pieces.put(place, {"type": "tool_call", "name": name, "id": call_id})
            elif block.get("type") not in ("text", "thinking"):
                for part in _part(block):
                    pieces.put(place, part)
        elif kind == "content_block_delta":
            pieces.add(place, "text", "content", delta.get("text"))
            pieces.add(place, "reasoning", "content", delta.get("thinking"))
            piece = delta.get("partial_json")
            if piece is not None and mapping(pieces.parts.get(place)).get("type") == "tool_call":
                pieces.add(place, "tool_call", "arguments", piece)
        elif kind == "message_delta":
            reason = delta.get("stop_reason")
            pieces.finish_reason = reason if isinstance(reason, str) else pieces.finish_reason
    return [pieces.message()] if pieces.parts else []


_TOLD: Final = ("type", "index", "delta", "content_block")
_GROWING: Final = frozenset((b"text", b"thinking", b"partial_json"))
MESSAGES = Reader(by_fields(*_FIELDS), _response, _events, _FIELDS, _TOLD, _GROWING)
