"""The export thread: a bounded queue, timers, and calls put off from the caller's path.

Nothing here waits for anybody or takes a lock on the caller's side, so that it may be called from a
finaliser: the queue is a deque, and waking is the release of a lock used as a semaphore. Who adds
to a queue that is half full gives the thread a moment to run in (`Worker._give_way`).
"""

from __future__ import annotations

import contextlib
import heapq
import itertools
import math
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Final, Protocol, runtime_checkable

from opentelemetry import context as otel_context

from clew._forks import fork_waits, in_each_child
from clew._guard import guard, record_failure
from clew.pipeline.pausing import never_while, pausing

_SUPPRESS: Final[str] = getattr(
    otel_context, "_SUPPRESS_INSTRUMENTATION_KEY", "suppress_instrumentation"
)
THREAD_NAME = "clew-export"
_HASTE_S = 1.0
"""Seconds that what is to be exported at once waits, where other such spans have just come: each
waking of the thread costs the caller more than its span."""
_POLL_S = 1.0
"""Seconds that a timer may be late.

Where a host computes all the time, a thread that is awake waits for the interpreter's lock, and is
woken in vain each time that the host gives it up for a moment: a second of that costs as much as a
thousand spans. So the thread wakes up as seldom as it can.
"""
_LEAST_S = 0.01
"""Seconds between two turns that nobody has asked for."""
_AWAY_S = 0.0001
"""Seconds that a host which fills the queue is held up, so that the export thread gets the lock."""
_APART_S = 0.005
"""Seconds between two of these."""
_FAR_APART_S = 0.04
"""The same where it has not helped."""
_BUILTIN = type(len)
"""What `time.sleep` is of, unless it has been patched, as gevent does it."""
_FORK_PATIENCE_S = 5.0
"""Seconds that a fork waits for the first export, which imports most of what exporting needs."""
_AFTER_FAULT_S = 0.1
"""Seconds that the export thread waits after a turn that failed."""


class Exporting(Protocol):
    """Takes a batch of finished spans, on the export thread."""

    def export(self, batch: list[Any]) -> None:
        """Export the batch; may raise."""
        ...

    def close(self, deadline: float) -> None:
        """Release what the exporting holds, before the monotonic time `deadline`."""
        ...


@runtime_checkable
class Keeping(Protocol):
    """An `Exporting` that can keep spans for another process to export."""

    def hurry(self, deadline: float) -> None:
        """Take note that all has to be done by the monotonic time `deadline`."""
        ...

    def keeps(self) -> bool:
        """Tell whether it can keep spans at all."""
        ...

    def keep(self, batch: list[Any]) -> None:
        """Keep a batch that cannot be exported in time; may raise."""
        ...


