"""What the other providers report, and how: odd chunks, running counts, the first output."""

from __future__ import annotations

from typing import Any

import pytest
from either_way import settle
from kits.comparing import plain, streamed

from clew.testing import Reply, ScriptedToolCall, sse

COSTS = ("clew.usage.source", "clew.cost.status", "clew.cost.usd")


# --- chunks in OpenAI's shape -------------------------------------------------------------------------

OPENAI_SHAPED = pytest.mark.kits("all", provider="openai, Groq, OpenRouter, Mistral")


def chunk(delta: dict[str, Any] | None = None, finish: str | None = None, **more: Any) -> bytes:
    choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": finish}]
    made = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m-1"}
    return sse({**made, "choices": choices, **more})


def counts(given: int, made: int) -> dict[str, int]:
    return {
        "prompt_tokens": given,
        "completion_tokens": made,
        "total_tokens": given + made,
    }


TEXT = {"role": "assistant", "content": "zqmark"}
FILTERS = chunk(prompt_filter_results=[{"prompt_index": 0, "content_filter_results": {}}], model="")


@OPENAI_SHAPED
@pytest.mark.parametrize(
    ("pieces", "usage"),
    [
        ((chunk(TEXT), chunk({}, "stop")), {}),
        ((chunk(TEXT), chunk({}, "stop"), chunk(usage=counts(5, 3))), {"input": 5, "output": 3}),
        ((FILTERS, chunk(TEXT), chunk({}, "stop")), {}),
        ((chunk(TEXT), chunk({}, "stop", usage=counts(5, 0))), {"input": 5, "output": 0}),
        (
            (*(chunk(TEXT, usage=counts(12, made)) for made in (3, 7, 11)),
             chunk({}, "stop", usage=counts(12, 15))),
            {"input": 12, "output": 15},
        ),
        ((chunk(TEXT, usage=counts(12, 3)), chunk({}, "stop", usage=None)),
         {"input": 12, "output": 3}),
    ],
    ids=["no usage", "usage alone", "filters alone", "a zero", "running counts", "null at the end"],
)  # fmt: skip
async def test_odd_chunks(pieces: Any, usage: dict[str, int], kit: Any, compare: Any):
    """No shape raises more than without Clew; absent is absent, zero is zero, nothing is summed."""

    async def scenario(session: Any) -> Any:
        stream = await kit.stream(session.client)
        read: list[Any] = []
        try:
            async for each in kit.chunks(stream):
                read += [each]
        except Exception as error:
            # Not every SDK takes every chunk.
            return [type(error).__name__, read]
        finally:
            await settle(kit.close_stream(stream))
        return read

    found = await compare(scenario, Reply.verbatim(*pieces, sse("[DONE]")))
    if isinstance(found.value[0], str):
        assert kit.provider in ("OpenRouter", "Mistral")
        return
    assert {name: found.usage[name] for name in usage} == usage
    assert found.told("clew.stream.outcome") == {"clew.stream.outcome": "complete"}
    if not usage:
        assert found.usage == {}
        assert found.told(*COSTS) == {
            "clew.usage.source": "absent",
            "clew.cost.status": "unknown",
        }


# --- the first chunk ----------------------------------------------------------------------------------

QUIET = {
    "Google Gemini": 0,
    "Ollama": 0,
    "Mistral": 1,
    "Groq": 1,
    "OpenRouter": 1,
    "Cohere": 2,
    "Converse": 1,
    "InvokeModel": 3,
}
"""How many events come before the first with generated output."""
LATE = 0.3


def quiet_events(kit: Any) -> int:
    return QUIET[kit.api if kit.provider == "Amazon Bedrock" else kit.provider]


@pytest.mark.kits("sdks")
@pytest.mark.parametrize("late", [True, False], ids=["before it", "after it"])
@pytest.mark.parametrize("what", ["text", "tool call"])
async def test_the_first_output(what: str, late: bool, kit: Any, compare: Any):
    """Role chunks, start events and pings are no output; the first text or tool call is."""
    calls = tuple(
        ScriptedToolCall(name="find", arguments={"place": "zqmark"}, id=f"call_{number}")
        for number in range(2)
    )
    before = quiet_events(kit)
    if what == "tool call" and kit.api in ("/v2/chat", "InvokeModel"):
        before = {"/v2/chat": 1, "InvokeModel": 1}[kit.api]
    if what == "tool call" and kit.provider == "Google Gemini" and not late:
        return  # all of its calls come in one event, which is the last
    delays = (0.0,) * (before + (not late)) + (LATE,)
    said: dict[str, Any] = {"text": ("zq", "mark")} if what == "text" else {"tool_calls": calls}
    found = await compare(streamed, Reply(**said, event_delay=delays))
    assert found.error is None
    name = "gen_ai.response.time_to_first_chunk"
    first = found.told(name)[name]
    whole = (found.round.end_time - found.round.start_time) / 1e9
    if late:
        assert LATE <= first <= whole
    else:
        assert first <= whole - LATE * 0.9


@pytest.mark.kits("sdks")
async def test_nothing_generated_has_no_first_output(kit: Any, compare: Any):
    """Without any output there is no time to it."""
    found = await compare(streamed, Reply())
    assert found.told("gen_ai.response.time_to_first_chunk") == {}


# --- tool calls ---------------------------------------------------------------------------------------


@pytest.mark.kits("sdks")
@pytest.mark.parametrize("scenario", [plain, streamed], ids=["plain", "streamed"])
async def test_parallel_tool_calls(scenario: Any, kit: Any, compare: Any):
    """Each call of one answer keeps its own id and name, in order, one without arguments too."""
    calls = tuple(
        ScriptedToolCall(name="find", id=f"callabc0{number}", arguments=arguments)
        for number, arguments in enumerate(({"place": "zqmark"}, {"place": "zqmark 2"}, {}))
    )
    found = await compare(scenario, Reply(tool_calls=calls))
    assert found.told("clew.response.tool_call.names") == {
        "clew.response.tool_call.names": ("find", "find", "find")
    }
    ids = found.told("clew.response.tool_call.ids")
    if kit.provider in ("Google Gemini", "Ollama"):  # may not say any
        ids = ids or {"clew.response.tool_call.ids": tuple(call.id for call in calls)}
    assert ids == {"clew.response.tool_call.ids": tuple(call.id for call in calls)}
