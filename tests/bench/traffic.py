"""Calls of real SDK clients over canned answers: the loads of `make bench`.

Runs in environments without Clew, so it imports nothing of it. The SDKs sit on `httpx2`, older
ones on `httpx`; a transport below the client answers without a socket.
"""

# ruff: noqa: RUF012, FBT003
from __future__ import annotations

import asyncio
import importlib
import json
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, NamedTuple

CHUNKS = 200
CONCURRENT = 50
ROUNDS_OF_TOOLS = (2, 1, 2, 1)
WORDS = (
    "The order was sent on Monday from the warehouse in the harbour and is due on Thursday. " * 5
)[:360]
SYSTEM = WORDS
MODELS = {"openai": "gpt-4o-2024-08-06", "anthropic": "claude-sonnet-4-5"}
QUESTION = "Where is my order?"


def _json(value: object) -> bytes:
    return json.dumps(value).encode()


class OpenAI:
    """Requests and answers of OpenAI's chat completions."""

    tools = [
        {
            "type": "function",
            "function": {
                "name": name,
                "description": f"Use it to {name.replace('_', ' ')} of the customer.",
                "parameters": {"type": "object", "properties": {"id": {"type": "string"}}},
            },
        }
        for name in ("find_order", "cancel_order", "find_refund")
    ]

    def question(self) -> dict[str, Any]:
        return self.asking([{"role": "user", "content": QUESTION}], temperature=0.2)

    def asking(self, messages: list[Any], **more: Any) -> dict[str, Any]:
        messages = [{"role": "system", "content": SYSTEM}, *messages]
        return {"model": MODELS["openai"], "messages": messages, **more}

    def calls(self, first: int, count: int) -> dict[str, Any]:
        """Return the message that asks for tool calls."""
        called = {"name": "find_order", "arguments": '{"id": "order-1"}'}
        return {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": f"call_{number:08d}", "type": "function", "function": called}
                for number in range(first, first + count)
            ],
        }

    def results(self, first: int, count: int) -> list[dict[str, Any]]:
        return [
            {"role": "tool", "tool_call_id": f"call_{number:08d}", "content": WORDS}
            for number in range(first, first + count)
        ]

    def said(self) -> dict[str, Any]:
        return {"role": "assistant", "content": WORDS}

    def answer(self, message: dict[str, Any]) -> bytes:
        reason = "tool_calls" if message.get("tool_calls") else "stop"
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": reason}
        usage = {
            "prompt_tokens": 1210,
            "completion_tokens": 64,
            "total_tokens": 1274,
            "prompt_tokens_details": {"cached_tokens": 1024, "audio_tokens": 0},
            "completion_tokens_details": {"reasoning_tokens": 0, "audio_tokens": 0},
        }
        return _json({**self._head("chat.completion"), "choices": [choice], "usage": usage})

    def _head(self, kind: str) -> dict[str, Any]:
        return {
            "id": "chatcmpl-9nB1xT7fVh3oPq2",
            "object": kind,
            "created": 1760000000,
            "model": MODELS["openai"],
            "service_tier": "default",
            "system_fingerprint": "fp_3a1b2c",
        }

    def stream(self) -> list[bytes]:
        head = self._head("chat.completion.chunk")

        def event(**fields: Any) -> bytes:
            return b"data: " + _json({**head, **fields}) + b"\n\n"

        def delta(content: str | None, reason: str | None = None) -> bytes:
            said = {} if content is None else {"content": content}
            choice = {"index": 0, "delta": said, "logprobs": None, "finish_reason": reason}
            return event(choices=[choice])

        words = [delta(f" word{number}") for number in range(CHUNKS - 2)]
        usage = {"prompt_tokens": 1210, "completion_tokens": CHUNKS, "total_tokens": 1410}
        last = event(choices=[], usage=usage) + b"data: [DONE]\n\n"
        return [*words, delta(None, "stop"), last]

    def client(self, kind: str, http: Any) -> Any:
        module = importlib.import_module("openai")
        made = module.OpenAI if kind == "sync" else module.AsyncOpenAI
        return made(api_key="sk-none", http_client=http, max_retries=0)

    def create(self, client: Any) -> Callable[..., Any]:
        return client.chat.completions.create

    streaming = {"stream": True, "stream_options": {"include_usage": True}}


