"""What is measured: the same calls with and without Clew, and the floor they are compared with.

Requests are built once, answers are canned below the client, nothing is exported. The floor is
one span of the plain OpenTelemetry SDK with 25 attributes, as an instrumentation writes it:
started, filled attribute by attribute, ended, handed to a batch processor.
"""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import httpx2
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider

import clew

sys.path.insert(0, str(Path(__file__).resolve().parent))
import floor
import shapes
from floor import ATTRIBUTES, Discard
from shapes import CHUNKS, CONCURRENT, QUESTION, WORDS

URL = "https://api.openai.com/v1/chat/completions"
OPENAI = shapes.OpenAI()
FUNCTIONS = OPENAI.tools


def request(messages: list[Any], **fields: object) -> httpx2.Request:
    return httpx2.Request(
        "POST",
        URL,
        headers={"authorization": "Bearer sk-none", "content-type": "application/json"},
        content=json.dumps(OPENAI.bare_asking(messages, **fields)).encode(),
    )


def history(length: int) -> list[Any]:
    """Return a conversation of `length` messages, its system text first."""
    return [{"role": "system", "content": WORDS}, *shapes.history(OPENAI, length - 1)]


TEXT_ANSWER = OPENAI.text_answer()
STREAM = OPENAI.stream()


class Chunks(httpx2.SyncByteStream):
    """A streamed body: one event a piece."""

    def __iter__(self) -> Iterator[bytes]:
        return iter(STREAM)


class CannedAsync(httpx2.AsyncBaseTransport):
    """Answers every request of an asynchronous client, after a turn of the event loop."""

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        await asyncio.sleep(0)
        headers = {"content-type": "application/json"}
        return httpx2.Response(200, headers=headers, content=TEXT_ANSWER)


class Canned(httpx2.BaseTransport):
    """Answers every request with what was set last, without a socket."""

    def __init__(self) -> None:
        self.body = TEXT_ANSWER
        self.stream = False

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        if self.stream:
            headers = {"content-type": "text/event-stream"}
            return httpx2.Response(200, headers=headers, stream=Chunks())
        headers = {"content-type": "application/json"}
        return httpx2.Response(200, headers=headers, content=self.body)


class Bench:
    """One client over canned answers, and every call that is measured."""

    def __init__(self) -> None:
        self.transport = Canned()
        self.client = httpx2.Client(transport=self.transport)
        self.aclient = httpx2.AsyncClient(transport=CannedAsync())
        self.loop = asyncio.new_event_loop()
        self.small = request([{"role": "user", "content": QUESTION}], temperature=0.2)
        self.long = request(history(40), tools=FUNCTIONS, temperature=0.2)
        self.streamed = request(
            [{"role": "user", "content": QUESTION}],
            stream=True,
            stream_options={"include_usage": True},
        )
        provider = floor.stock_provider(Discard())
        self.tracer = provider.get_tracer("floor")
        self.flush_floor = provider.force_flush
        self.agent_steps = self._agent_steps()

    def _agent_steps(self) -> list[tuple[httpx2.Request, bytes, list[str]]]:
        """Return for each round its request, its answer and the tool calls it asks for."""
        return [
            (request(messages, tools=FUNCTIONS), body, ids)
            for messages, body, ids in shapes.agent_steps(OPENAI)
        ]

    def floor(self, times: int) -> None:
        for _ in range(times):
            floor.finish(floor.begin(self.tracer))

    def floor_at_once(self, times: int) -> None:
        """The same span filled in one call, to compare with: the least that the SDK can do."""
        for _ in range(times):
            span = floor.begin(self.tracer)
            span.set_attributes(ATTRIBUTES)
            span.end()

    def small_chat(self, times: int) -> None:
        self._plain(self.small, times)

    def forty_messages(self, times: int) -> None:
        self._plain(self.long, times)

    def _plain(self, prepared: httpx2.Request, times: int) -> None:
        self.transport.stream = False
        self.transport.body = TEXT_ANSWER
        for _ in range(times):
            self.client.send(prepared)

    def stream(self, times: int) -> None:
        self.transport.stream = True
        for _ in range(times):
            response = self.client.send(self.streamed, stream=True)
            for _ in response.iter_bytes():
                pass
            response.close()

    def at_once(self, times: int) -> None:
        """Send requests concurrently, each in a task of its own."""

        async def together() -> None:
            send, asked = self.aclient.send, self.small
            await asyncio.gather(*(send(asked) for _ in range(CONCURRENT)))

        for _ in range(times):
            self.loop.run_until_complete(together())

    def agent(self, times: int, *, traced: bool) -> None:
        self.transport.stream = False
        for _ in range(times):
            if traced:
                with clew.run("support-bot"):
                    self._agent_rounds(traced=True)
            else:
                self._agent_rounds(traced=False)

    def _agent_rounds(self, *, traced: bool) -> None:
        for prepared, body, ids in self.agent_steps:
            self.transport.body = body
            self.client.send(prepared)
            if traced:
                for call_id in ids:
                    with clew.tool("find_order", call_id=call_id):
                        pass


class Workload(NamedTuple):
    """A named piece of work with and without Clew; `parts` is what one time of it is divided by."""

    name: str
    bare: Callable[[int], None]
    traced: Callable[[int], None]
    parts: int = 1


def workloads(bench: Bench) -> list[Workload]:
    """Return what is measured, in the order of the table."""

    def in_run(work: Callable[[int], None]) -> Callable[[int], None]:
        def traced(times: int) -> None:
            with clew.run("support-bot"):
                work(times)

        return traced

    return [
        Workload("small chat", bench.small_chat, in_run(bench.small_chat)),
        Workload("40 messages", bench.forty_messages, in_run(bench.forty_messages)),
        Workload("stream, per chunk", bench.stream, in_run(bench.stream), CHUNKS),
        Workload("50 at once", bench.at_once, in_run(bench.at_once), CONCURRENT),
        Workload(
            "agent run",
            lambda times: bench.agent(times, traced=False),
            lambda times: bench.agent(times, traced=True),
        ),
    ]


def configure() -> None:
    """Set Clew up with a discarding exporter, and wait until prices are there."""
    # Without a grace the seal of a run is in the figures of its own workload.
    settings = clew.Settings(service_name="bench", seal_grace_s=0.0)
    clew.configure(settings=settings, span_exporters=[Discard()])
    for thread in threading.enumerate():
        if thread.name == "clew-prices":
            thread.join(120)


def flush() -> None:
    """Let the export thread finish what it has."""
    provider = trace.get_tracer_provider()
    if isinstance(provider, TracerProvider):
        provider.force_flush(10_000)
