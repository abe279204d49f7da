"""One process of `make bench`: a subject, measured against nothing and against the floor.

    python member.py SUBJECT LIBRARY ENDPOINT|- on|off SCALE

Every load is done in turns: bare, with the floor, with the subject, in changing order. What each
has patched in the classes of the client library is put on for its turn and taken off again, so
that all three share everything else. The first use of a turn is not timed: it pays for the
change. What the floor adds is measured where it is used, between the same calls, for code that
has to be fetched into the caches of the processor first costs a multiple of a loop that stays in
them.

Times are CPU seconds. `added` is of the calling thread; `export` is what other threads took (the
floor's its own, the subject all others), and the flushes, which come whenever a batch is full,
outside what is timed. The answer is a line of JSON for each load.
"""

from __future__ import annotations

import gc
import itertools
import json
import os
import random
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent))

MODES = ("bare", "floor", "subject")
EXPORTING = ("floor", "subject")
ORDERS = tuple(itertools.permutations(MODES))
BATCH = 400
"""Floor spans between two flushes: a batch of the SDK's processor holds 512."""
LEAST_TURNS = 6
RESAMPLED = 400
INTERVAL = (0.05, 0.95)


class Plan(NamedTuple):
    """How long a load is measured, and how many timed uses a turn of one mode has."""

    seconds: float
    uses: int


PLANS = {
    "small chat": Plan(1.5, 5),
    "40 messages": Plan(5.5, 3),
    "stream": Plan(7.0, 3),
    "50 at once": Plan(3.0, 2),
    "agent run": Plan(2.0, 3),
}


class Switch:
    """Puts on and takes off what is patched in the classes of the client libraries."""

    def __init__(self, library: str) -> None:
        self._prefixes = (f"{library}.", "httpx")
        self._before = self._look()
        self._values: dict[tuple[type, str], dict[str, Any]] = {}

    def _look(self) -> dict[tuple[type, str], Any]:
        found: dict[tuple[type, str], Any] = {}
        for name, module in list(sys.modules.items()):
            if f"{name}.".startswith(self._prefixes):
                for each in list(vars(module).values()):
                    if isinstance(each, type):
                        found.update({(each, key): value for key, value in vars(each).items()})
        return found

    def learn(self) -> int:
        """Take what has changed since the start for what the subject has patched; count it."""
        known = {kind for kind, _ in self._before}
        for (kind, name), value in self._look().items():
            before = self._before.get((kind, name), _NOTHING)
            patchable = callable(value) or isinstance(value, (classmethod, staticmethod))
            inherited = before is not _NOTHING or hasattr(kind.__base__, name)
            if kind in known and before is not value and patchable and inherited:
                self._add(kind, name, before, subject=value)
        return len(self._values)

    def add_floor(self, patches: Iterable[Any]) -> None:
        """Patch this for the floor (`floor.Patch`), over what was there before the subject came."""
        for patch in patches:
            self._add(patch.kind, patch.name, patch.before, floor=patch.after)

    def _add(self, kind: type, name: str, before: Any, **values: Any) -> None:
        known = self._values.setdefault((kind, name), dict.fromkeys(MODES, before))
        known.update(values)

    def turn(self, mode: str) -> None:
        """Put on what is patched in a mode, and take off everything else."""
        for (kind, name), values in self._values.items():
            value = values[mode]
            if value is not _NOTHING:
                setattr(kind, name, value)
            elif name in vars(kind):
                delattr(kind, name)


_NOTHING = object()


class Spent:
    """CPU seconds of one load, by mode."""

    def __init__(self) -> None:
        self.turns: list[dict[str, float]] = []
        """The calling thread's, for one use."""
        self.uses = 0
        """Of each mode, those not timed included."""
        self.export = dict.fromkeys(EXPORTING, 0.0)


