"""Tool calls of one answer, streamed in pieces that are interleaved, and one without arguments."""

from __future__ import annotations

import json
from typing import Any

import pytest
from wire_format import frames, sse

from clew import content

EXPECTED = [
    {"type": "tool_call", "name": "find", "arguments": {"place": "Rome"}, "id": "call_1"},
    {"type": "tool_call", "name": "look", "arguments": {"at": "Oslo"}, "id": "call_2"},
    {"type": "tool_call", "name": "now", "arguments": {}, "id": "call_3"},
]
CALLS = (("call_1", "find"), ("call_2", "look"), ("call_3", "now"))
PIECES = ((0, '{"place": '), (1, '{"at": "Os'), (0, '"Rome"}'), (1, 'lo"}'))
"""Which call a piece belongs to; the third has none."""


def openai_chat() -> list[bytes]:
    def chunk(*calls: dict[str, Any]) -> dict[str, Any]:
        return {"choices": [{"index": 0, "delta": {"tool_calls": list(calls)}}]}

    begun = [
        {"index": at, "id": call_id, "function": {"name": name, "arguments": ""}}
        for at, (call_id, name) in enumerate(CALLS)
    ]
    more = [{"index": at, "function": {"arguments": piece}} for at, piece in PIECES]
    return sse(*(chunk(call) for call in (*begun, *more)))


def openai_responses() -> list[bytes]:
    items = [
        {"type": "function_call", "call_id": call_id, "name": name, "arguments": ""}
        for call_id, name in CALLS
    ]
    added = [
        {"type": "response.output_item.added", "output_index": at, "item": item}
        for at, item in enumerate(items)
    ]
    pieces = [
        {"type": "response.function_call_arguments.delta", "output_index": at, "delta": piece}
        for at, piece in PIECES
    ]
    return sse(*added, *pieces, names=True)


def anthropic_events() -> list[dict[str, Any]]:
    def start(at: int) -> dict[str, Any]:
        block = {"type": "tool_use", "id": CALLS[at][0], "name": CALLS[at][1], "input": {}}
        return {"type": "content_block_start", "index": at + 1, "content_block": block}

    pieces = [
        {
            "type": "content_block_delta",
            "index": at + 1,
            "delta": {"type": "input_json_delta", "partial_json": piece},
        }
        for at, piece in PIECES
    ]
    return [start(0), start(1), *pieces, start(2), {"type": "message_stop"}]


def anthropic_messages() -> list[bytes]:
    return sse(*anthropic_events(), names=True)


def bedrock_invoke() -> list[bytes]:
    from base64 import b64encode

    wrapped = [
        ("chunk", {"bytes": b64encode(json.dumps(event).encode()).decode()})
        for event in anthropic_events()
    ]
    return frames(*wrapped)


def bedrock_converse() -> list[bytes]:
    def start(at: int) -> tuple[str, Any]:
        use = {"toolUse": {"toolUseId": CALLS[at][0], "name": CALLS[at][1]}}
        return "contentBlockStart", {"contentBlockIndex": at + 1, "start": use}

    pieces = [
        ("contentBlockDelta", {"contentBlockIndex": at + 1, "delta": {"toolUse": {"input": piece}}})
        for at, piece in PIECES
    ]
    return frames(start(0), start(1), *pieces, start(2))


def cohere_chat() -> list[bytes]:
    def event(kind: str, at: int, calls: dict[str, Any]) -> dict[str, Any]:
        return {"type": kind, "index": at, "delta": {"message": {"tool_calls": calls}}}

    begun = [
        event("tool-call-start", at, {"id": call_id, "function": {"name": name, "arguments": ""}})
        for at, (call_id, name) in enumerate(CALLS)
    ]
    more = [event("tool-call-delta", at, {"function": {"arguments": it}}) for at, it in PIECES]
    return sse(*begun, *more)


def gemini_content() -> list[bytes]:
    calls = [
        {"id": call["id"], "name": call["name"], "args": call["arguments"]} for call in EXPECTED
    ]
    del calls[2]["args"]
    return sse(
        *(
            {"candidates": [{"content": {"role": "model", "parts": [{"functionCall": call}]}}]}
            for call in calls
        )
    )


STREAMS = {
    "openai_chat": openai_chat,
    "openai_responses": openai_responses,
    "anthropic_messages": anthropic_messages,
    "bedrock_invoke": bedrock_invoke,
    "bedrock_converse": bedrock_converse,
    "cohere_chat": cohere_chat,
    "gemini_content": gemini_content,
}
AMAZON = "application/vnd.amazon.eventstream"


@pytest.mark.parametrize("dialect", STREAMS)
def test_interleaved_calls_stay_apart(dialect: str):
    """Each has its own id, name and arguments, in order; no arguments are an empty object."""
    body = b"".join(STREAMS[dialect]())
    kind = AMAZON if dialect.startswith("bedrock") else "text/event-stream"
    messages = content.of_stream(dialect, kind, body)
    assert messages is not None
    parts = [part for message in messages for part in message["parts"]]
    assert [part for part in parts if part["type"] == "tool_call"] == EXPECTED


def test_empty_arguments_of_a_whole_answer():
    """The same where the answer comes in one piece."""
    call = {"id": "call_3", "type": "function", "function": {"name": "now", "arguments": ""}}
    body = {"choices": [{"message": {"role": "assistant", "tool_calls": [call]}}]}
    (message,) = content.of_response("openai_chat", json.dumps(body).encode()) or ()
    assert message["parts"] == [EXPECTED[2]]


def test_arguments_that_broke_off_are_kept_as_they_are():
    """Half a JSON text is a text."""
    body = b"".join(anthropic_messages()[:3])
    (message,) = content.of_stream("anthropic_messages", "text/event-stream", body) or ()
    assert [part["arguments"] for part in message["parts"]] == ['{"place": ', {}]
