"""Rounds: how many, what each sends, how a run ends."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from loop_kit import Kit, asks

from clew.errors import ConfigurationError
from clew.facts import Usage
from clew.gates.tool import ToolGate, ToolRule
from clew.loop import Loop, RunOptions, SqliteFence, Tool, Trace
from clew.providers import Choice, FallbackError, FallbackProvider, Message, ProviderError, provider
from clew.semconv import TOTALS
from clew.testing import CaptureExporter, Reply, ScriptedProvider

USAGE = Usage(input_tokens=100, output_tokens=10)


def find(number: str) -> str:
    """Find a parcel."""
    return f"parcel {number}"


FIND = Tool.of(find, effect="read_only")
DONE = Reply(text="Done.", usage=USAGE)
ASK = Reply(tool_calls=(asks("find", {"number": "P"}, call_id="c1"),), usage=USAGE)


async def test_without_tools_there_is_one_plain_completion(kit: Kit):
    """One round, and no field for tools on the wire, not even an empty one."""
    kit.script(Reply(text="Hi.", usage=USAGE))
    result = await kit.run(kit.loop())
    assert (result.text, result.rounds, result.truncated) == ("Hi.", 1, False)
    assert (result.status, result.reason, result.ok) == ("completed", "completed", True)
    assert kit.bodies == [{"model": "small", "messages": [{"role": "user", "content": "Hello?"}]}]
    assert kit.ended == {"status": "completed", "termination_reason": "completed"}


async def test_a_model_that_asks_for_tools_nobody_offers_is_not_asked_again(kit: Kit):
    """Without tools the first answer is the last."""
    kit.script(Reply(text="Hi.", tool_calls=(asks("find"),)))
    result = await kit.run(kit.loop())
    assert (result.text, result.rounds, kit.server.left) == ("Hi.", 1, 0)


async def test_tools_are_executed_and_the_model_is_asked_again(kit: Kit):
    """The second request is the first, with the answer and the result behind it."""
    kit.script(ASK, Reply(text="Done.", usage=USAGE))
    result = await kit.run(kit.loop(FIND, prompt="Be brief."))
    assert (result.text, result.rounds, result.totals.tool_calls) == ("Done.", 2, 1)
    call = {"id": "c1", "type": "function"}
    call["function"] = {"name": "find", "arguments": '{"number":"P"}'}  # type: ignore[assignment]
    first = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hello?"},
    ]
    assert [body["messages"] for body in kit.bodies] == [
        first,
        [
            *first,
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c1", "content": "parcel P"},
        ],
    ]
    assert [span["clew.round"] for span in kit.spans("chat")] == [1, 2]
    (tool,) = kit.spans("execute_tool")
    keys = ("gen_ai.tool.name", "clew.tool.outcome", "clew.tool.effect", "clew.round")
    assert [tool[key] for key in keys] == ["find", "ok", "read_only", 1]


async def test_after_the_last_round_the_model_sums_up(kit: Kit):
    """The closing round is one of its own, with the tools there and not to be called."""
    kit.script(ASK, ASK, Reply(text="In short.", usage=USAGE))
    result = await kit.run(kit.loop(FIND, limits={"max_rounds": 2}))
    assert (result.text, result.rounds, result.truncated) == ("In short.", 3, True)
    assert (result.status, result.reason) == ("completed", "max_rounds")
    assert [body.get("tool_choice") for body in kit.bodies] == [None, None, "none"]
    assert [len(body["tools"]) for body in kit.bodies] == [1, 1, 1]
    assert [span["clew.round"] for span in kit.spans("chat")] == [1, 2, 3]
    assert kit.ended == {"status": "completed", "termination_reason": "max_rounds"}


async def test_what_a_closing_round_asks_for_is_not_executed(kit: Kit):
    """Nothing happens after it, whatever the model says."""
    kit.script(ASK, ASK)
    result = await kit.run(kit.loop(FIND, limits={"max_rounds": 1}))
    assert (result.text, result.rounds, result.totals.tool_calls) == ("", 2, 1)


async def test_totals_are_sums_over_all_rounds(kit: Kit):
    """The closing round counts, and what the run's span says is the same."""
    kit.script(*[ASK] * 2, Reply(text="x", usage=USAGE))
    result = await kit.run(kit.loop(FIND, model="gpt-4o", limits={"max_rounds": 2}))
    totals = result.totals
    assert (totals.input_tokens, totals.output_tokens, totals.tool_calls) == (300, 30, 2)
    assert (totals.rounds, totals.rounds_without_usage) == (3, 0)
    run = kit.spans("invoke_agent")[-1]
    assert totals.cost_usd == pytest.approx(run["clew.run.cost.usd"])
    assert totals.cost_status == run["clew.run.cost.status"] == "priced"
    assert totals.input_tokens == run["clew.run.usage.input_tokens"]
    assert totals.rounds == run["clew.run.rounds"]


