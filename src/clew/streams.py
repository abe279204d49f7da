"""A response body that arrives in pieces: followed to its end, whichever end that is."""

from __future__ import annotations

import importlib
import sys
import time
import zlib
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator, Mapping
from itertools import filterfalse, islice
from typing import Any

from clew._guard import guard, record_failure
from clew.captured import Kept
from clew.dialects._stream import EventReader
from clew.endings import Ending
from clew.exchange import Exchange
from clew.facts import NO_RESPONSE, ResponseFacts
from clew.spans import is_cancellation
from clew.typing import StreamReader

_KEPT_BODY = 64 * 1024 * 1024
_TOGETHER = 64
"""Pieces of a body that are put aside at the most, before they are read together."""


class StreamTap:
    """Follows one response body that arrives in pieces, and ends its round exactly once.

    A tap of a client library calls `take` for each piece, then one of `exhausted`, `failed` or
    `closed`, or `dropped` from a finaliser. None of them raises.
    """

    __slots__ = (
        "_body",
        "_decode",
        "_exchange",
        "_headers",
        "_idle_since",
        "_idle_size",
        "_kept",
        "_read",
        "_status",
        "begun",
        "done",
        "first_ns",
        "reader",
        "waiting",
    )

    def __init__(
        self,
        exchange: Exchange,
        status: int,
        content_type: str,
        headers: Mapping[str, str],
        *,
        plain: bool = False,
    ) -> None:
        """Begin to follow a body.

        Args:
            exchange: the request and its round.
            status: HTTP status of the response.
            content_type: its media type, lower-case, without parameters.
            headers: its headers.
            plain: True where it is known that there is no `content-encoding` among them.
        """
        self._exchange = exchange
        self._status = status
        self._headers = headers
        self._decode = None if plain else decoder(headers.get("content-encoding"))
        self.reader: StreamReader | None = None
        self._kept: Kept | None = None
        self._body: list[bytes] | None = None
        if status < 400 and exchange.streams(content_type):
            self.reader = exchange.route.dialect.stream(exchange.route, content_type)
            if exchange.round.content is not None:
                self._kept = exchange.round.content.follow(content_type)
        else:
            self._body = []
            if status >= 400 and exchange.call is not None:
                exchange.call.unread = True
        self._read = 0
        self.waiting: list[bytes] = []
        """Pieces that the caller has and that are still to be read."""
        self.begun = self.reader is None
        """Whether generated output has come, so that no piece's time matters any more."""
        self.first_ns = 0
        self.done = False
        self._idle_size = (-1, 0, 0)
        self._idle_since = 0.0
        exchange.runtime.watch(self)

    @property
    def size(self) -> int:
        """Bytes of the body until now, as they came over the wire."""
        return self._read + sum(map(len, self.waiting))

    def take(self, piece: bytes) -> None:
        """Take the next piece of the body, as it came over the wire."""
        if self.begun:
            self.waiting.append(piece)
            if len(self.waiting) >= _TOGETHER:
                self.catch_up()
        else:
            self._feed([piece])

    def _feed(self, pieces: list[bytes]) -> None:
        try:
            whole = pieces[0] if len(pieces) == 1 else b"".join(pieces)
            self._read += len(whole)
            if self._decode is not None:
                whole = self._decode(whole)
            if self._kept is not None:
                self._kept.take(whole)
            reader = self.reader
            if reader is None:
                if self._body is not None and self._read <= _KEPT_BODY:
                    self._body.append(whole)
            elif len(pieces) > 1 and self._decode is None and isinstance(reader, EventReader):
                reader.feed_all(whole, pieces, last=len(pieces) < _TOGETHER)
            else:
                reader.feed(whole)
                if not self.begun and reader.started:
                    self.begun = True
                    self.first_ns = time.perf_counter_ns()
        except Exception:
            record_failure("read a stream")

    def catch_up(self) -> None:
        """Read the pieces that were put aside."""
        waiting = self.waiting
        pieces = waiting[:]  # at the end another thread may be here, too
        del waiting[: len(pieces)]
        if pieces:
            self._feed(pieces)

    def exhausted(self) -> None:
        """The body has ended by itself."""
        if self.reader is None:
            self._finish(None)
        else:
            facts = self._facts()
            fine = facts.complete and facts.error is None
            self._finish("complete" if fine else "failed", facts=facts)

    def failed(self, error: BaseException) -> None:
        """Reading raised."""
        outcome = "failed"
        with guard("tell how a stream failed"):
            if is_cancellation(error):
                outcome = "cancelled"
            elif "Timeout" in type(error).__name__ or isinstance(error, TimeoutError):
                outcome = "timeout"
        self._finish(outcome, error)

    def closed(self) -> None:
        """The caller, or a finaliser of the caller's, has closed the body."""
        if self.done:
            return
        if self.reader is not None:
            facts = self._facts()
            if facts.complete or facts.error is not None:
                # After an event that tells of an error the SDK raises, and so closes the body.
                self._finish("complete" if facts.error is None else "failed", facts=facts)
                return
        passing = sys.exc_info()[1]
        if isinstance(passing, GeneratorExit):
            self._finish("abandoned")
        elif passing is not None and is_cancellation(passing):
            self._finish("cancelled", passing)
        else:
            self._finish("closed")

    def dropped(self) -> None:
        """The body was collected. Called from a finaliser: the work is done on another thread."""
        if not self.done:
            when = self._exchange.round.now_ns()
            self._exchange.runtime.worker.call_soon(lambda: self._collected(when))

    def _collected(self, end_ns: int) -> None:
        facts = self._facts() if self.reader is not None else NO_RESPONSE
        if facts.error is not None:
            # Not every SDK closes the body when it raises for an event that tells of an error.
            self._finish("failed", end_ns=end_ns)
        else:
            self._finish("complete" if facts.complete else "abandoned", end_ns=end_ns)

    def check_idle(self, now: float, limit: float) -> None:
        """End the round when nothing was read for `limit` seconds (monotonic)."""
        chunks = self.reader.chunks if self.reader is not None else 0
        progress = (self._read, len(self.waiting), chunks)
        if progress != self._idle_size:
            self._idle_size = progress
            self._idle_since = now
        elif now - self._idle_since >= limit:
            self._finish("held")

    def hold(self) -> None:
        """End the round of a stream that is still half-read when Clew shuts down."""
        self._finish("held")

    def _facts(self) -> ResponseFacts:
        try:
            self.catch_up()
            if self.reader is not None:
                return self.reader.result()
            route = self._exchange.route
            body = b"".join(self._body or ())
            return route.dialect.response(body, self._status, route, self._headers)
        except Exception:
            record_failure("read a response")
            return NO_RESPONSE

    def _finish(
        self,
        outcome: str | None,
        error: BaseException | None = None,
        end_ns: int | None = None,
        facts: ResponseFacts | None = None,
    ) -> None:
        if self.done:
            return
        self.done = True
        exchange = self._exchange
        with guard("finish a stream"):
            self.catch_up()
            exchange.runtime.unwatch(self)
            first = (self.first_ns - exchange.started) / 1e9 if self.first_ns else None
            ending = Ending(
                response=self._facts() if facts is None else facts,
                status=self._status,
                error=error,
                outcome=outcome,
                chunks=self.reader.chunks if self.reader is not None else None,
                response_bytes=self.size,
                first_chunk_s=first,
                end_ns=end_ns,
            )
            content = exchange.round.content
            if content is not None and self._body is not None and self._status < 400:
                content.took(b"".join(self._body))
            self._body = None
            exchange.end(ending)


