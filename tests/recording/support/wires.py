"""Requests and answers in the wire formats of the providers, and what is in them.

`SHAPES` has one entry for each place that a provider takes its system text in. Each says how a
request body is made from a text, and how the text is read off a body that came over the wire: by
hand, without anything of Clew.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple

ANSWER = "Order 7 is on its way. Grüße!"
THOUGHT = "The user asks for order 7."
CALL = ("lookup", {"id": 7})
SCHEMA = {"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]}
QUESTION = "Where is order 7?"
IMAGE = "data:image/png;base64," + "iVBORw0KGgo" * 20


class Shape(NamedTuple):
    """One way of sending a system text."""

    name: str
    url: str
    body: Callable[[list[str]], dict[str, Any]]
    """Makes a request whose system text is sent in these pieces."""
    on_the_wire: Callable[[dict[str, Any]], str]
    answer: dict[str, Any]


def _texts(parts: Any) -> str:
    if isinstance(parts, str):
        return parts
    return "".join(part["text"] for part in parts)


OPENAI_TOOLS = [
    {
        "type": "function",
        "function": {"name": "lookup", "description": "Look an order up.", "parameters": SCHEMA},
    }
]
CHAT_ANSWER = {
    "id": "chatcmpl-1",
    "model": "gpt-4o-mini",
    "choices": [
        {
            "index": 0,
            "finish_reason": "tool_calls",
            "message": {
                "role": "assistant",
                "content": ANSWER,
                "reasoning_content": THOUGHT,
                "tool_calls": [
                    {
                        "id": "call_1",
                        "type": "function",
                        "function": {"name": CALL[0], "arguments": json.dumps(CALL[1])},
                    }
                ],
            },
        }
    ],
    "usage": {
        "prompt_tokens": 100,
        "completion_tokens": 20,
        "total_tokens": 120,
        "prompt_tokens_details": {"cached_tokens": 64},
        "completion_tokens_details": {"reasoning_tokens": 8},
    },
}
CLAUDE_ANSWER = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "claude-sonnet-4-5",
    "stop_reason": "tool_use",
    "content": [
        {"type": "thinking", "thinking": THOUGHT, "signature": "c2ln"},
        {"type": "text", "text": ANSWER},
        {"type": "tool_use", "id": "call_1", "name": CALL[0], "input": CALL[1]},
    ],
    "usage": {
        "input_tokens": 36,
        "cache_read_input_tokens": 64,
        "cache_creation_input_tokens": 0,
        "output_tokens": 20,
    },
}
GEMINI_ANSWER = {
    "responseId": "g-1",
    "modelVersion": "gemini-2.5-flash",
    "candidates": [
        {
            "finishReason": "STOP",
            "content": {
                "role": "model",
                "parts": [
                    {"text": THOUGHT, "thought": True},
                    {"text": ANSWER},
                    {"functionCall": {"id": "call_1", "name": CALL[0], "args": CALL[1]}},
                ],
            },
        }
    ],
    "usageMetadata": {
        "promptTokenCount": 100,
        "candidatesTokenCount": 12,
        "thoughtsTokenCount": 8,
        "totalTokenCount": 120,
        "cachedContentTokenCount": 64,
    },
}
RESPONSES_ANSWER = {
    "id": "resp_1",
    "object": "response",
    "status": "completed",
    "model": "gpt-5-mini",
    "output": [
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": THOUGHT}]},
        {
            "type": "message",
            "role": "assistant",
            "content": [{"type": "output_text", "text": ANSWER}],
        },
        {
            "type": "function_call",
            "call_id": "call_1",
            "name": CALL[0],
            "arguments": json.dumps(CALL[1]),
        },
    ],
    "usage": {
        "input_tokens": 100,
        "input_tokens_details": {"cached_tokens": 64},
        "output_tokens": 20,
        "output_tokens_details": {"reasoning_tokens": 8},
        "total_tokens": 120,
    },
}
OLLAMA_ANSWER = {
    "model": "qwen3:8b",
    "done": True,
    "done_reason": "stop",
    "message": {
        "role": "assistant",
        "content": ANSWER,
        "thinking": THOUGHT,
        "tool_calls": [{"id": "call_1", "function": {"name": CALL[0], "arguments": CALL[1]}}],
    },
    "prompt_eval_count": 100,
    "eval_count": 20,
}
COHERE_ANSWER = {
    "id": "c-1",
    "finish_reason": "TOOL_CALL",
    "message": {
        "role": "assistant",
        "content": [{"type": "thinking", "thinking": THOUGHT}, {"type": "text", "text": ANSWER}],
        "tool_calls": [
            {
                "id": "call_1",
                "type": "function",
                "function": {"name": CALL[0], "arguments": json.dumps(CALL[1])},
            }
        ],
    },
    "usage": {"tokens": {"input_tokens": 100, "output_tokens": 20}},
}
CONVERSE_ANSWER = {
    "output": {
        "message": {
            "role": "assistant",
            "content": [
                {"reasoningContent": {"reasoningText": {"text": THOUGHT}}},
                {"text": ANSWER},
                {"toolUse": {"toolUseId": "call_1", "name": CALL[0], "input": CALL[1]}},
            ],
        }
    },
    "stopReason": "tool_use",
    "usage": {
        "inputTokens": 36,
        "outputTokens": 20,
        "totalTokens": 120,
        "cacheReadInputTokens": 64,
    },
}


def _chat(role: str, *, listed: bool) -> Callable[[list[str]], dict[str, Any]]:
    def body(pieces: list[str]) -> dict[str, Any]:
        content: Any = "".join(pieces)
        if listed:
            content = [{"type": "text", "text": piece} for piece in pieces]
        return {
            "model": "gpt-4o-mini",
            "messages": [
                {"role": role, "content": content},
                {"role": "user", "content": QUESTION},
            ],
            "tools": OPENAI_TOOLS,
            "temperature": 0.5,
            "max_tokens": 100,
        }

    return body


def _first(body: dict[str, Any]) -> str:
    return _texts(body["messages"][0]["content"])


def _responses(pieces: list[str], *, leading: bool) -> dict[str, Any]:
    user = {"role": "user", "content": [{"type": "input_text", "text": QUESTION}]}
    tool = {
        "type": "function",
        "name": "lookup",
        "description": "Look an order up.",
        "parameters": SCHEMA,
    }
    body: dict[str, Any] = {"model": "gpt-5-mini", "tools": [tool], "max_output_tokens": 100}
    if leading:
        parts = [{"type": "input_text", "text": piece} for piece in pieces]
        return {**body, "input": [{"role": "developer", "content": parts}, user]}
    return {**body, "instructions": "".join(pieces), "input": [user]}


def _claude(pieces: list[str], *, listed: bool) -> dict[str, Any]:
    system: Any = "".join(pieces)
    if listed:
        system = [
            {"type": "text", "text": piece, "cache_control": {"type": "ephemeral"}}
            for piece in pieces
        ]
    return {
        "model": "claude-sonnet-4-5",
        "max_tokens": 100,
        "temperature": 0.5,
        "system": system,
        "messages": [{"role": "user", "content": QUESTION}],
        "tools": [
            {"name": "lookup", "description": "Look an order up.", "input_schema": SCHEMA},
        ],
    }


def _gemini(pieces: list[str], *, camel: bool) -> dict[str, Any]:
    field = "systemInstruction" if camel else "system_instruction"
    tool = {"name": "lookup", "description": "Look an order up.", "parameters": SCHEMA}
    return {
        field: {"parts": [{"text": piece} for piece in pieces]},
        "contents": [{"role": "user", "parts": [{"text": QUESTION}]}],
        "tools": [{"functionDeclarations": [tool]}],
        "generationConfig": {"temperature": 0.5, "maxOutputTokens": 100},
    }


def _converse(pieces: list[str]) -> dict[str, Any]:
    spec = {
        "name": "lookup",
        "description": "Look an order up.",
        "inputSchema": {"json": SCHEMA},
    }
    return {
        "system": [{"text": piece} for piece in pieces],
        "messages": [{"role": "user", "content": [{"text": QUESTION}]}],
        "toolConfig": {"tools": [{"toolSpec": spec}], "toolChoice": {"auto": {}}},
        "inferenceConfig": {"maxTokens": 100, "temperature": 0.5},
    }


def _invoke(pieces: list[str]) -> dict[str, Any]:
    body = _claude(pieces, listed=False)
    del body["model"]
    return {**body, "anthropic_version": "bedrock-2023-05-31"}


_OPENAI = "https://api.openai.com/v1"
_GEMINI = "https://generativelanguage.googleapis.com/v1beta/models/gemini-2.5-flash"
_BEDROCK = "https://bedrock-runtime.eu-central-1.amazonaws.com/model/anthropic.claude-sonnet-4-5"

SHAPES = (
    Shape(
        "chat, system", f"{_OPENAI}/chat/completions", _chat("system", listed=False), _first,
        CHAT_ANSWER,
    ),
    Shape(
        "chat, developer", f"{_OPENAI}/chat/completions", _chat("developer", listed=False), _first,
        CHAT_ANSWER,
    ),
    Shape(
        "chat, parts", f"{_OPENAI}/chat/completions", _chat("system", listed=True), _first,
        CHAT_ANSWER,
    ),
    Shape(
        "responses, instructions", f"{_OPENAI}/responses",
        lambda pieces: _responses(pieces, leading=False), lambda body: body["instructions"],
        RESPONSES_ANSWER,
    ),
    Shape(
        "responses, leading", f"{_OPENAI}/responses",
        lambda pieces: _responses(pieces, leading=True),
        lambda body: _texts(body["input"][0]["content"]), RESPONSES_ANSWER,
    ),
    Shape(
        "messages, text", "https://api.anthropic.com/v1/messages",
        lambda pieces: _claude(pieces, listed=False), lambda body: _texts(body["system"]),
        CLAUDE_ANSWER,
    ),
    Shape(
        "messages, blocks", "https://api.anthropic.com/v1/messages",
        lambda pieces: _claude(pieces, listed=True), lambda body: _texts(body["system"]),
        CLAUDE_ANSWER,
    ),
    Shape(
        "gemini", f"{_GEMINI}:generateContent", lambda pieces: _gemini(pieces, camel=True),
        lambda body: _texts(body["systemInstruction"]["parts"]), GEMINI_ANSWER,
    ),
    Shape(
        "gemini, snake", f"{_GEMINI}:generateContent", lambda pieces: _gemini(pieces, camel=False),
        lambda body: _texts(body["system_instruction"]["parts"]), GEMINI_ANSWER,
    ),
    Shape(
        "ollama", "http://localhost:11434/api/chat", _chat("system", listed=False), _first,
        OLLAMA_ANSWER,
    ),
    Shape(
        "cohere", "https://api.cohere.com/v2/chat", _chat("system", listed=False), _first,
        COHERE_ANSWER,
    ),
    Shape(
        "converse", f"{_BEDROCK}/converse", _converse, lambda body: _texts(body["system"]),
        CONVERSE_ANSWER,
    ),
    Shape(
        "invoke", f"{_BEDROCK}/invoke", _invoke, lambda body: _texts(body["system"]),
        CLAUDE_ANSWER,
    ),
)  # fmt: skip
