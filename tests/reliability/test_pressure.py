"""Back pressure and connection pools are with Clew what they are without."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import aiohttp
import httpx
import openai
import pytest

import clew
from clew.settings import Settings
from clew.testing import (
    CaptureExporter,
    LoopbackServer,
    ReceivedRequest,
    Reply,
    ScriptedProvider,
)
from clew.testing.loopback import Connection

ASK: dict[str, Any] = {"model": "gpt-5-mini", "messages": [{"role": "user", "content": "Hi"}]}
EVENTS = 200
URL = "http://model.test/v1/chat/completions"
HEAD = {"content-type": "text/event-stream"}


def on() -> CaptureExporter:
    exporter = CaptureExporter()
    settings = Settings(digest_key="k", export_delay_ms=20, seal_grace_s=0, capture="metadata")
    clew.configure("tests", settings=settings, span_exporters=[exporter])
    clew.instrument()
    return exporter


def off() -> None:
    clew.uninstrument()
    clew.shutdown()


def event(number: int) -> bytes:
    delta = {"content": f"word {number} "}
    choice = {"index": 0, "delta": delta, "finish_reason": None}
    body = {"id": "c", "object": "chat.completion.chunk", "model": "gpt-5-mini"}
    return b"data: " + json.dumps({**body, "choices": [choice]}).encode() + b"\n\n"


class Source(httpx.BaseTransport, httpx.AsyncBaseTransport):
    """A transport that gives a stream piece by piece and counts how many were taken."""

    def __init__(self) -> None:
        self.taken = 0

    def _pieces(self) -> Iterator[bytes]:
        for number in range(EVENTS):
            self.taken += 1
            yield event(number)
        yield b"data: [DONE]\n\n"

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, headers=HEAD, content=self._pieces())

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        async def pieces() -> AsyncIterator[bytes]:
            for piece in self._pieces():
                yield piece

        return httpx.Response(200, headers=HEAD, content=pieces())


def slowly(kind: str) -> list[int]:
    """Return how many pieces had been taken from the network after each that the caller got."""
    source, found = Source(), list[int]()
    with clew.run("desk"), httpx.Client(transport=source) as client:
        if kind == "httpx":
            with client.stream("POST", URL, json={**ASK, "stream": True}) as answer:
                for _ in answer.iter_bytes():
                    found.append(source.taken)
        else:
            sdk = openai.OpenAI(api_key="k", base_url="http://model.test/v1", http_client=client)
            for _ in sdk.chat.completions.create(**ASK, stream=True):
                found.append(source.taken)
    return found


async def aslowly(kind: str) -> list[int]:
    """Do what `slowly` does, in asynchronous code."""
    source, found = Source(), list[int]()
    async with clew.run("desk"), httpx.AsyncClient(transport=source) as client:
        if kind == "httpx":
            async with client.stream("POST", URL, json={**ASK, "stream": True}) as answer:
                async for _ in answer.aiter_bytes():
                    found.append(source.taken)
        else:
            sdk = openai.AsyncOpenAI(
                api_key="k", base_url="http://model.test/v1", http_client=client
            )
            async for _ in await sdk.chat.completions.create(**ASK, stream=True):
                found.append(source.taken)
    return found


@pytest.mark.parametrize("twin", ["sync", "async"])
@pytest.mark.parametrize("kind", ["httpx", "openai"])
def test_nothing_is_read_ahead(kind: str, twin: str) -> None:
    """After each piece that the caller gets, as much was taken from the network as without."""

    def read() -> list[int]:
        return slowly(kind) if twin == "sync" else asyncio.run(aslowly(kind))

    bare = read()
    on()
    assert read() == bare
    assert len(bare) >= EVENTS


class Pouring(LoopbackServer):
    """A model that says as much as somebody takes, and counts it."""

    def __init__(self) -> None:
        super().__init__()
        self.sent = 0
        self.left = threading.Event()

    def respond(self, request: ReceivedRequest, connection: Connection) -> None:
        connection._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 16 * 1024)
        connection.head(200, HEAD, None)
        piece = b"data: " + json.dumps({"choices": [], "x": "y" * 8000}).encode() + b"\n\n"
        with contextlib.suppress(OSError):
            for _ in range(4000):
                connection.send(piece)
                self.sent += len(piece)
        self.left.set()


def still(number: Callable[[], int]) -> int:
    """Return a number once it has not changed for a while."""
    last, since = number(), time.monotonic()
    while time.monotonic() - since < 0.3:
        time.sleep(0.02)
        if number() != last:
            last, since = number(), time.monotonic()
    return last


@pytest.mark.parametrize("twin", ["sync", "async"])
def test_a_slow_reader_slows_the_model(twin: str) -> None:
    """The model can send no more than the sockets hold while nobody reads, as without Clew."""
    options = [(socket.SOL_SOCKET, socket.SO_RCVBUF, 16 * 1024)]

    def held() -> int:
        with Pouring() as model, clew.run("desk"):
            url = f"{model.base_url}/v1/chat/completions"
            transport = httpx.HTTPTransport(socket_options=options)
            with (
                httpx.Client(transport=transport) as client,
                client.stream("POST", url, json={**ASK, "stream": True}) as answer,
            ):
                next(answer.iter_raw())
                found = still(lambda: model.sent)
            assert model.left.wait(10)
            return found

    async def aheld() -> int:
        with Pouring() as model:
            url = f"{model.base_url}/v1/chat/completions"
            transport = httpx.AsyncHTTPTransport(socket_options=options)
            async with (
                clew.run("desk"),
                httpx.AsyncClient(transport=transport) as client,
                client.stream("POST", url, json={**ASK, "stream": True}) as answer,
            ):
                await anext(answer.aiter_raw())
                found = await asyncio.to_thread(still, lambda: model.sent)
            assert await asyncio.to_thread(model.left.wait, 10)
            return found

    def measured() -> int:
        return held() if twin == "sync" else asyncio.run(aheld())

    bare = measured()
    on()
    with_clew = measured()
    # One read more or less is a matter of when the kernel woke whom.
    assert abs(with_clew - bare) <= 128 * 1024, (with_clew, bare)
    assert bare < 4_000_000


def answer(request: ReceivedRequest) -> Reply:
    if b'"broken"' in request.body:
        return Reply.failure(429, "busy", headers={"x-should-retry": "false"})
    if b'"cut"' in request.body:
        return Reply(text=("a", "b"), cut_after=1)
    if b'"slow"' in request.body:
        return Reply(text="late", delay=5)
    if b'"drips"' in request.body:
        return Reply(text=tuple("abcdefgh"), event_delay=0.05)
    return Reply(text=tuple("abcdefgh"))


@pytest.fixture
def provider() -> Iterator[ScriptedProvider]:
    with ScriptedProvider(answer) as running:
        yield running


def pool_of(client: Any) -> list[tuple[bool, bool]]:
    """Return of each connection of a client whether it is idle, and whether it is closed."""
    connections = client._transport._pool.connections
    return sorted((each.is_idle(), each.is_closed()) for each in connections)


def mix(provider: ScriptedProvider) -> list[Any]:
    """Use a client in all ways that leave connections in a state; return the states."""
    url = f"{provider.openai_base_url}/chat/completions"
    stream = {**ASK, "stream": True}
    drips = {**stream, "model": "drips"}
    found: list[Any] = []
    first = provider.connections
    with clew.run("desk"), httpx.Client(trust_env=False) as client:

        def note() -> None:
            found.append((pool_of(client), provider.connections - first))

        client.post(url, json=ASK)
        note()
        with client.stream("POST", url, json=stream) as got:
            b"".join(got.iter_bytes())
        note()
        with client.stream("POST", url, json=drips) as got:
            next(got.iter_raw())  # closed early
        note()
        got = client.send(client.build_request("POST", url, json=drips), stream=True)
        next(got.iter_raw())
        del got  # abandoned
        gc.collect()
        note()
        client.post(url, json={**ASK, "model": "broken"})
        note()
        with pytest.raises(httpx.RemoteProtocolError):
            client.post(url, json={**stream, "model": "cut"})
        note()
        with pytest.raises(httpx.ReadTimeout):
            client.post(url, json={**ASK, "model": "slow"}, timeout=0.2)
        note()
        client.post(url, json=ASK)
        note()
    return found


async def amix(provider: ScriptedProvider) -> list[Any]:
    """Do what `mix` does, in asynchronous code; and cancel."""
    url = f"{provider.openai_base_url}/chat/completions"
    stream = {**ASK, "stream": True}
    drips = {**stream, "model": "drips"}
    found: list[Any] = []
    first = provider.connections
    async with clew.run("desk"), httpx.AsyncClient(trust_env=False) as client:

        def note() -> None:
            found.append((pool_of(client), provider.connections - first))

        await client.post(url, json=ASK)
        note()
        async with client.stream("POST", url, json=stream) as got:
            b"".join([each async for each in got.aiter_bytes()])
        note()
        async with client.stream("POST", url, json=drips) as got:
            await anext(got.aiter_raw())
        note()
        await client.post(url, json={**ASK, "model": "broken"})
        note()
        with pytest.raises(httpx.RemoteProtocolError):
            await client.post(url, json={**stream, "model": "cut"})
        note()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await client.post(url, json={**ASK, "model": "slow"})
        note()
        await client.post(url, json=ASK)
        note()
    return found


async def aiomix(provider: ScriptedProvider) -> list[Any]:
    """Do it over aiohttp."""
    url = f"{provider.openai_base_url}/chat/completions"
    stream = {**ASK, "stream": True}
    drips = {**stream, "model": "drips"}
    found: list[Any] = []
    first = provider.connections
    async with clew.run("desk"), aiohttp.ClientSession() as session:

        def note() -> None:
            connector: Any = session.connector
            idle = sum(map(len, connector._conns.values()))
            found.append((idle, len(connector._acquired), provider.connections - first))

        async with session.post(url, json=ASK) as got:
            await got.read()
        note()
        async with session.post(url, json=drips) as got:
            await got.content.readany()
        note()
        async with session.post(url, json={**ASK, "model": "broken"}) as got:
            await got.read()
        note()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2), session.post(url, json={**ASK, "model": "slow"}):
                pass
        note()
        async with session.post(url, json=stream) as got:
            await got.read()
        note()
    return found


@pytest.mark.parametrize("client", ["httpx", "httpx async", "aiohttp"])
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_connections_are_used_as_without(client: str, provider: ScriptedProvider) -> None:
    """As many are opened, kept idle and closed: after streams closed early, dropped, cut, timed out."""

    def used() -> list[Any]:
        if client == "httpx":
            return mix(provider)
        return asyncio.run(amix(provider) if client == "httpx async" else aiomix(provider))

    bare = used()
    exporter = on()
    with_clew = used()
    off()
    assert with_clew == bare
    assert len(exporter.by_name("chat")) >= 5
