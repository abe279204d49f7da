"""Switching recording on and off in a running process.

The settings may force it either way; else the switch in the data folder is looked at whenever the
export thread has a turn, but every few seconds. While it is off there is no recorder, and nothing
is asked for it on the caller's path.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from clew._guard import guard
from clew.pipeline.runtime import Runtime
from clew.recording import switch
from clew.settings import Settings

if TYPE_CHECKING:
    from clew.recording.recorder import Recorder

LOOK_S: Final = 5.0
"""Seconds between two looks at the switch, at the most; half of them at the least."""


def forced(settings: Settings) -> bool | None:
    """Return what the settings force; None where the switch decides."""
    if settings.prompt_capture is not None:
        return settings.prompt_capture
    return True if "store" in settings.content_to else None


def wanted(settings: Settings) -> bool:
    """Tell whether calls are recorded: as the settings force it, else as the switch says."""
    said = forced(settings)
    return switch.read(settings.data_dir).enabled if said is None else said


class Recording:
    """Whether the calls of one runtime are recorded."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._recorder: Recorder | None = None
        self._forced = forced(runtime.settings)
        self._stopped = False
        self._looked = 0.0

    def start(self) -> None:
        """Record if that is wanted, and watch the switch unless something is forced."""
        self._look()
        if self._forced is None:
            self._runtime.worker.each_turn(self.look, every=LOOK_S)
            self._runtime.worker.start()

    def look(self) -> None:
        """Look at the switch and do what it says, if the last look was a while ago."""
        if not self._stopped and time.monotonic() - self._looked >= LOOK_S / 2:
            self._look()

    def _look(self) -> None:
        self._looked = time.monotonic()
        on = self._forced
        if on is None:
            on = switch.read(self._runtime.settings.data_dir).enabled
        if on != (self._runtime.recorder is not None):
            self._turn(on=on)

    def _turn(self, *, on: bool) -> None:
        with guard("switch the recording of model calls"):
            if on and self._recorder is None:
                from clew.recording.recorder import Recorder

                self._recorder = Recorder(self._runtime)
                self._recorder.start()
            self._runtime.recorder = self._recorder if on else None
            if on:
                self._runtime.capturing = True

    def lost(self) -> tuple[int, int] | None:
        """Return how many calls found the queue full, and how many could not be written."""
        recorder = self._recorder
        return None if recorder is None else (recorder.dropped, recorder.failed)

    def flush(self, timeout: float) -> bool:
        """Write what was submitted until now; tell whether that was done in time (s)."""
        return self._recorder is None or self._recorder.flush(timeout)

    def shutdown(self, deadline: float) -> None:
        """Write what is waiting, and stop, before the monotonic time `deadline`."""
        self._stopped = True
        self._runtime.recorder = None
        if self._recorder is not None:
            self._recorder.shutdown(deadline)
