"""The budget gate: reservations that never overshoot, and books that end up true."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from governed import KITS, Kit
from hypothesis import given
from hypothesis import strategies as st
from saying import Govern, decisions

import clew
from clew.actors import Actor
from clew.errors import ConfigurationError, PolicyDenied
from clew.facts import Usage
from clew.gates.budget import Amount, BudgetGate, CountAs, Limit
from clew.store.ledger import SqliteLedger
from clew.testing import Reply, ScriptedProvider
from clew.typing import Proposal, Settlement, Spent

USED = Usage(input_tokens=10, output_tokens=5)


@pytest.fixture
def server() -> Iterator[ScriptedProvider]:
    with ScriptedProvider(lambda _: Reply(text="yes", usage=USED, delay=0.01)) as running:
        yield running


def proposal(number: int = 1, **more: Any) -> Proposal:
    facts: dict[str, Any] = {
        "run_id": "r1",
        "actor": Actor(id="ann"),
        "planned_input_tokens": 10,
        "max_output_tokens": 20,
        "planned_cost": lambda i, o: (i + o) / 100,
    }
    return Proposal(kind="model_call", number=number, **{**facts, **more})


def no_price(_input: int, _output: int) -> None:
    """Say that there is no price."""


def outcome(gate: BudgetGate, *asked: Any, **more: Any) -> tuple[str, str | None]:
    verdict = gate.check(proposal(*asked, **more))
    assert verdict is not None
    return verdict.outcome, verdict.reason


@pytest.mark.parametrize("name", KITS)
async def test_twenty_calls_at_once_do_not_overshoot(
    govern: Govern, server: ScriptedProvider, name: str
) -> None:
    """Of twenty calls at the same time exactly as many are sent as the limit allows."""
    gate = BudgetGate(Limit(requests=7))
    exported = govern(gate)
    kit = Kit(name, server)

    async def one() -> str:
        try:
            await kit.ask()
        except PolicyDenied as denied:
            return denied.reason
        return "sent"

    with clew.run("triage") as run:
        if kit.asynchronous:
            sent = await asyncio.gather(*(one() for _ in range(20)))
        else:
            sent = []
            work = clew.bind(lambda: sent.append(asyncio.run(one())))
            threads = [threading.Thread(target=work) for _ in range(20)]
            for thread in threads:
                thread.start()
            for thread in threads:
                await asyncio.to_thread(thread.join)
        assert run.totals.rounds == 7
    await kit.close()
    assert sorted(sent) == ["run_requests"] * 13 + ["sent"] * 7
    assert len(server.requests) == 7
    outcomes = [found["outcome"] for found in decisions(exported)]
    assert (outcomes.count("allow"), outcomes.count("deny")) == (7, 13)


async def test_tokens_and_cost_do_not_overshoot_either(
    govern: Govern, server: ScriptedProvider
) -> None:
    """What has really been used stays below each limit, however many calls are made at once."""
    gate = BudgetGate(
        Limit(tokens=600), Limit(per="actor", period="day", cost_usd=0.001), output_tokens=50
    )
    govern(gate, provider_hosts={"127.0.0.1": "openai"})
    kit = Kit("openai-async", server)
    async with clew.run("triage", actor="ann") as run:
        for _ in range(6):
            asked = [kit.ask() for _ in range(20)]
            await asyncio.gather(*asked, return_exceptions=True)
        totals = run.totals
    await kit.close()
    assert 0 < (totals.input_tokens or 0) + (totals.output_tokens or 0) <= 600
    assert 0 < (totals.cost_usd or 0) <= 0.001


def test_the_first_limit_exceeded_is_the_reason() -> None:
    """Limits are looked at in order; the word says whose, which time and what."""
    gate = BudgetGate(
        Limit(requests=3),
        Limit(per="actor", period="day", requests=2),
        Limit(per="configuration", period="month", requests=1),
    )
    assert outcome(gate, 1, configuration="v7") == ("allow", "within_budget")
    assert outcome(gate, 2, configuration="v7") == ("deny", "configuration_monthly_requests")
    assert outcome(gate, 3, configuration="v8") == ("allow", "within_budget")
    assert outcome(gate, 4, configuration="v9") == ("deny", "actor_daily_requests")
    assert outcome(gate, 5, configuration="v9", actor=Actor(id="bob")) == (
        "allow",
        "within_budget",
    )
    assert outcome(gate, 6, configuration="v0", actor=Actor(id="cid")) == ("deny", "run_requests")


def test_a_day_and_a_month_begin_anew() -> None:
    """Accounts are those of the day and the month in UTC, by the clock that is given."""
    now = [1_767_225_500.0]  # 2025-12-31T23:58:20Z
    gate = BudgetGate(
        Limit(per="actor", period="day", requests=1),
        Limit(per="actor", period="month", requests=2),
        clock=lambda: now[0],
    )
    assert outcome(gate, 1)[0] == "allow"
    assert outcome(gate, 2) == ("deny", "actor_daily_requests")
    now[0] += 200
    assert outcome(gate, 3)[0] == "allow"
    now[0] += 86_400
    assert outcome(gate, 4)[0] == "allow"
    now[0] += 86_400
    assert outcome(gate, 5) == ("deny", "actor_monthly_requests")


def test_what_was_used_takes_the_place_of_what_was_reserved() -> None:
    """After a call the books hold its real usage; a call that is not made holds nothing."""
    gate = BudgetGate(Limit(tokens=100))
    first, second = proposal(1), proposal(2)
    gate.check(first)
    gate.check(second)
    key = "budget run r1 "
    assert gate.ledger.used(key) == Amount(requests=2, tokens=60)
    gate.settle(first, Settlement(usage=Usage(input_tokens=9, output_tokens=3), cost_usd=0.1))
    assert gate.ledger.used(key) == Amount(requests=2, tokens=42, cost_usd=0.1)
    gate.release(second)
    assert gate.ledger.used(key) == Amount(requests=1, tokens=12, cost_usd=0.1)
    gate.settle(second, Settlement(usage=USED))
    assert gate.ledger.used(key).requests == 1


@pytest.mark.parametrize(
    ("settlement", "left"),
    [
        (Settlement(failed=True, status=500), Amount(requests=1)),
        (Settlement(), Amount(requests=1, tokens=30, cost_usd=0.3)),
        (Settlement(failed=True, cancelled=True), Amount(requests=1, tokens=30, cost_usd=0.3)),
        (Settlement(usage=USED), Amount(requests=1, tokens=15, cost_usd=0.3)),
    ],
)
def test_where_usage_is_not_known_the_books_are_careful(
    settlement: Settlement, left: Amount
) -> None:
    """A failed call used no tokens; a call that nobody tells about used what was planned."""
    gate = BudgetGate(Limit(tokens=100, cost_usd=9))
    asked = proposal()
    gate.check(asked)
    gate.settle(asked, settlement)
    assert gate.ledger.used("budget run r1 ") == left


@pytest.mark.parametrize(
    ("policy", "expected", "booked"),
    [
        ("deny", ("deny", "price_unknown"), Amount()),
        ("allow", ("allow", "within_budget"), Amount(requests=1, tokens=30)),
        (CountAs(0.4), ("allow", "within_budget"), Amount(requests=1, tokens=30, cost_usd=0.4)),
        (CountAs(2.0), ("deny", "run_cost"), Amount()),
    ],
)
def test_a_price_that_is_not_known(policy: Any, expected: Any, booked: Amount) -> None:
    """What becomes of a call without a price is said, not guessed."""
    gate = BudgetGate(Limit(cost_usd=1.0), price_unknown=policy)
    assert outcome(gate, planned_cost=no_price) == expected
    assert gate.ledger.used("budget run r1 ") == booked


def test_without_a_limit_on_cost_no_price_is_needed() -> None:
    """A model without a price has requests and tokens all the same."""
    gate = BudgetGate(Limit(requests=1))
    assert outcome(gate, planned_cost=no_price)[0] == "allow"


def test_a_resumed_run_has_used_something_before() -> None:
    """The account of a run opens with what its earlier segments used, in whichever process."""
    gate = BudgetGate(Limit(requests=5, tokens=1000))
    spent = Spent(rounds=4, tokens=100)
    assert outcome(gate, 1, spent=spent)[0] == "allow"
    assert outcome(gate, 2, spent=msgspec.structs.replace(spent, rounds=5)) == (
        "deny",
        "run_requests",
    )


def test_who_is_not_known_has_no_limit() -> None:
    """A limit per actor or run says nothing about calls that have none."""
    gate = BudgetGate(Limit(requests=0), Limit(per="actor", period="day", requests=0))
    assert outcome(gate, run_id=None, actor=None) == ("allow", "no_limit_applies")


def test_observing_counts_and_lets_pass() -> None:
    """In observe mode the verdict is said, and nothing is reserved beyond the limit."""
    gate = BudgetGate(Limit(requests=1), mode="observe")
    assert outcome(gate, 1)[0] == "allow"
    assert outcome(gate, 2) == ("deny", "run_requests")


@pytest.mark.parametrize(
    "limit", [Limit(per="run", period="day"), Limit(per="actor", period="run")]
)
def test_a_limit_that_makes_no_sense_is_refused(limit: Limit) -> None:
    """A run has no day, and an actor no run."""
    with pytest.raises(ConfigurationError, match="goes with"):
        BudgetGate(limit)


@given(
    st.lists(
        st.tuples(st.integers(0, 40), st.integers(0, 40), st.booleans(), st.booleans()),
        max_size=30,
    )
)
def test_books_are_the_sum_of_what_was_sent(
    calls: list[tuple[int, int, bool, bool]],
) -> None:
    """In any order of reserving, settling and releasing, the books end with the real usage."""
    gate = BudgetGate(Limit(tokens=300))
    open_calls: list[tuple[Proposal, int]] = []
    used = 0
    for number, (planned, really, at_once, sent) in enumerate(calls):
        asked = proposal(number, planned_input_tokens=0, max_output_tokens=planned)
        verdict = gate.check(asked)
        assert verdict is not None
        assert gate.ledger.used("budget run r1 ").tokens <= 300
        if verdict.outcome == "deny":
            continue
        real = min(really, planned)
        if not sent:
            gate.release(asked)
        elif at_once:
            used += real
            gate.settle(asked, Settlement(usage=Usage(input_tokens=0, output_tokens=real)))
        else:
            open_calls.append((asked, real))
    for asked, real in open_calls:
        used += real
        gate.settle(asked, Settlement(usage=Usage(input_tokens=0, output_tokens=real)))
    assert gate.ledger.used("budget run r1 ").tokens == used


# --- books that are shared ----------------------------------------------------------------------


@pytest.mark.parametrize("name", KITS)
async def test_a_shared_ledger_governs_real_calls(
    govern: Govern, server: ScriptedProvider, name: str, tmp_path: Path
) -> None:
    """Two gates over one file share the day's budget; each call ends with its real usage there."""
    file = tmp_path / "budgets.db"
    day = Limit(per="everything", period="day", requests=2)
    gates = [BudgetGate(day, ledger=SqliteLedger(file)) for _ in range(2)]
    govern()
    kit = Kit(name, server)
    for gate in gates:
        with clew.run("triage", gates=(gate,)):
            await kit.ask()
    with pytest.raises(PolicyDenied) as denied, clew.run("triage", gates=(gates[0],)):
        await kit.ask()
    await kit.close()
    assert denied.value.reason == "everything_daily_requests"
    assert len(server.requests) == 2
    (key,) = {entry.key for entry in gates[0]._entries(proposal())}  # pyright: ignore[reportPrivateUsage]
    assert SqliteLedger(file).used(key) == Amount(requests=2, tokens=30)


