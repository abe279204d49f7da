"""Memory that Clew holds: `python tests/bench/memory.py` (a minute).

A full queue of 2,048 finished spans with content off; resident memory over 100,000 calls; and what
a call allocates at its peak beside what one plain SDK span with 25 attributes does.
"""

from __future__ import annotations

import gc
import resource
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from statistics import median

import clew

sys.path.insert(0, str(Path(__file__).resolve().parent))
from workloads import Bench, configure, flush

QUEUED = 2_048
CALLS = 100_000
STEPS = 5


def full_queue(bench: Bench) -> float:
    """Return the MB of a queue of finished spans that nobody has exported."""
    from clew.pipeline import runtime

    found = runtime.get()
    assert found is not None
    worker = found.worker
    with clew.run("support-bot"):
        bench.small_chat(10)
        flush()
        exporting, worker.exporting = worker.exporting, Held()
        flush()
        gc.collect()
        tracemalloc.start()
        bench.small_chat(QUEUED)
        flush()
        gc.collect()
        used, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert len(worker.exporting.spans) >= QUEUED
        worker.exporting = exporting
    return used / 1e6


class Held:
    """Keeps spans as the queue does, so that none is dropped while they are counted."""

    def __init__(self) -> None:
        self.spans: list[object] = []

    def export(self, batch: list[object]) -> None:
        self.spans += batch

    def close(self, deadline: float) -> None:
        """Nothing is held open."""


def resident() -> float:
    """Return the resident memory of this process in MB."""
    pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
    return pages * resource.getpagesize() / 1e6


def growth(bench: Bench) -> list[float]:
    """Return the resident memory after each fifth of many calls, in runs of fifty."""
    found: list[float] = []
    for _ in range(STEPS):
        for _ in range(CALLS // STEPS // 50):
            with clew.run("support-bot"):
                bench.small_chat(50)
            flush()  # or the queue is full, and what would be held is dropped
        gc.collect()
        found.append(resident())
    return found


def peak(work: Callable[[int], None], flush: Callable[[], object] = flush) -> float:
    """Return the bytes that one call allocates at its peak, the median of some.

    In the middle of a few of them the export thread allocates.
    """
    work(50)
    flush()
    gc.collect()
    tracemalloc.start()
    found: list[int] = []
    for _ in range(40):
        tracemalloc.reset_peak()
        before, _ = tracemalloc.get_traced_memory()
        work(1)
        found.append(tracemalloc.get_traced_memory()[1] - before)
    tracemalloc.stop()
    return median(found)


def main() -> None:
    configure()
    bench = Bench()
    bare = peak(bench.small_chat)
    floor = peak(bench.floor, bench.flush_floor)
    clew.instrument()
    with clew.run("support-bot"):
        traced = peak(bench.small_chat)
    print(f"a queue of {QUEUED:,} finished rounds: {full_queue(bench):.2f} MB")
    print(
        f"peak of a call: bare {bare:,.0f} B, with Clew {traced - bare:+,.0f} B, floor {floor:,.0f} B"
    )
    print("resident MB over 100,000 calls: " + ", ".join(f"{mb:.1f}" for mb in growth(bench)))
    clew.shutdown()


if __name__ == "__main__":
    main()
