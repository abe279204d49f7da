"""Every way in which the other SDKs make a call: one round with its facts, and nothing changed."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from kits.comparing import plain, streamed

import clew
from clew.facts import Usage
from clew.testing import Reply, ScriptedProvider, ScriptedToolCall, captured

pytestmark = pytest.mark.kits("sdks")


def assert_whole(kit: Any, found: Any, *, stream: bool) -> None:
    """The round knows everything that the reply said."""
    assert found.error is None
    assert found.released
    assert not found.failed
    assert found.round.name == f"{kit.operation} {kit.model}"
    assert found.usage == kit.counted
    assert found.told(
        "gen_ai.operation.name",
        "gen_ai.request.model",
        "gen_ai.response.model",
        "gen_ai.response.finish_reasons",
        "clew.response.tool_call.names",
        "clew.attempts",
        "clew.attempt.grouped",
        "http.response.status_code",
        "clew.usage.source",
        "clew.usage.mismatch",
        "error.type",
        "clew.stream.outcome",
    ) == {
        "gen_ai.operation.name": kit.operation,
        "gen_ai.request.model": kit.model,
        **kit.response_model,
        "gen_ai.response.finish_reasons": (kit.finish,),
        "clew.response.tool_call.names": ("find",),
        "clew.attempts": 1,
        "clew.attempt.grouped": kit.stream_grouped if stream else kit.grouped,
        "http.response.status_code": 200,
        "clew.usage.source": "reported",
        **({"clew.stream.outcome": "complete"} if stream else {}),
    }


def structured(kit: Any) -> Reply:
    """An answer that is in a format, too, for calls that ask for one."""
    return dataclasses.replace(
        kit.reply, text=('{"text": "zqmark ', "completion, six ", 'words in all"}')
    )


@pytest.mark.covers("plain")
async def test_plain(kit: Any, compare: Any):
    """A call without streaming."""
    found = await compare(plain)
    assert_whole(kit, found, stream=False)
    assert "completion, six words" in str(found.value)


@pytest.mark.covers("stream")
async def test_streamed(kit: Any, compare: Any):
    """A streamed call, read to the end."""
    found = await compare(streamed)
    assert_whole(kit, found, stream=True)
    assert len(found.value) > 3
    assert found.told("clew.stream.chunks")["clew.stream.chunks"] >= len(found.value) - 1


@pytest.mark.kits(having="with")
@pytest.mark.covers("with")
async def test_streamed_in_a_with_block(kit: Any, compare: Any):
    """A stream that is a context manager, used as one."""

    async def scenario(session: Any) -> Any:
        stream = await kit.stream(session.client)
        async with kit.entered(stream) as entered:
            read = await session.read(entered)
        return type(stream).__name__, entered is stream, stream.response.status_code, read

    assert_whole(kit, await compare(scenario), stream=True)


async def test_further_ways_to_call(plain_variant: str, kit: Any, compare: Any):
    """Raw responses, structured output, sessions: what the SDK has beside the plain call."""

    async def scenario(session: Any) -> Any:
        return await kit.plain_variants[plain_variant](kit, session.client)

    found = await compare(scenario, structured(kit))
    assert_whole(kit, found, stream=False)
    assert "completion, six words" in str(found.value)


async def test_further_ways_to_stream(stream_variant: str, kit: Any, compare: Any):
    """The same for streams."""

    async def scenario(session: Any) -> Any:
        return await kit.stream_variants[stream_variant](kit, session.client)

    found = await compare(scenario, structured(kit))
    assert_whole(kit, found, stream=True)
    assert len(found.value) > 3


@pytest.mark.covers("usage absent")
@pytest.mark.parametrize("scenario", [plain, streamed])
async def test_no_usage_at_all(scenario: Any, kit: Any, compare: Any):
    """What is not reported is absent, never zero."""
    found = await compare(scenario, Reply(text="a b", usage=None))
    assert found.usage == {}
    assert found.told("clew.usage.source", "clew.cost.status", "clew.cost.usd") == {
        "clew.usage.source": "absent",
        "clew.cost.status": "unknown",
    }


@pytest.mark.covers("zero usage")
@pytest.mark.parametrize("scenario", [plain, streamed])
async def test_a_reported_zero_is_a_zero(scenario: Any, kit: Any, compare: Any):
    """Zero output tokens that were reported are zero."""
    usage = Usage(input_tokens=11, output_tokens=0)
    found = await compare(scenario, Reply(text="a b", usage=usage))
    assert {name: found.usage.get(name) for name in ("input", "output")} == {
        "input": 11,
        "output": 0,
    }


@pytest.mark.parametrize("scenario", [plain, streamed])
async def test_tool_names_that_the_model_made_up(scenario: Any, kit: Any, compare: Any):
    """Names that nobody offered are content, whatever they look like: digests go in their place."""
    names = ("zqmark_made_up", "drop table zqmark;", "zqmark" * 900, "")
    calls = tuple(
        ScriptedToolCall(name=name, id=f"call{at}abcd", arguments={"place": "zqmark"})
        for at, name in enumerate(names)
    )
    found = await compare(scenario, Reply(tool_calls=calls))
    told = found.told("clew.response.tool_call.names", "clew.response.tool_call.digests")
    assert told["clew.response.tool_call.names"] == ("_OTHER",) * 4
    assert len(set(told["clew.response.tool_call.digests"])) == 4


@pytest.mark.covers("wrapped twice")
async def test_instrumented_twice(kit: Any):
    """Instrumenting all libraries twice, and the client besides, gives one round for a call."""
    with (
        ScriptedProvider([kit.reply] * 3, formats=kit.formats) as server,
        captured() as exporter,
    ):
        client = kit.client(server)
        client = await client if hasattr(client, "__await__") else client
        clew.instrument()
        assert clew.instrument(client) is client
        clew.instrument(client)
        with clew.run("agent"):
            await kit.ask(client)
            await kit.gathered(await kit.stream(client))
        clew.uninstrument()
        await kit.ask(client)
        await kit.close(client)
        rounds = [span for span in exporter.spans if "clew.attempts" in span.attributes]
    assert [span.attributes["clew.round"] for span in rounds] == [1, 2]
    assert [span.attributes["gen_ai.usage.input_tokens"] for span in rounds] == [100, 100]


@pytest.mark.covers("large answer")
async def test_a_large_answer(kit: Any, compare: Any):
    """An answer of a megabyte is passed on and read."""
    reply = dataclasses.replace(kit.reply, text="zqmark " * 150_000)
    found = await compare(plain, reply)
    assert found.error is None
    assert found.usage == kit.counted
    assert found.told("clew.response.bytes")["clew.response.bytes"] > 1_000_000
