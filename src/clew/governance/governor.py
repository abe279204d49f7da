"""Governing: the gates are asked, in order, before something happens.

The `Governor` asks the gates about a proposal, records what they say as decisions, and says what
to raise, if anything.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Generator, Sequence
from typing import Any, NamedTuple, cast

import msgspec

from clew import semconv
from clew._guard import guard, record_failure
from clew.decisions import Decision
from clew.endings import RoundRecord
from clew.errors import ApprovalRequired, AuditError, ClewError, PolicyDenied
from clew.governance.proposals import NUMBERS, here, of_tool
from clew.pipeline.runtime import Runtime
from clew.rounds import Round
from clew.rules import OTHER, Identifier
from clew.runs import Run
from clew.spans import is_cancellation
from clew.terms import checked
from clew.typing import (
    Gate,
    PendingCall,
    Proposal,
    Settlement,
    Verdict,
)

STOPS = frozenset({"deny", "require_approval", "retry"})
"""Outcomes after which what was proposed does not happen."""
STRICTNESS = ("allow", "redact", "retry", "require_approval", "deny")
"""Outcomes, the strictest last."""
TOOL_KINDS = ("tool_call",)
_PENDING_KEPT = 10_000
_code = Identifier(64)


class Step(NamedTuple):
    """One gate's answer."""

    gate: Gate
    verdict: Verdict
    started_ns: int
    enforced: bool


class Result:
    """What all gates together have said about a proposal."""

    def __init__(self, proposal: Proposal) -> None:
        self.proposal = proposal
        self.steps: list[Step] = []
        self.asked: list[Gate] = []
        """Gates that have let the proposal pass: they are told how it ended."""
        self.stopped: Step | None = None
        self.replacement: bytes | None = None
        self.error: ClewError | None = None


