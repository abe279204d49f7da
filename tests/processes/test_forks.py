"""A fork does not come in the middle of what a child could not go on with."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from clew import _forks
from clew._forks import fork_waits, in_each_child

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")


def in_child() -> int:
    """Fork a child that ends at once; return its exit code."""
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def held(seconds: float, most: float) -> tuple[threading.Thread, list[float]]:
    """Start a thread that makes forks wait; return it, and when it let go."""
    began = threading.Event()
    ended: list[float] = []

    def work() -> None:
        with fork_waits(most):
            began.set()
            time.sleep(seconds)
            ended.append(time.monotonic())

    thread = threading.Thread(target=work)
    thread.start()
    began.wait(5)
    return thread, ended


def test_a_fork_waits_for_another_thread() -> None:
    """It comes after the thread's work."""
    thread, ended = held(0.3, 10)
    assert in_child() == 0
    assert len(ended) == 1
    thread.join()


def test_a_fork_waits_only_so_long() -> None:
    """It does not wait for longer than the thread has said when it began."""
    thread, ended = held(3, 0.2)
    began = time.monotonic()
    assert in_child() == 0
    assert ended == []
    assert time.monotonic() - began < 2
    began = time.monotonic()
    assert in_child() == 0  # nor again
    assert time.monotonic() - began < 0.2
    thread.join()


def test_a_thread_does_not_wait_for_itself() -> None:
    """Who forks in the middle of its own work goes on at once; so does its child."""
    began = time.monotonic()
    with fork_waits(30), fork_waits(1):
        assert in_child() == 0
        pid = os.fork()
        if pid == 0:
            with fork_waits(1):
                code = in_child()
            os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert time.monotonic() - began < 10


class Owner:
    """Something that has to be made anew in a child."""

    def __init__(self, name: str) -> None:
        self.name = name


def test_each_child_takes_the_steps_of_what_lives() -> None:
    """In the order in which they came; a child's child takes them, too."""
    taken: list[str] = []
    first, second, third = Owner("first"), Owner("second"), Owner("third")
    for owner in (first, second, third):
        in_each_child(owner, lambda found: taken.append(found.name))
    del second, owner
    assert taken == []
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        if in_child() == 0:
            grandchild = os.fork()
            os.write(write, f"{' '.join(taken)}\n".encode())
            if grandchild:
                os.waitpid(grandchild, 0)
        os._exit(0)
    os.waitpid(pid, 0)
    os.close(write)
    with os.fdopen(read, encoding="utf-8") as told:
        assert sorted(told) == ["first third\n", "first third first third\n"]
    assert taken == []
    assert third.name == "third"


def test_nothing_is_kept_of_an_owner_that_is_gone() -> None:
    """A process may configure as often as it likes."""
    before = dict(_forks._steps)
    for number in range(100):
        in_each_child(Owner(str(number)), repr)
    assert _forks._steps == before


SLOW = """
import time

time.sleep(0.5)
DONE = True
"""
HOST = """
import logging
import os
import sys

import clew


class Exporter:
    def export(self, spans):
        import slow  # as a library does that imports what it needs when it needs it

        assert slow.DONE
        return 0

    def shutdown(self):
        pass



started = clew.configure("host", span_exporters=[Exporter()])
with clew.run("before"):
    pass  # its start is exported at once, by a thread
for _ in range(2000):
    if "slow" in sys.modules:
        break
    import time

    time.sleep(0.001)
assert "slow" in sys.modules and not hasattr(sys.modules["slow"], "DONE")
pid = os.fork()
import slow  # in the child: whole, and it does not hang

assert slow.DONE
if pid == 0:
    os._exit(0)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""


def test_modules_are_whole_in_a_child(tmp_path: Path) -> None:
    """A module that the export thread was importing can be imported in a child."""
    (tmp_path / "slow.py").write_text(SLOW)
    (tmp_path / "host.py").write_text(HOST)
    done = subprocess.run(
        [sys.executable, "host.py"],
        cwd=tmp_path,
        env=os.environ | {"OTEL_METRICS_EXPORTER": "none"},
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_a_thread_may_log_while_a_fork_waits() -> None:
    """The lock of logging, which a fork takes too, is not taken yet while it waits."""
    began = threading.Event()

    def work() -> None:
        with fork_waits(10):
            began.set()
            time.sleep(0.1)
            logging.getLogger("somebody's own")

    thread = threading.Thread(target=work)
    thread.start()
    began.wait(5)
    before = time.monotonic()
    assert in_child() == 0
    assert time.monotonic() - before < 5
    thread.join()
