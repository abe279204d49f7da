"""Steps that are generators, and calls in which an SDK runs tools by itself."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import anthropic
import pytest

import clew
from clew.testing import Reply, ScriptedProvider, ScriptedToolCall, captured

PAUSE = 0.1


def of_kind(exporter: Any, name: str) -> Any:
    (span,) = exporter.by_name(name)
    return span


def parent_of(exporter: Any, span: Any) -> int:
    """Return the id of the nearest span above that is not an SDK's own."""
    known = {one.context.span_id: one for one in exporter.spans}
    while (above := known[span.parent.span_id]).instrumentation_scope.name != "clew":
        span = above
    return above.context.span_id


def seconds(span: Any) -> float:
    return (span.end_time - span.start_time) / 1e9


@pytest.mark.kits(asynchronous=False)
async def test_a_generator_step_covers_its_consumption(kit: Any):
    """The span lasts from the first item to the end; the call between two items is its child."""
    received: list[Any] = []
    with ScriptedProvider([kit.reply]) as server, captured() as exporter:
        client = kit.client(server)

        @clew.tool("steps")
        def steps() -> Any:
            received.append((yield "first"))
            kit.resource(client).create(**kit.arguments())
            yield "second"

        with clew.run("agent"):
            running = steps()
            items = [next(running)]
            time.sleep(PAUSE)  # noqa: ASYNC251 - the blocking client's caller blocks
            items.append(running.send("zqmark sent"))
            time.sleep(PAUSE)  # noqa: ASYNC251 - the blocking client's caller blocks
            items += list(running)
        await kit.close(client)
        step, chat = of_kind(exporter, "execute_tool steps"), of_kind(exporter, f"chat {kit.model}")
        assert parent_of(exporter, chat) == step.context.span_id
    assert items == ["first", "second"]
    assert received == ["zqmark sent"]
    assert seconds(step) >= 2 * PAUSE


@pytest.mark.kits(asynchronous=True)
async def test_an_async_generator_step_covers_its_consumption(kit: Any):
    """The same for an async generator."""
    received: list[Any] = []
    with ScriptedProvider([kit.reply]) as server, captured() as exporter:
        client = kit.client(server)

        @clew.tool("steps")
        async def steps() -> Any:
            received.append((yield "first"))
            await kit.ask(client)
            yield "second"

        async with clew.run("agent"):
            running = steps()
            items = [await anext(running)]
            await asyncio.sleep(PAUSE)
            items.append(await running.asend("zqmark sent"))
            await asyncio.sleep(PAUSE)
            items += [item async for item in running]
        await kit.close(client)
        step, chat = of_kind(exporter, "execute_tool steps"), of_kind(exporter, f"chat {kit.model}")
        assert parent_of(exporter, chat) == step.context.span_id
    assert items == ["first", "second"]
    assert received == ["zqmark sent"]
    assert seconds(step) >= 2 * PAUSE


@pytest.mark.kits(asynchronous=False)
async def test_throw_and_close_pass_through(kit: Any):
    """What is thrown into a generator step reaches it, and so does its closing."""
    seen: list[str] = []
    with captured() as exporter:

        @clew.tool("steps")
        def steps() -> Any:
            try:
                yield 1
            except LookupError:
                seen.append("thrown")
            try:
                yield 2
            finally:
                seen.append("closed")

        with clew.run("agent"):
            running = steps()
            assert next(running) == 1
            assert running.throw(LookupError("zqmark")) == 2
            running.close()
        assert len(exporter.by_name("execute_tool")) == 1
        assert b"zqmark" not in exporter.otlp_bytes()
    assert seen == ["thrown", "closed"]


@pytest.mark.kits(asynchronous=True)
async def test_athrow_and_aclose_pass_through(kit: Any):
    """The same for an async generator, whose span ends in the task that closes it."""
    seen: list[str] = []
    with ScriptedProvider([kit.reply]) as server, captured() as exporter:
        client = kit.client(server)

        @clew.tool("steps")
        async def steps() -> Any:
            try:
                yield 1
            except LookupError:
                seen.append("thrown")
                await kit.ask(client)
            try:
                yield 2
            finally:
                seen.append("closed")

        async with clew.run("agent"):
            running = steps()
            assert await anext(running) == 1
            assert await running.athrow(LookupError("zqmark")) == 2
            await asyncio.create_task(running.aclose())
        await kit.close(client)
        (step,) = exporter.by_name("execute_tool")
        chat = of_kind(exporter, f"chat {kit.model}")
        assert parent_of(exporter, chat) == step.context.span_id
        assert b"zqmark" not in exporter.otlp_bytes()
    assert seen == ["thrown", "closed"]