class Governor:
    """Asks the gates of the settings and of the run."""

    def __init__(self, runtime: Runtime, gates: Sequence[Gate], *, record_allow: bool) -> None:
        self.runtime = runtime
        self.gates = checked(gates)
        self.record_allow = record_allow
        self._going: OrderedDict[tuple[int, int], Result] = OrderedDict()
        """Rounds that are under way, by trace and span id, with who wants to know their end."""
        runtime.observers.append(self._round_ended)

    # --- asking ----------------------------------------------------------------------------------

    def gates_for(self, run: Run | None, kinds: Sequence[str]) -> list[Gate]:
        """Return the gates to ask, cheap ones first; a run adds to them and takes none away."""
        gates = [*self.gates, *(run.terms.added() if run is not None else ())]
        chosen = [gate for gate in gates if not gate.kinds.isdisjoint(kinds)]
        return sorted(chosen, key=lambda gate: getattr(gate, "rank", 50))

    def ask(
        self,
        proposal: Proposal,
        gates: Sequence[Gate],
        kinds: Sequence[str],
        *,
        redact: bool,
        only: frozenset[str] | None = None,
        retry: bool = False,
    ) -> Result:
        """Ask the gates and record what they say; `Result.error` is what to raise, if anything.

        Args:
            proposal: what is about to happen.
            gates: whom to ask.
            kinds: the kinds of proposal that this is, each gate is shown the first of its own.
            redact: whether the content can still be changed.
            only: record nothing unless the gates stop it with one of these outcomes.
            retry: whether it can be asked for once more; otherwise a wish for that denies.
        """
        result = Result(proposal)
        try:
            walk = self._walk(result, gates, kinds, redact=redact, retry=retry)
            answer: Verdict | None = None
            gate, shown = next(walk)
            while True:
                answer = _check(gate, shown)
                gate, shown = walk.send(answer)
        except StopIteration:
            pass
        except Exception:
            self._broken(result, gates)
            return result
        except BaseException:
            self.release(result)
            raise
        if only is None or _stopped_by(result, only):
            self.conclude(result, gates)
        return result

    async def aask(
        self,
        proposal: Proposal,
        gates: Sequence[Gate],
        kinds: Sequence[str],
        *,
        redact: bool,
        only: frozenset[str] | None = None,
        retry: bool = False,
    ) -> Result:
        """Ask the gates; those with `acheck` are awaited."""
        result = Result(proposal)
        try:
            walk = self._walk(result, gates, kinds, redact=redact, retry=retry)
            answer: Verdict | None = None
            gate, shown = next(walk)
            while True:
                answer = await _acheck(gate, shown)
                gate, shown = walk.send(answer)
        except StopIteration:
            pass
        except Exception:
            self._broken(result, gates)
            return result
        except BaseException:
            self.release(result)
            raise
        if only is None or _stopped_by(result, only):
            self.conclude(result, gates)
        return result

    def _walk(
        self,
        result: Result,
        gates: Sequence[Gate],
        kinds: Sequence[str],
        *,
        redact: bool,
        retry: bool,
    ) -> Generator[tuple[Gate, Proposal], Verdict | None, None]:
        proposal = result.proposal
        for gate in gates:
            kind = next(kind for kind in kinds if kind in gate.kinds)
            shown = proposal if kind == proposal.kind else _of_kind(proposal, kind)
            started = time.time_ns()
            verdict = yield gate, shown
            if verdict is None:
                continue
            enforced = gate.mode == "enforce" and verdict.enforced
            if verdict.outcome == "redact" and (not redact or verdict.replacement is None):
                verdict = refused_redaction(verdict)
            if verdict.outcome == "retry" and enforced and not retry:
                verdict = refused_retry(verdict)
            step = Step(gate, verdict, started, enforced)
            result.steps.append(step)
            if enforced and verdict.outcome in STOPS:
                result.stopped = step
                return
            result.asked.append(gate)
            replacement = verdict.replacement
            if enforced and replacement is not None:
                result.replacement = replacement
                proposal = msgspec.structs.replace(proposal, content=_given(replacement))

    def conclude(
        self, result: Result, gates: Sequence[Gate] = (), *, released: int | None = None
    ) -> None:
        """Record the decisions, and make the error of what was stopped. Never raises.

        Args:
            result: what the gates have said.
            gates: who was asked.
            released: of a stream, how many characters had been released to the caller.
        """
        try:
            self._conclude(result, released)
        except Exception:
            self._broken(result, gates)

    def _broken(self, result: Result, gates: Sequence[Gate]) -> None:
        """Say what becomes of a proposal where a fault of ours came between.

        What was stopped stays stopped; else it is as if each gate had crashed: a mandatory one
        denies.
        """
        record_failure("ask the gates")
        if result.error is None and result.stopped is not None:
            step = result.stopped
            result.error = PolicyDenied(step.gate.name, "gate_error")
            with guard("say why a gate has denied"):
                result.error = _error(step, "", result.proposal)
        for gate in gates:
            if result.error is None and gate.mandatory:
                result.error = PolicyDenied(gate.name, "gate_error")
        if result.error is not None:
            self.release(result)

    def _conclude(self, result: Result, released: int | None) -> None:
        stopped = result.stopped
        for step in result.steps:
            if step.verdict.outcome == "allow" and not self.record_allow:
                continue
            decision = self._record(
                result.proposal, step, executed=stopped is None, released=released
            )
            if step is stopped:
                result.error = _error(step, decision.id, result.proposal)
            elif not decision.durable and self._fails_closed():
                result.error = result.error or AuditError(f"the {result.proposal.kind}")
        if result.error is not None:
            self.release(result)

    def _fails_closed(self) -> bool:
        journal = self.runtime.journal
        return journal is not None and journal.fail_closed

    def _record(
        self, proposal: Proposal, step: Step, *, executed: bool, released: int | None = None
    ) -> Decision:
        verdict = step.verdict
        decision = Decision(
            step.gate.name,
            verdict.outcome,
            {
                "reason": verdict.reason,
                "policy": verdict.policy or getattr(step.gate, "policy", None) or step.gate.name,
                "policy_version": verdict.policy_version
                or getattr(step.gate, "policy_version", None),
                "subject": verdict.subject or proposal.subject,
                "enforced": step.enforced,
                "executed": executed,
                "by": verdict.by,
                "trust_zone": proposal.trust_zone,
                "data_class": proposal.data_class,
            },
        )
        decision.actor = verdict.actor
        decision.released = released
        with guard("record a decision"):
            decision.record(
                step.started_ns, proposed_ns=verdict.proposed_ns, decided_ns=verdict.decided_ns
            )
        return decision

    def of_tool(
        self, call: PendingCall, turn: tuple[PendingCall, ...], *, executing: bool
    ) -> tuple[Proposal, list[Gate]]:
        """Return the proposal of a tool call, and whom to ask about it.

        Where a fault of ours is in the way, it is as if each gate had crashed.
        """
        gates: list[Gate] = list(self.gates)
        try:
            run = here()
            gates = self.gates_for(run, TOOL_KINDS)
            return of_tool(run, call, turn, executing=executing), gates
        except Exception:
            record_failure("describe a tool call to the gates")
        for gate in gates:
            if gate.mandatory and not gate.kinds.isdisjoint(TOOL_KINDS):
                raise PolicyDenied(gate.name, "gate_error")
        return Proposal(kind="tool_call", number=next(NUMBERS), tool=call.name), []

    def admit_tool(
        self, name: str, call_id: str | None, effect: str | None, arguments: bytes | None
    ) -> None:
        """Let a tool call pass, or raise `PolicyDenied` or `ApprovalRequired`."""
        call = PendingCall(name=name, id=call_id, effect=effect, arguments=arguments)
        proposal, gates = self.of_tool(call, (call,), executing=True)
        result = self.ask(proposal, gates, TOOL_KINDS, redact=False)
        self._admitted(result)

    async def aadmit_tool(
        self, name: str, call_id: str | None, effect: str | None, arguments: bytes | None
    ) -> None:
        """Do what `admit_tool` does, in asynchronous code."""
        call = PendingCall(name=name, id=call_id, effect=effect, arguments=arguments)
        proposal, gates = self.of_tool(call, (call,), executing=True)
        result = await self.aask(proposal, gates, TOOL_KINDS, redact=False)
        self._admitted(result)

    def _admitted(self, result: Result) -> None:
        if result.error is not None:
            raise result.error
        self.settle(result, Settlement())

    # --- what became of it -----------------------------------------------------------------------

    def release(self, result: Result) -> None:
        """Tell the gates that what they allowed did not happen."""
        for gate in result.asked:
            release = getattr(gate, "release", None)
            if release is not None:
                with guard("tell a gate that nothing happened"):
                    release(result.proposal)
        result.asked = []

    def settle(self, result: Result, settlement: Settlement) -> None:
        """Tell the gates how what they allowed has ended."""
        for gate in result.asked:
            settle = getattr(gate, "settle", None)
            if settle is not None:
                with guard("tell a gate how it ended"):
                    settle(result.proposal, settlement)
        result.asked = []

    def follow(self, result: Result, round_: Round | None) -> None:
        """Remember whom to tell when the round has ended."""
        span = None if round_ is None else round_.span.get_span_context()
        if span is None or not span.is_valid:
            self.settle(result, Settlement())  # nobody will say how it ended
            return
        key = (span.trace_id, span.span_id)
        before = self._going.pop(key, None)
        # A round that is recorded further out may send more than one request.
        if before is not None and before is not result:
            self.settle(before, Settlement())
        self._going[key] = result
        while len(self._going) > _PENDING_KEPT:
            _, oldest = self._going.popitem(last=False)
            self.settle(oldest, Settlement())

    def _round_ended(self, record: RoundRecord) -> None:
        result = self._going.pop((record.trace_id, record.span_id), None)
        if result is None:
            return
        ending = record.ending
        self.settle(
            result,
            Settlement(
                usage=ending.response.usage,
                cost_usd=record.cost.usd,
                failed=record.error_type is not None,
                cancelled=ending.error is not None and is_cancellation(ending.error),
                status=ending.status,
                duration_s=record.duration_s,
            ),
        )