class Anthropic:
    """Requests and answers of Anthropic's messages."""

    tools = [
        {
            "name": name,
            "description": f"Use it to {name.replace('_', ' ')} of the customer.",
            "input_schema": {"type": "object", "properties": {"id": {"type": "string"}}},
        }
        for name in ("find_order", "cancel_order", "find_refund")
    ]
    streaming = {"stream": True}

    def question(self) -> dict[str, Any]:
        return self.asking([{"role": "user", "content": QUESTION}])

    def asking(self, messages: list[Any], **more: Any) -> dict[str, Any]:
        head = {"model": MODELS["anthropic"], "max_tokens": 1024, "system": SYSTEM}
        return {**head, "messages": messages, **more}

    def calls(self, first: int, count: int) -> dict[str, Any]:
        return {
            "role": "assistant",
            "content": [
                {
                    "type": "tool_use",
                    "id": f"toolu_{number:08d}",
                    "name": "find_order",
                    "input": {"id": "order-1"},
                }
                for number in range(first, first + count)
            ],
        }

    def results(self, first: int, count: int) -> list[dict[str, Any]]:
        return [
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": f"toolu_{number:08d}", "content": WORDS}
                    for number in range(first, first + count)
                ],
            }
        ]

    def said(self) -> dict[str, Any]:
        return {"role": "assistant", "content": [{"type": "text", "text": WORDS}]}

    def answer(self, message: dict[str, Any]) -> bytes:
        asks = any(block["type"] == "tool_use" for block in message["content"])
        return _json(
            {
                **self._head(),
                **message,
                "stop_reason": "tool_use" if asks else "end_turn",
                "stop_sequence": None,
                "usage": {**self._usage(), "output_tokens": 64},
            }
        )

    def _head(self) -> dict[str, Any]:
        return {
            "id": "msg_01XFDUDYJgAACzvnptvVoYEL",
            "type": "message",
            "model": MODELS["anthropic"],
        }

    def _usage(self) -> dict[str, Any]:
        return {
            "input_tokens": 186,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 1024,
            "output_tokens": 1,
            "service_tier": "standard",
        }

    def stream(self) -> list[bytes]:
        def event(kind: str, **fields: Any) -> bytes:
            data = _json({"type": kind, **fields})
            return b"event: " + kind.encode() + b"\ndata: " + data + b"\n\n"

        message = {
            **self._head(),
            "role": "assistant",
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": self._usage(),
        }
        words = [
            event(
                "content_block_delta",
                index=0,
                delta={"type": "text_delta", "text": f" word{number}"},
            )
            for number in range(CHUNKS - 5)
        ]
        return [
            event("message_start", message=message),
            event("content_block_start", index=0, content_block={"type": "text", "text": ""}),
            *words,
            event("content_block_stop", index=0),
            event(
                "message_delta",
                delta={"stop_reason": "end_turn", "stop_sequence": None},
                usage={"output_tokens": CHUNKS},
            ),
            event("message_stop"),
        ]

    def client(self, kind: str, http: Any) -> Any:
        module = importlib.import_module("anthropic")
        made = module.Anthropic if kind == "sync" else module.AsyncAnthropic
        return made(api_key="sk-none", http_client=http, max_retries=0)

    def create(self, client: Any) -> Callable[..., Any]:
        return client.messages.create


def history(format_: OpenAI | Anthropic, length: int) -> list[Any]:
    """Return a conversation of `length` messages with tool calls and their results in it."""
    messages: list[Any] = []
    while len(messages) < length:
        turn = len(messages)
        messages += [
            {"role": "user", "content": WORDS},
            format_.calls(turn, 1),
            *format_.results(turn, 1),
            format_.said(),
        ]
    return [*messages[: length - 1], {"role": "user", "content": QUESTION}]


class Load(NamedTuple):
    """One kind of call, and how many of it one use is."""

    name: str
    use: Callable[[int], None]
    times: int
    """How often it is done in a batch."""
    in_run: bool = True
    """Whether a run is open around all of them; else each use opens its own."""


