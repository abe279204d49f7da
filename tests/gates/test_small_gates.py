"""The gates of tools, context, rate and circuit: each alone, by what it says about a proposal."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from governed import Kit
from saying import DENY, Govern, Saying, decisions

import clew
from clew.actors import Actor
from clew.errors import ConfigurationError, PolicyDenied
from clew.gates.circuit import CircuitGate
from clew.gates.context import ContextGate
from clew.gates.rate import RateGate
from clew.gates.tool import ToolGate, ToolRule
from clew.references import Reference
from clew.testing import Reply, ScriptedProvider
from clew.typing import DATA_CLASSES, ZONE_CEILINGS, Proposal, Settlement

ADMIN = Actor(id="root", admin=True)
TOOLS = {
    "search": ToolRule(),
    "off": ToolRule(enabled=False),
    "admin": ToolRule(admin_only=True),
    "scoped": ToolRule(scope="tool:scoped"),
    "web": ToolRule(zone="external_global"),
    "lost": ToolRule(zone="the moon"),
}


def said(gate: Any, **facts: Any) -> tuple[str, str | None]:
    verdict = gate.check(Proposal(**{"kind": "tool_call", "number": 1, **facts}))
    assert verdict is not None
    return verdict.outcome, verdict.reason


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        ({"tool": "search"}, "permitted"),
        ({"tool": "nothing"}, "not_registered"),
        ({"tool": None}, "not_registered"),
        ({"tool": "off", "actor": ADMIN}, "tool_disabled"),
        ({"tool": "admin"}, "requires_admin"),
        ({"tool": "admin", "actor": Actor(id="ann")}, "requires_admin"),
        ({"tool": "admin", "actor": Actor(id="", kind="anonymous", admin=True)}, "requires_admin"),
        ({"tool": "admin", "actor": ADMIN}, "permitted"),
        ({"tool": "scoped", "actor": Actor(id="s", kind="service")}, "requires_scope"),
        ({"tool": "scoped", "actor": ADMIN}, "permitted"),
        ({"tool": "scoped"}, "requires_scope"),
        (
            {
                "tool": "scoped",
                "actor": Actor(
                    id="", kind="anonymous", admin=True, scopes=frozenset({"tool:scoped"})
                ),
            },
            "requires_scope",
        ),
        (
            {
                "tool": "scoped",
                "actor": Actor(id="s", kind="service", scopes=frozenset({"tool:scoped"})),
            },
            "permitted",
        ),
        ({"tool": "web", "configuration": "v7"}, "not_in_configuration"),
        ({"tool": "search", "configuration": "v7"}, "permitted"),
        ({"tool": "web", "configuration": "v8"}, "permitted"),
        ({"tool": "web", "data_class": "source_code"}, "trust_zone"),
        ({"tool": "web", "data_class": "editor_content"}, "permitted"),
        ({"tool": "lost", "data_class": "source_code"}, "trust_zone"),
        ({"tool": "search", "data_class": "secret_adjacent"}, "permitted"),
    ],
)
def test_the_first_check_that_fails_is_the_reason(facts: dict[str, Any], reason: str) -> None:
    """Registered, enabled, permitted, in the configuration, and not beyond its zone."""
    gate = ToolGate(TOOLS, configurations={"v7": ["search"]})
    outcome = "allow" if reason == "permitted" else "deny"
    assert said(gate, **facts) == (outcome, reason)


@pytest.mark.parametrize(("registered", "outcome"), [(True, "allow"), (False, "deny")])
def test_without_rules_a_known_tool_is_permitted(registered: bool, outcome: str) -> None:
    """A name that only the model chose is not registered."""
    assert said(ToolGate(), tool="search", registered=registered)[0] == outcome


def test_only_the_check_of_zones_may_observe() -> None:
    """Then it is said and not enforced; the other checks still are."""
    gate = ToolGate(TOOLS, data_classes="observe")
    verdict = gate.check(
        Proposal(kind="tool_call", number=1, tool="web", data_class="secret_adjacent")
    )
    assert verdict is not None
    assert (verdict.outcome, verdict.enforced) == ("deny", False)
    assert said(gate, tool="off")[0] == "deny"


def test_offered_tools_are_looked_at_when_asked_for() -> None:
    """A model call that offers a tool which is not permitted is denied, and names it."""
    gate = ToolGate(TOOLS, offered=True)
    offered = Proposal(kind="model_call", number=1, offered=("search", "off"))
    verdict = gate.check(offered)
    assert verdict is not None
    assert (verdict.outcome, verdict.reason, verdict.subject) == ("deny", "tool_disabled", "off")
    assert said(gate, kind="model_call", offered=("search",))[0] == "allow"
    assert gate.check(Proposal(kind="model_call", number=1)) is None


def test_a_tool_is_checked_again_in_a_resumed_run(govern: Govern) -> None:
    """What was permitted before the run was suspended is denied when it is not any more."""
    tools = {"search": ToolRule()}
    exported = govern(ToolGate(tools, policy_version="3"))
    with clew.run("desk") as run:
        with clew.tool("search"):
            pass
        reference = run.suspend()
    tools["search"] = ToolRule(enabled=False)
    with clew.resume(reference), pytest.raises(PolicyDenied, match="tool_disabled"):
        clew.tool("search").__enter__()
    first, second = decisions(exported)
    assert (first["outcome"], second["outcome"]) == ("allow", "deny")
    assert (second["gate"], second["subject"], second["policy_version"]) == ("tool", "search", "3")


@pytest.mark.parametrize("zone", list(ZONE_CEILINGS))
@pytest.mark.parametrize("data_class", DATA_CLASSES)
def test_each_class_goes_as_far_as_its_ceiling(zone: str, data_class: str) -> None:
    """The reason is the class, the subject the source."""
    allowed = DATA_CLASSES.index(data_class) <= DATA_CLASSES.index(ZONE_CEILINGS[zone])
    verdict = ContextGate().check(
        Proposal(
            kind="model_call", number=1, data_class=data_class, source="notes", trust_zone=zone
        )
    )
    assert verdict is not None
    assert (verdict.outcome, verdict.reason, verdict.subject) == (
        "allow" if allowed else "deny",
        data_class,
        "notes",
    )


def test_what_nobody_declared_constrains_nothing() -> None:
    """Without a declared class the call passes, and the decision says why."""
    assert said(ContextGate(), kind="model_call") == ("allow", "nothing_declared")


async def test_the_strictest_source_decides_over_nested_agents(govern: Govern) -> None:
    """What a nested agent uses counts for the outer one too; an unknown host is external."""
    with ScriptedProvider(lambda _: Reply(text="yes")) as server:
        exported = govern(ContextGate())
        kit = Kit("openai-sync", server)
        with clew.run("outer") as outer:
            outer.uses("page", "public_content")
            await kit.ask()
            with clew.run("nested") as nested:
                nested.uses("crm", "system_diagnostics")
            with pytest.raises(PolicyDenied, match="system_diagnostics"):
                await kit.ask()
        await kit.close()
    first, second = decisions(exported)
    assert (first["outcome"], first["subject"]) == ("allow", "page")
    assert (second["outcome"], second["subject"]) == ("deny", "crm")
    assert (second["trust_zone"], second["data_class"]) == (
        "external_global",
        "system_diagnostics",
    )


@pytest.mark.parametrize("asynchronous", [False, True])
async def test_what_went_in_before_a_run_was_suspended_counts(
    govern: Govern, asynchronous: bool
) -> None:
    """The prompt still has it: the reference carries the class, over any number of segments."""
    exported = govern(ContextGate())
    kit_name = "openai-async" if asynchronous else "openai-sync"
    with ScriptedProvider(lambda _: Reply(text="hi")) as server:
        kit = Kit(kit_name, server)
        with clew.run("triage") as run:
            run.uses("style-guide", "editor_content")
            await kit.ask()
            with clew.run("helper") as nested:
                nested.uses("server-logs", "system_diagnostics")
            reference = run.suspend()
        for _ in range(2):
            with clew.resume(reference) as run:
                with pytest.raises(PolicyDenied, match="system_diagnostics"):
                    await kit.ask()
                reference = run.suspend()
        await kit.close()
        assert len(server.requests) == 1
    assert [(one["outcome"], one["subject"], one["data_class"]) for one in decisions(exported)] == [
        ("allow", "style-guide", "editor_content"),
        ("deny", "earlier_segment", "system_diagnostics"),
        ("deny", "earlier_segment", "system_diagnostics"),
    ]


@pytest.mark.parametrize("data_class", [None, *DATA_CLASSES])
@pytest.mark.parametrize("level", [None, 0, 1, 2, 3])
def test_a_reference_carries_class_and_level(data_class: str | None, level: int | None) -> None:
    """Each alone and both together; one of before, with neither, is read as ever."""
    with clew.run("desk") as run:
        plain = Reference.parse(run.reference())
    assert str(plain).startswith("clew1~")
    made = msgspec.structs.replace(plain, capture=level, data_class=data_class)
    assert Reference.parse(str(made)) == made


def test_an_unknown_class_is_refused_at_once() -> None:
    """A class that nobody knows could not be compared."""
    with clew.run("desk") as run, pytest.raises(ConfigurationError, match="top_secret"):
        run.uses("notes", "top_secret")


def test_a_bucket_fills_with_time() -> None:
    """A burst passes, then one call for each second that the rate gives."""
    now = [100.0]
    gate = RateGate(2.0, burst=2, clock=lambda: now[0])
    spent = [said(gate, kind="model_call") for _ in range(3)]
    assert spent == [("allow", "within_rate")] * 2 + [("deny", "rate_exceeded")]
    now[0] += 0.5
    assert [said(gate)[0] for _ in range(2)] == ["allow", "deny"]
    now[0] += 60
    assert [said(gate)[0] for _ in range(3)] == ["allow", "allow", "deny"]


def test_buckets_are_kept_apart_and_tokens_given_back() -> None:
    """Each actor has a bucket; a call that was not made costs nothing."""
    gate = RateGate(0.001, per="actor", clock=lambda: 0.0)
    ann, bob = Actor(id="ann"), Actor(id="bob")
    assert [said(gate, actor=who)[0] for who in (ann, bob, ann)] == ["allow", "allow", "deny"]
    gate.release(Proposal(kind="model_call", number=1, actor=ann))
    assert said(gate, actor=ann)[0] == "allow"


@pytest.mark.parametrize(("rate", "burst"), [(0.0, 1), (-1.0, 1), (1.0, 0)])
def test_a_rate_that_makes_no_sense_is_refused(rate: float, burst: int) -> None:
    """A rate is above zero, a burst at least one."""
    with pytest.raises(ConfigurationError, match="burst"):
        RateGate(rate, burst=burst)


FAILED = Settlement(failed=True, status=503)


def test_a_circuit_opens_and_lets_one_call_try() -> None:
    """After failures in a row the host rests; one call tries, and its success closes it."""
    now = [0.0]
    gate = CircuitGate(2, cooldown_s=30, clock=lambda: now[0])

    def call(number: int, settlement: Settlement | None, host: str = "a") -> str | None:
        proposal = Proposal(kind="model_call", number=number, host=host)
        verdict = gate.check(proposal)
        if verdict is not None and verdict.outcome == "allow" and settlement is not None:
            gate.settle(proposal, settlement)
        return verdict and verdict.reason

    assert [call(n, FAILED) for n in range(3)] == [
        "circuit_closed",
        "circuit_closed",
        "circuit_open",
    ]
    assert call(3, None, host="b") == "circuit_closed"
    now[0] = 31
    assert call(4, None) == "circuit_trial"
    assert call(5, None) == "circuit_open"
    gate.settle(Proposal(kind="model_call", number=4, host="a"), FAILED)
    assert call(6, None) == "circuit_open"
    now[0] = 62
    assert call(7, Settlement(status=200)) == "circuit_trial"
    assert call(8, None) == "circuit_closed"


@pytest.mark.parametrize(
    ("settlement", "opens"),
    [
        (FAILED, True),
        (Settlement(failed=True), True),
        (Settlement(failed=True, status=429), True),
        (Settlement(failed=True, status=400), False),
        (Settlement(failed=True, status=401), False),
        (Settlement(failed=True, cancelled=True), False),
        (Settlement(), False),
    ],
)
def test_what_counts_as_a_failure_of_the_host(settlement: Settlement, opens: bool) -> None:
    """Errors that are the caller's own, and work that was stopped, open nothing."""
    gate = CircuitGate(1)
    proposal = Proposal(kind="model_call", number=1, host="a")
    gate.check(proposal)
    gate.settle(proposal, settlement)
    assert said(gate, host="a")[0] == ("deny" if opens else "allow")