async def test_usage_that_is_not_reported_is_not_zero(kit: Kit):
    """Tokens stay unknown, and the round is counted as one without usage."""
    kit.script(Reply(text="x", usage=None))
    totals = (await kit.run(kit.loop())).totals
    assert (totals.input_tokens, totals.cost_usd, totals.rounds_without_usage) == (None, None, 1)
    assert totals.cost_status == "unknown"


async def test_options_reach_every_request(kit: Kit):
    """Sampling options of the loop, and the configuration's limit on output tokens."""
    kit.script(ASK, Reply(text="x"))
    loop = kit.loop(
        FIND,
        limits={"max_tokens": 50},
        loop={"options": {"temperature": 0.5, "extra": {"user": "u"}}},
    )
    await kit.run(loop)
    keys = ("temperature", "user", "max_tokens")
    assert [[body[key] for key in keys] for body in kit.bodies] == [[0.5, "u", 50]] * 2


async def test_the_run_has_what_was_said_about_it(kit: Kit):
    """Id, conversation, tenant and the rest are those of `clew.run`."""
    kit.script(Reply(text="x"))
    options = RunOptions(
        run_id="11111111-1111-4111-8111-111111111111",
        conversation_id="conv-1",
        tenant="acme",
        kind="channel",
        trigger="user_message",
        message_id="m-1",
        actor="ann",
    )
    result = await kit.run(kit.loop(identifier="desk", loop={"agent": "helper"}), options=options)
    assert result.run_id == "11111111-1111-4111-8111-111111111111"
    run = kit.spans("invoke_agent helper")[-1]
    keys = ("gen_ai.conversation.id", "clew.tenant", "clew.run.kind", "clew.trigger")
    assert [run[key] for key in keys] == ["conv-1", "acme", "channel", "user_message"]
    assert (run["clew.configuration"], run["clew.message.id"]) == ("desk", "m-1")
    assert len(run["clew.actor"]) == 64


async def test_the_callers_messages_are_not_changed(kit: Kit):
    """A conversation may be given; the list stays as it is, and no message is shared."""
    kit.script(ASK, Reply(text="x"))
    given = [
        Message.user("One."),
        Message(role="assistant", content="Two."),
        Message.user("Three."),
    ]
    copy = list(given)
    result = await kit.run(kit.loop(FIND, prompt="P"), given)
    assert given == copy
    assert kit.sent[0] == [
        ("system", "P"),
        ("user", "One."),
        ("assistant", "Two."),
        ("user", "Three."),
    ]
    assert result.messages[1:4] == tuple(copy)


# --- how a run ends ------------------------------------------------------------------------------


async def test_a_provider_that_fails_ends_the_run(kit: Kit):
    """What was there until then is the result; status, reason and error are told."""
    kit.script(
        Reply(text="I look.", tool_calls=ASK.tool_calls, usage=USAGE), Reply.failure(500, "SECRET")
    )
    result = await kit.run(kit.loop(FIND))
    assert (result.status, result.reason, result.text) == ("failed", "provider_failed", "I look.")
    assert (result.rounds, result.totals.input_tokens, result.ok) == (2, 100, False)
    assert isinstance(result.error, ProviderError)
    assert kit.ended["termination_reason"] == "provider_failed"
    assert kit.ended["type"] == "clew.providers.errors.ProviderError"
    assert b"SECRET" not in kit.exported.otlp_bytes()


async def test_a_request_that_is_not_sent_is_no_round(kit: Kit, monkeypatch: pytest.MonkeyPatch):
    """Without a key nothing leaves, and nothing is counted."""
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with provider("openai") as keyless:
        result = await kit.run(kit.loop(by=keyless))
    assert (result.reason, result.rounds, result.totals.rounds) == ("provider_failed", 0, 0)


async def test_a_chain_answers_with_the_next_provider(kit: Kit):
    """The round is one, with a hop for each provider; the numbers of the fit are on both."""
    kit.script(Reply.failure(500), Reply(text="x", usage=USAGE))
    chain = FallbackProvider(kit.provider, Choice(provider=kit.provider, model="gpt-4o"))
    result = await kit.run(kit.loop(by=chain))
    assert (result.text, result.rounds) == ("x", 1)
    assert result.totals.cost_status == "priced"
    spans = kit.spans("chat")
    assert [span["clew.provider.hop"] for span in spans] == [0, 1]
    assert [span["clew.round"] for span in spans] == [1, 1]
    assert [span["clew.context.budget"] > 0 for span in spans] == [True, True]


