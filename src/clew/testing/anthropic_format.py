"""Anthropic messages as the server writes them.

https://docs.anthropic.com/en/api/messages
https://docs.anthropic.com/en/docs/build-with-claude/streaming
https://docs.anthropic.com/en/api/errors
"""

from __future__ import annotations

import json
from typing import Any, Final, TypeAlias

from clew.facts import Usage
from clew.testing.loopback import ReceivedRequest
from clew.testing.script import Reply, ScriptedError, sse
from clew.testing.wire import WireFormat, requested

SIGNATURE: Final = "c2lnbmF0dXJlIG9mIGEgc2NyaXB0ZWQgdGhvdWdodA=="

_Block: TypeAlias = tuple[dict[str, Any], list[dict[str, str]]]

_ERRORS: Final[dict[int, str]] = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}


class AnthropicMessages(WireFormat):
    """`POST …/messages`, plain and streamed."""

    def matches(self, method: str, path: str) -> bool:
        """Tell whether this is the messages endpoint, under any prefix."""
        return method == "POST" and path.endswith("/messages")

    def headers(self, number: int) -> dict[str, str]:
        """Return the request id."""
        return {"request-id": f"req_{number:024d}", "via": "1.1 google"}

    def body(self, reply: Reply, request: ReceivedRequest) -> dict[str, Any]:
        """Return a `message` object."""
        message = _message(reply, request)
        message["content"] = [block for block, _ in _blocks(reply, request.number)]
        message["stop_reason"] = _stop_reason(reply)
        if reply.usage is not None:
            message["usage"] = _usage(reply.usage)
        return message

    def events(self, reply: Reply, request: ReceivedRequest) -> list[bytes]:
        """Return the named events of a stream, with the ping after the first block's start."""
        message = _message(reply, request)
        if reply.usage is not None:
            # The opening report knows the input, and one token of the output.
            message["usage"] = _usage(reply.usage) | {"output_tokens": 1}
        events = [_event("message_start", message=message)]
        for index, (block, deltas) in enumerate(_blocks(reply, request.number)):
            events.append(_event("content_block_start", index=index, content_block=_opening(block)))
            if index == 0:
                events.append(_event("ping"))
            events += [_event("content_block_delta", index=index, delta=delta) for delta in deltas]
            events.append(_event("content_block_stop", index=index))
        ending: dict[str, Any] = {
            "delta": {"stop_reason": _stop_reason(reply), "stop_sequence": None}
        }
        if reply.usage is not None:
            ending["usage"] = _closing_usage(reply.usage)
        return [*events, _event("message_delta", **ending), _event("message_stop")]

    def error_body(self, error: ScriptedError, status: int, number: int) -> dict[str, Any]:
        """Return an `error` object with the provider's usual type for the status."""
        return {
            "type": "error",
            "error": {
                "type": error.type or _ERRORS.get(status, "api_error"),
                "message": error.message,
            },
            "request_id": f"req_{number:024d}",
        }

    def error_event(self, error: ScriptedError, number: int) -> bytes:
        """Return the `error` event; without a type of its own it tells of overload."""
        return sse(self.error_body(error, 529, number), "error")


def _event(kind: str, **fields: Any) -> bytes:
    return sse({"type": kind, **fields}, kind)


def _message(reply: Reply, request: ReceivedRequest) -> dict[str, Any]:
    return {
        "model": reply.model or requested(request, "model") or "scripted",
        "id": reply.id or f"msg_{request.number:024d}",
        "type": "message",
        "role": "assistant",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
    }


def _stop_reason(reply: Reply) -> str:
    return reply.finish_reason or ("tool_use" if reply.tool_calls else "end_turn")


def _blocks(reply: Reply, number: int) -> list[_Block]:
    """Return each content block with the deltas by which a stream fills it."""
    blocks: list[_Block] = []
    if reply.reasoning is not None:
        pieces = reply.reasoning_pieces
        block = {"type": "thinking", "thinking": "".join(pieces), "signature": SIGNATURE}
        deltas = [{"type": "thinking_delta", "thinking": piece} for piece in pieces]
        deltas.append({"type": "signature_delta", "signature": SIGNATURE})
        blocks.append((block, deltas))
    if reply.text is not None:
        pieces = reply.text_pieces
        deltas = [{"type": "text_delta", "text": piece} for piece in pieces]
        blocks.append(({"type": "text", "text": "".join(pieces)}, deltas))
    for index, call in enumerate(reply.tool_calls):
        # The server opens the arguments with an empty delta.
        pieces = ("", *call.argument_pieces) if call.argument_pieces else ()
        deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]
        block = {
            "type": "tool_use",
            "id": call.id or f"toolu_{number:012d}{index:012d}",
            "name": call.name,
            "input": _object(call.argument_text),
        }
        blocks.append((block, deltas))
    return blocks


def _object(text: str) -> Any:
    """Return the arguments as an object; text that is none can be sent in a stream alone."""
    try:
        return json.loads(text)
    except ValueError:
        return {}


def _opening(block: dict[str, Any]) -> dict[str, Any]:
    empty: dict[str, Any] = {"text": "", "thinking": "", "signature": "", "input": {}}
    return {key: empty.get(key, value) for key, value in block.items()}


def _usage(usage: Usage | Any) -> dict[str, Any]:
    if not isinstance(usage, Usage):
        return dict(usage)
    read, written = usage.cache_read_tokens or 0, usage.cache_write_tokens or 0
    lasting = usage.cache_write_1h_tokens or 0
    return {
        # The provider counts only what was neither read from nor written to the cache.
        "input_tokens": (usage.input_tokens or 0) - read - written,
        "cache_creation_input_tokens": written,
        "cache_read_input_tokens": read,
        "cache_creation": {
            "ephemeral_5m_input_tokens": written - lasting,
            "ephemeral_1h_input_tokens": lasting,
        },
        "output_tokens": usage.output_tokens or 0,
        "service_tier": "standard",
    }


def _closing_usage(usage: Usage | Any) -> dict[str, Any]:
    if not isinstance(usage, Usage):
        return dict(usage)
    counts = _usage(usage)
    names = (
        "input_tokens",
        "cache_creation_input_tokens",
        "cache_read_input_tokens",
        "output_tokens",
    )
    return {name: counts[name] for name in names}