def test_a_trial_that_is_not_made_passes_to_the_next() -> None:
    """Another gate's denial does not keep the circuit open for ever."""
    now = [0.0]
    gate = CircuitGate(1, cooldown_s=1, clock=lambda: now[0])
    first = Proposal(kind="model_call", number=1, host="a")
    gate.check(first)
    gate.settle(first, FAILED)
    now[0] = 2
    trial = Proposal(kind="model_call", number=2, host="a")
    gate.check(trial)
    gate.release(trial)
    assert said(gate, host="a", number=3) == ("allow", "circuit_trial")


async def test_a_circuit_over_the_wire(govern: Govern) -> None:
    """Two failed calls of the SDK, attempts included, open the circuit of their host."""
    with ScriptedProvider(lambda _: Reply.failure(500, retry_after_ms=1)) as server:
        govern(CircuitGate(2))
        kit = Kit("anthropic-sync", server, max_retries=1)
        for _ in range(2):
            with pytest.raises(Exception, match="500"):
                await kit.ask()
        with pytest.raises(PolicyDenied, match="circuit_open"):
            await kit.ask()
        await kit.close()
        assert len(server.requests) == 4


def test_a_mode_that_is_unknown_is_refused() -> None:
    """A gate enforces or observes."""
    with pytest.raises(ConfigurationError, match="dream"):
        ContextGate(mode="dream")  # type: ignore[arg-type]


async def test_a_reservation_is_given_back_when_a_later_gate_denies(govern: Govern) -> None:
    """What a denied call took from a bucket is there again."""
    rate = RateGate(0.001)
    with ScriptedProvider(lambda _: Reply(text="yes")) as server:
        govern(rate, Saying(DENY, rank=99))
        kit = Kit("openai-sync", server)
        for _ in range(3):
            with pytest.raises(PolicyDenied, match="house_rule"):
                await kit.ask()
        await kit.close()
