"""Answers of each provider's format, whole and streamed, with a usage that is given."""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

CHAT, RESPONSES = "/v1/chat/completions", "/v1/responses"
MESSAGES, CONVERSE = "/v1/messages", "/model/model-x/converse"
GEMINI = "/v1beta/models/model-x:generateContent"
INTERACTIONS = "/v1beta/interactions"
OLLAMA = ("/api/chat", "/api/generate")


class Bill(NamedTuple):
    """An answer's usage, and what the round says of it."""

    path: str
    usage: dict[str, Any]
    tokens: dict[str, int | None]
    cost: float | None
    status: str = "priced"
    missing: tuple[str, ...] | None = None
    model: str = "model-x"
    more: Mapping[str, Any] = MappingProxyType({})


def chat(prompt: int, completion: int, **details: dict[str, int]) -> dict[str, Any]:
    return {
        "prompt_tokens": prompt, "completion_tokens": completion,
        "total_tokens": prompt + completion, **details,
    }  # fmt: skip


def answer_of(bill: Bill) -> dict[str, Any]:
    """Return a whole answer of the path's format."""
    if bill.path in OLLAMA:
        text = {"message": {"role": "assistant", "content": "x"}, "response": "x"}
        return {"model": bill.model, "done": True, "done_reason": "stop", **text, **bill.usage}
    if bill.path == CHAT:
        message = {"role": "assistant", "content": "x"}
        choices = [{"index": 0, "message": message, "finish_reason": "stop"}]
        return {"id": "c", "model": bill.model, "choices": choices, "usage": bill.usage}
    if bill.path.startswith("/v1beta/models"):
        content = {"role": "model", "parts": [{"text": "x"}]}
        candidates = [{"content": content, "finishReason": "STOP"}]
        return {
            "modelVersion": bill.model, "candidates": candidates, "usageMetadata": bill.usage,
        }  # fmt: skip
    if bill.path == CONVERSE:
        message = {"role": "assistant", "content": [{"text": "x"}]}
        return {"output": {"message": message}, "stopReason": "end_turn", "usage": bill.usage}
    if bill.path == MESSAGES:
        content = [{"type": "text", "text": "x"}]
        return {
            "id": "m", "type": "message", "role": "assistant", "model": bill.model,
            "content": content, "stop_reason": "end_turn", "usage": bill.usage,
        }  # fmt: skip
    return {
        "id": "r", "object": "response", "model": bill.model, "status": "completed", "output": [],
        "outputs": [], "usage": bill.usage,
    }  # fmt: skip


def streamed(bill: Bill) -> tuple[str, str, bytes]:
    """Return the path, the media type and the bytes of the same answer as a stream."""

    def event(body: Any, name: str | None = None) -> bytes:
        head = f"event: {name}\n".encode() if name else b""
        return head + b"data: " + json.dumps(body).encode() + b"\n\n"

    whole = answer_of(bill)
    sse = "text/event-stream"
    if bill.path in OLLAMA:
        first = {"model": bill.model, "done": False, "message": {"content": "x"}, "response": "x"}
        lines = b"".join(json.dumps(each).encode() + b"\n" for each in (first, whole))
        return bill.path, "application/x-ndjson", lines
    if bill.path == CHAT:
        delta = {"choices": [{"index": 0, "delta": {"content": "x"}, "finish_reason": "stop"}]}
        head = {"id": "c", "model": bill.model}
        last = {**head, "choices": [], "usage": bill.usage}
        return bill.path, sse, event({**head, **delta}) + event(last) + b"data: [DONE]\n\n"
    if bill.path.startswith("/v1beta/models"):
        path = bill.path.replace(":generateContent", ":streamGenerateContent?alt=sse")
        return path, sse, event(whole)
    if bill.path == MESSAGES:
        start = {
            **whole,
            "content": [],
            "stop_reason": None,
            "usage": {**bill.usage, "output_tokens": 1},
        }
        ending = {
            "type": "message_delta",
            "delta": {"stop_reason": "end_turn"},
            "usage": bill.usage,
        }
        return bill.path, sse, (
            event({"type": "message_start", "message": start}, "message_start")
            + event(ending, "message_delta")
            + event({"type": "message_stop"}, "message_stop")
        )  # fmt: skip
    if bill.path == RESPONSES:
        done = {"type": "response.completed", "response": whole}
        return bill.path, sse, event(done, "response.completed")
    return "", "", b""
