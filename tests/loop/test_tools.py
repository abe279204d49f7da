"""Tools: what is executed, at which time, with what, and what the model is told."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from loop_kit import Kit, asks

import clew
from clew.errors import ConfigurationError, StoreError
from clew.loop import (
    Execution,
    FenceRefusedError,
    LoopLimits,
    SqliteFence,
    Tool,
    ToolOutput,
    Trace,
    Write,
)
from clew.loop.tools import MAX_BYTES, capped, declared, output_of, problems
from clew.testing import Reply

DONE = Reply(text="Done.")


def results(kit: Kit) -> list[Any]:
    """Return what the model was told in its last request."""
    return [each["content"] for each in kit.bodies[-1]["messages"] if each["role"] == "tool"]


def outcomes(kit: Kit) -> list[Any]:
    return [span["clew.tool.outcome"] for span in kit.spans("execute_tool")]


async def test_a_tool_that_raises_says_nothing_of_why(kit: Kit):
    """The model hears that it failed; neither the span nor the result has the exception's text."""

    def broken() -> str:
        raise ValueError("SECRET")

    kit.script(Reply(tool_calls=(asks("broken"),)), DONE)
    result = await kit.run(kit.loop(Tool.of(broken, effect="read_only")))
    assert (result.text, results(kit), outcomes(kit)) == ("Done.", ["The tool failed."], ["error"])
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
    assert results(kit) == ["The tool did not answer in time."]
    assert outcomes(kit) == ["timeout"]


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
    assert results(kit) == ["No such order.", "error"]
    assert sorted(outcomes(kit)) == ["error", "ok"]
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
    assert results(kit) == ["later", "now"]


@pytest.mark.parametrize("mode", ["sync"])
async def test_a_coroutine_in_synchronous_code_inside_of_a_running_loop(kit: Kit):
    """It gets a loop of its own; its spans are still the run's."""

    async def later() -> str:
        with clew.tool("inner"):
            await asyncio.sleep(0)
        return "later"

    kit.script(Reply(tool_calls=(asks("later"),)), DONE)
    kit.loop(Tool.of(later, effect="read_only")).run("Hello?")
    assert results(kit) == ["later"]
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
    assert results(kit) == ["a", "b"]
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
    assert results(kit) == ["This call could not be made safely; the tool was not executed."]
    assert outcomes(kit) == ["denied"]
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
    assert results(kit) == ["yes", "This call is not permitted; the tool was not executed."]
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
    assert results(kit) == [sentence]


async def test_calls_to_the_outside_are_counted_over_the_whole_run(kit: Kit):
    """Not for each round anew."""
    seen: list[str] = []
    tool = Tool(name="far", function=lambda: seen.append("x"), effect="read_only", remote=True)
    turn = Reply(tool_calls=(asks("far"), asks("far")))
    kit.script(turn, turn, DONE)
    await kit.run(kit.loop(tool, loop={"limits": LoopLimits(remote_calls=3)}))
    assert len(seen) == 3


# --- a tool from a function ----------------------------------------------------------------------


def test_a_function_becomes_a_tool():
    """Name, the first paragraph of the docstring, and a schema of the parameters."""

    def find(number: str, limit: int = 3) -> str:
        """Find a parcel, wherever it is.

        Args: not for the model.
        """
        return number

    tool = Tool.of(find)
    assert (tool.name, tool.description) == ("find", "Find a parcel, wherever it is.")
    assert tool.effect == "non_idempotent_write"
    assert tool.writes
    properties = tool.parameters["properties"]
    assert {name: each["type"] for name, each in properties.items()} == {
        "number": "string",
        "limit": "integer",
    }
    assert tool.parameters["required"] == ["number"]
    assert Tool.of(find, name="f", description="d").spec.description == "d"


@pytest.mark.parametrize(
    "made",
    [
        {"effect": "harmless"},
        {"input_schema": {"type": "string"}},
        {"input_schema": {"type": "object", "properties": {"a": {"pattern": "x"}}}},
        {"input_schema": {"type": "object", "properties": {"a": {"type": "money"}}}},
        {"input_schema": {"type": "object", "properties": {"a": {"items": 3}}}},
        {"input_schema": "object"},
    ],
)
def test_a_tool_that_cannot_be_checked_is_refused(made: dict[str, Any]):
    """An unknown effect, or a schema for input with words that nobody here checks."""
    with pytest.raises(ConfigurationError, match="tool 'x'"):
        Tool(name="x", function=print, **made)


# --- results and their bounds --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "text"),
    [("text", "text"), ({"a": "ö"}, '{"a": "ö"}'), (None, "null"), ([1, 2.5], "[1, 2.5]")],
)
def test_a_value_becomes_text(value: Any, text: str):
    """Text as it is, everything else as JSON."""
    assert output_of(value) == ToolOutput(text=text)


