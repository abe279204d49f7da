"""Runs that wait for an approval and go on, here or in another process."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from desk import BOB, DONE, TURN, Desk
from loop_kit import Kit, snippet

from clew.errors import RunReferenceError
from clew.facts import Usage
from clew.gates.approval import ApprovalGate, approve
from clew.gates.approval_store import SqliteApprovals
from clew.gates.tool import ToolRule
from clew.loop import (
    Augmentation,
    Loop,
    RunOptions,
    SqliteFence,
    StateError,
    StepNotSavedError,
    Tool,
    Trace,
)
from clew.loop.state import State
from clew.prompts.repository import MemoryRepository
from clew.testing import CaptureExporter, Reply


async def test_a_turn_waits_before_any_of_its_calls_is_executed(desk: Desk):
    """The one that needs no approval waits too; what is pending is told without arguments."""
    trace = Trace()
    result = await desk.begin(trace=trace)
    waiting = result.waiting
    assert waiting is not None
    assert (result.status, result.reason, result.text) == ("waiting_for_approval", None, "I pay.")
    assert (desk.done, result.rounds, result.totals.tool_calls) == ([], 1, 0)
    assert (waiting.kind, waiting.tools) == ("approval", ("look", "pay"))
    (pending,) = desk.store.pending()
    assert waiting.approval_id == pending.id
    assert pending.reference == waiting.reference
    assert "64" not in repr(waiting)
    assert desk.kit.ended == {"status": "waiting_for_approval"}
    steps = [step for step in trace.steps if step.kind == "tool"]
    assert [(step.tool_name, step.tool_is_error, step.duration_ms) for step in steps] == [
        ("look", True, 0.0),
        ("pay", True, 0.0),
    ]


async def test_an_approved_turn_is_executed(desk: Desk):
    """The run goes on in the same trace; who approved is in the run trace and on the decision."""
    begun = await desk.begin()
    desk.approve()
    desk.kit.script(DONE)
    trace = Trace()
    result = await desk.resume(begun, trace=trace)
    assert (result.status, result.text, result.run_id) == ("completed", "Done.", begun.run_id)
    assert desk.done == ["look", "paid 64"]
    assert desk.kit.told == ["look", "paid 64"]
    assert trace.steps[0].as_dict() == {
        "kind": "approval",
        "round": 1,
        "durationMs": 0.0,
        "approved": True,
        "decidedBy": "bob",
    }
    assert len({span.context.trace_id for span in desk.kit.exported.spans}) == 1
    assert [span["clew.round"] for span in desk.kit.spans("chat")] == [1, 2]
    decisions = [
        (span["clew.decision.outcome"], span["clew.decision.reason"])
        for span in desk.kit.spans("decide approval")
    ]
    assert decisions == [
        ("require_approval", "needed"),
        ("allow", "not_needed"),
        ("allow", "approved"),
    ]


async def test_totals_survive_every_segment(desk: Desk):
    """Rounds, tokens and tool calls of all segments, once; a second wait carries the sum."""
    begun = await desk.begin()
    desk.approve()
    desk.kit.script(TURN)
    again = await desk.resume(begun)
    assert again.status == "waiting_for_approval"
    assert (again.rounds, again.totals.input_tokens, again.totals.tool_calls) == (2, 200, 2)
    desk.approve()
    desk.kit.script(DONE)
    result = await desk.resume(again)
    totals = result.totals
    assert (result.rounds, totals.rounds) == (3, 3)
    assert (totals.input_tokens, totals.output_tokens, totals.tool_calls) == (300, 30, 4)
    run = desk.kit.spans("invoke_agent")[-1]
    keys = ("rounds", "usage.input_tokens", "tool_calls")
    assert [run[f"clew.run.{key}"] for key in keys] == [3, 300, 4]
    assert run["clew.segment"] == 3


async def test_the_cap_counts_the_rounds_of_all_segments(kit: Kit, tmp_path: Path):
    """A run that waited has no more rounds than one that did not."""
    desk = Desk(kit, tmp_path, limits={"max_rounds": 1})
    begun = await desk.begin()
    desk.approve()
    kit.script(DONE)
    result = await desk.resume(begun)
    assert (result.rounds, result.reason) == (2, "max_rounds")


async def test_a_denied_call_is_told_to_the_model(desk: Desk):
    """It is a result, the other calls are executed, and the run goes on."""
    begun = await desk.begin()
    desk.deny()
    desk.kit.script(DONE)
    trace = Trace()
    result = await desk.resume(begun, trace=trace)
    assert (result.status, desk.done) == ("completed", ["look"])
    assert desk.kit.told[1] == "A person has denied this call; the tool was not executed."
    assert (trace.steps[0].approved, trace.steps[0].decided_by) == (False, "bob")
    (step,) = [step for step in trace.steps if step.tool_name == "pay"]
    assert (step.tool_is_error, step.duration_ms) == (True, 0.0)


async def test_a_denial_may_end_the_run(kit: Kit, tmp_path: Path):
    """Then nothing of the turn is executed, and the model is not asked again."""
    desk = Desk(kit, tmp_path, loop={"stop_when_denied": True})
    begun = await desk.begin()
    desk.deny()
    result = await desk.resume(begun)
    assert (result.status, result.reason) == ("cancelled", "approval_denied")
    assert (desk.done, len(kit.bodies), result.text) == ([], 1, "I pay.")
    assert kit.ended == {"status": "cancelled", "termination_reason": "approval_denied"}


async def test_a_run_that_nobody_decided_on_waits_again(desk: Desk):
    """With the same approval, and nothing executed."""
    begun = await desk.begin()
    again = await desk.resume(begun)
    assert again.status == "waiting_for_approval"
    assert begun.waiting is not None
    assert again.waiting is not None
    assert again.waiting.approval_id == begun.waiting.approval_id
    assert desk.done == []


async def test_what_is_no_longer_permitted_is_refused(desk: Desk):
    """The tool gate is asked anew on resuming, and again at execution: an approval is no pass."""
    begun = await desk.begin()
    desk.approve()
    desk.rules["pay"] = ToolRule(enabled=False)
    desk.kit.script(DONE)
    result = await desk.resume(begun)
    assert (result.status, desk.done) == ("completed", ["look"])
    assert desk.kit.told[1] == "This call is not permitted; the tool was not executed."
    assert [body["tools"][0]["function"]["name"] for body in desk.kit.bodies] == ["look", "look"]
    assert [len(body["tools"]) for body in desk.kit.bodies] == [2, 1]


async def test_an_approval_that_releases_a_write_must_be_saved(desk: Desk):
    """Nothing is executed when that cannot be put down."""
    begun = await desk.begin()
    desk.approve()

    def save(step: Any) -> None:
        raise OSError("full")

    with pytest.raises(StepNotSavedError):
        await desk.resume(begun, trace=Trace(save=save))
    assert desk.done == []


async def test_two_that_resume_do_not_both_write(desk: Desk):
    """The approval passes once, and the fence notes the write."""
    begun = await desk.begin()
    desk.approve()
    desk.kit.script(DONE, DONE)
    await desk.resume(begun)
    await desk.resume(begun)
    assert desk.done.count("paid 64") == 1


async def test_sources_that_are_gone_stay_in_a_resumed_run(kit: Kit, tmp_path: Path):
    """The messages are those of the beginning; only the tools are looked at anew."""
    repository = MemoryRepository([snippet("tone", "Kindly.")])
    desk = Desk(kit, tmp_path, loop={"repository": repository})
    begun = await desk.begin(augmentation=Augmentation(snippets=("tone",)))
    desk.approve()
    repository.__init__([snippet("tone", "Rudely.", active=False)])  # type: ignore[misc]
    kit.script(DONE)
    await desk.resume(begun)
    assert [sent[0] for sent in kit.sent] == [("system", "Kindly.")] * 2


async def test_what_the_run_has_learnt_goes_with_it(desk: Desk):
    """The calibration of the window fit, and the choice to keep raw answers."""
    desk.kit.script(
        Reply(tool_calls=TURN.tool_calls, usage=Usage(input_tokens=5000, output_tokens=1))
    )
    begun = await desk.kit.run(desk.loop, capture_raw=True)
    assert begun.waiting is not None
    state = State.decode(begun.waiting.state)
    assert state.measured
    assert state.options == {"_capture_raw": True}
    desk.approve()
    desk.kit.script(DONE)
    trace = Trace()
    await desk.kit.resume(desk.loop, begun.waiting.state, trace=trace)
    (context,) = [step for step in trace.steps if step.kind == "context"]
    assert context.context_budget is not None
    assert context.context_budget["calibration"] == state.calibration > 10
    assert context.context_budget["measured"] is True


async def test_a_state_is_for_its_configuration(desk: Desk):
    """Another configuration, or no state at all, is refused before anything happens."""
    begun = await desk.begin()
    assert begun.waiting is not None
    other = desk.kit.loop(identifier="other")
    for loop, state, reason in [
        (other, begun.waiting.state, "other_configuration"),
        (desk.loop, b"{}", "unreadable"),
        (desk.loop, b"\xff", "unreadable"),
        (desk.loop, begun.waiting.state.replace(b"clew-loop1", b"clew-loop9"), "unreadable"),
    ]:
        with pytest.raises(StateError) as refused:
            await desk.kit.resume(loop, state)
        assert refused.value.reason == reason
    broken = begun.waiting.state.replace(b"clew1~", b"clew9~")
    with pytest.raises(RunReferenceError):
        await desk.kit.resume(desk.loop, broken)
    assert len(desk.kit.spans("invoke_agent")) == 1


async def test_a_model_call_may_wait_too(kit: Kit, govern: Callable[..., CaptureExporter]):
    """A gate that wants an approval of a model call: the state has no calls, and is resumed."""
    gate = Once()
    kit.exported = govern(gate)
    waiting = await kit.run(kit.loop())
    assert (waiting.status, waiting.rounds) == ("waiting_for_approval", 0)
    assert waiting.waiting is not None
    assert waiting.waiting.tools == ()
    kit.script(DONE)
    result = await kit.resume(kit.loop(), waiting.waiting.state)
    assert (result.text, result.rounds) == ("Done.", 1)


class Once:
    """Wants an approval the first time."""

    name = "rules"
    mode = "enforce"
    mandatory = True
    kinds = frozenset({"model_call"})

    def __init__(self) -> None:
        self.asked = 0

    def check(self, proposal: Any) -> Any:
        from clew.typing import Verdict

        self.asked += 1
        return Verdict(outcome="require_approval" if self.asked == 1 else "allow", reason="x")


# --- another process ------------------------------------------------------------------------------


ELSEWHERE = """
import json, sys
import clew
from clew import Settings
from clew.gates.approval import ApprovalGate
from clew.gates.approval_store import SqliteApprovals
from clew.loop import Loop, SqliteFence, Tool
from clew.prompts.configuration import Configuration
from clew.providers import provider
from clew.testing import CaptureExporter
from pathlib import Path