def governor_of(runtime: Runtime) -> Governor:
    """Return the governor of a runtime that has one."""
    return cast("Governor", runtime.governor)


def _check(gate: Gate, proposal: Proposal) -> Verdict | None:
    try:
        return _understood(gate.check(proposal))
    except Exception:
        return crashed(gate)


def check_text(gate: Any, proposal: Proposal, text: str | None) -> Verdict | None:
    """Ask a gate about a part of a stream; without a text, about the whole of it."""
    if text is None:
        return _check(gate, proposal)
    try:
        return _understood(gate.check_text(proposal, text))
    except Exception:
        return crashed(gate)


async def acheck_text(gate: Any, proposal: Proposal, text: str | None) -> Verdict | None:
    """Do what `check_text` does, in asynchronous code."""
    if text is None:
        return await _acheck(gate, proposal)
    check = getattr(gate, "acheck_text", None)
    if check is None:
        return check_text(gate, proposal, text)
    try:
        return _understood(await check(proposal, text))
    except Exception:
        return crashed(gate)


async def _acheck(gate: Gate, proposal: Proposal) -> Verdict | None:
    check = getattr(gate, "acheck", None)
    if check is None:
        return _check(gate, proposal)
    try:
        return _understood(await check(proposal))
    except Exception:
        return crashed(gate)


