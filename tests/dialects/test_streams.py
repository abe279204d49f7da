"""Streams: what each event counts for, when output starts, and how they end."""

from __future__ import annotations

import json
from typing import Any

import pytest
from wire_reading import (
    CHAT,
    COHERE,
    GEMINI_STREAM,
    MESSAGES,
    OLLAMA,
    RESPONSES,
    chunk,
    reader_of,
    route_of,
    sse,
)

from clew.facts import ErrorFacts, ResponseFacts, ToolCall, Usage
from clew.typing import StreamReader


def facts_of(address: tuple[str, str], *events: dict[str, Any] | str) -> ResponseFacts:
    """Read a stream of these events."""
    reader = reader_of(address)
    for event in sse(*events):
        reader.feed(event)
    return reader.result()


# --- usage in streams ------------------------------------------------------------------------------


def test_no_usage_chunk_gives_no_usage():
    """A stream that reports no usage has none: not zero."""
    facts = facts_of(CHAT, chunk({"content": "hi"}), chunk(finish="stop"), "[DONE]")
    assert facts == ResponseFacts(
        id="c1", model="m-1", finish_reasons=("stop",), finish_reasons_raw=("stop",)
    )


def test_usage_comes_in_a_chunk_without_choices():
    """The last chunk has the usage and an empty list of choices."""
    usage = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}
    last = {"id": "c1", "model": "m-1", "choices": [], "usage": usage}
    facts = facts_of(CHAT, chunk({"content": "hi"}), chunk(finish="stop"), last, "[DONE]")
    assert facts.usage == Usage(input_tokens=7, output_tokens=3)


def test_the_first_chunk_may_have_filter_results_only():
    """A chunk without choices, id and model in front does not disturb."""
    first = {"id": "", "model": "", "choices": [], "prompt_filter_results": [{"prompt_index": 0}]}
    facts = facts_of(CHAT, first, chunk({"content": "hi"}), chunk(finish="stop"), "[DONE]")
    assert (facts.id, facts.model, facts.usage) == ("c1", "m-1", None)


def test_a_reported_zero_stays_zero():
    """No output tokens is a count."""
    usage = {"prompt_tokens": 7, "completion_tokens": 0, "total_tokens": 7}
    facts = facts_of(CHAT, chunk(finish="stop", usage=usage), "[DONE]")
    assert facts.usage == Usage(input_tokens=7, output_tokens=0)


@pytest.mark.parametrize("usage", [None, {}, {"prompt_tokens": None}, [], "none", 5])
def test_a_usage_that_says_nothing_is_no_usage(usage: object):
    """Null, empty and odd usage fields leave the usage unknown, or as it was reported before."""
    reported = {"prompt_tokens": 7, "completion_tokens": 2}
    assert facts_of(CHAT, chunk(finish="stop", usage=usage), "[DONE]").usage is None
    facts = facts_of(CHAT, chunk({"content": "a"}, usage=reported), chunk(usage=usage), "[DONE]")
    assert facts.usage == Usage(input_tokens=7, output_tokens=2)


def test_groq_reports_usage_in_a_field_of_its_own():
    """`x_groq.usage` counts where there is no `usage`."""
    usage = {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7}
    facts = facts_of(CHAT, chunk(finish="stop", x_groq={"id": "r", "usage": usage}), "[DONE]")
    assert facts.usage == Usage(input_tokens=5, output_tokens=2)


def test_cumulative_usage_is_not_summed_over_chunks():
    """Gemini and usage in every chunk: the last report of each field wins."""
    chunks = [
        {
            "candidates": [{"content": {"parts": [{"text": "x"}]}, "index": 0}],
            "usageMetadata": {"promptTokenCount": 12, "candidatesTokenCount": count},
        }
        for count in (3, 7, 11, 15)
    ]
    assert facts_of(GEMINI_STREAM, *chunks).usage == Usage(input_tokens=12, output_tokens=15)
    chat = [
        chunk({"content": "x"}, usage={"prompt_tokens": 12, "completion_tokens": count})
        for count in (3, 7, 11, 15)
    ]
    assert facts_of(CHAT, *chat).usage == Usage(input_tokens=12, output_tokens=15)


