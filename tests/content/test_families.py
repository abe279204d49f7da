"""Formats behind one path: each family of Bedrock and SageMaker, and what else has two spellings."""

from __future__ import annotations

import base64
import json
import os
from typing import Any

import pytest
from corpus_folder import CORPUS
from wire_format import frames, ndjson, sse

from clew import content

FRAMES = "application/vnd.amazon.eventstream"


def chunks(*events: Any) -> bytes:
    """Return Bedrock's stream of a model's own chunks."""
    wrapped = [{"bytes": base64.b64encode(json.dumps(event).encode()).decode()} for event in events]
    return b"".join(frames(*(("chunk", each) for each in wrapped)))


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "parts": [{"type": "text", "content": text}]}


def said(text: str, reason: str | None = None) -> dict[str, Any]:
    made = {"role": "assistant", "parts": [{"type": "text", "content": text}]}
    return made if reason is None else {**made, "finish_reason": reason}


FAMILIES: dict[str, tuple[Any, Any, list[Any]]] = {
    "anthropic": (
        {"anthropic_version": "v", "messages": [{"role": "user", "content": "Hi"}]},
        {"type": "message", "content": [{"type": "text", "text": "Yo"}], "stop_reason": "end"},
        [
            {"type": "content_block_delta", "index": 0, "delta": {"text": "Y"}},
            {"type": "content_block_delta", "index": 0, "delta": {"text": "o"}},
            {"type": "message_delta", "delta": {"stop_reason": "end"}},
        ],
    ),
    "nova": (
        {
            "schemaVersion": "messages-v1",
            "messages": [{"role": "user", "content": [{"text": "Hi"}]}],
        },
        {"output": {"message": {"content": [{"text": "Yo"}]}}, "stopReason": "end"},
        [
            {"messageStart": {"role": "assistant"}},
            {"contentBlockDelta": {"delta": {"text": "Y"}, "contentBlockIndex": 0}},
            {"contentBlockDelta": {"delta": {"text": "o"}, "contentBlockIndex": 0}},
            {"messageStop": {"stopReason": "end"}},
        ],
    ),
    "llama": (
        {"prompt": "Hi", "max_gen_len": 9},
        {"generation": "Yo", "stop_reason": "end", "prompt_token_count": 1},
        [
            {"generation": "Y", "stop_reason": None},
            {"generation": "o", "stop_reason": "end"},
        ],
    ),
    "titan": (
        {"inputText": "Hi", "textGenerationConfig": {}},
        {"results": [{"outputText": "Yo", "completionReason": "end"}]},
        [
            {"outputText": "Y", "completionReason": None, "index": 0},
            {"outputText": "o", "completionReason": "end", "index": 0},
        ],
    ),
    "mistral": (
        {"prompt": "Hi", "max_tokens": 9},
        {"outputs": [{"text": "Yo", "stop_reason": "end"}]},
        [
            {"outputs": [{"text": "Y", "stop_reason": None}]},
            {"outputs": [{"text": "o", "stop_reason": "end"}]},
        ],
    ),
    "mistral chat": (
        {"messages": [{"role": "user", "content": "Hi"}]},
        {"choices": [{"message": {"role": "assistant", "content": "Yo"}, "finish_reason": "end"}]},
        [
            {"choices": [{"index": 0, "delta": {"content": "Y"}}]},
            {"choices": [{"index": 0, "delta": {"content": "o"}, "finish_reason": "end"}]},
        ],
    ),
    "cohere": (
        {"message": "Hi"},
        {"text": "Yo", "generation_id": "g", "finish_reason": "end"},
        [
            {"event_type": "text-generation", "text": "Y"},
            {"event_type": "text-generation", "text": "o"},
            {"event_type": "stream-end", "finish_reason": "end"},
        ],
    ),
    "cohere command": (
        {"prompt": "Hi"},
        {"generations": [{"text": "Yo", "finish_reason": "end"}]},
        [
            {"text": "Y", "is_finished": False},
            {"text": "o", "is_finished": True, "finish_reason": "end"},
        ],
    ),
    "claude text": (
        {"prompt": "Hi", "max_tokens_to_sample": 9},
        {"completion": "Yo", "stop_reason": "end"},
        [{"completion": "Y", "stop_reason": None}, {"completion": "o", "stop_reason": "end"}],
    ),
    "ai21": (
        {"prompt": "Hi"},
        {"completions": [{"data": {"text": "Yo"}, "finishReason": {"reason": "end"}}]},
        [],
    ),
}


