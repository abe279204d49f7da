"""What the SDKs hand out is what they hand out without Clew: class, attributes, helpers, headers."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from either_way import settle

WHOLE = {"clew.stream.outcome": "complete", "gen_ai.response.finish_reasons": ("tool_call",)}


def shape(value: Any) -> list[Any]:
    """Return what can be told of an object without changing it."""
    kind = type(value)
    return [
        [f"{each.__module__}.{each.__qualname__}" for each in kind.__mro__],
        [name for name in dir(value) if not name.startswith("_")],
        isinstance(value, kind),
        [hasattr(value, name) for name in ("__enter__", "__aenter__", "__next__", "__anext__")],
    ]


def response_shape(stream: Any) -> list[Any] | None:
    """Return what can be told of the HTTP response in a stream, and of the body in that."""
    response = getattr(stream, "response", None)
    if response is None or not hasattr(response, "headers"):
        return None
    body = response.stream
    bases = [each for each in type(response).__mro__ if each.__module__.startswith("httpx")]
    # The body is stood in for by one that says that it is what it stands in for.
    kinds = [f"{each.__module__}.{each.__qualname__}" for each in body.__class__.__mro__]
    return [
        shape(response),
        sorted(response.headers),
        response.headers["content-type"],
        response.http_version,
        response.is_closed,
        response.is_stream_consumed,
        [each.__name__ for each in bases],
        kinds,
        [name for name in dir(body) if not name.startswith("_")],
    ]


async def shapes_of_a_stream(session: Any) -> Any:
    kit = session.kit
    stream = await kit.stream(session.client)
    before = [shape(stream), response_shape(stream)]
    read = await session.read(stream)
    response = getattr(stream, "response", None)
    return [before, len(read), getattr(response, "is_closed", None), shape(read[0])]


async def test_a_stream_has_its_shape(kit: Any, compare: Any):
    """Class, attributes, `isinstance`, the response with its headers, before and after reading."""
    found = await compare(shapes_of_a_stream)
    (before, response), *_ = found.value
    assert before[2] is True
    assert response[2].startswith("text/event-stream")
    assert found.told(*WHOLE) == WHOLE


@pytest.mark.kits("sdks")
async def test_streams_of_the_others_have_their_shape(kit: Any, compare: Any):
    """The same for the other SDKs, whatever they call a stream."""
    found = await compare(shapes_of_a_stream)
    assert found.told("clew.stream.outcome") == {"clew.stream.outcome": "complete"}
    assert found.usage == kit.counted


async def test_an_answer_has_its_shape(kit: Any, compare: Any):
    """A plain answer, with the request id that the SDK keeps on it."""

    async def scenario(session: Any) -> Any:
        answer = await kit.ask(session.client)
        return [shape(answer), answer._request_id]

    found = await compare(scenario)
    assert found.value[1].startswith("req_")
    assert found.usage["input"] == 100


# --- helpers that accumulate --------------------------------------------------------------------------


def helper(kit: Any, client: Any, form: str) -> Any:
    """Return the manager of a stream helper."""
    beta = form == "beta"
    if kit.provider == "openai":
        owner = client.beta.chat.completions if beta else client.chat.completions
        return owner.stream(**kit.arguments(stream_options={"include_usage": True}))
    return (client.beta.messages if beta else client.messages).stream(**kit.arguments())


async def final_of(kit: Any, stream: Any) -> Any:
    name = "get_final_completion" if kit.provider == "openai" else "get_final_message"
    return await settle(getattr(stream, name)())


def snapshot_of(kit: Any, stream: Any) -> Any:
    if kit.provider == "openai":
        return stream.current_completion_snapshot
    return stream.current_message_snapshot


async def events_and_snapshots(kit: Any, stream: Any) -> Any:
    """Read it all, looking at the snapshot in the middle and at the end."""
    kinds: list[str] = []
    middle = None
    async for event in kit.chunks(stream):
        kinds.append(event.type)
        if len(kinds) == 5:
            middle = snapshot_of(kit, stream).model_dump(mode="json", warnings=False)
    return [kinds, middle, snapshot_of(kit, stream), await final_of(kit, stream)]


async def only_the_final(kit: Any, stream: Any) -> Any:
    """Ask for the end without reading anything before."""
    return await final_of(kit, stream)


async def until_done(kit: Any, stream: Any) -> Any:
    """Read to the end without looking."""
    await settle(stream.until_done())
    return snapshot_of(kit, stream)


async def text_alone(kit: Any, stream: Any) -> Any:
    """Read the text, and then all of it."""
    if kit.provider == "openai":
        texts = [event.delta async for event in kit.chunks(stream) if event.type == "content.delta"]
        return [texts, await final_of(kit, stream)]
    texts = [text async for text in kit.chunks(stream.text_stream)]
    return [texts, await settle(stream.get_final_text()), await final_of(kit, stream)]


async def shape_alone(kit: Any, stream: Any) -> Any:
    """Look at the stream, and close it."""
    await settle(stream.until_done())
    return [shape(stream), response_shape(stream)]


USES = [events_and_snapshots, only_the_final, until_done, text_alone, shape_alone]


@pytest.mark.parametrize("form", ["plain", "beta"])
@pytest.mark.parametrize("use", USES, ids=lambda use: use.__name__)
@pytest.mark.covers("stream helper")
async def test_helpers_accumulate(use: Any, form: str, kit: Any, compare: Any):
    """Each way to use a stream helper, in both forms, ends one round with usage."""

    async def scenario(session: Any) -> Any:
        manager = helper(kit, session.client, form)
        outer = shape(manager)
        async with kit.entered(manager) as stream:
            session.look()
            return [outer, await use(kit, stream)]

    found = await compare(scenario)
    assert found.error is None
    assert found.released
    assert found.usage["input"] == 100
    assert found.usage["output"] == 40
    assert found.told(*WHOLE) == WHOLE


@pytest.mark.parametrize("form", ["plain", "beta"])
async def test_a_helper_that_is_closed(form: str, kit: Any, compare: Any):
    """`close()` inside the block ends the round as closed, once."""

    async def scenario(session: Any) -> Any:
        async with kit.entered(helper(kit, session.client, form)) as stream:
            read = await session.read(stream, limit=3)
            await settle(stream.close())
            return [event.type for event in read]

    words = " ".join(f"zqmark{number}" for number in range(30))
    reply = dataclasses.replace(kit.reply, text=words, event_delay=0.002)
    found = await compare(scenario, reply)
    assert len(found.value) == 3
    assert found.released
    assert found.told("clew.stream.outcome") == {"clew.stream.outcome": "closed"}
