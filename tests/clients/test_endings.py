"""Streams that the caller leaves early, and calls that somebody stops."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import gc
import logging
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest
from kits.leaving import assert_stopped_early, long_reply
from opentelemetry import trace

import clew
from clew.pipeline import runtime
from clew.testing import Reply, ScriptedProvider, captured


def outcome_of(found: Any) -> dict[str, Any]:
    return found.told("clew.stream.outcome", "error.type", "http.response.status_code")


@pytest.mark.kits("all", having="with")
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


@pytest.mark.covers("close")
async def test_close(kit: Any, compare: Any):
    """`close()` after some chunks."""

    async def scenario(session: Any) -> Any:
        stream = await kit.stream(session.client)
        read = await session.read(stream, limit=3)
        closing = stream.close()
        if kit.asynchronous:
            await closing
        return read

    found = await compare(scenario, long_reply(kit))
    assert found.released
    assert_stopped_early(kit, found, "closed")


async def test_close_before_the_first_chunk(kit: Any, compare: Any):
    """`close()` of a stream that was never read."""

    async def scenario(session: Any) -> Any:
        stream = await kit.stream(session.client)
        closing = stream.close()
        if kit.asynchronous:
            await closing

    found = await compare(scenario, long_reply(kit))
    assert found.released
    assert outcome_of(found) == {"clew.stream.outcome": "closed", "http.response.status_code": 200}
    assert not found.failed


@pytest.mark.covers("drop")
async def test_break_and_drop(kit: Any, compare: Any):
    """A stream that is left and forgotten ends when it is collected."""

    async def scenario(session: Any) -> Any:
        return await session.read(await kit.stream(session.client), limit=3)

    found = await compare(scenario, long_reply(kit))
    assert_stopped_early(kit, found, "abandoned")


@pytest.mark.covers("drop")
async def test_dropped_unread(kit: Any, compare: Any):
    """A stream that nobody ever reads ends when it is collected."""

    async def scenario(session: Any) -> Any:
        await kit.stream(session.client)

    found = await compare(scenario, long_reply(kit))
    assert outcome_of(found) == {
        "clew.stream.outcome": "abandoned",
        "http.response.status_code": 200,
    }
    assert not found.failed


@pytest.mark.covers("caller's exception")
async def test_exception_in_the_loop_body(kit: Any, compare: Any):
    """The caller's exception passes through a `with` block unchanged; it is no fault of the call."""
    own = LookupError("zqmark of the caller's own")

    async def scenario(session: Any) -> Any:
        async with kit.entered(await kit.stream(session.client)) as stream:
            async for _ in kit.chunks(stream):
                raise own

    found = await compare(scenario, long_reply(kit))
    assert found.error is own
    assert_stopped_early(kit, found, "closed")


async def test_helper_left_early(kit: Any, compare: Any):
    """The stream helper, left in the middle."""

    async def scenario(session: Any) -> Any:
        async with kit.entered(kit.resource(session.client).stream(**kit.arguments())) as stream:
            return await session.read(stream, limit=3)

    found = await compare(scenario, long_reply(kit))
    assert found.released
    assert_stopped_early(kit, found, "closed")


async def test_a_half_read_stream_that_is_kept(kit: Any):
    """A stream that stays referenced is not drained; it ends when Clew shuts down, as held."""
    with ScriptedProvider([long_reply(kit)]) as server:
        client = kit.client(server)
        with captured() as exporter:
            stream = await kit.stream(client)
            async for _ in kit.chunks(stream):
                break
            assert exporter.by_name("chat") == ()
        (span,) = exporter.by_name("chat")
        assert span.attributes["clew.stream.outcome"] == "held"
        left = [chunk async for chunk in kit.chunks(stream)]
        assert len(left) > 20
        closing = client.close()
        if kit.asynchronous:
            await closing


async def test_an_idle_stream_is_held_and_can_be_read_on(kit: Any):
    """A stream that nobody reads for the time of the setting ends its round; reading goes on."""
    with ScriptedProvider([long_reply(kit)]) as server, captured(stream_idle_s=0.2) as exporter:
        client = kit.client(server)
        stream = await kit.stream(client)
        async for _ in kit.chunks(stream):
            break
        for _ in range(60):
            await asyncio.sleep(0.1)
            if exporter.by_name("chat"):
                break
        (span,) = exporter.by_name("chat")
        assert span.attributes["clew.stream.outcome"] == "held"
        assert len([chunk async for chunk in kit.chunks(stream)]) > 20
        closing = client.close()
        if kit.asynchronous:
            await closing
        assert len(exporter.by_name("chat")) == 1


# --- cancellation ---------------------------------------------------------------------------------


@pytest.mark.kits("all", asynchronous=True)
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
        async with kit.entered(await kit.stream(session.client)) as stream:
            async for chunk in stream:
                read += [type(chunk).__name__]

    async def scenario(session: Any) -> Any:
        read: list[Any] = []
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(consume(session, read), 0.4)
        return read

    found = await compare(scenario, dataclasses.replace(kit.reply, hang_after=4))
    assert len(found.value) > 1
    assert found.released
    assert found.told("clew.stream.outcome") == {"clew.stream.outcome": "cancelled"}
    assert (found.round.end_time - found.round.start_time) / 1e9 < 3


