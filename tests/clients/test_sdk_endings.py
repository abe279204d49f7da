"""Streams of the other SDKs that the caller leaves early, and calls that somebody stops."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from typing import Any

import pytest

from clew.testing import Reply

pytestmark = pytest.mark.kits("sdks")

LONG = " ".join(f"zqmark{number}" for number in range(30))


def long_reply(kit: Any) -> Reply:
    """More than is read, and slow enough to be left in the middle."""
    return dataclasses.replace(kit.reply, text=LONG, event_delay=0.002)


def assert_stopped_early(kit: Any, found: Any, *outcomes: str) -> None:
    """The round ended with what was seen until then, and not as a fault of the provider."""
    assert not found.failed
    assert found.told("error.type", "http.response.status_code") == {
        "http.response.status_code": 200
    }
    assert found.told("clew.stream.outcome")["clew.stream.outcome"] in outcomes
    assert found.told("gen_ai.response.finish_reasons") == {}
    assert found.told("gen_ai.response.model") == kit.response_model
    if kit.counts_early:
        assert found.usage["input"] == 100
    else:
        assert found.usage == {}
        assert found.told("clew.cost.status") == {"clew.cost.status": "unknown"}


@pytest.mark.kits(having="with")
@pytest.mark.covers("early break")
async def test_break_in_a_with_block(kit: Any, compare: Any):
    """Leaving a `with` block early is the caller's close."""

    async def scenario(session: Any) -> Any:
        async with kit.entered(await kit.stream(session.client)) as stream:
            return await session.read(stream, limit=3)

    found = await compare(scenario, long_reply(kit))
    assert len(found.value) == 3
    assert found.released
    assert_stopped_early(kit, found, "closed")


@pytest.mark.covers("early break", "close")
async def test_close(kit: Any, compare: Any):
    """Closing a stream after some chunks gives the connection back as without Clew."""

    async def scenario(session: Any) -> Any:
        stream = await kit.stream(session.client)
        read = await session.read(stream, limit=3)
        await kit.close_stream(stream)
        return read

    found = await compare(scenario, long_reply(kit))
    assert len(found.value) == 3
    assert_stopped_early(kit, found, "closed", "abandoned")


@pytest.mark.covers("drop")
async def test_break_and_drop(kit: Any, compare: Any):
    """A stream that is left and forgotten ends when it is collected."""

    async def scenario(session: Any) -> Any:
        return await session.read(await kit.stream(session.client), limit=3)

    found = await compare(scenario, long_reply(kit))
    assert_stopped_early(kit, found, "abandoned", "closed")


@pytest.mark.kits(having="eager")
@pytest.mark.covers("drop")
async def test_dropped_unread(kit: Any, compare: Any):
    """A stream that was requested and that nobody ever reads ends when it is collected."""

    async def scenario(session: Any) -> Any:
        await kit.stream(session.client)

    found = await compare(scenario, long_reply(kit), timeout=1)
    assert not found.failed
    assert found.told("clew.stream.outcome")["clew.stream.outcome"] in ("abandoned", "closed")


@pytest.mark.covers("caller's exception")
async def test_exception_in_the_loop_body(kit: Any, compare: Any):
    """The caller's exception passes unchanged; it is no fault of the call."""
    own = LookupError("zqmark of the caller's own")

    async def scenario(session: Any) -> Any:
        stream = await kit.stream(session.client)
        try:
            async for _ in kit.chunks(stream):
                raise own
        finally:
            await kit.close_stream(stream)

    found = await compare(scenario, long_reply(kit))
    assert found.error is own
    assert_stopped_early(kit, found, "closed", "abandoned")


@pytest.mark.kits(asynchronous=True)
@pytest.mark.covers("cancel")
async def test_cancelled_while_waiting_for_the_answer(kit: Any, compare: Any):
    """A plain call inside `wait_for` ends at once, as cancelled."""

    async def scenario(session: Any) -> Any:
        await asyncio.wait_for(kit.ask(session.client), 0.3)

    found = await compare(scenario, Reply(text="late", delay=20))
    assert isinstance(found.error, TimeoutError)
    assert found.released
    assert found.told("error.type") == {"error.type": "asyncio.exceptions.CancelledError"}
    assert (found.round.end_time - found.round.start_time) / 1e9 < 10


@pytest.mark.kits(asynchronous=True)
@pytest.mark.covers("cancel")
async def test_cancelled_in_a_stream(kit: Any, compare: Any):
    """A stream inside `wait_for` ends at once, as cancelled."""

    async def consume(session: Any, read: list[Any]) -> None:
        async for chunk in await kit.stream(session.client):
            read += [type(chunk).__name__]

    async def scenario(session: Any) -> Any:
        read: list[Any] = []
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(consume(session, read), 0.5)
        return read

    found = await compare(scenario, dataclasses.replace(kit.reply, hang_after=4))
    assert len(found.value) > 1
    assert found.told("clew.stream.outcome") == {"clew.stream.outcome": "cancelled"}
    assert (found.round.end_time - found.round.start_time) / 1e9 < 10
