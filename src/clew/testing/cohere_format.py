"""Cohere's chat, version 2, as the server writes it.

https://docs.cohere.com/reference/chat
https://docs.cohere.com/reference/chat-stream
https://docs.cohere.com/docs/streaming
"""

from __future__ import annotations

from typing import Any, Final

from clew.facts import Usage
from clew.testing.loopback import ReceivedRequest
from clew.testing.script import Reply, ScriptedError, sse
from clew.testing.wire import WireFormat

PREAMBLE: Final = 200
"""Tokens of the provider's own prompt: counted in `tokens`, not billed."""


class CohereChat(WireFormat):
    """`POST …/v2/chat`, plain and streamed."""

    def matches(self, method: str, path: str) -> bool:
        """Tell whether this is the chat endpoint, under any prefix."""
        return method == "POST" and path.endswith("/v2/chat")

    def headers(self, number: int) -> dict[str, str]:
        """Return the header that marks a call of a trial key."""
        return {"x-trial-endpoint-call-remaining": "999"}

    def body(self, reply: Reply, request: ReceivedRequest) -> dict[str, Any]:
        """Return a whole answer."""
        message: dict[str, Any] = {"role": "assistant"}
        content: list[dict[str, str]] = []
        if reply.reasoning is not None:
            content.append({"type": "thinking", "thinking": "".join(reply.reasoning_pieces)})
        if reply.text is not None and not reply.tool_calls:
            content.append({"type": "text", "text": "".join(reply.text_pieces)})
        if content:
            message["content"] = content
        if reply.tool_calls:
            message["tool_plan"] = "".join(reply.text_pieces)
            message["tool_calls"] = _calls(reply, request.number)
        answer = {"id": _id(reply, request), "finish_reason": _reason(reply), "message": message}
        return answer | _usage(reply.usage)

    def events(self, reply: Reply, request: ReceivedRequest) -> list[bytes]:
        """Return the named events of a stream; the last has the reason and the counts."""
        start: dict[str, Any] = {
            "role": "assistant",
            "content": [],
            "tool_plan": "",
            "tool_calls": [],
            "citations": [],
        }
        events = [_event("message-start", id=_id(reply, request), delta={"message": start})]
        if reply.reasoning is not None:
            events += _content(0, "thinking", reply.reasoning_pieces)
        if reply.tool_calls:
            events += [
                _event("tool-plan-delta", delta={"message": {"tool_plan": piece}})
                for piece in reply.text_pieces
            ]
        elif reply.text is not None:
            events += _content(int(reply.reasoning is not None), "text", reply.text_pieces)
        for index, (call, whole) in enumerate(
            zip(reply.tool_calls, _calls(reply, request.number), strict=True)
        ):
            opening = {**whole, "function": {"name": call.name, "arguments": ""}}
            events.append(_tool_call("tool-call-start", index, opening))
            events += [
                _tool_call("tool-call-delta", index, {"function": {"arguments": piece}})
                for piece in call.argument_pieces
            ]
            events.append(_event("tool-call-end", index=index))
        ending = {"finish_reason": _reason(reply)} | _usage(reply.usage)
        return [*events, _event("message-end", delta=ending)]

    def error_body(self, error: ScriptedError, status: int, number: int) -> dict[str, Any]:
        """Return the error: its text and an id are all that this provider says."""
        return {"id": f"err-{number:032x}", "message": error.message}

    def error_event(self, error: ScriptedError, number: int) -> bytes:
        """Return the ending that tells of an error."""
        delta = {"finish_reason": "ERROR", "error": error.message}
        return _event("message-end", delta=delta)


def _event(kind: str, **fields: Any) -> bytes:
    return sse({"type": kind, **fields}, kind)


def _content(index: int, kind: str, pieces: tuple[str, ...]) -> list[bytes]:
    opening = {"message": {"content": {"type": kind, kind: ""}}}
    return [
        _event("content-start", index=index, delta=opening),
        *(
            _event("content-delta", index=index, delta={"message": {"content": {kind: piece}}})
            for piece in pieces
        ),
        _event("content-end", index=index),
    ]


def _tool_call(kind: str, index: int, call: dict[str, Any]) -> bytes:
    return _event(kind, index=index, delta={"message": {"tool_calls": call}})


def _id(reply: Reply, request: ReceivedRequest) -> str:
    return reply.id or f"chat-{request.number:032x}"


def _reason(reply: Reply) -> str:
    return reply.finish_reason or ("TOOL_CALL" if reply.tool_calls else "COMPLETE")


def _calls(reply: Reply, number: int) -> list[dict[str, Any]]:
    return [
        {
            "id": call.id or f"{call.name}_{number:06d}{index:06d}",
            "type": "function",
            "function": {"name": call.name, "arguments": call.argument_text},
        }
        for index, call in enumerate(reply.tool_calls)
    ]


def _usage(usage: Usage | Any) -> dict[str, Any]:
    if usage is None:
        return {}
    if not isinstance(usage, Usage):
        return {"usage": dict(usage)}
    read, written = usage.input_tokens or 0, usage.output_tokens or 0
    counts: dict[str, Any] = {
        "billed_units": {"input_tokens": read, "output_tokens": written},
        "tokens": {"input_tokens": read + PREAMBLE, "output_tokens": written},
    }
    if usage.cache_read_tokens is not None:
        counts["cached_tokens"] = usage.cache_read_tokens
    return {"usage": counts}
