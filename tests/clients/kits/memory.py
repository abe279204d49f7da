"""Transports of httpx and httpx2 that answer from memory, without a socket."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from typing import Any


def transport(
    library: Any,
    headers: Mapping[str, str],
    pieces: Callable[[], Iterator[bytes]],
    *,
    asynchronous: bool,
    opened: Callable[[], None] = lambda: None,
    closed: Callable[[], None] = lambda: None,
) -> Any:
    """Return a transport whose every answer is 200 and a body that comes in pieces.

    Args:
        library: `httpx` or `httpx2`.
        headers: of each answer.
        pieces: gives the pieces of a body that is read; what it raises breaks the body off.
        asynchronous: for an asynchronous client.
        opened: called when a body is made.
        closed: called when one is closed.
    """

    class Body(library.SyncByteStream):
        def __init__(self) -> None:
            opened()

        def __iter__(self) -> Iterator[bytes]:
            yield from pieces()

        def close(self) -> None:
            closed()

    class AsyncBody(library.AsyncByteStream):
        def __init__(self) -> None:
            opened()

        async def __aiter__(self) -> AsyncIterator[bytes]:
            for piece in pieces():
                yield piece

        async def aclose(self) -> None:
            closed()

    class Transport(library.BaseTransport):
        def handle_request(self, request: Any) -> Any:
            return library.Response(200, headers=headers, stream=Body())

    class AsyncTransport(library.AsyncBaseTransport):
        async def handle_async_request(self, request: Any) -> Any:
            return library.Response(200, headers=headers, stream=AsyncBody())

    return AsyncTransport() if asynchronous else Transport()
