"""Approvals: nothing of a turn runs before somebody agreed to exactly that."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from saying import MARK, Govern, Saying, decisions

import clew
from clew.actors import Actor
from clew.errors import ApprovalRefused, ApprovalRequired, PolicyDenied, StoreError
from clew.gates.approval import ApprovalGate, acheck_turn, approve, check_turn, deny
from clew.gates.approval_store import MemoryApprovals, SqliteApprovals
from clew.typing import PendingCall

BOB = Actor(id="bob", grants=frozenset({"agent_approve"}))
REFUND = PendingCall(name="refund", id="c2", arguments=f'{{"to":"{MARK}","euros":64}}'.encode())
TURN = (PendingCall(name="search", id="c1", arguments=b'{"q":"x"}'), REFUND)


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    return MemoryApprovals() if request.param == "memory" else SqliteApprovals(tmp_path / "a.db")


def suspend(**options: Any) -> ApprovalRequired:
    """Run until the turn is looked at."""
    with pytest.raises(ApprovalRequired) as caught, clew.run("desk", **options):
        check_turn(TURN)
    return caught.value


def refund(**more: Any) -> Any:
    return clew.tool("refund", call_id="c2", arguments={"euros": 64, "to": MARK}, **more)


def test_an_approved_call_passes_once(govern: Govern, store: Any) -> None:
    """The turn suspends; after the approval exactly that call is executed, and only once."""
    exported = govern(ApprovalGate({"refund"}, store=store), digest_key="k")
    asked = suspend(actor="ann")
    assert exported.by_name("execute_tool") == ()
    (pending,) = store.pending()
    assert (pending.id, pending.reference) == (asked.approval_id, asked.reference)
    assert [call.name for call in pending.calls] == ["search", "refund"]
    assert MARK not in repr(pending)
    decided = approve(store, pending.id, BOB, digest=pending.digest)
    assert (decided.status, decided.attribution) == ("approved", "second_person")

    done = []
    with clew.resume(decided.reference, actor="ann") as run:
        check_turn(TURN)
        with clew.tool("search", call_id="c1", arguments='{"q": "x"}'):
            done.append("search")
        with refund():
            done.append("refund")
        with pytest.raises(ApprovalRequired, match="needed"):
            refund().__enter__()
        assert run.totals.decisions == 4
    assert done == ["search", "refund"]
    first, search, passed, again = decisions(exported)
    assert (first["outcome"], first["executed"], first["reason"]) == (
        "require_approval",
        False,
        "needed",
    )
    assert (search["outcome"], search["reason"]) == ("allow", "not_needed")
    assert (passed["outcome"], passed["reason"], passed["by"]) == (
        "allow",
        "approved",
        "second_person",
    )
    assert passed["decided_at"] == decided.decided_ns // 1000
    assert passed["proposed_at"] == decided.proposed_ns // 1000
    waited = (decided.decided_ns - decided.proposed_ns) / 1e6
    assert passed["wait_ms"] == pytest.approx(waited)
    assert again["outcome"] == "require_approval"
    spans = exported.by_name("decide")
    assert len({span.context.trace_id for span in spans}) == 1
    assert len(spans[2].attributes["clew.actor"]) == 64
    assert "clew.actor" not in spans[0].attributes
    leaked = exported.otlp_bytes()
    assert MARK.encode() not in leaked
    assert b"bob" not in leaked


def test_a_denied_call_is_not_executed(govern: Govern, store: Any) -> None:
    """The denial is a decision of the resumed run, which ends as `approval_denied`."""
    exported = govern(ApprovalGate({"refund"}, store=store))
    asked = suspend(actor="ann")
    (pending,) = store.pending()
    denied = deny(store, pending.id, Actor(id="ann"), digest=pending.digest)
    assert denied.attribution == "self"
    with pytest.raises(PolicyDenied, match="approval_denied"), clew.resume(asked.reference or ""):
        refund().__enter__()
    found = decisions(exported)[-1]
    assert (found["outcome"], found["by"], found["executed"]) == ("deny", "self", False)
    ended = exported.by_name("invoke_agent")[-1]
    assert ended.attributes["clew.run.status"] == "cancelled"
    assert ended.attributes["clew.run.termination_reason"] == "approval_denied"


def test_a_run_that_is_resumed_too_early_waits_on(govern: Govern, store: Any) -> None:
    """The approval that is pending stays the one, and names the segment that waits now."""
    govern(ApprovalGate({"refund"}, store=store))
    first = suspend()
    resumed = clew.resume(first.reference or "")
    with pytest.raises(ApprovalRequired, match="pending") as caught, resumed:
        check_turn(TURN)
    assert caught.value.approval_id == first.approval_id
    assert caught.value.reference != first.reference
    (pending,) = store.pending()
    assert pending.reference == caught.value.reference


@pytest.mark.parametrize(
    ("name", "call_id", "arguments"),
    [
        ("refund", "c2", {"euros": 640, "to": MARK}),
        ("refund", "c3", {"euros": 64, "to": MARK}),
        ("payout", "c2", {"euros": 64, "to": MARK}),
    ],
)
def test_another_call_needs_an_approval_of_its_own(
    govern: Govern, store: Any, name: str, call_id: str, arguments: Any
) -> None:
    """Other arguments, another id or another tool: what was approved is not that."""
    govern(ApprovalGate({"refund", "payout"}, store=store))
    asked = suspend()
    (pending,) = store.pending()
    approve(store, pending.id, BOB, digest=pending.digest)
    with clew.resume(asked.reference or ""), pytest.raises(ApprovalRequired, match="needed"):
        clew.tool(name, call_id=call_id, arguments=arguments).__enter__()
    assert len(store.pending()) == 1


async def test_asynchronous_code_waits_and_passes_alike(govern: Govern, store: Any) -> None:
    """`acheck_turn`, `async with` and decorated coroutines are the same gate."""
    govern(ApprovalGate(effects={"non_idempotent_write"}, store=store))
    done = []

    @clew.tool("pay", effect="non_idempotent_write")
    async def pay(euros: int, *, to: str = "nobody") -> None:
        done.append(euros)

    with pytest.raises(ApprovalRequired) as caught:
        async with clew.run("desk"):
            await pay(3, to="x")
    (pending,) = store.pending()
    approve(store, pending.id, BOB, digest=pending.digest)
    async with clew.resume(caught.value.reference or ""):
        await acheck_turn(
            [
                PendingCall(
                    name="pay", arguments=b'{"to":"x","euros":3}', effect="non_idempotent_write"
                )
            ]
        )
        await pay(euros=3, to="x")
    assert done == [3]


@pytest.mark.parametrize(
    ("effect", "waits"),
    [
        (None, True),
        ("non_idempotent_write", True),
        ("wrte", True),
        ("idempotent_write", False),
        ("read_only", False),
    ],
)
def test_a_tool_whose_effect_nobody_declared_is_reckoned_with(
    govern: Govern, store: Any, effect: str | None, waits: bool
) -> None:
    """It may write, and cannot be repeated: what is not known is not allowed to pass."""
    gate = Saying(None, kinds=frozenset({"tool_call"}))
    govern(ApprovalGate(effects={"non_idempotent_write"}, store=store), gate)
    call = clew.tool("pay", effect=effect, arguments="{}")
    if waits:
        with pytest.raises(ApprovalRequired), clew.run("desk"):
            call.__enter__()
    else:
        with clew.run("desk"), call:
            pass
    assert [one.effect for one in gate.asked] == ["non_idempotent_write" if waits else effect]


def test_a_call_that_cannot_be_bound_is_denied(govern: Govern, store: Any) -> None:
    """Without its arguments, or outside a run, there is nothing that could be approved."""
    govern(ApprovalGate({"refund"}, store=store))
    with clew.run("desk"), pytest.raises(PolicyDenied, match="arguments_unknown"):
        clew.tool("refund").__enter__()
    with pytest.raises(PolicyDenied, match="no_run"):
        refund().__enter__()
    assert store.pending() == []


@pytest.mark.parametrize(
    ("actor", "digest", "four_eyes", "initiator", "reason"),
    [
        (Actor(id="cid"), "right", False, "ann", "not_permitted"),
        (Actor(id="svc", kind="service"), "right", False, "ann", "not_permitted"),
        (Actor(id="", kind="anonymous"), "right", False, None, "not_permitted"),
        (Actor(id="ann"), "right", True, "ann", "four_eyes"),
        (BOB, "right", True, None, "four_eyes"),
        (BOB, "wrong", False, "ann", "digest_mismatch"),
        (BOB, None, False, "ann", "digest_mismatch"),
    ],
)
def test_who_may_not_approve(
    govern: Govern,
    store: Any,
    actor: Actor,
    digest: str | None,
    four_eyes: bool,
    initiator: str | None,
    reason: str,
) -> None:
    """Rights, four eyes and the digest are checked in this order, and nothing changes."""
    govern(ApprovalGate({"refund"}, store=store, four_eyes=four_eyes))
    suspend(actor=initiator)
    (pending,) = store.pending()
    shown = pending.digest if digest == "right" else digest
    with pytest.raises(ApprovalRefused) as caught:
        approve(store, pending.id, actor, digest=shown)
    assert caught.value.reason == reason
    assert store.pending() == [pending]


@pytest.mark.parametrize(
    ("actor", "initiator", "attribution"),
    [
        (BOB, "ann", "second_person"),
        (Actor(id="ann"), "ann", "self"),
        (BOB, None, "initiator_unknown"),
    ],
)
def test_to_whom_an_approval_is_attributed(
    govern: Govern, store: Any, actor: Actor, initiator: str | None, attribution: str
) -> None:
    """The record says whether it was the person that the run acts for, or another."""
    govern(ApprovalGate({"refund"}, store=store))
    suspend(actor=initiator)
    (pending,) = store.pending()
    assert approve(store, pending.id, actor, digest=pending.digest).attribution == attribution


def test_four_eyes_let_the_initiator_deny(govern: Govern, store: Any) -> None:
    """Who asked may always take it back."""
    govern(ApprovalGate({"refund"}, store=store, four_eyes=True))
    suspend(actor="ann")
    (pending,) = store.pending()
    assert deny(store, pending.id, Actor(id="ann"), digest=pending.digest).status == "denied"


def test_further_refusals(govern: Govern, store: Any) -> None:
    """Unknown ids, a second decision, and an approver who could not do it himself."""
    govern(ApprovalGate({"refund"}, store=store))
    suspend(actor="ann")
    (pending,) = store.pending()

    def reason(approval_id: str, **more: Any) -> str:
        with pytest.raises(ApprovalRefused) as caught:
            approve(store, approval_id, BOB, digest=pending.digest, **more)
        return caught.value.reason

    assert reason("") == "unknown"
    assert reason("%") == "unknown"
    assert reason(pending.id, can_execute=lambda *_: False) == "cannot_execute"
    approve(store, pending.id[:6], BOB, digest=pending.digest)
    assert reason(pending.id) == "not_pending"


def test_one_of_many_deciders_and_executors_wins(govern: Govern, store: Any) -> None:
    """Of eight at the same time one decides, and one executes."""
    govern(ApprovalGate({"refund"}, store=store))
    asked = suspend(actor="ann")
    (pending,) = store.pending()
    results: list[str] = []

    def together(work: Callable[[], None]) -> list[str]:
        results.clear()
        threads = [threading.Thread(target=clew.bind(work)) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return sorted(results)

    def decide() -> None:
        try:
            approve(store, pending.id, BOB, digest=pending.digest)
            results.append("decided")
        except ApprovalRefused as refused:
            results.append(refused.reason)

    def execute() -> None:
        try:
            with refund():
                results.append("executed")
        except ApprovalRequired:
            results.append("waits")

    assert together(decide) == ["decided", *["not_pending"] * 7]
    with clew.resume(asked.reference or ""):
        assert together(execute) == ["executed", *["waits"] * 7]


def test_observing_asks_nobody(govern: Govern, store: Any) -> None:
    """In observe mode the call is executed, and nobody finds it among the pending ones."""
    exported = govern(ApprovalGate({"refund"}, store=store, mode="observe"))
    with clew.run("desk"), refund():
        pass
    (found,) = decisions(exported)
    assert (found["outcome"], found["enforced"]) == ("require_approval", False)
    assert store.pending() == []


def test_a_store_that_cannot_be_used_denies(govern: Govern, tmp_path: Path) -> None:
    """A mandatory gate whose store is broken crashes, and so denies."""
    broken = tmp_path / "a.db"
    broken.write_bytes(b"this is no database" * 99)
    govern(
        ApprovalGate({"refund"}, store=SqliteApprovals(broken)),
        faults={"ask the gate ApprovalGate"},
    )
    with clew.run("desk"), pytest.raises(PolicyDenied, match="gate_error"):
        refund().__enter__()
    with pytest.raises(StoreError, match="cannot be used"):
        SqliteApprovals(broken).pending()
