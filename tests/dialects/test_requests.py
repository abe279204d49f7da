"""What requests say about themselves, in each provider's words."""

from __future__ import annotations

import json
from typing import Any

import pytest
from wire_reading import COHERE, INTERACTIONS, MESSAGES, OLLAMA, RESPONSES

from clew.dialects import recognise
from clew.facts import RequestFacts

OPENAI = ("api.openai.com", "/v1/chat/completions")
GEMINI = ("generativelanguage.googleapis.com", "/v1beta/models/gemini-2.5-flash:generateContent")
CONVERSE = ("bedrock-runtime.us-east-1.amazonaws.com", "/model/nova/converse-stream")
COHERE_V1 = ("api.cohere.com", "/v1/chat")
MARK = "SECRET"


def facts_of(address: tuple[str, str], body: dict[str, Any] | bytes) -> RequestFacts:
    """Read a request."""
    route = recognise("POST", *address)
    assert route is not None
    return route.dialect.request(
        body if isinstance(body, bytes) else json.dumps(body).encode(), route
    )


CASES: list[tuple[tuple[str, str], dict[str, Any], RequestFacts]] = [
    (
        OPENAI,
        {
            "model": "gpt-5",
            "messages": [
                {"role": "system", "content": MARK},
                {"role": "user", "content": [{"type": "text", "text": MARK}]},
                {"role": "assistant", "tool_calls": [{"id": "c1", "function": {"name": "f"}}]},
                {"role": "tool", "tool_call_id": "c1", "content": MARK},
                {"role": "tool", "tool_call_id": "c2", "content": MARK},
            ],
            "tools": [
                {"type": "function", "function": {"name": "f", "description": MARK}},
                {"type": "custom", "custom": {"name": "g"}},
                {"type": "web_search"},
            ],
            "functions": [{"name": "old"}],
            "stream": True,
            "max_completion_tokens": 50,
            "max_tokens": 40,
            "temperature": 0,
            "top_p": 0.5,
            "frequency_penalty": 0.1,
            "presence_penalty": -0.2,
            "seed": -7,
            "n": 2,
            "reasoning_effort": "high",
            "service_tier": "flex",
            "response_format": {"type": "json_schema", "json_schema": {"name": MARK}},
            "user": MARK,
            "stop": [MARK],
        },
        RequestFacts(
            model="gpt-5",
            stream=True,
            max_tokens=50,
            temperature=0,
            top_p=0.5,
            frequency_penalty=0.1,
            presence_penalty=-0.2,
            seed=-7,
            choice_count=2,
            reasoning_level="high",
            service_tier="flex",
            output_type="json",
            messages=5,
            tools=("f", "g", "web_search", "old"),
            tool_result_ids=("c1", "c2"),
        ),
    ),
    (
        OPENAI,
        {
            "model": "m",
            "messages": [],
            "modalities": ["text", "audio"],
            "max_tokens": 5,
            "tools": [],
        },
        RequestFacts(model="m", max_tokens=5, output_type="speech", messages=0),
    ),
    (
        ("openrouter.ai", "/api/v1/chat/completions"),
        {"model": "a/b", "messages": [{}], "reasoning": {"effort": "low"}, "top_k": 5},
        RequestFacts(model="a/b", reasoning_level="low", top_k=5, messages=1),
    ),
    (
        ("api.mistral.ai", "/v1/chat/completions"),
        {"model": "m", "messages": [{}], "random_seed": 5, "response_format": {"type": "text"}},
        RequestFacts(model="m", seed=5, output_type="text", messages=1),
    ),
    (
        ("r.openai.azure.com", "/openai/deployments/my-gpt/chat/completions"),
        {"messages": [{}]},
        RequestFacts(model="my-gpt", messages=1),
    ),
    (
        RESPONSES,
        {
            "model": "gpt-5",
            "input": [
                {"role": "user", "content": MARK},
                {"type": "function_call", "call_id": "c1", "name": "f", "arguments": MARK},
                {"type": "function_call_output", "call_id": "c1", "output": MARK},
                {"type": "custom_tool_call_output", "call_id": "c2", "output": MARK},
            ],
            "tools": [
                {"type": "function", "name": "f"},
                {"type": "web_search"},
                {"type": "mcp", "server_label": "x"},
            ],
            "stream": True,
            "max_output_tokens": 9,
            "reasoning": {"effort": "minimal"},
            "text": {"format": {"type": "json_object"}},
            "previous_response_id": "resp_0",
            "service_tier": "auto",
        },
        RequestFacts(
            model="gpt-5",
            stream=True,
            max_tokens=9,
            reasoning_level="minimal",
            service_tier="auto",
            output_type="json",
            previous_response_id="resp_0",
            messages=4,
            tools=("f", "web_search", "mcp"),
            tool_result_ids=("c1", "c2"),
        ),
    ),
    (RESPONSES, {"model": "m", "input": MARK}, RequestFacts(model="m", messages=1)),
    (
        MESSAGES,
        {
            "model": "claude",
            "max_tokens": 100,
            "system": MARK,
            "messages": [
                {"role": "user", "content": MARK},
                {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "f"}]},
                {
                    "role": "user",
                    "content": [
                        {"type": "tool_result", "tool_use_id": "t1", "content": MARK},
                        {"type": "tool_result", "tool_use_id": "t2", "is_error": True},
                        {"type": "web_search_tool_result", "tool_use_id": "srv", "content": []},
                        {"type": "text", "text": '"tool_use_id": "no"'},
                    ],
                },
            ],
            "tools": [{"name": "f", "input_schema": {}}, {"type": "bash_20250124", "name": "bash"}],
            "stream": True,
            "temperature": 1,
            "top_p": 0.9,
            "top_k": 40,
            "service_tier": "standard_only",
            "thinking": {"type": "enabled", "budget_tokens": 1024},
            "output_config": {"effort": "medium", "format": {"type": "json_schema"}},
        },
        RequestFacts(
            model="claude",
            stream=True,
            max_tokens=100,
            temperature=1,
            top_p=0.9,
            top_k=40,
            reasoning_level="medium",
            service_tier="standard_only",
            output_type="json",
            messages=3,
            tools=("f", "bash"),
            tool_result_ids=("t1", "t2"),
        ),
    ),
    (
        GEMINI,
        {
            "contents": [
                {"role": "user", "parts": [{"text": MARK}]},
                {"role": "user", "parts": [{"functionResponse": {"id": "g1", "name": "f"}}]},
            ],
            "systemInstruction": {"parts": [{"text": MARK}]},
            "tools": [
                {"functionDeclarations": [{"name": "f"}, {"name": "g"}]},
                {"googleSearch": {}},
            ],
            "generationConfig": {
                "maxOutputTokens": 64,
                "temperature": 0.5,
                "topP": 0.9,
                "topK": 10,
                "seed": 3,
                "candidateCount": 2,
                "frequencyPenalty": 0.1,
                "presencePenalty": 0.2,
                "responseMimeType": "application/json",
                "thinkingConfig": {"thinkingLevel": "HIGH"},
            },
        },
        RequestFacts(
            model="gemini-2.5-flash",
            max_tokens=64,
            temperature=0.5,
            top_p=0.9,
            top_k=10,
            seed=3,
            choice_count=2,
            frequency_penalty=0.1,
            presence_penalty=0.2,
            reasoning_level="HIGH",
            output_type="json",
            messages=2,
            tools=("f", "g", "googleSearch"),
            tool_result_ids=("g1",),
        ),
    ),
    (
        GEMINI,
        {
            "contents": {"parts": [{"text": MARK}]},
            "generation_config": {"max_output_tokens": 5, "response_modalities": ["TEXT", "IMAGE"]},
        },
        RequestFacts(model="gemini-2.5-flash", max_tokens=5, output_type="image", messages=1),
    ),
    (
        (GEMINI[0], "/v1beta/models/e:batchEmbedContents"),
        {"requests": [{"model": "models/e", "outputDimensionality": 768}]},
        RequestFacts(model="e", dimensions=768),
    ),
    (
        INTERACTIONS,
        {
            "model": "gemini-3",
            "stream": True,
            "input": [
                {"type": "user_input", "content": [{"type": "text", "text": MARK}]},
                {"type": "function_result", "call_id": "i1", "result": MARK},
            ],
            "tools": [{"type": "function", "name": "f"}, {"type": "google_search"}],
            "generation_config": {
                "max_output_tokens": 64,
                "temperature": 0.7,
                "thinking_level": "low",
            },
            "previous_interaction_id": "int_0",
        },
        RequestFacts(
            model="gemini-3",
            stream=True,
            max_tokens=64,
            temperature=0.7,
            reasoning_level="low",
            previous_response_id="int_0",
            messages=2,
            tools=("f", "google_search"),
            tool_result_ids=("i1",),
        ),
    ),
    (
        INTERACTIONS,
        {"model": "m", "input": {"type": "function_result", "call_id": "i1", "result": MARK}},
        RequestFacts(model="m", messages=1, tool_result_ids=("i1",)),
    ),
    (
        CONVERSE,
        {
            "messages": [
                {"role": "user", "content": [{"text": MARK}]},
                {"role": "user", "content": [{"toolResult": {"toolUseId": "b1", "content": []}}]},
            ],
            "inferenceConfig": {"maxTokens": 10, "temperature": 0.1, "topP": 0.2},
            "additionalModelRequestFields": {"top_k": 7},
            "toolConfig": {
                "tools": [
                    {"toolSpec": {"name": "f"}},
                    {"cachePoint": {"type": "default"}},
                    {"systemTool": {"name": "nova_grounding"}},
                ]
            },
            "serviceTier": {"type": "priority"},
        },
        RequestFacts(
            model="nova",
            stream=True,
            max_tokens=10,
            temperature=0.1,
            top_p=0.2,
            top_k=7,
            service_tier="priority",
            messages=2,
            tools=("f", "nova_grounding"),
            tool_result_ids=("b1",),
        ),
    ),
    (
        OLLAMA,
        {
            "model": "llama3.2",
            "messages": [{"role": "user", "content": MARK}, {"role": "tool", "tool_call_id": "o1"}],
            "tools": [{"type": "function", "function": {"name": "f"}}],
            "options": {"num_predict": 5, "temperature": 0.3, "seed": 42, "top_k": 20},
            "format": "json",
            "think": "high",
        },
        RequestFacts(
            model="llama3.2",
            stream=True,
            max_tokens=5,
            temperature=0.3,
            top_k=20,
            seed=42,
            reasoning_level="high",
            output_type="json",
            messages=2,
            tools=("f",),
            tool_result_ids=("o1",),
        ),
    ),
    (
        OLLAMA,
        {"model": "m", "messages": [], "stream": False, "format": ""},
        RequestFacts(model="m", messages=0),
    ),
    (
        COHERE,
        {
            "model": "command-a",
            "messages": [{"role": "user"}, {"role": "tool", "tool_call_id": "h1"}],
            "tools": [{"type": "function", "function": {"name": "f"}}],
            "stream": True,
            "max_tokens": 5,
            "p": 0.5,
            "k": 3,
            "response_format": {"type": "json_object"},
        },
        RequestFacts(
            model="command-a",
            stream=True,
            max_tokens=5,
            top_p=0.5,
            top_k=3,
            output_type="json",
            messages=2,
            tools=("f",),
            tool_result_ids=("h1",),
        ),
    ),
    (
        COHERE_V1,
        {"model": "command", "message": MARK, "chat_history": [{}, {}], "tools": [{"name": "f"}]},
        RequestFacts(model="command", messages=3, tools=("f",)),
    ),
    (
        ("api.openai.com", "/v1/embeddings"),
        {"model": "e", "input": [MARK], "dimensions": 256, "encoding_format": "base64"},
        RequestFacts(model="e", dimensions=256, encoding_formats=("base64",)),
    ),
    (
        ("us-south.ml.cloud.ibm.com", "/ml/v1/text/chat"),
        {"model_id": "ibm/granite", "messages": [{}]},
        RequestFacts(model="ibm/granite", messages=1),
    ),
    (
        ("us-south.ml.cloud.ibm.com", "/ml/v1/text/generation"),
        {"model_id": "x", "input": MARK, "parameters": {"max_new_tokens": 5, "random_seed": 1}},
        RequestFacts(model="x", max_tokens=5, seed=1),
    ),
    (
        ("api.openai.com", "/v1/audio/speech"),
        {"model": "tts", "input": MARK, "voice": "x", "stream_format": "sse"},
        RequestFacts(model="tts", stream=True, output_type="speech"),
    ),
]


