"""Whatever bytes come: no exception, and the same facts by every way of reading them."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from usual_routes import ADDRESSES, usual_route

from clew import _guard
from clew.facts import RequestFacts, ResponseFacts

CONTENT_TYPES = ("text/event-stream", "application/json", "application/x-ndjson", "", "text/html")
NAMES = st.sampled_from(sorted(ADDRESSES))
FIELDS = [
    "id",
    "model",
    "choices",
    "delta",
    "message",
    "content",
    "text",
    "tool_calls",
    "function",
    "name",
    "index",
    "finish_reason",
    "usage",
    "prompt_tokens",
    "completion_tokens",
    "total_tokens",
    "prompt_tokens_details",
    "cached_tokens",
    "error",
    "type",
    "code",
    "stream",
    "messages",
    "tools",
    "input",
    "output",
    "response",
    "item",
    "status",
    "event_type",
    "step",
    "candidates",
    "parts",
    "functionCall",
    "usageMetadata",
    "promptTokenCount",
    "finishReason",
    "done",
    "eval_count",
    "output",
    "stopReason",
    "inputTokens",
    "stop_reason",
    "content_block",
    "input_tokens",
    "results",
    "generated_token_count",
    "details",
    "billed_units",
    "meta",
    "contents",
    "requests",
    "instances",
    "cost",
    "provider",
    "x_groq",
    "service_tier",
    "outputs",
    "steps",
]
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.integers(2**63 - 2, 2**63)
    | st.floats(allow_nan=False)
    | st.text(max_size=8)
    | st.sampled_from(["stop", "tool_use", "message_start", "function_call", "response.completed"]),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(FIELDS) | st.text(max_size=3), inner, max_size=6)
    ),
    max_leaves=25,
)
PARTS = (
    *("cache_read_tokens", "cache_write_tokens", "reasoning_tokens", "input_audio_tokens"),
    *("output_audio_tokens", "input_image_tokens", "output_image_tokens"),
)


def check(facts: Any, kind: type) -> None:
    """Facts, nothing swallowed on the way to them, and counts that are counts."""
    assert type(facts) is kind
    assert dict(_guard.failures) == {}
    usage = facts.usage if isinstance(facts, ResponseFacts) else None
    if usage is not None:
        for part in PARTS:
            value = getattr(usage, part)
            assert value is None or (type(value) is int and 0 <= value < 2**63), part
        for total in ("input_tokens", "output_tokens"):  # may be sums of counts
            value = getattr(usage, total)
            assert value is None or (type(value) is int and value >= 0), total


@settings(max_examples=300, deadline=None)
@given(NAMES, st.binary(max_size=400), st.sampled_from((200, 201, 400, 500)))
def test_any_bytes_give_facts(name: str, body: bytes, status: int) -> None:
    """Requests, responses and streams of bytes that mean nothing."""
    read_every_way(name, body, status)


@settings(max_examples=500, deadline=None)
@given(NAMES, JSON, st.sampled_from((200, 404)))
def test_any_json_gives_facts(name: str, value: Any, status: int) -> None:
    """JSON of any shape under the names that dialects look for."""
    read_every_way(name, json.dumps(value).encode(), status)


@settings(max_examples=200, deadline=None)
@given(NAMES, st.lists(JSON, max_size=4), st.integers(0, 10**6))
def test_any_events_give_facts(name: str, values: list[Any], cut: int) -> None:
    """Events of any JSON, as server-sent events, lines and an array, cut anywhere."""
    route = usual_route(name)
    texts = [json.dumps(value) for value in values]
    for content_type, body in (
        ("text/event-stream", "".join(f"event: x\ndata: {text}\n\n" for text in texts)),
        ("application/x-ndjson", "".join(f"{text}\n" for text in texts)),
        ("application/json", "[" + ",\r\n".join(texts) + "]"),
    ):
        data = body.encode()
        position = cut % (len(data) + 1)
        reader = route.dialect.stream(route, content_type)
        reader.feed(data[:position])
        check(reader.result(), ResponseFacts)
        reader.feed(data[position:])
        check(reader.result(), ResponseFacts)


def read_every_way(name: str, body: bytes, status: int) -> None:
    """Read a body as a request, a response and a stream."""
    route = usual_route(name)
    check(route.dialect.request(body, route), RequestFacts)
    check(route.dialect.response(body, status, route), ResponseFacts)
    for content_type in CONTENT_TYPES:
        reader = route.dialect.stream(route, content_type)
        half = len(body) // 2
        reader.feed(body[:half])
        reader.feed(body[half:])
        check(reader.result(), ResponseFacts)
        assert reader.result() == reader.result()
