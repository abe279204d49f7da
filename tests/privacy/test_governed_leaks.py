"""What gates look at, decide and keep leaks as little: they see content, and leave codes."""

# ruff: noqa: SIM300 - expected == actual, in this order
from __future__ import annotations

import contextlib
import json
import logging
from pathlib import Path
from typing import Any

import openai
import pydantic
import pytest
from marks import ARGUMENTS, mark, odd
from openai_formats import OPENAI_CHAT
from surroundings import watched

import clew
from clew.actors import Actor
from clew.allow_list import AllowList, Closed, Identifier
from clew.errors import ApprovalRequired, PolicyDenied
from clew.gates.approval import ApprovalGate, approve, check_turn
from clew.gates.approval_store import SqliteApprovals
from clew.gates.budget import BudgetGate, Limit
from clew.gates.guardrail import InputGuardrail, OutputGuardrail, redact
from clew.gates.tool import ToolGate, ToolRule
from clew.store.ledger import SqliteLedger
from clew.testing import Reply, ScriptedProvider, ScriptedToolCall, captured
from clew.typing import PendingCall, Verdict

LEVELS = ("none", "metadata")
REPLY = Reply(
    text=mark("completion"),
    reasoning=mark("reasoning"),
    tool_calls=(ScriptedToolCall(name=mark("chosen"), arguments=ARGUMENTS),),
)


def look_at_requests(text: str) -> Verdict | None:
    """Find content, and say so in every field that a verdict has."""
    if mark("prompt") in text:
        return redact(text.replace(mark("prompt"), mark("masked")), reason=odd("found"))
    return None


def look_at_answers(text: str) -> Verdict | None:
    if mark("completion") in text:
        return Verdict(outcome="deny", reason=odd("rude"), subject=odd("subject"), policy=odd("p"))
    return None


class Failing:
    """A gate whose own fault quotes what it looked at."""

    name = "failing"
    mode = "enforce"
    mandatory = False
    kinds = frozenset({"model_call"})

    def check(self, proposal: Any) -> Verdict | None:
        raise ValueError(mark("gate-fault"), bytes(proposal.content()))


def ask(client: openai.OpenAI, *, stream: bool) -> None:
    request = {key: value for key, value in OPENAI_CHAT.items() if key != "safety_identifier"}
    with contextlib.suppress(PolicyDenied):
        answer = client.chat.completions.create(**request, stream=stream)
        if stream:
            with contextlib.suppress(PolicyDenied):
                for _ in answer:
                    pass


@pytest.mark.parametrize("level", LEVELS)
def test_gates_leak_nothing(level: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guardrails, budgets and a failing gate: nothing of what they saw is sent, kept or logged."""
    folder = tmp_path / "d"
    gates = (
        InputGuardrail(look_at_requests),
        OutputGuardrail(look_at_answers),
        BudgetGate(Limit(requests=9), ledger=SqliteLedger(folder / "budgets.db")),
        Failing(),
    )
    with (
        ScriptedProvider(lambda _: REPLY) as server,
        watched(folder, monkeypatch, capture=level, gates=gates) as everything,
        openai.OpenAI(
            base_url=server.openai_base_url, api_key=mark("key"), max_retries=0
        ) as client,
    ):
        with clew.run("leak-test"):
            for stream in (False, True):
                ask(client, stream=stream)
        sent = b"".join(request.content() for request in server.requests)
    assert mark("masked").encode() in sent
    assert {} == everything.found()
    decided = [span for span in everything.spans if span.name.startswith("decide ")]
    assert {"decide guardrail_input", "decide guardrail_output", "decide failing"} <= {
        span.name for span in decided
    }
    assert "ask the gate Failing" in everything.places["log"].decode()
    assert "budgets.db" in everything.places


@pytest.mark.parametrize("level", LEVELS)
def test_approvals_leak_nothing(
    level: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pending approval keeps digests of arguments, wherever it is kept or shown."""
    folder = tmp_path / "d"
    store = SqliteApprovals(folder / "approvals.db")
    gates = (
        ApprovalGate({"find"}, store=store, four_eyes=True),
        ToolGate({"find": ToolRule()}),
    )
    arguments = json.dumps(ARGUMENTS).encode()
    turn = [PendingCall(name="find", id="call_1", arguments=arguments)]
    with watched(folder, monkeypatch, capture=level, gates=gates) as everything:
        with pytest.raises(ApprovalRequired) as waits, clew.run("leak-test", actor="ann"):
            check_turn(turn)
        (pending,) = store.pending()
        bob = Actor(id="bob", grants=frozenset({"agent_approve"}))
        decided = approve(store, pending.id, bob, digest=pending.digest)
        with clew.resume(decided.reference or "", actor="ann"):
            check_turn(turn)
            with clew.tool("find", call_id="call_1", arguments=arguments) as call:
                call.result = mark("result")
            with (
                contextlib.suppress(PolicyDenied),
                clew.tool(odd("unknown"), arguments=arguments),
            ):
                pass
    assert {} == everything.found()
    assert "zqleak" not in str(waits.value)
    assert "second_person" in json.dumps(everything.places["printed"].decode())
    assert "approvals.db" in everything.places


class Order(pydantic.BaseModel):
    number: int


@pytest.mark.parametrize("level", LEVELS)
def test_validation_errors_and_log_records_leak_nothing(
    level: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error that quotes its input leaves as its type; what the host logs is the host's alone."""
    with (
        watched(tmp_path / "d", monkeypatch, capture=level) as everything,
        contextlib.suppress(pydantic.ValidationError),
        clew.run("leak-test"),
        clew.tool("validate"),
    ):
        logging.getLogger("host").error("%s", mark("log"), extra={"more": mark("log-extra")})
        try:
            Order.model_validate({"number": mark("input")})
        except pydantic.ValidationError:
            logging.getLogger("host").exception(mark("log-exception"))
            raise
    assert {} == everything.found()
    assert everything.sink.logs == []
    (tool,) = [span for span in everything.spans if span.name == "execute_tool validate"]
    told = {each.key: each.value.string_value for each in tool.attributes}
    assert "ValidationError" in told["error.type"]


def test_the_useful_attributes_stay() -> None:
    """Rules go by exact key: names that only look like secrets survive with their types."""
    from opentelemetry import trace

    listed = AllowList.default().extended(
        {
            "author": Identifier(64),
            "plan": Closed("free", "paid"),
            "session_token.kind": Closed("a"),
        }
    )
    with captured(allow_list=listed) as exporter:
        with trace.get_tracer("host").start_as_current_span("chat m") as span:
            span.set_attributes(
                {
                    "gen_ai.operation.name": "chat",
                    "gen_ai.usage.input_tokens": 12,
                    "gen_ai.request.max_tokens": 100,
                    "session.id": "s-1",
                    "author": "ada",
                    "session_token": mark("session-token"),
                    "plan": mark("plan"),
                }
            )
        (found,) = [dict(each.attributes or {}) for each in exporter.spans]
    kept = {key: value for key, value in found.items() if not key.startswith("clew.")}
    assert kept == {
        "gen_ai.operation.name": "chat",
        "gen_ai.usage.input_tokens": 12,
        "gen_ai.request.max_tokens": 100,
        "session.id": "s-1",
        "author": "ada",
    }
    # `session_token`, the plan that is none of the two, and the name's second word.
    assert found["clew.privacy.dropped"] == 3