@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_of_bedrock(family: str) -> None:
    """Whatever the body's fields are called: the prompt, the answer and why it ended."""
    request, answer, events = FAMILIES[family]
    found = content.of_request("bedrock_invoke", json.dumps(request).encode())
    assert found.input_messages == [user("Hi")]
    read = content.of_response("bedrock_invoke", json.dumps(answer).encode())
    assert read == [said("Yo", "end")]
    if events:
        assert content.of_stream("bedrock_invoke", FRAMES, chunks(*events)) == [said("Yo", "end")]


@pytest.mark.parametrize(
    ("request_", "messages"),
    [
        ({"inputs": "Hi"}, [user("Hi")]),
        ({"inputs": ["Hi", "there"]}, [user("Hi"), user("there")]),
        ({"inputs": [[{"role": "user", "content": "Hi"}]]}, [user("Hi")]),
        ({"messages": [{"role": "user", "content": "Hi"}]}, [user("Hi")]),
    ],
)
def test_what_a_container_is_asked(request_: Any, messages: Any) -> None:
    """A text, several, a conversation in a list, or a chat."""
    found = content.of_request("sagemaker", json.dumps(request_).encode())
    assert found.input_messages == messages


@pytest.mark.parametrize(
    ("answer", "messages"),
    [
        ([{"generated_text": "Yo"}], [said("Yo")]),
        ({"generated_text": "Yo", "details": {"finish_reason": "end"}}, [said("Yo", "end")]),
        (
            {"choices": [{"message": {"content": "Yo"}, "finish_reason": "end"}]},
            [said("Yo", "end")],
        ),
        ({"generated_text": ""}, None),
        ([], None),
    ],
)
def test_what_a_container_answers(answer: Any, messages: Any) -> None:
    """An object or a list of them."""
    assert content.of_response("sagemaker", json.dumps(answer).encode()) == messages


@pytest.mark.parametrize("size", [1, 7, 1000])
@pytest.mark.parametrize(
    "events",
    [
        sse(
            {"token": {"text": "Y", "special": False}, "generated_text": None},
            {"token": {"text": "o", "special": False}, "generated_text": None},
            {
                "token": {"text": "</s>", "special": True},
                "generated_text": "Yo",
                "details": {"finish_reason": "end"},
            },
        ),
        ndjson({"outputs": ["Y"]}, {"outputs": ["o"]}, {"finish_reason": "end"}),
        sse(
            {"choices": [{"index": 0, "delta": {"content": "Y"}}]},
            {"choices": [{"index": 0, "delta": {"content": "o"}, "finish_reason": "end"}]},
            "[DONE]",
        ),
    ],
    ids=["tgi", "lines", "chat"],
)
def test_a_containers_stream_is_cut_anywhere(events: list[bytes], size: int) -> None:
    """The parts of Amazon's frames are put together before they are read."""
    body = b"".join(events)
    parts = [body[at : at + size] for at in range(0, len(body), size)]
    framed = b"".join(frames(*(("PayloadPart", part) for part in parts)))
    assert content.of_stream("sagemaker", FRAMES, framed) == [said("Yo", "end")]


