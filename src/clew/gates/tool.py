"""The tool gate: whether a tool is registered, enabled, and permitted to whom it is executed for.

Checks go from cheap to dear, and the first that fails is the reason. They are made when the tool
is executed, so also in a run that was resumed: what has been disabled meanwhile stays undone.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import ClassVar

from msgspec import Struct

from clew.actors import Actor
from clew.gates.base import BaseGate, allow, deny
from clew.typing import DATA_CLASSES, UNKNOWN_ZONE, ZONE_CEILINGS, GateMode, Proposal, Verdict


class ToolRule(Struct, frozen=True, kw_only=True):
    """What holds for one tool."""

    enabled: bool = True
    admin_only: bool = False
    scope: str | None = None
    """A scope that a service account has to declare."""
    zone: str = "local"
    """Where the tool runs; its data goes there."""


class ToolGate(BaseGate):
    """Denies a tool call that is not permitted.

    Reasons: `not_registered`, `tool_disabled`, `requires_admin`, `requires_scope`,
    `not_in_configuration`, `trust_zone`.

    Args:
        tools: the rules by tool name. It is read at each call, so changes take effect at once.
            None: every tool that is registered in code or offered to the model is known.
        configurations: the tools that each configuration may use; one that is not named here
            may use all.
        data_classes: `enforce`, or `observe` for the check of trust zones alone.
        offered: whether a model call that offers a tool which is not permitted is denied too.
        mode: see `BaseGate`.
        mandatory: see `BaseGate`.
        name: see `BaseGate`.
        policy_version: see `BaseGate`.
    """

    default_name: ClassVar[str] = "tool"
    rank: ClassVar[int] = 10
    looks_at_offers: ClassVar[bool] = True

    def __init__(
        self,
        tools: Mapping[str, ToolRule] | None = None,
        *,
        configurations: Mapping[str, Collection[str]] | None = None,
        data_classes: GateMode = "enforce",
        offered: bool = False,
        mode: GateMode = "enforce",
        mandatory: bool = True,
        name: str | None = None,
        policy_version: str | None = None,
    ) -> None:
        super().__init__(name=name, mode=mode, mandatory=mandatory, policy_version=policy_version)
        self._tools = tools
        self._configurations: Mapping[str, Collection[str]] = configurations or {}
        self._data_classes = data_classes
        self.kinds = frozenset({"tool_call", "model_call"} if offered else {"tool_call"})

    def check(self, proposal: Proposal) -> Verdict | None:
        """Look at the tool of a call, or at those that a model call offers."""
        if proposal.kind == "tool_call":
            return self._of(proposal.tool or "", proposal, known=proposal.registered)
        if not proposal.offered:
            return None
        for name in proposal.offered:
            verdict = self._of(name, proposal, known=True)
            if verdict.outcome != "allow":
                return verdict
        return allow("permitted")

    def _of(self, name: str, proposal: Proposal, *, known: bool) -> Verdict:
        rule = ToolRule() if self._tools is None else self._tools.get(name)
        if rule is None or (self._tools is None and not known):
            return deny("not_registered", subject=name)
        if not rule.enabled:
            return deny("tool_disabled", subject=name)
        actor = proposal.actor
        if rule.admin_only and not (
            actor is not None and actor.admin and actor.kind != "anonymous"
        ):
            return deny("requires_admin", subject=name)
        if rule.scope is not None and not (actor is not None and _declares(actor, rule.scope)):
            return deny("requires_scope", subject=name)
        permitted = self._configurations.get(proposal.configuration or "")
        if permitted is not None and name not in permitted:
            return deny("not_in_configuration", subject=name)
        if exceeds(proposal.data_class, rule.zone):
            enforced = self._data_classes == "enforce"
            return Verdict(outcome="deny", reason="trust_zone", subject=name, enforced=enforced)
        return Verdict(outcome="allow", reason="permitted", subject=name)


def _declares(actor: Actor, scope: str) -> bool:
    return actor.kind != "anonymous" and (actor.admin or scope in actor.scopes)


def exceeds(data_class: str | None, zone: str) -> bool:
    """Tell whether data of a class may not go to a zone; a zone that is not known is the widest.

    Data that nobody has put into a class is held back from nowhere.
    """
    if data_class is None:
        return False
    ceiling = ZONE_CEILINGS.get(zone, ZONE_CEILINGS[UNKNOWN_ZONE])
    if data_class not in DATA_CLASSES:
        return True
    return DATA_CLASSES.index(data_class) > DATA_CLASSES.index(ceiling)