@pytest.mark.parametrize(("address", "body", "expected"), CASES)
def test_requests(address: tuple[str, str], body: dict[str, Any], expected: RequestFacts):
    """Model, parameters, how many messages, which tools, which results; no content."""
    facts = facts_of(address, body)
    assert facts == expected
    assert MARK not in repr(facts)


@pytest.mark.parametrize(
    ("body", "operation", "messages"),
    [
        ({"anthropic_version": "bedrock-2023-05-31", "messages": [{}], "max_tokens": 5}, "chat", 1),
        ({"schemaVersion": "messages-v1", "messages": [{}], "inferenceConfig": {"maxTokens": 5}}, "chat", 1),
        ({"messages": [{"role": "user"}], "max_tokens": 5}, "chat", 1),
        ({"prompt": MARK, "max_gen_len": 5}, None, None),
        ({"prompt": MARK, "max_tokens_to_sample": 5}, None, None),
        ({"inputText": MARK, "textGenerationConfig": {"maxTokenCount": 5}}, None, None),
        ({"texts": [MARK], "input_type": "search_query", "max_tokens": 5}, "embeddings", None),
    ],
)  # fmt: skip
def test_bodies_of_bedrock_invoke_tell_the_family(
    body: dict[str, Any], operation: str | None, messages: int | None
):
    """The path does not say whether it is a chat; the body does."""
    facts = facts_of((CONVERSE[0], "/model/m/invoke"), body)
    expected = RequestFacts(model="m", operation=operation, messages=messages, max_tokens=5)
    assert facts == expected


