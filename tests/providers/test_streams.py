"""Streams: how they begin, are left, break off, and what the caller can know of them."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest
from msgspec.structs import replace

from clew.providers import ChatRequest, Message, ProviderError, ToolRequest
from clew.testing import Reply, ScriptedError, ScriptedToolCall

HELLO = ChatRequest(model="small", messages=(Message.user("Hello"),))
SLOW = Reply(text=tuple("abcdefgh"), event_delay=0.01)
FIRST_EVENTS = {"anthropic": 3, "openai": 1, "openrouter": 1, "groq": 1, "mistral": 1}
"""How many events come before the first text."""


def before_text(name: str, texts: int) -> int:
    """Return the number of events of a stream up to the given number of texts."""
    return FIRST_EVENTS.get(name, 0) + texts


async def released(kit: Any) -> bool:
    """Tell whether no connection is busy: the server sees that each is idle or closed."""
    for _ in range(100):
        gc.collect()
        if kit.mode == "sync":
            pool = kit.provider.client()._transport._pool
        else:
            pool = kit.provider.async_client()._transport._pool
        if all(connection.is_idle() or connection.is_closed() for connection in pool.connections):
            return True
        await asyncio.sleep(0.02)
    return False


async def test_nothing_is_sent_before_it_is_read(kit: Any):
    """A stream that nobody reads is no request, and one that was closed before sends none."""
    kit.server.add(SLOW)
    if kit.mode == "sync":
        stream = kit.provider.stream(HELLO)
        stream.close()
        assert list(stream) == []
    else:
        stream = kit.provider.astream(HELLO)
        await stream.aclose()
        assert [event async for event in stream] == []
    assert (kit.server.requests, stream.response, stream.so_far()) == ([], None, None)


async def test_a_stream_in_a_with_block(kit: Any):
    """The whole answer is on the stream afterwards, and its connection is free."""
    kit.server.add(SLOW)
    if kit.mode == "sync":
        with kit.provider.stream(HELLO) as stream:
            texts = [event.text for event in stream]
    else:
        async with kit.provider.astream(HELLO) as stream:
            texts = [event.text async for event in stream]
    assert texts == [*"abcdefgh", ""]
    assert stream.response is not None
    assert stream.response.text == "abcdefgh"
    assert stream.so_far() == stream.response
    assert await released(kit)


async def test_a_stream_that_is_left_early(kit: Any):
    """What had come can be seen, nothing more comes, and its connection is given back."""
    kit.server.add(SLOW, Reply(text="next"))
    if kit.mode == "sync":
        with kit.provider.stream(HELLO) as stream:
            for event in stream:
                if event.text == "b":
                    break
        rest = list(stream)
    else:
        async with kit.provider.astream(HELLO) as stream:
            async for event in stream:
                if event.text == "b":
                    break
        rest = [event async for event in stream]
    assert (rest, stream.response) == ([], None)
    assert stream.so_far().text.startswith("ab")
    assert (stream.so_far().finish_reason, stream.so_far().provider) == (None, kit.name)
    assert await released(kit)
    assert (await kit.chat()).text == "next"


async def test_a_stream_that_is_dropped(kit: Any):
    """Nobody closes it; its connection is given back when it is collected."""
    kit.server.add(SLOW, Reply(text="next"))
    if kit.mode == "sync":
        stream = kit.provider.stream(HELLO)
        next(stream)
    else:
        stream = kit.provider.astream(HELLO)
        await anext(stream)
    del stream
    assert await released(kit)
    assert (await kit.chat()).text == "next"


@pytest.mark.parametrize("mode", ["async"])
async def test_a_task_that_is_cancelled_while_it_reads(kit: Any):
    """Cancellation passes at once and the connection is given back."""
    kit.server.add(replace_hang(SLOW, before_text(kit.name, 2)))
    seen: list[str] = []

    async def read() -> None:
        async for event in kit.provider.astream(HELLO):
            seen.append(event.text)  # noqa: PERF401 - looked at while it goes on

    task = asyncio.create_task(read())
    for _ in range(200):
        if seen:
            break
        await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(task, 2)
    assert seen
    assert await released(kit)


def replace_hang(reply: Reply, events: int) -> Reply:
    return Reply(text=reply.text, hang_after=events)


async def test_a_stream_that_breaks_off_after_its_first_text(kit: Any):
    """What had come was given; then a failure is raised, without another attempt."""
    kit.server.add(Reply(text=tuple("abcd"), cut_after=before_text(kit.name, 2)), Reply(text="no"))
    stream = kit.provider.stream(HELLO) if kit.mode == "sync" else kit.provider.astream(HELLO)
    seen: list[str] = []
    with pytest.raises(ProviderError) as caught:  # noqa: PT012 - the events before are looked at
        if kit.mode == "sync":
            for event in stream:
                seen.append(event.text)  # noqa: PERF401 - kept when it raises
        else:
            async for event in stream:
                seen.append(event.text)  # noqa: PERF401
    assert seen == ["a", "b"]
    assert caught.value.failure_class == "connection"
    assert len(kit.server.requests) == 1
    assert stream.so_far().text == "ab"


async def test_a_stream_without_its_closing_event(kit: Any):
    """A body that ends politely, but too early, is no answer either."""
    whole = Reply(text=tuple("abcd"))
    kit.server.add(whole)
    await kit.events()
    received = kit.server.requests[0]
    path = received.path.partition("?")[0]
    spoken = next(one for one in kit.server._formats if one.matches("POST", path))
    pieces = spoken.events(whole, received)[: before_text(kit.name, 2)]
    kit.server.add(*[Reply.verbatim(*pieces, content_type=spoken.stream_type)] * 4)
    with pytest.raises(ProviderError) as caught:
        await kit.events()
    assert caught.value.failure_class == "connection"


@pytest.mark.parametrize("cut", [0, 1])
async def test_a_stream_that_breaks_off_before_its_first_text(kit: Any, cut: int):
    """Nothing was given yet: it is tried again."""
    cut = min(cut, before_text(kit.name, 0))
    kit.server.add(Reply(text=tuple("abcd"), cut_after=cut), Reply(text="whole"))
    assert (await kit.events())[-1].response.text == "whole"
    assert len(kit.server.requests) == 2


@pytest.mark.parametrize("texts", [0, 2])
async def test_an_error_within_a_stream(kit: Any, texts: int):
    """Before the first text it is tried again, after it the failure is raised; prose is not told."""
    reply = Reply(
        text=tuple("abcd"),
        error=ScriptedError(message="SECRET"),
        error_after=before_text(kit.name, texts),
    )
    kit.server.add(reply, Reply(text="whole"))
    if not texts:
        assert (await kit.events())[-1].response.text == "whole"
        return
    with pytest.raises(ProviderError) as caught:
        await kit.events()
    assert caught.value.failure_class == "server_error"
    assert "SECRET" not in str(caught.value) + repr(vars(caught.value))
    assert len(kit.server.requests) == 1


async def test_a_failed_stream_is_not_asked_again(kit: Any):
    """Who reads on after a failure gets nothing, and sends nothing."""
    kit.server.add(Reply.failure(400), Reply(text="no"))
    if kit.mode == "sync":
        stream = kit.provider.stream(HELLO)
        with pytest.raises(ProviderError):
            next(stream)
        assert list(stream) == []
    else:
        stream = kit.provider.astream(HELLO)
        with pytest.raises(ProviderError):
            await anext(stream)
        assert [event async for event in stream] == []
    assert len(kit.server.requests) == 1


async def test_a_stream_of_a_tool_call_alone(kit: Any):
    """There may be no text at all."""
    call = ScriptedToolCall(id="abcdef123", name="find", arguments={"a": 1})
    kit.server.add(Reply(tool_calls=(call,)))
    first, last = await kit.events()
    assert first.tool_call == ToolRequest(
        id="abcdef123", name="find", arguments={"a": 1}, arguments_text='{"a":1}'
    )
    assert last.response.tool_calls == (first.tool_call,)


async def test_streams_side_by_side(kit: Any):
    """Two streams of one adapter do not disturb each other."""
    kit.server.add(*[SLOW] * 2)
    if kit.mode == "sync":
        with kit.provider.stream(HELLO) as one, kit.provider.stream(HELLO) as two:
            pairs = [(a.text, b.text) for a, b in zip(one, two, strict=True)]
    else:
        async with kit.provider.astream(HELLO) as one, kit.provider.astream(HELLO) as two:
            pairs = [((await anext(one)).text, (await anext(two)).text) for _ in range(9)]
    assert pairs == [(text, text) for text in [*"abcdefgh", ""]]


@pytest.mark.parametrize("name", ["openai", "gemini"])
async def test_a_stream_can_be_limited_in_time(kit: Any):
    """The limit holds for each wait."""
    kit.server.add(replace_hang(SLOW, before_text(kit.name, 1)))
    with pytest.raises(ProviderError) as caught:
        await kit.events(replace(HELLO, timeout=0.3))
    assert caught.value.failure_class == "connection"
