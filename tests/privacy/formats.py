"""Every wire format, written with a marker word in each place that content can stand.

`Marks` hands out the words: single words, so that they look like identifiers wherever a rule only
looks at the charset. What they are found by is `PREFIX`.
"""

from __future__ import annotations

import base64
import binascii
import itertools
import json
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

PREFIX = "zqleakmarkword"


def mark(place: str) -> str:
    """Return the marker word of a place."""
    return f"{PREFIX}-{place}"


def odd(place: str) -> str:
    """Return a marker that no identifier can be: for places where identifiers are expected."""
    return f"{PREFIX} {place} with spaces"


DATA_URL = "data:image/png;base64," + base64.b64encode(mark("pixels").encode() * 3).decode()
SCHEMA = {
    "type": "object",
    "title": mark("schema-title"),
    "properties": {
        "place": {
            "type": "string",
            "description": mark("schema-description"),
            "enum": [mark("schema-enum")],
        }
    },
}
ARGUMENTS = {"place": mark("arguments"), mark("argument-key"): [1, mark("argument-item")]}


def sse(*events: Any, names: bool = False) -> list[bytes]:
    """Return server-sent events; with `names`, each is named by its `type`."""
    lines: list[bytes] = []
    for event in events:
        text = event if isinstance(event, str) else json.dumps(event)
        name = f"event: {event['type']}\n" if names and isinstance(event, dict) else ""
        lines.append(f"{name}data: {text}\n\n".encode())
    return lines


def ndjson(*events: Any) -> list[bytes]:
    """Return one JSON document for each line."""
    return [json.dumps(event).encode() + b"\n" for event in events]


def frames(*events: tuple[str, Any]) -> list[bytes]:
    """Return messages of Amazon's event stream format, each with its event type and payload."""
    made: list[bytes] = []
    for name, payload in events:
        headers = b"".join(
            bytes([len(key)]) + key + b"\x07" + struct.pack(">H", len(value)) + value
            for key, value in (
                (b":message-type", b"event"),
                (b":event-type", name.encode()),
                (b":content-type", b"application/json"),
            )
        )
        body = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
        head = struct.pack(">II", 16 + len(headers) + len(body), len(headers))
        head += struct.pack(">I", binascii.crc32(head))
        message = head + headers + body
        made.append(message + struct.pack(">I", binascii.crc32(message)))
    return made


def _error(_: None = None) -> dict[str, Any]:
    return {
        "type": "error",
        "error": {"message": mark("error-body"), "type": odd("error-type"), "code": odd("code")},
        "message": mark("error-message"),
    }


@dataclass(frozen=True, kw_only=True)
class Format:
    """One wire format: a request, its plain answer, its streamed answer."""

    name: str
    path: str
    request: Mapping[str, Any]
    answer: Any
    stream_path: str | None = None
    events: list[bytes] = field(default_factory=list)
    stream_type: str = "text/event-stream"
    error: Callable[[], Any] = _error
    provider: str | None = None
    """Whose host it has to be, where the path alone does not tell."""

    @property
    def hosts(self) -> dict[str, str]:
        """The operator's names of hosts."""
        return {} if self.provider is None else {"127.0.0.1": self.provider}


TOOL = {
    "type": "function",
    "function": {"name": "find", "description": mark("tool"), "parameters": SCHEMA},
}
CALLED = {
    "id": "call_1",
    "type": "function",
    "function": {"name": "find", "arguments": json.dumps(ARGUMENTS)},
}
CHOSEN = {
    "index": 0,
    "id": "call_2",
    "type": "function",
    "function": {"name": mark("chosen-tool"), "arguments": json.dumps(ARGUMENTS)},
}
OPENAI_CHAT = {
    "model": "gpt-5-mini",
    "messages": [
        {"role": "system", "content": mark("system")},
        {
            "role": "user",
            "name": mark("user-name"),
            "content": [
                {"type": "text", "text": mark("prompt")},
                {"type": "image_url", "image_url": {"url": DATA_URL}},
                {"type": "image_url", "image_url": {"url": f"https://h/{mark('image-url')}"}},
                {"type": "file", "file": {"filename": mark("file"), "file_data": DATA_URL}},
            ],
        },
        {"role": "assistant", "content": None, "tool_calls": [CALLED]},
        {"role": "tool", "tool_call_id": "call_1", "content": mark("result")},
    ],
    "tools": [TOOL],
    "user": mark("user"),
    "metadata": {mark("metadata-key"): mark("metadata")},
    "stop": [mark("stop")],
    "prompt_cache_key": mark("cache-key"),
    "safety_identifier": mark("safety"),
    "response_format": {
        "type": "json_schema",
        "json_schema": {"name": mark("schema-name"), "schema": SCHEMA},
    },
    "reasoning_effort": odd("effort"),
    "service_tier": odd("tier"),
}
USAGE = {"prompt_tokens": 12, "completion_tokens": 7, "total_tokens": 19}
OPENAI_ANSWER = {
    "id": odd("response-id"),
    "model": odd("response-model"),
    "provider": odd("provider"),
    "system_fingerprint": odd("fingerprint"),
    "choices": [
        {
            "index": 0,
            "finish_reason": mark("finish"),
            "message": {
                "role": "assistant",
                "content": mark("completion"),
                "reasoning_content": mark("reasoning"),
                "refusal": mark("refusal"),
                "tool_calls": [CHOSEN],
            },
            "logprobs": {"content": [{"token": mark("token"), "logprob": -1}]},
        }
    ],
    "usage": USAGE,
}


