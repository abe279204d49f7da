"""External policies: a YAML rule file, and an Open Policy Agent over HTTP."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from governed import Kit
from saying import MARK, Govern, decisions

import clew
from clew.actors import Actor
from clew.errors import ApprovalRequired, ConfigurationError, PolicyDenied
from clew.gates.opa import OpaGate, as_input
from clew.gates.rules_file import RulesFileGate
from clew.testing import LoopbackServer, ReceivedRequest, Reply, ScriptedProvider
from clew.testing.loopback import Connection
from clew.typing import Proposal, Spent

RULES = """
version: "2026-11-01"
rules:
  - deny: no_foreign_refunds
    kind: tool_call
    tool: [refund, payout]
    tenant: [acme]
  - require_approval: writes
    kind: tool_call
    effect: "*_write"
  - deny: large_model
    model: "gpt-5-pro*"
  - allow: named
    actor: ann
"""


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    path = tmp_path / "rules.yaml"
    path.write_text(RULES)
    return path


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({"tool": "refund", "tenant": "acme"}, ("deny", "no_foreign_refunds")),
        ({"tool": "refund", "tenant": "other"}, ("allow", "no_rule")),
        ({"tool": "refund"}, ("allow", "no_rule")),
        ({"tool": "x", "effect": "idempotent_write"}, ("require_approval", "writes")),
        ({"tool": "x", "effect": "read_only"}, ("allow", "no_rule")),
        ({"kind": "model_call", "model": "gpt-5-pro-2026"}, ("deny", "large_model")),
        ({"kind": "model_call", "model": "gpt-5"}, ("allow", "no_rule")),
        ({"tool": "x", "actor": Actor(id="ann")}, ("allow", "named")),
    ],
)
def test_the_first_rule_that_holds_decides(
    rules: Path, facts: dict[str, Any], said: tuple[str, str]
) -> None:
    """All conditions of a rule hold; what is not known holds for none."""
    verdict = RulesFileGate(rules).check(Proposal(**{"kind": "tool_call", "number": 1, **facts}))
    assert verdict is not None
    assert (verdict.outcome, verdict.reason) == said


def test_the_version_is_on_the_decision(govern: Govern, rules: Path) -> None:
    """The decision names the file and its version."""
    exported = govern(RulesFileGate(rules))
    with clew.run("desk", tenant="acme"), pytest.raises(PolicyDenied, match="no_foreign_refunds"):
        clew.tool("refund").__enter__()
    with clew.run("desk"), pytest.raises(ApprovalRequired, match="writes"):
        clew.tool("other", effect="non_idempotent_write").__enter__()
    first, second = decisions(exported)
    assert (first["gate"], first["policy"], first["policy_version"]) == (
        "rules",
        "rules.yaml",
        "2026-11-01",
    )
    assert (second["outcome"], second["executed"]) == ("require_approval", False)


@pytest.mark.parametrize("default", ["deny", "require_approval", "allow"])
def test_what_no_rule_speaks_of(tmp_path: Path, default: str) -> None:
    """The file says what happens then."""
    path = tmp_path / "rules.yaml"
    path.write_text(f"default: {default}\n")
    verdict = RulesFileGate(path).check(Proposal(kind="tool_call", number=1))
    assert verdict is not None
    assert (verdict.outcome, verdict.reason) == (default, "no_rule")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no rule file"),
        ("- deny: x", "no rule file"),
        ("rules: [", "cannot be read: ParserError"),
        ("default: perhaps", "'perhaps'"),
        ("rulez: []", "rulez"),
        ("rules: [7]", "rule 1 is no mapping"),
        ("rules: [{tool: x}]", "needs one of"),
        ("rules: [{deny: x, allow: y}]", "needs one of"),
        ("rules: [{deny: x, colour: red}]", "colour"),
        ("rules: [{deny: two words}]", "identifier"),
        ("rules: [{deny: 7}]", "identifier"),
    ],
)
def test_a_file_that_is_wrong_is_refused_at_once(tmp_path: Path, text: str, message: str) -> None:
    """Nobody finds out by what is not denied."""
    path = tmp_path / "rules.yaml"
    path.write_text(text)
    with pytest.raises(ConfigurationError, match=message):
        RulesFileGate(path)
    with pytest.raises(ConfigurationError, match="cannot be read"):
        RulesFileGate(tmp_path / "missing.yaml")


class Agent(LoopbackServer):
    """Answers the data API as an Open Policy Agent does."""

    def __init__(self) -> None:
        super().__init__()
        self.result: Any = True
        self.delay = 0.0

    def respond(self, request: ReceivedRequest, connection: Connection) -> None:
        time.sleep(self.delay)
        body = json.dumps({} if self.result is None else {"result": self.result}).encode()
        connection.head(500 if self.result == 500 else 200, {}, len(body))
        connection.send(body)


@pytest.fixture
def agent() -> Iterator[Agent]:
    with Agent() as running:
        yield running


@pytest.mark.parametrize("name", ["openai-sync", "openai-async"])
async def test_an_agent_decides(govern: Govern, agent: Agent, name: str) -> None:
    """It is asked with facts and no content; its words are on the decision."""
    agent.result = {
        "outcome": "deny",
        "reason": "at_night",
        "policy": "clew.night",
        "policy_version": "rev-7",
    }
    with ScriptedProvider([Reply(text="yes")]) as server:
        exported = govern(OpaGate(agent.base_url, "clew/decision"))
        kit = Kit(name, server)
        with pytest.raises(PolicyDenied, match="at_night"), clew.run("desk", actor="ann"):
            await kit.ask()
        agent.result = True
        with clew.run("desk"):
            assert await kit.text() == "yes"
        await kit.close()
    first, second = decisions(exported)
    assert (first["gate"], first["policy"], first["policy_version"]) == (
        "opa",
        "clew.night",
        "rev-7",
    )
    assert (second["outcome"], second["policy"]) == ("allow", "clew/decision")
    asked = agent.requests[0]
    assert (asked.method, asked.path) == ("POST", "/v1/data/clew/decision")
    assert asked.json()["input"]["kind"] == "model_call"
    assert asked.json()["input"]["actor"]["id"] == "ann"
    assert MARK.encode() not in asked.body


@pytest.mark.parametrize("result", [None, 500, 7, {"outcome": "perhaps"}, {"outcome": "redact"}])
def test_an_agent_without_an_answer_denies(govern: Govern, agent: Agent, result: Any) -> None:
    """An undefined document, an error and an unknown word are a crash of a mandatory gate."""
    agent.result = result
    govern(OpaGate(agent.base_url), faults={"ask the gate OpaGate"})
    with pytest.raises(PolicyDenied, match="gate_error"):
        clew.tool("refund").__enter__()


def test_an_agent_that_is_slow_or_gone(govern: Govern, agent: Agent) -> None:
    """An optional gate allows after its time, and says that it crashed."""
    agent.delay = 0.5
    exported = govern(
        OpaGate(agent.base_url, timeout_s=0.05, mandatory=False),
        OpaGate("http://127.0.0.1:9", mandatory=False),
        faults={"ask the gate OpaGate"},
    )
    with clew.tool("refund"):
        pass
    assert [found["reason"] for found in decisions(exported)] == ["gate_error"] * 2


def test_what_an_agent_is_told() -> None:
    """Facts that are known, and neither content nor arguments."""
    proposal = Proposal(
        kind="tool_call",
        number=1,
        tool="refund",
        arguments_bytes=9,
        spent=Spent(rounds=2),
        content=MARK.encode,
    )
    told = as_input(proposal)
    assert told == {
        "kind": "tool_call",
        "stream": False,
        "registered": False,
        "tool": "refund",
        "arguments_bytes": 9,
        "offered": [],
        "spent": {"rounds": 2, "tool_calls": 0, "tokens": 0, "cost_usd": 0.0},
    }
