"""The OTLP/HTTP receiver (https://opentelemetry.io/docs/specs/otlp/#otlphttp).

A message is answered with 200 once its spans are on disk. 503 asks the exporter to try again.
"""

from __future__ import annotations

import asyncio
from typing import Final

import msgspec
from google.rpc.status_pb2 import Status
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope, Send

from clew.errors import StoreError
from clew.store import otlp_json, otlp_protobuf
from clew.store.otlp import Batch, OtlpError
from clew.store.writer import Writer
from clew.web.bodies import REFUSED, Bodies, Incoming, RefusedError

PROTOBUF: Final = "application/x-protobuf"
JSON: Final = "application/json"
_DECODERS: Final = {PROTOBUF: otlp_protobuf.decode, JSON: otlp_json.decode}
_ENCODINGS: Final = frozenset({"identity", "gzip", "deflate"})
_RPC_CODES: Final = {400: 3, 401: 16, 403: 7, 408: 4, 413: 8, 415: 3, 503: 14}
"""gRPC codes for the `Status` message in the body of an error."""
_REFUSALS: Final = {
    401: "give a token with the right to ingest: Authorization: Bearer ...",
    403: "this token does not have the right to ingest",
}
_RETRY_SECONDS: Final = 2


class Receiver:
    """The ASGI endpoint for one signal.

    Args:
        bodies: reads bodies within bounds.
        writer: where spans go; None for signals that are accepted and dropped.
    """

    def __init__(self, bodies: Bodies, writer: Writer | None) -> None:
        self._bodies = bodies
        self._writer = writer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Take one message and answer in its own encoding."""
        headers = Headers(scope=scope)
        incoming = Incoming(receive)
        content_type = headers.get("content-type", "").partition(";")[0].strip().lower()
        try:
            refused = scope.get("state", {}).get(REFUSED)
            if refused is not None:
                raise RefusedError(refused, _REFUSALS[refused])
            await self._take(headers, content_type, incoming, send)
        except RefusedError as error:
            await self._refuse(error, content_type, incoming, send)
        except ClientDisconnect:
            return

    async def _take(
        self, headers: Headers, content_type: str, incoming: Incoming, send: Send
    ) -> None:
        if content_type not in _DECODERS:
            raise RefusedError(415, f"the content type must be {PROTOBUF} or {JSON}")
        encoding = headers.get("content-encoding", "identity").strip().lower()
        if encoding not in _ENCODINGS:
            raise RefusedError(415, "the content encoding must be gzip, deflate or none")
        length = _length(headers)
        if self._writer is None:
            await self._bodies.discard(incoming, length)
            await _answer(send, 200, content_type, b"{}" if content_type == JSON else b"")
            return
        async with self._bodies.reading(incoming, encoding, length) as body:
            try:
                batch = await run_in_threadpool(_DECODERS[content_type], body)
                if batch.spans:
                    await asyncio.wrap_future(self._writer.submit(batch.spans))
            except OtlpError as error:
                raise RefusedError(400, str(error)) from None
            except StoreError as error:
                raise RefusedError(503, str(error)) from None
        await _answer(send, 200, content_type, _accepted(batch, content_type))

    async def _refuse(
        self, error: RefusedError, content_type: str, incoming: Incoming, send: Send
    ) -> None:
        kind = content_type if content_type in _DECODERS else JSON
        code = _RPC_CODES.get(error.status, 2)
        if kind == JSON:
            body = msgspec.json.encode({"code": code, "message": str(error)})
        else:
            body = Status(code=code, message=str(error)).SerializeToString()
        if incoming.complete:
            await _answer(send, error.status, kind, body)
            return
        await _answer(send, error.status, kind, body, last=False)
        await incoming.linger(self._bodies.limits.linger_seconds)
        await send({"type": "http.response.body", "body": b"", "more_body": False})


def _length(headers: Headers) -> int | None:
    value = headers.get("content-length", "")
    return int(value) if value.isascii() and value.isdigit() else None


def _accepted(batch: Batch, content_type: str) -> bytes:
    """Return the response message; it has `partialSuccess` only where spans were rejected."""
    if content_type == JSON:
        partial = {"rejectedSpans": str(batch.rejected), "errorMessage": batch.reason}
        return msgspec.json.encode({"partialSuccess": partial} if batch.rejected else {})
    response = ExportTraceServiceResponse()
    if batch.rejected:
        response.partial_success.rejected_spans = batch.rejected
        response.partial_success.error_message = batch.reason
    return response.SerializeToString()


async def _answer(
    send: Send, status: int, content_type: str, body: bytes, *, last: bool = True
) -> None:
    """Send an answer; where it is not the last word, the connection is closed after it."""
    headers = [
        (b"content-type", content_type.encode()),
        (b"content-length", str(len(body)).encode()),
    ]
    if not last:
        headers.append((b"connection", b"close"))
    if status == 401:
        headers.append((b"www-authenticate", b'Bearer realm="clew"'))
    if status == 503:
        headers.append((b"retry-after", str(_RETRY_SECONDS).encode()))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": not last})
