"""Reading a request body within bounds: of size, of unpacked size, of time, and of all together."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Final
from urllib.parse import parse_qs

from msgspec import Struct
from starlette.requests import ClientDisconnect, Request
from starlette.types import Receive

_WINDOW_BITS: Final = {"gzip": 31, "deflate": 15}
"""How zlib is told the format (https://zlib.net/manual.html, inflateInit2)."""
REFUSED: Final = "clew_refused"
"""In a request's state: the status with which the receiver refuses it, before it reads it."""
_PIECE: Final = 1 << 18


class Limits(Struct, frozen=True, kw_only=True):
    """Bounds of the receiver."""

    body_bytes: int = 20 * 1024 * 1024
    """Largest message, packed and unpacked."""
    all_bytes: int = 64 * 1024 * 1024
    """Largest sum of the messages that are read or wait to be stored at the same time."""
    seconds: float = 30.0
    """Longest time that a body may take to arrive."""
    linger_seconds: float = 2.0
    """How long a client that was refused may go on sending before its connection is cut."""


class RefusedError(Exception):
    """A message that is not taken; `status` is the HTTP status that says why."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Bodies:
    """Reads request bodies; shared by all requests of one server."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self._held = 0

    @asynccontextmanager
    async def reading(
        self, incoming: Incoming, encoding: str, length: int | None
    ) -> AsyncGenerator[bytes]:
        """Hand out a whole body, unpacked; it counts as held until the end of the block.

        Args:
            incoming: where its pieces come from.
            encoding: `identity`, `gzip` or `deflate`.
            length: the `Content-Length`, if there is one.

        Raises:
            RefusedError: it is too large (413), too slow (408), broken (400), or there are too
                many at once (503).
            ClientDisconnect: the client has gone.
        """
        if length is not None and length > self.limits.body_bytes:
            raise self._too_large()
        body = bytearray()
        try:
            async with _deadline(self.limits.seconds):
                async for piece in self._unpacked(incoming.pieces(), encoding):
                    self._hold(len(piece), len(body))
                    body += piece
            yield bytes(body)
        finally:
            self._held -= len(body)

    async def discard(self, incoming: Incoming, length: int | None) -> None:
        """Read a body to its end without keeping any of it; same bounds, same errors."""
        if length is not None and length > self.limits.body_bytes:
            raise self._too_large()
        size = 0
        async with _deadline(self.limits.seconds):
            async for piece in incoming.pieces():
                size += len(piece)
                if size > self.limits.body_bytes:
                    raise self._too_large()

    def _hold(self, more: int, so_far: int) -> None:
        if so_far + more > self.limits.body_bytes:
            raise self._too_large()
        if self._held + more > self.limits.all_bytes:
            raise RefusedError(503, "too many messages at the same time")
        self._held += more

    def _too_large(self) -> RefusedError:
        return RefusedError(413, f"the message is larger than {self.limits.body_bytes} bytes")

    async def _unpacked(self, packed: AsyncIterator[bytes], encoding: str) -> AsyncIterator[bytes]:
        if encoding == "identity":
            async for piece in packed:
                yield piece
            return
        received = 0
        unpacker = _Unpacker(encoding)
        async for piece in packed:
            received += len(piece)
            if received > self.limits.body_bytes:
                raise self._too_large()
            unpacker.feed(piece)
            while (part := unpacker.next()) is not None:
                yield part
        if not unpacker.complete:
            raise RefusedError(400, f"the {encoding} body is cut short")


class _Unpacker:
    """Unpacks a body piece by piece, never more than a bounded amount at once."""

    def __init__(self, encoding: str) -> None:
        self._encoding = encoding
        self._bits = _WINDOW_BITS[encoding]
        self._zlib = zlib.decompressobj(self._bits)
        self._waiting = b""
        self._started = False

    @property
    def complete(self) -> bool:
        """True when the body may end here."""
        return self._started and self._zlib.eof and not self._waiting

    def feed(self, piece: bytes) -> None:
        """Take the next packed bytes."""
        self._waiting += piece

    def next(self) -> bytes | None:
        """Return the next unpacked bytes, None when more packed ones are needed."""
        if not self._waiting:
            return None
        try:
            if self._zlib.eof:
                # gzip allows several members, one behind the other.
                self._zlib = zlib.decompressobj(self._bits)
            self._started = True
            part = self._zlib.decompress(self._waiting, _PIECE)
        except zlib.error:
            raise RefusedError(400, f"the body is not {self._encoding}") from None
        eof = self._zlib.eof
        self._waiting = self._zlib.unused_data if eof else self._zlib.unconsumed_tail
        return part if part or self._waiting else None


@asynccontextmanager
async def _deadline(seconds: float) -> AsyncGenerator[None]:
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError:
        raise RefusedError(408, "the body took too long to arrive") from None


class Incoming:
    """A request body as it arrives, which remembers whether all of it has."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self.complete = False

    async def pieces(self) -> AsyncGenerator[bytes]:
        """Yield what arrives."""
        while not self.complete:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                self.complete = True
                raise ClientDisconnect
            self.complete = not message.get("more_body", False)
            piece = message.get("body", b"")
            if piece:
                yield piece

    async def linger(self, seconds: float) -> None:
        """Go on reading for a while and forget what comes.

        Closing a connection while its client still sends makes the network drop the answer that is
        on its way to it.
        """
        try:
            async with asyncio.timeout(seconds):
                async for _ in self.pieces():
                    pass
        except (TimeoutError, ClientDisconnect):
            pass


async def read_form(request: Request, limits: Limits) -> dict[str, str]:
    """Read a form that a browser sent, within bounds; of a field that is there twice, the last.

    Raises:
        RefusedError: it is no form, too large, or too slow.
        ClientDisconnect: the client has gone.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/x-www-form-urlencoded":
        raise RefusedError(400, "send a form: application/x-www-form-urlencoded")
    try:
        async with Bodies(limits).reading(Incoming(request.receive), "identity", None) as body:
            found = parse_qs(body.decode("utf-8"), keep_blank_values=True, max_num_fields=20)
    except ValueError:
        raise RefusedError(400, "this is no form") from None
    return {name: values[-1] for name, values in found.items()}
