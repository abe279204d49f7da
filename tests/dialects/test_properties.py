"""Whatever bytes come: no exception, and the same facts by every way of reading them."""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clew import _guard
from clew.dialects import recognise
from clew.facts import RequestFacts, ResponseFacts
from clew.typing import Route, StreamReader

ADDRESSES = {
    "openai_chat": ("api.openai.com", "/v1/chat/completions"),
    "openai_completions": ("api.openai.com", "/v1/completions"),
    "openai_responses": ("api.openai.com", "/v1/responses"),
    "openai_embeddings": ("api.openai.com", "/v1/embeddings"),
    "openai_media": ("api.openai.com", "/v1/audio/transcriptions"),
    "anthropic_messages": ("api.anthropic.com", "/v1/messages"),
    "anthropic_complete": ("api.anthropic.com", "/v1/complete"),
    "gemini_content": (
        "generativelanguage.googleapis.com",
        "/v1beta/models/gemini-2.5-flash:streamGenerateContent",
    ),
    "gemini_interactions": ("generativelanguage.googleapis.com", "/v1beta/interactions"),
    "ollama": ("localhost:11434", "/api/chat"),
    "cohere_chat": ("api.cohere.com", "/v2/chat"),
    "cohere_chat_v1": ("api.cohere.com", "/v1/chat"),
    "cohere_generate": ("api.cohere.com", "/v1/generate"),
    "cohere_embed": ("api.cohere.com", "/v2/embed"),
    "rerank": ("api.voyageai.com", "/v1/rerank"),
    "bedrock_converse": ("bedrock-runtime.us-east-1.amazonaws.com", "/model/m/converse-stream"),
    "bedrock_invoke": (
        "bedrock-runtime.us-east-1.amazonaws.com",
        "/model/m/invoke-with-response-stream",
    ),
    "sagemaker": (
        "runtime.sagemaker.us-east-1.amazonaws.com",
        "/endpoints/e/invocations-response-stream",
    ),
    "watsonx_generation": ("us-south.ml.cloud.ibm.com", "/ml/v1/text/generation_stream"),
    "text_generation_inference": ("tgi.internal", "/generate_stream"),
    "llama_cpp_completion": ("llama.internal", "/completion"),
    "replicate_prediction": ("api.replicate.com", "/v1/models/a/b/predictions"),
    "aleph_alpha_complete": ("api.aleph-alpha.com", "/complete"),
    "writer_completion": ("api.writer.com", "/v1/completions"),
    "mistral_ocr": ("api.mistral.ai", "/v1/ocr"),
    "watsonx_vectors": ("us-south.ml.cloud.ibm.com", "/ml/v1/text/embeddings"),
    "unknown": ("api.openai.com", "/v1/threads"),
}
CONTENT_TYPES = ("text/event-stream", "application/json", "application/x-ndjson", "", "text/html")


def route_of(name: str) -> Route:
    """Return the route of a dialect's usual address."""
    route = recognise("POST", *ADDRESSES[name])
    assert route is not None
    assert route.dialect.name == name
    return route


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
    route = route_of(name)
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
    route = route_of(name)
    check(route.dialect.request(body, route), RequestFacts)
    check(route.dialect.response(body, status, route), ResponseFacts)
    for content_type in CONTENT_TYPES:
        reader = route.dialect.stream(route, content_type)
        half = len(body) // 2
        reader.feed(body[:half])
        reader.feed(body[half:])
        check(reader.result(), ResponseFacts)
        assert reader.result() == reader.result()


# --- streams that mean something -----------------------------------------------------------------

HARD_TEXTS = (
    '"usage":{"prompt_tokens":9}',
    '"finish_reason":"stop"',
    '"error":{"type":"x"}',
    '\\"name\\":\\"f\\"',
    '"}}],"tool_calls":[{"id":"a","function":{"name":"f"}}]',
    "\\",
    "\\\\",
    '"',
    '\\"',
    "\n\ndata: [DONE]\n\n",
    "event: response.completed",
    "\r\n\r\n",
    "é 漢 😀",
    "\u2028",
    "12 3.5e7",
)
TEXTS = st.one_of(
    st.text(max_size=12), st.sampled_from(HARD_TEXTS), st.just("word"), st.just("another")
)


def events_of(name: str, draw: Callable[[Any], Any]) -> list[dict[str, Any]]:
    """Draw a plausible stream of a dialect."""
    return [GENERATORS[name](draw) for _ in range(draw(st.integers(0, 12)))]


