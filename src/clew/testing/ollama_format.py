"""Ollama's chat API as the server writes it: https://docs.ollama.com/api/chat."""

from __future__ import annotations

import json
from typing import Any, Final

from clew.facts import Usage
from clew.testing.loopback import ReceivedRequest
from clew.testing.script import Reply, ScriptedError
from clew.testing.wire import WireFormat, requested

CREATED: Final = "2026-01-01T00:00:00Z"
"""A fixed time, so that two equal scripts give equal bytes."""


class OllamaChat(WireFormat):
    """`POST /api/chat`, plain and as JSON lines."""

    stream_type = "application/x-ndjson"

    def matches(self, method: str, path: str) -> bool:
        """Tell whether this is the chat endpoint, under any prefix."""
        return method == "POST" and path.endswith("/api/chat")

    def headers(self, number: int) -> dict[str, str]:
        """Return none of its own."""
        return {}

    def streams(self, request: ReceivedRequest) -> bool:
        """Tell whether the answer is streamed, which it is unless that is refused."""
        return requested(request, "stream") is not False

    def body(self, reply: Reply, request: ReceivedRequest) -> dict[str, Any]:
        """Return a whole answer."""
        message: dict[str, Any] = {
            "role": "assistant",
            "content": "".join(reply.text_pieces),
        }
        if reply.reasoning is not None:
            message["thinking"] = "".join(reply.reasoning_pieces)
        if reply.tool_calls:
            message["tool_calls"] = _calls(reply)
        return _line(reply, request, message) | _ending(reply)

    def events(self, reply: Reply, request: ReceivedRequest) -> list[bytes]:
        """Return the lines of a stream; the last one has the reason and the counts."""
        messages: list[dict[str, Any]] = [
            {"role": "assistant", "content": "", "thinking": piece}
            for piece in reply.reasoning_pieces
        ]
        messages += [{"role": "assistant", "content": piece} for piece in reply.text_pieces]
        messages += [
            {"role": "assistant", "content": "", "tool_calls": [call]} for call in _calls(reply)
        ]
        lines = [_line(reply, request, message) | {"done": False} for message in messages]
        empty = {"role": "assistant", "content": ""}
        lines.append(_line(reply, request, empty) | _ending(reply))
        return [_framed(line) for line in lines]

    def error_body(self, error: ScriptedError, status: int, number: int) -> dict[str, Any]:
        """Return the error: its text is all that this provider says."""
        return {"error": error.message}

    def error_event(self, error: ScriptedError, number: int) -> bytes:
        """Return the error as a line."""
        return _framed(self.error_body(error, 500, number))


def _framed(line: dict[str, Any]) -> bytes:
    return json.dumps(line, separators=(",", ":")).encode() + b"\n"


def _line(reply: Reply, request: ReceivedRequest, message: dict[str, Any]) -> dict[str, Any]:
    model = reply.model or requested(request, "model") or "scripted"
    return {"model": model, "created_at": CREATED, "message": message}


def _calls(reply: Reply) -> list[dict[str, Any]]:
    calls: list[dict[str, Any]] = []
    for index, call in enumerate(reply.tool_calls):
        function = {
            "index": index,
            "name": call.name,
            "arguments": json.loads(call.argument_text),
        }
        named: dict[str, Any] = {} if call.id is None else {"id": call.id}
        calls.append(named | {"function": function})
    return calls


def _ending(reply: Reply) -> dict[str, Any]:
    ending: dict[str, Any] = {
        "done": True,
        "done_reason": reply.finish_reason or "stop",
        "total_duration": 7_000_000,
        "load_duration": 1_000_000,
    }
    usage = reply.usage
    if usage is None:
        return ending
    if not isinstance(usage, Usage):
        return ending | dict(usage)
    return ending | {
        "prompt_eval_count": usage.input_tokens or 0,
        "prompt_eval_duration": 2_000_000,
        "eval_count": usage.output_tokens or 0,
        "eval_duration": 4_000_000,
    }
