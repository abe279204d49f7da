"""Amazon's event streams: Bedrock Converse, Bedrock InvokeModel, SageMaker endpoints."""

from __future__ import annotations

import base64
import json
import struct
from typing import Any

import pytest
from wire_reading import facts_of, nameless, stream_of

from clew.facts import ErrorFacts, ResponseFacts, ToolCall, Usage

pytestmark = pytest.mark.usefixtures("no_faults")

BEDROCK = "bedrock-runtime.us-east-1.amazonaws.com"
CONVERSE = (BEDROCK, "/model/m/converse-stream")
INVOKE = (BEDROCK, "/model/m/invoke-with-response-stream")


def frame(kind: str, payload: Any, *, message: str = "event") -> bytes:
    """Write an event stream frame."""
    name = ":exception-type" if message == "exception" else ":event-type"
    head = b"".join(
        bytes([len(key)]) + key.encode() + b"\x07" + struct.pack(">H", len(value)) + value.encode()
        for key, value in (
            (name, kind),
            (":content-type", "application/json"),
            (":message-type", message),
        )
    )
    data = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
    return struct.pack(">III", 16 + len(head) + len(data), len(head), 0) + head + data + b"\0\0\0\0"


def chunks(*bodies: Any) -> list[bytes]:
    """Write model bodies as chunks of Bedrock's InvokeModelWithResponseStream."""
    return [
        frame("chunk", {"bytes": base64.b64encode(json.dumps(body).encode()).decode(), "p": "abc"})
        for body in bodies
    ]


# --- Bedrock -----------------------------------------------------------------------------------------


def test_a_converse_stream_with_parallel_calls():
    """Blocks by index; the provider's own tools are left out."""

    def start(index: int, **call: str) -> bytes:
        return frame("contentBlockStart", {"contentBlockIndex": index, "start": {"toolUse": call}})

    reader = stream_of(
        CONVERSE,
        [
            frame("messageStart", {"role": "assistant"}),
            start(1, toolUseId="b1", name="f"),
            start(3, toolUseId="b3", name="h", type="server_tool_use"),
            start(2, toolUseId="b2", name="g"),
            frame(
                "contentBlockDelta", {"contentBlockIndex": 2, "delta": {"toolUse": {"input": "{"}}}
            ),
            frame("messageStop", {"stopReason": "tool_use"}),
            frame("metadata", {"usage": {"inputTokens": 5, "outputTokens": 2, "totalTokens": 7}}),
        ],
        "application/vnd.amazon.eventstream",
    )
    assert reader.result() == ResponseFacts(
        finish_reasons=("tool_call",),
        finish_reasons_raw=("tool_use",),
        tool_calls=(ToolCall("b1", "f"), ToolCall("b2", "g")),
        usage=Usage(input_tokens=5, output_tokens=2),
    )
    assert (reader.chunks, reader.started) == (7, True)


def test_an_exception_inside_an_event_stream():
    """Named by its header."""
    pieces = [
        frame("messageStart", {"role": "assistant"}),
        frame("contentBlockDelta", {"contentBlockIndex": 0, "delta": {"text": "x"}}),
        frame("throttlingException", {"message": "SECRET"}, message="exception"),
    ]
    facts = stream_of(CONVERSE, pieces, "application/vnd.amazon.eventstream").result()
    assert (facts.error, facts.complete) == (ErrorFacts("throttlingException"), False)


@pytest.mark.parametrize(
    ("bodies", "word", "usage"),
    [
        # Anthropic
        (
            [
                {"type": "message_start", "message": {"id": "m", "usage": {"input_tokens": 5, "output_tokens": 1}}},
                *[{"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "x"}}] * 3,
                {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 2}},
                {"type": "message_stop", "amazon-bedrock-invocationMetrics": {"inputTokenCount": 9, "outputTokenCount": 9}},
            ],
            "end_turn",
            Usage(input_tokens=5, output_tokens=2),
        ),
        # Nova
        (
            [
                {"messageStart": {"role": "assistant"}},
                *[{"contentBlockDelta": {"delta": {"text": "x"}, "contentBlockIndex": 0}}] * 3,
                {"messageStop": {"stopReason": "end_turn"}},
                {"metadata": {"usage": {"inputTokens": 5, "outputTokens": 2}}},
            ],
            "end_turn",
            Usage(input_tokens=5, output_tokens=2),
        ),
        # Llama
        (
            [
                {"generation": "x", "prompt_token_count": 5, "generation_token_count": 1, "stop_reason": None},
                *[
                    {"generation": f"w{n}", "prompt_token_count": None, "generation_token_count": n, "stop_reason": None}
                    for n in range(2, 9)
                ],
                {"generation": "", "prompt_token_count": None, "generation_token_count": None, "stop_reason": "stop"},
            ],
            "stop",
            Usage(input_tokens=5, output_tokens=8),
        ),
        # Mistral: counts in the metrics only
        (
            [
                {"outputs": [{"text": "x", "stop_reason": None}]},
                {"outputs": [{"text": "", "stop_reason": "length"}], "amazon-bedrock-invocationMetrics": {"inputTokenCount": 5, "outputTokenCount": 2}},
            ],
            "length",
            Usage(input_tokens=5, output_tokens=2),
        ),
        # Titan
        (
            [
                {"outputText": "x", "index": 0, "inputTextTokenCount": 5},
                {"outputText": "y", "index": 0, "totalOutputTextTokenCount": 2, "completionReason": "FINISH"},
            ],
            "FINISH",
            Usage(input_tokens=5, output_tokens=2),
        ),
        # Cohere
        (
            [
                {"text": "x", "is_finished": False},
                {"text": "", "is_finished": True, "finish_reason": "COMPLETE", "amazon-bedrock-invocationMetrics": {"inputTokenCount": 5, "outputTokenCount": 2}},
            ],
            "COMPLETE",
            Usage(input_tokens=5, output_tokens=2),
        ),
        # the OpenAI shape
        (
            [
                {"id": "c", "choices": [{"index": 0, "delta": {"content": "x"}}]},
                {"id": "c", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}], "usage": {"prompt_tokens": 5, "completion_tokens": 2}},
            ],
            "stop",
            Usage(input_tokens=5, output_tokens=2),
        ),
    ],
)  # fmt: skip
def test_streams_of_bedrock_invoke(bodies: list[Any], word: str, usage: Usage):
    """Each family's own chunks, in frames."""
    reader = stream_of(INVOKE, chunks(*bodies), "application/vnd.amazon.eventstream")
    facts = reader.result()
    assert (facts.finish_reasons_raw, facts.usage) == ((word,), usage)
    assert (facts.complete, reader.chunks, reader.started) == (True, len(bodies), True)


