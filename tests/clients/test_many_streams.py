"""Ten thousand streams that their callers leave: one span each, no connection and no memory kept."""

from __future__ import annotations

import asyncio
import gc
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import anthropic
import groq
import httpx
import httpx2
import openai
import pytest
from kits import memory

from clew.testing import captured, sse

ROUNDS = 10_000
WARM = 4_000
"""Until then what is remembered on purpose has reached its bounds."""
THROUGH_SDKS = 200
DELTA = {"index": 0, "delta": {"content": "zqmark"}, "finish_reason": None}
CHUNK = sse({"id": "c1", "object": "chat.completion.chunk", "choices": [DELTA], "model": "m-1"})
MESSAGE = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m-1", "content": []}
START = MESSAGE | {"usage": {"input_tokens": 100, "output_tokens": 1}}
TEXT = {"type": "text_delta", "text": "zqmark"}
EVENTS = {
    "openai": [CHUNK] * 10,
    "anthropic": [
        sse({"type": "message_start", "message": START}, "message_start"),
        *[sse({"type": "content_block_delta", "index": 0, "delta": TEXT}, "content_block_delta")]
        * 9,
    ],
}
PATHS = {"openai": "/v1/chat/completions", "anthropic": "/v1/messages"}


class Opened:
    """How many bodies are open."""

    def __init__(self) -> None:
        self.now = 0

    def add(self, number: int) -> None:
        self.now += number


def transport_of(library: Any, events: list[bytes], opened: Opened, asynchronous: bool) -> Any:
    """Return a transport that answers from memory, with bodies that know whether they are open."""
    return memory.transport(
        library,
        {"content-type": "text/event-stream"},
        lambda: iter(events),
        asynchronous=asynchronous,
        opened=lambda: opened.add(1),
        closed=lambda: opened.add(-1),
    )


# --- the four ways ------------------------------------------------------------------------------------


class Own(Exception):  # noqa: N818 - the caller's, not an error of ours
    """What the caller's loop body raises."""


def leave(way: int, stream: Any) -> None:
    """Read three items and leave: drop, close, raise; or never read."""
    if way == 3:
        return
    iterator = iter(stream)
    try:
        for _ in range(3):
            next(iterator)
        if way == 2:
            raise Own
    except Own:
        stream.close()
    if way == 1:
        stream.close()


async def aleave(way: int, stream: Any) -> None:
    """Do the same with an asynchronous stream."""
    if way == 3:
        return
    iterator = aiter(stream)
    try:
        for _ in range(3):
            await anext(iterator)
        if way == 2:
            raise Own
    except Own:
        await stream.close()
    if way == 1:
        await stream.close()


class Tally:
    """Outcomes and blocks of memory after so many calls."""

    def __init__(self, exporter: Any) -> None:
        self._exporter = exporter
        self.outcomes: Counter[tuple[Any, ...]] = Counter()
        self.blocks: dict[int, int] = {}

    def take(self) -> None:
        """Count what was exported, and forget it."""
        for span in self._exporter.spans:
            told = span.attributes
            if "clew.attempts" not in told:
                continue  # one of the SDK's own
            usage = told.get("gen_ai.usage.input_tokens")
            self.outcomes[(told.get("clew.stream.outcome"), told.get("error.type"), usage)] += 1
        self._exporter.clear()

    def weigh(self, done: int) -> None:
        """Note how many blocks of memory are in use."""
        gc.collect()
        self.take()
        gc.collect()
        self.blocks[done] = sys.getallocatedblocks()

    def grown(self, since: int, until: int) -> float:
        """Return how many blocks were added for each call."""
        return (self.blocks[until] - self.blocks[since]) / (until - since)


USED = {"openai": None, "anthropic": 100}


def expected(format_: str, rounds: int) -> dict[tuple[Any, ...], int]:
    """Return what the outcomes must be; a stream that nobody reads has reported nothing."""
    read = USED[format_]
    wanted: Counter[tuple[Any, ...]] = Counter()
    wanted["closed", None, read] += rounds // 2
    wanted["abandoned", None, read] += rounds // 4
    wanted["abandoned", None, None] += rounds // 4
    return dict(wanted)


