"""Decisions: one verdict of a gate, as a span."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import Any, Self

from opentelemetry import trace
from opentelemetry.trace import INVALID_SPAN

from clew import context, semconv
from clew._guard import guard, record_failure
from clew.pipeline import runtime as _runtime
from clew.pipeline.runtime import Runtime
from clew.rules import OTHER
from clew.spans import Node, Terminated, identifier, put


class Decision(context.Block, Node):
    """One verdict of a gate. Change `outcome`, `reason` or `executed` inside the `with` block."""

    __slots__ = (
        "_asked_ns",
        "_entered",
        "_settled_ns",
        "_token",
        "actor",
        "by",
        "data_class",
        "durable",
        "enforced",
        "executed",
        "gate",
        "id",
        "outcome",
        "policy",
        "policy_version",
        "reason",
        "released",
        "subject",
        "trust_zone",
    )

    def __init__(self, gate: str, outcome: str | None, facts: Mapping[str, Any]) -> None:
        super().__init__()
        self.gate = gate
        self.outcome = outcome
        self.reason: str | None = facts["reason"]
        self.policy: str | None = facts["policy"]
        self.policy_version: str | None = facts["policy_version"]
        self.subject: str | None = facts["subject"]
        self.enforced: bool = facts["enforced"]
        self.executed: bool | None = facts["executed"]
        self.by: str | None = facts["by"]
        self.trust_zone: str | None = facts["trust_zone"]
        self.data_class: str | None = facts["data_class"]
        self.id = ""
        self.durable = True
        """False where it had to be written to the journal, and could not be."""
        self.actor: str | None = None
        """Id of the person who decided; leaves as a keyed digest."""
        self.released: int | None = None
        """Of a stream: how many characters of text had been released to the caller."""
        self._asked_ns: int | None = None
        self._entered = False
        self._settled_ns = 0
        self._token: context.Token | None = None

    def begin(self, start_ns: int | None = None) -> None:
        """Start the span, now or at a time in the past (ns since the epoch)."""
        runtime = _runtime.get()
        if runtime is None or self.span is not INVALID_SPAN:
            return
        with guard("start a decision"):
            node = self.parent_node = context.current_node()
            self.agent = node.agent if node is not None else None
            gate = identifier(self.gate, semconv.DECISION_GATE, "gate")
            attributes: dict[str, Any] = {semconv.DECISION_GATE: gate}
            if self.agent is not None and self.agent.rounds:
                attributes[semconv.ROUND] = self.agent.rounds
            self._begin_with(runtime, f"decide {gate}", attributes, start_ns=start_ns)
            self.id = f"{self.span_id():016x}"
            self._settled_ns = self.now_ns()

    def record(
        self,
        started_ns: int,
        *,
        proposed_ns: int | None = None,
        decided_ns: int | None = None,
    ) -> None:
        """Record the decision as a whole, from a time in the past until now.

        Args:
            started_ns: when the gate was asked (ns since the epoch).
            proposed_ns: when a person was asked, if one was.
            decided_ns: when that person decided.
        """
        self.begin(started_ns)
        if self.runtime is not None:
            self._asked_ns = proposed_ns
            self._finish(max(started_ns, time.time_ns()), decided_ns)

    def settle(self) -> None:
        """End a decision made by a plain call, at the time of that call."""
        if not self._entered:
            self._finish(self._settled_ns)

    def interrupt(self, error: Terminated) -> None:
        """End the decision because the process ends; one without a verdict stays open."""
        if self.outcome is not None:
            self._finish()

    def _finish(self, end_ns: int | None = None, decided_ns: int | None = None) -> None:
        runtime = self.runtime
        if runtime is None or not self._claim():
            return
        with guard("finish a decision"):
            ended = end_ns or self.now_ns()
            facts: dict[str, Any] = {}
            try:
                self._add_facts(facts, runtime, decided_ns or ended)
            except Exception:  # the decision leaves with what is there
                record_failure("describe a decision")
            if runtime.journal is not None and self.enforced:
                gate = {semconv.DECISION_GATE: identifier(self.gate, semconv.DECISION_GATE, "gate")}
                self.durable = self.write_to(runtime.journal, "decision", {**gate, **facts})
            self._end_with(facts, end_ns=ended)
            self._count()
            if runtime.metrics is not None:
                outcome = self.outcome or "allow"
                runtime.metrics.decided(self.agent, self.gate, outcome, self.enforced, self.reason)

    def _add_facts(self, kept: dict[str, Any], runtime: Runtime, decided_ns: int) -> None:
        outcome = self.outcome or "allow"
        asked_ns = self._asked_ns or self.start_ns
        executed = self.executed
        if executed is None and self.enforced and outcome in ("deny", "require_approval"):
            executed = False
        kept[semconv.DECISION_PROPOSED_AT] = asked_ns // 1000
        kept[semconv.DECISION_DECIDED_AT] = decided_ns // 1000
        kept[semconv.DECISION_WAIT_MS] = max(0, decided_ns - asked_ns) / 1e6
        if self.id:
            kept[semconv.DECISION_ID] = self.id
        for key, value in (
            (semconv.DECISION_OUTCOME, outcome),
            (semconv.DECISION_REASON, self.reason),
            (semconv.DECISION_POLICY, self.policy),
            (semconv.DECISION_POLICY_VERSION, self.policy_version),
            (semconv.DECISION_ENFORCED, self.enforced),
            (semconv.DECISION_EXECUTED, executed),
            (semconv.DECISION_BY, self.by),
            (semconv.DECISION_TRUST_ZONE, self.trust_zone),
            (semconv.DECISION_DATA_CLASS, self.data_class),
            (semconv.DECISION_RELEASED, self.released),
        ):
            if value is not None:
                put(kept, key, value)
        if self.subject is not None:
            put(kept, semconv.DECISION_SUBJECT, self.subject)
            if semconv.DECISION_SUBJECT not in kept:
                kept[semconv.DECISION_SUBJECT] = OTHER
                if isinstance(self.subject, str):
                    digests = runtime.digests.get()
                    kept[semconv.DECISION_SUBJECT_DIGEST] = digests.of(self.subject)
                    kept[semconv.DIGEST_KEY_ID] = digests.key_id
        if isinstance(self.actor, str):
            digests = runtime.digests.get()
            kept[semconv.ACTOR] = digests.of(self.actor)
            kept[semconv.DIGEST_KEY_ID] = digests.key_id

    def _count(self) -> None:
        denied = int((self.outcome or "allow") == "deny")
        if self.parent_node is not None:
            self.parent_node.decisions += 1
            self.parent_node.denials += denied
        if self.agent is not None:
            self.agent.segment.count_decision(denied)

    def __enter__(self) -> Self:
        self._entered = True
        self.begin()
        if self.span is not INVALID_SPAN:
            self._token = context.attach(trace.set_span_in_context(self.span))
        return self

    def _left(self, error: BaseException | None) -> None:
        self._finish()


def decide(
    gate: str,
    outcome: str | None = None,
    *,
    reason: str | None = None,
    policy: str | None = None,
    policy_version: str | None = None,
    subject: str | None = None,
    enforced: bool = True,
    executed: bool | None = None,
    by: str | None = "policy",
    trust_zone: str | None = None,
    data_class: str | None = None,
) -> Decision:
    """Record what a gate decided; as a context manager, also how long it took.

    As a call, the decision is recorded as made now. In `with clew.decide("budget") as decision:`
    set `decision.outcome` (`allow` unless set) and `decision.reason` before the block ends.

    Args:
        gate: `budget`, `tool`, `guardrail_input`, `guardrail_output`, `context`, `approval`,
            `rate`, `circuit`, `capture`, or an identifier of your own.
        outcome: `allow`, `deny`, `require_approval`, `redact` or `retry`.
        reason: a code (identifier), never prose.
        policy: identifier of the policy that decided.
        policy_version: its version.
        subject: the tool, model or source that was decided on.
        enforced: False when the gate only observes.
        executed: whether what was decided on then happened; an enforced denial did not.
        by: `policy`, `self`, `second_person`, `initiator_unknown` or `unresolved`.
        trust_zone: zone of the provider.
        data_class: class of the data.
    """
    decision = Decision(
        gate,
        outcome,
        {
            "reason": reason,
            "policy": policy,
            "policy_version": policy_version,
            "subject": subject,
            "enforced": enforced,
            "executed": executed,
            "by": by,
            "trust_zone": trust_zone,
            "data_class": data_class,
        },
    )
    runtime = _runtime.get()
    if outcome is not None and runtime is not None:
        decision.begin()
        runtime.unsettled.append((threading.get_ident(), decision))
    return decision