async def test_a_chain_that_fails_as_a_whole_ends_the_run(kit: Kit):
    """The error says what was tried."""
    kit.script(Reply.failure(500), Reply.failure(503))
    chain = FallbackProvider(kit.provider, Choice(provider=kit.provider, model="other"))
    result = await kit.run(kit.loop(by=chain))
    assert isinstance(result.error, FallbackError)
    assert (result.reason, result.rounds) == ("provider_failed", 1)


@pytest.mark.parametrize(
    "script",
    [
        (DONE,),
        (ASK, DONE),
        (ASK, ASK, ASK),
        (ASK, Reply.failure(500)),
        (Reply.failure(400),),
        (ASK, Reply(text="x", usage=None)),
        (Reply(tool_calls=(asks("nobody"), asks("find", {"number": "P"})), usage=USAGE), DONE),
    ],
    ids=["plain", "tools", "capped", "failed late", "failed", "unknown usage", "refused"],
)
async def test_the_result_has_the_totals_of_the_run(
    kit: Kit, govern: Callable[..., CaptureExporter], script: tuple[Reply, ...]
):
    """On every ending: the result says what the run's span says."""
    kit.exported = govern(ToolGate({"find": ToolRule()}))
    kit.script(*script)
    result = await kit.run(kit.loop(FIND, model="gpt-4o", limits={"max_rounds": 2}))
    run = kit.spans("invoke_agent")[-1]
    told = {key: value for key, value in run.items() if key in _KEYS}
    said = result.totals.attributes("clew.run.")
    assert said.pop("clew.run.cost.usd", 0.0) == pytest.approx(told.pop("clew.run.cost.usd", 0.0))
    assert {key: value for key, value in said.items() if key in _KEYS} == told


_KEYS = {f"clew.run.{name}" for name in TOTALS}


class Stop:
    """Says no so many times, then yes."""

    def __init__(self, after: int) -> None:
        self.left = after

    def __call__(self) -> bool:
        self.left -= 1
        return self.left < 0


READ = Tool(name="read", function=lambda: "ok", effect="read_only")
WRITE = Tool(name="write", function=lambda: "ok", effect="idempotent_write")


@pytest.mark.parametrize(
    ("tool", "after", "rounds", "tools"),
    [(READ, 0, 0, 0), (READ, 1, 1, 0), (READ, 2, 1, 2), (WRITE, 2, 1, 0), (WRITE, 3, 1, 1)],
)
async def test_a_run_is_cancelled_between_any_two_steps(
    kit: Kit, tmp_path: Path, tool: Tool, after: int, rounds: int, tools: int
):
    """Before a round, before a turn's tools, between two that write: what happened is kept."""
    kit.script(Reply(text="A", tool_calls=(asks(tool.name), asks(tool.name))), Reply(text="B"))
    trace = Trace()
    loop = kit.loop(tool, loop={"fence": SqliteFence(tmp_path / "writes.db")})
    result = await kit.run(loop, cancelled=Stop(after), trace=trace)
    assert (result.status, result.reason) == ("cancelled", "cancelled")
    assert (result.rounds, result.text) == (rounds, "A" if rounds else "")
    assert result.totals.tool_calls == tools
    assert [step.kind for step in trace.steps].count("llm") == rounds
    assert [step.kind for step in trace.steps].count("tool") == tools
    assert kit.ended == {"status": "cancelled", "termination_reason": "cancelled"}
    assert len(kit.bodies) == rounds


@pytest.mark.parametrize("mode", ["async"])
async def test_a_task_that_is_cancelled_while_the_model_thinks(kit: Kit):
    """The cancellation passes; round and run have ended as cancelled, and the trace says so."""
    kit.script(Reply.silence())
    trace = Trace()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(kit.loop().arun("Hello?", trace=trace), 0.3)
    assert kit.ended == {"status": "cancelled", "termination_reason": "cancelled"}
    last = trace.steps[-1]
    assert (last.kind, last.error_type) == ("llm", "asyncio.exceptions.CancelledError")
    assert last.duration_ms >= 250


@pytest.mark.parametrize("mode", ["async"])
async def test_a_task_that_is_cancelled_while_tools_work(kit: Kit):
    """Every tool of the turn is stopped and recorded as cancelled; none goes on by itself."""
    going: list[str] = []
    both = asyncio.Event()

    async def slow() -> str:
        going.append("on")
        if len(going) == 2:
            both.set()
        try:
            await asyncio.sleep(30)
        finally:
            going.append("off")
        return "never"

    kit.script(Reply(tool_calls=(asks("slow"), asks("slow"))))
    trace = Trace()
    task = asyncio.ensure_future(
        kit.loop(Tool.of(slow, effect="read_only")).arun("Hello?", trace=trace)
    )
    await asyncio.wait_for(both.wait(), 10)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert going == ["on", "on", "off", "off"]
    spans = kit.spans("execute_tool")
    assert [span["clew.tool.outcome"] for span in spans] == ["cancelled"] * 2
    assert [step.tool_name for step in trace.steps if step.kind == "tool"] == ["slow"] * 2
    assert kit.ended["status"] == "cancelled"


