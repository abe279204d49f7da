"""From the end of a run to its result."""

from __future__ import annotations

from typing import Final, NamedTuple

from msgspec.structs import replace

from clew.errors import PolicyDenied
from clew.loop.result import LoopResult
from clew.loop.session import Session
from clew.runs import Run

_FAILED: Final = frozenset({"budget_exhausted", "policy_denied", "provider_failed"})
_CANCELLED: Final = frozenset({"cancelled", "approval_denied"})
_TRUNCATED: Final = frozenset({"max_rounds", "context_truncated"})


class Begun(NamedTuple):
    """A run that is about to begin, or has."""

    run: Run
    session: Session
    dropped: tuple[str, ...]


def result_of(begun: Begun, error: Exception | None = None) -> LoopResult:
    """Return what a run came to, when it has ended or waits."""
    session = begun.session
    reason: str | None = session.reason
    if session.waiting is not None:
        reason, error = None, None
    elif isinstance(error, PolicyDenied):
        reason = _reason_of(error)
    known = begun.run.totals  # the run knows what was decided
    totals = replace(session.totals, decisions=known.decisions, denials=known.denials)
    return LoopResult(
        run_id=str(begun.run.run_id),
        status=_status(session, reason),
        reason=reason,
        text=session.text,
        truncated=reason in _TRUNCATED,
        rounds=session.rounds,
        totals=totals,
        messages=tuple(session.messages),
        dropped=begun.dropped,
        waiting=session.waiting,
        error=error,
    )


def _reason_of(error: PolicyDenied) -> str:
    """Return the reason that the run's span has, too."""
    if error.reason == "approval_denied":
        return "approval_denied"
    return "budget_exhausted" if error.gate == "budget" else "policy_denied"


def _status(session: Session, reason: str | None) -> str:
    if session.waiting is not None:
        return f"waiting_for_{session.waiting.kind}"
    if reason in _FAILED:
        return "failed"
    return "cancelled" if reason in _CANCELLED else "completed"
