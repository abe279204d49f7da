"""OpenAI's formats, with a marker word in each place that content can stand."""

from __future__ import annotations

import json
from typing import Any

from marks import ARGUMENTS, DATA_URL, SCHEMA, mark, odd
from wire_format import Format, sse

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
VECTORS = {"data": [{"embedding": [0.25, 0.5]}], "model": odd("response-model"), "usage": USAGE}

OPENAI_FORMATS = (
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
)
