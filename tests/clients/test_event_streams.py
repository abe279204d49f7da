"""Streams whose events each provider shapes its own way: running counts, and typed events."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest
from either_way import settle
from kits.comparing import streamed

from clew.testing import Reply, ScriptedProvider, WireFormat, captured, sse
from clew.testing.bedrock_format import frame

# --- counts that run along ----------------------------------------------------------------------------


def gemini_chunk(text: str, **usage: int) -> bytes:
    content = {"role": "model", "parts": [{"text": text}]}
    return sse(
        {
            "candidates": [{"content": content, "index": 0}],
            "usageMetadata": usage,
            "modelVersion": "gemini-2.5-flash",
        }
    )


@pytest.mark.kits("sdks", provider="Google Gemini")
@pytest.mark.parametrize("last", [True, False], ids=["whole", "without the input"])
async def test_gemini_counts_run_along(last: bool, kit: Any, compare: Any):
    """Every chunk reports what there was until then: the last report of each count holds."""
    pieces = [
        gemini_chunk(f"zqmark {output}", promptTokenCount=12, candidatesTokenCount=output)
        for output in (3, 7, 11)
    ]
    ending = {"promptTokenCount": 12} if last else {}
    pieces.append(gemini_chunk("zqmark", **ending, candidatesTokenCount=15))
    found = await compare(streamed, Reply.verbatim(*pieces))
    assert len(found.value) == 4
    assert found.usage == {"input": 12, "output": 15}


@pytest.mark.kits("sdks", provider="Amazon Bedrock", having="invoke")
async def test_invoked_models_counts_run_along(kit: Any, compare: Any):
    """Two reports of a model's own stream inside frames: the last of each count holds."""
    from base64 import b64encode

    def chunk(event: Any) -> bytes:
        return frame("chunk", {"bytes": b64encode(json.dumps(event).encode()).decode()})

    opening = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-haiku-4-5",
        "content": [],
        "usage": {"input_tokens": 100, "output_tokens": 1},
    }
    pieces = [
        chunk({"type": "message_start", "message": opening}),
        chunk({"type": "message_delta", "delta": {}, "usage": {"output_tokens": 40}}),
        chunk(
            {
                "type": "message_delta",
                "delta": {"stop_reason": "end_turn"},
                "usage": {"input_tokens": 2600, "output_tokens": 85},
            }
        ),
        chunk({"type": "message_stop"}),
    ]
    reply = Reply.verbatim(*pieces, content_type="application/vnd.amazon.eventstream")
    found = await compare(streamed, reply)
    assert len(found.value) == 4
    assert found.usage == {"input": 2600, "output": 85}
    assert found.told("clew.stream.outcome") == {"clew.stream.outcome": "complete"}


# --- events of the Responses API ------------------------------------------------------------------------


class AnyPath(WireFormat):
    """Answers every path; the replies say it all."""

    def matches(self, method: str, path: str) -> bool:
        return True

    def headers(self, number: int) -> dict[str, str]:
        return {"x-request-id": f"req_{number}"}


def response_events() -> list[bytes]:
    """Return a stream with text and a tool call, ending with usage 50/20, of which 8 reasoning."""
    base: dict[str, Any] = {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "model": "gpt-5-mini-2026",
        "status": "in_progress",
        "output": [],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
    }
    text = {"type": "output_text", "text": "zqmark text", "annotations": [], "logprobs": []}
    message = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "status": "completed",
        "content": [text],
    }
    call = {
        "id": "fc_1",
        "type": "function_call",
        "call_id": "call_1",
        "name": "find",
        "arguments": '{"place": "zqmark"}',
        "status": "completed",
    }
    usage = {
        "input_tokens": 50,
        "input_tokens_details": {"cached_tokens": 10},
        "output_tokens": 20,
        "output_tokens_details": {"reasoning_tokens": 8},
        "total_tokens": 70,
    }
    done = {**base, "status": "completed", "output": [message, call], "usage": usage}
    where = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
    opened = {**message, "content": [], "status": "in_progress"}
    events: list[dict[str, Any]] = [
        {"type": "response.created", "response": base},
        {"type": "response.output_item.added", "output_index": 0, "item": opened},
        {"type": "response.content_part.added", **where, "part": {**text, "text": ""}},
        {"type": "response.output_text.delta", **where, "delta": "zqmark text", "logprobs": []},
        {"type": "response.output_text.done", **where, "text": "zqmark text", "logprobs": []},
        {"type": "response.content_part.done", **where, "part": text},
        {"type": "response.output_item.done", "output_index": 0, "item": message},
        {
            "type": "response.output_item.added",
            "output_index": 1,
            "item": {**call, "arguments": "", "status": "in_progress"},
        },
        {
            "type": "response.function_call_arguments.delta",
            "item_id": "fc_1",
            "output_index": 1,
            "delta": call["arguments"],
        },
        {
            "type": "response.function_call_arguments.done",
            "item_id": "fc_1",
            "output_index": 1,
            "name": "find",
            "arguments": call["arguments"],
        },
        {"type": "response.output_item.done", "output_index": 1, "item": call},
        {"type": "response.completed", "response": done},
    ]
    return [
        sse({**event, "sequence_number": number}, event["type"])
        for number, event in enumerate(events)
    ]


