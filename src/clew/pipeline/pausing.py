"""Long work on a thread of ours, with pauses in which the host's threads come to their turn.

A thread that computes keeps the interpreter's lock until it is asked to give it up, which takes
`sys.getswitchinterval()` (5 ms by default): so long an event loop waits that has just been woken.
https://docs.python.org/3/library/sys.html#sys.setswitchinterval

Where the host keeps the lock itself, each pause lasts as long. A thread that falls behind makes
none: spans that are lost are worse than an event loop that waits.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Final, TypeVar

T = TypeVar("T")

_TOGETHER_S: Final = 0.00025
"""How long steps are made in one go."""
_PAUSE_S: Final = 0.0001
"""Too short to matter for an export, and long enough for whoever waits to wake up and go on."""


class _Here(threading.local):
    """What a thread of ours is like."""

    is_behind: Callable[[], bool] | None = None
    """Tells whether too much waits for it; None: nobody knows."""


_here = _Here()


def never_while(is_behind: Callable[[], bool]) -> None:
    """Let this thread make no pause while `is_behind` says so."""
    _here.is_behind = is_behind


def pausing(steps: Iterable[T]) -> Iterator[T]:
    """Give the steps of some work, with a pause after each few of them."""
    clock = time.perf_counter
    until = clock() + _TOGETHER_S
    for step in steps:
        yield step
        if clock() < until:
            continue
        if _here.is_behind is None or not _here.is_behind():
            time.sleep(_PAUSE_S)
        until = clock() + _TOGETHER_S