# --- tools that an SDK runs by itself -------------------------------------------------------------------

USED = ((10, 5), (20, 6), (30, 7))
TOOLS = {"Rome": "weather", "Oslo": "people"}


def asking(used: tuple[int, int], place: str | None) -> Reply:
    from clew.facts import Usage

    calls = (
        ()
        if place is None
        else (ScriptedToolCall(name=TOOLS[place], arguments={"place": place}, id=f"call_{place}"),)
    )
    usage = Usage(input_tokens=used[0], output_tokens=used[1])
    return Reply(text="zqmark", tool_calls=calls, usage=usage)


def replies() -> list[Reply]:
    places = ("Rome", "Oslo", None)
    return [asking(used, place) for used, place in zip(USED, places, strict=True)]


def assert_three_rounds_and_two_tools(exporter: Any, run: Any, totals: Any) -> None:
    rounds = [span for span in exporter.spans if "clew.attempts" in span.attributes]
    tools = exporter.by_name("execute_tool")
    assert [span.attributes["gen_ai.tool.name"] for span in tools] == ["weather", "people"]
    assert [span.attributes["clew.round"] for span in rounds] == [1, 2, 3]
    found = [
        (
            span.attributes["gen_ai.usage.input_tokens"],
            span.attributes["gen_ai.usage.output_tokens"],
        )
        for span in rounds
    ]
    assert tuple(found) == USED
    assert len(tools) == 2
    assert len({parent_of(exporter, span) for span in (*rounds, *tools)}) == 1
    assert {span.context.trace_id for span in (*rounds, *tools)} == {run.run_id.int}
    assert (totals.input_tokens, totals.output_tokens) == (60, 18)
    assert b"zqmark" not in exporter.otlp_bytes()


@pytest.mark.kits("sdks", provider="Google Gemini")
@pytest.mark.covers("tools run by the SDK")
async def test_automatic_function_calling(kit: Any):
    """One call of google-genai that runs two tools is three rounds and two tool calls."""
    from google.genai import types

    @clew.tool("weather")
    def weather(place: str) -> str:
        """Tell the weather of a place."""
        return f"zqmark weather of {place}"

    @clew.tool("people")
    def people(place: str) -> str:
        """Tell how many live in a place."""
        return f"zqmark people of {place}"

    with ScriptedProvider(replies()) as server, captured() as exporter:
        client = kit.client(server)
        config = types.GenerateContentConfig(tools=[weather, people])
        models = client.aio.models if kit.asynchronous else client.models
        with clew.run("agent") as run:
            answer = models.generate_content(model=kit.model, contents="zqmark", config=config)
            answer = await answer if kit.asynchronous else answer
            totals = run.totals
        assert answer.text == "zqmark"
        await kit.close(client)
        assert_three_rounds_and_two_tools(exporter, run, totals)


@pytest.mark.kits(provider="anthropic")
@pytest.mark.covers("tools run by the SDK")
async def test_tool_runner(kit: Any):
    """The same for Anthropic's tool runner."""

    def made(name: str) -> Any:
        def work(place: str) -> str:
            """Tell something of a place."""
            with clew.tool(name):
                return f"zqmark {name} of {place}"

        async def later(place: str) -> str:
            """Tell something of a place."""
            return work(place)

        work.__name__ = later.__name__ = name
        return anthropic.beta_async_tool(later) if kit.asynchronous else anthropic.beta_tool(work)

    with ScriptedProvider(replies()) as server, captured() as exporter:
        client = kit.client(server)
        with clew.run("agent") as run:
            runner = client.beta.messages.tool_runner(
                model=kit.model,
                max_tokens=64,
                tools=[made("weather"), made("people")],
                messages=[{"role": "user", "content": "zqmark"}],
            )
            answer = runner.until_done()
            answer = await answer if kit.asynchronous else answer
            totals = run.totals
        assert kit.text(answer) == "zqmark"
        await kit.close(client)
        assert_three_rounds_and_two_tools(exporter, run, totals)
