"""What a configured process has: one object that the floors above share.

`get()` is None while Clew is not configured, and then everything above is a no-op.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal, Protocol

from opentelemetry.context import Context

from clew import context, levels
from clew._guard import guard
from clew.digests import LazyDigests
from clew.pipeline.asked import AskedCalls
from clew.pipeline.enrich import Folds
from clew.pipeline.late import LateCosts
from clew.pipeline.pausing import pausing
from clew.pipeline.stamp import Segments
from clew.pipeline.worker import Worker
from clew.pricing import Prices
from clew.settings import Settings

if TYPE_CHECKING:
    from opentelemetry.trace import Tracer

    from clew.pipeline.chains import Chains
    from clew.pipeline.keeping import Keeper
    from clew.pipeline.light import LightSpans
    from clew.pipeline.metrics import Metrics

_LOOSE_CALLS = 1024
_UNREAD_MOST = 24
"""Answers that may wait to be read, beside small ones."""

Observer = Callable[[Any], None]


class Unsettled(Protocol):
    """A decision that may still turn out to be a context manager."""

    def settle(self) -> None:
        """End it, unless it has been entered."""
        ...


class PutOff(Protocol):
    """A model call whose answer may wait to be read."""

    unread: Any
    """What reads it; None once that was done."""
    cost: Any
    """None until it was counted, which reads it first."""

    def count_up(self) -> object:
        """Read it."""
        ...


class Watched(Protocol):
    """A stream that is being read."""

    def check_idle(self, now: float, limit: float) -> None:
        """End it when it was idle for `limit` seconds at the monotonic time `now`."""
        ...

    def hold(self) -> None:
        """End it, because Clew shuts down."""
        ...

    def failed(self, error: BaseException) -> None:
        """End it, because of an error."""
        ...


class Journaling(Protocol):
    """Writes down what is about to happen (`clew.store.journal`)."""

    fail_closed: bool
    failed: int

    def write(
        self,
        kind: Literal["tool", "decision"],
        ids: tuple[int, int],
        segment_id: str | None,
        seq: int | None,
        facts: Mapping[str, Any],
    ) -> bool:
        """Write it and wait until it is on the disk; return whether it is. Never raises."""
        ...

    def close(self) -> None:
        """Close the file."""
        ...


class Governing(Protocol):
    """What asks the gates about tool calls, where there are any (`clew.governance.governor`)."""

    def admit_tool(
        self, name: str, call_id: str | None, effect: str | None, arguments: bytes | None
    ) -> None:
        """Let a tool call pass, or raise `PolicyDenied` or `ApprovalRequired`."""
        ...

    async def aadmit_tool(
        self, name: str, call_id: str | None, effect: str | None, arguments: bytes | None
    ) -> None:
        """Do what `admit_tool` does, in asynchronous code."""
        ...


class Recorder(Protocol):
    """What writes finished calls to the data folder (`clew.recording`)."""

    dropped: Any
    """Calls that did not fit into its queue."""

    def submit(self, call: Any) -> None:
        """Take a finished call; neither waits nor raises."""
        ...


class Closing(Protocol):
    """What has to be shut down with the runtime."""

    def lost(self) -> tuple[int, int] | None:
        """Return how many calls found the queue full, and how many could not be written.

        None where nothing was ever recorded.
        """
        ...

    def flush(self, timeout: float) -> bool:
        """Write what is waiting; tell whether that was done in time (s)."""
        ...

    def shutdown(self, deadline: float) -> None:
        """Stop, before the monotonic time `deadline`."""
        ...


class Runtime:
    """The parts of a configured Clew.

    `observers` are called with each finished `clew.endings.RoundRecord`, on the thread that
    finished it; they must not block, and what they raise is swallowed.
    """

    def __init__(
        self,
        *,
        tracer: Tracer,
        settings: Settings,
        prices: Prices,
        worker: Worker,
        digests: LazyDigests | None = None,
    ) -> None:
        self.tracer = tracer
        self.settings = settings
        self.prices = prices
        self.worker = worker
        self.segments = Segments()
        self.late = LateCosts(prices)
        self.folds = Folds()
        self.loose = AskedCalls(_LOOSE_CALLS)
        """Tool calls asked for outside a run."""
        self.digests = digests or digests_of(settings)
        self.capture_level = levels.number_of(settings.capture)
        """The capture level of this process."""
        self.capture_max = max(
            self.capture_level, levels.number_of(settings.capture_max or settings.capture)
        )
        """The level up to which a run may be raised."""
        self.capturing = self.capture_level != levels.METADATA
        """Whether a level other than the default may be in force somewhere. The one look at
        capture that every span takes."""
        self.observers: list[Observer] = []
        self.light: LightSpans | None = None
        """Makes our spans where the provider is Clew's own."""
        self.journal: Journaling | None = None
        """Writes down what is about to happen, where that is wanted."""
        self.keeper: Keeper | None = None
        """Decides which of the runs that are sampled out are kept."""
        self.chains: Chains | None = None
        """Gives our spans their digests as they end, where no exporter of ours will."""
        self.metrics: Metrics | None = None
        """Counts what happens, where somebody wants metrics."""
        self.governor: Governing | None = None
        """Asks the gates; None where none is configured."""
        self.govern: Callable[[], None] | None = None
        """Makes the governor, for the first run that brings gates of its own."""
        self.recorder: Recorder | None = None
        """Writes finished calls to the data folder; None while recording is off."""
        self.recording: Closing | None = None
        """Switches the recorder on and off."""
        self._streams: dict[int, Watched] = {}
        self._watching = False
        self._unread: deque[PutOff] = deque()
        self.beating = False
        """Whether somebody looks for runs whose heartbeat is due."""
        self.unsettled: list[tuple[int, Unsettled]] = []
        """Decisions made by a plain call, each with its thread, not yet ended: the very next
        thing that thread does may be to enter one as a context manager."""

    def level_in(self, within: Context) -> int:
        """Return the capture level in force in a context."""
        asked = context.asked_level(within)
        return levels.effective(asked, self.capture_level, self.capture_max)

    def reads(self) -> bool:
        """Tell whether somebody needs what is read of calls that nobody will see a span of."""
        return (
            self.metrics is not None
            or self.governor is not None
            or self.recorder is not None
            or self.capturing
            or any(observer != self.folds.told for observer in self.observers)
        )

    def settle(self, *, everywhere: bool = False) -> None:
        """End the decisions that this thread (or any) made by a plain call."""
        here = threading.get_ident()
        for entry in list(self.unsettled):
            if everywhere or entry[0] == here:
                try:
                    self.unsettled.remove(entry)
                except ValueError:  # another thread was faster
                    continue
                entry[1].settle()

    def watch(self, stream: Watched) -> None:
        """Look after a stream that is being read: an idle one is ended as `held`."""
        self._streams[id(stream)] = stream
        if not self._watching:
            self._watching = True
            self._look_again()

    def unwatch(self, stream: Watched) -> None:
        """Stop looking after a stream."""
        self._streams.pop(id(stream), None)

    def streaming(self) -> int:
        """Return how many streams are being read, at least one."""
        return len(self._streams) or 1

    def put_off(self, call: PutOff) -> bool:
        """Let the answer of a finished call wait to be read; False where too many do."""
        waiting = self._unread
        with contextlib.suppress(IndexError):  # another thread may take the last one
            while waiting[0].unread is None or waiting[0].cost is not None:
                waiting.popleft()
        if len(waiting) >= _UNREAD_MOST:
            return False
        waiting.append(call)
        if len(waiting) == _UNREAD_MOST // 2:
            self.worker.call_soon(self._read_unread)
        return True

    def _read_unread(self) -> None:
        for call in pausing(list(self._unread)):
            call.count_up()

    def hold_streams(self) -> None:
        """End the rounds of all streams that are half-read (at shutdown)."""
        for stream in list(self._streams.values()):
            stream.hold()

    def interrupt_streams(self, error: BaseException) -> None:
        """End the rounds of all streams that are half-read (because the process ends)."""
        for stream in list(self._streams.values()):
            with guard("end a stream"):
                stream.failed(error)

    def _look_again(self) -> None:
        limit = self.settings.stream_idle_s
        self.worker.call_later(max(0.02, min(limit / 4, 30.0)), self._look)

    def _look(self) -> None:
        now = time.monotonic()
        for stream in list(self._streams.values()):
            with guard("look after a stream"):
                stream.check_idle(now, self.settings.stream_idle_s)
        if self._streams:
            self._look_again()
        else:
            self._watching = False

    def observe(self, record: Any) -> None:
        """Tell the observers of a finished round or call."""
        for observer in self.observers:
            with guard("tell an observer"):
                observer(record)


def digests_of(settings: Settings) -> LazyDigests:
    """Return the digests that settings ask for; the key is found when the first is made."""
    key = settings.digest_key
    return LazyDigests(key.get_secret_value() if key else None, settings.data_dir)


active: Runtime | None = None
"""The runtime of this process, or None while Clew is not configured; `set_current` sets it."""


def get() -> Runtime | None:
    """Return the runtime of this process, or None while Clew is not configured."""
    return active


def set_current(runtime: Runtime | None) -> None:
    """Install a runtime, or take it away."""
    global active  # noqa: PLW0603 - one per process is what it is
    active = runtime
