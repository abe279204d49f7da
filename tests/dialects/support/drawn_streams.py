"""Plausible streams of dialects, drawn by hypothesis and written as servers do."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from clew.facts import ResponseFacts
from clew.typing import StreamReader

HARD_TEXTS = (
    '"usage":{"prompt_tokens":9}',
    '"finish_reason":"stop"',
    '"error":{"type":"x"}',
    '\\"name\\":\\"f\\"',
    '"}}],"tool_calls":[{"id":"a","function":{"name":"f"}}]',
    "\\",
    "\\\\",
    '"',
    '\\"',
    "\n\ndata: [DONE]\n\n",
    "event: response.completed",
    "\r\n\r\n",
    "é 漢 😀",
    "\u2028",
    "12 3.5e7",
)
TEXTS = st.one_of(
    st.text(max_size=12), st.sampled_from(HARD_TEXTS), st.just("word"), st.just("another")
)


def events_of(name: str, draw: Callable[[Any], Any]) -> list[dict[str, Any]]:
    """Draw a plausible stream of a dialect."""
    return [GENERATORS[name](draw) for _ in range(draw(st.integers(0, 12)))]


def chat_chunk(draw: Callable[[Any], Any]) -> dict[str, Any]:
    """Draw a chat completions chunk."""
    kind = draw(st.sampled_from(["content"] * 6 + ["reasoning", "call", "arguments", "end"]))
    delta: dict[str, Any] = {}
    if kind in ("content", "reasoning"):
        delta = {kind: draw(TEXTS)}
    elif kind == "call":
        call = {"index": draw(st.integers(0, 2)), "id": draw(st.sampled_from(["a", "b", ""]))}
        delta = {"tool_calls": [call | {"function": {"name": "f", "arguments": ""}}]}
    elif kind == "arguments":
        delta = {"tool_calls": [{"index": 0, "function": {"arguments": draw(TEXTS)}}]}
    index = draw(st.sampled_from([0, 0, 0, 0, 1]))
    finish = draw(st.sampled_from(["stop", "length", "weird"])) if kind == "end" else None
    chunk: dict[str, Any] = {
        "id": draw(st.sampled_from(["c1", "c1", "c1", ""])),
        "created": draw(st.sampled_from([1, 1, 1, 2])),
        "model": "m-1",
        "choices": [{"index": index, "delta": delta, "finish_reason": finish}],
    }
    if draw(st.booleans()):
        chunk["obfuscation"] = draw(st.text("abcdef", max_size=6))
    if draw(st.integers(0, 5)) == 0:
        chunk["usage"] = {
            "prompt_tokens": draw(st.integers(0, 300)),
            "completion_tokens": draw(st.integers(0, 30)),
        }
    if draw(st.integers(0, 15)) == 0:
        chunk["error"] = {"type": "overloaded", "code": 529}
    return chunk


def responses_event(draw: Callable[[Any], Any]) -> dict[str, Any]:
    """Draw a Responses event."""
    kind = draw(
        st.sampled_from(
            ["response.output_text.delta"] * 5
            + ["response.function_call_arguments.delta", "response.output_item.added"]
            + ["response.created", "response.completed", "error"]
        )
    )
    event: dict[str, Any] = {"type": kind, "sequence_number": draw(st.integers(0, 99))}
    if kind.endswith(".delta"):
        event |= {"delta": draw(TEXTS), "item_id": "i1", "output_index": 0}
    elif kind == "response.output_item.added":
        item = {"type": "function_call", "call_id": draw(st.sampled_from("ab")), "name": "f"}
        event |= {"output_index": draw(st.integers(0, 2)), "item": item}
    elif kind == "error":
        event |= {"code": "x", "message": draw(TEXTS)}
    else:
        usage = {"input_tokens": draw(st.integers(0, 50)), "output_tokens": 3}
        event["response"] = {"id": "r1", "model": "m", "status": "completed", "usage": usage}
    return event


def anthropic_event(draw: Callable[[Any], Any]) -> dict[str, Any]:
    """Draw an Anthropic event."""
    kind = draw(
        st.sampled_from(
            ["content_block_delta"] * 5
            + ["message_start", "content_block_start", "message_delta", "ping", "message_stop"]
        )
    )
    event: dict[str, Any] = {"type": kind}
    index = draw(st.integers(0, 2))
    if kind == "content_block_delta":
        delta = {"type": "text_delta", "text": draw(TEXTS)}
        if draw(st.booleans()):
            delta = {"type": "input_json_delta", "partial_json": draw(TEXTS)}
        event |= {"index": index, "delta": delta}
    elif kind == "content_block_start":
        block = {"type": "tool_use", "id": draw(st.sampled_from("ab")), "name": "f", "input": {}}
        event |= {"index": index, "content_block": block}
    elif kind == "message_start":
        usage = {"input_tokens": draw(st.integers(0, 50)), "output_tokens": 1}
        event["message"] = {"id": "m1", "model": "claude", "usage": usage}
    elif kind == "message_delta":
        usage = {"output_tokens": draw(st.integers(0, 50))}
        event |= {"delta": {"stop_reason": "end_turn"}, "usage": usage}
    return event


def gemini_chunk(draw: Callable[[Any], Any]) -> dict[str, Any]:
    """Draw a Gemini chunk."""
    part: dict[str, Any] = {"text": draw(TEXTS)}
    if draw(st.integers(0, 5)) == 0:
        part = {"functionCall": {"name": "f", "args": {}}}
    candidate: dict[str, Any] = {"content": {"parts": [part], "role": "model"}}
    candidate["index"] = draw(st.sampled_from([0, 0, 0, 1]))
    if draw(st.integers(0, 6)) == 0:
        candidate["finishReason"] = "STOP"
    chunk: dict[str, Any] = {"candidates": [candidate]}
    if draw(st.booleans()):
        chunk["usageMetadata"] = {
            "promptTokenCount": draw(st.integers(0, 500)),
            "candidatesTokenCount": draw(st.integers(0, 500)),
        }
    return chunk | {"modelVersion": "gemini", "responseId": "r"}


def ollama_line(draw: Callable[[Any], Any]) -> dict[str, Any]:
    """Draw a line of Ollama's."""
    line: dict[str, Any] = {"model": "llama", "created_at": draw(st.sampled_from(["t1", "t2"]))}
    line["message"] = {"role": "assistant", "content": draw(TEXTS)}
    if draw(st.integers(0, 6)) == 0:
        line["message"]["tool_calls"] = [{"function": {"name": "f", "arguments": {}}}]
    line["done"] = draw(st.integers(0, 6)) == 0
    if line["done"]:
        line |= {"done_reason": "stop", "eval_count": draw(st.integers(0, 50))}
    return line


