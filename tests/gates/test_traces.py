"""What a gate has done is in the run's trace: what was stopped is no failed call of a provider."""

from __future__ import annotations

import time
from typing import Any

import pytest
from governed import Kit
from saying import MARK, Govern, Saying, decisions

import clew
from clew.actors import Actor
from clew.errors import ApprovalRequired, PolicyDenied
from clew.gates.approval import ApprovalGate, deny
from clew.gates.approval_store import MemoryApprovals
from clew.gates.guardrail import InputGuardrail, OutputGuardrail, redact
from clew.testing import CaptureExporter
from clew.typing import Verdict


def run_of(exported: CaptureExporter) -> dict[str, Any]:
    """Return the attributes of the run's span."""
    return dict(exported.by_name("invoke_agent")[-1].attributes or {})


def assert_told(exported: CaptureExporter, began: int, **expected: Any) -> None:
    """There is one decision, of the run, with its rule, its time and who decided."""
    (span,) = exported.by_name("decide")
    (found,) = decisions(exported)
    assert {key: found.get(key) for key in expected} == expected
    assert (span.attributes or {})["clew.run.id"] == run_of(exported)["clew.run.id"]
    assert began // 1000 <= found["proposed_at"] <= found["decided_at"] <= time.time_ns() // 1000
    assert MARK.encode() not in exported.otlp_bytes()


async def test_a_call_that_is_denied(govern: Govern, kit: Kit) -> None:
    """No round, no failure of a provider, no cost; the decision has the rule and its version."""
    exported = govern(
        InputGuardrail(
            lambda _: Verdict(outcome="deny", reason="rule_7"), policy="house", policy_version="3"
        )
    )
    began = time.time_ns()
    with pytest.raises(PolicyDenied), clew.run("triage"):
        await kit.ask()
    assert_told(
        exported,
        began,
        gate="guardrail_input",
        outcome="deny",
        reason="rule_7",
        policy="house",
        policy_version="3",
        by="policy",
        executed=False,
    )
    assert exported.by_name("chat") == ()
    run = run_of(exported)
    assert run["clew.run.termination_reason"] == "policy_denied"
    assert (run["clew.run.rounds"], run.get("clew.run.cost.usd")) == (0, None)
    assert "provider_failed" not in run.values()


async def test_an_answer_that_is_masked(govern: Govern, kit: Kit) -> None:
    """The call was made and paid for; the decision beside it says what became of the answer."""
    exported = govern(OutputGuardrail(lambda text: redact(text.replace(MARK, "*"), reason="mask")))
    began = time.time_ns()
    with clew.run("triage"):
        assert await kit.text() == "* answer"
    assert_told(exported, began, outcome="redact", reason="mask", by="policy", executed=True)
    (span,) = exported.by_name("chat")
    assert "error.type" not in (span.attributes or {})
    assert run_of(exported)["clew.run.status"] == "completed"


async def test_a_guard_that_crashes(govern: Govern, kit: Kit) -> None:
    """It has denied, and says so without the text of its exception."""
    exported = govern(Saying(RuntimeError(MARK)), faults={"ask the gate Saying"})
    began = time.time_ns()
    with pytest.raises(PolicyDenied), clew.run("triage"):
        await kit.ask()
    assert_told(exported, began, outcome="deny", reason="gate_error", by="policy", executed=False)
    assert exported.by_name("chat") == ()
    assert run_of(exported)["clew.run.rounds"] == 0


def test_an_approval_that_is_denied(govern: Govern) -> None:
    """Both segments are one trace; the second decision has the person, as a digest, and the wait."""
    store = MemoryApprovals()
    exported = govern(ApprovalGate({"refund"}, store=store), digest_key="k")
    executed: list[int] = []

    def refund() -> None:
        with clew.tool("refund", call_id="c1", arguments={"order": MARK}):
            executed.append(1)

    with pytest.raises(ApprovalRequired) as caught, clew.run("triage", actor="ann"):
        refund()
    assert caught.value.approval_id is not None
    (pending,) = store.pending()
    bob = Actor(id="bob", grants=frozenset({"agent_approve"}))
    deny(store, pending.id, bob, digest=pending.digest)
    with pytest.raises(PolicyDenied), clew.resume(caught.value.reference or ""):
        refund()
    assert executed == []
    asked, decided = decisions(exported)
    assert (asked["outcome"], asked["executed"]) == ("require_approval", False)
    assert (decided["outcome"], decided["reason"], decided["executed"]) == (
        "deny",
        "approval_denied",
        False,
    )
    assert decided["by"] == "second_person"
    assert decided["wait_ms"] > 0
    spans = exported.by_name("decide")
    assert len({span.context.trace_id for span in spans}) == 1
    assert len((spans[1].attributes or {})["clew.actor"]) == 64
    assert exported.by_name("chat") == ()
    assert b"bob" not in exported.otlp_bytes()
    assert MARK.encode() not in exported.otlp_bytes()