class Reading:
    """A response of the library as a stream, blocking or asynchronous."""

    def __init__(self, response: Any, asynchronous: bool) -> None:
        self._response = response
        self._asynchronous = asynchronous

    def __iter__(self) -> Iterator[bytes]:
        return self._response.iter_raw()

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._response.aiter_raw()

    def close(self) -> Any:
        """Close the response, or return what does when awaited."""
        return self._response.aclose() if self._asynchronous else self._response.close()


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("library", "format_", "asynchronous"),
    [(httpx2, "openai", False), (httpx, "anthropic", True)],
    ids=["openai over httpx2, sync", "anthropic over httpx, async"],
)
async def test_ten_thousand_streams_that_are_left(library: Any, format_: str, asynchronous: bool):
    """Each of four ways of leaving ends one span; what was closed is released, memory is flat."""
    opened = Opened()
    kind = library.AsyncClient if asynchronous else library.Client
    transport = transport_of(library, EVENTS[format_], opened, asynchronous)
    client = kind(transport=transport, base_url="http://model.test")

    async def start() -> Any:
        request = client.build_request("POST", PATHS[format_], json={"model": "m"})
        response = client.send(request, stream=True)
        return Reading(await response if asynchronous else response, asynchronous)

    with captured(queue_size=20_000) as exporter:
        tally = await left_early(exporter, start, asynchronous, ROUNDS, WARM)
    assert tally.outcomes == expected(format_, ROUNDS)
    # Nobody closes bodies that are dropped unread, with Clew or without; httpx2 alone closes those
    # that are dropped half-read.
    assert opened.now == ROUNDS // (4 if library is httpx2 else 2)
    assert abs(tally.grown(WARM, ROUNDS)) < 0.1


CLIENTS: dict[str, tuple[Any, ...]] = {
    "openai": (httpx2, "openai", openai.OpenAI, openai.AsyncOpenAI),
    "anthropic": (httpx2, "anthropic", anthropic.Anthropic, anthropic.AsyncAnthropic),
    "groq": (httpx, "openai", groq.Groq, groq.AsyncGroq),
}
"""HTTP client library, format of the stream, and the two clients."""
CLOSING = {"openai", "anthropic"}
"""SDKs that close a stream that is dropped half-read."""


@pytest.mark.timeout(300)
@pytest.mark.parametrize("sdk", CLIENTS)
@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
async def test_many_streams_of_an_sdk_that_are_left(sdk: str, asynchronous: bool):
    """The same through real clients: one span each, and what they close is released."""
    library, format_, *kinds = CLIENTS[sdk]
    opened = Opened()
    transport = transport_of(library, EVENTS[format_], opened, asynchronous)
    http = (library.AsyncClient if asynchronous else library.Client)(transport=transport)
    client = kinds[asynchronous](api_key="key", http_client=http, base_url="http://model.test/v1")
    resource = client.messages if sdk == "anthropic" else client.chat.completions
    more = {"max_tokens": 5} if sdk == "anthropic" else {}
    ask = [{"role": "user", "content": "zqmark"}]

    async def start() -> Any:
        stream = resource.create(model="m", messages=ask, stream=True, **more)
        return await stream if asynchronous else stream

    with captured(queue_size=20_000) as exporter:
        tally = await left_early(exporter, start, asynchronous, THROUGH_SDKS, THROUGH_SDKS // 2)
    outcomes: Counter[str] = Counter()
    for (outcome, error, _), count in tally.outcomes.items():
        assert error is None
        outcomes[outcome] += count
    assert outcomes["closed"] + outcomes["abandoned"] == outcomes.total() == THROUGH_SDKS
    assert outcomes["closed"] >= THROUGH_SDKS // 2
    assert opened.now == THROUGH_SDKS // (4 if sdk in CLOSING else 2)


async def left_early(
    exporter: Any, start: Callable[[], Any], asynchronous: bool, rounds: int, warm: int
) -> Tally:
    """Start so many streams, and leave them in each way in turn."""
    tally = Tally(exporter)
    # What lives now is left out of the collections to come: they would take most of the time.
    gc.collect()
    gc.freeze()
    for done in range(rounds):
        if done == warm:
            tally.weigh(done)
        elif done % 1000 == 0:
            tally.take()
        stream = await start()
        await aleave(done % 4, stream) if asynchronous else leave(done % 4, stream)
        del stream
        if asynchronous:
            await asyncio.sleep(0)
    for _ in range(3):
        gc.collect()
        await asyncio.sleep(0.01)
    tally.weigh(rounds)
    return tally
