"""The identity of a run's spans: segment, sequence numbers, and the stamp on foreign spans."""

from __future__ import annotations

import threading
import uuid
from collections import OrderedDict, deque
from collections.abc import Mapping
from copy import copy
from typing import Any, Protocol

from clew import semconv
from clew._guard import record_failure
from clew.ids import hex_64
from clew.pipeline.totals import Totals

_REMEMBERED = 4096


class Numbering(Protocol):
    """An agent, as far as its rounds are numbered."""

    rounds: int


class Uncounted(Protocol):
    """What has ended, and has still to be read and added to the totals."""

    def count(self, totals: Totals) -> None:
        """Do so; called once, with the segment's lock held."""
        ...


class Segment:
    """The part of a run that one process executes, between start or resume and its end.

    Hands out `clew.seq` without gaps, remembers which are still open, and sums the totals.
    Safe to use from several threads.
    """

    __slots__ = (
        "beat_at",
        "beats",
        "carried",
        "common",
        "foreign",
        "id",
        "last_seq",
        "lock",
        "number",
        "open_seqs",
        "pending",
        "restart",
        "run_id",
        "sealed",
        "totals",
        "trace_id",
        "uncounted",
    )

    def __init__(
        self,
        run_id: uuid.UUID,
        *,
        number: int = 1,
        restart: bool = False,
        carried: Totals | None = None,
    ) -> None:
        self.run_id = run_id
        self.trace_id = run_id.int
        self.id = hex_64()
        self.number = number
        self.restart = restart
        self.carried = carried
        """Totals of the segments before this one."""
        self.totals = Totals()
        """Calls and decisions until now; usage and cost of what was counted up."""
        self.uncounted: deque[Uncounted] = deque()
        """What has ended since then, in order: counted up by whoever looks at the totals first,
        the export thread as a rule."""
        self.pending: list[Any] = []
        """Rounds whose cost waits for the prices to be loaded."""
        self.open_seqs: dict[int, None] = {}
        self.foreign: dict[int, int] = {}
        """Sequence numbers of foreign spans that are open, by span id."""
        self.last_seq = 0
        self.sealed = False
        self.beats: tuple[str, Any, Any] | None = None
        """What heartbeats need to know, while the segment goes on."""
        self.beat_at = 0.0
        """When the last one was (monotonic seconds)."""
        self.lock = threading.RLock()
        """Held while the totals change."""
        self.common: dict[str, Any] = {
            semconv.RUN_ID: str(run_id),
            semconv.SEGMENT_ID: self.id,
            semconv.SEGMENT: number,
        }

    def next_seq(self) -> int:
        """Hand out the next sequence number; it stays open until `ended`."""
        with self.lock:
            seq = self.last_seq = self.last_seq + 1
            self.open_seqs[seq] = None
        return seq

    def next_round(self, agent: Numbering) -> tuple[int, int]:
        """Hand out a sequence number and the agent's next round number, and count the round."""
        with self.lock:
            seq = self.last_seq = self.last_seq + 1
            self.open_seqs[seq] = None
            number = agent.rounds = agent.rounds + 1
            totals = self.totals
            totals.rounds += 1
            totals.rounds_without_usage += 1
        return seq, number

    def count_round(self, agent: Numbering) -> None:
        """Count a round of which there is no span."""
        totals = self.totals
        with self.lock:
            self.last_seq += 1
            agent.rounds += 1
            totals.rounds += 1
            totals.rounds_without_usage += 1

    def ended(self, seq: int) -> None:
        """Note that the span with this number has ended."""
        self.open_seqs.pop(seq, None)

    def next_tool_call(self) -> int:
        """Hand out the next sequence number, for a tool call, and count that."""
        with self.lock:
            seq = self.last_seq = self.last_seq + 1
            self.open_seqs[seq] = None
            self.totals.tool_calls += 1
        return seq

    def count_decision(self, denied: int) -> None:
        """Add a decision to the totals; `denied` is 1 for a denial, else 0."""
        with self.lock:
            self.totals.decisions += 1
            self.totals.denials += denied

    def count_up(self) -> None:
        """Add to the totals what has ended until now."""
        while True:
            with self.lock:  # for one at a time: somebody may wait for it
                if not self.uncounted:
                    return
                try:
                    self.uncounted.popleft().count(self.totals)
                except Exception:
                    record_failure("count what has ended")

    def sums(self) -> Totals:
        """Return the totals of the segment so far."""
        self.count_up()
        with self.lock:
            return copy(self.totals)

    def cumulative(self) -> Totals:
        """Return the totals of the run so far, earlier segments included."""
        totals = self.sums()
        return totals if self.carried is None else self.carried.plus(totals)


class Segments:
    """The segments of this process: open ones by trace id, and how often a run id was used."""

    def __init__(self) -> None:
        self._open: dict[int, Segment] = {}
        self._used: OrderedDict[int, int] = OrderedDict()
        self._lock = threading.Lock()

    def open(
        self, run_id: uuid.UUID, *, number: int | None = None, carried: Totals | None = None
    ) -> Segment:
        """Open a segment; without a number, a run id used before restarts the run.

        Args:
            run_id: the run.
            number: the segment's number where a reference tells it.
            carried: totals of the earlier segments.
        """
        with self._lock:
            used = self._used.pop(run_id.int, 0)
            restart = number is None and used > 0
            number = number or used + 1
            self._used[run_id.int] = max(number, used)
            if len(self._used) > _REMEMBERED:
                self._used.popitem(last=False)
        segment = Segment(run_id, number=number, restart=restart, carried=carried)
        self._open[segment.trace_id] = segment
        return segment

    def close(self, segment: Segment) -> None:
        """Forget a sealed segment, unless a later one of the same run has taken its place."""
        if self._open.get(segment.trace_id) is segment:
            del self._open[segment.trace_id]

    def opened(self) -> list[Segment]:
        """Return the open segments."""
        return list(self._open.values())

    def of_trace(self, trace_id: int) -> Segment | None:
        """Return the open segment of a trace."""
        return self._open.get(trace_id)

    def renew(self) -> None:
        """Open all locks, in a forked child: a thread of the parent may have held one."""
        self._lock = threading.Lock()
        for segment in self.opened():
            segment.lock = threading.RLock()


def foreign_stamp(segment: Segment, seq: int, agent_id: str | None) -> Mapping[str, Any]:
    """Return the identity attributes for a span of another library in a run's trace."""
    stamp = {**segment.common, semconv.SEQ: seq}
    if agent_id is not None:
        stamp[semconv.AGENT_ID] = agent_id
    return stamp
