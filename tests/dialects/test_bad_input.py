"""Bodies that are odd, broken, huge or hostile."""

from __future__ import annotations

import json
import time
import tracemalloc
from typing import Any

import pytest
from wire_reading import CHAT, COHERE, MESSAGES, OLLAMA, RESPONSES, route_of

from clew import _guard
from clew.facts import ErrorFacts, RequestFacts, ResponseFacts, ToolCall, Usage

GEMINI = ("generativelanguage.googleapis.com", "/v1beta/models/m:generateContent")
CONVERSE = ("bedrock-runtime.us-east-1.amazonaws.com", "/model/m/converse")
ALL = (CHAT, RESPONSES, MESSAGES, GEMINI, CONVERSE, OLLAMA, COHERE)


def response_of(address: tuple[str, str], body: bytes | Any, status: int = 200) -> ResponseFacts:
    """Read a response."""
    route = route_of(address)
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    facts = route.dialect.response(data, status, route)
    assert dict(_guard.failures) == {}
    return facts


def request_of(address: tuple[str, str], body: bytes | Any) -> RequestFacts:
    """Read a request."""
    route = route_of(address)
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    facts = route.dialect.request(data, route)
    assert dict(_guard.failures) == {}
    return facts


COMPLETION: dict[str, Any] = {
    "id": "c1",
    "model": "m-1",
    "choices": [{"index": 0, "message": {"content": "x"}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10},
}
FACTS = ResponseFacts(
    id="c1",
    model="m-1",
    finish_reasons=("stop",),
    finish_reasons_raw=("stop",),
    usage=Usage(input_tokens=7, output_tokens=3),
)


@pytest.mark.parametrize(
    ("change", "lost"),
    [
        ({"id": 5}, {"id": None}),
        ({"model": ["m"]}, {"model": None}),
        ({"usage": "none"}, {"usage": None}),
        ({"usage": [1, 2]}, {"usage": None}),
        ({"choices": "x"}, {"finish_reasons": (), "finish_reasons_raw": ()}),
        ({"choices": {"0": 1}}, {"finish_reasons": (), "finish_reasons_raw": ()}),
        ({"choices": [5, None]}, {"finish_reasons": (), "finish_reasons_raw": ()}),
        ({"system_fingerprint": {}}, {}),
        ({"service_tier": 5}, {}),
        ({"error": None}, {}),
        ({"error": ""}, {}),
        ({"error": "SECRET"}, {"error": ErrorFacts(None, None)}),
        ({"error": {"type": "x", "code": 429}}, {"error": ErrorFacts("x", 429)}),
        ({"unknown": [[[{"deep": 1}]]]}, {}),
    ],
)
def test_one_odd_field_costs_no_other(change: dict[str, Any], lost: dict[str, Any]):
    """A field of the wrong type is unknown; what stands beside it is read."""
    found = response_of(CHAT, COMPLETION | change)
    expected = {name: getattr(FACTS, name) for name in FACTS.__struct_fields__} | lost
    assert found == ResponseFacts(**expected)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"prompt_tokens": -5}, Usage(output_tokens=3)),
        ({"prompt_tokens": 7.0}, Usage(input_tokens=7, output_tokens=3)),
        ({"prompt_tokens": 7.5}, Usage(output_tokens=3)),
        ({"prompt_tokens": "7"}, Usage(input_tokens=7, output_tokens=3)),
        ({"prompt_tokens": "seven"}, Usage(output_tokens=3)),
        ({"prompt_tokens": True}, Usage(output_tokens=3)),
        ({"prompt_tokens": 2**63}, Usage(output_tokens=3)),
        ({"prompt_tokens": 2**63 - 1, "total_tokens": None}, Usage(input_tokens=2**63 - 1, output_tokens=3)),
        ({"prompt_tokens": 10**80}, Usage(output_tokens=3)),
        ({"prompt_tokens": {}}, Usage(output_tokens=3)),
        ({"prompt_tokens_details": 5}, Usage(input_tokens=7, output_tokens=3)),
        ({"prompt_tokens_details": {"cached_tokens": "x", "audio_tokens": 2}}, Usage(input_tokens=7, output_tokens=3, input_audio_tokens=2)),
    ],
)  # fmt: skip
def test_odd_counts(change: dict[str, Any], expected: Usage):
    """Negative, fractional, boolean and enormous counts are none; digits in a string are one."""
    found = response_of(CHAT, COMPLETION | {"usage": COMPLETION["usage"] | change})
    assert found.usage == expected


