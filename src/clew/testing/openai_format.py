"""OpenAI chat completions as the server writes them.

https://platform.openai.com/docs/api-reference/chat/create
https://platform.openai.com/docs/api-reference/chat-streaming
"""

from __future__ import annotations

from typing import Any, Final

from clew.facts import Usage
from clew.testing.loopback import ReceivedRequest
from clew.testing.script import Reply, ScriptedError, sse
from clew.testing.wire import WireFormat, requested

CREATED: Final = 1_760_000_000
"""A fixed time, so that two equal scripts give equal bytes."""

_ERRORS: Final[dict[int, tuple[str, str | None]]] = {
    400: ("invalid_request_error", None),
    401: ("invalid_request_error", "invalid_api_key"),
    403: ("invalid_request_error", "unsupported_country_region_territory"),
    404: ("invalid_request_error", "model_not_found"),
    429: ("requests", "rate_limit_exceeded"),
    500: ("server_error", None),
    503: ("server_error", None),
}


class OpenAIChatCompletions(WireFormat):
    """`POST …/chat/completions`, plain and streamed."""

    def matches(self, method: str, path: str) -> bool:
        """Tell whether this is the chat completions endpoint, under any prefix."""
        return method == "POST" and path.endswith("/chat/completions")

    def headers(self, number: int) -> dict[str, str]:
        """Return the request id and the API version."""
        return {
            "x-request-id": f"req_{number:032x}",
            "openai-version": "2020-10-01",
            "openai-processing-ms": "7",
        }

    def body(self, reply: Reply, request: ReceivedRequest) -> dict[str, Any]:
        """Return a `chat.completion` object."""
        choices = [
            {
                "index": index,
                "message": _message(reply, request.number),
                "logprobs": None,
                "finish_reason": _finish_reason(reply),
            }
            for index in range(_choice_count(request))
        ]
        return _envelope(reply, request, "chat.completion") | {"choices": choices} | _usage(reply)

    def events(self, reply: Reply, request: ReceivedRequest) -> list[bytes]:
        """Return the chunks, the usage chunk if the request wants one, and the closing mark."""
        wants_usage = requested(request, "stream_options", "include_usage") is True
        envelope = _envelope(reply, request, "chat.completion.chunk")
        # Only where usage was asked for do the other chunks say that they have none.
        none_yet: dict[str, Any] = {"usage": None} if wants_usage else {}
        chunks: list[dict[str, Any]] = [
            envelope | {"choices": [_delta(index, delta, reason)]} | none_yet
            for delta, reason in _deltas(reply, request.number)
            for index in range(_choice_count(request))
        ]
        if wants_usage and reply.usage is not None:
            chunks.append({**envelope, "choices": [], **_usage(reply)})
        return [*(sse(chunk) for chunk in chunks), sse("[DONE]")]

    def error_body(
        self,
        error: ScriptedError,
        status: int,
        number: int,
    ) -> dict[str, Any]:
        """Return an `error` object with the provider's usual type and code for the status."""
        kind, code = _ERRORS.get(status, ("server_error", None))
        return {
            "error": {
                "message": error.message,
                "type": error.type or kind,
                "param": error.param,
                "code": error.code or code,
            }
        }

    def error_event(self, error: ScriptedError, number: int) -> bytes:
        """Return the error as a chunk: the stream has no event of its own for it."""
        return sse(self.error_body(error, 500, number))


def _envelope(reply: Reply, request: ReceivedRequest, kind: str) -> dict[str, Any]:
    return {
        "id": reply.id or f"chatcmpl-{request.number:029d}",
        "object": kind,
        "created": CREATED,
        "model": reply.model or requested(request, "model") or "scripted",
        "service_tier": "default",
        "system_fingerprint": "fp_5c41e7a9d2",
    }


def _choice_count(request: ReceivedRequest) -> int:
    count = requested(request, "n")
    return count if isinstance(count, int) and 1 <= count <= 16 else 1


def _finish_reason(reply: Reply) -> str:
    return reply.finish_reason or ("tool_calls" if reply.tool_calls else "stop")


def _call_id(reply: Reply, index: int, number: int) -> str:
    return reply.tool_calls[index].id or f"call_{number:012d}{index:012d}"


def _message(reply: Reply, number: int) -> dict[str, Any]:
    message: dict[str, Any] = {
        "role": "assistant",
        "content": None if reply.text is None else "".join(reply.text_pieces),
        "refusal": None,
        "annotations": [],
    }
    if reply.tool_calls:
        message["tool_calls"] = [
            {
                "id": _call_id(reply, index, number),
                "type": "function",
                "function": {"name": call.name, "arguments": call.argument_text},
            }
            for index, call in enumerate(reply.tool_calls)
        ]
    return message


def _delta(index: int, delta: dict[str, Any], reason: str | None) -> dict[str, Any]:
    return {"index": index, "delta": delta, "logprobs": None, "finish_reason": reason}


def _deltas(reply: Reply, number: int) -> list[tuple[dict[str, Any], str | None]]:
    content = None if reply.text is None else ""
    deltas: list[tuple[dict[str, Any], str | None]] = [
        ({"role": "assistant", "content": content, "refusal": None}, None)
    ]
    deltas += [({"content": piece}, None) for piece in reply.text_pieces]
    for index, call in enumerate(reply.tool_calls):
        opening = {
            "index": index,
            "id": _call_id(reply, index, number),
            "type": "function",
            "function": {"name": call.name, "arguments": ""},
        }
        deltas.append(({"tool_calls": [opening]}, None))
        # An object without members is still sent as the two characters of its text.
        for piece in call.argument_pieces or (call.argument_text,):
            part = {"index": index, "function": {"arguments": piece}}
            deltas.append(({"tool_calls": [part]}, None))
    deltas.append(({}, _finish_reason(reply)))
    return deltas


def _usage(reply: Reply) -> dict[str, Any]:
    if reply.usage is None:
        return {}
    if not isinstance(reply.usage, Usage):
        return {"usage": dict(reply.usage)}
    usage = reply.usage
    read, written = usage.input_tokens or 0, usage.output_tokens or 0
    return {
        "usage": {
            "prompt_tokens": read,
            "completion_tokens": written,
            "total_tokens": read + written,
            "prompt_tokens_details": {
                "cached_tokens": usage.cache_read_tokens or 0,
                "audio_tokens": usage.input_audio_tokens or 0,
            },
            "completion_tokens_details": {
                "reasoning_tokens": usage.reasoning_tokens or 0,
                "audio_tokens": usage.output_audio_tokens or 0,
                "accepted_prediction_tokens": 0,
                "rejected_prediction_tokens": 0,
            },
        }
    }
