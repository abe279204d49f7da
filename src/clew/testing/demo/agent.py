"""A support desk that looks for a late parcel, instrumented as any service would be.

The desk asks its model, looks up the order, lets a second agent ask the carrier, and is refused a
refund by a rule. It goes the same way with a real model that does not ask for the tools: then the
desk uses them on its own account.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import clew
from clew.testing.demo.models import Asked, Conversation, Model, ToolSpec, Turn

CUSTOMER = (
    "Hello, my order 20417 should have been here on Tuesday. It is a present for Friday. "
    "Where is it? If it is lost, I want my money back."
)
DESK = (
    "You answer customers of a small shop for garden tools. Look up the order before you say "
    "anything about it. Be short and honest."
)
CARRIER = "You find out from a carrier's scans where a parcel is. Answer in two sentences."

FIND_ORDER = ToolSpec(
    name="find_order", description="Find an order by its number.", parameters={"order": "string"}
)
REFUND_ORDER = ToolSpec(
    name="refund_order",
    description="Return money for an order.",
    parameters={"order": "string", "euros": "number"},
)
CARRIER_SCANS = ToolSpec(
    name="carrier_scans",
    description="List the carrier's scans of a parcel.",
    parameters={"tracking": "string"},
)

ORDERS: dict[str, dict[str, Any]] = {
    "20417": {"item": "pruning shears", "euros": 64, "tracking": "HR550193"}
}
SCANS: dict[str, list[str]] = {
    "HR550193": [
        "Mon 17:40 accepted in York",
        "Tue 05:12 loaded on van 8 instead of van 3",
        "Tue 18:55 returned to depot Leeds",
    ]
}


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a finished run of the desk gave."""

    run_id: uuid.UUID
    answer: str


def answer_customer(
    desk: Model, carrier: Model, *, run_id: uuid.UUID | str | None = None
) -> Outcome:
    """Run the desk once on the customer's message."""
    with clew.run(
        "parcel-desk",
        run_id=run_id,
        conversation_id="conv-20417",
        configuration="desk-v7",
        kind="channel",
        trigger="user_message",
    ) as run:
        clew.decide("guardrail_input", "allow", reason="no_finding", policy="inbox-rules")
        talk = Conversation(
            system=DESK,
            tools=(FIND_ORDER, REFUND_ORDER),
            turns=[Turn(role="user", text=CUSTOMER)],
        )
        _step(desk, talk, _call("find_order", order="20417"), stream=True)
        report = ask_carrier(carrier, ORDERS["20417"]["tracking"])
        _say(talk, f"The carrier agent reports: {report}")
        _step(desk, talk, _call("refund_order", order="20417", euros=64), stream=False)
        _say(talk, "Now write the answer to the customer.")
        answer = desk.ask(talk, stream=True).text
        return Outcome(run_id=run.run_id, answer=answer)


def ask_carrier(model: Model, tracking: str) -> str:
    """Let a second agent, nested in the run, find out where the parcel is."""
    with clew.run("carrier-watch"):
        talk = Conversation(
            system=CARRIER,
            tools=(CARRIER_SCANS,),
            turns=[Turn(role="user", text=f"Where is the parcel {tracking}?")],
        )
        _step(model, talk, _call("carrier_scans", tracking=tracking), stream=True)
        return model.ask(talk, stream=False).text


def _step(model: Model, talk: Conversation, otherwise: Asked, *, stream: bool) -> None:
    """Ask the model, then use the tool that it asks for, or else the one that comes next."""
    said = model.ask(talk, stream=stream)
    known = {tool.name for tool in talk.tools}
    asked = next((call for call in said.asked if call.name in known), None)
    if asked is None:
        talk.turns.append(Turn(role="assistant", text=said.text or "Let me see."))
        result = _use(otherwise, call_id=None)
        talk.turns.append(Turn(role="user", text=f"{otherwise.name} says: {result}"))
        return
    talk.turns.append(Turn(role="assistant", text=said.text, asked=(asked,)))
    result = _use(asked, call_id=asked.id)
    talk.turns.append(Turn(role="tool", text=result, result_of=asked.id))


def _say(talk: Conversation, text: str) -> None:
    """Add to the user's side; many models want the sides to alternate."""
    last = talk.turns[-1]
    if last.role == "user" and last.result_of is None:
        talk.turns[-1] = Turn(role="user", text=f"{last.text}\n{text}")
    else:
        talk.turns.append(Turn(role="user", text=text))


def _use(call: Asked, *, call_id: str | None) -> str:
    """Let the rules look at a tool call, then execute it or say why not."""
    with clew.decide(
        "tool", policy="desk-tools", policy_version="3", subject=call.name
    ) as decision:
        allowed = call.name != "refund_order"
        decision.outcome = "allow" if allowed else "deny"
        decision.reason = "read_only" if allowed else "parcel_not_lost"
        decision.executed = allowed
    effect = "read_only" if allowed else "non_idempotent_write"
    with clew.tool(call.name, call_id=call_id, effect=effect) as tool:
        tool.arguments_bytes = len(call.arguments.encode())
        if not allowed:
            tool.outcome = "denied"
            return "Not allowed: a parcel that is on its way is not refunded."
        result = _TOOLS[call.name](call.arguments)
        tool.result_bytes = len(result.encode())
        return result


def _call(name: str, **arguments: object) -> Asked:
    return Asked(id="", name=name, arguments=json.dumps(arguments))


def _argument(arguments: str, name: str, default: str) -> str:
    """Return one argument; a small model's JSON may be broken."""
    try:
        return str(json.loads(arguments)[name])
    except (ValueError, KeyError, TypeError):
        return default


def _find_order(arguments: str) -> str:
    time.sleep(0.03)
    return json.dumps(ORDERS.get(_argument(arguments, "order", "20417"), {}))


def _carrier_scans(arguments: str) -> str:
    time.sleep(0.09)
    return json.dumps(SCANS.get(_argument(arguments, "tracking", "HR550193"), []))


_TOOLS: dict[str, Callable[[str], str]] = {
    "find_order": _find_order,
    "carrier_scans": _carrier_scans,
}
