"""Who may keep raw answers.

`ChatRequest.capture_raw` asks for the provider's decoded answer. It is granted where the settings
let full content be captured (`capture_max` or `capture` is `full`), no block around asks for less,
and the run acts for somebody who may `capture:raise`. Granted or not, it is a decision of the gate
`capture`. Without a grant the answer is the one that it is without the directive.
"""

from __future__ import annotations

from msgspec.structs import replace

from clew import context
from clew._guard import guard
from clew.actors import Actor, may
from clew.capturing import GATE, RIGHT
from clew.decisions import Decision
from clew.levels import FULL
from clew.pipeline import runtime as _runtime
from clew.providers.base import ChatRequest


def gated(request: ChatRequest) -> ChatRequest:
    """Return the request, without its directive where it is not granted."""
    if request.capture_raw is not True:
        return request
    node = context.current_node()
    actor = node.agent.run.terms.actor if node is not None and node.agent is not None else None
    refusal = refusal_of(actor)
    _record(refusal, actor)
    return request if refusal is None else replace(request, capture_raw=False)


def refusal_of(actor: Actor | None) -> str | None:
    """Return why raw answers may not be kept here, as a code; None where they may."""
    runtime = _runtime.get()
    if runtime is None or max(runtime.capture_max, runtime.capture_level) < FULL:
        return "above_maximum"
    asked = context.asked_level(context.current())
    if asked is not None and asked < FULL:
        return "lowered"
    return None if may(actor, RIGHT) else "actor_not_permitted"


def _record(refusal: str | None, actor: Actor | None) -> None:
    with guard("record a decision on raw capture"):
        decision = Decision(
            GATE,
            "allow" if refusal is None else "deny",
            {
                "reason": refusal or "raised",
                "policy": "capture_max",
                "policy_version": None,
                "subject": "raw",
                "enforced": True,
                "executed": refusal is None,
                "by": "policy",
                "trust_zone": None,
                "data_class": None,
            },
        )
        if actor is not None and actor.id:
            decision.actor = actor.id
        decision.begin()
        decision.settle()