class Worker:
    """One daemon thread that exports what was submitted.

    Args:
        exporting: what to do with a batch.
        queue_size: spans kept at the most; further ones are dropped and counted, except those
            that an auditor needs, for which there is as much room again.
        batch_size: spans exported together.
        delay: seconds that a span waits at the most.
        name: what the thread is called.
        let_go: called with each span that is dropped, by who submits it; does not raise.
    """

    def __init__(
        self,
        exporting: Exporting,
        *,
        queue_size: int,
        batch_size: int,
        delay: float,
        name: str = THREAD_NAME,
        let_go: Callable[[Any], None] | None = None,
    ) -> None:
        self._name = name
        self._let_go = let_go
        self.exporting = exporting
        self._queue_size = queue_size
        self._batch_size = batch_size
        self._delay = delay
        self.dropped = 0
        self._queue: deque[Any] = deque()
        self._soon: deque[Callable[[], None]] = deque()
        self.chores: list[Callable[[], None]] = []
        """Called on the export thread at every turn (`each_turn` adds to them)."""
        self._every = delay
        self.last_chores: list[Callable[[], None]] = []
        """Called there once, at the end, before the last spans are exported."""
        self._timers: list[tuple[float, int, Callable[[], None], bool]] = []
        self._timer_ids = itertools.count()
        self._timer_lock = threading.Lock()
        self._wake = threading.Lock()
        self._wake.acquire()
        self._flushes: deque[threading.Event] = deque()
        self._last_export = 0.0
        self._in_hand = 0
        """Spans in the middle of being exported."""
        self._has_exported = False
        self._stopping = False
        self._urgent = False
        """Whether spans that are to be exported at once have come since the last export."""
        self._rests_until = 0.0
        """Monotonic time before which such spans wait, for it has just exported others."""
        self._looks = False
        """Whether the thread looks for such spans then, without being woken: they come often."""
        self._short_notice = False
        """Whether the thread was woken for a timer; those after it are found by a look in time."""
        self._gives_way_at = 0.0
        self._apart = _APART_S
        self._sleeps_until = 0.0
        """Monotonic time at which the thread will have a turn, if nobody wakes it."""
        self._thread: threading.Thread | None = None
        self._start_lock = threading.Lock()
        in_each_child(self, _after_fork)

    def each_turn(self, chore: Callable[[], None], *, every: float = math.inf) -> None:
        """Call `chore` on the export thread at every turn: at least each `every` seconds."""
        self.chores.append(chore)
        self._every = min(self._every, every)

    # --- from any thread, without waiting for this one ---------------------------------------

    def submit(self, span: Any, *, important: bool = False, now: bool = False) -> bool:
        """Queue a finished span, and tell whether it has not been dropped.

        `now` wakes the thread at once, but not for each of many.
        """
        waiting = len(self._queue)
        if 2 * waiting >= self._queue_size:
            self._give_way(waiting)
        if waiting >= self._queue_size and not (important and waiting < 2 * self._queue_size):
            self.dropped += 1
            if self._let_go is not None:
                self._let_go(span)
            return False
        self._queue.append(span)
        if now:
            self._urgent = True
            if not self._looks:
                self.wake()
        elif waiting + 1 >= self._batch_size:
            self.wake()
        if self._thread is None:
            self.start()
        return True

    def _give_way(self, waiting: int) -> None:
        """Let the export thread come to its turn, where a host that computes has kept it from that.

        A thread that waits for the interpreter's lock is woken each time that the lock is free, and
        is too late where that is for a moment only: it never asks for the lock, as one does that
        has waited in vain for long enough. Then it gets nothing to run in, and spans are lost.
        """
        now = time.monotonic()
        thread = self._thread
        if now < self._gives_way_at or thread is None or thread.ident == threading.get_ident():
            return
        self._gives_way_at = now + self._apart
        if type(time.sleep) is _BUILTIN:
            time.sleep(_AWAY_S)
        # A thread that waits for a receiver has no use for it.
        shrinks = len(self._queue) < waiting
        self._apart = _APART_S if shrinks else min(2 * self._apart, _FAR_APART_S)

    def submit_soon(self, span: Any) -> None:
        """Queue a finished span that may wait and may be dropped, like nearly all."""
        if len(self._queue) < self._batch_size - 1 and self._thread is not None:
            self._queue.append(span)
        else:
            self.submit(span)

    def call_soon(self, call: Callable[[], None]) -> None:
        """Run `call` on the export thread, soon."""
        self._soon.append(call)
        if len(self._soon) == 1:
            self.wake()

    def call_later(
        self, seconds: float, call: Callable[[], None], *, at_shutdown: bool = False
    ) -> None:
        """Run `call` on the export thread after a while; at shutdown at once, if asked for.

        It may be a second late: nobody is woken for it who wakes up about then.
        """
        with self._timer_lock:
            when = time.monotonic() + seconds
            heapq.heappush(self._timers, (when, next(self._timer_ids), call, at_shutdown))
            if when < self._sleeps_until - _POLL_S:
                self._short_notice = True
                self.wake()
        if self._thread is None:
            self.start()

    def wake(self) -> None:
        """Let the thread look at its queue now."""
        try:
            self._wake.release()
        except RuntimeError:  # it is awake already
            return

    # --- life ----------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the thread, once."""
        with self._start_lock:
            if self._thread is not None or self._stopping:
                return
            # Made here, of the kind that fits the thread: gevent may have patched `threading`
            # since, and a lock of the older kind would hold up all of its greenlets.
            self._wake = threading.Lock()
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            with guard("start the export thread"):
                self._thread.start()

    def flush(self, timeout: float) -> bool:
        """Export what was submitted until now; tell whether that was done in time."""
        if self._thread is None or not self._thread.is_alive():
            return not self._queue
        done = threading.Event()
        self._flushes.append(done)
        self.wake()
        return done.wait(timeout)

    def shutdown(self, timeout: float) -> int:
        """Run the timers that ask for it, export the rest, stop.

        Args:
            timeout: seconds that it may take.

        Returns:
            How many spans were left, those included whose export did not end in time.
        """
        deadline = time.monotonic() + timeout
        exporting = self.exporting
        keeping = exporting if isinstance(exporting, Keeping) else None
        if keeping is not None:
            with guard("tell the exporters of the end"):
                keeping.hurry(deadline)
        self._stopping = True
        thread = self._thread
        elsewhere = thread is not None and thread is not threading.current_thread()
        if elsewhere and thread is not None and thread.is_alive():
            self.wake()
            thread.join(max(0.0, timeout * 0.8))
        self.exporting.close(deadline)
        if elsewhere and thread is not None and thread.is_alive():
            keeps = keeping is not None and keeping.keeps()
            thread.join(max(0.0, deadline - time.monotonic()) / (2 if keeps else 1))
            if thread.is_alive():
                # It waits for a receiver: its seals are made here.
                self._run_due(everything=True)
                if keeping is None or not keeps:
                    return len(self._queue) + self._in_hand
                self._keep_rest(keeping)
        return len(self._queue)

    def _keep_rest(self, keeping: Keeping) -> None:
        """Keep what is queued, since the export thread cannot."""
        while batch := self._take():
            with guard("keep spans at shutdown"):
                keeping.keep(batch)

    def _take(self) -> list[Any]:
        batch: list[Any] = []
        with contextlib.suppress(IndexError):  # at shutdown two threads may take from the queue
            while len(batch) < self._batch_size:
                batch.append(self._queue.popleft())
        return batch

    def waiting(self) -> int:
        """Return how many finished spans wait."""
        return len(self._queue)

    # --- on the export thread --------------------------------------------------------------------

    def _run(self) -> None:
        """Turn until it is time to stop; a turn that fails does not end the thread."""
        self._last_export = time.monotonic()
        # Exporting must make no spans of its own, which would be exported, and so on.
        otel_context.attach(otel_context.set_value(_SUPPRESS, value=True))
        with guard("pace the export thread"):
            never_while(lambda: len(self._queue) >= self._batch_size)
        while True:
            try:
                if not self._turn():
                    return
            except Exception:
                record_failure("turn the export thread")
                if self._stopping:
                    return
                time.sleep(_AFTER_FAULT_S)

    def _turn(self) -> bool:
        """Wait, do what is due, and tell whether to go on."""
        self._wake.acquire(timeout=self._patience())
        flushes = [self._flushes.popleft() for _ in range(len(self._flushes))]
        with contextlib.nullcontext() if self._has_exported else fork_waits(_FORK_PATIENCE_S):
            return self._do_due(flushes)

    def _do_due(self, flushes: list[threading.Event]) -> bool:
        looked = self._looks
        try:
            self._run_due()
            stopping = self._stopping
            now = time.monotonic()
            due = self._has_urgent(now) or now - self._last_export >= self._delay
            if flushes or stopping or due or len(self._queue) >= self._batch_size:
                if self._urgent:
                    self._urgent, self._looks = False, looked
                    self._rests_until = now + _HASTE_S
                self._drain()
                self._last_export = time.monotonic()
            self._do(self.chores)
        finally:
            for done in flushes:
                done.set()
        if stopping:
            self._run_due(everything=True)
            self._do(self.chores)
            self._do(self.last_chores)
            self._drain()
        return not stopping

    def _has_urgent(self, now: float) -> bool:
        """Tell whether spans that are to be exported at once have come, and may be by now."""
        if now < self._rests_until:
            return False
        self._looks = False
        return self._urgent

    def _patience(self) -> float:
        """Return the seconds until the next turn, and note when that will be."""
        now = time.monotonic()
        until = now + (min(_POLL_S, self._every) if self._short_notice else self._every)
        self._short_notice = False
        self._looks = self._looks or self._urgent
        if self._looks:
            until = min(until, max(now, self._rests_until))
        if self._queue:
            until = min(until, self._last_export + self._delay)
        with self._timer_lock:
            if self._timers:
                until = min(until, self._timers[0][0])
            if self._soon:
                until = now
            # Under the lock: a timer that comes after this look sees until when the thread sleeps.
            self._sleeps_until = until = max(now + _LEAST_S, until)
        return until - now

    def _run_due(self, *, everything: bool = False) -> None:
        for _ in pausing(range(len(self._soon))):
            call = self._soon.popleft()
            with guard("run a deferred call"):
                call()
        for _ in pausing(itertools.count()):
            with self._timer_lock:
                if not self._timers:
                    return
                when, _, call, at_shutdown = self._timers[0]
                if not everything and when > time.monotonic():
                    return
                heapq.heappop(self._timers)
            if everything and not at_shutdown and when > time.monotonic():
                continue
            with guard("run a timer"):
                call()

    def _do(self, chores: list[Callable[[], None]]) -> None:
        for chore in chores:
            with guard("do a chore"):
                chore()

    def _drain(self) -> None:
        while self._queue:
            self._do(self.chores)
            batch = self._take()
            self._in_hand = len(batch)
            if batch:
                with guard("export spans"):
                    self.exporting.export(batch)
                self._has_exported = True
            self._in_hand = 0

    def reset_after_fork(self) -> None:
        """Start anew in a forked child: the parent exports what the parent had queued."""
        self._queue.clear()
        self._soon.clear()
        self._timers.clear()
        self._flushes.clear()
        self._in_hand = self.dropped = 0
        self._urgent = self._looks = False
        self._thread = None
        self._timer_lock = threading.Lock()
        self._start_lock = threading.Lock()
        self._wake = threading.Lock()
        self._wake.acquire()


def _after_fork(worker: Worker) -> None:
    with guard("restart after a fork"):
        worker.reset_after_fork()
