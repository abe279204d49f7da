"""The approval gate: some tools are executed only after somebody has agreed to exactly that call.

    gate = ApprovalGate({"refund"}, store=SqliteApprovals(), four_eyes=True)

    with clew.run("desk", actor="ann") as run:
        check_turn(calls)               # raises ApprovalRequired before any of them is executed
        with clew.tool("refund", call_id=call.id, arguments=call.arguments):
            ...

The run ends its segment as `waiting_for_approval`. `approve` and `deny` (or `clew approvals`)
decide; then `clew.resume(reference)` continues the run, and the same call with the same arguments
passes once. Other arguments are another call, and wait for an approval of their own.
"""

from __future__ import annotations

import asyncio
import hmac
import os
import time
from collections.abc import Callable, Collection, Sequence
from typing import Any, ClassVar, Literal

import msgspec

from clew.actors import Actor, may
from clew.errors import ApprovalRefused
from clew.gates.approval_store import Approval, ApprovalCall, ApprovalStore, MemoryApprovals
from clew.gates.base import BaseGate
from clew.gates.base import deny as denied
from clew.governance.passages import acheck_turn, check_turn
from clew.ids import hex_64
from clew.typing import GateMode, PendingCall, Proposal, Verdict

__all__ = ["ApprovalGate", "acheck_turn", "approve", "check_turn", "deny"]

APPROVE = "agent:approve"


class ApprovalGate(BaseGate):
    """Wants an approval for some tool calls.

    Reasons: `not_needed`, `needed` (with `require_approval`), `pending`, `approved`,
    `approval_denied`, `arguments_unknown` (a call whose arguments nobody gave cannot be approved),
    `no_run` (there is nothing to suspend).

    Args:
        tools: names of tools that need an approval.
        effects: effects that need one, such as `non_idempotent_write`, which is also that of
            tools whose effect nobody declared.
        needs: a function of yours that is asked about every other call.
        store: where approvals are kept; in memory unless given.
        four_eyes: whether the person that the run acts for may not approve (denying is allowed).
        mode: see `BaseGate`.
        mandatory: see `BaseGate`.
        name: see `BaseGate`.
        policy_version: see `BaseGate`.
    """

    default_name: ClassVar[str] = "approval"
    kinds = frozenset({"tool_call"})
    rank: ClassVar[int] = 90

    def __init__(
        self,
        tools: Collection[str] = (),
        *,
        effects: Collection[str] = (),
        needs: Callable[[PendingCall], bool] | None = None,
        store: ApprovalStore | None = None,
        four_eyes: bool = False,
        mode: GateMode = "enforce",
        mandatory: bool = True,
        name: str | None = None,
        policy_version: str | None = None,
    ) -> None:
        super().__init__(name=name, mode=mode, mandatory=mandatory, policy_version=policy_version)
        self._tools = frozenset(tools)
        self._effects = frozenset(effects)
        self._asks = needs
        self.store: ApprovalStore = MemoryApprovals() if store is None else store
        self._four_eyes = four_eyes

    async def acheck(self, proposal: Proposal) -> Verdict | None:
        """Decide, without holding up the event loop."""
        return await asyncio.to_thread(self.check, proposal)

    def check(self, proposal: Proposal) -> Verdict | None:
        """Let an approved call pass once; ask for an approval otherwise."""
        call = next(
            one for one in proposal.turn if (one.name, one.id) == (proposal.tool, proposal.call_id)
        )
        if not self._needs(call):
            return Verdict(outcome="allow", reason="not_needed")
        if call.arguments is None:
            return denied("arguments_unknown")
        if proposal.run_id is None:
            return denied("no_run")
        for approval in self.store.of_run(proposal.run_id):
            place = _place(approval, call)
            if place is not None:
                verdict = self._of(approval, place, proposal)
                if verdict is not None:
                    return verdict
        if self.mode == "observe":
            return Verdict(outcome="require_approval", reason="needed")
        approval = self._propose(proposal, proposal.run_id)
        return Verdict(outcome="require_approval", reason="needed", approval_id=approval.id)

    def suspended(self, approval_id: str, reference: str) -> None:
        """Keep the reference of the segment that waits; it is true only after the decision."""
        approval = self.store.get(approval_id)
        if approval is not None and approval.status == "pending":
            self.store.decide(msgspec.structs.replace(approval, reference=reference))

    def _needs(self, call: PendingCall) -> bool:
        if call.name in self._tools or call.feared_effect in self._effects:
            return True
        return self._asks is not None and self._asks(call)

    def _of(self, approval: Approval, place: int, proposal: Proposal) -> Verdict | None:
        if approval.status == "pending":
            return Verdict(outcome="require_approval", reason="pending", approval_id=approval.id)
        allowed = approval.status == "approved"
        if allowed and place in approval.executed:
            return None  # that call has been executed: this is another one
        if allowed and proposal.executing and not self.store.claim(approval.id, place):
            return None
        return Verdict(
            outcome="allow" if allowed else "deny",
            reason="approved" if allowed else "approval_denied",
            by=approval.attribution or "unresolved",
            actor=approval.decided_by,
            proposed_ns=approval.proposed_ns,
            decided_ns=approval.decided_ns,
        )

    def _propose(self, proposal: Proposal, run_id: str) -> Approval:
        salt = os.urandom(16).hex()
        calls = tuple(
            ApprovalCall(
                name=one.name,
                id=one.id,
                effect=one.effect,
                arguments_bytes=None if one.arguments is None else len(one.arguments),
                digest=_digest(salt, one),
            )
            for one in proposal.turn
        )
        actor = proposal.actor
        approval = Approval(
            id=hex_64(),
            run_id=run_id,
            agent=proposal.agent,
            reference=None,
            calls=calls,
            salt=salt,
            digest=_hmac(salt, [(one.name, one.id, one.digest) for one in calls]),
            initiator=(actor.id or None) if actor is not None else None,
            four_eyes=self._four_eyes,
            proposed_ns=time.time_ns(),
        )
        self.store.add(approval)
        return approval


