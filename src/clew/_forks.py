"""What a fork must not interrupt, and what has to be made anew in the child.

A child has none of the parent's other threads, and what they were in the middle of stays so: a
module that is half imported, with a lock that nobody releases, so that importing it in the child
never ends; a gRPC library in the middle of a call. A fork therefore waits while a thread of ours
does such a thing, but for no longer than that thread has said when it began.
https://docs.python.org/3/library/os.html#os.fork

`os.register_at_fork` keeps what it is given for ever. What lives no longer than a configuration is
therefore registered with `in_each_child`; what lives as long as its module, `new_in_each_child`
makes anew.
"""

from __future__ import annotations

import itertools
import logging  # its hook has to be there before ours, see below
import os
import threading
import time
import weakref
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, TypeVar

_Owner = TypeVar("_Owner")


class _Forks:
    """Which threads a fork waits for."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.until: dict[int, float] = {}
        """By thread (its ident): the monotonic time until which a fork waits for it."""

    def before(self) -> None:
        """Wait, and let nobody begin anything until the fork is over."""
        self.changed.acquire()
        me = threading.get_ident()
        while others := [until for ident, until in self.until.items() if ident != me]:
            left = max(others) - time.monotonic()
            if left <= 0.0:
                return
            self.changed.wait(left)

    def in_parent(self) -> None:
        """Go on."""
        self.changed.release()


_forks = _Forks()


@contextmanager
def fork_waits(seconds: float) -> Generator[None]:
    """Have a fork wait for the end of the body, for at most `seconds` from now."""
    me = threading.get_ident()
    with _forks.changed:
        before = _forks.until.get(me)
        _forks.until[me] = max(before or 0.0, time.monotonic() + seconds)
    try:
        yield
    finally:
        with _forks.changed:
            if before is None:
                _forks.until.pop(me, None)
            else:
                _forks.until[me] = before
            _forks.changed.notify_all()


if hasattr(os, "register_at_fork"):
    # Hooks before a fork run from the last to the first, and that of `logging` takes its lock,
    # which the thread that is waited for may need: so it has to run after ours.
    logging.getLogger("clew")
    os.register_at_fork(
        before=_forks.before,
        after_in_parent=_forks.in_parent,
        after_in_child=_forks.__init__,  # nobody waits for anybody, under a lock of its own
    )


def new_in_each_child(module: dict[str, Any], name: str, make: Callable[[], object]) -> None:
    """Have a name of a module be another object in each forked child: a lock that nobody holds.

    Args:
        module: the module's `globals()`.
        name: the name.
        make: makes the object.
    """
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=lambda: module.__setitem__(name, make()))


_steps: dict[int, tuple[weakref.ref[Any], Callable[[Any], object]]] = {}
"""What is done in each forked child: objects, and what is called with them, oldest first."""
_numbers = itertools.count()


def in_each_child(owner: _Owner, step: Callable[[_Owner], object]) -> None:
    """Call `step(owner)` in each forked child, for as long as `owner` lives.

    Steps are taken in the order in which they came. `step` must not hold `owner`, nor raise.
    """
    if not hasattr(os, "register_at_fork"):
        return
    number = next(_numbers)
    if not number:
        # Not when this module is imported: what libraries do in a child comes first.
        os.register_at_fork(after_in_child=_take_steps)

    def forget(_: object, steps: dict[int, Any] = _steps) -> None:
        steps.pop(number, None)

    _steps[number] = (weakref.ref(owner, forget), step)


def _take_steps() -> None:
    for reference, step in list(_steps.values()):
        owner = reference()
        if owner is not None:
            step(owner)
