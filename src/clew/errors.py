"""Errors that Clew raises on purpose.

    ClewError
    ├── ConfigurationError   a setting or an argument to `configure` is wrong
    ├── RunIdError           a run id is nil or malformed
    ├── RunReferenceError    a run reference cannot be read
    ├── MissingExtraError    an optional part is not installed
    ├── StoreError           the local store cannot be used
    ├── AuditError           what was about to happen could not be recorded, so it did not
    ├── PolicyDenied         a gate denied a model call or a tool call
    ├── ApprovalRequired     a gate wants somebody's approval first
    └── ApprovalRefused      an approval or its denial was not accepted

Telemetry itself never raises: these appear only where the caller asked for something
that cannot be done, before anything has started, and where gates that the caller has
configured are enforced. None of them carries content.
"""

from __future__ import annotations

from typing import Any, Self


class ClewError(Exception):
    """Base of every error that Clew raises on purpose. It can be sent to another process."""

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self)._again, (self.args, self.__dict__)

    @classmethod
    def _again(cls, args: tuple[Any, ...], state: dict[str, Any]) -> Self:
        error = cls.__new__(cls, *args)
        error.__dict__.update(state)
        return error


class ConfigurationError(ClewError, ValueError):
    """A setting, an environment variable or an argument is wrong."""


class RunIdError(ClewError, ValueError):
    """A run id is nil or is not a uuid."""


class RunReferenceError(ClewError, ValueError):
    """A run reference cannot be read."""


class MissingExtraError(ClewError, ImportError):
    """An optional part of Clew is not installed."""

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(
            f"{what} needs an optional part: install it with `pip install 'clew[{extra}]'`"
        )
        self.extra = extra


class StoreError(ClewError):
    """The local store is full, locked, corrupt, or newer than this program."""


class AuditError(ClewError):
    """What was about to happen could not be written to the journal, and so did not happen."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"{what} was not carried out: it could not be written to the journal first "
            "(audit is fail_closed). See the log for what is wrong with the data folder"
        )


class PolicyDenied(ClewError):  # noqa: N818 - a verdict, not a fault
    """A gate denied a model call or a tool call; it did not happen."""

    def __init__(self, gate: str, reason: str, decision_id: str = "") -> None:
        super().__init__(f"the gate {gate!r} denied this: {reason}")
        self.gate = gate
        """Name of the gate that denied."""
        self.reason = reason
        """A code, never prose."""
        self.decision_id = decision_id
        """`clew.decision.id` of the decision; empty where none was recorded."""


class ApprovalRequired(ClewError):  # noqa: N818
    """A gate wants an approval before a model call or a tool call; it did not happen."""

    def __init__(
        self,
        gate: str,
        reason: str,
        decision_id: str = "",
        *,
        approval_id: str | None = None,
        reference: str | None = None,
    ) -> None:
        super().__init__(f"the gate {gate!r} requires an approval: {reason}")
        self.gate = gate
        """Name of the gate that requires it."""
        self.reason = reason
        """A code, never prose."""
        self.decision_id = decision_id
        """`clew.decision.id` of the decision; empty where none was recorded."""
        self.approval_id = approval_id
        """Id of the pending approval, where the gate keeps one."""
        self.reference = reference
        """What `clew.resume` continues the run with; None outside a run."""


_REFUSED = {
    "unknown": "none has this id, or several begin with it",
    "not_pending": "somebody has decided on it",
    "not_permitted": "the right to approve is missing",
    "four_eyes": "the run acts for the same person, or nobody knows for whom: another one has to",
    "digest_mismatch": "the calls that wait are not those that were looked at",
    "cannot_execute": "whoever approves could not execute the calls",
}


class ApprovalRefused(ClewError):  # noqa: N818
    """An approval, or its denial, was not accepted; nothing has changed."""

    def __init__(self, approval_id: str, reason: str) -> None:
        words = _REFUSED.get(reason)
        more = "" if words is None else f" ({words})"
        super().__init__(f"the approval {approval_id} cannot be decided so: {reason}{more}")
        self.approval_id = approval_id
        self.reason = reason
        """A code: `unknown`, `not_pending`, `not_permitted`, `four_eyes`, `digest_mismatch`
        or `cannot_execute`."""
