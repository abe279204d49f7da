"""Two providers, ways to ask them, and a clock for their circuits."""

from __future__ import annotations

from typing import Any

from clew.providers import (
    ChatRequest,
    ChatResponse,
    Choice,
    Message,
    Provider,
    StreamEvent,
    provider,
)
from clew.testing import Reply

ASK = ChatRequest(model="small", messages=(Message.user("SECRET"),))
BUSY = Reply.failure(503, "SECRET")


class Pair:
    """Two providers on two servers, and a chain of them, asked in one of four ways."""

    def __init__(self, mode: str, streamed: bool, first: Any, second: Any) -> None:
        self.mode = mode
        self.streamed = streamed
        self.servers = (first, second)
        self.one = provider("openai", api_key="k", base_url=first.openai_base_url, retries=0)
        self.two = provider("anthropic", api_key="k", base_url=second.base_url, retries=0)
        self.second = Choice(provider=self.two, model="large")

    async def ask(self, by: Provider, request: ChatRequest = ASK) -> ChatResponse:
        """Ask, and return the whole answer."""
        if not self.streamed:
            return by.chat(request) if self.mode == "sync" else await by.achat(request)
        last = (await self.events(by, request))[-1].response
        assert last is not None
        return last

    async def events(self, by: Provider, request: ChatRequest = ASK) -> list[StreamEvent]:
        """Read a whole stream."""
        if self.mode == "sync":
            return list(by.stream(request))
        return [event async for event in by.astream(request)]

    @property
    def asked(self) -> tuple[int, int]:
        """How many requests each server has seen."""
        return len(self.servers[0].requests), len(self.servers[1].requests)

    def script(self, first: list[Reply], second: list[Reply]) -> None:
        """Give each server its replies."""
        self.servers[0].replace(*first)
        self.servers[1].replace(*second)


class Clock:
    """A clock that goes on when it is told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now
