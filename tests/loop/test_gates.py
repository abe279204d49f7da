"""Gates inside the loop: what they see of prompts and tools, where they are asked, what follows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from loop_kit import Kit, asks, snippet

import clew
from clew.actors import Actor
from clew.errors import ConfigurationError, PolicyDenied
from clew.facts import Usage
from clew.gates.approval import ApprovalGate
from clew.gates.budget import BudgetGate, Limit
from clew.gates.context import ContextGate
from clew.gates.guardrail import OutputGuardrail
from clew.gates.tool import ToolGate, ToolRule
from clew.loop import Augmentation, RunOptions, Tool, Trace
from clew.prompts.repository import MemoryRepository
from clew.prompts.skills import Skill, checksum
from clew.providers import Choice, FallbackProvider, provider
from clew.testing import CaptureExporter, Reply
from clew.typing import Proposal, Verdict

Govern = Callable[..., CaptureExporter]
USAGE = Usage(input_tokens=100, output_tokens=10)
DONE = Reply(text="Done.", usage=USAGE)
LOOK = Tool(name="look", function=lambda: "seen", effect="read_only")
PEEK = Tool(name="peek", function=lambda: "seen", effect="read_only")
TURN = Reply(text="I look.", tool_calls=(asks("look"),), usage=USAGE)


def decisions(kit: Kit, gate: str) -> list[tuple[Any, ...]]:
    keys = ("outcome", "reason", "subject")
    return [
        tuple(span.get(f"clew.decision.{key}") for key in keys)
        for span in kit.spans(f"decide {gate}")
    ]


# --- what went into the prompt -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("made", "augmentation", "subject"),
    [
        ({"loop": {"data_class": "source_code"}}, Augmentation(), "prompt"),
        ({"snippet_tags": "style"}, Augmentation(), "snippet:tone"),
        ({}, Augmentation(snippets=("tone",)), "snippet:tone"),
        ({"skills": ("a",)}, Augmentation(), "skill:a"),
        ({}, Augmentation(skills=("a",)), "skill:a"),
    ],
    ids=["prompt", "by tag", "forced", "skill", "forced skill"],
)
async def test_the_context_gate_sees_every_source(
    kit: Kit, govern: Govern, made: dict[str, Any], augmentation: Augmentation, subject: str
):
    """Nothing is sent; the decision names the source and its class, never its text."""
    kit.exported = govern(ContextGate())
    repository = MemoryRepository(
        [snippet("tone", "SECRET", tags="style", data_class="source_code")],
        [
            Skill(
                identifier="a",
                body="SECRET",
                checksum=checksum("SECRET"),
                data_class="source_code",
            )
        ],
    )
    words = {"prompt": "Own.", **made, "loop": {"repository": repository, **made.get("loop", {})}}
    trace = Trace()
    result = await kit.run(kit.loop(**words), augmentation=augmentation, trace=trace)
    assert (result.status, result.reason, kit.bodies) == ("failed", "policy_denied", [])
    assert isinstance(result.error, PolicyDenied)
    assert decisions(kit, "context") == [("deny", "source_code", subject)]
    assert [step.kind for step in trace.steps] == ["context", "llm"]
    assert trace.steps[1].error_type == "clew.errors.PolicyDenied"
    assert b"SECRET" not in kit.exported.otlp_bytes()


async def test_what_no_source_declares_is_held_back_from_nowhere(kit: Kit, govern: Govern):
    """Undeclared constrains nothing."""
    kit.exported = govern(ContextGate())
    kit.script(DONE)
    result = await kit.run(kit.loop(prompt="Own."))
    assert result.status == "completed"
    assert decisions(kit, "context") == [("allow", "nothing_declared", "small")]


async def test_of_a_chain_no_data_reaches_a_wider_zone(kit: Kit, govern: Govern):
    """The first choice may have it and fails; the next one may not, and is not asked."""
    zones = {"127.0.0.1": "local", "localhost": "external_global"}
    kit.exported = govern(ContextGate(), trust_zones=zones)
    kit.script(Reply.failure(500))
    elsewhere = kit.server.openai_base_url.replace("127.0.0.1", "localhost")
    async with provider("openai", api_key="k", base_url=elsewhere, retries=0) as wide:
        chain = FallbackProvider(kit.provider, Choice(provider=wide, model="other"))
        loop = kit.loop(by=chain, prompt="P", loop={"data_class": "system_diagnostics"})
        result = await kit.run(loop)
    assert (result.reason, len(kit.bodies)) == ("policy_denied", 1)
    assert [outcome for outcome, *_ in decisions(kit, "context")] == ["allow", "deny"]


# --- which tools are offered ---------------------------------------------------------------------


async def test_what_is_not_permitted_is_not_offered(kit: Kit, govern: Govern):
    """The denial is a decision; a model that asks all the same is refused."""
    rules = {"look": ToolRule(), "peek": ToolRule(admin_only=True)}
    kit.exported = govern(ToolGate(rules))
    kit.script(Reply(tool_calls=(asks("peek"),)), DONE)
    result = await kit.run(kit.loop(LOOK, PEEK), options=RunOptions(actor="ann"))
    assert result.status == "completed"
    names = [[tool["function"]["name"] for tool in body["tools"]] for body in kit.bodies]
    assert names == [["look"], ["look"]]
    assert decisions(kit, "tool") == [("deny", "requires_admin", "peek")]
    assert kit.bodies[1]["messages"][-1]["content"] == "This tool is not offered."
    kit.script(DONE)
    admin = RunOptions(actor=Actor(id="root", admin=True))
    await kit.run(kit.loop(LOOK, PEEK), options=admin)
    assert len(kit.bodies[-1]["tools"]) == 2


async def test_the_class_of_the_prompt_decides_too(kit: Kit, govern: Govern):
    """A tool in a wider zone than the data in the prompt may go to is not offered."""
    rules = {"look": ToolRule(zone="external_global"), "peek": ToolRule()}
    kit.exported = govern(ToolGate(rules))
    kit.script(DONE)
    loop = kit.loop(LOOK, PEEK, prompt="P", loop={"data_class": "source_code"})
    await kit.run(loop)
    assert [tool["function"]["name"] for tool in kit.bodies[0]["tools"]] == ["peek"]
    assert decisions(kit, "tool") == [("deny", "trust_zone", "look")]


async def test_a_gate_that_observes_keeps_nothing_back(kit: Kit, govern: Govern):
    """The tool is offered and executed, and what would have been denied is recorded."""
    kit.exported = govern(ToolGate({"look": ToolRule(enabled=False)}, mode="observe"))
    kit.script(TURN, DONE)
    await kit.run(kit.loop(LOOK))
    assert kit.bodies[1]["messages"][-1]["content"] == "seen"
    assert decisions(kit, "tool") == [("deny", "tool_disabled", "look")] * 2
    enforced = [span["clew.decision.enforced"] for span in kit.spans("decide tool")]
    assert enforced == [False, False]


async def test_a_tool_is_looked_at_again_when_it_is_executed(kit: Kit, govern: Govern):
    """What has been disabled since it was offered is refused, as a result."""
    rules = {"look": ToolRule()}

    def disable(request: Any) -> Reply:
        rules["look"] = ToolRule(enabled=False)
        return TURN if len(request.json()["messages"]) == 1 else DONE

    kit.exported = govern(ToolGate(rules))
    kit.server._choose = disable
    trace = Trace()
    result = await kit.run(kit.loop(LOOK), trace=trace)
    assert result.status == "completed"
    told = kit.bodies[1]["messages"][-1]["content"]
    assert told == "This call is not permitted; the tool was not executed."
    assert decisions(kit, "tool") == [("deny", "tool_disabled", "look")]
    (tool,) = kit.spans("execute_tool")
    assert (tool["clew.tool.outcome"], tool["clew.denials"]) == ("denied", 1)
    (step,) = [step for step in trace.steps if step.kind == "tool"]
    assert (step.tool_is_error, step.duration_ms) == (True, 0.0)


async def test_without_any_permitted_tool_there_is_one_plain_completion(kit: Kit, govern: Govern):
    """As if none had been configured."""
    govern(ToolGate({"look": ToolRule(enabled=False)}))
    kit.script(DONE)
    result = await kit.run(kit.loop(LOOK))
    assert (result.text, result.rounds) == ("Done.", 1)
    assert "tools" not in kit.bodies[0]


async def test_an_approval_is_not_asked_for_by_offering(kit: Kit, govern: Govern):
    """Offering proposes nothing."""
    gate = ApprovalGate({"look"})
    govern(gate)
    kit.script(DONE)
    await kit.run(kit.loop(LOOK))
    assert gate.store.pending() == []
    assert len(kit.bodies[0]["tools"]) == 1


# --- in the middle of a run ----------------------------------------------------------------------


async def test_a_budget_that_runs_out_returns_what_there_is(kit: Kit, govern: Govern):
    """The partial answer, the true totals, and the reason."""
    kit.exported = govern(BudgetGate(Limit(requests=1)))
    kit.script(TURN)
    result = await kit.run(kit.loop(LOOK))
    assert (result.status, result.reason) == ("failed", "budget_exhausted")
    assert (result.text, result.rounds, result.totals.input_tokens) == ("I look.", 1, 100)
    assert kit.ended["termination_reason"] == "budget_exhausted"
    run = kit.spans("invoke_agent")[-1]
    assert (run["clew.run.rounds"], run["clew.run.usage.input_tokens"]) == (1, 100)


async def test_an_answer_that_is_denied_ends_the_run(kit: Kit, govern: Govern):
    """The round has happened; its answer is not part of the result."""
    deny = Verdict(outcome="deny", reason="no_secrets")
    kit.exported = govern(OutputGuardrail(lambda said: deny if "SECRET" in said else None))
    kit.script(Reply(text="SECRET"))
    trace = Trace()
    result = await kit.run(kit.loop(), trace=trace)
    assert (result.reason, result.text) == ("policy_denied", "")
    assert [step.kind for step in trace.steps] == ["context", "request", "llm"]
    assert trace.steps[-1].error_type == "clew.errors.PolicyDenied"
    assert "SECRET" not in repr(trace.steps)


async def test_gates_of_the_loop_come_on_top(kit: Kit, govern: Govern):
    """Those of the settings are asked as well."""
    kit.exported = govern(BudgetGate(Limit(requests=5)))
    kit.script(TURN, DONE)
    gate = ToolGate({"look": ToolRule()})
    await kit.run(kit.loop(LOOK, loop={"gates": (gate,)}))
    assert decisions(kit, "budget") == [("allow", "within_budget", "small")] * 2
    assert decisions(kit, "tool") == [("allow", "permitted", "look")]


async def test_gates_that_nobody_would_ask_are_refused(kit: Kit, govern: Govern):
    """A loop does not begin where its model calls would pass unseen."""
    govern(BudgetGate(Limit(requests=1)))
    clew.uninstrument()
    kit.script(DONE)
    with pytest.raises(ConfigurationError, match=r"call clew.instrument\(\) first"):
        await kit.run(kit.loop())
    with pytest.raises(ConfigurationError, match=r"call clew.instrument\(\) first"):
        await kit.dry_run(kit.loop())
    assert kit.bodies == []
    client = kit.provider.client() if kit.mode == "sync" else kit.provider.async_client()
    clew.instrument(client)
    assert (await kit.run(kit.loop())).status == "completed"


async def test_gates_of_a_loop_need_somebody_who_asks_them(kit: Kit):
    """Without a configured Clew nothing is executed unseen."""
    clew.shutdown()
    kit.script(DONE)
    with pytest.raises(ConfigurationError, match=r"call clew.configure\(\) first"):
        await kit.run(kit.loop(LOOK, loop={"gates": (ToolGate(),)}))
    assert kit.bodies == []


class Watching:
    """Remembers the proposals that it sees."""

    name = "watching"
    mode = "enforce"
    mandatory = True
    kinds = frozenset({"model_call", "tool_call"})
    looks_at_offers = True

    def __init__(self) -> None:
        self.seen: list[Proposal] = []

    def check(self, proposal: Proposal) -> Verdict | None:
        self.seen.append(proposal)
        return None


async def test_what_a_gate_sees_of_the_loop(kit: Kit, govern: Govern):
    """A tool when it is offered, in its turn, and when it is executed; each model call."""
    gate = Watching()
    govern(gate)
    kit.script(TURN, DONE)
    options = RunOptions(actor="ann", tenant="acme")
    await kit.run(kit.loop(LOOK, identifier="desk"), options=options)
    seen = [(each.kind, each.tool, each.executing, each.registered) for each in gate.seen]
    assert seen == [
        ("tool_call", "look", False, True),
        ("model_call", None, False, False),
        ("tool_call", "look", False, True),
        ("tool_call", "look", True, True),
        ("model_call", None, False, False),
    ]
    assert {each.configuration for each in gate.seen} == {"desk"}
    assert {each.tenant for each in gate.seen} == {"acme"}
    assert {each.actor for each in gate.seen} == {Actor(id="ann")}
    assert [each.effect for each in gate.seen if each.tool] == ["read_only"] * 3