async def test_a_ledger_that_waits_does_not_hold_up_the_event_loop(tmp_path: Path) -> None:
    """While another process has the file, asynchronous code goes on; then the call is decided."""
    file = tmp_path / "budgets.db"
    gate = BudgetGate(Limit(requests=1), ledger=SqliteLedger(file))
    gate.ledger.used("nobody's")
    other = sqlite3.connect(file, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    asked = asyncio.ensure_future(gate.acheck(proposal()))
    await asyncio.sleep(0.05)
    assert not asked.done()
    other.execute("ROLLBACK")
    other.close()
    verdict = await asked
    assert verdict is not None
    assert verdict.outcome == "allow"


def test_books_that_cannot_be_used_deny(
    govern: Govern, server: ScriptedProvider, tmp_path: Path
) -> None:
    """A mandatory gate whose file is damaged denies, and says that it crashed."""
    file = tmp_path / "budgets.db"
    file.write_bytes(b"no database" * 1000)
    gate = BudgetGate(Limit(requests=1), ledger=SqliteLedger(file))
    govern(gate, faults={"ask the gate BudgetGate"})
    kit = Kit("openai-sync", server)
    with pytest.raises(PolicyDenied) as denied, clew.run("triage"):
        asyncio.run(kit.ask())
    assert denied.value.reason == "gate_error"
    assert server.requests == []
