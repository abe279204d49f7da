"""Every way in which the SDKs make a call: one round with its facts, and nothing changed."""

from __future__ import annotations

from typing import Any

import pydantic
import pytest
from either_way import settle

from clew.facts import Usage
from clew.testing import Reply

USAGE = {
    "openai": {
        "input": 100,
        "output": 40,
        "cache_read.input": 30,
        "cache_write.input": 0,
        "reasoning.output": 8,
    },
    "anthropic": {
        "input": 100,
        "output": 40,
        "cache_read.input": 30,
        "cache_write.input": 20,
    },
}


def assert_whole(kit: Any, found: Any, *, stream: bool) -> None:
    """The round knows everything that the reply said."""
    assert found.error is None
    assert found.released
    assert not found.failed
    assert found.round.name == f"chat {kit.model}"
    usage = dict(found.usage)
    # OpenAI does not always say whether anything was written to the cache.
    usage.setdefault("cache_write.input", 0)
    assert usage == USAGE[kit.provider] | {"cache_write.input": usage["cache_write.input"]}
    assert found.told(
        "gen_ai.operation.name",
        "gen_ai.request.model",
        "gen_ai.response.model",
        "gen_ai.response.finish_reasons",
        "clew.response.tool_call.names",
        "clew.attempts",
        "http.response.status_code",
        "clew.usage.source",
        "error.type",
        "clew.stream.outcome",
    ) == {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": kit.model,
        "gen_ai.response.model": f"{kit.model}-2026",
        "gen_ai.response.finish_reasons": ("tool_call",),
        "clew.response.tool_call.names": ("find",),
        "clew.attempts": 1,
        "http.response.status_code": 200,
        "clew.usage.source": "reported",
        **({"clew.stream.outcome": "complete"} if stream else {}),
    }


@pytest.mark.covers("plain")
async def test_plain(kit: Any, compare: Any):
    """`create` without streaming."""

    async def scenario(session: Any) -> Any:
        return await kit.ask(session.client)

    assert_whole(kit, await compare(scenario), stream=False)


@pytest.mark.covers("stream")
async def test_streamed(kit: Any, compare: Any):
    """`create(stream=True)`, read to the end."""

    async def scenario(session: Any) -> Any:
        return await session.read(await kit.stream(session.client))

    found = await compare(scenario)
    assert_whole(kit, found, stream=True)
    assert found.told("clew.stream.chunks")["clew.stream.chunks"] >= len(found.value)


@pytest.mark.covers("with")
async def test_streamed_in_a_with_block(kit: Any, compare: Any):
    """A stream is a context manager, and has its response."""

    async def scenario(session: Any) -> Any:
        stream = await kit.stream(session.client)
        async with kit.entered(stream) as entered:
            read = await session.read(entered)
        kind = type(stream).__name__
        return [kind, stream.response.status_code, entered is stream, read]

    assert_whole(kit, await compare(scenario), stream=True)


@pytest.mark.covers("stream helper")
async def test_stream_helper(kit: Any, compare: Any):
    """`stream(...)` with its events, its snapshot and its final result."""

    async def scenario(session: Any) -> Any:
        arguments = kit.arguments()
        if kit.provider == "openai":
            arguments["stream_options"] = {"include_usage": True}
        async with kit.entered(kit.resource(session.client).stream(**arguments)) as stream:
            events = [event.type async for event in kit.chunks(stream)]
            session.look()
            if kit.provider == "openai":
                final = await settle(stream.get_final_completion())
            else:
                final = await settle(stream.get_final_message())
            snapshot = getattr(stream, "current_message_snapshot", None)
            return [events, final, snapshot, type(stream).__name__]

    assert_whole(kit, await compare(scenario), stream=True)


async def test_stream_helper_text_only(kit: Any, compare: Any):
    """Anthropic's `text_stream` and `get_final_text`; OpenAI's `until_done`."""

    async def scenario(session: Any) -> Any:
        arguments = kit.arguments()
        if kit.provider == "openai":
            arguments["stream_options"] = {"include_usage": True}
        async with kit.entered(kit.resource(session.client).stream(**arguments)) as stream:
            if kit.provider == "openai":
                return await settle(stream.until_done()) is stream
            return [text async for text in kit.chunks(stream.text_stream)]

    assert_whole(kit, await compare(scenario), stream=True)


@pytest.mark.covers("raw response")
async def test_raw_response(kit: Any, compare: Any):
    """`with_raw_response.create`: headers, bytes, parse."""

    async def scenario(session: Any) -> Any:
        raw = kit.resource(session.client).with_raw_response
        response = await settle(raw.create(**kit.arguments()))
        parsed = await settle(response.parse())
        request_id = response.headers.get("x-request-id") or response.headers.get("request-id")
        return [request_id, response.status_code, response.http_response.content, parsed]

    found = await compare(scenario)
    assert_whole(kit, found, stream=False)
    assert found.value[0].startswith("req_")


