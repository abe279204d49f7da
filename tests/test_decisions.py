"""Decisions: a positive record of what a gate said, as a call and as a context manager."""

from __future__ import annotations

import threading
from typing import Any

import pytest

import clew
from clew.testing import CaptureExporter


def decisions(exported: CaptureExporter) -> list[dict[str, Any]]:
    return [dict(span.attributes or {}) for span in exported.by_name("decide")]


def test_a_call_records_a_decision(exported: CaptureExporter) -> None:
    """Every fact that was given is on the span; an enforced denial was not executed."""
    with clew.run("triage"):
        clew.decide(
            "tool",
            "deny",
            reason="tool_disabled",
            policy="tools",
            policy_version="7",
            subject="refund",
            trust_zone="external",
            data_class="internal",
        )
    (found,) = decisions(exported)
    facts = {
        key.removeprefix("clew.decision."): value
        for key, value in found.items()
        if key.startswith("clew.decision.")
    }
    times = {key: facts.pop(key) for key in ("proposed_at", "decided_at", "wait_ms", "id")}
    assert facts == {
        "gate": "tool",
        "outcome": "deny",
        "reason": "tool_disabled",
        "policy": "tools",
        "policy_version": "7",
        "subject": "refund",
        "enforced": True,
        "executed": False,
        "by": "policy",
        "trust_zone": "external",
        "data_class": "internal",
    }
    assert times["decided_at"] >= times["proposed_at"] > 1_600_000_000_000_000
    assert len(times["id"]) == 16


def test_a_block_times_the_gate(exported: CaptureExporter) -> None:
    """The verdict is what was set when the block ended; the span covers the block."""
    with clew.run("triage"), clew.decide("guardrail_output") as decision:
        threading.Event().wait(0.02)
        decision.outcome = "redact"
        decision.reason = "secret_found"
    (found,) = decisions(exported)
    assert found["clew.decision.outcome"] == "redact"
    assert found["clew.decision.reason"] == "secret_found"
    assert 20 <= found["clew.decision.wait_ms"] < 2000


def test_a_call_with_an_outcome_can_be_entered_and_changed(exported: CaptureExporter) -> None:
    """`with clew.decide(gate, outcome)` is one decision, with the verdict of the block's end."""
    with clew.run("triage"), clew.decide("budget", "allow") as decision:
        clew.decide("tool", "allow")
        decision.outcome = "deny"
    inner, outer = decisions(exported)
    assert (inner["clew.decision.gate"], outer["clew.decision.gate"]) == ("tool", "budget")
    assert outer["clew.decision.outcome"] == "deny"


def test_a_kept_decision_is_recorded_without_waiting_for_it(exported: CaptureExporter) -> None:
    """A decision held in a variable is recorded at its call, before what comes after it."""
    with clew.run("triage"):
        held = clew.decide("tool", "allow")
        with clew.tool("search"):
            pass
    names = [span.name for span in exported.spans]
    assert names.index("decide tool") < names.index("execute_tool search")
    assert held.outcome == "allow"


def test_the_parent_counts_its_decisions(exported: CaptureExporter) -> None:
    """The span under which decisions were made says how many, and how many were denials."""
    with clew.run("triage"), clew.tool("search"):
        clew.decide("tool", "allow")
        clew.decide("budget", "deny")
    (tool,) = exported.by_name("execute_tool")
    (run,) = exported.by_name("invoke_agent")
    assert (tool.attributes["clew.decisions"], tool.attributes["clew.denials"]) == (2, 1)
    assert "clew.decisions" not in run.attributes
    assert (run.attributes["clew.run.decisions"], run.attributes["clew.run.denials"]) == (2, 1)


def test_an_observed_denial_is_not_enforced(exported: CaptureExporter) -> None:
    """In observe mode what was decided on went ahead: `executed` is only what was said."""
    with clew.run("triage"):
        clew.decide("tool", "deny", enforced=False, executed=True)
    (found,) = decisions(exported)
    assert found["clew.decision.enforced"] is False
    assert found["clew.decision.executed"] is True


@pytest.mark.parametrize("subject", ["two words of SECRET", "x" * 999])
def test_a_subject_that_is_no_identifier_is_digested(
    exported: CaptureExporter, subject: str
) -> None:
    """Free text never leaves: it becomes a fixed word and a keyed digest; prose is dropped."""
    with clew.run("triage"):
        clew.decide("context", "deny", subject=subject, reason="because the SECRET is out")
    (found,) = decisions(exported)
    assert found["clew.decision.subject"] == "_OTHER"
    assert len(found["clew.decision.subject.digest"]) == 64
    assert len(found["clew.digest.key_id"]) == 16
    assert "clew.decision.reason" not in found
    assert b"SECRET" not in exported.otlp_bytes()


async def test_async_blocks_and_errors(exported: CaptureExporter) -> None:
    """`async with` is the same, and a gate that crashes leaves its decision and its error."""

    async def crash() -> None:
        async with clew.run("triage"), clew.decide("guardrail_input") as decision:
            decision.outcome = "deny"
            raise LookupError

    with pytest.raises(LookupError):
        await crash()
    (found,) = decisions(exported)
    assert found["clew.decision.outcome"] == "deny"


def test_decisions_of_other_threads_are_not_ended_early(exported: CaptureExporter) -> None:
    """What one thread does between another's call and its block cannot end that decision."""
    with clew.run("triage"):
        decision = clew.decide("budget", "allow")

        def other() -> None:
            with clew.tool("search"):
                pass

        thread = threading.Thread(target=clew.bind(other))
        thread.start()
        thread.join()
        with decision:
            decision.outcome = "deny"
    (found,) = decisions(exported)
    assert found["clew.decision.outcome"] == "deny"


def test_a_gate_of_your_own(exported: CaptureExporter) -> None:
    """Any identifier names a gate; outside a run the decision is a span of its own."""
    clew.decide("four-eyes", "require_approval")
    (found,) = decisions(exported)
    assert found["clew.decision.gate"] == "four-eyes"
    assert "clew.run.id" not in found