class Halt(BaseException):
    """Stops everything, like an interrupt."""


@pytest.mark.parametrize("mode", ["async"])
async def test_what_stops_one_tool_stops_the_others(kit: Kit):
    """Nothing goes on behind the caller's back."""
    ended: list[str] = []
    begun = asyncio.Event()

    async def wait() -> str:
        begun.set()
        try:
            await asyncio.sleep(30)
        finally:
            ended.append("wait")
        return "never"

    async def halt() -> str:
        await begun.wait()
        raise Halt

    kit.script(Reply(tool_calls=(asks("wait"), asks("halt"))))
    tools = [Tool.of(wait, effect="read_only"), Tool.of(halt, effect="read_only")]
    with pytest.raises(Halt):
        await asyncio.wait_for(kit.loop(*tools).arun("Hello?"), 15)
    assert ended == ["wait"]
    assert kit.ended["status"] == "failed"


@pytest.mark.parametrize("mode", ["sync"])
def test_an_interrupt_passes(kit: Kit):
    """What stops the whole program is not caught; the run has ended as cancelled."""

    def interrupt() -> str:
        raise KeyboardInterrupt

    kit.script(Reply(tool_calls=(asks("interrupt"),)))
    with pytest.raises(KeyboardInterrupt):
        kit.loop(Tool.of(interrupt, effect="read_only")).run("Hello?")
    assert kit.ended == {"status": "cancelled", "termination_reason": "cancelled"}
    (tool,) = kit.spans("execute_tool")
    assert tool["clew.tool.outcome"] == "cancelled"


# --- many runs of one loop -----------------------------------------------------------------------


def answering(request: Any) -> Reply:
    """Ask for a tool first, then say what it gave; usage by the run's own number."""
    said = request.json()["messages"]
    number = int(said[0]["content"])
    usage = Usage(input_tokens=number, output_tokens=1)
    if said[-1]["role"] == "tool":
        return Reply(text=said[-1]["content"], usage=usage)
    return Reply(tool_calls=(asks("double", {"number": number}),), usage=usage)


@pytest.mark.parametrize("mode", ["sync", "async"])
async def test_runs_at_the_same_time_share_nothing(kit: Kit):
    """Forty runs of one loop, interleaved: each has its own answer, totals, steps and trace."""

    def double(number: int) -> str:
        threading.Event().wait(0.002 * (number % 3))
        return str(2 * number)

    with ScriptedProvider(answering) as server:
        many = Kit(kit.mode, server, kit.exported)
        loop = many.loop(Tool.of(double, effect="read_only"))
        traces = [Trace() for _ in range(40)]
        if kit.mode == "sync":
            with ThreadPoolExecutor(8) as pool:
                results = list(
                    pool.map(lambda n: loop.run(str(1000 + n), trace=traces[n]), range(40))
                )
        else:
            async with many.provider:
                results = await asyncio.gather(
                    *(loop.arun(str(1000 + n), trace=traces[n]) for n in range(40))
                )
        many.provider.close()
    for number, (result, trace) in enumerate(zip(results, traces, strict=True), 1000):
        assert result.text == str(2 * number)
        assert (result.totals.input_tokens, result.totals.tool_calls) == (2 * number, 1)
        kinds = ["context", "request", "llm", "tool", "context", "request", "llm"]
        assert [step.kind for step in trace.steps] == kinds
        assert {step.prompt_tokens for step in trace.steps if step.kind == "llm"} == {number}
    runs = kit.spans("invoke_agent")
    assert len({run["clew.run.id"] for run in runs}) == 40
    assert {(run["clew.run.rounds"], run["clew.run.tool_calls"]) for run in runs} == {(2, 1)}


# --- what is refused before anything begins ------------------------------------------------------


@pytest.mark.parametrize(
    ("made", "said"),
    [
        ({"tools": ("nobody",)}, "names the tools 'nobody'; there are: 'find'"),
        ({"loop": {"options": {"heat": 1}}}, "there are no options \\['heat'\\]"),
    ],
)
@pytest.mark.parametrize("mode", ["sync"])
def test_a_loop_that_cannot_work_is_refused(kit: Kit, made: dict[str, Any], said: str):
    """Names of tools and options are checked when the loop is made."""
    with pytest.raises(ConfigurationError, match=said):
        kit.loop(FIND, **made)


@pytest.mark.parametrize("mode", ["sync"])
def test_two_tools_of_one_name_are_refused(kit: Kit):
    """Nobody could say which one the model means."""
    with pytest.raises(ConfigurationError, match="two tools are called 'find'"):
        Loop(kit.configuration(), kit.provider, tools=(FIND, FIND))
