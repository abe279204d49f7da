"""Tools: what is executed, at which time, with what, and what the model is told."""

from __future__ import annotations

import asyncio
import json
import threading
from pathlib import Path
from typing import Any

import pytest
from loop_kit import DONE, Kit, asks

import clew
from clew.loop import Execution, LoopLimits, SqliteFence, Tool, ToolOutput, Trace
from clew.testing import Reply


async def test_a_tool_that_raises_says_nothing_of_why(kit: Kit):
    """The model hears that it failed; neither the span nor the result has the exception's text."""

    def broken() -> str:
        raise ValueError("SECRET")

    kit.script(Reply(tool_calls=(asks("broken"),)), DONE)
    result = await kit.run(kit.loop(Tool.of(broken, effect="read_only")))
    assert (result.text, kit.told, kit.outcomes) == ("Done.", ["The tool failed."], ["error"])
    (span,) = kit.spans("execute_tool")
    assert span["error.type"] == "ValueError"
    assert b"SECRET" not in kit.exported.otlp_bytes()
    assert "SECRET" not in repr(result.messages)


async def test_a_tool_that_takes_too_long_is_a_timeout(kit: Kit):
    """By the exception that says so."""

    def late() -> str:
        raise TimeoutError

    kit.script(Reply(tool_calls=(asks("late"),)), DONE)
    await kit.run(kit.loop(Tool.of(late, effect="read_only")))
    assert kit.told == ["The tool did not answer in time."]
    assert kit.outcomes == ["timeout"]


async def test_a_tool_may_say_that_it_failed(kit: Kit):
    """Its own words reach the model; the word `error` in a good result means nothing."""
    kit.script(Reply(tool_calls=(asks("bad"), asks("good"))), DONE)
    bad = Tool(
        name="bad",
        function=lambda: ToolOutput(text="No such order.", is_error=True),
        effect="read_only",
    )
    good = Tool(name="good", function=lambda: "error", effect="read_only")
    trace = Trace()
    await kit.run(kit.loop(bad, good), trace=trace)
    assert kit.told == ["No such order.", "error"]
    assert sorted(kit.outcomes) == ["error", "ok"]
    told = {step.tool_name: step.tool_is_error for step in trace.steps if step.kind == "tool"}
    assert told == {"bad": True, "good": False}


async def test_both_kinds_of_functions_serve_both_kinds_of_code(kit: Kit):
    """A coroutine function in synchronous code, a plain one in asynchronous code."""

    async def later() -> str:
        await asyncio.sleep(0)
        return "later"

    def now() -> str:
        return "now"

    kit.script(Reply(tool_calls=(asks("later"), asks("now"))), DONE)
    tools = [Tool.of(later, effect="read_only"), Tool.of(now, effect="read_only")]
    await kit.run(kit.loop(*tools))
    assert kit.told == ["later", "now"]


@pytest.mark.parametrize("mode", ["sync"])
async def test_a_coroutine_in_synchronous_code_inside_of_a_running_loop(kit: Kit):
    """It gets a loop of its own; its spans are still the run's."""

    async def later() -> str:
        with clew.tool("inner"):
            await asyncio.sleep(0)
        return "later"

    kit.script(Reply(tool_calls=(asks("later"),)), DONE)
    kit.loop(Tool.of(later, effect="read_only")).run("Hello?")
    assert kit.told == ["later"]
    outer, inner = kit.exported.by_name("execute_tool later") + kit.exported.by_name(
        "execute_tool inner"
    )
    assert inner.parent is not None
    assert inner.parent.span_id == outer.context.span_id


async def test_tools_that_read_are_executed_at_the_same_time(kit: Kit):
    """Each waits for the other; results stand in the order of the calls."""
    barrier = threading.Barrier(2)

    def meet(name: str) -> str:
        barrier.wait(5)
        return name

    kit.script(Reply(tool_calls=(asks("meet", {"name": "a"}), asks("meet", {"name": "b"}))), DONE)
    await kit.run(kit.loop(Tool.of(meet, effect="read_only")))
    assert kit.told == ["a", "b"]
    spans = kit.exported.by_name("execute_tool")
    assert min(span.end_time for span in spans) >= max(span.start_time for span in spans)


async def test_no_more_than_so_many_at_the_same_time(kit: Kit):
    """A bound of the loop."""
    going: list[int] = []
    most: list[int] = []

    def count() -> str:
        going.append(1)
        most.append(len(going))
        threading.Event().wait(0.02)
        going.pop()
        return "x"

    kit.script(Reply(tool_calls=tuple([asks("count")] * 6)), DONE)
    loop = kit.loop(Tool.of(count, effect="read_only"), loop={"limits": LoopLimits(parallel=2)})
    await kit.run(loop)
    assert max(most) == 2


async def test_a_turn_that_writes_goes_one_by_one_in_order(kit: Kit, tmp_path: Path):
    """What reads beside a write is not executed at the same time either."""
    order: list[str] = []

    def note(what: str) -> str:
        order.append(f"{what} begins")
        threading.Event().wait(0.02)
        order.append(f"{what} ends")
        return what

    write = Tool(name="write", function=note, effect="idempotent_write")
    read = Tool(name="read", function=note, effect="read_only")
    kit.script(Reply(tool_calls=(asks("write", {"what": "1"}), asks("read", {"what": "2"}))), DONE)
    await kit.run(kit.loop(write, read, loop={"fence": SqliteFence(tmp_path / "w.db")}))
    assert order == ["1 begins", "1 ends", "2 begins", "2 ends"]


