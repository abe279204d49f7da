"""Streams that one task opens and another ends; calls and agents that somebody stops."""

from __future__ import annotations

import asyncio
import dataclasses
import gc
from typing import Any

import pytest
from either_way import settle
from kits.comparing import listening
from starlette.requests import ClientDisconnect
from starlette.responses import StreamingResponse

import clew
from clew.testing import Reply, ScriptedProvider, captured

pytestmark = pytest.mark.kits("all", asynchronous=True)

LEFT = ("closed", "abandoned", "cancelled")
LONG = " ".join(f"zqmark{number}" for number in range(30))


def long_reply(kit: Any) -> Reply:
    """More than is read, and slow enough to be left in the middle."""
    return dataclasses.replace(kit.reply, text=LONG, event_delay=0.01)


async def some(session: Any, stream: Any, limit: int) -> list[str]:
    """Read the beginning of a stream, and keep what it is read from."""
    iterator = aiter(stream)
    read: list[str] = []
    while len(read) < limit:
        read.append(type(await anext(iterator)).__name__)
        session.look()
    return read


async def test_a_stream_that_is_closed_in_another_task(kit: Any, compare: Any):
    """The round ends once; the span that is current in the caller's task stays what it is."""

    async def scenario(session: Any) -> Any:
        stream = await kit.stream(session.client)
        session.look()
        read = await some(session, stream, 2)
        await asyncio.create_task(kit.close_stream(stream))
        session.look()
        return read

    found = await compare(scenario, long_reply(kit))
    assert len(found.value) == 2
    assert not found.failed
    assert found.told("clew.stream.outcome")["clew.stream.outcome"] in LEFT


async def test_a_stream_that_is_read_on_in_another_task(kit: Any, compare: Any):
    """Opened here, read there to the end: one whole round."""

    async def scenario(session: Any) -> Any:
        stream = await kit.stream(session.client)

        async def consume() -> int:
            return len([chunk async for chunk in kit.chunks(stream)])

        return await asyncio.create_task(consume())

    found = await compare(scenario)
    assert found.value > 3
    assert found.told("clew.stream.outcome") == {"clew.stream.outcome": "complete"}


async def test_a_generator_around_a_stream_that_the_loop_collects(kit: Any, compare: Any):
    """A dropped generator is closed by the event loop's hooks, in a task of its own."""

    async def scenario(session: Any) -> Any:
        async def texts() -> Any:
            async for chunk in kit.chunks(await kit.stream(session.client)):
                yield type(chunk).__name__

        running = texts()
        read = [await anext(running), await anext(running)]
        session.look()
        del running
        gc.collect()
        await asyncio.sleep(0.05)
        session.look()
        return read

    found = await compare(scenario, long_reply(kit))
    assert len(found.value) == 2
    assert not found.failed
    assert found.told("clew.stream.outcome")["clew.stream.outcome"] in LEFT


@pytest.mark.parametrize("version", ["2.3", "2.4"], ids=["message", "failing send"])
async def test_a_client_that_disconnects(version: str, kit: Any, compare: Any):
    """A stream passed on by a web framework whose client goes away after two chunks."""

    async def scenario(session: Any) -> Any:
        gone = asyncio.Event()
        sent: list[str] = []

        async def body() -> Any:
            async for chunk in kit.chunks(await kit.stream(session.client)):
                session.look()
                yield f"{type(chunk).__name__}\n"

        async def receive() -> Any:
            await gone.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            sent.append(message["type"])
            if len(sent) >= 3:  # the head and two chunks
                gone.set()
                if version == "2.4":
                    raise OSError("the client has gone")

        scope = {"type": "http", "asgi": {"spec_version": version}}
        try:
            await StreamingResponse(body())(scope, receive, send)
        except ClientDisconnect:
            sent.append("disconnect")
        session.look()
        return sent[:3], sent[-1] == "disconnect"

    found = await compare(scenario, long_reply(kit))
    assert len(found.value[0]) == 3
    assert found.told("clew.stream.outcome")["clew.stream.outcome"] in LEFT
    if version == "2.4":
        assert not found.failed


# --- agents -------------------------------------------------------------------------------------------