def _hmac(salt: str, value: Any) -> str:
    return hmac.digest(bytes.fromhex(salt), msgspec.json.encode(value), "sha256").hex()


def _digest(salt: str, call: PendingCall) -> str | None:
    if call.arguments is None:
        return None
    return _hmac(salt, (call.name, call.id, call.arguments.decode()))


def _place(approval: Approval, call: PendingCall) -> int | None:
    """Return which of the calls of an approval this is: the same name, id and arguments."""
    digest = _digest(approval.salt, call)
    for place, one in enumerate(approval.calls):
        known = one.digest is not None and digest is not None
        if known and hmac.compare_digest(str(one.digest), str(digest)):
            return place
    return None


def approve(
    store: ApprovalStore,
    approval_id: str,
    actor: Actor,
    *,
    digest: str | None,
    can_execute: Callable[[Actor, Sequence[ApprovalCall]], bool] | None = None,
) -> Approval:
    """Approve the tool calls of a turn.

    Args:
        store: where the approval is kept.
        approval_id: its id, or how it begins.
        actor: who approves.
        digest: `Approval.digest` of what the actor has seen.
        can_execute: tells whether the actor could execute the calls too.

    Raises:
        ApprovalRefused: it is unknown or decided on already, the actor may not approve it (by
            right, or as the one that the run acts for), or the digest is another one.
    """
    return _decide(store, approval_id, actor, "approved", digest, can_execute)


def deny(store: ApprovalStore, approval_id: str, actor: Actor, *, digest: str | None) -> Approval:
    """Deny the tool calls of a turn; who the run acts for may do that too.

    Raises:
        ApprovalRefused: see `approve`.
    """
    return _decide(store, approval_id, actor, "denied", digest, None)


def _decide(
    store: ApprovalStore,
    approval_id: str,
    actor: Actor,
    status: Literal["approved", "denied"],
    digest: str | None,
    can_execute: Callable[[Actor, Sequence[ApprovalCall]], bool] | None,
) -> Approval:
    approval = store.get(approval_id)
    if approval is None:
        raise ApprovalRefused(approval_id, "unknown")
    if approval.status != "pending":
        raise ApprovalRefused(approval.id, "not_pending")
    if not may(actor, APPROVE, owner=approval.initiator):
        raise ApprovalRefused(approval.id, "not_permitted")
    attribution = _attribution(approval, actor)
    if status == "approved" and approval.four_eyes and attribution != "second_person":
        raise ApprovalRefused(approval.id, "four_eyes")
    if digest is None or not hmac.compare_digest(digest, approval.digest):
        raise ApprovalRefused(approval.id, "digest_mismatch")
    if can_execute is not None and not can_execute(actor, approval.calls):
        raise ApprovalRefused(approval.id, "cannot_execute")
    decided = msgspec.structs.replace(
        approval,
        status=status,
        decided_ns=time.time_ns(),
        decided_by=actor.id,
        attribution=attribution,
    )
    if not store.decide(decided):
        raise ApprovalRefused(approval.id, "not_pending")
    return decided


def _attribution(approval: Approval, actor: Actor) -> str:
    if not actor.id:
        return "unresolved"
    if not approval.initiator:
        return "initiator_unknown"
    return "self" if actor.id == approval.initiator else "second_person"