def test_sagemaker_bodies_tell_the_family():
    """Messages make a chat of an invocation."""
    address = ("runtime.sagemaker.us-east-1.amazonaws.com", "/endpoints/e/invocations")
    facts = facts_of(address, {"messages": [{}], "max_tokens": 5})
    assert facts == RequestFacts(model="e", operation="chat", messages=1, max_tokens=5)
    facts = facts_of(address, {"inputs": MARK, "parameters": {"max_new_tokens": 5}})
    assert facts == RequestFacts(model="e", max_tokens=5)


def test_forms():
    """An upload names its model in a field, before the file or after it."""
    head = b'--x\r\nContent-Disposition: form-data; name="file"; filename="a.wav"\r\n'
    file = head + b"Content-Type: audio/wav\r\n\r\n" + b"\x00\xff" * 1000 + b"\r\n"
    model = b'--x\r\nContent-Disposition: form-data; name="model"\r\n\r\ngpt-4o-transcribe\r\n'
    stream = b'--x\r\nContent-Disposition: form-data; name="stream"\r\n\r\ntrue\r\n'
    expected = RequestFacts(model="gpt-4o-transcribe", stream=True, output_type="text")
    address = ("api.openai.com", "/v1/audio/transcriptions")
    assert facts_of(address, file + model + stream + b"--x--\r\n") == expected
    assert facts_of(address, model + stream + file + b"--x--\r\n") == expected
    assert facts_of(address, file + b"--x--\r\n") == RequestFacts(output_type="text")


def test_text_that_looks_like_fields_is_not_read():
    """Field names inside content are content."""
    fake = json.dumps({"model": "fake", "tools": [{"name": "fake"}], "tool_use_id": "fake"})
    body = {"model": "real", "messages": [{"role": "user", "content": fake}]}
    for address in (OPENAI, MESSAGES, OLLAMA, COHERE):
        facts = facts_of(address, body)
        assert (facts.model, facts.tools, facts.tool_result_ids) == ("real", None, ())
