"""Long work leaves the interpreter to others from time to time."""

from __future__ import annotations

import threading
import time

import pytest

from clew.pipeline.pausing import never_while, pausing


def test_there_is_a_pause_after_each_few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """All steps come, in order; short work has no pause at all."""
    done: list[int | str] = []
    monkeypatch.setattr(time, "sleep", lambda seconds: done.append(f"{seconds:.4f}"))
    done.extend(pausing(range(17)))
    assert done == [*range(8), "0.0001", *range(8, 16), "0.0001", 16]
    assert list(pausing(range(7))) == [0, 1, 2, 3, 4, 5, 6]
    assert len(done) == 19


def test_a_thread_that_is_behind_makes_no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is asked anew after each few steps, and only on the thread that said so."""
    done: list[int | str] = []
    behind = [True, False]

    def work() -> None:
        never_while(lambda: behind.pop(0))
        done.extend(pausing(range(17)))

    monkeypatch.setattr(time, "sleep", lambda _seconds: done.append("pause"))
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert done == [*range(16), "pause", 16]
    done.clear()
    done.extend(pausing(range(9)))
    assert done == [*range(8), "pause", 8]


def test_what_the_steps_raise_passes() -> None:
    """An iterator of steps that fails does so where it is used."""

    def steps() -> object:
        yield 1
        raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        list(pausing(steps()))  # type: ignore[arg-type]
