"""Runs that wait for a person's input: what is wanted, what fits, and what is then executed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from desk import DONE, Desk
from loop_kit import Kit

from clew.gates.approval import ApprovalGate
from clew.gates.approval_store import MemoryApprovals
from clew.loop import SqliteFence, StateError, Tool, Trace

SCHEMA = {
    "type": "object",
    "properties": {"iban": {"type": "string", "minLength": 4}},
    "required": ["iban"],
}


class Form(Desk):
    """A loop with a tool that a person has to give something for."""

    def __init__(self, kit: Kit, tmp_path: Path, *, schema: Any = SCHEMA, gates: Any = ()) -> None:
        self.kit = kit
        self.done: list[Any] = []
        self.store = MemoryApprovals()
        pay = Tool(
            name="pay",
            function=lambda euros, iban: self.did(f"{euros} to {iban}"),
            input_schema=schema,
        )
        look = Tool(name="look", function=lambda: self.did("look"), effect="read_only")
        fence = SqliteFence(tmp_path / "writes.db")
        self.loop = kit.loop(look, pay, loop={"fence": fence, "gates": gates})


@pytest.fixture
def form(kit: Kit, tmp_path: Path) -> Form:
    return Form(kit, tmp_path)


async def test_a_run_waits_for_input(form: Form):
    """What is wanted is told: the call, the tool and the schema."""
    trace = Trace()
    result = await form.begin(trace=trace)
    waiting = result.waiting
    assert waiting is not None
    assert (result.status, waiting.kind, form.done) == ("waiting_for_input", "input", [])
    (wanted,) = waiting.inputs
    assert (wanted.key, wanted.tool, wanted.place, wanted.schema) == ("c2", "pay", 1, SCHEMA)
    assert form.kit.ended == {"status": "waiting_for_input"}
    (step,) = [step for step in trace.steps if step.kind == "tool"]
    assert (step.tool_name, step.tool_is_error, step.duration_ms) == ("pay", True, 0.0)


async def test_input_is_put_over_the_models_arguments(form: Form):
    """Only what the schema declares; who gave it is in the trace."""
    begun = await form.begin()
    assert begun.waiting is not None
    form.kit.script(DONE)
    trace = Trace()
    result = await form.resume(
        begun,
        inputs={"c2": {"iban": "DE99", "euros": 1_000_000}},
        digest=begun.waiting.digest,
        submitted_by="ann",
        trace=trace,
    )
    assert (result.status, form.done) == ("completed", ["look", "64 to DE99"])
    first = trace.steps[0]
    assert (first.kind, first.round, first.submitted_by) == ("input", 1, "ann")
    assert len({span.context.trace_id for span in form.kit.exported.spans}) == 1


@pytest.mark.parametrize(
    ("inputs", "digest", "reason", "said"),
    [
        ({"c2": {"iban": "DE99"}}, None, "digest_mismatch", ""),
        ({"c2": {"iban": "DE99"}}, "0" * 64, "digest_mismatch", ""),
        ({}, "right", "invalid_input", "c2 is missing"),
        (None, "right", "invalid_input", "c2 is missing"),
        ({"c2": {"iban": "X"}}, "right", "invalid_input", "c2.iban is outside of its bounds"),
        ({"c2": {}}, "right", "invalid_input", "c2.iban is missing"),
        (
            {"c2": {"iban": "DE99"}, "c3": {}},
            "right",
            "invalid_input",
            "c3 is none of the calls that wait",
        ),
    ],
)
async def test_input_that_does_not_fit_is_refused(
    form: Form, inputs: Any, digest: str | None, reason: str, said: str
):
    """Before the run goes on; the state can be used again."""
    begun = await form.begin()
    assert begun.waiting is not None
    right = begun.waiting.digest
    with pytest.raises(StateError) as refused:
        await form.resume(begun, inputs=inputs, digest=right if digest == "right" else digest)
    assert refused.value.reason == reason
    assert said in str(refused.value)
    assert (form.done, len(form.kit.spans("invoke_agent"))) == ([], 1)
    form.kit.script(DONE)
    await form.resume(begun, inputs={"c2": {"iban": "DE99"}}, digest=right)
    assert form.done == ["look", "64 to DE99"]


async def test_a_schema_that_changed_meanwhile_is_another_digest(kit: Kit, tmp_path: Path):
    """What was seen is not what would be executed."""
    form = Form(kit, tmp_path)
    begun = await form.begin()
    assert begun.waiting is not None
    form.loop = Form(kit, tmp_path, schema={**SCHEMA, "required": []}).loop
    with pytest.raises(StateError) as refused:
        await form.resume(begun, inputs={"c2": {}}, digest=begun.waiting.digest)
    assert refused.value.reason == "digest_mismatch"


async def test_input_comes_before_the_approval(kit: Kit, tmp_path: Path):
    """What is approved is what is executed: with the person's input, to the last byte."""
    store = MemoryApprovals()
    form = Form(kit, tmp_path, gates=(ApprovalGate({"pay"}, store=store),))
    form.store = store
    begun = await form.begin()
    assert begun.waiting is not None
    assert store.pending() == []
    waiting = await form.resume(begun, inputs={"c2": {"iban": "DE99"}}, digest=begun.waiting.digest)
    assert (waiting.status, form.done) == ("waiting_for_approval", [])
    form.approve()
    kit.script(DONE)
    result = await form.resume(waiting)
    assert (result.status, form.done) == ("completed", ["look", "64 to DE99"])
    with pytest.raises(StateError) as refused:
        await form.resume(waiting, inputs={"c2": {"iban": "DE66"}})
    assert refused.value.reason == "not_waiting_for_input"