TOOLS: list[dict[str, Any]] = [
    {
        "type": "function",
        "name": "find",
        "strict": False,
        "parameters": {"type": "object", "properties": {}},
    }
]


def openai_client(server: Any, asynchronous: bool) -> Any:
    kind = openai.AsyncOpenAI if asynchronous else openai.OpenAI
    return kind(base_url=server.openai_base_url, api_key="key", max_retries=0, timeout=10)


def azure_client(server: Any, asynchronous: bool) -> Any:
    kind = openai.AsyncAzureOpenAI if asynchronous else openai.AzureOpenAI
    return kind(
        azure_endpoint=server.base_url,
        api_key="key",
        api_version="2026-01-01",
        max_retries=0,
        timeout=10,
    )


async def kinds(stream: Any) -> list[str]:
    if hasattr(stream, "__aiter__"):
        return [event.type async for event in stream]
    return [event.type for event in stream]


async def created(client: Any) -> list[str]:
    """`responses.create(stream=True)`."""
    call = client.responses.create(model="gpt-5-mini", input="zqmark", tools=TOOLS, stream=True)
    return await kinds(await settle(call))


async def helped(client: Any) -> list[str]:
    """`responses.stream(...)`, with its final response."""
    manager = client.responses.stream(model="gpt-5-mini", input="zqmark", tools=TOOLS)
    if hasattr(manager, "__aenter__"):
        async with manager as stream:
            return await whole(stream)
    with manager as stream:
        return await whole(stream)


async def whole(stream: Any) -> list[str]:
    seen = await kinds(stream)
    final = await settle(stream.get_final_response())
    assert final.status == "completed"
    assert [item.type for item in final.output] == ["message", "function_call"]
    assert final.usage.output_tokens_details.reasoning_tokens == 8
    return seen


async def unwrapped(client: Any) -> list[str]:
    """`with_raw_response` and `with_streaming_response`, whose parse gives the events."""
    raw = client.responses.with_raw_response
    call = raw.create(model="gpt-5-mini", input="zqmark", tools=TOOLS, stream=True)
    return await kinds(await settle((await settle(call)).parse()))


@pytest.mark.parametrize("make", [openai_client, azure_client], ids=["openai", "azure"])
@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize("call", [created, helped, unwrapped])
async def test_events_of_responses(call: Any, asynchronous: bool, make: Any):
    """One span with what the closing event says: status, tool calls, and usage 50/20/8."""
    events = response_events()
    with (
        ScriptedProvider([Reply.verbatim(*events)], formats=[AnyPath()]) as server,  # type: ignore[abstract]
        captured() as exporter,
    ):
        client = make(server, asynchronous)
        seen = await call(client)
        await settle(client.close())
        (span,) = [one for one in exporter.spans if "clew.attempts" in one.attributes]
        assert b"zqmark" not in exporter.otlp_bytes()
    assert seen[0] == "response.created"
    assert seen[-1] == "response.completed"
    assert span.name == "chat gpt-5-mini"
    expected = {
        "gen_ai.usage.input_tokens": 50,
        "gen_ai.usage.output_tokens": 20,
        "gen_ai.usage.reasoning.output_tokens": 8,
        "gen_ai.usage.cache_read.input_tokens": 10,
        "gen_ai.response.finish_reasons": ("tool_call",),
        "clew.response.tool_call.names": ("find",),
        "clew.stream.outcome": "complete",
        "gen_ai.response.model": "gpt-5-mini-2026",
    }
    assert {key: span.attributes.get(key) for key in expected} == expected
