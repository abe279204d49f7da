"""The OPA gate: asks an Open Policy Agent over its data API.

    package clew
    default decision := {"outcome": "allow", "reason": "default"}
    decision := {"outcome": "deny", "reason": "refund_at_night"} if input.tool == "refund"

The document at `path` is either a boolean or an object with `outcome`, and perhaps `reason`,
`policy` and `policy_version`. The input holds what a proposal says and no content; see
https://www.openpolicyagent.org/docs/rest-api#get-a-document-with-input.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final, cast

from clew.gates.base import BaseGate
from clew.typing import GateMode, Proposal, Verdict

_OUTCOMES: Final = ("allow", "deny", "require_approval")
_PLAIN: Final = (
    "kind",
    "run_id",
    "agent",
    "configuration",
    "tenant",
    "provider",
    "host",
    "model",
    "operation",
    "stream",
    "request_bytes",
    "max_output_tokens",
    "planned_input_tokens",
    "tool",
    "registered",
    "call_id",
    "effect",
    "arguments_bytes",
    "data_class",
    "source",
    "trust_zone",
)


class OpaGate(BaseGate):
    """Decides as a policy of an Open Policy Agent says.

    No answer, an answer that is none (an undefined document) and an unknown outcome are a crash of
    the gate: a mandatory one denies with `gate_error`.

    Args:
        url: where the agent is, such as `http://127.0.0.1:8181`.
        path: path of the document, such as `clew/decision`.
        timeout_s: seconds to wait for an answer.
        mode: see `BaseGate`.
        mandatory: see `BaseGate`.
        name: see `BaseGate`.
        policy_version: for decisions of policies that do not say theirs.
    """

    default_name: ClassVar[str] = "opa"
    kinds = frozenset({"model_call", "tool_call"})
    rank: ClassVar[int] = 80

    def __init__(
        self,
        url: str,
        path: str = "clew/decision",
        *,
        timeout_s: float = 1.0,
        mode: GateMode = "enforce",
        mandatory: bool = True,
        name: str | None = None,
        policy_version: str | None = None,
    ) -> None:
        super().__init__(
            name=name,
            mode=mode,
            mandatory=mandatory,
            policy=path.strip("/"),
            policy_version=policy_version,
        )
        self._url = f"{url.rstrip('/')}/v1/data/{path.strip('/')}"
        self._timeout = timeout_s

    def check(self, proposal: Proposal) -> Verdict | None:
        """Ask the agent."""
        import httpx

        with httpx.Client(timeout=self._timeout, trust_env=False) as client:
            answer = client.post(self._url, json={"input": as_input(proposal)})
        return _verdict(answer)

    async def acheck(self, proposal: Proposal) -> Verdict | None:
        """Ask the agent, in asynchronous code."""
        import httpx

        async with httpx.AsyncClient(timeout=self._timeout, trust_env=False) as client:
            answer = await client.post(self._url, json={"input": as_input(proposal)})
        return _verdict(answer)


def as_input(proposal: Proposal) -> dict[str, Any]:
    """Return what a policy is told: facts and no content."""
    facts: dict[str, Any] = {name: getattr(proposal, name) for name in _PLAIN}
    facts["offered"] = list(proposal.offered)
    spent = proposal.spent
    facts["spent"] = {
        "rounds": spent.rounds,
        "tool_calls": spent.tool_calls,
        "tokens": spent.tokens,
        "cost_usd": spent.cost_usd,
    }
    actor = proposal.actor
    if actor is not None:
        facts["actor"] = {
            "id": actor.id,
            "kind": actor.kind,
            "admin": actor.admin,
            "scopes": sorted(actor.scopes),
            "grants": sorted(actor.grants),
        }
    return {name: value for name, value in facts.items() if value is not None}


def _verdict(answer: Any) -> Verdict:
    answer.raise_for_status()
    result: Any = answer.json().get("result")
    if isinstance(result, bool):
        return Verdict(outcome="allow" if result else "deny", reason="policy")
    if not isinstance(result, dict):
        raise TypeError("the policy's document is undefined")
    said = cast("dict[str, Any]", result)
    outcome = said.get("outcome")
    if outcome not in _OUTCOMES:
        raise ValueError("the policy's outcome is unknown")
    return Verdict(
        outcome=outcome,
        reason=_word(said, "reason"),
        policy=_word(said, "policy"),
        policy_version=_word(said, "policy_version"),
    )


def _word(said: dict[str, Any], name: str) -> str | None:
    value = said.get(name)
    return None if value is None else str(value)
