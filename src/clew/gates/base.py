"""What the shipped gates have in common: a name, a mode, a policy and its version."""

from __future__ import annotations

from typing import ClassVar

from clew.errors import ConfigurationError
from clew.typing import GateMode, Proposal, Verdict


class BaseGate:
    """A gate with a name and a policy. Subclasses say what they look at, and `decide`.

    Args:
        name: the name on decisions, by default the class's own.
        mode: `enforce`, or `observe`: recorded with `enforced=false`, and nothing is stopped.
        mandatory: whether a crash of the gate denies (`gate_error`); otherwise it allows.
        policy: identifier of the policy, by default the name.
        policy_version: its version, on each decision.

    Raises:
        ConfigurationError: an unknown mode.
    """

    default_name: ClassVar[str]
    kinds: frozenset[str] = frozenset()
    rank: ClassVar[int] = 50

    def __init__(
        self,
        *,
        name: str | None = None,
        mode: GateMode = "enforce",
        mandatory: bool = True,
        policy: str | None = None,
        policy_version: str | None = None,
    ) -> None:
        if mode not in ("enforce", "observe"):
            raise ConfigurationError(f"a gate's mode is {mode!r}; give 'enforce' or 'observe'")
        self.name = name or self.default_name
        self.mode: GateMode = mode
        self.mandatory = mandatory
        self.policy = policy or self.name
        self.policy_version = policy_version

    def check(self, proposal: Proposal) -> Verdict | None:
        """Decide. None says nothing and records nothing."""
        raise NotImplementedError


def allow(reason: str | None = None) -> Verdict:
    """Return a verdict that allows."""
    return Verdict(outcome="allow", reason=reason)


def deny(reason: str, *, subject: str | None = None) -> Verdict:
    """Return a verdict that denies."""
    return Verdict(outcome="deny", reason=reason, subject=subject)
