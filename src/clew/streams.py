"""A response body that arrives in pieces: followed to its end, whichever end that is."""

from __future__ import annotations

import importlib
import sys
import time
import zlib
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import filterfalse, islice
from typing import Any

from clew._guard import guard, record_failure
from clew.captured import Kept
from clew.dialects._stream import EventReader
from clew.endings import Ending
from clew.exchange import LARGEST_UNREAD, Exchange
from clew.facts import NO_RESPONSE, ResponseFacts
from clew.spans import is_cancellation
from clew.typing import StreamReader

_KEPT_BODY = 64 * 1024 * 1024
_TOGETHER = 64
"""Pieces of a body that are put aside before they are read together, or counted where they wait."""
_TIMED = 16
"""Pieces at the beginning whose times are kept, until output is seen among them."""
_LOOKS_AT = frozenset((4, 8, _TIMED))
"""After so many pieces it is looked for output among them."""
_HELD_BY_OPEN = 4 * 1024 * 1024
"""Bytes of all bodies that have not ended that may wait to be read."""


class StreamTap:
    """Follows one response body that arrives in pieces, and ends its round exactly once.

    A tap of a client library calls `take` for each piece, then one of `exhausted`, `failed` or
    `closed`, or `dropped` from a finaliser. None of them raises.

    Where nobody needs before its span is looked at what a stream says, its pieces are only put
    aside, and read on the export thread: between two events of an SDK's own work reading takes two
    to three times as long as there.
    """

    __slots__ = (
        "_body",
        "_content_type",
        "_decode",
        "_exchange",
        "_headers",
        "_held",
        "_idle_since",
        "_idle_size",
        "_kept",
        "_read",
        "_shows_output",
        "_status",
        "_times",
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
        self._content_type = content_type
        self._headers = headers
        self._decode = None if plain else decoder(headers.get("content-encoding"))
        self._read = self._held = 0
        self.waiting: list[bytes] = []
        """Pieces that the caller has and that are still to be read."""
        self._times: list[int] = []
        """When the first pieces came, while these are still to be read."""
        self.begun = False
        """Whether generated output has come, so that no piece's time matters any more."""
        self.first_ns = 0
        self.done = False
        self._idle_size = (-1, 0, 0)
        self._idle_since = 0.0
        self._body: list[bytes] | None = None
        self._kept: Kept | None = None
        self.reader: StreamReader | None = None
        self._shows_output: Callable[[bytes], object] | None = None
        """Tells output from the first bytes, while reading may wait until somebody looks at the
        round."""
        if status < 400 and exchange.streams(content_type):
            if self._decode is None and exchange.may_wait(failing=True):
                dialect = exchange.route.dialect
                self._shows_output = dialect.shows_output(exchange.route, content_type)
            if self._shows_output is None:
                self._begin_reading()
        else:
            self._body, self.begun = [], True
            if status >= 400 and exchange.call is not None:
                exchange.call.unread = True
        exchange.runtime.watch(self)

    def _begin_reading(self) -> None:
        """Read from now on; what has come is read next."""
        self._shows_output = None
        exchange = self._exchange
        route, content = exchange.route, exchange.round.content
        self.reader = route.dialect.stream(route, self._content_type)
        if content is not None:
            self._kept = content.follow(self._content_type)

    @property
    def size(self) -> int:
        """Bytes of the body until now, as they came over the wire."""
        return self._read + sum(map(len, self.waiting))

    def take(self, piece: bytes) -> None:
        """Take the next piece of the body, as it came over the wire."""
        waiting = self.waiting
        if self.begun:
            waiting.append(piece)
            if not len(waiting) % _TOGETHER:
                self.pause()
        elif self._shows_output is None:
            self._feed([piece])
            self._has_begun(time.perf_counter_ns())
        else:
            times = self._times
            times.append(time.perf_counter_ns())
            waiting.append(piece)
            if len(times) in _LOOKS_AT:
                self._look(self._shows_output)

    def _look(self, shows_output: Callable[[bytes], object]) -> None:
        """Look for output in the first pieces; where it is late, read from now on as they come."""
        try:
            self.begun = shows_output(b"".join(self.waiting)) is not None
            if not self.begun and len(self._times) >= _TIMED:
                self.catch_up()
        except Exception:
            record_failure("look for output")

    def _has_begun(self, when: int) -> bool:
        """Tell whether output has come by now, and take note that it came with the last piece."""
        if self.reader is None or not self.reader.started:
            return False
        self.begun, self.first_ns = True, when
        return True

    def pause(self) -> None:
        """Read what was put aside, unless that may wait: called after each `_TOGETHER` pieces."""
        try:
            if self._shows_output is not None:
                self._held += _TOGETHER * len(self.waiting[-1])  # or so
                most = min(LARGEST_UNREAD, _HELD_BY_OPEN // self._exchange.runtime.streaming())
                if self._held <= most:
                    return
            self.catch_up()
        except Exception:
            record_failure("read a stream")

    def catch_up(self, *, last: bool = False) -> None:
        """Read the pieces that were put aside; `last` where no other follows."""
        if self._shows_output is not None:
            self._begin_reading()
        waiting = self.waiting
        pieces = waiting[:]  # at the end another thread may be here, too
        del waiting[: len(pieces)]
        times, self._times = self._times, []
        if times:
            pieces = self._feed_timed(pieces, times)
        if pieces:
            self._feed(pieces, last=last)

    def _feed_timed(self, pieces: list[bytes], times: list[int]) -> list[bytes]:
        """Read the first pieces up to the first output, and return the others."""
        reader = self.reader
        if reader is not None:
            for position, when in enumerate(times):
                piece = pieces[position]
                self._read += len(piece)
                reader.feed(piece)
                if self._has_begun(when):
                    return pieces[position + 1 :]
            if self.begun:
                self.first_ns = times[-1]  # what was seen was the beginning of an event
        return pieces[len(times) :]

    def _feed(self, pieces: list[bytes], *, last: bool = False) -> None:
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
                reader.feed_all(whole, pieces, last=last)
            else:
                reader.feed(whole)
        except Exception:
            record_failure("read a stream")

    def exhausted(self) -> None:
        """The body has ended by itself."""
        try:
            if self._body is not None:
                self._finish(None)
            elif not self._put_off("failed"):
                facts = self._facts()
                self._finish(_outcome(facts, "failed"), facts=facts)
        except Exception:
            record_failure("end a stream")

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
        try:
            if not self.done:
                self._closed(sys.exc_info()[1])
        except Exception:
            record_failure("end a stream")

    def _closed(self, passing: BaseException | None) -> None:
        """End the round; `passing` is the exception that is on its way to the caller."""
        if passing is None and self._put_off("closed"):
            return
        if self._body is None:
            facts = self._facts()
            if facts.complete or facts.error is not None:
                # After an event that tells of an error the SDK raises, and so closes the body.
                self._finish(_outcome(facts, "closed"), facts=facts)
                return
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
        facts = self._facts() if self._body is None else NO_RESPONSE
        # Not every SDK closes the body when it raises for an event that tells of an error.
        self._finish(_outcome(facts, "abandoned"), end_ns=end_ns)

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
            self.catch_up(last=True)
            if self.reader is not None:
                return self.reader.result()
            route = self._exchange.route
            body = b"".join(self._body or ())
            return route.dialect.response(body, self._status, route, self._headers)
        except Exception:
            record_failure("read a response")
            return NO_RESPONSE

    def _ending(
        self,
        facts: ResponseFacts,
        outcome: str | None,
        error: BaseException | None = None,
        end_ns: int | None = None,
    ) -> Ending:
        """Return how the body has ended, with what was read of it."""
        reader, first = self.reader, None
        if self.first_ns and reader is not None and reader.started:
            first = (self.first_ns - self._exchange.started) / 1e9
        return Ending(
            response=facts,
            status=self._status,
            error=error,
            outcome=outcome,
            chunks=None if reader is None else reader.chunks,
            response_bytes=self.size,
            first_chunk_s=first,
            end_ns=end_ns,
        )

    def _put_off(self, otherwise: str) -> bool:
        """End the round and leave the reading to who looks at it; tell whether that could be.

        Args:
            otherwise: the outcome of a stream that has neither come to its end nor failed.
        """
        exchange = self._exchange
        if self.done or self._shows_output is None or not exchange.may_wait(failing=True):
            return False
        waiting = self.waiting
        uncounted = waiting[len(waiting) - len(waiting) % _TOGETHER :]
        if self._held + sum(map(len, uncounted)) <= LARGEST_UNREAD:
            ending = Ending(status=self._status, outcome="complete")
            self.done = exchange.end_unread(ending, partial(self._read_late, otherwise))
            if self.done:
                exchange.runtime.unwatch(self)
        return self.done

    def _read_late(self, otherwise: str, _: Ending) -> Ending:
        """Read what has waited, and tell how it ended."""
        facts = self._facts()
        return self._ending(facts, _outcome(facts, otherwise))

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
            exchange.runtime.unwatch(self)
            told = self._facts() if facts is None else facts
            ending = self._ending(told, outcome, error, end_ns)
            content = exchange.round.content
            if content is not None and self._body is not None and self._status < 400:
                content.took(b"".join(self._body))
            self._body = None
            exchange.end(ending)


def _outcome(facts: ResponseFacts, otherwise: str) -> str:
    """Return the outcome of a stream: what it says itself, or `otherwise` where that is nothing."""
    if facts.error is not None:
        return "failed"
    return "complete" if facts.complete else otherwise


def follow(body: Iterable[bytes], tap: StreamTap) -> Iterator[bytes]:
    """Give the pieces of a body, and tell a tap of them and of the end.

    Once the answer has begun, pieces are only put aside: this runs in the caller's thread for each
    event of a stream, between two events of much work for the SDK.
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
            tap.pause()
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
            if not len(waiting) % _TOGETHER:
                tap.pause()
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
