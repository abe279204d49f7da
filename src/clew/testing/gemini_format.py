"""Gemini's generateContent as the server writes it.

https://ai.google.dev/api/generate-content
https://ai.google.dev/gemini-api/docs/function-calling
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

from clew.facts import Usage
from clew.testing.loopback import ReceivedRequest
from clew.testing.script import Reply, ScriptedError, sse
from clew.testing.wire import WireFormat

SIGNATURE: Final = "c2lnbmF0dXJlIG9mIGEgc2NyaXB0ZWQgdGhvdWdodA=="

_PATH: Final = re.compile(r".*/models/([^/:]+):(generateContent|streamGenerateContent)")
_ERRORS: Final[dict[int, str]] = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}


class GeminiContent(WireFormat):
    """`POST …/models/{model}:generateContent` and `:streamGenerateContent`."""

    def matches(self, method: str, path: str) -> bool:
        """Tell whether this is one of the two endpoints, under any prefix."""
        return method == "POST" and _PATH.fullmatch(path) is not None

    def headers(self, number: int) -> dict[str, str]:
        """Return the header that tells how long the server took."""
        return {"server-timing": "gfet4t7; dur=7"}

    def streams(self, request: ReceivedRequest) -> bool:
        """Tell by the path whether the answer is streamed."""
        return request.path.partition("?")[0].endswith(":streamGenerateContent")

    def body(self, reply: Reply, request: ReceivedRequest) -> dict[str, Any]:
        """Return a `GenerateContentResponse`."""
        return _chunk(reply, request, _parts(reply), last=True)

    def events(self, reply: Reply, request: ReceivedRequest) -> list[bytes]:
        """Return the chunks, as server-sent events (`alt=sse`); there is no closing mark."""
        parts = [{"text": piece, "thought": True} for piece in reply.reasoning_pieces]
        parts += [{"text": piece} for piece in reply.text_pieces]
        parts += _calls(reply)
        parts = parts or [{"text": ""}]
        chunks = [_chunk(reply, request, [part]) for part in parts[:-1]]
        return [sse(chunk) for chunk in (*chunks, _chunk(reply, request, parts[-1:], last=True))]

    def error_body(self, error: ScriptedError, status: int, number: int) -> dict[str, Any]:
        """Return an `error` object with the provider's usual status word."""
        return {
            "error": {
                "code": status,
                "message": error.message,
                "status": error.type or _ERRORS.get(status, "UNKNOWN"),
            }
        }

    def error_event(self, error: ScriptedError, number: int) -> bytes:
        """Return the error as a chunk; without a type of its own it tells of overload."""
        return sse(self.error_body(error, 503, number))


def _chunk(
    reply: Reply, request: ReceivedRequest, parts: list[dict[str, Any]], *, last: bool = False
) -> dict[str, Any]:
    candidate: dict[str, Any] = {"content": {"parts": parts, "role": "model"}, "index": 0}
    if last:
        # The word is the same whether or not functions are called.
        candidate["finishReason"] = reply.finish_reason or "STOP"
    found = _PATH.fullmatch(request.path.partition("?")[0])
    chunk: dict[str, Any] = {"candidates": [candidate]}
    if reply.usage is not None:
        chunk["usageMetadata"] = _usage(reply.usage)
    return chunk | {
        "modelVersion": reply.model or (found[1] if found else "scripted"),
        "responseId": reply.id or f"resp{request.number:018d}",
    }


def _parts(reply: Reply) -> list[dict[str, Any]]:
    parts: list[dict[str, Any]] = []
    if reply.reasoning is not None:
        parts.append({"text": "".join(reply.reasoning_pieces), "thought": True})
    if reply.text is not None:
        parts.append({"text": "".join(reply.text_pieces)})
    return parts + _calls(reply)


def _calls(reply: Reply) -> list[dict[str, Any]]:
    """Return the calls; the first of them carries the signature of the thought before."""
    parts: list[dict[str, Any]] = []
    for index, call in enumerate(reply.tool_calls):
        function: dict[str, Any] = {"name": call.name, "args": json.loads(call.argument_text)}
        if call.id is not None:
            function["id"] = call.id
        part: dict[str, Any] = {"functionCall": function}
        if index == 0 and reply.reasoning is not None:
            part["thoughtSignature"] = SIGNATURE
        parts.append(part)
    return parts


def _usage(usage: Usage | Any) -> dict[str, Any]:
    if not isinstance(usage, Usage):
        return dict(usage)
    read, written = usage.input_tokens or 0, usage.output_tokens or 0
    counts: dict[str, Any] = {
        "promptTokenCount": read,
        # The provider counts thoughts apart from the answer.
        "candidatesTokenCount": written - (usage.reasoning_tokens or 0),
        "totalTokenCount": read + written,
        "promptTokensDetails": [{"modality": "TEXT", "tokenCount": read}],
    }
    if usage.cache_read_tokens:
        counts["cachedContentTokenCount"] = usage.cache_read_tokens
    if usage.reasoning_tokens:
        counts["thoughtsTokenCount"] = usage.reasoning_tokens
    return counts
