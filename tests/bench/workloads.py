"""What is measured: the same calls with and without Clew, and the floor they are compared with.

Requests are built once, answers are canned below the client, nothing is exported. The floor is
one span of the plain OpenTelemetry SDK with 25 attributes, as an instrumentation writes it:
started, filled attribute by attribute, ended, handed to a batch processor.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import httpx2
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.trace import SpanKind

import clew

URL = "https://api.openai.com/v1/chat/completions"
MODEL = "gpt-4o-2024-08-06"
CHUNKS = 200
CONCURRENT = 50
ROUNDS = 5
TOOLS = 6


class Discard(SpanExporter):
    """Takes spans and does nothing with them."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        return SpanExportResult.SUCCESS


# --- traffic ------------------------------------------------------------------------------------

WORDS = (
    "The order was sent on Monday from the warehouse in the harbour and is due on Thursday. " * 5
)[:360]
FUNCTIONS = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": f"Use it to {name.replace('_', ' ')} of the customer who is asking.",
            "parameters": {
                "type": "object",
                "properties": {"id": {"type": "string", "description": "The id of the order."}},
                "required": ["id"],
            },
        },
    }
    for name in ("find_order", "cancel_order", "find_refund")
]


def request(messages: list[object], **fields: object) -> httpx2.Request:
    return httpx2.Request(
        "POST",
        URL,
        headers={"authorization": "Bearer sk-none", "content-type": "application/json"},
        content=json.dumps({"model": MODEL, "messages": messages, **fields}).encode(),
    )


def history(length: int) -> list[object]:
    """Return a conversation of `length` messages with tool calls and their results in it."""
    messages: list[object] = [{"role": "system", "content": WORDS}]
    while len(messages) < length:
        turn = len(messages)
        call = {
            "id": f"call_{turn:08d}",
            "type": "function",
            "function": {"name": "find_order", "arguments": json.dumps({"id": f"order-{turn}"})},
        }
        messages += [
            {"role": "user", "content": WORDS},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": call["id"], "content": WORDS},
            {"role": "assistant", "content": WORDS},
        ]
    return messages[:length]


def answer(message: dict[str, object], finish_reason: str) -> bytes:
    return json.dumps(
        {
            "id": "chatcmpl-9nB1xT7fVh3oPq2",
            "object": "chat.completion",
            "created": 1760000000,
            "model": MODEL,
            "service_tier": "default",
            "system_fingerprint": "fp_3a1b2c",
            "choices": [
                {"index": 0, "message": message, "logprobs": None, "finish_reason": finish_reason}
            ],
            "usage": {
                "prompt_tokens": 1210,
                "completion_tokens": 64,
                "total_tokens": 1274,
                "prompt_tokens_details": {"cached_tokens": 1024, "audio_tokens": 0},
                "completion_tokens_details": {"reasoning_tokens": 0, "audio_tokens": 0},
            },
        }
    ).encode()


def event(delta: dict[str, object], **fields: object) -> bytes:
    chunk = {
        "id": "chatcmpl-9nB1xT7fVh3oPq2",
        "object": "chat.completion.chunk",
        "created": 1760000000,
        "model": MODEL,
        "service_tier": "default",
        "system_fingerprint": "fp_3a1b2c",
        "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": None}],
        **fields,
    }
    return b"data: " + json.dumps(chunk).encode() + b"\n\n"


def tool_calls(first: int, count: int) -> dict[str, object]:
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {
                "id": f"call_{number:08d}",
                "type": "function",
                "function": {"name": "find_order", "arguments": '{"id": "order-1"}'},
            }
            for number in range(first, first + count)
        ],
    }


