"""Mistral's chat completions as the server writes them: https://docs.mistral.ai/api/endpoint/chat.

The path is OpenAI's, so this format is given in the other's place:
`ScriptedProvider(formats=[MistralChatCompletions()])`.
"""

from __future__ import annotations

from typing import Any, Final

from clew.facts import Usage
from clew.testing.loopback import ReceivedRequest
from clew.testing.openai_format import CREATED
from clew.testing.script import Reply, ScriptedError, sse
from clew.testing.wire import WireFormat, requested

_ERRORS: Final[dict[int, tuple[str, str]]] = {
    400: ("invalid_request_invalid_args", "3051"),
    401: ("unauthorized", "1000"),
    404: ("invalid_model", "1500"),
    429: ("service_tier_capacity_exceeded", "3505"),
}


class MistralChatCompletions(WireFormat):
    """`POST …/chat/completions`, plain and streamed."""

    def matches(self, method: str, path: str) -> bool:
        """Tell whether this is the chat completions endpoint, under any prefix."""
        return method == "POST" and path.endswith("/chat/completions")

    def headers(self, number: int) -> dict[str, str]:
        """Return the id by which the provider's gateway knows the request."""
        return {"mistral-correlation-id": f"{number:032x}"}

    def body(self, reply: Reply, request: ReceivedRequest) -> dict[str, Any]:
        """Return a `chat.completion` object."""
        message: dict[str, Any] = {
            "role": "assistant",
            "tool_calls": _calls(reply, request.number) or None,
            "content": "".join(reply.text_pieces),
        }
        if reply.reasoning is not None:
            text = {"type": "text", "text": "".join(reply.text_pieces)}
            message["content"] = [_thinking("".join(reply.reasoning_pieces)), text]
        choice = {"index": 0, "finish_reason": _finish_reason(reply), "message": message}
        envelope = _envelope(reply, request, "chat.completion")
        return envelope | {"choices": [choice]} | _usage(reply)

    def events(self, reply: Reply, request: ReceivedRequest) -> list[bytes]:
        """Return the chunks, of which the last has the usage unasked, and the closing mark."""
        deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
        deltas += [{"content": [_thinking(piece)]} for piece in reply.reasoning_pieces]
        deltas += [{"content": piece} for piece in reply.text_pieces]
        calls = _calls(reply, request.number)
        last: dict[str, Any] = {"content": "", "tool_calls": calls} if calls else {"content": ""}
        envelope = _envelope(reply, request, "chat.completion.chunk")
        chunks = [
            {**envelope, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
            for delta in deltas
        ]
        end = {"index": 0, "delta": last, "finish_reason": _finish_reason(reply)}
        chunks.append({**envelope, "choices": [end], **_usage(reply)})
        return [*(sse(chunk) for chunk in chunks), sse("[DONE]")]

    def error_body(self, error: ScriptedError, status: int, number: int) -> dict[str, Any]:
        """Return an error: its fields stand in the body itself."""
        kind, code = _ERRORS.get(status, ("internal_server_error", "3000"))
        return {
            "object": "error",
            "message": error.message,
            "type": error.type or kind,
            "param": error.param,
            "code": error.code or code,
        }

    def error_event(self, error: ScriptedError, number: int) -> bytes:
        """Return the error as a chunk: the stream has no event of its own for it."""
        return sse({"error": self.error_body(error, 500, number)})


def _envelope(reply: Reply, request: ReceivedRequest, kind: str) -> dict[str, Any]:
    return {
        "id": reply.id or f"{request.number:032x}",
        "object": kind,
        "created": CREATED,
        "model": reply.model or requested(request, "model") or "scripted",
    }


def _finish_reason(reply: Reply) -> str:
    return reply.finish_reason or ("tool_calls" if reply.tool_calls else "stop")


def _thinking(text: str) -> dict[str, Any]:
    return {"type": "thinking", "thinking": [{"type": "text", "text": text}]}


def _calls(reply: Reply, number: int) -> list[dict[str, Any]]:
    """Return the calls, whole; ids are nine letters and digits."""
    return [
        {
            "id": call.id or f"c{number:04d}{index:04d}",
            "function": {"name": call.name, "arguments": call.argument_text},
            "index": index,
        }
        for index, call in enumerate(reply.tool_calls)
    ]


def _usage(reply: Reply) -> dict[str, Any]:
    usage = reply.usage
    if usage is None:
        return {}
    if not isinstance(usage, Usage):
        return {"usage": dict(usage)}
    read, written = usage.input_tokens or 0, usage.output_tokens or 0
    return {
        "usage": {
            "prompt_tokens": read,
            "total_tokens": read + written,
            "completion_tokens": written,
        }
    }
