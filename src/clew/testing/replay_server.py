"""Recorded answers over real HTTP: a server that gives them, and a way to it under any address."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

import httpx

from clew.testing.loopback import Connection, LoopbackServer, ReceivedRequest
from clew.testing.recordings import RecordedExchange


class ReplayServer(LoopbackServer):
    """Answers each request with the next recorded exchange, whatever the request is.

        with ReplayServer(read_recording(path)) as server:
            client = openai.OpenAI(base_url=f"{server.base_url}/v1", api_key="any")

    Args:
        exchanges: what to answer, in this order; more can be added while it runs. A request for
            which nothing is left gets a 500, and leaving the block raises `IndexError`.
    """

    def __init__(self, exchanges: Iterable[RecordedExchange] = ()) -> None:
        super().__init__()
        self._exchanges = deque(exchanges)

    def add(self, *exchanges: RecordedExchange) -> None:
        """Append exchanges."""
        self._exchanges.extend(exchanges)

    def clear(self) -> None:
        """Forget the exchanges that were not asked for."""
        self._exchanges.clear()

    def respond(self, request: ReceivedRequest, connection: Connection) -> None:
        """Send the next recorded answer, one write for each of its pieces."""
        exchange = self._exchanges.popleft()
        length = None if exchange.streamed else sum(map(len, exchange.pieces))
        connection.head(exchange.status, dict(exchange.response_headers), length)
        for piece in exchange.pieces:
            connection.send(piece)
        connection.end()


class RedirectedTransport(httpx.HTTPTransport):
    """Carries every request to one loopback server, whatever host its URL names.

    The client, and whatever listens to it, sees the URL that was asked for; path, query and
    headers (`host` included) travel unchanged.

    Args:
        address: host and port of the server.
    """

    def __init__(self, address: tuple[str, int]) -> None:
        super().__init__()
        self._host, self._port = address

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send the request to the loopback server."""
        target = request.url.copy_with(scheme="http", host=self._host, port=self._port)
        return super().handle_request(
            httpx.Request(
                request.method,
                target,
                headers=request.headers,
                stream=request.stream,
                extensions=request.extensions,
            )
        )