def test_a_field_missing_from_the_last_gemini_chunk_keeps_its_latest_value():
    """Reports are overlaid field by field."""
    first = {
        "candidates": [{"content": {"parts": [{"text": "x"}]}}],
        "usageMetadata": {"promptTokenCount": 12, "thoughtsTokenCount": 5},
    }
    last = {
        "candidates": [{"content": {"parts": [{"text": "y"}]}, "finishReason": "STOP"}],
        "usageMetadata": {"candidatesTokenCount": 4},
    }
    facts = facts_of(GEMINI_STREAM, first, last)
    assert facts.usage == Usage(input_tokens=12, output_tokens=9, reasoning_tokens=5)


def test_anthropic_reports_replace_each_other_by_field():
    """Start and deltas are not added up; a later input count replaces the first."""
    start = {"id": "m1", "model": "claude", "usage": {"input_tokens": 100, "output_tokens": 1}}
    facts = facts_of(
        MESSAGES,
        {"type": "message_start", "message": start},
        {"type": "message_delta", "delta": {}, "usage": {"output_tokens": 40}},
        {
            "type": "message_delta",
            "delta": {"stop_reason": "end_turn"},
            "usage": {"output_tokens": 85, "input_tokens": 2600, "cache_read_input_tokens": None},
        },
        {"type": "message_stop"},
    )
    assert facts.usage == Usage(input_tokens=2600, output_tokens=85)


def test_usage_is_that_of_the_closing_event_of_responses():
    """Status, model, tool calls and usage of a Responses stream."""
    usage = {
        "input_tokens": 50,
        "output_tokens": 20,
        "output_tokens_details": {"reasoning_tokens": 8},
        "total_tokens": 70,
    }
    facts = facts_of(
        RESPONSES,
        {"type": "response.created", "response": {"id": "r1", "model": "m", "status": "queued"}},
        {"type": "response.output_text.delta", "delta": "hi"},
        {
            "type": "response.completed",
            "response": {"id": "r1", "model": "m-1", "status": "completed", "usage": usage},
        },
    )
    assert facts == ResponseFacts(
        id="r1",
        model="m-1",
        finish_reasons=("stop",),
        usage=Usage(input_tokens=50, output_tokens=20, reasoning_tokens=8),
    )


def test_an_absent_prompt_count_stays_unknown():
    """Ollama leaves it out for a prompt that is cached whole."""
    line = {"model": "llama", "message": {"content": ""}, "done": True, "done_reason": "stop"}
    reader = reader_of(OLLAMA, "application/x-ndjson")
    reader.feed(json.dumps(line | {"eval_count": 30}).encode() + b"\n")
    assert reader.result().usage == Usage(input_tokens=None, output_tokens=30)


# --- tool calls in streams ---------------------------------------------------------------------------


def test_parallel_tool_calls_of_anthropic_stay_apart():
    """Interleaved deltas of two blocks, and a third block with none at all."""
    events: list[dict[str, Any]] = [{"type": "message_start", "message": {"id": "m1"}}]
    for index, name in ((1, "search"), (2, "fetch"), (3, "now")):
        block = {"type": "tool_use", "id": f"t{index}", "name": name, "input": {}}
        events.append({"type": "content_block_start", "index": index, "content_block": block})
    for index in (1, 2, 1, 2):
        delta = {"type": "input_json_delta", "partial_json": '{"a'}
        events.append({"type": "content_block_delta", "index": index, "delta": delta})
    events += [
        {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {}},
        {"type": "message_stop"},
    ]
    facts = facts_of(MESSAGES, *events)
    assert facts.tool_calls == (
        ToolCall("t1", "search"),
        ToolCall("t2", "fetch"),
        ToolCall("t3", "now"),
    )
    assert facts.finish_reasons == ("tool_call",)


def test_the_providers_own_tools_are_no_tool_calls():
    """Server tools of Anthropic are not the client's to carry out."""
    facts = facts_of(
        MESSAGES,
        {"type": "message_start", "message": {"id": "m1"}},
        {
            "type": "content_block_start",
            "index": 0,
            "content_block": {"type": "server_tool_use", "id": "s1", "name": "web_search"},
        },
    )
    assert facts.tool_calls == ()


