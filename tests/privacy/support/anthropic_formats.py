"""Anthropic's format, with a marker word in each place that content can stand."""

from __future__ import annotations

import json

from marks import ARGUMENTS, DATA_URL, SCHEMA, mark, odd
from wire_format import Format, sse

CLAUDE_USAGE = {"input_tokens": 12, "output_tokens": 7}
CLAUDE_BLOCKS = [
    {"type": "thinking", "thinking": mark("reasoning"), "signature": mark("signature")},
    {"type": "text", "text": mark("completion")},
    {"type": "tool_use", "id": "toolu_2", "name": mark("chosen-tool"), "input": ARGUMENTS},
]
CLAUDE = {
    "model": "claude-haiku-4-5",
    "max_tokens": 64,
    "system": [{"type": "text", "text": mark("system")}],
    "messages": [
        {
            "role": "user",
            "content": [
                {"type": "text", "text": mark("prompt")},
                {
                    "type": "image",
                    "source": {"type": "base64", "media_type": "image/png", "data": DATA_URL[22:]},
                },
                {
                    "type": "document",
                    "title": mark("file"),
                    "source": {"type": "text", "data": mark("document")},
                },
            ],
        },
        {
            "role": "assistant",
            "content": [{"type": "tool_use", "id": "toolu_1", "name": "find", "input": ARGUMENTS}],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "toolu_1", "content": mark("result")}
            ],
        },
    ],
    "tools": [{"name": "find", "description": mark("tool"), "input_schema": SCHEMA}],
    "metadata": {"user_id": mark("user")},
    "stop_sequences": [mark("stop")],
}
CLAUDE_ANSWER = {
    "id": odd("response-id"),
    "type": "message",
    "role": "assistant",
    "model": odd("response-model"),
    "content": CLAUDE_BLOCKS,
    "stop_reason": mark("finish"),
    "stop_sequence": mark("stop-sequence"),
    "usage": CLAUDE_USAGE,
}
CLAUDE_EVENTS = sse(
    {"type": "message_start", "message": {**CLAUDE_ANSWER, "content": [], "stop_reason": None}},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    {
        "type": "content_block_delta",
        "index": 0,
        "delta": {"type": "text_delta", "text": mark("completion")},
    },
    {"type": "content_block_stop", "index": 0},
    {"type": "content_block_start", "index": 1, "content_block": CLAUDE_BLOCKS[2]},
    {
        "type": "content_block_delta",
        "index": 1,
        "delta": {"type": "input_json_delta", "partial_json": json.dumps(ARGUMENTS)},
    },
    {"type": "content_block_stop", "index": 1},
    {"type": "message_delta", "delta": {"stop_reason": mark("finish")}, "usage": CLAUDE_USAGE},
    {"type": "message_stop"},
    names=True,
)

ANTHROPIC_FORMATS = (
    Format(
        name="anthropic_messages",
        path="/v1/messages",
        request=CLAUDE,
        answer=CLAUDE_ANSWER,
        events=CLAUDE_EVENTS,
    ),
)
