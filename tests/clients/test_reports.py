"""What a provider reports, and how: usage, tool calls, the first chunk."""

from __future__ import annotations

import json
from typing import Any

import pytest
from kits.comparing import plain, streamed

from clew.facts import Usage
from clew.testing import Reply, ScriptedToolCall, sse

COSTS = ("clew.usage.source", "clew.cost.status", "clew.cost.usd")
UNKNOWN = {"clew.usage.source": "absent", "clew.cost.status": "unknown"}
SCENARIOS = pytest.mark.parametrize("scenario", [plain, streamed])


def openai_chunk(delta: dict[str, Any] | None = None, **more: Any) -> bytes:
    choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": None}]
    return sse({"id": "c1", "object": "chat.completion.chunk", "choices": choices, **more})


# --- usage ------------------------------------------------------------------------------------------


@SCENARIOS
@pytest.mark.covers("usage absent")
async def test_no_usage_at_all(scenario: Any, kit: Any, compare: Any):
    """What is not reported is absent, never zero."""
    found = await compare(scenario, Reply(text="a b", usage=None))
    assert found.usage == {}
    assert found.told(*COSTS) == UNKNOWN


@SCENARIOS
@pytest.mark.covers("zero usage")
async def test_a_reported_zero_is_a_zero(scenario: Any, kit: Any, compare: Any):
    """Zero output tokens that were reported are zero."""
    usage = Usage(input_tokens=11, output_tokens=0)
    found = await compare(scenario, Reply(text="", usage=usage))
    assert found.usage["input"] == 11
    assert found.usage["output"] == 0
    assert found.told("clew.usage.source") == {"clew.usage.source": "reported"}


@pytest.mark.kits(provider="openai")
async def test_a_stream_that_was_not_asked_for_usage(kit: Any, compare: Any):
    """The request is not changed to get usage: the round has none."""

    async def scenario(session: Any) -> Any:
        arguments = kit.arguments(stream=True)
        stream = kit.resource(session.client).create(**arguments)
        stream = await stream if kit.asynchronous else stream
        # What applications do with every chunk, because none is without a choice here.
        return [chunk.choices[0].delta.content async for chunk in kit.chunks(stream)]

    found = await compare(scenario)
    assert found.usage == {}
    assert found.told(*COSTS) == UNKNOWN
    assert "stream_options" not in json.loads(found.requests[0][3])


@pytest.mark.kits(provider="openai")
async def test_chunks_without_choices(kit: Any, compare: Any):
    """A first chunk with filter results only, and a last one with usage only, are both read."""
    usage = {"prompt_tokens": 5, "completion_tokens": 3, "total_tokens": 8}
    reply = Reply.verbatim(
        openai_chunk(prompt_filter_results=[{"prompt_index": 0}], model=""),
        openai_chunk({"role": "assistant", "content": "zqmark"}, model="gpt-5-mini"),
        sse({"id": "c1", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}),
        openai_chunk(usage=usage, model="gpt-5-mini"),
        sse("[DONE]"),
    )
    found = await compare(streamed, reply)
    assert found.error is None
    assert (found.usage["input"], found.usage["output"]) == (5, 3)
    assert found.told("clew.stream.outcome", "gen_ai.response.model") == {
        "clew.stream.outcome": "complete",
        "gen_ai.response.model": "gpt-5-mini",
    }


@pytest.mark.kits(provider="anthropic")
async def test_later_reports_take_the_place_of_earlier_ones(kit: Any, compare: Any):
    """Start and deltas are not added: per field the last report counts."""
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": []}
    start = message | {"usage": {"input_tokens": 100, "output_tokens": 1}}

    def delta(usage: dict[str, int], reason: str | None = None) -> bytes:
        body = {"stop_reason": reason, "stop_sequence": None}
        return sse({"type": "message_delta", "delta": body, "usage": usage}, "message_delta")

    reply = Reply.verbatim(
        sse({"type": "message_start", "message": start}, "message_start"),
        delta({"output_tokens": 40}),
        delta({"output_tokens": 85, "input_tokens": 2600}, "end_turn"),
        sse({"type": "message_stop"}, "message_stop"),
    )
    found = await compare(streamed, reply)
    assert (found.usage["input"], found.usage["output"]) == (2600, 85)


# --- tool calls -------------------------------------------------------------------------------------


@SCENARIOS
async def test_parallel_tool_calls(scenario: Any, kit: Any, compare: Any):
    """Each call of one answer keeps its own id and name, calls without arguments too."""
    calls = tuple(
        ScriptedToolCall(name="find", id=f"call_{index}", arguments=arguments)
        for index, arguments in enumerate(({"place": "zqmark"}, {"place": "zqmark 2"}, {}))
    )
    found = await compare(scenario, Reply(tool_calls=calls))
    assert found.told("clew.response.tool_call.ids", "clew.response.tool_call.names") == {
        "clew.response.tool_call.ids": ("call_0", "call_1", "call_2"),
        "clew.response.tool_call.names": ("find", "find", "find"),
    }


