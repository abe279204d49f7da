"""The body of a streamed answer that the gates look at by window, over httpx and httpx2."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Generator
from typing import TYPE_CHECKING, Any, TypeVar

import wrapt

from clew._guard import guard, record_failure
from clew.errors import ClewError
from clew.exchange import Exchange
from clew.governance import passages
from clew.governance.passages import Passage, Refusal
from clew.pipeline.runtime import Runtime
from clew.streams import decoder
from clew.taps import reading

if TYPE_CHECKING:
    from clew.governance.windows import Window

_Proxy: Any = wrapt.ObjectProxy
_DECODED = ("", "identity", "gzip", "deflate")
Decode = Callable[[bytes], bytes]


class _Windowed(_Proxy):
    """A response's byte stream, with a window in front of it."""

    _self_window: Window
    _self_decode: Decode | None
    _self_source: Any
    _self_ready: list[bytes]

    def __init__(self, wrapped: Any, window: Window, decode: Decode | None) -> None:
        _Proxy.__init__(self, wrapped)
        self._self_window = window
        self._self_decode = decode
        self._self_source = None
        self._self_ready = []

    def _decoded(self, piece: bytes) -> bytes:
        return piece if self._self_decode is None else self._self_decode(piece)

    def _is_complete(self) -> bool:
        """Tell whether the answer has come as a whole; not every SDK reads to the body's end."""
        tap = reading.tap_on(self.__wrapped__)
        tap.catch_up()
        reader = tap.reader
        return reader is not None and reader.result().complete

    def __del__(self) -> None:
        with guard("drop a stream"):
            self._self_window.dropped()


class SyncWindowed(_Windowed):
    """A byte stream that is read with `for`."""

    def begin(self, *, retried: bool) -> bool:
        """Wait for the first text to pass, where text is held back.

        Until then nothing has been released: the answer can be refused as a whole.

        Args:
            retried: whether the model has been asked once more already.

        Returns:
            True where a gate wants the model to be asked once more.
        """
        self._self_source = source = self._pieces()
        self._self_window.may_retry = not retried
        if not self._self_window.holds:
            return False
        try:
            while not self._self_window.released:
                self._self_ready.append(next(source))
        except StopIteration:
            pass
        except (ClewError, Refusal):
            if not self._self_window.wants_again:
                raise
            return True
        except BaseException as error:
            self._self_source = _raising(error)
            if not isinstance(error, Exception):
                raise
        return False

    def __iter__(self) -> Generator[bytes]:
        ready, self._self_ready = self._self_ready, []
        yield from ready
        yield from self._self_source

    def _pieces(self) -> Generator[bytes]:
        window, body = self._self_window, self.__wrapped__
        failure: Exception | None = None
        try:
            try:
                for piece in body:
                    out = passages.look(window, window.feed(self._decoded(piece)))
                    if not window.holds:
                        yield piece
                    elif out:
                        yield out
            except (ClewError, Refusal):
                raise
            except Exception as error:
                failure = error
            out = passages.look(window, window.end(complete=failure is None))
            if window.holds and out:
                yield out
            if failure is not None:
                raise failure
        except (ClewError, Refusal):
            self.close()
            raise
        finally:
            window.dropped()  # where it has not ended: given up, or cancelled

    def close(self) -> None:
        """Close the stream."""
        window = self._self_window
        with guard("end a window"):
            if not window.holds:  # all that has come has gone on, and is looked at
                passages.look(window, window.end(complete=self._is_complete()))
            window.left()
        self.__wrapped__.close()


class AsyncWindowed(_Windowed):
    """A byte stream that is read with `async for`."""

    async def begin(self, *, retried: bool) -> bool:
        """Do what `SyncWindowed.begin` does, in asynchronous code."""
        self._self_source = source = self._pieces()
        self._self_window.may_retry = not retried
        if not self._self_window.holds:
            return False
        try:
            while not self._self_window.released:
                self._self_ready.append(await anext(source))
        except StopAsyncIteration:
            pass
        except (ClewError, Refusal):
            if not self._self_window.wants_again:
                raise
            return True
        except BaseException as error:
            self._self_source = _araising(error)
            if not isinstance(error, Exception):
                raise
        return False

    async def __aiter__(self) -> AsyncGenerator[bytes]:
        ready, self._self_ready = self._self_ready, []
        source = self._self_source
        try:
            for piece in ready:
                yield piece
            async for piece in source:
                yield piece
        finally:
            await source.aclose()

    async def _pieces(self) -> AsyncGenerator[bytes]:
        window, body = self._self_window, self.__wrapped__
        failure: Exception | None = None
        try:
            try:
                async for piece in body:
                    out = await passages.alook(window, window.feed(self._decoded(piece)))
                    if not window.holds:
                        yield piece
                    elif out:
                        yield out
            except (ClewError, Refusal):
                raise
            except Exception as error:
                failure = error
            out = await passages.alook(window, window.end(complete=failure is None))
            if window.holds and out:
                yield out
            if failure is not None:
                raise failure
        except (ClewError, Refusal):
            await self.aclose()
            raise
        finally:
            window.dropped()  # where it has not ended: given up, or cancelled

    async def aclose(self) -> None:
        """Close the stream."""
        window = self._self_window
        with guard("end a window"):
            if not window.holds:
                await passages.alook(window, window.end(complete=self._is_complete()))
            window.left()
        await self.__wrapped__.aclose()


_W = TypeVar("_W", SyncWindowed, AsyncWindowed)


def opened(
    runtime: Runtime, passage: Passage, begun: Exchange | None, response: Any, kind: type[_W]
) -> _W | None:
    """Put a window in front of a streamed answer; None where none is wanted, or possible."""
    if begun is None or hasattr(response, "_content"):
        return None
    try:
        headers = response.headers
        content_type = reading.content_type_of(headers, reading.names_of(headers))
        encoding = str(headers.get("content-encoding", "")).strip().lower()
        if encoding not in _DECODED:
            return None
        window = passages.window_of(runtime, passage, begun, content_type)
        if window is None:
            return None
        body = kind(response.stream, window, decoder(encoding))
        if window.holds:  # what the window lets go is decoded, and may be of another length
            headers.pop("content-encoding", None)
            headers.pop("content-length", None)
        response.stream = body
    except Exception:
        record_failure("look at a response")
        return None  # then the answer is held back as a whole
    return body


def _raising(error: BaseException) -> Generator[bytes]:
    raise error
    yield


async def _araising(error: BaseException) -> AsyncGenerator[bytes]:
    raise error
    yield
