"""Ollama's chat, Cohere's chat (v2), Amazon's converse.

https://docs.ollama.com/api/chat, https://docs.cohere.com/reference/chat,
https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_Converse.html
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from clew.content.openai import TOOLS, message_of
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
    nothing,
    objects,
    place_of,
    reasoning,
    text,
    text_of,
    tool_call,
    tool_response,
)

# --- Ollama ------------------------------------------------------------------------------------


def _ollama_message(item: dict[str, Any], reason: Any = None) -> Message:
    made = message_of({**item, "reasoning_content": item.get("thinking")}, reason)
    if "images" in item:
        made["parts"] += [blob("", image, "image") for image in listed(item["images"])]
    return made


def _ollama_entry(item: dict[str, Any]) -> list[Message]:
    return [_ollama_message(item)]


def _ollama_prompt(given: Any) -> list[Message]:
    return [message("user", text(given))] if isinstance(given, str) else []


_OLLAMA_FIELDS: Final = (
    Field("system", "system_instructions", nothing, text, often_listed=False),
    Field("messages", "input_messages", _ollama_entry, nothing),
    Field("prompt", "input_messages", nothing, _ollama_prompt, often_listed=False),
    TOOLS,
)


def _ollama_response(data: dict[str, Any]) -> list[Message]:
    if isinstance(data.get("response"), str):
        parts = [*reasoning(data.get("thinking")), *text(data["response"])]
        return [message("assistant", parts, finish_reason=data.get("done_reason"))]
    answered = mapping(data.get("message"))
    return [_ollama_message(answered, data.get("done_reason"))] if answered else []


def _ollama_events(events: Iterable[dict[str, Any]]) -> list[Message]:
    pieces = Pieces()
    for event in events:
        for made in _ollama_response(event):
            for part in made["parts"]:
                if part["type"] in ("text", "reasoning"):
                    pieces.add(part["type"], part["type"], "content", part["content"])
                else:
                    pieces.put(len(pieces.parts) + 1, part)
            pieces.finish_reason = made.get("finish_reason") or pieces.finish_reason
    return [pieces.message()] if pieces.parts else []


OLLAMA = Reader(by_fields(*_OLLAMA_FIELDS), _ollama_response, _ollama_events, _OLLAMA_FIELDS)

# --- Cohere ------------------------------------------------------------------------------------


def _cohere_message(item: dict[str, Any], reason: Any = None) -> Message:
    made = message_of(item, reason)
    thoughts = [
        part
        for block in objects(item.get("content"))
        if block.get("type") == "thinking"
        for part in reasoning(block.get("thinking"))
    ]
    made["parts"] = [
        *reasoning(item.get("tool_plan")),
        *thoughts,
        *(part for part in made["parts"] if part["type"] != "thinking"),
    ]
    return made


def _cohere_entry(item: dict[str, Any]) -> list[Message]:
    return [_cohere_message(item)]


_COHERE_FIELDS: Final = (Field("messages", "input_messages", _cohere_entry, nothing), TOOLS)


def _cohere_response(data: dict[str, Any]) -> list[Message]:
    answered = mapping(data.get("message"))
    return [_cohere_message(answered, data.get("finish_reason"))] if answered else []


def _cohere_events(events: Iterable[dict[str, Any]]) -> list[Message]:
    pieces = Pieces()
    for event in events:
        kind, delta = event.get("type"), mapping(event.get("delta"))
        said = mapping(delta.get("message"))
        index = place_of(event.get("index")) or 0
        content = mapping(said.get("content"))
        pieces.add(("text", index), "text", "content", content.get("text"))
        pieces.add(("thought", index), "reasoning", "content", content.get("thinking"))
        pieces.add("plan", "reasoning", "content", said.get("tool_plan"))
        call = mapping(said.get("tool_calls"))
        asked = mapping(call.get("function"))
        if kind in ("tool-call-start", "tool-call-delta"):
            begun = {"type": "tool_call", "name": asked.get("name"), "id": call.get("id")}
            pieces.put(("call", index), begun)
            pieces.add(("call", index), "tool_call", "arguments", asked.get("arguments"))
        reason = delta.get("finish_reason")
        pieces.finish_reason = reason if isinstance(reason, str) else pieces.finish_reason
    return [pieces.message()] if pieces.parts else []


COHERE = Reader(by_fields(*_COHERE_FIELDS), _cohere_response, _cohere_events, _COHERE_FIELDS)

# --- Amazon's converse -------------------------------------------------------------------------

_KINDS = {"image": "image", "document": "document", "video": "video", "audio": "audio"}


def _block(block: dict[str, Any]) -> list[Part]:
    if isinstance(block.get("text"), str):
        return text(block["text"])
    thought = mapping(mapping(block.get("reasoningContent")).get("reasoningText"))
    if thought:
        return reasoning(thought.get("text"))
    use = mapping(block.get("toolUse"))
    if use:
        return [tool_call(use.get("name"), use.get("input"), use.get("toolUseId"))]
    result = mapping(block.get("toolResult"))
    if result:
        return [tool_response(_blocks(result.get("content")), result.get("toolUseId"))]
    if "json" in block:
        return [{"type": "json", "content": block["json"]}]
    for key, kind in _KINDS.items():
        media = mapping(block.get(key))
        if media:
            mime = f"{kind}/{text_of(media.get('format'))}" if kind != "document" else ""
            return [blob(mime, mapping(media.get("source")).get("bytes"), kind)]
    return [{"type": next((key for key in block if isinstance(key, str)), "unknown")[:64]}]


def _blocks(content: Any) -> list[Part]:
    return [part for block in objects(content) for part in _block(block)]


def _converse_tools(configured: Any) -> list[dict[str, Any]]:
    tools: list[dict[str, Any]] = []
    for tool in objects(mapping(configured).get("tools")):
        spec = mapping(tool.get("toolSpec"))
        if spec:
            schema = mapping(spec.get("inputSchema")).get("json")
            tools.append(function(spec.get("name"), spec.get("description"), schema))
    return tools


def _converse_entry(item: dict[str, Any]) -> list[Message]:
    return [message(item.get("role"), _blocks(item.get("content")))]


_CONVERSE_FIELDS: Final = (
    Field("system", "system_instructions", _block, nothing),
    Field("messages", "input_messages", _converse_entry, nothing),
    Field("toolConfig", "tool_definitions", nothing, _converse_tools, often_listed=False),
)


def _converse_response(data: dict[str, Any]) -> list[Message]:
    answered = mapping(mapping(data.get("output")).get("message"))
    if not answered:
        return []
    parts = _blocks(answered.get("content"))
    return [message("assistant", parts, finish_reason=data.get("stopReason"))]


def _converse_events(events: Iterable[dict[str, Any]]) -> list[Message]:
    pieces = Pieces()
    for event in events:
        place = event.get("contentBlockIndex")
        use = mapping(mapping(event.get("start")).get("toolUse"))
        delta = mapping(event.get("delta"))
        if use:
            begun = {"type": "tool_call", "name": use.get("name"), "id": use.get("toolUseId")}
            pieces.put(place, begun)
        pieces.add(place, "text", "content", delta.get("text"))
        thought = mapping(delta.get("reasoningContent")).get("text")
        pieces.add(place, "reasoning", "content", thought)
        pieces.add(place, "tool_call", "arguments", mapping(delta.get("toolUse")).get("input"))
        reason = event.get("stopReason")
        pieces.finish_reason = reason if isinstance(reason, str) else pieces.finish_reason
    return [pieces.message()] if pieces.parts else []


CONVERSE = Reader(
    by_fields(*_CONVERSE_FIELDS), _converse_response, _converse_events, _CONVERSE_FIELDS
)