@pytest.mark.kits(provider="anthropic")
async def test_interleaved_tool_calls(kit: Any, compare: Any):
    """Blocks whose argument deltas are interleaved stay apart; one has no delta at all."""
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": []}

    def start(index: int, kind: str, **block: Any) -> bytes:
        content = {"type": kind, **block}
        event = {"type": "content_block_start", "index": index, "content_block": content}
        return sse(event, "content_block_start")

    def argument(index: int, text: str) -> bytes:
        delta = {"type": "input_json_delta", "partial_json": text}
        event = {"type": "content_block_delta", "index": index, "delta": delta}
        return sse(event, "content_block_delta")

    def stop(index: int) -> bytes:
        return sse({"type": "content_block_stop", "index": index}, "content_block_stop")

    ending = {"delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 9}}
    reply = Reply.verbatim(
        sse({"type": "message_start", "message": message}, "message_start"),
        start(0, "text", text=""),
        stop(0),
        start(1, "tool_use", id="toolu_1", name="find", input={}),
        start(2, "tool_use", id="toolu_2", name="find", input={}),
        argument(1, '{"place": "zq'),
        argument(2, '{"place": "zqmark'),
        argument(1, 'mark"}'),
        argument(2, '"}'),
        stop(1),
        stop(2),
        start(3, "tool_use", id="toolu_3", name="find", input={}),
        stop(3),
        sse({"type": "message_delta", **ending}, "message_delta"),
        sse({"type": "message_stop"}, "message_stop"),
    )
    found = await compare(streamed, reply)
    assert found.told("clew.response.tool_call.ids", "gen_ai.response.finish_reasons") == {
        "clew.response.tool_call.ids": ("toolu_1", "toolu_2", "toolu_3"),
        "gen_ai.response.finish_reasons": ("tool_call",),
    }


@SCENARIOS
async def test_a_tool_name_that_the_model_made_up(scenario: Any, kit: Any, compare: Any):
    """A name that nobody offered is content: a digest goes in its place."""
    reply = Reply(tool_calls=(ScriptedToolCall(name="zqmark_made_up", id="call_1"),))
    found = await compare(scenario, reply)
    assert found.told("clew.response.tool_call.names") == {
        "clew.response.tool_call.names": ("_OTHER",)
    }
    (digest,) = found.told("clew.response.tool_call.digests").values()
    assert len(digest) == 1


# --- the first chunk --------------------------------------------------------------------------------


def seconds(found: Any) -> float | None:
    return found.told("gen_ai.response.time_to_first_chunk").get(
        "gen_ai.response.time_to_first_chunk"
    )


async def test_the_first_chunk_is_the_first_output(kit: Any, compare: Any):
    """A role chunk, a start event or a ping is no output; the first text is."""
    delays = {"openai": (0.0, 0.25), "anthropic": (0.0, 0.0, 0.0, 0.25)}
    reply = Reply(text="a b", event_delay=delays[kit.provider])
    first = seconds(await compare(streamed, reply))
    assert first is not None
    assert 0.25 <= first < 2


async def test_a_tool_call_is_output(kit: Any, compare: Any):
    """An answer that is only a tool call has a first chunk, too."""
    call = ScriptedToolCall(name="find", arguments={"place": "x"})
    reply = Reply(tool_calls=(call,), event_delay=(0.0, 0.2))
    first = seconds(await compare(streamed, reply))
    assert first is not None
    assert 0.2 <= first < 2


@pytest.mark.kits(provider="anthropic")
async def test_thinking_is_output(kit: Any, compare: Any):
    """Thinking that comes before the text counts as the first chunk."""
    delays = (0.0, 0.0, 0.0, 0.2, 0.0, 0.0, 0.0, 0.6)
    reply = Reply(reasoning="zqmark", text="a", event_delay=delays)
    first = seconds(await compare(streamed, reply))
    assert first is not None
    assert 0.2 <= first < 0.6


async def test_nothing_generated_has_no_first_chunk(kit: Any, compare: Any):
    """Without any output there is no time to it."""
    assert seconds(await compare(streamed, Reply())) is None
    assert seconds(await compare(plain, Reply(text="a"))) is None


# --- finish reasons ---------------------------------------------------------------------------------


@SCENARIOS
async def test_finish_reasons(kit_word: tuple[str, str], scenario: Any, kit: Any, compare: Any):
    """The provider's word becomes the convention's."""
    said, word = kit_word

    async def tolerant(session: Any) -> Any:
        # Some reasons make the SDK warn; the warning is the same with and without Clew.
        return await scenario(session)

    found = await compare(tolerant, Reply(text="a", finish_reason=said))
    assert found.told("gen_ai.response.finish_reasons") == {
        "gen_ai.response.finish_reasons": (word,)
    }


@pytest.mark.kits(provider="openai")
async def test_several_choices(kit: Any, compare: Any):
    """Each choice has its reason."""

    async def scenario(session: Any) -> Any:
        return await kit.ask(session.client, n=3)

    found = await compare(scenario, Reply(text="a"))
    assert found.told("gen_ai.response.finish_reasons", "gen_ai.request.choice.count") == {
        "gen_ai.response.finish_reasons": ("stop", "stop", "stop"),
        "gen_ai.request.choice.count": 3,
    }