async def test_raw_response_of_a_stream(kit: Any, compare: Any):
    """`with_raw_response.create(stream=True)` whose parse gives the stream."""

    async def scenario(session: Any) -> Any:
        raw = kit.resource(session.client).with_raw_response
        response = await settle(raw.create(**kit.streaming()))
        return await session.read(await settle(response.parse()))

    assert_whole(kit, await compare(scenario), stream=True)


@pytest.mark.parametrize("how", ["parse", "lines", "bytes", "text"])
@pytest.mark.covers("streaming response")
async def test_streaming_response(how: str, kit: Any, compare: Any):
    """`with_streaming_response.create`, with the body read in one of its ways."""

    async def scenario(session: Any) -> Any:
        manager = kit.resource(session.client).with_streaming_response.create(**kit.arguments())
        async with kit.entered(manager) as response:
            session.look()
            if how == "parse":
                return await settle(response.parse())
            pieces = getattr(response, f"iter_{how}")()
            joined = [piece async for piece in kit.chunks(pieces)]
            return b"".join(joined) if how == "bytes" else "".join(joined)

    assert_whole(kit, await compare(scenario), stream=False)


async def test_streaming_response_of_a_stream(kit: Any, compare: Any):
    """`with_streaming_response.create(stream=True)`."""

    async def scenario(session: Any) -> Any:
        manager = kit.resource(session.client).with_streaming_response.create(**kit.streaming())
        async with kit.entered(manager) as response:
            return await session.read(await settle(response.parse()))

    assert_whole(kit, await compare(scenario), stream=True)


async def test_streaming_response_that_is_not_read(kit: Any, compare: Any):
    """A body that the caller does not read is not read by Clew either."""

    async def scenario(session: Any) -> Any:
        manager = kit.resource(session.client).with_streaming_response.create(**kit.arguments())
        async with kit.entered(manager) as response:
            return response.headers["content-type"], response.is_closed

    found = await compare(scenario)
    assert found.value == ["application/json", False]
    assert not found.failed
    assert found.usage == {}
    assert found.told("clew.usage.source", "clew.cost.status", "clew.cost.usd") == {
        "clew.usage.source": "absent",
        "clew.cost.status": "unknown",
    }


class Place(pydantic.BaseModel):
    """What the model is asked to answer."""

    made: int = 0
    city: str

    def __init__(self, **values: Any) -> None:
        Place.instances.append(values)
        super().__init__(**values)


Place.instances = []  # type: ignore[attr-defined]


@pytest.mark.covers("structured output")
async def test_parse(kit: Any, compare: Any):
    """`parse` with a class as the format: the class is made once by the SDK, never by Clew."""
    reply = Reply(
        text='{"made": 1, "city": "zqmark"}', usage=Usage(input_tokens=9, output_tokens=3)
    )
    made: list[int] = []

    async def scenario(session: Any) -> Any:
        Place.instances.clear()  # type: ignore[attr-defined]
        resource = kit.resource(session.client)
        if kit.provider == "openai":
            arguments = kit.arguments(response_format=Place)
            # A parsed answer wants strict tools; the format is what counts here.
            del arguments["tools"]
            del arguments["messages"][2:]
            answer = await settle(resource.parse(**arguments))
            parsed = answer.choices[0].message.parsed
        else:
            answer = await settle(resource.parse(**kit.arguments(output_format=Place)))
            parsed = answer.parsed_output
        made.append(len(Place.instances))  # type: ignore[attr-defined]
        return parsed

    found = await compare(scenario, reply)
    assert made[0] == made[1]
    assert found.value == ("Place", {"made": 1, "city": "zqmark"})
    assert found.usage["input"] == 9
    assert found.told("gen_ai.output.type") in ({"gen_ai.output.type": "json"}, {})
    assert "Place" not in str(found.round.attributes)


async def test_messages_given_as_a_generator(kit: Any, compare: Any):
    """An iterable that can be read once is read once, by the SDK."""

    async def scenario(session: Any) -> Any:
        arguments = kit.arguments()
        arguments["messages"] = (message for message in arguments["messages"])
        return await settle(kit.resource(session.client).create(**arguments))

    assert_whole(kit, await compare(scenario), stream=False)


async def test_copies_of_a_client(kit: Any, compare: Any):
    """`with_options` and `copy` give clients that are listened to as well."""

    async def scenario(session: Any) -> Any:
        client = session.client.with_options(timeout=5).copy(max_retries=1)
        return await kit.ask(client)

    assert_whole(kit, await compare(scenario), stream=False)


@pytest.mark.kits(provider="anthropic")
async def test_beta_messages(kit: Any, compare: Any):
    """The beta form of the endpoint is the same call."""

    async def scenario(session: Any) -> Any:
        return await settle(session.client.beta.messages.create(**kit.arguments()))

    assert_whole(kit, await compare(scenario), stream=False)
