"""Ends of processes that run no `atexit` handlers: children of multiprocessing, and of Celery.

Such a child would end with its last spans unsent. It is told when that happens by what its library
has for it: finalizers (`multiprocessing.util.Finalize`), and the signal `worker_process_shutdown`
(https://docs.celeryq.dev/en/stable/userguide/signals.html#worker-process-shutdown).
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import wrapt

from clew._guard import guard

_PRIORITY = 100
"""Finalizers of a higher priority run first; those of pools and queues have less."""
_FORKING = ("multiprocessing.util", "billiard.util")
_leave: list[Callable[[], None]] = []
"""What to call; once there is something, the hooks are there."""


class _Anchor:
    """What a library of processes keeps weakly while its hooks are wanted."""


_anchor = _Anchor()


def before_leaving(call: Callable[[], None]) -> None:
    """Have `call` called when a child process ends; the first call alone counts."""
    if _leave:
        return
    _leave.append(call)
    for name in _FORKING:
        wrapt.register_post_import_hook(_watch_forks, name)
    wrapt.register_post_import_hook(_watch_celery, "celery.signals")


def _watch_forks(util: Any) -> None:
    def forked(_: object) -> None:
        _finalize(util)

    with guard("watch for the ends of child processes"):
        # A forked child forgets the finalizers of its parent, then calls this.
        util.register_after_fork(_anchor, forked)
        process = sys.modules.get("multiprocessing.process")
        if process is not None and process.parent_process() is not None:
            _finalize(util)  # this is a child already, one that was spawned


def _finalize(util: Any) -> None:
    with guard("watch for the end of this process"):
        util.Finalize(None, _call, exitpriority=_PRIORITY)


def _watch_celery(signals: Any) -> None:
    with guard("watch for the ends of Celery's children"):
        signals.worker_process_shutdown.connect(_call, weak=False)


def _call(**_: Any) -> None:
    with guard("export before the process ends"):
        _leave[0]()