async def test_a_value_that_json_cannot_say_is_a_failure(kit: Kit):
    """The model hears that the tool failed."""
    kit.script(Reply(tool_calls=(asks("odd"),)), DONE)
    await kit.run(kit.loop(Tool(name="odd", function=object, effect="read_only")))
    assert results(kit) == ["The tool failed."]


@given(st.text(), st.integers(min_value=20, max_value=60))
def test_a_long_result_is_cut_between_characters(text: str, limit: int):
    """It has at most so many bytes, is valid UTF-8, and begins as it did."""
    found = capped(text, limit)
    whole = text.encode("utf-8", "replace").decode()
    assert len(found.encode()) <= limit
    assert found == whole or whole.startswith(found.removesuffix("\n[cut off]"))


def test_results_and_artifacts_have_bounds_of_their_own():
    """Of the artifacts those that fit, in order; what is no JSON is left out."""
    long = "x" * (MAX_BYTES + 1)
    output = output_of(ToolOutput(text=long, artifacts=("a", object(), {"b": 1}, long, "c")))
    assert len(output.text.encode()) == MAX_BYTES
    assert output.artifacts == ("a", {"b": 1})


# --- the write fence -----------------------------------------------------------------------------

WRITE = Write(run_id="r", round=1, place=0, tool="pay", effect="non_idempotent_write")
AGAIN = Write(run_id="r", round=1, place=0, tool="tag", effect="idempotent_write")


@pytest.fixture
def fence(tmp_path: Path) -> SqliteFence:
    return SqliteFence(tmp_path / "writes.db")


def refusal(act: Callable[[], Any]) -> str:
    with pytest.raises(FenceRefusedError) as refused:
        act()
    return refused.value.reason


def test_a_write_is_put_down_before_and_after(fence: SqliteFence):
    """Durably: another connection sees it; the file is its owner's alone."""
    lease = fence.enter("r")
    fence.before(lease, WRITE)
    with sqlite3.connect(fence.path) as other:
        assert other.execute("SELECT tool, state FROM writes").fetchall() == [("pay", "begun")]
    fence.after(lease, WRITE)
    assert other.execute("SELECT state FROM writes").fetchall() == [("done",)]
    other.close()
    assert fence.path.stat().st_mode & 0o777 == 0o600


def test_a_write_is_made_once(fence: SqliteFence):
    """Also for a process that has the lease later."""
    lease = fence.enter("r")
    fence.before(lease, WRITE)
    fence.after(lease, WRITE)
    fence.leave(lease, "r")
    other = fence.enter("r")
    assert refusal(lambda: fence.before(other, WRITE)) == "already_executed"


def test_a_write_whose_end_nobody_knows_is_not_repeated(fence: SqliteFence):
    """Unless it is idempotent."""
    lease = fence.enter("r")
    for write in (WRITE, AGAIN):
        fence.before(lease, write)
    assert refusal(lambda: fence.before(lease, WRITE)) == "outcome_unknown"
    fence.before(lease, AGAIN)


def test_a_run_belongs_to_one_process_at_a_time(tmp_path: Path):
    """Until the lease is given back, or has run out; whoever lost it writes no more."""
    now = [1000.0]
    fence = SqliteFence(tmp_path / "w.db", lease_s=900, clock=lambda: now[0])
    lease = fence.enter("r")
    fence.enter("another run")
    assert refusal(lambda: fence.enter("r")) == "lease_lost"
    now[0] += 899
    assert refusal(lambda: fence.enter("r")) == "lease_lost"
    now[0] += 2
    fence.enter("r")
    assert refusal(lambda: fence.before(lease, WRITE)) == "lease_lost"
    now[0] += 901
    other = fence.enter("r")
    fence.leave(lease, "r")
    assert refusal(lambda: fence.enter("r")) == "lease_lost"
    fence.leave(other, "r")
    fence.enter("r")


def test_each_write_renews_the_lease(tmp_path: Path):
    """A long run keeps what it has."""
    now = [1000.0]
    fence = SqliteFence(tmp_path / "w.db", lease_s=900, clock=lambda: now[0])
    lease = fence.enter("r")
    now[0] += 899
    fence.before(lease, WRITE)
    now[0] += 899
    assert refusal(lambda: fence.enter("r")) == "lease_lost"


def test_a_fence_that_cannot_be_used_says_so(tmp_path: Path):
    """A file that is no database."""
    (tmp_path / "w.db").write_text("no database at all, but long enough to be looked at as one")
    with pytest.raises(StoreError, match="cannot be used: DatabaseError"):
        SqliteFence(tmp_path / "w.db").enter("r")