def _understood(said: Any) -> Verdict | None:
    """Return what a gate has said; anything but a verdict counts as a crash."""
    if said is None or (isinstance(said, Verdict) and said.outcome in semconv.DECISION_OUTCOMES):
        return said
    raise TypeError("a gate has returned something that is no verdict")


def refused_redaction(verdict: Verdict) -> Verdict:
    """Return the denial that a redaction becomes where it cannot be made, or says no text."""
    reason = "redact_not_possible" if verdict.replacement is not None else "no_text"
    return msgspec.structs.replace(verdict, outcome="deny", reason=reason)


def refused_retry(verdict: Verdict) -> Verdict:
    """Return the denial that a wish to ask once more becomes where nobody asks any more."""
    return msgspec.structs.replace(verdict, outcome="deny")


def crashed(gate: Gate) -> Verdict:
    """Return what a gate that has crashed stands for."""
    kind = f"ask the gate {type(gate).__name__}"
    if gate.mandatory and gate.mode == "enforce":
        record_failure(kind, "It is mandatory, so what it was asked about is denied")
    else:
        record_failure(kind)
    return Verdict(outcome="deny" if gate.mandatory else "allow", reason="gate_error")


def _of_kind(proposal: Proposal, kind: str) -> Proposal:
    return msgspec.structs.replace(proposal, kind=kind)


def _given(data: bytes) -> Callable[[], bytes]:
    return lambda: data


def _error(step: Step, decision_id: str, proposal: Proposal) -> ClewError:
    verdict = step.verdict
    reason = verdict.reason or verdict.outcome
    reason = reason if _code.fits(reason) is not None else OTHER
    if verdict.outcome == "require_approval":
        reference = None if proposal.reference is None else proposal.reference()
        suspended = getattr(step.gate, "suspended", None)
        if suspended is not None and None not in (reference, verdict.approval_id):
            with guard("tell a gate how the run is resumed"):
                suspended(verdict.approval_id, reference)
        return ApprovalRequired(
            step.gate.name,
            reason,
            decision_id,
            approval_id=verdict.approval_id,
            reference=reference,
        )
    return PolicyDenied(step.gate.name, reason, decision_id)


def _stopped_by(result: Result, outcomes: frozenset[str]) -> bool:
    return result.stopped is not None and result.stopped.verdict.outcome in outcomes
