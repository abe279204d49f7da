"""Streams of the other SDKs that the caller leaves early, where their ways differ."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from typing import Any

import pytest
from kits.leaving import assert_stopped_early, long_reply

pytestmark = pytest.mark.kits("sdks")


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
