"""What a thread of ours does and a fork of the host must not interrupt.

A child has none of the parent's other threads, and what they were in the middle of stays so: a
module that is half imported, with a lock that nobody releases, so that importing it in the child
never ends; a gRPC library in the middle of a call. A fork therefore waits while a thread of ours
does such a thing, but for no longer than that thread has said when it began.
https://docs.python.org/3/library/os.html#os.fork
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager

_changed = threading.Condition()
_until: dict[int, float] = {}
"""By thread (its ident): the monotonic time until which a fork waits for it."""


@contextmanager
def fork_waits(seconds: float) -> Generator[None]:
    """Have a fork wait for the end of the body, for at most `seconds` from now."""
    me = threading.get_ident()
    with _changed:
        before = _until.get(me)
        _until[me] = max(before or 0.0, time.monotonic() + seconds)
    try:
        yield
    finally:
        with _changed:
            if before is None:
                _until.pop(me, None)
            else:
                _until[me] = before
            _changed.notify_all()


def _before() -> None:
    _changed.acquire()
    me = threading.get_ident()
    while others := [until for ident, until in _until.items() if ident != me]:
        left = max(others) - time.monotonic()
        if left <= 0.0:
            return
        _changed.wait(left)


def _after_in_child() -> None:
    global _changed
    _changed = threading.Condition()
    _until.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before,
        after_in_parent=lambda: _changed.release(),
        after_in_child=_after_in_child,
    )