def test_an_interaction_as_steps_and_as_contents() -> None:
    """Steps, turns with a role, loose contents and a text: what the API takes."""
    read = {
        json.dumps(given): content.of_request(
            "gemini_interactions", json.dumps({"input": given}).encode()
        ).input_messages
        for given in (
            "Hi",
            {"type": "text", "text": "Hi"},
            [{"type": "text", "text": "Hi"}],
            [{"role": "user", "content": "Hi"}],
            [{"type": "user_input", "content": [{"type": "text", "text": "Hi"}]}],
        )
    }
    assert set(map(json.dumps, read.values())) == {json.dumps([user("Hi")])}
    loose = [
        {"type": "text", "text": "Hi"},
        {"type": "image", "uri": "gs://x", "mime_type": "image/png"},
    ]
    one = content.of_request("gemini_interactions", json.dumps({"input": loose}).encode())
    picture = {"type": "uri", "modality": "image", "uri": "gs://x", "mime_type": "image/png"}
    assert one.input_messages == [{"role": "user", "parts": [*user("Hi")["parts"], picture]}]


def test_the_steps_of_an_interaction() -> None:
    """Thoughts, words and calls are the answer; what went in before is not."""
    steps = [
        {"type": "user_input", "content": [{"type": "text", "text": "Hi"}]},
        {"type": "thought", "summary": [{"type": "text", "text": "Hm"}]},
        {"type": "model_output", "content": [{"type": "text", "text": "Yo"}]},
        {"type": "function_call", "id": "c1", "name": "find", "arguments": {"a": 1}},
    ]
    body = json.dumps({"status": "requires_action", "steps": steps}).encode()
    assert content.of_response("gemini_interactions", body) == [
        {
            "role": "assistant",
            "parts": [
                {"type": "reasoning", "content": "Hm"},
                {"type": "text", "content": "Yo"},
                {"type": "tool_call", "name": "find", "arguments": {"a": 1}, "id": "c1"},
            ],
            "finish_reason": "requires_action",
        }
    ]


def recorded(pattern: str) -> list[tuple[str, dict[str, Any]]]:
    found: list[tuple[str, dict[str, Any]]] = []
    for path in sorted(CORPUS.glob(pattern)):
        for number, exchange in enumerate(json.loads(path.read_text())["exchanges"]):
            if exchange["response"]["status"] == 200:
                found.append((f"{path.stem}-{number}", exchange))
    return found


RECORDED = [
    *(("bedrock_invoke", *one) for one in recorded("aws_bedrock/aws-bedrock-invoke*")),
    *(("sagemaker", *one) for one in recorded("aws_sagemaker/*")),
    *(("cohere_chat_v1", *one) for one in recorded("cohere/cohere-chat-v1*")),
    *(("gemini_interactions", *one) for one in recorded("google_gemini/*interactions*")),
]
SILENT = {"aws-bedrock-invoke-model-4c538c34-0", "google-gemini-interactions-a33762d1-0"}
"""Vectors, and an interaction that goes on in the background: there is no answer in them."""


def test_there_are_recordings() -> None:
    """Without the corpus the next test says nothing."""
    if not RECORDED:
        message = f"no recordings under {CORPUS}"
        if os.environ.get("CI") == "true":
            pytest.fail(message)
        pytest.skip(message)
    assert {dialect for dialect, _, _ in RECORDED} == {
        *("bedrock_invoke", "sagemaker", "cohere_chat_v1", "gemini_interactions")
    }


@pytest.mark.parametrize(("dialect", "name", "exchange"), RECORDED, ids=lambda one: str(one)[:60])
def test_recorded_traffic_has_content(dialect: str, name: str, exchange: dict[str, Any]) -> None:
    """What real services were asked and answered is found, whole and streamed."""
    asked, answered = exchange["request"], exchange["response"]
    found = content.of_request(dialect, json.dumps(asked["body"]).encode())
    assert bool(found.input_messages) == (name != "aws-bedrock-invoke-model-4c538c34-0")
    if "base64" in answered:
        messages = content.of_stream(dialect, FRAMES, base64.b64decode(answered["base64"]))
    elif "text" in answered:
        messages = content.of_stream(dialect, "text/event-stream", answered["text"].encode())
    else:
        messages = content.of_response(dialect, json.dumps(answered["body"]).encode())
    if name in SILENT:
        assert messages is None
        return
    # One recording is of an answer that was cut off before its first word.
    assert messages or name == "aws-bedrock-invoke-model-with-response-stream-d3eda989-0"
    for message in messages or ():
        assert message["role"] == "assistant"
        assert message["parts"]