def chat_chunk(draw: Callable[[Any], Any]) -> dict[str, Any]:
    """Draw a chat completions chunk."""
    kind = draw(st.sampled_from(["content"] * 6 + ["reasoning", "call", "arguments", "end"]))
    delta: dict[str, Any] = {}
    if kind in ("content", "reasoning"):
        delta = {kind: draw(TEXTS)}
    elif kind == "call":
        call = {"index": draw(st.integers(0, 2)), "id": draw(st.sampled_from(["a", "b", ""]))}
        delta = {"tool_calls": [call | {"function": {"name": "f", "arguments": ""}}]}
    elif kind == "arguments":
        delta = {"tool_calls": [{"index": 0, "function": {"arguments": draw(TEXTS)}}]}
    index = draw(st.sampled_from([0, 0, 0, 0, 1]))
    finish = draw(st.sampled_from(["stop", "length", "weird"])) if kind == "end" else None
    chunk: dict[str, Any] = {
        "id": draw(st.sampled_from(["c1", "c1", "c1", ""])),
        "created": draw(st.sampled_from([1, 1, 1, 2])),
        "model": "m-1",
        "choices": [{"index": index, "delta": delta, "finish_reason": finish}],
    }
    if draw(st.booleans()):
        chunk["obfuscation"] = draw(st.text("abcdef", max_size=6))
    if draw(st.integers(0, 5)) == 0:
        chunk["usage"] = {
            "prompt_tokens": draw(st.integers(0, 300)),
            "completion_tokens": draw(st.integers(0, 30)),
        }
    if draw(st.integers(0, 15)) == 0:
        chunk["error"] = {"type": "overloaded", "code": 529}
    return chunk


def responses_event(draw: Callable[[Any], Any]) -> dict[str, Any]:
    """Draw a Responses event."""
    kind = draw(
        st.sampled_from(
            ["response.output_text.delta"] * 5
            + ["response.function_call_arguments.delta", "response.output_item.added"]
            + ["response.created", "response.completed", "error"]
        )
    )
    event: dict[str, Any] = {"type": kind, "sequence_number": draw(st.integers(0, 99))}
    if kind.endswith(".delta"):
        event |= {"delta": draw(TEXTS), "item_id": "i1", "output_index": 0}
    elif kind == "response.output_item.added":
        item = {"type": "function_call", "call_id": draw(st.sampled_from("ab")), "name": "f"}
        event |= {"output_index": draw(st.integers(0, 2)), "item": item}
    elif kind == "error":
        event |= {"code": "x", "message": draw(TEXTS)}
    else:
        usage = {"input_tokens": draw(st.integers(0, 50)), "output_tokens": 3}
        event["response"] = {"id": "r1", "model": "m", "status": "completed", "usage": usage}
    return event


def anthropic_event(draw: Callable[[Any], Any]) -> dict[str, Any]:
    """Draw an Anthropic event."""
    kind = draw(
        st.sampled_from(
            ["content_block_delta"] * 5
            + ["message_start", "content_block_start", "message_delta", "ping", "message_stop"]
        )
    )
    event: dict[str, Any] = {"type": kind}
    index = draw(st.integers(0, 2))
    if kind == "content_block_delta":
        delta = {"type": "text_delta", "text": draw(TEXTS)}
        if draw(st.booleans()):
            delta = {"type": "input_json_delta", "partial_json": draw(TEXTS)}
        event |= {"index": index, "delta": delta}
    elif kind == "content_block_start":
        block = {"type": "tool_use", "id": draw(st.sampled_from("ab")), "name": "f", "input": {}}
        event |= {"index": index, "content_block": block}
    elif kind == "message_start":
        usage = {"input_tokens": draw(st.integers(0, 50)), "output_tokens": 1}
        event["message"] = {"id": "m1", "model": "claude", "usage": usage}
    elif kind == "message_delta":
        usage = {"output_tokens": draw(st.integers(0, 50))}
        event |= {"delta": {"stop_reason": "end_turn"}, "usage": usage}
    return event


def gemini_chunk(draw: Callable[[Any], Any]) -> dict[str, Any]:
    """Draw a Gemini chunk."""
    part: dict[str, Any] = {"text": draw(TEXTS)}
    if draw(st.integers(0, 5)) == 0:
        part = {"functionCall": {"name": "f", "args": {}}}
    candidate: dict[str, Any] = {"content": {"parts": [part], "role": "model"}}
    candidate["index"] = draw(st.sampled_from([0, 0, 0, 1]))
    if draw(st.integers(0, 6)) == 0:
        candidate["finishReason"] = "STOP"
    chunk: dict[str, Any] = {"candidates": [candidate]}
    if draw(st.booleans()):
        chunk["usageMetadata"] = {
            "promptTokenCount": draw(st.integers(0, 500)),
            "candidatesTokenCount": draw(st.integers(0, 500)),
        }
    return chunk | {"modelVersion": "gemini", "responseId": "r"}