async def test_a_write_behind_a_fence_is_executed_and_noted(kit: Kit, fence: SqliteFence):
    """The lease is given back when the run has ended."""
    states: list[Any] = []

    def pay() -> str:
        with sqlite3.connect(fence.path) as other:
            states.extend(other.execute("SELECT tool, state FROM writes").fetchall())
        other.close()
        return "paid"

    kit.script(Reply(tool_calls=(asks("pay"),)), DONE)
    result = await kit.run(kit.loop(Tool.of(pay), loop={"fence": fence}))
    assert (states, results(kit), outcomes(kit)) == ([("pay", "begun")], ["paid"], ["ok"])
    fence.enter(result.run_id)


async def test_a_write_that_fails_by_itself_has_ended(kit: Kit, fence: SqliteFence):
    """The model may ask for it again, which is another write."""
    tries: list[str] = []

    def pay() -> str:
        tries.append("x")
        if len(tries) == 1:
            raise ValueError
        return "paid"

    turn = Reply(tool_calls=(asks("pay"),))
    kit.script(turn, turn, DONE)
    await kit.run(kit.loop(Tool.of(pay), loop={"fence": fence}))
    assert results(kit) == ["The tool failed.", "paid"]


async def test_a_run_that_is_begun_again_does_not_write_again(kit: Kit, fence: SqliteFence):
    """The same run id, the same place: it was executed before."""
    from clew.loop import RunOptions

    paid: list[str] = []
    loop = kit.loop(Tool(name="pay", function=lambda: paid.append("x")), loop={"fence": fence})
    options = RunOptions(run_id="11111111-1111-4111-8111-111111111111")
    for _ in range(2):
        kit.script(Reply(tool_calls=(asks("pay"),)), DONE)
        await kit.run(loop, options=options)
    assert paid == ["x"]
    assert results(kit) == ["This call could not be made safely; the tool was not executed."]
    reasons = [span["clew.decision.reason"] for span in kit.spans("decide write_fence")]
    assert reasons == ["already_executed"]


async def test_without_its_fence_nothing_is_written(kit: Kit, tmp_path: Path):
    """A fence that cannot be used refuses."""
    (tmp_path / "w.db").write_text("no database at all, but long enough to be looked at as one")
    paid: list[str] = []
    tool = Tool(name="pay", function=lambda: paid.append("x"))
    kit.script(Reply(tool_calls=(asks("pay"),)), DONE)
    await kit.run(kit.loop(tool, loop={"fence": SqliteFence(tmp_path / "w.db")}))
    assert paid == []
    reasons = [span["clew.decision.reason"] for span in kit.spans("decide write_fence")]
    assert reasons == ["store_error"]


# --- what a person gives -------------------------------------------------------------------------

SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 2, "maxLength": 4},
        "count": {"type": "integer", "minimum": 1, "maximum": 3},
        "kind": {"enum": ["a", "b"]},
        "tags": {"type": "array", "items": {"type": "string"}},
        "ok": {"type": "boolean"},
        "price": {"type": "number"},
    },
    "required": ["name"],
}


@pytest.mark.parametrize(
    ("given", "wrong"),
    [
        ({"name": "ann", "count": 2, "kind": "a", "tags": ["x"], "ok": True, "price": 1}, []),
        ({"name": "ann", "count": 2.0, "other": 1}, []),
        ({}, ["input.name is missing"]),
        ("SECRET", ["input is not of type object"]),
        ({"name": "x"}, ["input.name is outside of its bounds (minLength)"]),
        ({"name": "SECRET"}, ["input.name is outside of its bounds (maxLength)"]),
        ({"name": "ann", "count": 0}, ["input.count is outside of its bounds (minimum)"]),
        ({"name": "ann", "count": 4}, ["input.count is outside of its bounds (maximum)"]),
        ({"name": "ann", "count": True}, ["input.count is not of type integer"]),
        ({"name": "ann", "count": 1.5}, ["input.count is not of type integer"]),
        ({"name": "ann", "ok": 1}, ["input.ok is not of type boolean"]),
        ({"name": "ann", "kind": "c"}, ["input.kind is none of the permitted values"]),
        ({"name": "ann", "tags": ["x", 3]}, ["input.tags[1] is not of type string"]),
    ],
)
def test_input_is_checked(given: Any, wrong: list[str]):
    """Each problem is a sentence that does not hold the value."""
    assert problems(given, SCHEMA) == wrong


def test_only_declared_members_count():
    """What the schema does not name is left behind."""
    assert declared({"name": "a", "amount": 1}, SCHEMA) == {"name": "a"}