def call(index: int | None, name: str | None = None, call_id: str | None = None) -> dict[str, Any]:
    """A piece of a tool call in the chat completions shape."""
    function = {"arguments": '{"'} | ({"name": name} if name is not None else {})
    piece: dict[str, Any] = {"function": function, "type": "function"}
    if index is not None:
        piece["index"] = index
    return piece | ({"id": call_id} if call_id is not None else {})


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        # by index, pieces interleaved
        (
            [call(0, "a", "1"), call(1, "b", "2"), call(0), call(1), call(0)],
            [ToolCall("1", "a"), ToolCall("2", "b")],
        ),
        # the index of the later one first
        ([call(1, "b", "2"), call(0, "a", "1")], [ToolCall("1", "a"), ToolCall("2", "b")]),
        # every call has the index 0: ids tell them apart
        ([call(0, "a", "1"), call(0, "b", "2")], [ToolCall("1", "a"), ToolCall("2", "b")]),
        # no index at all
        ([call(None, "a", "1"), call(None, "b", "2")], [ToolCall("1", "a"), ToolCall("2", "b")]),
        # a server that repeats id and name in every piece
        ([call(0, "a", "1"), call(0, "a", "1"), call(0, "a", "1")], [ToolCall("1", "a")]),
        # a name in two pieces, an id that comes late, empty strings
        ([call(0, "get_", ""), call(0, "weather", "1"), call(0, "", "")], [ToolCall("1", "get_weather")]),
        # no id ever
        ([call(0, "a")], [ToolCall(None, "a")]),
        # pieces of arguments only
        ([call(0), call(0)], []),
    ],
)  # fmt: skip
def test_pieces_of_tool_calls_are_joined(pieces: list[dict[str, Any]], expected: list[ToolCall]):
    """Parallel calls by index, however servers number and repeat."""
    facts = facts_of(CHAT, *[chunk({"tool_calls": [piece]}) for piece in pieces])
    assert list(facts.tool_calls) == expected


def test_choices_keep_their_own_calls_and_reasons():
    """Two choices, interleaved: reasons in index order, calls of the first choice first."""
    chunks = [
        {"choices": [{"index": 1, "delta": {"tool_calls": [call(0, "b", "2")]}}]},
        {"choices": [{"index": 0, "delta": {"tool_calls": [call(0, "a", "1")]}}]},
        {"choices": [{"index": 1, "delta": {}, "finish_reason": "length"}]},
        {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]},
    ]
    facts = facts_of(CHAT, *chunks, "[DONE]")
    assert facts.finish_reasons_raw == ("tool_calls", "length")
    assert facts.finish_reasons == ("tool_call", "length")
    assert facts.tool_calls == (ToolCall("1", "a"), ToolCall("2", "b"))


# --- when output starts ------------------------------------------------------------------------------


def started_after(reader: StreamReader, pieces: list[bytes]) -> int | None:
    """Return how many pieces it took until output had started."""
    for position, piece in enumerate(pieces):
        reader.feed(piece)
        if reader.started:
            return position
    return None


@pytest.mark.parametrize(
    ("address", "events", "expected"),
    [
        (CHAT, [chunk({"role": "assistant", "content": ""}), chunk({"content": "hi"})], 1),
        (CHAT, [chunk({"role": "assistant"}), chunk({"tool_calls": [call(0, "f", "1")]})], 1),
        (CHAT, [chunk({"content": None, "reasoning_content": "hm"})], 0),
        (CHAT, [chunk({"content": "", "reasoning": "hm"})], 0),
        (CHAT, [chunk({"refusal": "no"})], 0),
        (CHAT, [chunk({"content": [{"type": "text", "text": "a"}]})], 0),
        (CHAT, [chunk({"role": "assistant"}), chunk(finish="stop"), "[DONE]"], None),
        (CHAT, [chunk({"content": []}), chunk({"tool_calls": []})], None),
        (
            MESSAGES,
            [
                {"type": "message_start", "message": {"id": "m"}},
                {"type": "ping"},
                {"type": "content_block_start", "index": 0, "content_block": {"type": "thinking", "thinking": ""}},
                {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "hm"}},
            ],
            3,
        ),
        (
            MESSAGES,
            [
                {"type": "message_start", "message": {"id": "m"}},
                {"type": "content_block_start", "index": 0, "content_block": {"type": "tool_use", "id": "t", "name": "f"}},
            ],
            1,
        ),
        (
            RESPONSES,
            [
                {"type": "response.created", "response": {"id": "r"}},
                {"type": "response.output_item.added", "output_index": 0, "item": {"type": "message"}},
                {"type": "response.output_text.delta", "delta": "hi"},
            ],
            2,
        ),
        (
            GEMINI_STREAM,
            [
                {"candidates": [{"content": {"role": "model", "parts": [{"text": ""}]}}]},
                {"candidates": [{"content": {"parts": [{"text": "hm", "thought": True}]}}]},
            ],
            1,
        ),
        (
            COHERE,
            [
                {"type": "message-start", "id": "x", "delta": {"message": {"content": [], "tool_plan": ""}}},
                {"type": "content-start", "delta": {"message": {"content": {"type": "text", "text": ""}}}},
                {"type": "content-delta", "delta": {"message": {"content": {"text": "hi"}}}},
            ],
            2,
        ),
    ],
)  # fmt: skip
def test_output_starts_with_the_first_generated_thing(
    address: tuple[str, str], events: list[Any], expected: int | None
):
    """Text, reasoning, a refusal, a tool call: yes. A role, a ping, an empty text: no."""
    assert started_after(reader_of(address), sse(*events)) == expected