def ollama_line(draw: Callable[[Any], Any]) -> dict[str, Any]:
    """Draw a line of Ollama's."""
    line: dict[str, Any] = {"model": "llama", "created_at": draw(st.sampled_from(["t1", "t2"]))}
    line["message"] = {"role": "assistant", "content": draw(TEXTS)}
    if draw(st.integers(0, 6)) == 0:
        line["message"]["tool_calls"] = [{"function": {"name": "f", "arguments": {}}}]
    line["done"] = draw(st.integers(0, 6)) == 0
    if line["done"]:
        line |= {"done_reason": "stop", "eval_count": draw(st.integers(0, 50))}
    return line


def cohere_event(draw: Callable[[Any], Any]) -> dict[str, Any]:
    """Draw a Cohere event."""
    kind = draw(st.sampled_from(["content-delta"] * 5 + ["tool-call-start", "message-end"]))
    event: dict[str, Any] = {"type": kind, "index": draw(st.integers(0, 2))}
    if kind == "content-delta":
        return event | {"delta": {"message": {"content": {"text": draw(TEXTS)}}}}
    if kind == "tool-call-start":
        call = {"id": draw(st.sampled_from("ab")), "function": {"name": "f", "arguments": ""}}
        return event | {"delta": {"message": {"tool_calls": call}}}
    usage = {"billed_units": {"input_tokens": draw(st.integers(0, 9)), "output_tokens": 2}}
    return event | {"delta": {"finish_reason": "COMPLETE", "usage": usage}}


GENERATORS = {
    "openai_chat": chat_chunk,
    "openai_responses": responses_event,
    "anthropic_messages": anthropic_event,
    "gemini_content": gemini_chunk,
    "ollama": ollama_line,
    "cohere_chat": cohere_event,
}


def written(name: str, events: list[dict[str, Any]], draw: Callable[[Any], Any]) -> bytes:
    """Write a stream in one of the ways servers do."""
    spaced = draw(st.booleans())
    style = {
        "separators": (", ", ": ") if spaced else (",", ":"),
        "ensure_ascii": draw(st.booleans()),
    }
    texts = [json.dumps(event, **style) for event in events]
    if name == "ollama":
        return "".join(text + "\n" for text in texts).encode()
    end = draw(st.sampled_from(["\n", "\n", "\r\n", "\r"]))
    named = draw(st.booleans())
    lines: list[str] = []
    for event, text in zip(events, texts, strict=True):
        if draw(st.integers(0, 9)) == 0:
            lines += [": comment", ""]
        if named and "type" in event:
            lines.append(f"event: {event['type']}")
        padding = " " * draw(st.integers(0, 3)) if draw(st.booleans()) else ""
        lines += [f"data: {text[:-1]}{padding}{text[-1]}", ""]
    if draw(st.booleans()):
        lines += ["data: [DONE]", ""]
    return "".join(line + end for line in lines).encode()


def slowly(reader: StreamReader) -> StreamReader:
    """Switch a reader's fast path off."""
    kind = type(reader)
    off = type(kind.__name__, (kind,), {"__slots__": (), "holes": None, "quiet_types": frozenset()})
    reader.__class__ = off  # type: ignore[misc]
    return reader


def outcome(reader: StreamReader, pieces: list[bytes]) -> tuple[ResponseFacts, int, bool]:
    """Feed a reader; return all it says."""
    for piece in pieces:
        reader.feed(piece)
    return reader.result(), reader.chunks, reader.started


@pytest.mark.parametrize("name", sorted(GENERATORS))
def test_fast_and_slow_reading_agree_however_the_stream_is_cut(name: str) -> None:
    """Templates and types only save work: no fact is missed, whatever the content looks like."""

    @settings(max_examples=150, deadline=None)
    @given(st.data())
    def run(data: st.DataObject) -> None:
        events = events_of(name, data.draw)
        body = written(name, events, data.draw)
        cut = random.Random(data.draw(st.integers(0, 10**6)))  # noqa: S311
        route = route_of(name)
        kind = "application/x-ndjson" if name == "ollama" else "text/event-stream"

        def fresh() -> StreamReader:
            return route.dialect.stream(route, kind)

        whole = [body]
        single = split_after(body, b"\n" if name == "ollama" else b"\n\n")
        anywhere = random_pieces(body, cut)
        expected = outcome(slowly(fresh()), whole)
        assert outcome(fresh(), whole) == expected
        assert outcome(fresh(), single) == expected
        assert outcome(slowly(fresh()), single) == expected
        assert outcome(fresh(), anywhere) == expected
        assert outcome(fresh(), [body[at : at + 1] for at in range(len(body))]) == expected
        assert dict(_guard.failures) == {}

    run()


