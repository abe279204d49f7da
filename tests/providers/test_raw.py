"""Raw capture: off without a trace, on for every kind of call, never sent."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from clew.facts import Usage
from clew.providers import ChatRequest, Choice, FallbackProvider, Message, ProviderError, ToolSpec
from clew.testing import Reply, ScriptedError, ScriptedToolCall, sse

HELLO = ChatRequest(model="small", messages=(Message.user("Hello"),))
RAW = replace(HELLO, capture_raw=True)
REPLY = Reply(text="One moment.", usage=Usage(input_tokens=5, output_tokens=2), id="r")
TOOLS = (ToolSpec(name="find"),)
CALL = ScriptedToolCall(id="abcdef123", name="find", arguments={"a": 1})


def spoken(kit: Any) -> Any:
    path = kit.server.requests[-1].path.partition("?")[0]
    return next(one for one in kit.server._formats if one.matches("POST", path))


@pytest.mark.parametrize("tools", [(), TOOLS], ids=["plain", "tools"])
async def test_a_whole_answer_is_kept_as_it_came(kit: Any, tools: tuple[ToolSpec, ...]):
    """The decoded body, beside what is there without it; the request's bytes are the same."""
    reply = replace_calls(REPLY) if tools else REPLY
    kit.server.add(reply, reply)
    on = await kit.chat(replace(RAW, tools=tools))
    off = await kit.chat(replace(HELLO, tools=tools))
    assert on.metadata == {"_raw": spoken(kit).body(reply, kit.server.requests[0])}
    assert off.metadata is None
    assert replace(on, metadata=None, id=None) == replace(off, id=None)
    assert kit.server.requests[0].body == kit.server.requests[1].body


def replace_calls(reply: Reply) -> Reply:
    return Reply(text=reply.text, usage=reply.usage, id=reply.id, tool_calls=(CALL,))


@pytest.mark.parametrize("tools", [(), TOOLS], ids=["plain", "tools"])
async def test_a_stream_is_kept_event_by_event(kit: Any, tools: tuple[ToolSpec, ...]):
    """The decoded events in order; the events that the caller sees are the same."""
    reply = replace_calls(REPLY) if tools else REPLY
    kit.server.add(reply, reply)
    *on, last_on = await kit.events(replace(RAW, tools=tools))
    *off, last_off = await kit.events(replace(HELLO, tools=tools))
    events = spoken(kit).events(reply, kit.server.requests[0])
    kept = last_on.response.metadata
    assert list(kept) == ["_raw"]
    told = [frame_of(kit.name, event) for event in kept["_raw"]["events"]]
    assert told == [event for event in events if b"[DONE]" not in event]
    assert on == off
    assert last_off.response == replace(last_on.response, metadata=None)
    assert kit.server.requests[0].body == kit.server.requests[1].body


def frame_of(name: str, event: dict[str, Any]) -> bytes:
    if name == "ollama":
        return sse(event)[6:-1]
    return sse(event, event["type"] if name == "anthropic" else None)


@pytest.mark.parametrize("name", ["openrouter"])
@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
async def test_it_stands_beside_other_metadata(kit: Any, streamed: bool):
    """What the provider says besides stays."""
    usage = {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7, "cost": 0.25}
    kit.server.add(Reply(text="x", usage=usage), Reply(text="x", usage=usage))
    extra = {"stream_options": {"include_usage": True}} if streamed else {}
    on = await kit.answer(replace(RAW, extra=extra), streamed=streamed)
    off = await kit.answer(replace(HELLO, extra=extra), streamed=streamed)
    assert set(on.metadata) == {"cost_usd", "_raw"}
    assert off.metadata == {"cost_usd": 0.25}


async def test_an_error_keeps_its_body_only_where_it_was_asked_for(kit: Any):
    """The provider's prose may quote the prompt."""
    kit.server.add(*[Reply.failure(400, "SECRET")] * 2)
    with pytest.raises(ProviderError) as on:
        await kit.chat(RAW)
    with pytest.raises(ProviderError) as off:
        await kit.chat(HELLO)
    expected = spoken(kit).error_body(ScriptedError(message="SECRET"), 400, 1)
    assert (on.value.raw, off.value.raw) == (expected, None)
    assert str(on.value) == str(off.value)


@pytest.mark.parametrize("value", [1, "true", "yes", [True], {"a": 1}])
@pytest.mark.parametrize("name", ["openai"])
async def test_only_true_counts(kit: Any, value: Any):
    """Anything else that is true elsewhere switches nothing on."""
    kit.server.add(*[REPLY] * 2)
    options = {"max_tokens": 5, "_capture_raw": value}
    request = ChatRequest.from_options(options, model="small", messages=HELLO.messages)
    assert request.capture_raw is False
    assert (await kit.chat(request)).metadata is None
    assert (await kit.chat(replace(HELLO, capture_raw=value))).metadata is None


def test_options_are_kept_elsewhere_and_come_back():
    """The directive is there only when it is on; the rest only when it was set."""
    assert HELLO.options() == {}
    assert RAW.options() == {"_capture_raw": True}
    full = replace(
        RAW,
        tools=TOOLS,
        tool_choice="auto",
        max_tokens=0,
        temperature=0.0,
        top_p=1.0,
        stop=("a", "b"),
        seed=3,
        extra={"x": 1},
        timeout=2.0,
    )
    options = {**full.options(), "stop": ["a", "b"]}
    back = ChatRequest.from_options(options, model="small", messages=full.messages, tools=TOOLS)
    assert back == full
    assert ChatRequest.from_options({}, model="small", messages=HELLO.messages) == HELLO


@pytest.mark.parametrize("name", ["openai"])
@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
async def test_it_reaches_through_a_chain(kit: Any, streamed: bool):
    """The provider that answered is the one that is kept."""
    kit.server.add(Reply.failure(500), REPLY)
    async with kit.another(retries=0) as one:
        chain = FallbackProvider(one, Choice(provider=one, model="other"))
        if streamed:
            answer = (await kit.events(RAW, by=chain))[-1].response
        else:
            answer = await kit.chat(RAW, by=chain)
    assert answer.metadata is not None
    assert "other" in repr(answer.metadata["_raw"])