def test_odd_counts_of_the_others():
    """The same in the other shapes."""
    usage: dict[str, Any] = {
        "input_tokens": -1,
        "output_tokens": "4",
        "cache_read_input_tokens": 2.0,
    }
    body: dict[str, Any] = {"id": "m", "content": [], "usage": usage}
    assert response_of(MESSAGES, body).usage == Usage(output_tokens=4, cache_read_tokens=2)
    body = {"usageMetadata": {"promptTokenCount": "12", "candidatesTokenCount": 10**30}}
    assert response_of(GEMINI, body).usage == Usage(input_tokens=12)
    body = {"model": "m", "done": True, "prompt_eval_count": -1, "eval_count": 3.0}
    assert response_of(OLLAMA, body).usage == Usage(output_tokens=3)
    body = {"output": [], "usage": {"inputTokens": "5", "outputTokens": 2}}
    assert response_of(CONVERSE, body).usage == Usage(input_tokens=5, output_tokens=2)


def test_numbers_that_json_does_not_know():
    """NaN and Infinity, as Python writes them, cost no other field."""
    body = json.dumps(COMPLETION | {"score": float("nan"), "best": float("inf")}).encode()
    assert response_of(CHAT, body) == FACTS
    facts = request_of(CHAT, b'{"model": "m", "temperature": NaN, "top_p": 0.5}')
    assert facts == RequestFacts(model="m", top_p=0.5)


@pytest.mark.parametrize("address", ALL)
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"[]",
        b'"text"',
        b"5",
        b"{",
        b'{"id": "c1"',
        b"<html><body>Bad gateway</body></html>",
        b"\x00\xff\xfe",
        b"\xef\xbb\xbf",
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b"9" * 100_000,
        b'"' + b"\\" * 99_999,
    ],
)
def test_bodies_that_say_nothing(address: tuple[str, str], body: bytes):
    """Nothing is read from them and nothing is raised; an error status stays an error."""
    assert response_of(address, body).usage is None
    assert response_of(address, body, 502) == ResponseFacts(error=ErrorFacts(None, None))
    assert request_of(address, body).tools is None


def test_bytes_that_are_not_utf8():
    """Stray bytes in the content, and in a field that is read."""
    body = json.dumps(COMPLETION).encode().replace(b'"x"', b'"\xff\xfe\xc3"')
    assert response_of(CHAT, body) == FACTS
    body = json.dumps(COMPLETION).encode().replace(b'"m-1"', b'"m\xff"')
    assert response_of(CHAT, body).usage == FACTS.usage
    assert response_of(CHAT, body).id == "c1"


def test_a_byte_order_mark_and_other_line_ends():
    """JSON with a BOM, and with CRLF between its lines."""
    assert response_of(CHAT, b"\xef\xbb\xbf" + json.dumps(COMPLETION).encode()) == FACTS
    pretty = json.dumps(COMPLETION, indent=2).replace("\n", "\r\n").encode()
    assert response_of(CHAT, pretty) == FACTS


def test_half_an_emoji():
    """A lone surrogate in the content and in a name."""
    body = json.dumps(COMPLETION).replace('"x"', '"\\ud83d"')
    assert response_of(CHAT, body.encode()) == FACTS
    body = body.replace('"m-1"', '"\\ud83d"')
    assert response_of(CHAT, body.encode()).usage == FACTS.usage


def test_deep_nesting_beside_the_facts():
    """A structure too deep to walk costs this body, and nothing else."""
    deep = "[" * 50_000 + "]" * 50_000
    body = '{"id": "c1", "x": ' + deep + "}"
    assert response_of(CHAT, body.encode()) in (ResponseFacts(), ResponseFacts(id="c1"))
    assert response_of(CHAT, COMPLETION) == FACTS


def test_duplicate_keys():
    """The last one counts, as in every JSON reader."""
    body = b'{"id": "a", "id": "c1", "choices": []}'
    assert response_of(CHAT, body).id == "c1"


def test_a_body_of_ten_megabytes():
    """It is read once through, without its content becoming objects."""
    words = "The quick brown fox. \\n" * 450_000
    body = json.dumps(COMPLETION).replace('"x"', f'"{words}"').encode()
    assert len(body) > 10_000_000
    route = route_of(CHAT)
    tracemalloc.start()
    started = time.process_time()
    assert route.dialect.response(body, 200, route) == FACTS
    spent = time.process_time() - started
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100_000
    assert spent < 1

    message = {"role": "user", "content": "x"}
    request = json.dumps({"model": "m", "messages": [message]}).replace('"x"', f'"{words}"')
    assert request_of(CHAT, request.encode()) == RequestFacts(model="m", messages=1)