class Traffic:
    """A client of one SDK over canned answers.

    Args:
        library: `openai` or `anthropic`.
        subject: what is measured (`subjects.Subject`).
    """

    def __init__(self, library: str, subject: Any) -> None:
        self._format = {"openai": OpenAI, "anthropic": Anthropic}[library]()
        self._http = self._http_library(library)
        self.subject = subject
        """May be another later: what opens runs and tool calls."""
        self._body = self._format.answer(self._format.said())
        self._chunks: list[bytes] | None = None
        self._stream = self._format.stream()
        self._sync = self._client("sync")
        self._async = self._client("async")
        self._loop = asyncio.new_event_loop()
        tools = self._format.tools
        self._small = self._format.question()
        messages = history(self._format, 40)
        self._long = self._format.asking(messages, tools=tools)
        self._streamed = {**self._format.question(), **self._format.streaming}
        self._steps = self._agent_steps()
        self.loads = [
            Load("small chat", self._small_chat, 40),
            Load("40 messages", self._forty, 15),
            Load("stream", self._streams, 5),
            Load("50 at once", self._at_once, 2, False),
            Load("agent run", self._agent, 6, False),
        ]

    def _http_library(self, library: str) -> Any:
        base = importlib.import_module(f"{library}._base_client")
        for name in ("httpx2", "httpx"):
            if hasattr(base, name):
                return importlib.import_module(name)
        raise RuntimeError(f"{library} sits on a library that is not known here")

    def _client(self, kind: str) -> Any:
        http, me = self._http, self
        stream = {"content-type": "text/event-stream"}
        plain = {"content-type": "application/json"}

        class Chunks(http.SyncByteStream, http.AsyncByteStream):
            def __iter__(self) -> Iterator[bytes]:
                return iter(me._stream)

            async def __aiter__(self) -> AsyncIterator[bytes]:
                for chunk in me._stream:
                    yield chunk

        def respond() -> Any:
            if me._chunks is not None:
                return http.Response(200, headers=stream, stream=Chunks())
            return http.Response(200, headers=plain, content=me._body)

        class Canned(http.BaseTransport):
            def handle_request(self, request: Any) -> Any:
                return respond()

        class CannedAsync(http.AsyncBaseTransport):
            async def handle_async_request(self, request: Any) -> Any:
                await asyncio.sleep(0)
                return respond()

        if kind == "sync":
            return self._format.client(kind, http.Client(transport=Canned()))
        return self._format.client(kind, http.AsyncClient(transport=CannedAsync()))

    def _agent_steps(self) -> list[tuple[dict[str, Any], bytes, list[str]]]:
        form = self._format
        messages: list[Any] = [{"role": "user", "content": WORDS}]
        steps: list[tuple[dict[str, Any], bytes, list[str]]] = []
        first = 0
        for count in ROUNDS_OF_TOOLS:
            said = form.calls(first, count) if count else form.said()
            prefix = "call" if isinstance(form, OpenAI) else "toolu"
            ids = [f"{prefix}_{number:08d}" for number in range(first, first + count)]
            steps.append((form.asking(list(messages), tools=form.tools), form.answer(said), ids))
            messages += [said, *form.results(first, count)] if count else [said]
            first += count
        return steps

    def _small_chat(self, times: int) -> None:
        for _ in range(times):
            self._format.create(self._sync)(**self._small)

    def _forty(self, times: int) -> None:
        for _ in range(times):
            self._format.create(self._sync)(**self._long)

    def _streams(self, times: int) -> None:
        self._chunks = self._stream
        for _ in range(times):
            for _ in self._format.create(self._sync)(**self._streamed):
                pass
        self._chunks = None

    def _at_once(self, times: int) -> None:
        async def together() -> None:
            create = self._format.create(self._async)
            await asyncio.gather(*(create(**self._small) for _ in range(CONCURRENT)))

        for _ in range(times):
            with self.subject.run():
                self._loop.run_until_complete(together())

    def _agent(self, times: int) -> None:
        usual = self._body
        for _ in range(times):
            with self.subject.run():
                for asked, body, ids in self._steps:
                    self._body = body
                    self._format.create(self._sync)(**asked)
                    for call_id in ids:
                        with self.subject.tool(call_id):
                            pass
        self._body = usual