def follow(body: Iterable[bytes], tap: StreamTap) -> Iterator[bytes]:
    """Give the pieces of a body, and tell a tap of them and of the end.

    Once the answer has begun, pieces are only put aside and read by the dozen: this runs in the
    caller's thread for each event of a stream, between two events of much work for the SDK.
    `afollow` is its twin.
    """
    put_aside = tap.waiting.append  # says nothing, which lets `filterfalse` give the piece
    try:
        pieces = iter(body)
        for piece in pieces:
            tap.take(piece)
            yield piece
            if tap.begun:
                break
        for piece in pieces:
            put_aside(piece)
            yield piece
            yield from filterfalse(put_aside, islice(pieces, _TOGETHER - 1))
            tap.catch_up()
    except GeneratorExit:
        raise  # the caller stopped reading; closing or dropping the body says which way
    except BaseException as error:
        tap.failed(error)
        raise
    else:
        tap.exhausted()


async def afollow(body: AsyncIterable[bytes], tap: StreamTap) -> AsyncIterator[bytes]:
    """Do what `follow` does, in asynchronous code."""
    waiting = tap.waiting
    put_aside = waiting.append
    try:
        pieces = aiter(body)
        async for piece in pieces:
            tap.take(piece)
            yield piece
            if tap.begun:
                break
        async for piece in pieces:
            put_aside(piece)  # as `take` does it
            if len(waiting) >= _TOGETHER:
                tap.catch_up()
            yield piece
    except GeneratorExit:
        raise
    except BaseException as error:
        tap.failed(error)
        raise
    else:
        tap.exhausted()


def decoder(encoding: str | None) -> Callable[[bytes], bytes] | None:
    """Return what undoes a content encoding piece by piece; None where there is nothing to undo."""
    name = (encoding or "").strip().lower()
    if name in ("", "identity"):
        return None
    if name == "gzip":
        return zlib.decompressobj(zlib.MAX_WBITS | 16).decompress
    if name == "deflate":
        return zlib.decompressobj().decompress
    if name == "br":
        with guard("find a brotli decoder"):
            decompressor: Any = importlib.import_module("brotli").Decompressor()
            return getattr(decompressor, "decompress", None) or decompressor.process
    if name == "zstd":
        with guard("find a zstandard decoder"):
            zstandard: Any = importlib.import_module("zstandard")
            return zstandard.ZstdDecompressor().decompressobj().decompress
    return lambda _: b""
