"""The loop through each of the seven adapters: the system slot, tools, results, raw answers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from loop_kit import Kit, asks
from msgspec.structs import replace

from clew.actors import Actor
from clew.facts import Usage
from clew.loop import Augmentation, RunOptions, Tool, Trace
from clew.prompts.repository import MemoryRepository
from clew.prompts.snippets import Snippet
from clew.providers import provider
from clew.testing import CaptureExporter, MistralChatCompletions, Reply, ScriptedProvider
from clew.testing.provider import FORMATS

SUFFIXES = {
    "openai": "/v1",
    "anthropic": "",
    "gemini": "/v1beta",
    "openrouter": "/api/v1",
    "mistral": "/v1",
    "groq": "/openai/v1",
    "ollama": "",
}
USAGE = Usage(input_tokens=100, output_tokens=10)
LOOK = Tool(name="look", function=lambda: "seen", effect="read_only")
TURN = Reply(tool_calls=(asks("look", call_id="abcdef123"),), usage=USAGE)
DONE = Reply(text="Done.", usage=USAGE)


@pytest.fixture(params=SUFFIXES)
def name(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
async def each(kit: Kit, name: str) -> AsyncIterator[Kit]:
    """The kit, with another adapter and a server that speaks its format."""
    formats = [MistralChatCompletions()] if name == "mistral" else FORMATS
    with ScriptedProvider(formats=formats) as server:
        other = Kit(kit.mode, server, kit.exported)
        base_url = server.base_url + SUFFIXES[name]
        async with provider(name, api_key="k", base_url=base_url, retries=0) as by:
            other.provider = by
            yield other


def system_of(name: str, body: dict[str, Any]) -> Any:
    """Return what stands in a provider's own slot for system prompts."""
    if name == "anthropic":
        system = body["system"]
        return [system] if isinstance(system, str) else [part["text"] for part in system]
    if name == "gemini":
        return [part["text"] for part in body["systemInstruction"]["parts"]]
    return [one["content"] for one in body["messages"] if one["role"] == "system"]


async def test_the_system_prompt_travels_in_its_own_slot(each: Kit, name: str):
    """In every round, the forced snippet behind it; no turn of the user holds it."""
    each.script(TURN, DONE)
    repository = MemoryRepository([Snippet(identifier="tone", text="Kindly.")])
    loop = each.loop(LOOK, prompt="Be brief.", loop={"repository": repository})
    result = await each.run(loop, augmentation=Augmentation(snippets=("tone",)))
    assert result.text == "Done."
    assert [system_of(name, body) for body in each.bodies] == [["Be brief.", "Kindly."]] * 2
    for body in each.bodies:
        turns = body.get("contents") or [one for one in body["messages"] if one["role"] != "system"]
        assert "Be brief." not in str(turns)
        assert "Hello?" in str(turns[0])


async def test_a_tool_goes_there_and_back(each: Kit):
    """Asked for, executed, answered, counted."""
    each.script(TURN, DONE)
    result = await each.run(each.loop(LOOK))
    assert (result.text, result.rounds, result.totals.tool_calls) == ("Done.", 2, 1)
    assert result.totals.input_tokens == 200
    assert b"seen" in each.server.requests[1].body
    assert [span["clew.round"] for span in each.spans("execute_tool")] == [1]


async def test_no_field_for_tools_without_tools(each: Kit):
    """On no provider's wire."""
    each.script(DONE)
    await each.run(each.loop())
    assert {"tools", "tool_choice", "toolConfig"}.isdisjoint(each.bodies[0])


async def test_a_closing_round_calls_no_tools(each: Kit, name: str):
    """Each provider is told so in its own words."""
    each.script(TURN, DONE)
    result = await each.run(each.loop(LOOK, limits={"max_rounds": 1}))
    assert (result.rounds, result.truncated) == (2, True)
    body = each.bodies[1]
    expected: dict[str, Any] = {
        "anthropic": {"type": "none"},
        "gemini": {"functionCallingConfig": {"mode": "NONE"}},
        "ollama": None,
    }
    said = body.get("toolConfig") if name == "gemini" else body.get("tool_choice")
    assert said == expected.get(name, "none")
    assert ("tools" in body) is (name != "ollama")


@pytest.mark.parametrize("granted", [True, False])
async def test_raw_answers_of_every_round(
    each: Kit, govern: Callable[..., CaptureExporter], granted: bool
):
    """Plain, with tools, closing: kept where granted; the bytes on the wire are the same."""
    govern(capture_max="full")
    each.script(TURN, DONE, TURN, DONE)
    loop = each.loop(LOOK, limits={"max_rounds": 1})
    actor = Actor(id="root", admin=granted)
    traces = Trace(), Trace()
    with_raw = await each.run(
        loop, options=RunOptions(actor=actor), capture_raw=True, trace=traces[0]
    )
    without = await each.run(loop, options=RunOptions(actor=actor), trace=traces[1])
    kept = [[step.raw is not None for step in t.steps if step.kind == "llm"] for t in traces]
    assert kept == [[granted] * 2, [False] * 2]
    requests = [request.body for request in each.server.requests]
    assert requests[:2] == requests[2:]
    assert with_raw.text == without.text
    assert (with_raw.totals.decisions, without.totals.decisions) == (2, 0)
    assert replace(with_raw.totals, decisions=0, denials=0) == without.totals
