"""Ids that count and a clock that steps, so that a whole trace can be written down in a test."""

from __future__ import annotations

import itertools
import threading

from opentelemetry.sdk.trace.id_generator import IdGenerator


class CountingIds(IdGenerator):
    """Counts trace ids and span ids from 1."""

    def __init__(self) -> None:
        self._traces = itertools.count(1)
        self._spans = itertools.count(1)

    def generate_trace_id(self) -> int:
        """Return the next trace id."""
        return next(self._traces)

    def generate_span_id(self) -> int:
        """Return the next span id."""
        return next(self._spans)


class SteppingClock:
    """A clock in nanoseconds that moves by `step` each time it is read.

    Args:
        start: the first time it tells, in nanoseconds since the epoch.
        step: nanoseconds between two readings.
    """

    def __init__(self, start: int = 1_760_000_000_000_000_000, step: int = 1_000_000) -> None:
        self._now = start
        self._step = step
        self._lock = threading.Lock()

    def __call__(self) -> int:
        """Return the time, and move on by one step."""
        with self._lock:
            now = self._now
            self._now += self._step
            return now

    def advance(self, seconds: float) -> None:
        """Move on by this many seconds."""
        with self._lock:
            self._now += round(seconds * 1e9)