@pytest.mark.kits(asynchronous=True)
async def test_a_cancelled_call_leaves_its_siblings_alone(kit: Any):
    """Only the branch that was cancelled ends as cancelled; an agent with it."""

    async def agent(name: str, client: Any, stop: float) -> None:
        async with clew.run(name):
            await asyncio.wait_for(kit.ask(client), stop)

    slow, quick = Reply(text="late", delay=5), Reply(text="soon", delay=0.2)

    def reply(request: Any) -> Reply:
        return slow if b"slow" in request.body else quick

    with ScriptedProvider(reply) as server, captured() as exporter:
        one, two = kit.client(server), kit.client(server)

        async def asking(name: str, client: Any, stop: float) -> Any:
            async with clew.run(name):
                call = kit.resource(client).create(**kit.arguments() | {"model": name})
                return await asyncio.wait_for(call, stop)

        answers = await asyncio.gather(
            asking("slow", one, 0.1), asking("quick", two, 5), return_exceptions=True
        )
        assert isinstance(answers[0], TimeoutError)
        assert kit.text(answers[1]) == "soon"
        (slow_round,) = exporter.by_name("chat slow")
        (quick_round,) = exporter.by_name("chat quick")
        (slow_run,) = exporter.by_name("invoke_agent slow")
        (quick_run,) = exporter.by_name("invoke_agent quick")
        await one.close()
        await two.close()
    assert slow_round.attributes["error.type"] == "asyncio.exceptions.CancelledError"
    assert slow_round.end_time <= slow_run.end_time
    assert slow_run.attributes["clew.run.status"] == "failed"
    assert "error.type" not in quick_round.attributes
    assert quick_run.attributes["clew.run.status"] == "completed"


@pytest.mark.kits(asynchronous=True)
async def test_a_run_that_is_cancelled(kit: Any):
    """Cancelling the task of a run ends round and run as cancelled, and the task as cancelled."""
    with ScriptedProvider([Reply.silence()]) as server, captured() as exporter:
        client = kit.client(server)

        async def agent() -> None:
            with clew.run("agent"), clew.tool("think"):
                await kit.ask(client)

        task = asyncio.create_task(agent())
        await asyncio.sleep(0.2)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await client.close()
        names = ("chat", "execute_tool", "invoke_agent")
        (round_,), (tool,), (run,) = (exporter.by_name(name) for name in names)
    assert round_.attributes["error.type"] == "asyncio.exceptions.CancelledError"
    assert tool.attributes["clew.tool.outcome"] == "cancelled"
    assert run.attributes["clew.run.status"] == "cancelled"
    assert run.attributes["clew.run.termination_reason"] == "cancelled"


# --- other tasks ----------------------------------------------------------------------------------


@pytest.mark.kits(asynchronous=True)
async def test_a_stream_closed_in_another_task(kit: Any, caplog: pytest.LogCaptureFixture):
    """The round ends once, nothing is logged, and no span stays current."""
    with (
        caplog.at_level(logging.DEBUG, logger="opentelemetry"),
        ScriptedProvider([long_reply(kit)]) as server,
        captured() as exporter,
    ):
        client = kit.client(server)
        with clew.run("agent") as run:
            before = trace.get_current_span()
            stream = await kit.stream(client)
            assert trace.get_current_span() is before
            await anext(aiter(stream))
            assert trace.get_current_span() is before
            await asyncio.create_task(stream.close())
            assert trace.get_current_span() is before is run.span
        await client.close()
        (span,) = exporter.by_name("chat")
    assert span.attributes["clew.stream.outcome"] == "closed"
    assert [record for record in caplog.records if "detach" in record.getMessage().lower()] == []
    assert [record for record in caplog.records if record.name.startswith("clew")] == []


@pytest.mark.kits(asynchronous=True)
async def test_a_stream_read_in_another_task(kit: Any, caplog: pytest.LogCaptureFixture):
    """A stream may be opened in one task and read in another; the round stays in its run."""
    with ScriptedProvider([kit.reply]) as server, captured() as exporter:
        client = kit.client(server)
        async with clew.run("agent") as run:
            stream = await kit.stream(client)

        async def consume() -> int:
            return len([chunk async for chunk in stream])

        assert await asyncio.create_task(consume()) > 3
        await client.close()
        (span,) = exporter.by_name("chat")
    assert span.context.trace_id == run.run_id.int
    assert span.attributes["clew.stream.outcome"] == "complete"
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


async def test_memory_stays_flat_over_many_abandoned_streams(kit: Any):
    """Streams left after three chunks leave no more behind than without Clew, and end once each."""
    times, before = 150, 20

    async def grown(client: Any, forget: Callable[[], None]) -> int:
        async def leave_early() -> None:
            stream = await kit.stream(client)
            await read_some(kit, stream)
            closing = stream.close()
            if kit.asynchronous:
                await closing

        for _ in range(before):
            await leave_early()
        forget()
        gc.collect()
        tracemalloc.start()
        for _ in range(times):
            await leave_early()
        for _ in range(3):
            await asyncio.sleep(0.05)
            gc.collect()
        forget()
        size, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return size

    with ScriptedProvider(lambda _: kit.reply) as server:
        client = kit.client(server)
        bare = await grown(client, server.requests.clear)
        counts: list[int] = []
        with captured(queue_size=5000) as exporter:

            def forget() -> None:
                counts.append(len(exporter.by_name("chat")))
                exporter.clear()
                current = runtime.get()
                assert current is not None
                current.loose.clear()  # what is remembered on purpose, and bounded
                current.folds._told.clear()
                server.requests.clear()

            listened = await grown(client, forget)
        assert counts == [before, times]
        closing = client.close()
        if kit.asynchronous:
            await closing
    # One stream that stays alive takes some kilobytes.
    assert listened - bare < times * 700


async def read_some(kit: Any, stream: Any) -> None:
    read = 0
    if kit.asynchronous:
        async for _ in stream:
            read += 1
            if read == 3:
                break
    else:
        for _ in stream:
            read += 1
            if read == 3:
                break
