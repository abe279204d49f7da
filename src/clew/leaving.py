"""Ends of processes that run no `atexit` handlers: children, servers that die by a signal, SIGTERM.

A child of multiprocessing or of Celery would end with its last spans unsent. It is told when that
happens by what its library has for it: finalizers (`multiprocessing.util.Finalize`), and the signal
`worker_process_shutdown`
(https://docs.celeryq.dev/en/stable/userguide/signals.html#worker-process-shutdown). Uvicorn ends
itself by the signal that it was sent, once it has shut down: the end of its shutdown is the moment.

Where SIGTERM would end the process at once, and only there, it is handled: what is open is ended
and exported within two seconds, then the process ends by the same signal.
"""

from __future__ import annotations

import _thread
import functools
import gc
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, Final

import wrapt

from clew._guard import guard
from clew.pipeline.runtime import Runtime
from clew.spans import Node, Terminated

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
    wrapt.register_post_import_hook(_watch_uvicorn, "uvicorn.server")


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


def _watch_uvicorn(module: Any) -> None:
    with guard("watch for the end of uvicorn"):
        before = module.Server.shutdown

        @functools.wraps(before)
        async def shutdown(self: Any, *args: Any, **kwargs: Any) -> Any:
            result = await before(self, *args, **kwargs)
            # It raises the signals that it has captured again, with the handlers of before.
            if signal.SIGTERM in getattr(self, "_captured_signals", ()):
                _call()
            return result

        module.Server.shutdown = shutdown


# --- SIGTERM -------------------------------------------------------------------------------------

TERMINATION_S: Final = 2.0
"""Seconds after which a process that was sent SIGTERM has ended."""
_at_termination: Callable[[], None] | None = None
_terminating = False


def on_termination(call: Callable[[], None]) -> None:
    """Have `call` called when SIGTERM comes, if it would end the process at once.

    Does nothing where somebody handles or ignores the signal, or outside the main thread.
    """
    global _at_termination  # noqa: PLW0603 - one per process is what it is
    if threading.current_thread() is not threading.main_thread():
        return
    with guard("watch for SIGTERM"):
        if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, _terminate)
            _at_termination = call


def leave_termination() -> None:
    """Have SIGTERM end the process at once again, unless somebody else handles it by now."""
    global _at_termination  # noqa: PLW0603
    _at_termination = None
    if threading.current_thread() is threading.main_thread():
        with guard("leave SIGTERM alone"):
            if signal.getsignal(signal.SIGTERM) is _terminate:
                signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _terminate(number: int, _: object) -> None:
    """Handle the signal: in the main thread, which may hold any lock and must wait for none."""
    global _terminating  # noqa: PLW0603
    call, again = _at_termination, _terminating
    _terminating = True
    try:
        if call is not None and not again:
            done: list[None] = []

            def work() -> None:
                try:
                    with guard("export before the process ends"):
                        call()
                finally:
                    done.append(None)

            _thread.start_new_thread(work, ())
            until = time.monotonic() + TERMINATION_S
            while not done and time.monotonic() < until:
                time.sleep(0.005)
    finally:
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)


def end_what_is_open(runtime: Runtime) -> None:
    """End all spans that are open, as cancelled, the latest first.

    Open spans are in no list, which would cost every span: they are looked for among all objects.
    """
    error = Terminated()
    runtime.interrupt_streams(error)
    found = [each for each in gc.get_objects() if issubclass(type(each), Node)]
    open_ones = [each for each in found if each.is_open(runtime)]
    for node in sorted(open_ones, key=lambda each: (each.start_ns, each.seq), reverse=True):
        with guard("end a span"):
            node.interrupt(error)