folder, base_url = Path(sys.argv[1]), sys.argv[2]
exporter = CaptureExporter()
gate = ApprovalGate({"pay"}, store=SqliteApprovals(folder / "approvals.db"))
settings = Settings.from_environment(gates=(gate,), digest_key="k" * 32)
clew.configure("elsewhere", settings=settings, span_exporters=[exporter])
clew.instrument()
configuration = Configuration(provider="openai", model="small", tools=("look", "pay"))
with provider("openai", api_key="k", base_url=base_url) as by:
    loop = Loop(
        configuration,
        by,
        tools=(
            Tool(name="look", function=lambda: "seen", effect="read_only"),
            Tool(name="pay", function=lambda euros: f"paid {euros}"),
        ),
        fence=SqliteFence(folder / "writes.db"),
    )
    result = loop.resume((folder / "state").read_bytes(), actor="ann")
clew.shutdown()
print(json.dumps({
    "status": result.status, "text": result.text, "run": result.run_id,
    "rounds": result.rounds, "tokens": result.totals.input_tokens,
    "traces": sorted({f"{span.context.trace_id:032x}" for span in exporter.spans}),
    "segments": sorted({span.attributes["clew.segment"] for span in exporter.spans}),
}))
"""


async def test_another_process_goes_on(
    kit: Kit, tmp_path: Path, govern: Callable[..., CaptureExporter]
):
    """With the state from a file: the same trace, the rounds and totals of both."""
    store = SqliteApprovals(tmp_path / "approvals.db")
    kit.exported = govern(ApprovalGate({"pay"}, store=store))
    tools = (
        Tool(name="look", function=lambda: "seen", effect="read_only"),
        Tool(name="pay", function=lambda euros: f"paid {euros}"),
    )
    loop: Loop = kit.loop(*tools, loop={"fence": SqliteFence(tmp_path / "writes.db")})
    kit.script(TURN, DONE)
    begun = await kit.run(loop, options=RunOptions(actor="ann"))
    assert begun.waiting is not None
    (tmp_path / "state").write_bytes(begun.waiting.state)
    (pending,) = store.pending()
    approve(store, pending.id, BOB, digest=pending.digest)
    script = tmp_path / "elsewhere.py"
    script.write_text(ELSEWHERE)
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, script, tmp_path, kit.server.openai_base_url],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "status": "completed",
        "text": "Done.",
        "run": begun.run_id,
        "rounds": 2,
        "tokens": 200,
        "traces": [begun.run_id.replace("-", "")],
        "segments": [2],
    }
    assert kit.told == ["seen", "paid 64"]
