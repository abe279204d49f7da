"""The seven adapters, each beside a scripted server that speaks its format, sync and async."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from clew.providers import ChatRequest, ChatResponse, Message, Provider, StreamEvent, provider
from clew.testing import MistralChatCompletions, Reply, ScriptedProvider
from clew.testing.provider import FORMATS

sys.path.insert(0, str(Path(__file__).parent / "support"))

from pair import Pair

SUFFIXES = {
    "openai": "/v1",
    "anthropic": "",
    "gemini": "/v1beta",
    "openrouter": "/api/v1",
    "mistral": "/v1",
    "groq": "/openai/v1",
    "ollama": "",
}
NAMES = tuple(SUFFIXES)
MODES = ("sync", "async")

HELLO = ChatRequest(model="small", messages=(Message.user("Hello"),))


def server_for(name: str, *replies: Reply) -> ScriptedProvider:
    """Return a server that speaks the format of an adapter."""
    return ScriptedProvider(
        replies, formats=[MistralChatCompletions()] if name == "mistral" else FORMATS
    )


class Kit:
    """One adapter, its server, and the way in which it is called."""

    def __init__(self, name: str, mode: str, server: ScriptedProvider) -> None:
        self.name = name
        self.mode = mode
        self.server = server
        self.provider = self.another()

    def another(self, **options: Any) -> Any:
        """Return a further adapter for the same server."""
        base_url = self.server.base_url + SUFFIXES[self.name]
        return provider(self.name, **{"api_key": "SECRET-KEY", "base_url": base_url, **options})

    async def chat(
        self, request: ChatRequest = HELLO, *, by: Provider | None = None
    ) -> ChatResponse:
        """Ask for a whole answer."""
        asked = by or self.provider
        return asked.chat(request) if self.mode == "sync" else await asked.achat(request)

    async def events(
        self, request: ChatRequest = HELLO, *, by: Provider | None = None
    ) -> list[StreamEvent]:
        """Ask for a stream and read it all."""
        asked = by or self.provider
        if self.mode == "sync":
            return list(asked.stream(request))
        return [event async for event in asked.astream(request)]

    async def answer(self, request: ChatRequest = HELLO, *, streamed: bool) -> ChatResponse:
        """Ask, in either way, for the whole answer."""
        if not streamed:
            return await self.chat(request)
        last = (await self.events(request))[-1].response
        assert last is not None
        return last

    @property
    def bodies(self) -> list[Any]:
        """The bodies that the server received."""
        return [request.json() for request in self.server.requests]


@pytest.fixture(params=MODES)
def mode(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(params=NAMES)
def name(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
async def kit(name: str, mode: str) -> AsyncIterator[Kit]:
    with server_for(name) as server:
        kit = Kit(name, mode, server)
        async with kit.provider:
            yield kit


@pytest.fixture(params=[False, True], ids=["whole", "streamed"])
def streamed(request: pytest.FixtureRequest) -> bool:
    """Whether the answer is to come as a stream."""
    return request.param


@pytest.fixture
async def pair(mode: str, streamed: bool) -> AsyncIterator[Pair]:
    """Two providers, each of which has a server."""
    with ScriptedProvider() as first, ScriptedProvider() as second:
        pair = Pair(mode, streamed, first, second)
        async with pair.one, pair.two:
            yield pair
