"""Streamed answers, as the caller holds them."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from types import TracebackType
from typing import Any, NamedTuple, Self

from clew.providers.base import ChatResponse, StreamEvent
from clew.providers.errors import ProviderError

Settle = Callable[[ProviderError | None], None]


class Opened(NamedTuple):
    """A stream whose first event has come."""

    first: StreamEvent
    rest: Generator[StreamEvent]
    response: Any
    """The HTTP response, to be closed."""
    so_far: Callable[[], ChatResponse]
    settle: Settle | None = None
    """Told how the stream ended, unless the caller left it."""


class AsyncOpened(NamedTuple):
    """The asynchronous twin of `Opened`."""

    first: StreamEvent
    rest: AsyncGenerator[StreamEvent]
    response: Any
    so_far: Callable[[], ChatResponse]
    settle: Settle | None = None


class _Held:
    """What both kinds of stream know."""

    _opened: Opened | AsyncOpened | None = None
    _first: StreamEvent | None = None
    _ended = False
    response: ChatResponse | None = None
    """The whole answer; None until the stream has ended by itself."""

    def so_far(self) -> ChatResponse | None:
        """Return what has come until now; None when nothing was asked for yet."""
        return None if self._opened is None else self._opened.so_far()

    def _take(self, event: StreamEvent) -> StreamEvent:
        if event.kind == "end":
            self.response = event.response
            self._settle(None)
        return event

    def _settle(self, error: ProviderError | None) -> None:
        self._ended = True
        if self._opened is not None and self._opened.settle is not None:
            self._opened.settle(error)


class ChatStream(_Held):
    """The events of an answer: iterate, and close (or use `with`) when you stop early.

    with provider.stream(request) as stream:
        for event in stream:
            print(event.text, end="")
    answer = stream.response
    """

    def __init__(self, opener: Callable[[], Opened]) -> None:
        self._opener = opener

    def open(self) -> Self:
        """Send the request and wait for the first event; nothing when that is done already.

        Raises:
            ProviderError: there is no answer.
        """
        if self._opened is None and not self._ended:
            self._ended = True  # what fails to open is not asked again
            self._opened = self._opener()
            self._first, self._ended = self._opened.first, False
        return self

    def opened(self) -> Opened:
        """Open the stream and hand it over, for a chain of providers."""
        opened = self.open()._opened
        assert isinstance(opened, Opened)  # noqa: S101 - for the type checker
        return opened

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> StreamEvent:
        if self._ended:
            raise StopIteration
        opened = self.opened()
        first, self._first = self._first, None
        if first is not None:
            return self._take(first)
        try:
            return self._take(next(opened.rest))
        except ProviderError as error:
            self._settle(error)
            raise

    def close(self) -> None:
        """Read no further."""
        self._ended = True
        opened = self._opened
        if isinstance(opened, Opened):
            opened.response.close()
            with contextlib.suppress(ValueError):  # somebody is reading just now
                opened.rest.close()

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


class AsyncChatStream(_Held):
    """The asynchronous twin of `ChatStream`: `async for`, `async with`, `aclose`."""

    def __init__(self, opener: Callable[[], Awaitable[AsyncOpened]]) -> None:
        self._opener = opener

    async def open(self) -> Self:
        """Send the request and wait for the first event; nothing when that is done already.

        Raises:
            ProviderError: there is no answer.
        """
        if self._opened is None and not self._ended:
            self._ended = True
            self._opened = await self._opener()
            self._first, self._ended = self._opened.first, False
        return self

    async def opened(self) -> AsyncOpened:
        """Open the stream and hand it over, for a chain of providers."""
        opened = (await self.open())._opened
        assert isinstance(opened, AsyncOpened)  # noqa: S101 - for the type checker
        return opened

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> StreamEvent:
        if self._ended:
            raise StopAsyncIteration
        opened = await self.opened()
        first, self._first = self._first, None
        if first is not None:
            return self._take(first)
        try:
            return self._take(await anext(opened.rest))
        except ProviderError as error:
            self._settle(error)
            raise

    async def aclose(self) -> None:
        """Read no further."""
        self._ended = True
        opened = self._opened
        if isinstance(opened, AsyncOpened):
            await opened.response.aclose()
            with contextlib.suppress(RuntimeError):
                await opened.rest.aclose()

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()
