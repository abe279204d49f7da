"""Connections on which no request arrives are closed: a few hundred of them would be all there are.

uvicorn bounds the wait between requests. It does not bound how long the head of one takes to
arrive, nor how long a connection may say nothing at all.
"""

from __future__ import annotations

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol


def protocol(seconds: float) -> type[H11Protocol]:
    """Return the protocol of a server that waits this long for the head of a request.

    As long it waits for the rest of one that is answered already.
    """

    class Impatient(H11Protocol):
        """Closes a connection whose next request takes too long to begin."""

        _waiting: asyncio.TimerHandle | None = None

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._wait()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if not self._due():
                self._stop()
            elif self._waiting is None:
                self._wait()

        def on_response_complete(self) -> None:
            super().on_response_complete()
            # A request that was answered before all of it had come has to end too.
            if self.conn.their_state is h11.SEND_BODY and self._waiting is None:
                self._wait()

        def connection_lost(self, exc: Exception | None) -> None:
            self._stop()
            super().connection_lost(exc)

        def _due(self) -> bool:
            state = self.conn.their_state
            # There is no cycle before the first request.
            answered = getattr(self.cycle, "response_complete", False)
            return state is h11.IDLE or (state is h11.SEND_BODY and answered)

        def _wait(self) -> None:
            self._waiting = self.loop.call_later(seconds, self._give_up)

        def _stop(self) -> None:
            if self._waiting is not None:
                self._waiting.cancel()
                self._waiting = None

        def _give_up(self) -> None:
            self._waiting = None
            if not self.transport.is_closing():
                self.transport.close()

    return Impatient
