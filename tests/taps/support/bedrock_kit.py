"""boto3, aiobotocore and aioboto3 beside a server that answers as Bedrock does."""

from __future__ import annotations

import asyncio
import binascii
import json
import struct
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan

from clew.testing import CaptureExporter, LoopbackServer, ReceivedRequest, Reply
from clew.testing.loopback import Connection

MODEL = "eu.anthropic.claude-haiku-4-5-v1:0"
ASK: dict[str, Any] = {
    "modelId": MODEL,
    "messages": [{"role": "user", "content": [{"text": "SECRET"}]}],
}
JSON = "application/json"
EVENTS = "application/vnd.amazon.eventstream"
ANSWER = {
    "output": {"message": {"role": "assistant", "content": [{"text": "SECRET"}]}},
    "stopReason": "end_turn",
    "usage": {
        "inputTokens": 70,
        "outputTokens": 20,
        "totalTokens": 120,
        "cacheReadInputTokens": 30,
        "cacheWriteInputTokens": 0,
    },
    "metrics": {"latencyMs": 10},
}
INVOKED = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "claude-haiku-4-5",
    "content": [{"type": "text", "text": "SECRET"}],
    "stop_reason": "end_turn",
    "usage": {"input_tokens": 100, "output_tokens": 20},
}


def frame(kind: str, payload: Any, message: str = "event") -> bytes:
    """Encode one frame of an event stream."""
    headers = b""
    names = {
        f":{message}-type": kind,
        ":content-type": JSON,
        ":message-type": message,
    }
    for name, value in names.items():
        headers += bytes([len(name)]) + name.encode() + b"\x07"
        headers += struct.pack(">H", len(value)) + value.encode()
    body = json.dumps(payload).encode()
    prelude = struct.pack(">II", 16 + len(headers) + len(body), len(headers))
    text = prelude + struct.pack(">I", binascii.crc32(prelude)) + headers + body
    return text + struct.pack(">I", binascii.crc32(text))


STREAM = (
    frame("messageStart", {"role": "assistant"}),
    frame("contentBlockDelta", {"contentBlockIndex": 0, "delta": {"text": "SEC"}}),
    frame("contentBlockDelta", {"contentBlockIndex": 0, "delta": {"text": "RET"}}),
    frame("contentBlockStop", {"contentBlockIndex": 0}),
    frame("messageStop", {"stopReason": "tool_use"}),
    frame("metadata", {"usage": ANSWER["usage"], "metrics": {"latencyMs": 9}}),
)


def chunk(event: Any) -> bytes:
    """Encode a piece of an InvokeModel stream."""
    return frame("chunk", {"bytes": b64encode(json.dumps(event).encode()).decode()})


INVOKED_STREAM = (
    chunk({"type": "message_start", "message": {**INVOKED, "content": [], "stop_reason": None}}),
    chunk({"type": "content_block_start", "index": 0, "content_block": {"type": "text"}}),
    chunk(
        {
            "type": "content_block_delta",
            "index": 0,
            "delta": {"type": "text_delta", "text": "SECRET"},
        }
    ),
    chunk({"type": "content_block_stop", "index": 0}),
    chunk(
        {
            "type": "message_delta",
            "delta": {"stop_reason": "end_turn"},
            "usage": {"output_tokens": 20},
        }
    ),
    chunk({"type": "message_stop"}),
)


class Bedrock(LoopbackServer):
    """Answers what it is given, in order; no content length where a reply says so."""

    def __init__(self) -> None:
        super().__init__()
        self.replies: list[Reply] = []
        self.held = 0

    def add(self, *replies: Reply) -> None:
        self.replies += replies

    def respond(self, request: ReceivedRequest, connection: Connection) -> None:
        reply = self.replies.pop(0)
        pieces = reply.raw or ()
        chunked = reply.content_type == EVENTS
        connection.pause(reply.delay)
        length = None if chunked else sum(map(len, pieces)) + self.held
        headers = {"content-type": reply.content_type or JSON, **reply.headers}
        connection.head(reply.status, headers, length)
        for index, piece in enumerate(pieces):
            connection.pause(reply.pause_before(index))
            if index == reply.cut_after:
                connection.cut(reset=reply.reset)
                return
            connection.send(piece)
        if self.held:
            connection.cut()
            return
        connection.end()


def plain(body: Any, status: int = 200, **headers: str) -> Reply:
    """Return an answer that is one JSON document."""
    return Reply.verbatim(
        json.dumps(body).encode(), status=status, content_type=JSON, headers=headers
    )


def streamed(*frames: bytes, **options: Any) -> Reply:
    """Return an answer that is a stream of frames."""
    return Reply.verbatim(*frames, content_type=EVENTS, **options)


OPTIONS: dict[str, Any] = {
    "region_name": "eu-west-1",
    "aws_access_key_id": "AKIDEXAMPLE",
    "aws_secret_access_key": "key",
}


class Kit:
    """boto3 or one of its asynchronous twins, behind the same coroutine methods."""

    def __init__(self, library: str, server: Bedrock) -> None:
        self.asynchronous = library != "boto3"
        self.library = library
        self.server = server
        self.raw: Any = None

    @asynccontextmanager
    async def client(self, attempts: int = 1, seconds: float = 10) -> AsyncIterator[Any]:
        retries: Any = {"total_max_attempts": attempts, "mode": "standard"}
        options: dict[str, Any] = {"retries": retries, "read_timeout": seconds}
        if self.library.endswith("httpx"):
            from aiobotocore.config import AioConfig
            from aiobotocore.httpxsession import HttpxSession

            config: Any = AioConfig(http_session_cls=HttpxSession, **options)
        else:
            from botocore.config import Config

            config = Config(**options)
        arguments = {**OPTIONS, "endpoint_url": self.server.base_url, "config": config}
        if not self.asynchronous:
            import boto3

            self.raw = boto3.Session().client("bedrock-runtime", **arguments)
            yield Awaited(self.raw)
            self.raw.close()
            return
        if self.library == "aioboto3":
            made = pytest.importorskip("aioboto3").Session().client("bedrock-runtime", **arguments)
        else:
            from aiobotocore.session import get_session

            made = get_session().create_client("bedrock-runtime", **arguments)
        async with made as self.raw:
            yield Awaited(self.raw)

    async def events(self, stream: Any, limit: int | None = None) -> list[Any]:
        read: list[Any] = []
        if self.asynchronous:
            async for event in stream:
                read.append(event)
                if len(read) == limit:
                    break
        else:
            for event in stream:
                read.append(event)
                if len(read) == limit:
                    break
        return read


class Awaited:
    """Makes a client's methods coroutine functions, whether they are or not."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def __getattr__(self, name: str) -> Any:
        async def call(**kwargs: Any) -> Any:
            result = getattr(self._client, name)(**kwargs)
            return await result if asyncio.iscoroutine(result) else result

        return call


def rounds(exported: CaptureExporter) -> list[dict[str, Any]]:
    """Return the attributes of each round."""
    return [dict(span.attributes or {}) for span in round_spans(exported)]


def round_spans(exported: CaptureExporter) -> list[ReadableSpan]:
    """Return the span of each round."""
    return [one for one in exported.spans if "clew.attempts" in (one.attributes or {})]


def tokens(found: dict[str, Any]) -> tuple[Any, Any, Any]:
    """Return a round's counts: input, output, read from the cache."""
    names = ("input_tokens", "output_tokens", "cache_read.input_tokens")
    first, second, third = (found.get(f"gen_ai.usage.{name}") for name in names)
    return first, second, third
