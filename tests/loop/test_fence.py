"""The write fence: each write is made once, by whoever has the run."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from loop_kit import DONE, Kit, asks

from clew.errors import StoreError
from clew.loop import FenceRefusedError, SqliteFence, Tool, Write
from clew.testing import Reply

WRITE = Write(run_id="r", round=1, place=0, tool="pay", effect="non_idempotent_write")
AGAIN = Write(run_id="r", round=1, place=0, tool="tag", effect="idempotent_write")


@pytest.fixture
def fence(tmp_path: Path) -> SqliteFence:
    return SqliteFence(tmp_path / "writes.db")


def refusal(act: Callable[[], Any]) -> str:
    with pytest.raises(FenceRefusedError) as refused:
        act()
    return refused.value.reason


def test_a_write_is_put_down_before_and_after(fence: SqliteFence):
    """Durably: another connection sees it; the file is its owner's alone."""
    lease = fence.enter("r")
    fence.before(lease, WRITE)
    with sqlite3.connect(fence.path) as other:
        assert other.execute("SELECT tool, state FROM writes").fetchall() == [("pay", "begun")]
    fence.after(lease, WRITE)
    assert other.execute("SELECT state FROM writes").fetchall() == [("done",)]
    other.close()
    assert fence.path.stat().st_mode & 0o777 == 0o600


def test_a_write_is_made_once(fence: SqliteFence):
    """Also for a process that has the lease later."""
    lease = fence.enter("r")
    fence.before(lease, WRITE)
    fence.after(lease, WRITE)
    fence.leave(lease, "r")
    other = fence.enter("r")
    assert refusal(lambda: fence.before(other, WRITE)) == "already_executed"


def test_a_write_whose_end_nobody_knows_is_not_repeated(fence: SqliteFence):
    """Unless it is idempotent."""
    lease = fence.enter("r")
    for write in (WRITE, AGAIN):
        fence.before(lease, write)
    assert refusal(lambda: fence.before(lease, WRITE)) == "outcome_unknown"
    fence.before(lease, AGAIN)


def test_a_run_belongs_to_one_process_at_a_time(tmp_path: Path):
    """Until the lease is given back, or has run out; whoever lost it writes no more."""
    now = [1000.0]
    fence = SqliteFence(tmp_path / "w.db", lease_s=900, clock=lambda: now[0])
    lease = fence.enter("r")
    fence.enter("another run")
    assert refusal(lambda: fence.enter("r")) == "lease_lost"
    now[0] += 899
    assert refusal(lambda: fence.enter("r")) == "lease_lost"
    now[0] += 2
    fence.enter("r")
    assert refusal(lambda: fence.before(lease, WRITE)) == "lease_lost"
    now[0] += 901
    other = fence.enter("r")
    fence.leave(lease, "r")
    assert refusal(lambda: fence.enter("r")) == "lease_lost"
    fence.leave(other, "r")
    fence.enter("r")


def test_each_write_renews_the_lease(tmp_path: Path):
    """A long run keeps what it has."""
    now = [1000.0]
    fence = SqliteFence(tmp_path / "w.db", lease_s=900, clock=lambda: now[0])
    lease = fence.enter("r")
    now[0] += 899
    fence.before(lease, WRITE)
    now[0] += 899
    assert refusal(lambda: fence.enter("r")) == "lease_lost"


def test_a_fence_that_cannot_be_used_says_so(tmp_path: Path):
    """A file that is no database."""
    (tmp_path / "w.db").write_text("no database at all, but long enough to be looked at as one")
    with pytest.raises(StoreError, match="cannot be used: DatabaseError"):
        SqliteFence(tmp_path / "w.db").enter("r")


async def test_a_write_behind_a_fence_is_executed_and_noted(kit: Kit, fence: SqliteFence):
    """The lease is given back when the run has ended."""
    states: list[Any] = []

    def pay() -> str:
        with sqlite3.connect(fence.path) as other:
            states.extend(other.execute("SELECT tool, state FROM writes").fetchall())
        other.close()
        return "paid"

    kit.script(Reply(tool_calls=(asks("pay"),)), DONE)
    result = await kit.run(kit.loop(Tool.of(pay), loop={"fence": fence}))
    assert (states, kit.told, kit.outcomes) == ([("pay", "begun")], ["paid"], ["ok"])
    fence.enter(result.run_id)


async def test_a_write_that_fails_by_itself_has_ended(kit: Kit, fence: SqliteFence):
    """The model may ask for it again, which is another write."""
    tries: list[str] = []

    def pay() -> str:
        tries.append("x")
        if len(tries) == 1:
            raise ValueError
        return "paid"

    turn = Reply(tool_calls=(asks("pay"),))
    kit.script(turn, turn, DONE)
    await kit.run(kit.loop(Tool.of(pay), loop={"fence": fence}))
    assert kit.told == ["The tool failed.", "paid"]


async def test_a_run_that_is_begun_again_does_not_write_again(kit: Kit, fence: SqliteFence):
    """The same run id, the same place: it was executed before."""
    from clew.loop import RunOptions

    paid: list[str] = []
    loop = kit.loop(Tool(name="pay", function=lambda: paid.append("x")), loop={"fence": fence})
    options = RunOptions(run_id="11111111-1111-4111-8111-111111111111")
    for _ in range(2):
        kit.script(Reply(tool_calls=(asks("pay"),)), DONE)
        await kit.run(loop, options=options)
    assert paid == ["x"]
    assert kit.told == ["This call could not be made safely; the tool was not executed."]
    reasons = [span["clew.decision.reason"] for span in kit.spans("decide write_fence")]
    assert reasons == ["already_executed"]


async def test_without_its_fence_nothing_is_written(kit: Kit, tmp_path: Path):
    """A fence that cannot be used refuses."""
    (tmp_path / "w.db").write_text("no database at all, but long enough to be looked at as one")
    paid: list[str] = []
    tool = Tool(name="pay", function=lambda: paid.append("x"))
    kit.script(Reply(tool_calls=(asks("pay"),)), DONE)
    await kit.run(kit.loop(tool, loop={"fence": SqliteFence(tmp_path / "w.db")}))
    assert paid == []
    reasons = [span["clew.decision.reason"] for span in kit.spans("decide write_fence")]
    assert reasons == ["store_error"]
