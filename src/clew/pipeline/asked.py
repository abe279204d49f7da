"""Tool calls that models asked for, and whether anybody recorded their execution.

A request that carries results for calls that an earlier response asked for tells two things: which
trace it belongs to, when there is no run around it, and that the tools were executed in between.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Sequence

from opentelemetry.trace import SpanContext

from clew._forks import new_in_each_child
from clew.facts import ToolCall

_lock = threading.Lock()
"""One for all, so that a forked child can have a new one: nobody holds it for long."""
new_in_each_child(globals(), "_lock", threading.Lock)


class Asked:
    """One tool call that a model asked for."""

    __slots__ = ("anchor", "ended_ns", "id", "known", "name", "recorded", "round")

    def __init__(
        self,
        call: ToolCall,
        known: bool,
        round_number: int | None,
        ended_ns: int,
        anchor: SpanContext,
    ) -> None:
        self.id = call.id
        self.name = call.name
        self.known = known
        """Whether the name was offered or registered, and not only chosen by the model."""
        self.round = round_number
        self.ended_ns = ended_ns
        """When the round that asked for it ended (ns since the epoch)."""
        self.anchor = anchor
        """The span under which what answers it belongs, where there is no run."""
        self.recorded = False


class AskedCalls:
    """The tool calls asked for, by id; the oldest are forgotten. Safe in several threads."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._calls: OrderedDict[str, Asked] = OrderedDict()
        self._unrecorded: set[str] = set()
        """Ids of those that nobody has recorded."""

    def ask(self, calls: Iterable[Asked]) -> None:
        """Remember tool calls that a response asked for; those without an id cannot be."""
        with _lock:
            for call in calls:
                if call.id:
                    self._calls[call.id] = call
                    self._unrecorded.add(call.id)
            while len(self._calls) > self._limit:
                self._unrecorded.discard(self._calls.popitem(last=False)[0])

    def execute(self, call_id: str | None, name: str | None) -> Asked | None:
        """Note that an execution is being recorded; return the call that asked for it.

        Without an id it is the oldest one of that name that nobody has recorded yet.
        """
        if not self._calls:
            return None
        with _lock:
            found = self._calls.get(call_id) if call_id else None
            if found is None and not call_id:
                found = next(
                    (c for c in self._calls.values() if c.name == name and not c.recorded), None
                )
            if found is not None:
                found.recorded = True
                self._unrecorded.discard(found.id or "")
            return found

    def answered(self, call_ids: Sequence[str]) -> tuple[Asked | None, list[Asked]]:
        """Return the latest call that is answered, and those that nobody has recorded.

        The latter count as recorded from now on: each is returned once.
        """
        latest: Asked | None = None
        missed: list[Asked] = []
        if not self._calls:
            return None, missed
        # A request carries the results of the whole conversation: most are long known.
        with _lock:
            for call_id in reversed(call_ids):
                latest = self._calls.get(call_id)
                if latest is not None:
                    break
            if not self._unrecorded.isdisjoint(call_ids):
                for call_id in call_ids:
                    if call_id in self._unrecorded:
                        self._unrecorded.discard(call_id)
                        call = self._calls[call_id]
                        call.recorded = True
                        missed.append(call)
        return latest, missed

    def model_chose(self, name: str | None) -> bool:
        """Tell whether a model asked for a tool of this name that nobody had offered."""
        if not self._calls:
            return False
        with _lock:
            return any(call.name == name and not call.known for call in self._calls.values())

    def clear(self) -> None:
        """Forget all."""
        with _lock:
            self._calls.clear()
            self._unrecorded.clear()
