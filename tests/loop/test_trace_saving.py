"""The run trace: when it is told and saved, who hears it, and whose raw answers it keeps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from loop_kit import Kit, asks
from trace_kit import DONE, FIND, TURN

from clew.actors import Actor
from clew.loop import RunOptions, SqliteFence, Step, StepNotSavedError, Tool, Trace
from clew.providers import Message
from clew.testing import CaptureExporter, Reply


async def test_a_request_is_told_of_before_the_model_is_asked(kit: Kit):
    """The outbound half is there while the provider has not received anything yet."""
    kit.script(DONE)
    received: list[tuple[str, int]] = []

    def seen(step: Step) -> None:
        received.append((step.kind, len(kit.server.requests)))

    await kit.run(kit.loop(), trace=Trace(seen))
    assert received == [("context", 0), ("request", 0), ("llm", 1)]


async def test_a_listener_hears_each_step_once_in_order_before_it_is_saved(
    kit: Kit, tolerate: Callable[[str], None]
):
    """Also where saving fails, which the run does not notice."""
    tolerate("save a step")
    kit.script(TURN, DONE)
    heard: list[tuple[str, Step]] = []

    def save(step: Step) -> None:
        heard.append(("save", step))
        raise OSError("full")

    trace = Trace(lambda step: heard.append(("live", step)), save=save)
    result = await kit.run(kit.loop(FIND), trace=trace)
    assert result.text == "Done."
    assert heard == [(what, step) for step in trace.steps for what in ("live", "save")]


async def test_a_listener_that_fails_does_no_harm(kit: Kit, tolerate: Callable[[str], None]):
    """What it raises is swallowed, and it is told of the next step all the same."""
    tolerate("tell a listener of a step")
    kit.script(DONE)
    heard: list[str] = []

    def fail(step: Step) -> None:
        heard.append(step.kind)
        raise ValueError("x")

    assert (await kit.run(kit.loop(), trace=Trace(fail))).text == "Done."
    assert heard == ["context", "request", "llm"]


async def test_the_step_of_a_write_must_be_saved(kit: Kit, tmp_path: Any):
    """A run does not go on from a write that nobody can read about later."""
    kit.script(Reply(tool_calls=(asks("write"),)), DONE)
    written: list[str] = []
    tool = Tool(name="write", function=lambda: written.append("x"), effect="idempotent_write")

    def save(step: Step) -> None:
        if step.kind == "tool":
            raise OSError("full")

    loop = kit.loop(tool, loop={"fence": SqliteFence(tmp_path / "writes.db")})
    with pytest.raises(StepNotSavedError, match="OSError"):
        await kit.run(loop, trace=Trace(save=save))
    assert (written, len(kit.bodies)) == (["x"], 1)
    assert kit.ended["status"] == "failed"


ADMIN = RunOptions(actor=Actor(id="root", admin=True))


@pytest.mark.parametrize(
    ("switch", "options", "kept"),
    [("full", ADMIN, True), ("full", RunOptions(actor="ann"), False), (None, ADMIN, False)],
    ids=["granted", "not permitted", "no switch"],
)
async def test_raw_answers_are_kept_where_it_is_granted(
    kit: Kit,
    govern: Callable[..., CaptureExporter],
    switch: Any,
    options: RunOptions,
    kept: bool,
):
    """In every round, the closing one too; else the run is the one without them."""
    kit.exported = govern(capture_max=switch)
    kit.script(TURN, DONE)
    trace = Trace()
    loop = kit.loop(FIND, limits={"max_rounds": 1})
    await kit.run(loop, options=options, capture_raw=True, trace=trace)
    raws = [step.raw for step in trace.steps if step.kind == "llm"]
    texts = [raw["choices"][0]["message"]["content"] for raw in raws if raw is not None]
    assert texts == (["I look.", "Done."] if kept else [])
    assert all("_capture_raw" not in body for body in kit.bodies)
    outcome = "allow" if kept else "deny"
    assert [span["clew.decision.outcome"] for span in kit.spans("decide capture")] == [outcome] * 2


async def test_a_resumed_trace_goes_on(kit: Kit):
    """Nothing is recorded twice when one trace serves several runs."""
    kit.script(DONE, DONE)
    trace = Trace()
    await kit.run(kit.loop(), trace=trace)
    await kit.run(kit.loop(), (Message.user("Again"),), trace=trace)
    assert [step.kind for step in trace.steps] == ["context", "request", "llm"] * 2