def _delta(**delta: Any) -> dict[str, Any]:
    reason = delta.pop("reason", None)
    return {
        "id": "chatcmpl-1",
        "model": odd("response-model"),
        "choices": [{"index": 0, "delta": delta, "finish_reason": reason}],
    }


OPENAI_EVENTS = sse(
    _delta(role="assistant", content=mark("completion")),
    _delta(reasoning_content=mark("reasoning")),
    _delta(tool_calls=[CHOSEN]),
    _delta(content=mark("more"), reason=mark("finish")),
    {"id": "chatcmpl-1", "choices": [], "usage": USAGE},
    "[DONE]",
)
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
GEMINI_PARTS = [
    {"text": mark("completion"), "thought": True, "thoughtSignature": mark("signature")},
    {"text": mark("completion")},
    {"functionCall": {"name": mark("chosen-tool"), "args": ARGUMENTS}},
]
GEMINI_ANSWER = {
    "candidates": [
        {"content": {"role": "model", "parts": GEMINI_PARTS}, "finishReason": mark("finish")}
    ],
    "usageMetadata": {"promptTokenCount": 12, "candidatesTokenCount": 7, "totalTokenCount": 19},
    "modelVersion": odd("response-model"),
    "responseId": odd("response-id"),
}
GEMINI = {
    "systemInstruction": {"parts": [{"text": mark("system")}]},
    "contents": [
        {
            "role": "user",
            "parts": [
                {"text": mark("prompt")},
                {"inlineData": {"mimeType": "image/png", "data": DATA_URL[22:]}},
                {"fileData": {"mimeType": "image/png", "fileUri": f"gs://{mark('file')}"}},
            ],
        },
        {"role": "model", "parts": [{"functionCall": {"name": "find", "args": ARGUMENTS}}]},
        {
            "role": "user",
            "parts": [{"functionResponse": {"name": "find", "response": {"r": mark("result")}}}],
        },
    ],
    "tools": [
        {
            "functionDeclarations": [
                {"name": "find", "description": mark("tool"), "parameters": SCHEMA}
            ]
        }
    ],
    "generationConfig": {"stopSequences": [mark("stop")], "responseSchema": SCHEMA},
}
RESPONSES_ITEMS = [
    {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": mark("r")}]},
    {
        "type": "message",
        "id": "msg_1",
        "role": "assistant",
        "content": [{"type": "output_text", "text": mark("completion"), "annotations": []}],
    },
    {
        "type": "function_call",
        "id": "fc_1",
        "call_id": "call_2",
        "name": mark("chosen-tool"),
        "arguments": json.dumps(ARGUMENTS),
    },
]
RESPONSES_ANSWER = {
    "id": odd("response-id"),
    "object": "response",
    "status": "completed",
    "model": odd("response-model"),
    "instructions": mark("system"),
    "metadata": {"k": mark("metadata")},
    "output": RESPONSES_ITEMS,
    "usage": {"input_tokens": 12, "output_tokens": 7, "total_tokens": 19},
}
RESPONSES = {
    "model": "gpt-5-mini",
    "instructions": mark("system"),
    "input": [
        {"role": "user", "content": [{"type": "input_text", "text": mark("prompt")}]},
        {"role": "user", "content": [{"type": "input_image", "image_url": DATA_URL}]},
        {
            "type": "function_call",
            "call_id": "call_1",
            "name": "find",
            "arguments": json.dumps(ARGUMENTS),
        },
        {"type": "function_call_output", "call_id": "call_1", "output": mark("result")},
    ],
    "tools": [
        {"type": "function", "name": "find", "description": mark("tool"), "parameters": SCHEMA}
    ],
    "user": mark("user"),
    "prompt": {"id": mark("prompt-id"), "variables": {"v": mark("variable")}},
}
OLLAMA_MESSAGE = {
    "role": "assistant",
    "content": mark("completion"),
    "thinking": mark("reasoning"),
    "tool_calls": [{"function": {"name": mark("chosen-tool"), "arguments": ARGUMENTS}}],
}
OLLAMA_ANSWER = {
    "model": odd("response-model"),
    "message": OLLAMA_MESSAGE,
    "done": True,
    "done_reason": mark("finish"),
    "prompt_eval_count": 12,
    "eval_count": 7,
}
COHERE_MESSAGE = {
    "role": "assistant",
    "content": [{"type": "text", "text": mark("completion")}],
    "tool_plan": mark("plan"),
    "tool_calls": [CHOSEN],
    "citations": [{"text": mark("citation"), "sources": [{"document": {"t": mark("source")}}]}],
}
COHERE_USAGE = {"tokens": {"input_tokens": 12, "output_tokens": 7}}
COHERE_V1_ANSWER = {
    "response_id": odd("response-id"),
    "generation_id": "g1",
    "text": mark("completion"),
    "tool_calls": [{"name": mark("chosen-tool"), "parameters": ARGUMENTS}],
    "citations": [{"text": mark("citation"), "document_ids": [mark("source")]}],
    "chat_history": [{"role": "USER", "message": mark("history")}],
    "finish_reason": mark("finish"),
    "meta": {"billed_units": {"input_tokens": 12, "output_tokens": 7}},
}
CONVERSE_BLOCKS = [
    {"reasoningContent": {"reasoningText": {"text": mark("reasoning")}}},
    {"text": mark("completion")},
    {"toolUse": {"toolUseId": "tooluse_2", "name": mark("chosen-tool"), "input": ARGUMENTS}},
]
CONVERSE_USAGE = {"inputTokens": 12, "outputTokens": 7, "totalTokens": 19}
CONVERSE = {
    "system": [{"text": mark("system")}],
    "messages": [
        {
            "role": "user",
            "content": [
                {"text": mark("prompt")},
                {
                    "document": {
                        "name": mark("file"),
                        "format": "txt",
                        "source": {"bytes": DATA_URL[22:]},
                    }
                },
            ],
        }
    ],
    "toolConfig": {
        "tools": [
            {
                "toolSpec": {
                    "name": "find",
                    "description": mark("tool"),
                    "inputSchema": {"json": SCHEMA},
                }
            }
        ]
    },
    "requestMetadata": {"k": mark("metadata")},
}
VECTORS = {"data": [{"embedding": [0.25, 0.5]}], "model": odd("response-model"), "usage": USAGE}

FORMATS = (
    Format(
        name="openai_chat",
        path="/v1/chat/completions",
        request=OPENAI_CHAT,
        answer=OPENAI_ANSWER,
        events=OPENAI_EVENTS,
    ),
    Format(
        name="openai_completions",
        path="/v1/completions",
        request={"model": "gpt-5-mini", "prompt": mark("prompt"), "suffix": mark("suffix")},
        answer={
            "choices": [{"text": mark("completion"), "finish_reason": mark("finish")}],
            "usage": USAGE,
        },
        events=sse({"choices": [{"index": 0, "text": mark("completion")}]}, "[DONE]"),
    ),
    Format(
        name="openai_responses",
        path="/v1/responses",
        request=RESPONSES,
        answer=RESPONSES_ANSWER,
        events=sse(
            {"type": "response.created", "response": {**RESPONSES_ANSWER, "output": []}},
            *(
                {"type": "response.output_item.added", "output_index": at, "item": item}
                for at, item in enumerate(RESPONSES_ITEMS)
            ),
            {"type": "response.output_text.delta", "output_index": 1, "delta": mark("completion")},
            {"type": "response.completed", "response": RESPONSES_ANSWER},
            names=True,
        ),
    ),
    Format(
        name="openai_embeddings",
        path="/v1/embeddings",
        request={"model": "text-embedding-3-small", "input": [mark("prompt")], "user": mark("u")},
        answer=VECTORS,
    ),
    Format(
        name="openai_images",
        path="/v1/images/generations",
        request={"model": "gpt-image-1", "prompt": mark("prompt"), "user": mark("user")},
        answer={
            "data": [{"b64_json": DATA_URL[22:], "revised_prompt": mark("revised")}],
            "usage": {"input_tokens": 12, "output_tokens": 7, "total_tokens": 19},
        },
    ),
    Format(
        name="anthropic_messages",
        path="/v1/messages",
        request=CLAUDE,
        answer=CLAUDE_ANSWER,
        events=CLAUDE_EVENTS,
    ),
    Format(
        name="gemini_content",
        path="/v1beta/models/gemini-2.5-flash:generateContent",
        stream_path="/v1beta/models/gemini-2.5-flash:streamGenerateContent",
        request=GEMINI,
        answer=GEMINI_ANSWER,
        events=sse(GEMINI_ANSWER),
    ),
    Format(
        name="gemini_interactions",
        path="/v1beta/interactions",
        request={
            "model": "gemini-2.5-flash",
            "input": [
                {
                    "type": "user_input",
                    "content": [
                        {"type": "text", "text": mark("prompt")},
                        {"type": "image", "mime_type": "image/png", "data": DATA_URL[22:]},
                        {"type": "document", "uri": f"gs://{mark('file')}"},
                    ],
                },
                {"type": "function_call", "id": "c1", "name": "find", "arguments": ARGUMENTS},
                {"type": "function_result", "call_id": "c1", "result": {"r": mark("result")}},
            ],
            "system_instruction": mark("system"),
            "tools": [
                {
                    "type": "function",
                    "name": "find",
                    "description": mark("tool"),
                    "parameters": SCHEMA,
                }
            ],
        },
        answer={
            "id": odd("response-id"),
            "model": odd("response-model"),
            "status": mark("finish"),
            "outputs": [
                {"type": "text", "text": mark("completion")},
                {"type": "function_call", "name": mark("chosen-tool"), "arguments": ARGUMENTS},
            ],
        },
        events=sse(
            {
                "event_type": "interaction.created",
                "interaction": {"id": "v1_1", "status": "in_progress"},
            },
            {
                "event_type": "step.delta",
                "index": 0,
                "delta": {
                    "type": "thought_summary",
                    "content": {"type": "text", "text": mark("reasoning")},
                },
            },
            {"event_type": "step.start", "index": 1, "step": {"type": "model_output"}},
            {
                "event_type": "step.delta",
                "index": 1,
                "delta": {"type": "text", "text": mark("completion")},
            },
            {
                "event_type": "step.start",
                "index": 2,
                "step": {"type": "function_call", "id": "c2", "name": mark("chosen-tool")},
            },
            {
                "event_type": "step.delta",
                "index": 2,
                "delta": {"type": "arguments_delta", "arguments": json.dumps(ARGUMENTS)},
            },
            {
                "event_type": "interaction.completed",
                "interaction": {"id": "v1_1", "status": mark("finish")},
            },
            "[DONE]",
        ),
    ),
    Format(
        name="ollama",
        path="/api/chat",
        request={
            "model": "llama3",
            "messages": [
                {"role": "system", "content": mark("system")},
                {"role": "user", "content": mark("prompt"), "images": [DATA_URL[22:]]},
                {"role": "tool", "tool_name": "find", "content": mark("result")},
            ],
            "tools": [TOOL],
            "format": SCHEMA,
        },
        answer=OLLAMA_ANSWER,
        events=ndjson({**OLLAMA_ANSWER, "done": False}, OLLAMA_ANSWER),
        stream_type="application/x-ndjson",
    ),
    Format(
        name="cohere_chat",
        path="/v2/chat",
        request={
            "model": "command-r",
            "messages": [
                {"role": "system", "content": mark("system")},
                {"role": "user", "content": mark("prompt")},
            ],
            "documents": [{"data": {"title": mark("file"), "text": mark("document")}}],
            "tools": [TOOL],
        },
        answer={
            "id": odd("response-id"),
            "finish_reason": mark("finish"),
            "message": COHERE_MESSAGE,
            "usage": COHERE_USAGE,
        },
        events=sse(
            {"type": "message-start", "id": "c1", "delta": {"message": {"role": "assistant"}}},
            {
                "type": "content-delta",
                "index": 0,
                "delta": {"message": {"content": {"text": mark("completion")}}},
            },
            {"type": "tool-call-start", "index": 0, "delta": {"message": {"tool_calls": CHOSEN}}},
            {
                "type": "message-end",
                "delta": {"finish_reason": mark("finish"), "usage": COHERE_USAGE},
            },
        ),
    ),
    Format(
        name="cohere_chat_v1",
        path="/v1/chat",
        provider="cohere",
        request={
            "model": "command-r",
            "preamble": mark("system"),
            "message": mark("prompt"),
            "chat_history": [
                {"role": "USER", "message": mark("history")},
                {"role": "CHATBOT", "message": mark("said-before"), "user_name": mark("user")},
            ],
            "tools": [
                {
                    "name": "find",
                    "description": mark("tool"),
                    "parameter_definitions": SCHEMA["properties"],
                }
            ],
            "tool_results": [
                {
                    "call": {"name": "find", "parameters": ARGUMENTS},
                    "outputs": [{"answer": mark("result")}],
                }
            ],
            "documents": [{"title": mark("file"), "text": mark("document")}],
        },
        answer=COHERE_V1_ANSWER,
        events=ndjson(
            {"event_type": "stream-start", "generation_id": "g1"},
            {"event_type": "text-generation", "text": mark("completion")},
            {"event_type": "tool-calls-generation", "tool_calls": COHERE_V1_ANSWER["tool_calls"]},
            {
                "event_type": "stream-end",
                "finish_reason": mark("finish"),
                "response": COHERE_V1_ANSWER,
            },
        ),
        stream_type="application/stream+json",
    ),
    Format(
        name="rerank",
        path="/v2/rerank",
        request={"model": "rerank-v4", "query": mark("prompt"), "documents": [mark("document")]},
        answer={
            "results": [{"index": 0, "document": {"text": mark("document")}}],
            "meta": {"billed_units": {"search_units": 1}},
        },
    ),
    Format(
        name="bedrock_converse",
        path="/model/anthropic.claude-haiku-4-5/converse",
        stream_path="/model/anthropic.claude-haiku-4-5/converse-stream",
        request=CONVERSE,
        answer={
            "output": {"message": {"role": "assistant", "content": CONVERSE_BLOCKS}},
            "stopReason": mark("finish"),
            "usage": CONVERSE_USAGE,
        },
        events=frames(
            ("messageStart", {"role": "assistant"}),
            (
                "contentBlockStart",
                {
                    "contentBlockIndex": 0,
                    "start": {"toolUse": {"toolUseId": "t2", "name": mark("chosen-tool")}},
                },
            ),
            (
                "contentBlockDelta",
                {"contentBlockIndex": 1, "delta": {"text": mark("completion")}},
            ),
            ("messageStop", {"stopReason": mark("finish")}),
            ("metadata", {"usage": CONVERSE_USAGE}),
        ),
        stream_type="application/vnd.amazon.eventstream",
    ),
    Format(
        name="bedrock_invoke",
        path="/model/anthropic.claude-haiku-4-5/invoke",
        stream_path="/model/anthropic.claude-haiku-4-5/invoke-with-response-stream",
        request={**CLAUDE, "anthropic_version": "bedrock-2023-05-31"},
        answer=CLAUDE_ANSWER,
        events=frames(
            *(
                ("chunk", {"bytes": base64.b64encode(event.split(b"data: ")[1]).decode()})
                for event in CLAUDE_EVENTS
            )
        ),
        stream_type="application/vnd.amazon.eventstream",
    ),
    Format(
        name="sagemaker",
        path="/endpoints/mine/invocations",
        stream_path="/endpoints/mine/invocations-response-stream",
        request=OPENAI_CHAT,
        answer=OPENAI_ANSWER,
        # Cut anywhere: an event may begin in one part and end in another.
        events=frames(
            *(("PayloadPart", event[:9]) for event in OPENAI_EVENTS[:1]),
            *(
                ("PayloadPart", event[9:] + following[:9])
                for event, following in itertools.pairwise(OPENAI_EVENTS)
            ),
        ),
        stream_type="application/vnd.amazon.eventstream",
    ),
    Format(
        name="text_generation_inference",
        path="/generate",
        stream_path="/generate_stream",
        request={"inputs": mark("prompt"), "parameters": {"stop": [mark("stop")]}},
        answer={
            "generated_text": mark("completion"),
            "details": {"finish_reason": mark("finish"), "generated_tokens": 7},
        },
        events=sse(
            {"token": {"text": mark("completion")}, "generated_text": None},
            {"token": {"text": mark("x")}, "generated_text": mark("completion")},
        ),
    ),
)
