"""The export thread: bounded, never blocking, counted."""

from __future__ import annotations

import os
import threading
import time
from typing import Any

import pytest

from clew.pipeline.worker import THREAD_NAME, Worker


class Exporting:
    """Takes batches; can be made slow or failing."""

    def __init__(self, *, seconds: float = 0, fail: bool = False) -> None:
        self.batches: list[list[Any]] = []
        self.seconds = seconds
        self.fail = fail
        self.closed = threading.Event()

    def export(self, batch: list[Any]) -> None:
        self.closed.wait(self.seconds)
        if self.fail:
            raise OSError("SECRET")
        self.batches.append(batch)

    def close(self, deadline: float) -> None:
        self.closed.set()

    @property
    def items(self) -> list[Any]:
        return [item for batch in self.batches for item in batch]


def worker(exporting: Exporting, **options: Any) -> Worker:
    defaults = {"queue_size": 100, "batch_size": 10, "delay": 10.0}
    return Worker(exporting, **{**defaults, **options})


def test_batches_and_flush() -> None:
    """A flush exports what was submitted before it, in order, in batches."""
    exporting = Exporting()
    one = worker(exporting)
    one.start()
    for number in range(25):
        one.submit(number)
    assert one.flush(5)
    assert exporting.items == list(range(25))
    assert all(len(batch) <= 10 for batch in exporting.batches)
    assert one.shutdown(5) == 0


def test_a_full_queue_drops_and_counts_but_keeps_what_matters() -> None:
    """A burst against a slow exporter does not block, loses only plain spans, and is counted."""
    exporting = Exporting(seconds=0.2)
    one = worker(exporting, queue_size=100, batch_size=100, delay=0.01)
    one.start()
    started = time.monotonic()
    for number in range(1000):
        one.submit(number, important=number % 50 == 0)
    assert time.monotonic() - started < 0.15
    one.flush(10)
    kept = set(exporting.items)
    assert {number for number in range(1000) if number % 50 == 0} <= kept
    assert one.dropped == 1000 - len(kept)
    assert one.dropped > 0
    one.shutdown(5)


def test_shutdown_keeps_its_deadline_and_counts_the_rest() -> None:
    """An exporter that never answers does not hold the process up."""
    exporting = Exporting(seconds=60)
    one = worker(exporting, batch_size=1, delay=0.01)
    one.start()
    for number in range(20):
        one.submit(number)
    time.sleep(0.05)
    started = time.monotonic()
    left = one.shutdown(0.5)
    assert time.monotonic() - started < 1.5
    assert left <= 20


def test_a_failing_exporter_is_swallowed(caplog: pytest.LogCaptureFixture) -> None:
    """It is logged once without its text, and the next batch is tried."""
    exporting = Exporting(fail=True)
    one = worker(exporting, batch_size=1)
    one.start()
    for number in range(3):
        one.submit(number)
    one.flush(5)
    exporting.fail = False
    one.submit(4)
    one.flush(5)
    one.shutdown(5)
    assert exporting.items == [4]
    assert len(caplog.records) == 1
    assert "SECRET" not in caplog.text


def test_timers_and_deferred_calls_run_on_the_export_thread() -> None:
    """Timers run when due; at shutdown only those that ask for it."""
    ran: list[tuple[str, str]] = []

    def note(name: str) -> Any:
        return lambda: ran.append((name, threading.current_thread().name))

    one = worker(Exporting(), delay=0.01)
    one.start()
    one.call_later(0.01, note("due"))
    one.call_later(60, note("sealed"), at_shutdown=True)
    one.call_later(60, note("never"))
    one.call_soon(note("soon"))
    time.sleep(0.1)
    one.shutdown(5)
    assert sorted(ran) == [("due", THREAD_NAME), ("sealed", THREAD_NAME), ("soon", THREAD_NAME)]


def test_a_collected_object_may_use_it_while_its_lock_is_held() -> None:
    """Submitting and deferring take no lock that the same thread could hold already."""
    one = worker(Exporting())
    one.start()
    with one._timer_lock, one._start_lock:
        one.submit(1)
        one.call_soon(lambda: None)
        one.wake()
    one.shutdown(5)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_child_exports_its_own_and_not_the_parents() -> None:
    """What the parent had queued is exported by the parent alone; the child's thread is new."""
    exporting = Exporting()
    one = worker(exporting)
    one.start()
    one.submit("parent")
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        one.submit("child")
        one.flush(5)
        os.write(writer, repr(exporting.items).encode())
        os._exit(0)
    _, status = os.waitpid(pid, 0)
    assert status == 0
    assert os.read(reader, 100) == b"['child']"
    one.flush(5)
    assert exporting.items == ["parent"]
    one.shutdown(5)


def test_the_thread_wakes_up_only_for_something_to_do() -> None:
    """A thread that wakes up in a busy host is in its way; what it is woken for is done in time."""
    one = worker(Exporting(), delay=60.0)
    turns: list[float] = []
    one.chores.append(lambda: turns.append(time.monotonic()))
    one.start()
    assert one.flush(5)
    time.sleep(1.3)  # a second is what used to lie between two turns
    assert len(turns) <= 3  # the start, the flush
    soon, later = threading.Event(), threading.Event()
    one.call_soon(soon.set)
    assert soon.wait(1)
    one.call_later(0.05, later.set)
    assert later.wait(2)
    assert len(turns) <= 6
    one.shutdown(5)


def test_what_is_due_at_once_is_gathered() -> None:
    """The first is exported at once, those just after it together, and then it is calm again."""
    exporting = Exporting()
    one = worker(exporting, delay=60.0)
    one.start()
    assert one.flush(5)
    began = time.monotonic()
    one.submit("a", now=True)
    while not exporting.batches and time.monotonic() < began + 5:
        time.sleep(0.005)
    first = time.monotonic() - began
    for name in "bcd":
        one.submit(name, now=True)
        time.sleep(0.02)
    while len(exporting.batches) < 2 and time.monotonic() < began + 5:
        time.sleep(0.005)
    second = time.monotonic() - began
    assert exporting.batches == [["a"], ["b", "c", "d"]]
    assert first < 0.3 < second < 2
    time.sleep(1.2)
    began = time.monotonic()
    one.submit("e", now=True)
    while len(exporting.batches) < 3 and time.monotonic() < began + 5:
        time.sleep(0.005)
    assert time.monotonic() - began < 0.3
    one.shutdown(5)


def test_nothing_is_looked_for_after_a_single_span_that_was_due_at_once() -> None:
    """A thread that has exported a start sleeps, until another one wakes it."""
    exporting = Exporting()
    one = worker(exporting, delay=60.0)
    turns: list[float] = []
    one.each_turn(lambda: turns.append(time.monotonic()))
    one.start()
    assert one.flush(5)
    one.submit("a", now=True)
    time.sleep(1.4)  # more than starts are gathered for
    assert exporting.batches == [["a"]]
    assert len(turns) <= 6  # the start, the flush, the span; one more before each export
    one.shutdown(5)


def test_chores_can_ask_for_a_look_every_second() -> None:
    """As those do that look whether a receiver is back."""
    one = worker(Exporting(), delay=60.0)
    looked: list[float] = []
    one.each_turn(lambda: looked.append(time.monotonic()), every=1.0)
    one.start()
    time.sleep(2.4)
    assert len(looked) >= 2
    one.shutdown(5)
