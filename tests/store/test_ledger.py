"""Books of budgets in a file: shared by processes, atomic, and true after deaths and restarts."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sqlite3
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from clew.accounts import Amount, Entry, Ledger, Limit
from clew.errors import StoreError
from clew.gates.budget import MemoryLedger
from clew.store.ledger import SqliteLedger

ONE = Amount(requests=1)
PROCESSES = 4

TAKE = """
import sys, threading, time
from pathlib import Path
from clew.accounts import Amount, Entry, Limit
from clew.store.ledger import SqliteLedger

path, number, settled = Path(sys.argv[1]), sys.argv[2], sys.argv[3] == "settled"
ledger = SqliteLedger(path)
entry = Entry(key="all", limit=Limit(per="everything", period="day", tokens=1000))
planned, used = Amount(requests=1, tokens=20), Amount(requests=1, tokens=7)
taken = []

def take(thread):
    for turn in range(40):
        ticket = f"{number}-{thread}-{turn}"
        if ledger.reserve(ticket, [entry], planned) is None:
            taken.append(ticket)
            if settled:
                ledger.correct(ticket, [entry], planned, used)

print("ready", flush=True)
sys.stdin.readline()
threads = [threading.Thread(target=take, args=(each,)) for each in range(3)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(len(taken), flush=True)
sys.stdin.readline()
"""
RESERVE = """
import sys
from pathlib import Path
from clew.accounts import Amount, Entry, Limit
from clew.store.ledger import SqliteLedger

entry = Entry(key="all", limit=Limit(per="everything", period="day", requests=2))
print(SqliteLedger(Path(sys.argv[1])).reserve("t", [entry], Amount(requests=2)), flush=True)
sys.stdin.readline()
"""


def process(code: str, *arguments: str | Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def said(running: subprocess.Popen[str]) -> str:
    assert running.stdout is not None
    return running.stdout.readline().strip()


def go_on(running: subprocess.Popen[str]) -> None:
    assert running.stdin is not None
    running.stdin.write("\n")
    running.stdin.flush()


def end(running: subprocess.Popen[str]) -> None:
    running.kill()
    running.communicate()


def entry(key: str = "all", *, opening: Amount | None = None, **limit: int) -> Entry:
    return Entry(
        key=key,
        limit=Limit(per="everything", period="day", **limit),
        opening=opening or Amount(),
    )


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data" / "budgets.db"


@pytest.fixture(params=["memory", "sqlite"])
def ledger(request: pytest.FixtureRequest, path: Path) -> Ledger:
    return MemoryLedger() if request.param == "memory" else SqliteLedger(path)


# --- what every ledger does ------------------------------------------------------------------------


def test_all_accounts_or_none(ledger: Ledger) -> None:
    """A call is booked on each of its accounts, or, where one has no room, on none of them."""
    wide, narrow = entry("wide", requests=5), entry("narrow", requests=1)
    assert ledger.reserve("a", [wide, narrow], ONE) is None
    assert ledger.reserve("b", [wide, narrow], ONE) == "everything_daily_requests"
    assert (ledger.used("wide"), ledger.used("narrow")) == (ONE, ONE)
    assert ledger.used("nobody's") == Amount()


def test_an_account_with_two_limits_is_booked_on_once(ledger: Ledger) -> None:
    """Both limits hold, and the account counts the call once, before and after."""
    both = [entry(requests=2), entry(tokens=50)]
    planned = Amount(requests=1, tokens=30)
    assert ledger.reserve("a", both, planned) is None
    assert ledger.used("all") == planned
    assert ledger.reserve("b", both, planned) == "everything_daily_tokens"
    ledger.correct("a", both, planned, Amount(requests=1, tokens=10, cost_usd=0.5))
    assert ledger.used("all") == Amount(requests=1, tokens=10, cost_usd=0.5)


def test_a_new_account_opens_with_what_was_used_before(ledger: Ledger) -> None:
    """The opening counts once, and no more when the account exists."""
    resumed = entry(requests=3, opening=Amount(requests=2))
    assert ledger.reserve("a", [resumed], ONE) is None
    assert ledger.reserve("b", [resumed], ONE) == "everything_daily_requests"
    assert ledger.used("all") == Amount(requests=3)


def test_nothing_booked_nothing_corrected(ledger: Ledger) -> None:
    """A call that only was observed changes no account."""
    ledger.correct("a", [], ONE, ONE)
    assert ledger.used("all") == Amount()


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(calls=st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), max_size=20))
def test_both_ledgers_say_the_same(
    tmp_path_factory: pytest.TempPathFactory, calls: list[tuple[int, int]]
) -> None:
    """The same steps have the same answers and the same books, in memory and in a file."""
    ledgers: list[Ledger] = [
        MemoryLedger(),
        SqliteLedger(tmp_path_factory.mktemp("same") / "budgets.db"),
    ]
    limited = [entry(tokens=200)]
    for number, (planned, used) in enumerate(calls):
        plan, real = (Amount(requests=1, tokens=each) for each in (planned, used))
        answers = {each.reserve(str(number), limited, plan) for each in ledgers}
        assert len(answers) == 1
        if answers == {None} and used % 2:
            for each in ledgers:
                each.correct(str(number), limited, plan, real)
        assert ledgers[0].used("all") == ledgers[1].used("all")


# --- several processes -----------------------------------------------------------------------------


@pytest.mark.parametrize("settled", ["settled", "reserved"])
def test_processes_do_not_overshoot_together(path: Path, settled: str) -> None:
    """Four processes of three threads, all at once: exactly as many calls pass as the limit allows.

    Each plans 20 of 1,000 tokens. Where none ends, fifty pass. Where each ends with 7, the last
    that passes is the one after which less than 20 are left: 981 or more are used, 1,000 at most.
    """
    running = [process(TAKE, path, str(number), settled) for number in range(PROCESSES)]
    try:
        assert [said(each) for each in running] == ["ready"] * PROCESSES
        for each in running:
            go_on(each)
        passed = sum(int(said(each)) for each in running)
        used = SqliteLedger(path).used("all")
        if settled == "reserved":
            assert (passed, used) == (50, Amount(requests=50, tokens=1000))
        else:
            assert used == Amount(requests=passed, tokens=7 * passed)
            assert 980 < used.tokens <= 1000
    finally:
        for each in running:
            end(each)


def test_books_survive_a_restart(path: Path) -> None:
    """What was used stays used when the process has ended; another one goes on from there."""
    first = SqliteLedger(path)
    limited = [entry(requests=3)]
    assert first.reserve("a", limited, ONE) is None
    first.correct("a", limited, ONE, Amount(requests=1, tokens=12))
    later = process(RESERVE, path)
    assert said(later) == "everything_daily_requests"
    end(later)
    assert SqliteLedger(path).used("all") == Amount(requests=1, tokens=12)


def test_a_dead_process_holds_nothing(path: Path) -> None:
    """While it lives its reservation counts; when it was killed the next one to ask has the room.

    It need not even have been waited for by its parent.
    """
    ledger, limited = SqliteLedger(path), [entry(requests=2)]
    holder = process(RESERVE, path)
    try:
        assert said(holder) == "None"
        assert ledger.reserve("mine", limited, ONE) == "everything_daily_requests"
        holder.send_signal(signal.SIGKILL)
        os.waitid(os.P_PID, holder.pid, os.WEXITED | os.WNOWAIT)
        assert ledger.reserve("mine", limited, ONE) is None
        assert ledger.used("all") == ONE
    finally:
        end(holder)


@pytest.mark.parametrize(("column", "value"), [("place", "elsewhere"), ("born", "")])
def test_a_process_that_cannot_be_looked_for_has_a_lease(
    path: Path, column: str, value: str
) -> None:
    """A reservation from another container counts until its lease ends."""
    now = [1000.0]
    ledger, limited = SqliteLedger(path, lease_s=60, clock=lambda: now[0]), [entry(requests=1)]
    assert ledger.reserve("theirs", limited, ONE) is None
    with sqlite3.connect(path) as connection:
        connection.execute(f"UPDATE reservations SET {column} = ?, pid = 1", (value,))  # noqa: S608
    connection.close()
    now[0] += 59
    if column == "place":
        assert ledger.reserve("mine", limited, ONE) == "everything_daily_requests"
    now[0] += 2
    assert ledger.reserve("mine", limited, ONE) is None


def test_what_was_used_counts_when_the_reservation_is_gone(path: Path) -> None:
    """A call that outlived its lease has been made all the same."""
    ledger, limited = SqliteLedger(path), [entry(requests=9)]
    ledger.reserve("a", limited, ONE)
    with sqlite3.connect(path) as connection:
        connection.execute("DELETE FROM reservations")
    connection.close()
    ledger.correct("a", limited, ONE, Amount(requests=1, tokens=5))
    assert ledger.used("all") == Amount(requests=1, tokens=5)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_forked_process_opens_the_file_anew(path: Path) -> None:
    """A child has books of its own to open, even when another thread was in them at that moment."""
    ledger, limited = SqliteLedger(path), [entry(requests=2)]
    assert ledger.reserve("parent", limited, ONE) is None
    answers = multiprocessing.get_context("fork").SimpleQueue()

    def child() -> None:
        answers.put([ledger.reserve(f"child-{number}", limited, ONE) for number in range(2)])
        answers.put(ledger.used("all").requests)

    with ledger._lock:  # pyright: ignore[reportPrivateUsage]
        forked = multiprocessing.get_context("fork").Process(target=child)
        forked.start()
        assert answers.get() == [None, "everything_daily_requests"]
        assert answers.get() == 2
        forked.join()
    assert ledger.used("all") == ONE


def test_threads_share_one_ledger(path: Path) -> None:
    """Threads that book at the same time overshoot as little as processes."""
    ledger, limited = SqliteLedger(path), [entry(requests=30)]
    passed: list[str | None] = []

    def take(thread: int) -> None:
        passed.extend(ledger.reserve(f"{thread}-{turn}", limited, ONE) for turn in range(20))

    threads = [threading.Thread(target=take, args=(each,)) for each in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert passed.count(None) == 30
    assert passed.count("everything_daily_requests") == 50


# --- the file ----------------------------------------------------------------------------------------


def test_old_accounts_are_forgotten(path: Path) -> None:
    """Days and months that are over leave the file two months after they were last booked on."""
    now = [1000.0]
    ledger = SqliteLedger(path, clock=lambda: now[0])
    for key in ("old", "new"):
        ledger.reserve(key, [entry(key)], ONE)
        ledger.correct(key, [entry(key)], ONE, ONE)
        now[0] += 40 * 86_400
    ledger.reserve("c", [entry("new")], ONE)
    assert ledger.used("old") == Amount()
    assert ledger.used("new") == Amount(requests=2)


def test_the_file_is_closed_to_others(path: Path) -> None:
    """It names people: only its owner may read it."""
    SqliteLedger(path).reserve("a", [entry()], ONE)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_a_file_that_is_taken_away_is_made_anew(path: Path) -> None:
    """Nobody goes on writing into a file that is not there any more."""
    ledger = SqliteLedger(path)
    ledger.reserve("a", [entry()], ONE)
    for each in path.parent.iterdir():
        each.unlink()
    assert ledger.reserve("b", [entry()], ONE) is None
    assert SqliteLedger(path).used("all") == ONE


def test_files_that_are_no_books(path: Path, tmp_path: Path) -> None:
    """Another kind of file, and one of a later version, are refused in words."""
    path.parent.mkdir()
    path.write_bytes(b"no database" * 1000)
    with pytest.raises(StoreError, match="is not a database of Clew"):
        SqliteLedger(path).used("all")
    later = tmp_path / "later.db"
    connection = sqlite3.connect(later)
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(StoreError, match="written by a newer Clew"):
        SqliteLedger(later).used("all")
