"""What an answer becomes: text, thinking, tool calls and facts, whole and streamed."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec.structs import replace

from clew.facts import Usage
from clew.providers import (
    PROVIDERS,
    ChatRequest,
    ChatResponse,
    Message,
    ProviderError,
    StreamEvent,
    Thinking,
    ToolRequest,
)
from clew.testing import Reply, ScriptedToolCall, sse

HELLO = ChatRequest(model="small", messages=(Message.user("Hello"),))
SIGNATURE = "c2lnbmF0dXJlIG9mIGEgc2NyaXB0ZWQgdGhvdWdodA=="
CALLS = (
    ScriptedToolCall(id="abcdef123", name="find", arguments={"parcel": "P-17", "deep": True}),
    ScriptedToolCall(id="abcdef124", name="find", arguments={}),
)
FULL = Reply(
    text="One moment.",
    reasoning="Where is it?",
    tool_calls=CALLS,
    usage=Usage(input_tokens=100, output_tokens=40, cache_read_tokens=30, reasoning_tokens=8),
    model="small-2026",
    id="resp-1",
)
REQUESTS = (
    ToolRequest(
        id="abcdef123",
        name="find",
        arguments={"parcel": "P-17", "deep": True},
        arguments_text='{"parcel":"P-17","deep":true}',
    ),
    ToolRequest(id="abcdef124", name="find", arguments={}, arguments_text="{}"),
)
THINKING: dict[str, dict[str, Any] | None] = {
    "anthropic": {"type": "thinking", "thinking": "Where is it?", "signature": SIGNATURE},
    "mistral": {"type": "thinking", "thinking": [{"type": "text", "text": "Where is it?"}]},
    "gemini": None,
    "ollama": None,
}
"""The format of OpenAI shows no thinking."""
USAGE = {
    "openai": Usage(
        input_tokens=100,
        output_tokens=40,
        cache_read_tokens=30,
        reasoning_tokens=8,
        input_audio_tokens=0,
        output_audio_tokens=0,
    ),
    "anthropic": Usage(
        input_tokens=100,
        output_tokens=40,
        cache_read_tokens=30,
        cache_write_tokens=0,
        cache_write_1h_tokens=0,
    ),
    "gemini": Usage(input_tokens=100, output_tokens=40, cache_read_tokens=30, reasoning_tokens=8),
    "mistral": Usage(input_tokens=100, output_tokens=40),
    "ollama": Usage(input_tokens=100, output_tokens=40),
}
WORDS = {
    "anthropic": ("tool_call", "tool_use"),
    "gemini": ("stop", "STOP"),
    "ollama": ("stop", "stop"),
}


def expected_of(name: str, *, streamed: bool) -> ChatResponse:
    usage = USAGE.get(name, USAGE["openai"])
    if name in ("openrouter", "groq") and streamed:
        usage = None  # the scripted server speaks OpenAI's format: usage comes only when asked for
    word, raw = WORDS.get(name, ("tool_call", "tool_calls"))
    native = THINKING.get(name)
    thinking = "Where is it?" if name in THINKING else None
    calls = REQUESTS
    if name == "gemini":
        calls = (replace(REQUESTS[0], signature=SIGNATURE), REQUESTS[1])
    return ChatResponse(
        text="One moment.",
        thinking=thinking,
        thinking_blocks=(Thinking(text=thinking, provider=name, native=native),)
        if thinking
        else (),
        tool_calls=calls,
        finish_reason=word,
        finish_reason_raw=raw,
        usage=usage,
        model="small-2026",
        id=None if name == "ollama" else "resp-1",
        provider=name,
    )


async def test_a_whole_answer(kit: Any):
    """Everything that the provider says, in one form for all."""
    kit.server.add(FULL)
    assert await kit.chat() == expected_of(kit.name, streamed=False)


async def test_a_streamed_answer(kit: Any):
    """Pieces of thinking and text, the tool calls whole, and the same answer at the end."""
    kit.server.add(FULL)
    events = await kit.events()
    expected = expected_of(kit.name, streamed=True)
    pieces = [] if expected.thinking is None else ["Where ", "is ", "it?"]
    assert events == [
        *[StreamEvent(kind="thinking", text=piece) for piece in pieces],
        StreamEvent(kind="text", text="One "),
        StreamEvent(kind="text", text="moment."),
        *[StreamEvent(kind="tool_call", tool_call=call) for call in expected.tool_calls],
        StreamEvent(kind="end", response=expected),
    ]


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
async def test_what_a_provider_does_not_say_is_not_known(kit: Any, streamed: bool):
    """Usage that is absent is None, never zero."""
    kit.server.add(Reply(text="x", usage=None))
    answer = await kit.answer(streamed=streamed)
    assert (answer.usage, answer.metadata, answer.thinking) == (None, None, None)


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
async def test_thinking_in_tags_is_no_text(kit: Any, streamed: bool):
    """Local models write their thinking in front of the text."""
    kit.server.add(Reply(text="<think>\nShort. No, <b>long</b>.\n</think>\n\nLong <think>."))
    answer = await kit.answer(streamed=streamed)
    assert answer.text == "Long <think>."
    assert answer.thinking == "Short. No, <b>long</b>.\n"


async def test_where_an_event_is_cut_does_not_matter(kit: Any):
    """A stream in pieces of seven bytes gives what it gives in one."""
    kit.server.add(FULL)
    await kit.events()
    spoken = next(
        one
        for one in kit.server._formats
        if one.matches("POST", kit.server.requests[0].path.partition("?")[0])
    )
    whole = b"".join(spoken.events(FULL, kit.server.requests[0]))
    pieces = [whole[at : at + 7] for at in range(0, len(whole), 7)]
    kit.server.add(Reply.verbatim(*pieces, content_type=spoken.stream_type))
    last = (await kit.events())[-1].response
    assert last == expected_of(kit.name, streamed=True)


async def test_a_whole_answer_where_a_stream_was_asked_for(kit: Any):
    """A server without streams is understood: its answer becomes the events."""
    spoken = kit.server._formats
    request = replace(HELLO, extra={"stream": False})
    kit.server.add(FULL)
    await kit.chat(request)
    received = kit.server.requests[0]
    format_ = next(one for one in spoken if one.matches("POST", received.path))
    body = json.dumps(format_.body(FULL, received)).encode()
    kit.server.add(Reply.verbatim(body, content_type="application/json"))
    events = await kit.events()
    assert events[-1].response == expected_of(kit.name, streamed=False)
    assert "".join(event.text for event in events if event.kind == "text") == "One moment."
    assert [event.tool_call.name for event in events if event.tool_call] == ["find", "find"]


NO_ANSWERS = [b"", b"not json", b"<html>no</html>", b"\xff\xfe", b"[]", b"7", b"{}", b'{"a":1}']


@pytest.mark.parametrize("body", NO_ANSWERS)
async def test_an_answer_that_is_none(kit: Any, body: bytes):
    """Whatever comes with status 200 and is no answer is an unknown failure, and not retried."""
    kit.server.add(Reply.verbatim(body, content_type="application/json"))
    with pytest.raises(ProviderError) as caught:
        await kit.chat()
    assert caught.value.failure_class == "unknown"
    assert len(kit.server.requests) == 1


BROKEN = [
    '{"choices": 7, "content": "x", "candidates": {"a": 1}, "message": []}',
    '{"choices": [7, {"index": 0, "message": {"content": [3, null], "tool_calls": ["x"]}}]}',
    '{"content": [1, {"type": "tool_use", "input": "x"}, {"type": "text"}], "usage": []}',
    '{"candidates": [{"content": {"parts": [1, {"functionCall": 3}, {"text": 4}]}}]}',
    '{"message": {"content": 5, "tool_calls": [{"function": {"arguments": "x"}}, 2]}}',
]


@pytest.mark.parametrize("body", BROKEN)
@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
async def test_an_answer_of_an_odd_shape(kit: Any, body: str, streamed: bool):
    """What fits is taken, or the failure is classified; nothing else is raised."""
    content_type = "application/json"
    if streamed:
        lines = kit.name == "ollama"
        content_type = "application/x-ndjson" if lines else "text/event-stream"
        body = f"{body}\n" if lines else sse(body).decode()
    async with kit.another(retries=0) as provider:
        kit.server.add(Reply.verbatim(body.encode(), content_type=content_type))
        ask = kit.events if streamed else kit.chat
        try:
            answer = await ask(by=provider)
        except ProviderError as error:
            assert error.failure_class in ("unknown", "connection")  # noqa: PT017 - either is right
        else:
            assert answer


def openai_message(message: dict[str, Any], **fields: Any) -> Reply:
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": "stop"}
    body = {"id": "r", "model": "m", "choices": [choice], **fields}
    return Reply.verbatim(json.dumps(body).encode(), content_type="application/json")


def openai_deltas(*deltas: dict[str, Any], **fields: Any) -> Reply:
    chunks = [
        {"id": "r", "model": "m", "choices": [{"index": 0, "delta": delta}], **fields}
        for delta in deltas
    ]
    last = {
        "id": "r",
        "model": "m",
        "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}],
    }
    return Reply.verbatim(*[sse(chunk) for chunk in (*chunks, last)], sse("[DONE]"))


@pytest.mark.parametrize("name", ["openai", "openrouter", "groq"])
@pytest.mark.parametrize("field", ["reasoning", "reasoning_content"])
async def test_thinking_in_a_field_of_its_own(kit: Any, field: str):
    """Groq and OpenRouter name it `reasoning`, local servers `reasoning_content`."""
    kit.server.add(
        openai_message({"content": "Yes.", field: "Hm."}),
        openai_deltas({field: "H"}, {field: "m."}, {"content": "Yes."}),
    )
    for answer in (await kit.answer(streamed=False), await kit.answer(streamed=True)):
        assert (answer.text, answer.thinking) == ("Yes.", "Hm.")


@pytest.mark.parametrize("name", ["groq"])
async def test_groqs_usage_of_a_stream(kit: Any):
    """It comes in a place of its own."""
    usage = {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7}
    kit.server.add(openai_deltas({"content": "a"}, x_groq={"id": "q", "usage": usage}))
    answer = await kit.answer(streamed=True)
    assert answer.usage == Usage(input_tokens=5, output_tokens=2)


DETAILS = [
    {"type": "reasoning.text", "index": 0, "text": "Hm", "signature": None},
    {"type": "reasoning.text", "index": 0, "text": ".", "signature": "s"},
    {"type": "reasoning.encrypted", "index": 1, "data": "abc"},
    {"type": "reasoning.encrypted", "index": 1, "data": "def"},
]
JOINED = [
    {"type": "reasoning.text", "index": 0, "text": "Hm.", "signature": "s"},
    {"type": "reasoning.encrypted", "index": 1, "data": "abcdef"},
]


@pytest.mark.parametrize("name", ["openrouter"])
async def test_openrouters_reasoning_goes_back_as_it_came(kit: Any):
    """Its blocks are kept verbatim, pieces of a stream joined, and sent with the history."""
    kit.server.add(
        openai_message({"content": "Yes.", "reasoning_details": JOINED}),
        openai_deltas(*[{"reasoning_details": [one]} for one in DETAILS], {"content": "Yes."}),
        Reply(text="x"),
    )
    whole = await kit.answer(streamed=False)
    streamed = await kit.answer(streamed=True)
    assert [block.native for block in whole.thinking_blocks] == JOINED
    assert streamed.thinking_blocks == whole.thinking_blocks
    assert streamed.thinking == "Hm."
    await kit.chat(replace(HELLO, messages=(*HELLO.messages, streamed.message)))
    assert kit.bodies[-1]["messages"][1] == {
        "role": "assistant",
        "content": "Yes.",
        "reasoning_details": JOINED,
    }


@pytest.mark.parametrize("name", ["openrouter"])
@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
async def test_openrouter_says_who_served_and_what_it_cost(kit: Any, streamed: bool):
    """Both are metadata."""
    usage = {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7, "cost": 0.25}
    make = openai_deltas if streamed else openai_message
    kit.server.add(make({"content": "a"}, provider="Groq", usage=usage))
    answer = await kit.answer(streamed=streamed)
    assert answer.metadata == {"served_provider": "Groq", "cost_usd": 0.25}


@pytest.mark.parametrize("name", ["gemini"])
@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
async def test_a_prompt_that_gemini_refuses(kit: Any, streamed: bool):
    """There is no candidate then; the reason stands in the prompt's feedback."""
    body = {"promptFeedback": {"blockReason": "SAFETY"}, "usageMetadata": {"promptTokenCount": 3}}
    text = sse(body) if streamed else json.dumps(body).encode()
    content_type = "text/event-stream" if streamed else "application/json"
    kit.server.add(Reply.verbatim(text, content_type=content_type))
    answer = await kit.answer(streamed=streamed)
    assert (answer.finish_reason, answer.finish_reason_raw) == ("content_filter", "SAFETY")