TEXT_ANSWER = answer({"role": "assistant", "content": WORDS, "refusal": None}, "stop")
STREAM = [
    event({"role": "assistant", "content": "", "refusal": None}),
    *(event({"content": f" word{number}"}) for number in range(CHUNKS - 3)),
    event({}, choices=[{"index": 0, "delta": {}, "logprobs": None, "finish_reason": "stop"}]),
    event(
        {},
        choices=[],
        usage={
            "prompt_tokens": 1210,
            "completion_tokens": CHUNKS,
            "total_tokens": 1210 + CHUNKS,
            "prompt_tokens_details": {"cached_tokens": 1024},
        },
    )
    + b"data: [DONE]\n\n",
]


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


# --- workloads ----------------------------------------------------------------------------------


class Bench:
    """One client over canned answers, and every call that is measured."""

    def __init__(self) -> None:
        self.transport = Canned()
        self.client = httpx2.Client(transport=self.transport)
        self.aclient = httpx2.AsyncClient(transport=CannedAsync())
        self.loop = asyncio.new_event_loop()
        self.small = request([{"role": "user", "content": "Where is my order?"}], temperature=0.2)
        self.long = request(history(40), tools=FUNCTIONS, temperature=0.2)
        self.streamed = request(
            [{"role": "user", "content": "Where is my order?"}],
            stream=True,
            stream_options={"include_usage": True},
        )
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(BatchSpanProcessor(Discard(), max_queue_size=10_000))
        self.tracer = provider.get_tracer("floor")
        self.flush_floor = provider.force_flush
        self.agent_steps = self._agent_steps()

    def _agent_steps(self) -> list[tuple[httpx2.Request, bytes, list[str]]]:
        """Return for each round its request, its answer and the tool calls it asks for."""
        steps = []
        messages: list[object] = [{"role": "user", "content": WORDS}]
        counts = [2, 1, 2, 1, 0]
        assert len(counts) == ROUNDS
        assert sum(counts) == TOOLS
        first = 0
        for count in counts:
            message = tool_calls(first, count) if count else {"role": "assistant", "content": WORDS}
            ids = [f"call_{number:08d}" for number in range(first, first + count)]
            first += count
            steps.append(
                (
                    request(list(messages), tools=FUNCTIONS),
                    answer(message, "tool_calls" if count else "stop"),
                    ids,
                )
            )
            messages.append(message)
            messages += [{"role": "tool", "tool_call_id": one, "content": WORDS} for one in ids]
        return steps

    def floor(self, times: int) -> None:
        for _ in range(times):
            span = self.tracer.start_span("chat gpt-4o", kind=SpanKind.CLIENT)
            for key, value in ATTRIBUTES.items():
                span.set_attribute(key, value)
            span.end()

    def floor_at_once(self, times: int) -> None:
        """The same span filled in one call, to compare with: the least that the SDK can do."""
        for _ in range(times):
            span = self.tracer.start_span("chat gpt-4o", kind=SpanKind.CLIENT)
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


ATTRIBUTES = {
    "gen_ai.operation.name": "chat",
    "gen_ai.provider.name": "openai",
    "gen_ai.request.model": MODEL,
    "gen_ai.response.model": MODEL,
    "gen_ai.response.id": "chatcmpl-9nB1xT7fVh3oPq2",
    "gen_ai.response.finish_reasons": ("stop",),
    "gen_ai.request.temperature": 0.2,
    "gen_ai.usage.input_tokens": 1210,
    "gen_ai.usage.output_tokens": 64,
    "gen_ai.usage.cache_read.input_tokens": 1024,
    "gen_ai.conversation.id": "5f2b7b0e-3a55-4d0c-9a59-0d7e0f1a2b3c",
    "server.address": "api.openai.com",
    "server.port": 443,
    "http.request.method": "POST",
    "http.response.status_code": 200,
    "clew.run.id": "5f2b7b0e-3a55-4d0c-9a59-0d7e0f1a2b3c",
    "clew.segment.id": "0f1e2d3c4b5a6978",
    "clew.segment": 1,
    "clew.seq": 3,
    "clew.round": 2,
    "clew.request.messages": 12,
    "clew.request.bytes": 1500,
    "clew.response.bytes": 900,
    "clew.cost.usd": 0.0021,
    "clew.cost.status": "priced",
}


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
