"""Requests, answers and streams in the shapes of two providers: what every benchmark sends.

Pure data: no client library, no OpenTelemetry, nothing of Clew, so that it can be used in every
peer's environment.
"""

# ruff: noqa: RUF012
from __future__ import annotations

import json
from typing import Any

CHUNKS = 200
CONCURRENT = 50
ROUNDS_OF_TOOLS = (2, 1, 2, 1, 0)
"""How many tool calls each round of the agent run asks for."""
ROUNDS = len(ROUNDS_OF_TOOLS)
TOOLS = sum(ROUNDS_OF_TOOLS)
WORDS = (
    "The order was sent on Monday from the warehouse in the harbour and is due on Thursday. " * 5
)[:360]
SYSTEM = WORDS
QUESTION = "Where is my order?"
NAMES = ("find_order", "cancel_order", "find_refund")
ORDER_ID = {
    "type": "object",
    "properties": {"id": {"type": "string", "description": "The id of the order."}},
    "required": ["id"],
}


def _json(value: object) -> bytes:
    return json.dumps(value).encode()


def _purpose(name: str) -> str:
    return f"Use it to {name.replace('_', ' ')} of the customer who is asking."


class OpenAI:
    """Requests and answers of OpenAI's chat completions."""

    model = "gpt-4o-2024-08-06"
    tools = [
        {
            "type": "function",
            "function": {"name": name, "description": _purpose(name), "parameters": ORDER_ID},
        }
        for name in NAMES
    ]
    streaming = {"stream": True, "stream_options": {"include_usage": True}}

    def asking(self, messages: list[Any], **more: Any) -> dict[str, Any]:
        """Return a request with a system text."""
        return self.bare_asking([{"role": "system", "content": SYSTEM}, *messages], **more)

    def bare_asking(self, messages: list[Any], **more: Any) -> dict[str, Any]:
        return {"model": self.model, "messages": messages, **more}

    def call_id(self, number: int) -> str:
        return f"call_{number:08d}"

    def calls(self, first: int, count: int, order: str = "order-1") -> dict[str, Any]:
        """Return the message that asks for tool calls."""
        called = {"name": "find_order", "arguments": json.dumps({"id": order})}
        return {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": self.call_id(number), "type": "function", "function": called}
                for number in range(first, first + count)
            ],
        }

    def results(self, first: int, count: int) -> list[dict[str, Any]]:
        return [
            {"role": "tool", "tool_call_id": self.call_id(number), "content": WORDS}
            for number in range(first, first + count)
        ]

    def said(self) -> dict[str, Any]:
        return {"role": "assistant", "content": WORDS}

    def answer(self, message: dict[str, Any]) -> bytes:
        """Return the body of a response with this message."""
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

    def text_answer(self) -> bytes:
        return self.answer({**self.said(), "refusal": None})

    def _head(self, kind: str) -> dict[str, Any]:
        return {
            "id": "chatcmpl-9nB1xT7fVh3oPq2",
            "object": kind,
            "created": 1760000000,
            "model": self.model,
            "service_tier": "default",
            "system_fingerprint": "fp_3a1b2c",
        }

    def stream(self) -> list[bytes]:
        """Return the pieces of a streamed body, an event each."""
        head = self._head("chat.completion.chunk")

        def event(**fields: Any) -> bytes:
            return b"data: " + _json({**head, **fields}) + b"\n\n"

        def delta(said: dict[str, Any]) -> bytes:
            choice = {"index": 0, "delta": said, "logprobs": None, "finish_reason": None}
            return event(choices=[choice])

        words = [delta({"content": f" word{number}"}) for number in range(CHUNKS - 3)]
        end = {"index": 0, "delta": {}, "logprobs": None, "finish_reason": "stop"}
        usage = {
            "prompt_tokens": 1210,
            "completion_tokens": CHUNKS,
            "total_tokens": 1210 + CHUNKS,
            "prompt_tokens_details": {"cached_tokens": 1024},
        }
        return [
            delta({"role": "assistant", "content": "", "refusal": None}),
            *words,
            event(choices=[end]),
            event(choices=[], usage=usage) + b"data: [DONE]\n\n",
        ]


class Anthropic:
    """Requests and answers of Anthropic's messages."""

    model = "claude-sonnet-5"
    tools = [
        {"name": name, "description": _purpose(name), "input_schema": ORDER_ID} for name in NAMES
    ]
    streaming = {"stream": True}

    def asking(self, messages: list[Any], **more: Any) -> dict[str, Any]:
        """Return a request with a system text."""
        head = {"model": self.model, "max_tokens": 1024, "system": SYSTEM}
        return {**head, "messages": messages, **more}

    def call_id(self, number: int) -> str:
        return f"toolu_{number:08d}"

    def calls(self, first: int, count: int, order: str = "order-1") -> dict[str, Any]:
        """Return the message that asks for tool calls."""
        called = {"name": "find_order", "input": {"id": order}}
        return {
            "role": "assistant",
            "content": [
                {"type": "tool_use", "id": self.call_id(number), **called}
                for number in range(first, first + count)
            ],
        }

    def results(self, first: int, count: int) -> list[dict[str, Any]]:
        content = [
            {"type": "tool_result", "tool_use_id": self.call_id(number), "content": WORDS}
            for number in range(first, first + count)
        ]
        return [{"role": "user", "content": content}] if content else []

    def said(self) -> dict[str, Any]:
        return {"role": "assistant", "content": [{"type": "text", "text": WORDS}]}

    def answer(self, message: dict[str, Any]) -> bytes:
        """Return the body of a response with this message."""
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

    def text_answer(self) -> bytes:
        return self.answer(self.said())

    def _head(self) -> dict[str, Any]:
        return {"id": "msg_01XFDUDYJgAACzvnptvVoYEL", "type": "message", "model": self.model}

    def _usage(self) -> dict[str, Any]:
        return {
            "input_tokens": 186,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 1024,
            "output_tokens": 1,
            "service_tier": "standard",
        }

    def stream(self) -> list[bytes]:
        """Return the pieces of a streamed body, an event each."""

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


Shape = OpenAI | Anthropic


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def history(shape: Shape, length: int) -> list[Any]:
    """Return a conversation of `length` messages with tool calls and their results in it."""
    messages: list[Any] = []
    while len(messages) < length:
        turn = len(messages) + 1
        messages += [
            user(WORDS),
            shape.calls(turn, 1, f"order-{turn}"),
            *shape.results(turn, 1),
            shape.said(),
        ]
    return messages[:length]


def agent_steps(shape: Shape) -> list[tuple[list[Any], bytes, list[str]]]:
    """Return for each round its messages, its answer and the ids of the tool calls it asks for."""
    messages: list[Any] = [user(WORDS)]
    steps: list[tuple[list[Any], bytes, list[str]]] = []
    first = 0
    for count in ROUNDS_OF_TOOLS:
        said = shape.calls(first, count) if count else shape.said()
        ids = [shape.call_id(number) for number in range(first, first + count)]
        steps.append((list(messages), shape.answer(said), ids))
        messages += [said, *shape.results(first, count)]
        first += count
    return steps
