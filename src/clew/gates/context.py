"""The context gate: the strictest class of what went into the prompt against the provider's zone.

    Settings(gates=(ContextGate(),), trust_zones={"llm.example.internal": "private_hosted"})

    with clew.run("triage") as run:
        run.uses("crm-notes", "internal_configuration")

A host that no zone is given for is `external_global`. The decision names the source and its class,
never its text.
"""

from __future__ import annotations

from typing import ClassVar

from clew.gates.base import BaseGate
from clew.gates.tool import exceeds
from clew.typing import UNKNOWN_ZONE, Proposal, Verdict


class ContextGate(BaseGate):
    """Denies a model call whose prompt holds data that may not go where the provider is.

    The reason is the class of the data, the subject its source. Where nobody has said what went
    into the prompt, nothing is held back: `nothing_declared`.
    """

    default_name: ClassVar[str] = "context"
    kinds = frozenset({"model_call"})
    rank: ClassVar[int] = 20

    def check(self, proposal: Proposal) -> Verdict | None:
        """Compare the strictest class with what the zone may get."""
        if proposal.data_class is None:
            return Verdict(outcome="allow", reason="nothing_declared")
        outside = exceeds(proposal.data_class, proposal.trust_zone or UNKNOWN_ZONE)
        return Verdict(
            outcome="deny" if outside else "allow",
            reason=proposal.data_class,
            subject=proposal.source,
        )