@pytest.mark.parametrize(
    ("body", "word"),
    [
        ({"generation": "x", "prompt_token_count": 5, "generation_token_count": 2, "stop_reason": "stop"}, "stop"),
        ({"outputs": [{"text": "x", "stop_reason": "length"}]}, "length"),
        ({"inputTextTokenCount": 5, "results": [{"tokenCount": 2, "completionReason": "FINISH"}]}, "FINISH"),
        ({"completion": "x", "stop_reason": "stop_sequence"}, "stop_sequence"),
        ({"generations": [{"text": "x", "finish_reason": "COMPLETE"}]}, "COMPLETE"),
        ({"id": 1234, "completions": [{"finishReason": {"reason": "endoftext"}}]}, "endoftext"),
        ({"choices": [{"text": "x", "finish_reason": "stop"}]}, "stop"),
        ({"type": "message", "content": [], "stop_reason": "end_turn", "id": "m"}, "end_turn"),
        ({"output": {"message": {"content": []}}, "stopReason": "end_turn"}, "end_turn"),
    ],
)  # fmt: skip
def test_bodies_of_bedrock_invoke(body: dict[str, Any], word: str):
    """Each family's own body; counts that it leaves out stand in headers."""
    headers = {"X-Amzn-Bedrock-Input-Token-Count": "5", "X-Amzn-Bedrock-Output-Token-Count": "2"}
    facts = facts_of((BEDROCK, "/model/m/invoke"), body, headers)
    assert facts.finish_reasons_raw == (word,)
    assert facts.usage == Usage(input_tokens=5, output_tokens=2)


def test_text_chunks_of_bedrock_invoke_are_not_all_decoded(monkeypatch: pytest.MonkeyPatch):
    """What changes is a word and a count: the last count is read in the end."""
    from clew.dialects import bedrock_invoke

    decoded: list[bytes] = []

    def counting(body: bytes) -> Any:
        decoded.append(body)
        return json.loads(body)

    monkeypatch.setattr(bedrock_invoke, "loads", counting)
    bodies = [
        {
            "generation": f"w{n}",
            "prompt_token_count": None,
            "generation_token_count": n,
            "stop_reason": None,
        }
        for n in range(1, 50)
    ]
    reader = stream_of(INVOKE, chunks(*bodies), "application/vnd.amazon.eventstream")
    assert reader.result().usage == Usage(output_tokens=49)
    assert len(decoded) <= 4


def test_sagemaker_streams():
    """Payload parts hold events or lines, cut anywhere, of either shape."""
    address = (
        "runtime.sagemaker.us-east-1.amazonaws.com",
        "/endpoints/e/invocations-response-stream",
    )
    kind = "application/vnd.amazon.eventstream"
    chat = b"".join(
        nameless(
            {"id": "c", "model": "m", "choices": [{"index": 0, "delta": {"content": "x"}}]},
            {"id": "c", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
        )
    )
    reader = stream_of(
        address, [frame("PayloadPart", chat[:60]), frame("PayloadPart", chat[60:])], kind
    )
    assert reader.result().finish_reasons == ("stop",)
    lines = b'{"token":{"text":"x"}}\n{"token":{"text":""},"generated_text":"x",'
    lines += b'"details":{"finish_reason":"length","generated_tokens":2}}\n'
    reader = stream_of(address, [frame("PayloadPart", lines)], kind)
    facts = reader.result()
    assert (facts.finish_reasons, facts.usage) == (("length",), Usage(output_tokens=2))
    assert reader.started
