"""What stands beside the messages of a request: free text stays, counts and numbers leave."""

# ruff: noqa: SIM300 - expected == actual, in this order
from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest
from formats import FORMATS
from marked_calls import HEADERS, url
from marks import SCHEMA, mark
from surroundings import Answers, watched
from wire_format import Format

import clew

FORMAT = {"type": "json_schema", "json_schema": {"name": mark("schema-name"), "schema": SCHEMA}}
LABELS = {mark("label-key"): mark("label")}
MCP = {
    "type": "mcp",
    "server_label": mark("server-label"),
    "server_url": f"https://{mark('server-user')}:{mark('server-password')}@h/{mark('server-path')}",
    "server_description": mark("server-description"),
    "headers": {"authorization": f"Bearer {mark('server-token')}"},
    "allowed_tools": [mark("allowed-tool")],
}
SAID: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "openai_chat": (
        {
            "temperature": 0.5,
            "max_completion_tokens": 64,
            "seed": 7,
            "prediction": {"type": "content", "content": mark("prediction")},
            "logit_bias": {mark("bias"): 1},
            "web_search_options": {"user_location": {"approximate": {"city": mark("city")}}},
            "tool_choice": {"type": "function", "function": {"name": mark("forced")}},
        },
        {"gen_ai.request.temperature": 0.5, "gen_ai.request.max_tokens": 64, "seed": 7},
    ),
    "openai_responses": (
        {
            "temperature": 0.5,
            "max_output_tokens": 64,
            "user": mark("user"),
            "safety_identifier": mark("safety"),
            "prompt_cache_key": mark("cache-key"),
            "metadata": LABELS,
            "prompt": {"id": mark("prompt-id"), "variables": {"name": mark("variable")}},
            "text": {"format": {"type": "json_schema", "name": mark("name"), "schema": SCHEMA}},
            "include": [mark("include")],
            "conversation": mark("conversation"),
            "tools": [{"type": "function", "name": "find", "parameters": SCHEMA}, MCP],
        },
        {"gen_ai.request.temperature": 0.5, "gen_ai.request.max_tokens": 64, "tools": 2},
    ),
    "anthropic_messages": (
        {
            "temperature": 0.5,
            "top_k": 9,
            "container": mark("container"),
            "output_config": {"format": {"type": "json_schema", "schema": SCHEMA}},
            "mcp_servers": [
                {
                    "type": "url",
                    "name": mark("server"),
                    "url": MCP["server_url"],
                    "authorization_token": mark("server-token"),
                }
            ],
            "tool_choice": {"type": "tool", "name": mark("forced")},
        },
        {"gen_ai.request.temperature": 0.5, "gen_ai.request.max_tokens": 64, "top_k": 9},
    ),
    "gemini_content": (
        {
            "labels": LABELS,
            "cachedContent": mark("cached"),
            "generationConfig": {
                "temperature": 0.5,
                "maxOutputTokens": 64,
                "topK": 9,
                "stopSequences": [mark("stop")],
                "responseSchema": SCHEMA,
                "responseMimeType": mark("mime"),
            },
            "toolConfig": {"functionCallingConfig": {"allowedFunctionNames": [mark("allowed")]}},
        },
        {"gen_ai.request.temperature": 0.5, "gen_ai.request.max_tokens": 64, "top_k": 9},
    ),
    "ollama": (
        {
            "options": {"temperature": 0.5, "num_predict": 64, "seed": 7, "stop": [mark("stop")]},
            "keep_alive": mark("keep-alive"),
            "template": mark("template"),
        },
        {"gen_ai.request.temperature": 0.5, "gen_ai.request.max_tokens": 64, "seed": 7},
    ),
    "cohere_chat": (
        {
            "temperature": 0.5,
            "max_tokens": 64,
            "seed": 7,
            "k": 9,
            "stop_sequences": [mark("stop")],
            "response_format": {"type": "json_object", "schema": SCHEMA},
            "citation_options": {"mode": mark("mode")},
            "tool_choice": mark("choice"),
        },
        {
            "gen_ai.request.temperature": 0.5,
            "gen_ai.request.max_tokens": 64,
            "seed": 7,
            "top_k": 9,
        },
    ),
    "bedrock_converse": (
        {
            "inferenceConfig": {"temperature": 0.5, "maxTokens": 64, "stopSequences": [mark("s")]},
            "requestMetadata": LABELS,
            "promptVariables": {"name": {"text": mark("variable")}},
            "additionalModelRequestFields": {"note": mark("additional")},
            "guardrailConfig": {"guardrailIdentifier": mark("guardrail"), "trace": mark("trace")},
        },
        {"gen_ai.request.temperature": 0.5, "gen_ai.request.max_tokens": 64},
    ),
    "mistral": (
        {
            "temperature": 0.5,
            "max_tokens": 64,
            "random_seed": 7,
            "stop": [mark("stop")],
            "metadata": LABELS,
            "prompt_cache_key": mark("cache-key"),
            "prediction": {"type": "content", "content": mark("prediction")},
            "response_format": FORMAT,
            "guardrails": [{"block_on_error": True, "note": mark("guardrail")}],
        },
        {"gen_ai.request.temperature": 0.5, "gen_ai.request.max_tokens": 64, "seed": 7},
    ),
}
"""What is said beside the messages of each format, and what of it leaves."""
SHORT = {"seed": "gen_ai.request.seed", "top_k": "gen_ai.request.top_k"}


def format_of(name: str) -> tuple[Format, dict[str, str]]:
    """Return a format, and whose host it is."""
    base = "openai_chat" if name == "mistral" else name
    one = next(each for each in FORMATS if each.name == base)
    return one, {"127.0.0.1": "mistral_ai"} if name == "mistral" else dict(one.hosts)


def sent_by(one: Format, more: Mapping[str, Any]) -> dict[str, Any]:
    """Return the request of a format with what is said besides."""
    return {**one.request, **more}


@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize("level", ["none", "metadata"])
@pytest.mark.parametrize("name", SAID)
async def test_free_text_stays_and_numbers_leave(
    name: str, level: str, asynchronous: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Descriptions, schemas, stops, users, labels, keys of others: counts and numbers are left."""
    one, hosts = format_of(name)
    more, numbers = SAID[name]
    expected = {SHORT.get(key, key): value for key, value in numbers.items() if key != "tools"}
    expected["clew.request.tools"] = numbers.get("tools", 1)
    options: dict[str, Any] = {"capture": level, "provider_hosts": hosts}
    body = sent_by(one, more)
    with Answers() as server, watched(tmp_path / "d", monkeypatch, **options) as everything:
        server.pieces = [json.dumps(one.answer).encode()]
        where = url(server, one.path)
        with clew.run("leak-test"):
            if asynchronous:
                async with httpx.AsyncClient() as client:
                    await client.post(where, json=body, headers=HEADERS)
            else:
                with httpx.Client() as client:
                    client.post(where, json=body, headers=HEADERS)
    assert {} == everything.found()
    (span,) = [each for each in everything.spans if each.kind == 3]
    told = {each.key: each.value.int_value or each.value.double_value for each in span.attributes}
    assert expected == {key: told.get(key) for key in expected}
