"""Streamed answers in the loop: the same run, and the text as it comes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from loop_kit import Kit, asks

from clew.actors import Actor
from clew.facts import Usage
from clew.gates.budget import BudgetGate, Limit
from clew.loop import RunOptions, Tool, Trace
from clew.providers import Choice, FallbackProvider, ProviderError
from clew.testing import CaptureExporter, Reply

STREAM = {"stream": True}
USAGE = Usage(input_tokens=100, output_tokens=10)
LOOK = Tool(name="look", function=lambda: "seen", effect="read_only")
TURN = Reply(text=("I ", "look."), tool_calls=(asks("look"),), usage=USAGE)
DONE = Reply(text=("All ", "done."), usage=USAGE)


async def test_a_streamed_run_is_the_same_run(kit: Kit):
    """Rounds, tools, totals and steps are those of one that is not streamed; the round says so."""
    kit.script(TURN, DONE, TURN, DONE)
    traces = Trace(), Trace()
    streamed = await kit.run(kit.loop(LOOK, prompt="P", loop=STREAM), trace=traces[0])
    whole = await kit.run(kit.loop(LOOK, prompt="P"), trace=traces[1])
    assert (streamed.text, streamed.totals) == (whole.text, whole.totals)
    assert [body.get("stream") for body in kit.bodies] == [True, True, None, None]
    kinds = [[(step.kind, step.content) for step in trace.steps] for trace in traces]
    assert kinds[0] == kinds[1]
    outcomes = [span.get("clew.stream.outcome") for span in kit.spans("chat")]
    assert outcomes == ["complete", "complete", None, None]


async def test_text_is_heard_as_it_comes(kit: Kit):
    """With its round; what a listener raises does no harm."""
    kit.script(TURN, DONE)
    heard: list[tuple[int, str]] = []
    trace = Trace(on_text=lambda number, text: heard.append((number, text)))
    await kit.run(kit.loop(LOOK, loop=STREAM), trace=trace)
    assert heard == [(1, "I "), (1, "look."), (2, "All "), (2, "done.")]


async def test_a_listener_of_text_that_fails_does_no_harm(
    kit: Kit, tolerate: Callable[[str], None]
):
    """The stream is read on."""
    tolerate("tell a listener of a piece of text")
    kit.script(DONE)

    def fail(number: int, text: str) -> None:
        raise ValueError(text)

    result = await kit.run(kit.loop(loop=STREAM), trace=Trace(on_text=fail))
    assert result.text == "All done."


async def test_the_dry_run_is_the_streamed_request(kit: Kit):
    """To the byte."""
    kit.script(DONE)
    loop = kit.loop(LOOK, prompt="P", loop=STREAM)
    dry = await kit.dry_run(loop)
    await kit.run(loop)
    assert dry.wire == kit.server.requests[0].body


async def test_a_stream_that_breaks_off_keeps_what_had_come(kit: Kit):
    """As the text of the result; the round is counted, its usage is not known."""
    kit.script(Reply(text=("All ", "done."), cut_after=2))
    trace = Trace()
    result = await kit.run(kit.loop(loop=STREAM), trace=trace)
    assert (result.status, result.reason, result.text) == ("failed", "provider_failed", "All ")
    assert isinstance(result.error, ProviderError)
    assert (result.rounds, result.totals.rounds_without_usage) == (1, 1)
    assert trace.steps[-1].error_type == "clew.providers.errors.ProviderError"
    assert [span["clew.stream.outcome"] for span in kit.spans("chat")] == ["failed"]


async def test_a_run_is_cancelled_in_the_middle_of_a_stream(kit: Kit):
    """The connection is given back, and the round ends as closed."""
    kit.script(DONE)
    heard: list[str] = []
    trace = Trace(on_text=lambda _, text: heard.append(text))
    result = await kit.run(kit.loop(loop=STREAM), trace=trace, cancelled=lambda: bool(heard))
    assert (result.status, result.text, heard) == ("cancelled", "All ", ["All "])
    assert (result.rounds, kit.ended["status"]) == (1, "cancelled")
    assert [span["clew.stream.outcome"] for span in kit.spans("chat")] == ["closed"]


async def test_a_chain_changes_before_the_first_event(kit: Kit):
    """The numbers of the fit are on every hop, and each request is told of."""
    kit.script(Reply.failure(500), DONE)
    chain = FallbackProvider(kit.provider, Choice(provider=kit.provider, model="other"))
    trace = Trace()
    result = await kit.run(kit.loop(by=chain, loop=STREAM), trace=trace)
    assert result.text == "All done."
    assert [span["clew.context.budget"] for span in kit.spans("chat")] == [6946] * 2
    assert [(step.kind, step.hop) for step in trace.steps] == [
        ("context", None),
        ("request", None),
        ("request", 1),
        ("llm", 1),
    ]


async def test_a_budget_is_asked_before_the_stream(
    kit: Kit, govern: Callable[..., CaptureExporter]
):
    """Nothing is sent."""
    govern(BudgetGate(Limit(requests=0)))
    result = await kit.run(kit.loop(loop=STREAM))
    assert (result.reason, kit.bodies) == ("budget_exhausted", [])


@pytest.mark.parametrize("granted", [True, False])
async def test_raw_events_are_kept_where_it_is_granted(
    kit: Kit, govern: Callable[..., CaptureExporter], granted: bool
):
    """The decoded events of the stream."""
    govern(capture_max="full")
    kit.script(DONE)
    trace = Trace()
    options = RunOptions(actor=Actor(id="root", admin=granted))
    await kit.run(kit.loop(loop=STREAM), options=options, capture_raw=True, trace=trace)
    raw = trace.steps[-1].raw
    assert (raw is not None) is granted
    assert raw is None or len(raw["events"]) > 2
