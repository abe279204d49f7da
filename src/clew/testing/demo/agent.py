"""A support desk that looks for a late parcel, instrumented as any service would be.

The desk asks its model, looks up the order, lets a second agent ask the carrier, and is refused a
refund by a rule. For a voucher it needs somebody's approval: the run is suspended, a second person
approves exactly that call, and the run is resumed. It goes the same way with a real model that does
not ask for the tools: then the desk uses them on its own account.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

import clew
from clew.actors import Actor
from clew.errors import ApprovalRequired, PolicyDenied
from clew.gates.approval import ApprovalGate, approve
from clew.gates.approval_store import ApprovalStore, MemoryApprovals
from clew.testing.demo.models import Asked, Conversation, Model, ToolSpec, Turn
from clew.typing import GateMode, Proposal, Verdict

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
SEND_VOUCHER = ToolSpec(
    name="send_voucher",
    description="Send the customer a voucher for a delay.",
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


AGENT_OF_THE_DESK: Final = Actor(id="ann")
"""Who the run acts for."""
LEAD_OF_THE_DESK: Final = Actor(id="bob", grants=frozenset({"agent_approve"}))
"""Who may approve."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a finished run of the desk gave."""

    run_id: uuid.UUID
    answer: str


class DeskRules:
    """A gate of the desk's own: reading is allowed, and a parcel on its way is not refunded."""

    name = "tool"
    mode: GateMode = "enforce"
    mandatory = True
    kinds = frozenset({"tool_call"})
    rank = 20
    policy = "desk-tools"
    policy_version = "3"

    def check(self, proposal: Proposal) -> Verdict | None:
        """Decide about a tool call; None leaves it to the gates that follow."""
        if proposal.tool == REFUND_ORDER.name:
            return Verdict(outcome="deny", reason="parcel_not_lost")
        if _effect(proposal.tool or "") == "read_only":
            return Verdict(outcome="allow", reason="read_only")
        return None


def answer_customer(
    desk: Model, carrier: Model, *, run_id: uuid.UUID | str | None = None
) -> Outcome:
    """Run the desk once on the customer's message, in two segments."""
    approvals = MemoryApprovals()
    terms: dict[str, Any] = {
        "actor": AGENT_OF_THE_DESK,
        "configuration": "desk-v7",
        "gates": (
            DeskRules(),
            ApprovalGate({SEND_VOUCHER.name}, store=approvals, four_eyes=True),
        ),
    }
    talk = Conversation(
        system=DESK,
        tools=(FIND_ORDER, REFUND_ORDER),
        turns=[Turn(role="user", text=CUSTOMER)],
    )
    voucher = _call("send_voucher", order="20417", euros=5)
    try:
        with clew.run(
            "parcel-desk",
            run_id=run_id,
            conversation_id="conv-20417",
            kind="channel",
            trigger="user_message",
            **terms,
        ) as run:
            clew.decide(
                "guardrail_input",
                "allow",
                reason="no_finding",
                policy="inbox-rules",
                executed=True,
            )
            _step(desk, talk, _call("find_order", order="20417"), stream=True)
            report = ask_carrier(carrier, ORDERS["20417"]["tracking"])
            _say(talk, f"The carrier agent reports: {report}")
            _step(desk, talk, _call("refund_order", order="20417", euros=64), stream=False)
            _say(talk, "A voucher is due for the delay.")
            offered = replace(talk, tools=(SEND_VOUCHER,))
            voucher = _choice(desk, offered, voucher, stream=False)
            return _conclude(desk, talk, voucher, run.run_id)
    except ApprovalRequired:
        with clew.resume(_approved_by_the_lead(approvals), **terms) as run:
            return _conclude(desk, talk, voucher, run.run_id)


def _conclude(desk: Model, talk: Conversation, voucher: Asked, run_id: uuid.UUID) -> Outcome:
    _execute(talk, voucher)
    _say(talk, "Now write the answer to the customer.")
    return Outcome(run_id=run_id, answer=desk.ask(talk, stream=True).text)


def _approved_by_the_lead(approvals: ApprovalStore) -> str:
    """Let a second person approve what waits; return the reference that resumes the run."""
    (pending,) = approvals.pending()
    time.sleep(0.4)
    decided = approve(approvals, pending.id, LEAD_OF_THE_DESK, digest=pending.digest)
    return decided.reference or ""


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
    _execute(talk, _choice(model, talk, otherwise, stream=stream))


def _choice(model: Model, talk: Conversation, otherwise: Asked, *, stream: bool) -> Asked:
    """Ask the model; return the tool call that it asks for, or else the other one."""
    said = model.ask(talk, stream=stream)
    known = {tool.name for tool in talk.tools}
    asked = next((call for call in said.asked if call.name in known), None)
    if asked is None:
        talk.turns.append(Turn(role="assistant", text=said.text or "Let me see."))
        return otherwise
    talk.turns.append(Turn(role="assistant", text=said.text, asked=(asked,)))
    return asked


def _execute(talk: Conversation, call: Asked) -> None:
    """Use a tool and tell the model what came of it."""
    result = _use(call)
    if call.id:
        talk.turns.append(Turn(role="tool", text=result, result_of=call.id))
    else:
        talk.turns.append(Turn(role="user", text=f"{call.name} says: {result}"))


def _say(talk: Conversation, text: str) -> None:
    """Add to the user's side; many models want the sides to alternate."""
    last = talk.turns[-1]
    if last.role == "user" and last.result_of is None:
        talk.turns[-1] = Turn(role="user", text=f"{last.text}\n{text}")
    else:
        talk.turns.append(Turn(role="user", text=text))


def _use(call: Asked) -> str:
    """Execute a tool call, unless a gate stops it."""
    arguments = call.arguments.encode()
    try:
        with clew.tool(
            call.name, call_id=call.id or None, effect=_effect(call.name), arguments=arguments
        ) as tool:
            tool.arguments_bytes = len(arguments)
            result = _TOOLS[call.name](call.arguments)
            tool.result_bytes = len(result.encode())
            return result
    except PolicyDenied:
        return "Not allowed: a parcel that is on its way is not refunded."


def _effect(tool: str) -> str:
    return "read_only" if tool in {"find_order", "carrier_scans"} else "non_idempotent_write"


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


def _send_voucher(arguments: str) -> str:
    time.sleep(0.05)
    return json.dumps({"voucher": f"sent for {_argument(arguments, 'euros', '5')} euros"})


_TOOLS: dict[str, Callable[[str], str]] = {
    "find_order": _find_order,
    "carrier_scans": _carrier_scans,
    "send_voucher": _send_voucher,
}