# --- endings ------------------------------------------------------------------------------------------


def test_a_stream_is_complete_with_its_closing_event():
    """`[DONE]`, or every choice having said why it ended; `message_stop`; `response.completed`."""
    assert facts_of(CHAT, chunk({"content": "x"})).complete is False
    assert facts_of(CHAT, chunk({"content": "x"}), "[DONE]").complete is True
    assert facts_of(CHAT, chunk({"content": "x"}), chunk(finish="stop")).complete is True
    started = {"type": "message_start", "message": {"id": "m"}}
    assert facts_of(MESSAGES, started).complete is False
    assert facts_of(MESSAGES, started, {"type": "message_stop"}).complete is True
    assert facts_of(RESPONSES, {"type": "response.created", "response": {}}).complete is False


def test_an_error_inside_a_stream():
    """The provider's own type and code, with what was said before."""
    error = {"error": {"message": "SECRET", "type": "invalid_request_error", "code": 400}}
    facts = facts_of(CHAT, chunk({"content": "x"}), error)
    assert facts == ResponseFacts(
        id="c1",
        model="m-1",
        finish_reasons=(None,),
        finish_reasons_raw=(None,),
        error=ErrorFacts("invalid_request_error", 400),
        complete=False,
    )
    overloaded = {"type": "error", "error": {"type": "overloaded_error", "message": "SECRET"}}
    assert facts_of(MESSAGES, overloaded).error == ErrorFacts("overloaded_error", None)
    failed = {"type": "error", "code": "rate_limit_exceeded", "message": "SECRET"}
    assert facts_of(RESPONSES, failed).error == ErrorFacts("error", "rate_limit_exceeded")
    gone = {"id": "r", "status": "failed", "error": {"code": "server_error", "message": "SECRET"}}
    facts = facts_of(RESPONSES, {"type": "response.failed", "response": gone})
    assert (facts.error, facts.finish_reasons) == (ErrorFacts(None, "server_error"), ("error",))


def test_an_upstream_error_in_a_choice():
    """OpenRouter reports it in the choice that failed."""
    choice = {"index": 0, "delta": {}, "finish_reason": "error", "error": {"code": 502}}
    facts = facts_of(CHAT, {"id": "c1", "choices": [choice]}, "[DONE]")
    assert (facts.error, facts.finish_reasons) == (ErrorFacts(None, 502), ("error",))


def test_a_json_body_instead_of_a_stream():
    """A server that ignores `stream` answers in one piece; the content type tells."""
    body = {
        "id": "c1",
        "model": "m-1",
        "choices": [{"message": {"content": "x"}, "finish_reason": "stop"}],
    }
    route = route_of(CHAT)
    reader = route.dialect.stream(route, "application/json; charset=utf-8")
    data = json.dumps(body).encode()
    reader.feed(data[:10])
    reader.feed(data[10:])
    assert reader.result() == route.dialect.response(data, 200, route)
    assert reader.result().finish_reasons == ("stop",)


def test_events_under_the_content_type_of_json():
    """Some servers name their streams JSON; the first byte tells."""
    reader = reader_of(CHAT, "application/json")
    for event in sse(chunk({"content": "x"}), chunk(finish="stop"), "[DONE]"):
        reader.feed(event)
    assert (reader.result().finish_reasons, reader.chunks, reader.started) == (("stop",), 2, True)


def test_an_error_body_under_the_content_type_of_a_stream():
    """A JSON error where events were announced."""
    reader = reader_of(CHAT)
    reader.feed(b'{"error": {"type": "server_error", "code": "x"}}')
    assert reader.result().error == ErrorFacts("server_error", "x")
