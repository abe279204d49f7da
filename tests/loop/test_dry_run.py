"""The dry run: what round 1 would send, to the byte, and nothing of the rest."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from loop_kit import Kit, snippet

from clew.actors import Actor
from clew.gates.budget import BudgetGate, Limit
from clew.gates.context import ContextGate
from clew.gates.guardrail import InputGuardrail, redact
from clew.gates.rate import RateGate
from clew.gates.tool import ToolGate, ToolRule
from clew.loop import Augmentation, LoopLimits, RunOptions, Tool, Trace, Window
from clew.prompts.repository import MemoryRepository
from clew.prompts.skills import Skill, checksum
from clew.providers import PROVIDERS, Choice, FallbackProvider, Message, provider
from clew.testing import CaptureExporter, MistralChatCompletions, Reply, ScriptedProvider
from clew.testing.provider import FORMATS

FIND = Tool(name="find", function=lambda: "x", effect="read_only", description="Finds.")
PAY = Tool(name="pay", function=lambda: "x", description="Pays.")
SUFFIXES = {
    "openai": "/v1",
    "anthropic": "",
    "gemini": "/v1beta",
    "openrouter": "/api/v1",
    "mistral": "/v1",
    "groq": "/openai/v1",
    "ollama": "",
}
REPOSITORY = MemoryRepository(
    [snippet("tone", "Kindly SECRET.", tags="style"), snippet("facts", "Water is wet.")],
    [Skill(identifier="a", body="Body A.", checksum=checksum("Body A."))],
)
EVERYTHING = Augmentation(snippets=("facts",), skills=("a",))


async def test_the_loop_is_only_looked_at(kit: Kit):
    """No call, no round, no tokens, an empty answer; the list is a step of round 0."""
    trace = Trace()
    found = await kit.dry_run(kit.loop(FIND, prompt="Own."), trace=trace)
    assert (kit.bodies, found.text, found.rounds, found.truncated) == ([], "", 0, False)
    assert (found.totals.rounds, found.totals.input_tokens) == (0, None)
    assert found.tools == ("find",)
    assembled = trace.steps[-1]
    assert [step.kind for step in trace.steps] == ["context", "assembled"]
    assert (assembled.round, assembled.tool_specs) == (0, ("find",))
    assert assembled.messages_sent == tuple(
        {"role": role, "parts": [{"type": "text", "content": text}]}
        for role, text in (("system", "Own."), ("user", "Hello?"))
    )
    run = kit.spans("invoke_agent")[-1]
    assert (run["clew.run.kind"], run["clew.run.rounds"]) == ("dry_run", 0)


@pytest.mark.parametrize("name", PROVIDERS)
async def test_it_is_the_request_of_round_one_to_the_byte(
    kit: Kit, govern: Callable[..., CaptureExporter], name: str
):
    """For every adapter, with gates, redaction, tools and a window that drops turns."""
    rules = {"find": ToolRule(), "pay": ToolRule(enabled=False)}
    govern(
        InputGuardrail(lambda said: redact(said.replace("SECRET", "***"))),
        ToolGate(rules),
        BudgetGate(Limit(requests=1)),
    )
    server = ScriptedProvider(
        [Reply(text="x")], formats=[MistralChatCompletions()] if name == "mistral" else FORMATS
    )
    old = [Message.user("x" * 4000), Message(role="assistant", content="y" * 4000)]
    question = [Message.user("First."), *old, Message.user("The SECRET?")]
    with server:
        base_url = server.base_url + SUFFIXES[name]
        async with provider(name, api_key="k", base_url=base_url) as by:
            loop = kit.loop(
                FIND,
                PAY,
                by=by,
                prompt="Own SECRET.",
                snippet_tags="style",
                limits={"max_tokens": 100},
                loop={"repository": REPOSITORY, "window": Window(context_length=2000)},
            )
            dry = await kit.dry_run(loop, question, augmentation=EVERYTHING)
            live = await kit.run(loop, question, augmentation=EVERYTHING)
        (request,) = server.requests
    assert (live.status, dry.reason) == ("completed", None)
    assert dry.wire == request.body
    assert b"SECRET" not in request.body
    assert b"***" in request.body
    assert b"Body A." in request.body
    assert b"xxxx" not in request.body
    assert (dry.tools, dry.breakdown is not None) == (("find",), True)
    assert dry.breakdown is not None
    assert dry.breakdown.dropped_turns == 1


async def test_of_a_chain_it_is_the_first_choices_request(kit: Kit):
    """With the model that it is asked for."""
    kit.script(Reply(text="x"))
    chain = FallbackProvider(Choice(provider=kit.provider, model="mine"), kit.provider)
    loop = kit.loop(by=chain, prompt="Own.")
    dry = await kit.dry_run(loop)
    await kit.run(loop)
    assert dry.wire == kit.server.requests[0].body
    assert kit.bodies[0]["model"] == "mine"


async def test_without_clew_it_is_the_same(kit: Kit):
    """Nobody listens: the same bytes all the same."""
    import clew

    clew.shutdown()
    kit.script(Reply(text="x"))
    loop = kit.loop(FIND, prompt="Own.")
    dry = await kit.dry_run(loop)
    await kit.run(loop)
    assert dry.wire == kit.server.requests[0].body


@pytest.mark.parametrize(
    ("gates", "reason", "gate", "code"),
    [
        ((BudgetGate(Limit(requests=0)),), "budget_exhausted", "budget", "run_requests"),
        ((ContextGate(),), "policy_denied", "context", "system_diagnostics"),
    ],
)
async def test_what_would_be_denied_is_said(
    kit: Kit,
    govern: Callable[..., CaptureExporter],
    gates: Any,
    reason: str,
    gate: str,
    code: str,
):
    """Which gate, and why; nothing would be sent, and the live run says the same."""
    kit.exported = govern(*gates)
    loop = kit.loop(prompt="Own.", loop={"data_class": "system_diagnostics"})
    dry = await kit.dry_run(loop)
    assert (dry.wire, dry.reason, dry.gate, dry.code) == (None, reason, gate, code)
    assert kit.spans(f"decide {gate}") == []
    live = await kit.run(loop)
    assert (live.status, live.reason, kit.bodies) == ("failed", reason, [])
    (decision,) = kit.spans(f"decide {gate}")
    assert decision["clew.decision.reason"] == code


async def test_what_would_not_fit_is_said(kit: Kit):
    """With the numbers."""
    found = await kit.dry_run(kit.loop(loop={"window": Window(context_length=900)}))
    assert (found.wire, found.reason) == (None, "context_truncated")
    assert found.breakdown is not None
    assert found.breakdown.remaining < 0
    assert [message.text for message in found.messages] == ["Hello?"]


async def test_it_uses_nothing_up(kit: Kit, govern: Callable[..., CaptureExporter]):
    """Budgets and rates are given back."""
    govern(BudgetGate(Limit(requests=1)), RateGate(0.001, burst=1))
    kit.script(Reply(text="x"))
    loop = kit.loop()
    for _ in range(5):
        assert (await kit.dry_run(loop)).reason is None
    assert (await kit.run(loop)).status == "completed"


async def test_it_does_not_ask_for_raw_answers_or_execute(kit: Kit):
    """Options of the run change nothing."""
    found = await kit.dry_run(
        kit.loop(FIND, loop={"limits": LoopLimits(parallel=1)}),
        options=RunOptions(actor=Actor(id="root", admin=True), trigger="preview"),
    )
    assert found.wire is not None
    assert b"_capture_raw" not in found.wire
    assert kit.spans("invoke_agent")[-1]["clew.trigger"] == "preview"


async def test_dropped_sources_are_told(kit: Kit):
    """As in a live run."""
    trace = Trace()
    found = await kit.dry_run(
        kit.loop(), augmentation=Augmentation(snippets=("nobody",)), trace=trace
    )
    assert found.dropped == ("snippet#nobody gone",)
    assert [step.kind for step in trace.steps] == ["dropped", "context", "assembled"]
