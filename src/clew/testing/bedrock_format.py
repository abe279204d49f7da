"""Amazon Bedrock's Converse and InvokeModel as the server writes them.

https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_Converse.html
https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_ConverseStream.html
https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_InvokeModelWithResponseStream.html
"""

from __future__ import annotations

import binascii
import json
import struct
from base64 import b64encode
from collections.abc import Iterator
from typing import Any, Final

from clew.facts import Usage
from clew.testing.anthropic_format import AnthropicMessages
from clew.testing.loopback import ReceivedRequest
from clew.testing.script import Reply, ScriptedError
from clew.testing.wire import WireFormat

_ERRORS: Final[dict[int, str]] = {
    400: "ValidationException",
    401: "UnrecognizedClientException",
    403: "AccessDeniedException",
    404: "ResourceNotFoundException",
    408: "ModelTimeoutException",
    424: "ModelErrorException",
    429: "ThrottlingException",
    503: "ServiceUnavailableException",
}
_STRING: Final = 7


def frame(kind: str, payload: dict[str, Any], message: str = "event") -> bytes:
    """Return one frame of an event stream.

    https://docs.aws.amazon.com/transcribe/latest/dg/streaming-setting-up.html#streaming-event-stream

    Args:
        kind: the type of the event or of the exception.
        payload: written as JSON.
        message: `event` or `exception`.
    """
    headers = b""
    for name, value in (
        (f":{message}-type", kind),
        (":content-type", "application/json"),
        (":message-type", message),
    ):
        headers += struct.pack(">B", len(name)) + name.encode()
        headers += struct.pack(">BH", _STRING, len(value)) + value.encode()
    body = json.dumps(payload, separators=(",", ":")).encode()
    # Two lengths and four bytes of checksum stand before, four bytes of checksum after.
    prelude = struct.pack(">II", 16 + len(headers) + len(body), len(headers))
    text = prelude + struct.pack(">I", binascii.crc32(prelude)) + headers + body
    return text + struct.pack(">I", binascii.crc32(text))


class _Bedrock(WireFormat):
    """What both APIs share."""

    stream_type = "application/vnd.amazon.eventstream"
    plain: str
    streaming: str

    def matches(self, method: str, path: str) -> bool:
        """Tell whether this is one of the two endpoints."""
        _, model, ending = path.partition("/model/")
        return (
            method == "POST"
            and bool(model)
            and ending.endswith((f"/{self.plain}", f"/{self.streaming}"))
        )

    def headers(self, number: int) -> dict[str, str]:
        """Return the request id."""
        return {"x-amzn-requestid": f"00000000-0000-4000-8000-{number:012d}"}

    def streams(self, request: ReceivedRequest) -> bool:
        """Tell by the path whether the answer is streamed."""
        return request.path.endswith(f"/{self.streaming}")

    def error_headers(self, error: ScriptedError, status: int) -> dict[str, str]:
        """Return the header that names the error: the body does not."""
        return {"x-amzn-errortype": error.type or _ERRORS.get(status, "InternalServerException")}

    def error_body(self, error: ScriptedError, status: int, number: int) -> dict[str, Any]:
        """Return the text of an error."""
        return {"message": error.message}

    def error_event(self, error: ScriptedError, number: int) -> bytes:
        """Return the exception by which a stream tells of an error."""
        kind = error.type or "modelStreamErrorException"
        return frame(kind, {"message": error.message}, "exception")


class BedrockConverse(_Bedrock):
    """`POST /model/{id}/converse` and `/converse-stream`."""

    plain, streaming = "converse", "converse-stream"

    def body(self, reply: Reply, request: ReceivedRequest) -> dict[str, Any]:
        """Return a whole answer."""
        content: list[dict[str, Any]] = []
        if reply.reasoning is not None:
            text = {"text": "".join(reply.reasoning_pieces), "signature": "c2ln"}
            content.append({"reasoningContent": {"reasoningText": text}})
        if reply.text is not None:
            content.append({"text": "".join(reply.text_pieces)})
        content += [
            {"toolUse": {**opening, "input": json.loads(call.argument_text)}}
            for call, opening in zip(reply.tool_calls, _calls(reply, request.number), strict=True)
        ]
        answer = {
            "output": {"message": {"role": "assistant", "content": content}},
            "stopReason": _reason(reply),
            "metrics": {"latencyMs": 7},
        }
        return answer | _usage(reply.usage)

    def events(self, reply: Reply, request: ReceivedRequest) -> list[bytes]:
        """Return the frames; the usage comes after the reason, in the last one."""
        frames = [frame("messageStart", {"role": "assistant"})]
        for index, (start, deltas) in enumerate(_blocks(reply, request.number)):
            if start:
                frames.append(
                    frame("contentBlockStart", {"contentBlockIndex": index, "start": start})
                )
            frames += [
                frame("contentBlockDelta", {"contentBlockIndex": index, "delta": delta})
                for delta in deltas
            ]
            frames.append(frame("contentBlockStop", {"contentBlockIndex": index}))
        frames.append(frame("messageStop", {"stopReason": _reason(reply)}))
        return [*frames, frame("metadata", {**_usage(reply.usage), "metrics": {"latencyMs": 7}})]


class BedrockInvoke(_Bedrock):
    """`POST /model/{id}/invoke` and `/invoke-with-response-stream`, of an Anthropic model."""

    plain, streaming = "invoke", "invoke-with-response-stream"

    def __init__(self) -> None:
        self._inner = AnthropicMessages()

    def body(self, reply: Reply, request: ReceivedRequest) -> dict[str, Any]:
        """Return the model's own body."""
        return self._inner.body(reply, request)

    def events(self, reply: Reply, request: ReceivedRequest) -> list[bytes]:
        """Return the model's own events, each in a frame."""
        frames: list[bytes] = []
        for event in self._inner.events(reply, request):
            data = event.partition(b"data: ")[2].strip()
            frames.append(frame("chunk", {"bytes": b64encode(data).decode()}))
        return frames


def _reason(reply: Reply) -> str:
    return reply.finish_reason or ("tool_use" if reply.tool_calls else "end_turn")


def _calls(reply: Reply, number: int) -> list[dict[str, str]]:
    return [
        {"toolUseId": call.id or f"tooluse_{number:010d}{index:010d}", "name": call.name}
        for index, call in enumerate(reply.tool_calls)
    ]


def _blocks(reply: Reply, number: int) -> Iterator[tuple[dict[str, Any], list[dict[str, Any]]]]:
    """Give the start of each block, where it has one, and the deltas that fill it."""
    if reply.reasoning is not None:
        yield {}, [{"reasoningContent": {"text": piece}} for piece in reply.reasoning_pieces]
    if reply.text is not None:
        yield {}, [{"text": piece} for piece in reply.text_pieces]
    for call, opening in zip(reply.tool_calls, _calls(reply, number), strict=True):
        yield (
            {"toolUse": opening},
            [{"toolUse": {"input": piece}} for piece in call.argument_pieces],
        )


def _usage(usage: Usage | Any) -> dict[str, Any]:
    if usage is None:
        return {}
    if not isinstance(usage, Usage):
        return {"usage": dict(usage)}
    read, written = usage.cache_read_tokens or 0, usage.cache_write_tokens or 0
    total, output = usage.input_tokens or 0, usage.output_tokens or 0
    return {
        "usage": {
            # The provider counts only what was neither read from nor written to the cache.
            "inputTokens": total - read - written,
            "outputTokens": output,
            "totalTokens": total + output,
            "cacheReadInputTokens": read,
            "cacheWriteInputTokens": written,
        }
    }