class Bench:
    """A subject and the floor, ready to take turns.

    Args:
        subjects: what opens runs and tool calls and flushes, for each mode.
        traffic: the loads (`traffic.Traffic`).
        switch: knows what is patched in each mode.
        floors: the threads that export for the floor.
    """

    def __init__(
        self,
        subjects: dict[str, Any],
        traffic: Any,
        switch: Switch,
        floors: Iterable[threading.Thread],
    ) -> None:
        self._subjects = subjects
        self._traffic = traffic
        self._switch = switch
        self._clocks = [time.pthread_getcpuclockid(each.ident or 0) for each in floors]

    def measure(self, load: Any, plan: Plan) -> Spent:
        """Let the modes take turns until the time of the plan is over."""
        subject = self._subjects["subject"]
        for mode in MODES:
            self._turn(mode, load, 2)
        self._flush(Spent())
        end = time.monotonic() + plan.seconds
        spent = Spent()
        orders = itertools.cycle(ORDERS)
        each_batch = max(1, BATCH // (load.spans * (plan.uses + 1)))
        while len(spent.turns) < LEAST_TURNS or time.monotonic() < end:
            with subject.run() if load.in_run else nullcontext():
                subject.flush()  # what the start of a run exports is not of these calls
                self._batch(load, plan, spent, itertools.islice(orders, each_batch), end)
            self._flush(spent)
        return spent

    def _batch(
        self,
        load: Any,
        plan: Plan,
        spent: Spent,
        orders: Iterator[tuple[str, ...]],
        end: float,
    ) -> None:
        before = self._elsewhere()
        for order in orders:
            if len(spent.turns) >= LEAST_TURNS and time.monotonic() > end:
                break
            spent.turns.append({mode: self._turn(mode, load, plan.uses) for mode in order})
            spent.uses += plan.uses + 1
        self._add(spent, before)

    def _add(self, spent: Spent, before: dict[str, float]) -> None:
        for mode, seconds in self._elsewhere().items():
            spent.export[mode] += max(0.0, seconds - before[mode])

    def _elsewhere(self) -> dict[str, float]:
        """Return what was spent on other threads until now: on the floor's, and on all others.

        The floor's wakes up every five seconds, as it does with the SDK's defaults.
        """
        floors = sum(map(time.clock_gettime, self._clocks))
        return {
            "floor": floors,
            "subject": time.process_time() - time.thread_time() - floors,
        }

    def _turn(self, mode: str, load: Any, uses: int) -> float:
        self._switch.turn(mode)
        self._traffic.subject = self._subjects[mode]
        use, clock = load.use, time.thread_time
        use()
        took: list[float] = []
        for _ in range(uses):
            began = clock()
            use()
            took.append(clock() - began)
        return median(took)

    def _flush(self, spent: Spent) -> None:
        # The subject first: its thread may be at work already, and the floor's is not.
        for mode in reversed(EXPORTING):
            gc.collect()
            before, began = self._elsewhere(), time.thread_time()
            self._subjects[mode].flush()
            spent.export[mode] += time.thread_time() - began
            self._add(spent, before)


def figures(spent: Spent) -> dict[str, float]:
    """Return the ratio to the floor with its interval, and what it comes from, in microseconds.

    The interval holds nine tenths of the ratios of turns drawn anew from those that were measured.
    """
    export = {mode: total / spent.uses for mode, total in spent.export.items()}
    added = {mode: [turn[mode] - turn["bare"] for turn in spent.turns] for mode in EXPORTING}

    every = range(len(spent.turns))

    def of(chosen: Sequence[int]) -> tuple[float, float]:
        """Return the ratio, and what the subject adds, of some turns."""
        ours, floors = (
            median(added[mode][each] for each in chosen) for mode in reversed(EXPORTING)
        )
        return (ours + export["subject"]) / (floors + export["floor"]), ours

    drawn = random.Random(0)  # noqa: S311
    again = [of(drawn.choices(every, k=len(every))) for _ in range(RESAMPLED)]
    (low, high), (added_low, added_high) = (
        [ordered[int(RESAMPLED * part)] for part in INTERVAL]
        for ordered in map(sorted, zip(*again, strict=True))
    )
    us = {
        "bare us": median(turn["bare"] for turn in spent.turns),
        "floor us": median(added["floor"]),
        "floor export us": export["floor"],
        "added us": median(added["subject"]),
        "added low us": added_low,
        "added high us": added_high,
        "export us": export["subject"],
    }
    return {
        "ratio": round(of(every)[0], 3),
        "low": round(low, 3),
        "high": round(high, 3),
        "turns": len(spent.turns),
        **{name: round(seconds * 1e6, 1) for name, seconds in us.items()},
    }


def pin() -> None:
    """Stay on one processor, with all threads that come.

    A thread on another one finds nothing of what it exports in its caches, and shares them with who
    knows whom: an export cost as much again in some minutes. The floor is flushed by the calling
    thread, and would not pay for it.
    """
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})


def set_up(name: str, library: str, endpoint: str | None, content: bool) -> tuple[Bench, Any]:
    """Return what measures, and the traffic that it measures with.

    Raises:
        RuntimeError: the subject has patched nothing of the library.
    """
    pin()
    import floor
    from subjects import SUBJECTS, nothing
    from traffic import Traffic

    threads = {*threading.enumerate()}
    provider = floor.stock_provider(floor.exporter(endpoint))  # before a subject sets a sampler
    floors = {*threading.enumerate()} - threads
    idle = nothing(endpoint, content, library)
    first = Traffic(library, idle)
    for load in first.loads:
        load.use()  # loads what the libraries load late
    first.close()
    switch = Switch(library)
    patches = floor.patches(library, provider)
    subject = SUBJECTS[name](endpoint, content, library)
    traffic = Traffic(library, subject)
    if not switch.learn() and name != "nothing":
        raise RuntimeError(f"{name} has patched nothing of {library}")
    switch.add_floor(patches)
    subjects = {"bare": idle, "floor": floor.subject(provider), "subject": subject}
    return Bench(subjects, traffic, switch, floors), traffic


def main() -> None:
    name, library, given, content, scale = sys.argv[1:6]
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever a library prints is no answer

    def answer(load: str, measured: Callable[[], dict[str, Any]]) -> None:
        try:
            found = measured()
        except Exception as error:  # one load that fails does not stop the rest
            found = {"error": f"{type(error).__name__}: {error}"}
        answers.write(f"{json.dumps({'load': load, **found})}\n")
        answers.flush()

    bench, traffic = set_up(name, library, None if given == "-" else given, content == "on")
    gc.collect()
    gc.freeze()  # what is loaded is walked by nobody's collections
    for load in traffic.loads:
        plan = PLANS[load.name]
        plan = plan._replace(seconds=plan.seconds * float(scale))
        answer(load.name, lambda load=load, plan=plan: figures(bench.measure(load, plan)))
    os._exit(0)  # what a library has left to do is not measured


if __name__ == "__main__":
    main()
