"""Calls of real SDK clients over canned answers: the loads of `make bench`.

Runs in environments without Clew, so it imports nothing of it. The SDKs sit on `httpx2`, older
ones on `httpx`; a transport below the client answers without a socket.
"""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, NamedTuple

from shapes import (
    CONCURRENT,
    QUESTION,
    ROUNDS,
    TOOLS,
    Anthropic,
    OpenAI,
    agent_steps,
    history,
    user,
)


class Load(NamedTuple):
    """One kind of call, and how much of it one use is."""

    name: str
    use: Callable[[], None]
    spans: int
    """How many floor spans one use has."""
    in_run: bool
    """Whether a run is open around them, for each batch; else each use opens its own."""


class Library(NamedTuple):
    """A client library: the shapes of its provider, its clients, and the call that is measured."""

    shape: OpenAI | Anthropic
    clients: dict[str, str]
    create: Callable[[Any], Callable[..., Any]]
    small: dict[str, Any]
    """What a small chat asks for besides its messages."""


LIBRARIES = {
    "openai": Library(
        OpenAI(),
        {"sync": "OpenAI", "async": "AsyncOpenAI"},
        lambda client: client.chat.completions.create,
        {"temperature": 0.2},
    ),
    "anthropic": Library(
        Anthropic(),
        {"sync": "Anthropic", "async": "AsyncAnthropic"},
        lambda client: client.messages.create,
        {},
    ),
}


class Traffic:
    """A client of one SDK over canned answers.

    Args:
        library: `openai` or `anthropic`.
        subject: what opens runs and tool calls (`floor.Subject`); may be another later.
    """

    def __init__(self, library: str, subject: Any) -> None:
        self._module = importlib.import_module(library)
        self._library = LIBRARIES[library]
        self._http = _http_library(library)
        self.subject = subject
        shape = self._library.shape
        self._usual = self._body = shape.text_answer()
        self._chunks = shape.stream()
        self._streaming = False
        self._sync = self._client("sync")
        self._async = self._client("async")
        self._loop = asyncio.new_event_loop()
        question = [user(QUESTION)]
        self._small = shape.asking(question, **self._library.small)
        self._long = shape.asking(history(shape, 39), tools=shape.tools)
        self._streamed = shape.asking(question, **shape.streaming)
        self._steps = [
            (shape.asking(messages, tools=shape.tools), body, ids)
            for messages, body, ids in agent_steps(shape)
        ]
        self.loads = [
            Load("small chat", self._small_chat, 1, in_run=True),
            Load("40 messages", self._forty, 1, in_run=True),
            Load("stream", self._stream, 1, in_run=True),
            Load("50 at once", self._at_once, CONCURRENT, in_run=True),
            Load("agent run", self._agent, 1 + ROUNDS + TOOLS, in_run=False),
        ]

    def close(self) -> None:
        """Close the event loop of asynchronous calls."""
        self._loop.close()

    def _client(self, kind: str) -> Any:
        http = self._http
        transport = _transport(http, self._respond, asynchronous=kind == "async")
        over = http.Client if kind == "sync" else http.AsyncClient
        made = getattr(self._module, self._library.clients[kind])
        return made(api_key="sk-none", http_client=over(transport=transport), max_retries=0)

    def _respond(self) -> tuple[dict[str, str], bytes | list[bytes]]:
        if self._streaming:
            return {"content-type": "text/event-stream"}, self._chunks
        return {"content-type": "application/json"}, self._body

    def _small_chat(self) -> None:
        self._library.create(self._sync)(**self._small)

    def _forty(self) -> None:
        self._library.create(self._sync)(**self._long)

    def _stream(self) -> None:
        self._streaming = True
        for _ in self._library.create(self._sync)(**self._streamed):
            pass
        self._streaming = False

    def _at_once(self) -> None:
        async def together() -> None:
            create = self._library.create(self._async)
            await asyncio.gather(*(create(**self._small) for _ in range(CONCURRENT)))

        self._loop.run_until_complete(together())

    def _agent(self) -> None:
        with self.subject.run():
            for asked, body, ids in self._steps:
                self._body = body
                self._library.create(self._sync)(**asked)
                for call_id in ids:
                    with self.subject.tool(call_id):
                        pass
        self._body = self._usual


def _http_library(library: str) -> Any:
    base = importlib.import_module(f"{library}._base_client")
    for name in ("httpx2", "httpx"):
        if hasattr(base, name):
            return importlib.import_module(name)
    raise RuntimeError(f"{library} sits on a library that is not known here")


def _transport(
    http: Any,
    respond: Callable[[], tuple[dict[str, str], bytes | list[bytes]]],
    *,
    asynchronous: bool,
) -> Any:
    """Return what answers below a client, without a socket; async after a turn of the loop."""

    class Chunks(http.SyncByteStream, http.AsyncByteStream):
        def __init__(self, chunks: list[bytes]) -> None:
            self._chunks = chunks

        def __iter__(self) -> Iterator[bytes]:
            return iter(self._chunks)

        async def __aiter__(self) -> AsyncIterator[bytes]:
            for chunk in self._chunks:
                yield chunk

    def answer() -> Any:
        headers, body = respond()
        if isinstance(body, bytes):
            return http.Response(200, headers=headers, content=body)
        return http.Response(200, headers=headers, stream=Chunks(body))

    class Canned(http.BaseTransport):
        def handle_request(self, request: Any) -> Any:
            return answer()

    class CannedAsync(http.AsyncBaseTransport):
        async def handle_async_request(self, request: Any) -> Any:
            await asyncio.sleep(0)
            return answer()

    return CannedAsync() if asynchronous else Canned()