def cohere_event(draw: Callable[[Any], Any]) -> dict[str, Any]:
    """Draw a Cohere event."""
    kind = draw(st.sampled_from(["content-delta"] * 5 + ["tool-call-start", "message-end"]))
    event: dict[str, Any] = {"type": kind, "index": draw(st.integers(0, 2))}
    if kind == "content-delta":
        return event | {"delta": {"message": {"content": {"text": draw(TEXTS)}}}}
    if kind == "tool-call-start":
        call = {"id": draw(st.sampled_from("ab")), "function": {"name": "f", "arguments": ""}}
        return event | {"delta": {"message": {"tool_calls": call}}}
    usage = {"billed_units": {"input_tokens": draw(st.integers(0, 9)), "output_tokens": 2}}
    return event | {"delta": {"finish_reason": "COMPLETE", "usage": usage}}


GENERATORS = {
    "openai_chat": chat_chunk,
    "openai_responses": responses_event,
    "anthropic_messages": anthropic_event,
    "gemini_content": gemini_chunk,
    "ollama": ollama_line,
    "cohere_chat": cohere_event,
}


def written(name: str, events: list[dict[str, Any]], draw: Callable[[Any], Any]) -> bytes:
    """Write a stream in one of the ways servers do."""
    spaced = draw(st.booleans())
    style = {
        "separators": (", ", ": ") if spaced else (",", ":"),
        "ensure_ascii": draw(st.booleans()),
    }
    texts = [json.dumps(event, **style) for event in events]
    if name == "ollama":
        return "".join(text + "\n" for text in texts).encode()
    end = draw(st.sampled_from(["\n", "\n", "\r\n", "\r"]))
    named = draw(st.booleans())
    lines: list[str] = []
    for event, text in zip(events, texts, strict=True):
        if draw(st.integers(0, 9)) == 0:
            lines += [": comment", ""]
        if named and "type" in event:
            lines.append(f"event: {event['type']}")
        padding = " " * draw(st.integers(0, 3)) if draw(st.booleans()) else ""
        lines += [f"data: {text[:-1]}{padding}{text[-1]}", ""]
    if draw(st.booleans()):
        lines += ["data: [DONE]", ""]
    return "".join(line + end for line in lines).encode()


def slowly(reader: StreamReader) -> StreamReader:
    """Switch a reader's fast path off."""
    kind = type(reader)
    off = type(kind.__name__, (kind,), {"__slots__": (), "holes": None, "quiet_types": frozenset()})
    reader.__class__ = off  # type: ignore[misc]
    return reader


def outcome(reader: StreamReader, pieces: list[bytes]) -> tuple[ResponseFacts, int, bool]:
    """Feed a reader; return all it says."""
    for piece in pieces:
        reader.feed(piece)
    return reader.result(), reader.chunks, reader.started
