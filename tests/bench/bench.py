"""What Clew adds to a call below the SDKs, in units of one plain SDK span (`make bench-more`).

One process, interleaved, median of the rounds. The floor is measured against itself first: when
those two differ by more than a tenth, the machine is too busy and there is no verdict.

`added` is CPU of the calling thread with Clew minus without, over the floor. `export` is what
the export thread spends beside it, in the same unit; the caller does not wait for it.
"""

from __future__ import annotations

import argparse
import gc
import sys
import time
from collections.abc import Callable
from statistics import median
from typing import NamedTuple

import clew

sys.path.insert(0, __file__.rsplit("/", 1)[0])
from workloads import Bench, Workload, configure, flush, workloads

LIMITS = {
    "small chat": (1.6, "floors"),
    "40 messages": (1.7, "floors"),
    "stream, per chunk": (1.0, "us"),
}


FLOORS = ("floor", "floor again", "at once")
LIGHTER = {"stream, per chunk": 10, "50 at once": 20, "agent run": 10}
"""By how much the batches of the long workloads are smaller."""


class Spent(NamedTuple):
    """Seconds of CPU: of the calling thread, and of the process's other threads."""

    caller: float
    others: float


def spend(work: Callable[[int], None], times: int, flush: Callable[[], object]) -> Spent:
    """Measure one batch, the export that it causes included."""
    gc.collect()
    process, thread = time.process_time(), time.thread_time()
    work(times)
    caller = time.thread_time() - thread
    flush()
    return Spent(caller / times, (time.process_time() - process - caller) / times)


def measure(
    chosen: list[Workload], bench: Bench, rounds: int, times: int
) -> dict[str, list[Spent]]:
    """Run every batch once a round, each next to the ones it is compared with."""
    spent: dict[str, list[Spent]] = {}

    def note(name: str, work: Callable[[int], None], count: int) -> None:
        spent.setdefault(name, []).append(
            spend(work, count, bench.flush_floor if name in FLOORS else flush)
        )

    for number in range(rounds + 1):
        for name, work in zip(FLOORS, (bench.floor, bench.floor, bench.floor_at_once), strict=True):
            note(name, work, times * 2)
        for load in chosen:
            count = max(1, times // LIGHTER.get(load.name, 1))
            note(f"{load.name}: bare", load.bare, count)
            clew.instrument()
            note(f"{load.name}: traced", load.traced, count)
            clew.uninstrument()
        if number == 0:
            spent.clear()  # the first round warms up
    return spent


def report(chosen: list[Workload], spent: dict[str, list[Spent]]) -> bool:
    """Print the table; False when a limit is exceeded."""
    floors = [one.caller for one in spent["floor"]]
    floor = median(floors)
    itself = median(
        again.caller / first.caller
        for again, first in zip(spent["floor again"], spent["floor"], strict=True)
    )
    quiet = 0.9 <= itself <= 1.1
    at_once = median(one.caller for one in spent["at once"])
    print(f"floor {floor * 1e6:.2f} us a span; against itself {itself:.3f}")
    print(f"(the same span, its attributes set in one call: {at_once * 1e6:.2f} us)")
    print(
        f"{'':20}{'bare us':>10}{'with us':>10}{'added us':>10}{'added':>8}{'export':>8}{'limit':>12}"
    )
    fine = True
    for load in chosen:
        bare, traced = spent[f"{load.name}: bare"], spent[f"{load.name}: traced"]
        added = median(t.caller - b.caller for t, b in zip(traced, bare, strict=True)) / load.parts
        export = median(one.others for one in traced) / load.parts
        limit, unit = LIMITS.get(load.name, (None, ""))
        verdict = ""
        if limit is not None:
            value = added / floor if unit == "floors" else added * 1e6
            verdict = f"{limit} {unit}" + ("" if value <= limit else " MISSED")
            fine = fine and value <= limit
        print(
            f"{load.name:20}{median(b.caller for b in bare) / load.parts * 1e6:>10.2f}"
            f"{median(t.caller for t in traced) / load.parts * 1e6:>10.2f}{added * 1e6:>10.2f}"
            f"{added / floor:>8.2f}{export / floor:>8.2f}{verdict:>12}"
        )
    if not quiet:
        print("no verdict: the floor differs from itself by more than a tenth")
        return True
    return fine


def main() -> int:
    """Measure, print, and tell by the exit code whether every limit holds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--times", type=int, default=400, help="calls in a batch")
    parser.add_argument("--only", help="measure only workloads whose name holds this")
    options = parser.parse_args()
    configure()
    bench = Bench()
    chosen = [load for load in workloads(bench) if not options.only or options.only in load.name]
    return 0 if report(chosen, measure(chosen, bench, options.rounds, options.times)) else 1


if __name__ == "__main__":
    sys.exit(main())
