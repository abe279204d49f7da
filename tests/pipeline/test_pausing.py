"""Long work leaves the interpreter to others from time to time."""

from __future__ import annotations

import threading
import time

import pytest

from clew.pipeline.pausing import never_while, pausing


@pytest.fixture
def done(monkeypatch: pytest.MonkeyPatch) -> list[int | str]:
    """Return what happened: steps, of which each takes 100 us, and pauses."""
    happened: list[int | str] = []
    monkeypatch.setattr(time, "perf_counter", lambda: 0.0001 * len(happened))
    monkeypatch.setattr(time, "sleep", lambda seconds: happened.append(f"{seconds:.4f}"))
    return happened


def do(steps: int, done: list[int | str]) -> None:
    for step in pausing(range(steps)):
        done.append(step)  # noqa: PERF402 - one at a time is what is tested


def test_there_is_a_pause_from_time_to_time(done: list[int | str]) -> None:
    """All steps come, in order; short work has no pause at all."""
    do(7, done)
    assert done == [0, 1, 2, "0.0001", 3, 4, 5, "0.0001", 6]
    done.clear()
    do(2, done)
    assert done == [0, 1]


def test_a_thread_that_is_behind_makes_no_pause(done: list[int | str]) -> None:
    """It is asked anew each time that a pause is due, and only on the thread that said so."""
    behind = [True, False]

    def work() -> None:
        never_while(lambda: behind.pop(0))
        do(7, done)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert done == [0, 1, 2, 3, 4, 5, "0.0001", 6]
    done.clear()
    do(4, done)
    assert done == [0, 1, 2, "0.0001", 3]


def test_what_the_steps_raise_passes() -> None:
    """An iterator of steps that fails does so where it is used."""

    def steps() -> object:
        yield 1
        raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        list(pausing(steps()))  # type: ignore[arg-type]