def split_after(body: bytes, end: bytes) -> list[bytes]:
    """Cut a body after each `end`."""
    pieces = [piece + end for piece in body.split(end)]
    pieces[-1] = pieces[-1][: -len(end)]
    return pieces


def random_pieces(body: bytes, cut: random.Random) -> list[bytes]:
    """Cut a body at random places."""
    pieces: list[bytes] = []
    while body:
        size = cut.choice((1, 2, 3, 40, 150, 400))
        pieces.append(body[:size])
        body = body[size:]
    return pieces


def test_an_array_of_chunks_reads_the_same_however_it_is_cut() -> None:
    """Gemini without `alt=sse`: one JSON array, separators in any piece."""

    @settings(max_examples=150, deadline=None)
    @given(st.data())
    def run(data: st.DataObject) -> None:
        events = events_of("gemini_content", data.draw)
        indent = data.draw(st.sampled_from([None, 1]))
        separator = data.draw(st.sampled_from([",\r\n", ",\n", ",", "\n,\r\n"]))
        body = "[" + separator.join(json.dumps(event, indent=indent) for event in events) + "\n]"
        data_bytes = body.encode()
        cut = random.Random(data.draw(st.integers(0, 10**6)))  # noqa: S311
        route = route_of("gemini_content")

        def fresh() -> StreamReader:
            return route.dialect.stream(route, "application/json; charset=UTF-8")

        expected = outcome(slowly(fresh()), [data_bytes])
        assert expected[1] == len(events)
        assert outcome(fresh(), random_pieces(data_bytes, cut)) == expected
        assert outcome(fresh(), split_after(data_bytes, b",\r\n")) == expected
        assert (
            outcome(fresh(), [data_bytes[at : at + 1] for at in range(len(data_bytes))]) == expected
        )

    run()


def frame(kind: str, payload: bytes) -> bytes:
    """Write an event stream frame (checksums are not looked at)."""
    head = b"".join(
        bytes([len(name)])
        + name.encode()
        + b"\x07"
        + struct.pack(">H", len(value))
        + value.encode()
        for name, value in ((":event-type", kind), (":message-type", "event"))
    )
    total = 16 + len(head) + len(payload)
    return struct.pack(">III", total, len(head), 0) + head + payload + b"\0\0\0\0"


def test_frames_read_the_same_however_they_are_cut() -> None:
    """Bedrock's event stream: frames in any pieces, with the fast path and without."""

    @settings(max_examples=150, deadline=None)
    @given(st.data())
    def run(data: st.DataObject) -> None:
        draw = data.draw
        frames: list[bytes] = []
        for _ in range(draw(st.integers(0, 10))):
            kind = draw(
                st.sampled_from(["contentBlockDelta"] * 4 + ["contentBlockStart", "metadata"])
            )
            payload: dict[str, Any] = {"contentBlockIndex": draw(st.integers(0, 2))}
            if kind == "contentBlockDelta":
                payload["delta"] = {"text": draw(TEXTS)}
            elif kind == "contentBlockStart":
                payload["start"] = {
                    "toolUse": {"toolUseId": draw(st.sampled_from("ab")), "name": "f"}
                }
            else:
                payload = {"usage": {"inputTokens": draw(st.integers(0, 9)), "outputTokens": 1}}
            frames.append(frame(kind, json.dumps(payload).encode()))
        body = b"".join(frames)
        cut = random.Random(draw(st.integers(0, 10**6)))  # noqa: S311
        route = route_of("bedrock_converse")

        def fresh() -> StreamReader:
            return route.dialect.stream(route, "application/vnd.amazon.eventstream")

        expected = outcome(fresh(), [body])
        assert expected[1] == len(frames)
        assert outcome(fresh(), frames) == expected
        assert outcome(fresh(), random_pieces(body, cut)) == expected
        assert outcome(fresh(), [body[at : at + 1] for at in range(len(body))]) == expected

    run()