@pytest.mark.parametrize("name", ["openai"])
async def test_servers_that_do_not_number_their_tool_calls(kit: Any):
    """Parallel calls are told apart by their ids, or by their names where there is none."""

    def call(call_id: str | None, name: str | None, arguments: Any, index: int | None) -> Any:
        piece: dict[str, Any] = {"function": {"arguments": arguments}}
        if name is not None:
            piece["function"]["name"] = name
        if call_id is not None:
            piece["id"] = call_id
        if index is not None:
            piece["index"] = index
        return {"tool_calls": [piece]}

    streams = [
        [call("a", "f", '{"x":', 0), call(None, None, "1}", 0), call("b", "g", "{}", 0)],
        [call("a", "f", '{"x":', None), call(None, None, "1}", None), call("b", "g", "{}", None)],
        [call("a", "f", {"x": 1}, None), call("b", "g", {}, None)],
    ]
    for deltas in streams:
        kit.server.add(openai_deltas(*deltas))
        answer = await kit.answer(streamed=True)
        found = [(one.id, one.name, one.arguments) for one in answer.tool_calls]
        assert found == [("a", "f", {"x": 1}), ("b", "g", {})]
    kit.server.add(
        openai_message(
            {
                "content": None,
                "tool_calls": [
                    {"type": "function", "function": {"name": "f", "arguments": "{}"}},
                    {"type": "function", "function": {"name": "f", "arguments": ""}},
                ],
            }
        )
    )
    answer = await kit.answer(streamed=False)
    assert [(one.id, one.name, one.arguments) for one in answer.tool_calls] == [
        (None, "f", {}),
        (None, "f", {}),
    ]


def test_every_adapter_is_proved_here():
    """A new adapter is in the expectations of this file."""
    assert set(PROVIDERS) == {
        "openai", "anthropic", "gemini", "openrouter", "mistral", "groq", "ollama",
    }  # fmt: skip