async def test_a_tool_cannot_change_what_was_said(kit: Kit):
    """It gets arguments of its own: the transcript and the trace have the model's."""

    def take(items: list[str]) -> str:
        items.clear()
        return "taken"

    kit.script(Reply(tool_calls=(asks("take", {"items": ["a", "b"]}),)), DONE)
    trace = Trace()
    await kit.run(kit.loop(Tool.of(take, effect="read_only")), trace=trace)
    (call,) = kit.bodies[1]["messages"][1]["tool_calls"]
    assert json.loads(call["function"]["arguments"]) == {"items": ["a", "b"]}
    (step,) = [step for step in trace.steps if step.kind == "tool"]
    assert step.tool_arguments == {"items": ["a", "b"]}


async def test_what_a_tool_does_belongs_to_its_span(kit: Kit):
    """A nested agent, or any span, hangs under the tool call, in a thread as well."""

    def ask_other() -> str:
        with clew.run("other"):
            return "x"

    kit.script(Reply(tool_calls=(asks("ask_other"), asks("ask_other"))), DONE)
    await kit.run(kit.loop(Tool.of(ask_other, effect="read_only")))
    nested = kit.exported.by_name("invoke_agent other")
    tools = {span.get_span_context().span_id for span in kit.exported.by_name("execute_tool")}
    assert {span.parent.span_id for span in nested} == tools
    assert len({span.context.trace_id for span in kit.exported.spans}) == 1


async def test_a_tool_that_was_not_declared_writes(kit: Kit):
    """Nobody said that it only reads: without a fence it is not executed."""
    seen: list[str] = []
    kit.script(Reply(tool_calls=(asks("quiet"),)), DONE)
    await kit.run(kit.loop(Tool(name="quiet", function=lambda: seen.append("x"))))
    assert seen == []
    assert kit.told == ["This call could not be made safely; the tool was not executed."]
    assert kit.outcomes == ["denied"]
    (decision,) = kit.spans("decide write_fence")
    keys = ("outcome", "reason", "subject")
    assert [decision[f"clew.decision.{key}"] for key in keys] == ["deny", "no_fence", "quiet"]


async def test_the_hook_is_called_before_every_execution(kit: Kit):
    """With what is about to happen, while nothing has; what it raises refuses the call."""
    done: list[str] = []
    seen: list[tuple[Execution, int]] = []

    def before(execution: Execution) -> None:
        seen.append((execution, len(done)))
        if execution.arguments["what"] == "no":
            raise ValueError("SECRET")

    tool = Tool(name="act", function=lambda what: done.append(what) or what, effect="read_only")
    kit.script(
        Reply(tool_calls=(asks("act", {"what": "yes"}),)),
        Reply(tool_calls=(asks("act", {"what": "no"}),)),
        DONE,
    )
    result = await kit.run(kit.loop(tool, loop={"before_tool": before}))
    first = Execution(
        run_id=result.run_id,
        round=1,
        place=0,
        tool="act",
        effect="read_only",
        arguments={"what": "yes"},
    )
    assert seen[0] == (first, 0)
    assert [execution.round for execution, _ in seen] == [1, 2]
    assert done == ["yes"]
    assert kit.told == ["yes", "This call is not permitted; the tool was not executed."]
    assert "SECRET" not in repr(result.messages)


async def test_the_hook_cannot_change_what_was_admitted(kit: Kit):
    """It gets arguments of its own, as the tool does."""
    seen: list[Any] = []
    tool = Tool(name="act", function=lambda what: seen.append(what) or "x", effect="read_only")
    kit.script(Reply(tool_calls=(asks("act", {"what": ["a"]}),)), DONE)

    def change(execution: Execution) -> None:
        execution.arguments["what"].append("b")

    result = await kit.run(kit.loop(tool, loop={"before_tool": change}))
    assert seen == [["a"]]
    assert result.messages[1].tool_calls[0].arguments == {"what": ["a"]}


@pytest.mark.parametrize("arguments", ["[1]", "not json", '"text"', "null"])
async def test_arguments_that_are_no_object_are_not_used(kit: Kit, arguments: str):
    """The tool is not executed, and the model is told so."""
    seen: list[Any] = []
    kit.script(Reply(tool_calls=(asks("act", arguments),)), DONE)
    await kit.run(kit.loop(Tool(name="act", function=seen.append, effect="read_only")))
    assert seen == []
    sentence = "The arguments are no JSON object; the tool was not executed."
    assert kit.told == [sentence]


async def test_calls_to_the_outside_are_counted_over_the_whole_run(kit: Kit):
    """Not for each round anew."""
    seen: list[str] = []
    tool = Tool(name="far", function=lambda: seen.append("x"), effect="read_only", remote=True)
    turn = Reply(tool_calls=(asks("far"), asks("far")))
    kit.script(turn, turn, DONE)
    await kit.run(kit.loop(tool, loop={"limits": LoopLimits(remote_calls=3)}))
    assert len(seen) == 3