def test_vectors_are_not_read():
    """A large embeddings response costs a scan, not a list of numbers."""
    vectors = [{"index": index, "embedding": [0.123456] * 1500} for index in range(100)]
    body = {"data": vectors, "model": "e", "usage": {"prompt_tokens": 5, "total_tokens": 5}}
    data = json.dumps(body).encode()
    route = route_of(("api.openai.com", "/v1/embeddings"))
    tracemalloc.start()
    facts = route.dialect.response(data, 200, route)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert facts == ResponseFacts(model="e", usage=Usage(input_tokens=5))
    assert peak < 100_000


def test_tools_and_messages_of_the_wrong_kind():
    """What can be counted and named is."""
    facts = request_of(
        CHAT,
        {
            "model": "m",
            "messages": [{"role": "user"}, "text", None, {"role": "tool", "tool_call_id": 5}],
            "tools": [{"type": "function", "function": {"name": "f"}}, 7, {"function": "g"}],
            "max_tokens": "100",
            "temperature": "hot",
            "stream": "yes",
        },
    )
    assert facts.model == "m"
    assert facts.tools == ("f",)
    assert facts.temperature is None
    assert facts.stream is False
    assert facts.tool_result_ids == ()


def test_tool_calls_of_the_wrong_kind():
    """Calls that can be read are kept, in order."""
    calls: list[Any] = [
        {"id": 5, "function": {"name": "a"}},
        "call",
        {"id": "2", "function": {"name": None}},
        {"id": "3", "function": None},
        {"id": "4", "function": {"name": "d", "arguments": {"not": "a string"}}},
    ]
    choice = {"message": {"tool_calls": calls}, "finish_reason": "tool_calls"}
    assert response_of(CHAT, {"choices": [choice]}).tool_calls == (
        ToolCall(None, "a"),
        ToolCall("2", None),
        ToolCall("3", None),
        ToolCall("4", "d"),
    )


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"error": {"type": "t", "code": "c", "message": "SECRET"}}, ErrorFacts("t", "c")),
        ({"error": {"status": "NOT_FOUND", "code": 404}}, ErrorFacts("NOT_FOUND", 404)),
        ([{"error": {"status": "NOT_FOUND", "code": 404}}], ErrorFacts("NOT_FOUND", 404)),
        ({"type": "error", "error": {"type": "overloaded_error"}}, ErrorFacts("overloaded_error", None)),
        ({"object": "error", "type": "BadRequestError", "code": 400}, ErrorFacts("BadRequestError", 400)),
        ({"__type": "com.amazon.coral#ThrottlingException"}, ErrorFacts("ThrottlingException", None)),
        ({"detail": [{"type": "missing", "loc": ["body"]}]}, ErrorFacts("missing", None)),
        ({"detail": "SECRET"}, ErrorFacts(None, None)),
        ({"error": "SECRET"}, ErrorFacts(None, None)),
        ({"error": {"code": True, "type": ["x"]}}, ErrorFacts(None, None)),
        ({"errors": [{"code": "invalid_request"}]}, ErrorFacts(None, "invalid_request")),
        ({"message": "SECRET"}, ErrorFacts(None, None)),
    ],
)  # fmt: skip
def test_error_bodies(body: object, expected: ErrorFacts):
    """The provider's own type and code, wherever it puts them; never its message."""
    assert response_of(CHAT, body, 400) == ResponseFacts(error=expected)


def test_a_header_of_amazon_names_the_error():
    """Bedrock names the exception outside the body."""
    route = route_of(CONVERSE)
    headers = {"X-Amzn-ErrorType": "ThrottlingException:http://internal.amazon.com/coral/"}
    facts = route.dialect.response(b'{"message": "SECRET"}', 429, route, headers)
    assert facts == ResponseFacts(error=ErrorFacts("ThrottlingException", None))


def test_an_endless_line_is_not_kept():
    """A stream without an end of an event stays within a bound."""
    for address, kind in ((CHAT, "text/event-stream"), (OLLAMA, "application/x-ndjson")):
        route = route_of(address)
        reader = route.dialect.stream(route, kind)
        reader.feed(b'data: {"x": "')
        tracemalloc.start()
        for _ in range(40):
            reader.feed(b"x" * 1_000_000)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 30_000_000
        assert reader.result().complete is False


def test_a_frame_that_claims_to_be_enormous():
    """An event stream that lies about its lengths is counted as nothing and not kept."""
    route = route_of((CONVERSE[0], "/model/m/converse-stream"))
    for prelude in (
        b"\xff\xff\xff\xff\x00\x00\x00\x10",
        b"\x00\x00\x00\x05\x00\x00\x00\x01",
        b"\0" * 8,
    ):
        reader = route.dialect.stream(route, "application/vnd.amazon.eventstream")
        reader.feed(prelude + b"\0" * 100)
        for _ in range(10):
            reader.feed(b"x" * 1000)
        assert (reader.result(), reader.chunks) == (ResponseFacts(complete=False), 0)
    assert dict(_guard.failures) == {}
