"""The thread that sweeps: at start, then every six hours, and when somebody asks."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

from clew._guard import guard
from clew.recording import switch
from clew.settings import Settings
from clew.store.retention import Retention, Swept, sweep

INTERVAL_S: Final = 6 * 3600.0


def retention_of(settings: Settings) -> Retention:
    """Return what may stay: as the settings force it, else as the switch says."""
    days = settings.prompt_retention_days
    if days is None:
        days = switch.read(settings.data_dir).retention_days
    return Retention(keep_days=days, max_bytes=settings.prompt_max_bytes)


class Sweeper:
    """Sweeps a data folder until it is stopped.

    Args:
        folder: the data folder.
        retention: what may stay, asked before each sweep.
        interval: seconds between two sweeps.
    """

    def __init__(
        self, folder: Path, retention: Callable[[], Retention], interval: float = INTERVAL_S
    ) -> None:
        self._folder = folder
        self._retention = retention
        self._interval = interval
        self._started = self._stopping = False
        self._due = threading.Event()
        self._thread = threading.Thread(target=self._run, name="clew-sweep", daemon=True)
        self.sweeps = 0
        self.last: Swept | None = None

    def start(self) -> None:
        """Sweep now, and from then on every interval; called again it does nothing."""
        if not self._started:
            self._started = True
            self._due.set()
            self._thread.start()

    def now(self) -> None:
        """Sweep soon, not only when it is time."""
        self._due.set()

    def stop(self, timeout: float | None = None) -> bool:
        """Stop, a running sweep too; tell whether the thread has ended in time."""
        self._stopping = True
        self._due.set()
        if self._started:
            self._thread.join(timeout)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while not self._stopping:
            self._due.wait(self._interval)
            self._due.clear()
            if self._stopping:
                return
            with guard("sweep the records"):
                self.last = sweep(self._folder, self._retention(), stop=lambda: self._stopping)
            self.sweeps += 1