async def test_an_agent_that_is_cancelled_between_two_tool_calls(kit: Any):
    """Its open spans end at once, as cancelled; a sibling over the same SDK goes on."""
    done: list[str] = []
    between = asyncio.Event()
    with (
        ScriptedProvider(lambda _: kit.reply, formats=kit.formats) as server,
        listening() as said,
        captured() as exporter,
    ):

        async def agent(name: str, pause: float) -> str:
            client = await settle(kit.client(server))
            try:
                async with clew.run(name):
                    await kit.ask(client)
                    with clew.tool("outer"):
                        with clew.tool("first"):
                            done.append(f"{name} first")
                        if name == "stopped":
                            between.set()
                        await asyncio.sleep(pause)
                        with clew.tool("second"):
                            done.append(f"{name} second")
                    return name
            finally:
                await kit.close(client)

        async def stopped() -> None:
            async with asyncio.timeout(20):
                task = asyncio.create_task(agent("stopped", 60))
                await between.wait()
                await asyncio.wait_for(task, 0.05)

        ends = await asyncio.gather(stopped(), agent("sibling", 0.3), return_exceptions=True)
        spans = exporter.spans
    assert said == []
    assert type(ends[0]) is TimeoutError
    assert type(ends[0].__cause__) is asyncio.CancelledError
    assert ends[1] == "sibling"
    assert sorted(done) == ["sibling first", "sibling second", "stopped first"]
    runs = {span.attributes["gen_ai.agent.name"]: span for span in spans if is_run(span)}
    assert {name: run.attributes["clew.run.status"] for name, run in runs.items()} == {
        "stopped": "cancelled",
        "sibling": "completed",
    }
    outcomes = {
        name: sorted(
            (span.attributes["gen_ai.tool.name"], span.attributes["clew.tool.outcome"])
            for span in spans
            if "clew.tool.outcome" in span.attributes
            and span.context.trace_id == run.context.trace_id
        )
        for name, run in runs.items()
    }
    assert outcomes == {
        "stopped": [("first", "ok"), ("outer", "cancelled")],
        "sibling": [("first", "ok"), ("outer", "ok"), ("second", "ok")],
    }
    stopped_run = runs["stopped"]
    assert (stopped_run.end_time - stopped_run.start_time) / 1e9 < 20
    rounds = [span for span in spans if "clew.attempts" in span.attributes]
    assert [span.attributes.get("error.type") for span in rounds] == [None, None]


def is_run(span: Any) -> bool:
    return bool(span.attributes.get("clew.run.root")) and "clew.run.event" not in span.attributes


# aiobotocore leaves the connection of a stream that is cancelled to the collector, without Clew too.
@pytest.mark.filterwarnings(
    "ignore:.*Unclosed connection:ResourceWarning",
    "ignore:.*Connection.__del__:pytest.PytestUnraisableExceptionWarning",
)
async def test_a_timeout_around_one_of_two_streams(kit: Any):
    """Cancelling one stream ends it alone; the other, over the same server, is whole."""
    slow = dataclasses.replace(kit.reply, hang_after=4)
    replies = [slow, dataclasses.replace(kit.reply, event_delay=0.02)]
    with (
        ScriptedProvider(replies, formats=kit.formats) as server,
        listening() as said,
        captured() as exporter,
    ):
        clients = [await settle(kit.client(server)) for _ in range(2)]

        async def consume(client: Any, started: asyncio.Event) -> int:
            stream = await kit.stream(client)
            read = 0
            async for _ in kit.chunks(stream):
                read += 1
                started.set()
            return read

        started = asyncio.Event()
        first = asyncio.create_task(consume(clients[0], started))
        await asyncio.wait_for(started.wait(), 20)
        ends = await asyncio.gather(
            asyncio.wait_for(first, 0.3),
            consume(clients[1], asyncio.Event()),
            return_exceptions=True,
        )
        for client in clients:
            await kit.close(client)
        rounds = [span for span in exporter.spans if "clew.attempts" in span.attributes]
    del first, clients, client
    gc.collect()
    assert said == []
    assert type(ends[0]) is TimeoutError
    assert ends[1] > 3
    outcomes = sorted(span.attributes["clew.stream.outcome"] for span in rounds)
    assert outcomes == ["cancelled", "complete"]
