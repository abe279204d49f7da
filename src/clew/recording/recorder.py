"""The recorder: a bounded queue on the caller's side, and a thread that writes what is in it."""

from __future__ import annotations

import threading
import time
import uuid
from typing import Final

from clew._forks import in_each_child
from clew._guard import guard, logger, record_failure
from clew.errors import StoreError
from clew.pipeline.runtime import Runtime
from clew.pipeline.worker import Worker
from clew.recording.building import Call, build
from clew.recording.sweeper import Sweeper, retention_of
from clew.store.prompt_index import RecordStore
from clew.store.prompt_records import PromptRecord, PromptRow

QUEUE_SIZE: Final = 512
"""Finished calls that wait at the most."""
MOST_BYTES: Final = 64 * 1024 * 1024
"""Bytes of bodies that wait at the most."""
_AT_ONCE: Final = 32
_DELAY_S: Final = 0.25
_PARTS: Final = 20
"""Of the bytes that may stay, how small a part of new ones is worth a sweep."""


class Recorder:
    """Takes finished calls and writes them to the data folder.

    `submit` neither waits nor raises: what does not fit into the queue is dropped and counted.

    Args:
        runtime: the runtime whose calls are recorded.
        queue_size: calls that wait at the most.
        most_bytes: bytes of bodies that wait at the most.
    """

    def __init__(
        self, runtime: Runtime, *, queue_size: int = QUEUE_SIZE, most_bytes: int = MOST_BYTES
    ) -> None:
        self._runtime = runtime
        self._most_bytes = most_bytes
        self.folder = runtime.settings.data_dir
        self.written = 0
        """Records that were written."""
        self.failed = 0
        """Records that could not be written."""
        self._overflowed = 0
        self._held = 0
        self._lock = threading.RLock()  # re-entered where a finaliser ends a call
        self._store: RecordStore | None = None
        self._inherited: RecordStore | None = None
        self._bytes = 0
        self._saving = threading.Lock()
        self._closed = False
        self._worker = Worker(
            self, queue_size=queue_size, batch_size=_AT_ONCE, delay=_DELAY_S, name="clew-record"
        )
        self._sweeper = self._new_sweeper()
        in_each_child(self, _after_fork)

    @property
    def dropped(self) -> int:
        """Calls that did not fit into the queue."""
        return self._overflowed + self._worker.dropped

    def start(self) -> None:
        """Begin to sweep; the writing thread starts with the first call."""
        self._sweeper.start()

    def submit(self, call: Call) -> None:
        """Queue a finished call."""
        size = call.size
        with self._lock:
            if self._held + size > self._most_bytes or self._closed:
                self._overflowed += 1
                return
            self._held += size
        if not self._worker.submit((call, size)):
            with self._lock:
                self._held -= size

    def flush(self, timeout: float) -> bool:
        """Write what was submitted until now; tell whether that was done in time."""
        return self._worker.flush(timeout)

    def shutdown(self, deadline: float) -> None:
        """Stop the sweeper, write the rest, then close the store.

        Args:
            deadline: monotonic time until which that may take.
        """
        self._sweeper.stop(max(0.05, (deadline - time.monotonic()) / 2))
        left = self._worker.shutdown(max(0.05, deadline - time.monotonic()))
        self._closed = True
        lost = left + self.dropped + self.failed
        if lost:
            logger.warning("Clew has lost %d records of model calls", lost)

    # --- on the writing thread -------------------------------------------------------------------

    def export(self, batch: list[tuple[Call, int]]) -> None:
        """Write a batch of calls, each with the bytes that it was counted with."""
        built: list[tuple[PromptRow, PromptRecord | None]] = []
        for call, size in batch:
            with self._lock:
                self._held -= size
            try:
                built.append(build(self._runtime, call, uuid.uuid4().hex))
            except Exception:
                self.failed += 1
                record_failure("read a call that is to be recorded")
        if built:
            with self._saving:
                self._save(built)

    def _save(self, built: list[tuple[PromptRow, PromptRecord | None]]) -> None:
        for last in (False, True):
            try:
                if self._store is None:
                    self._store = RecordStore(self.folder)
                self._bytes += self._store.save(built)
            except StoreError:
                self._let_go()
                if last:
                    self.failed += len(built)
                    record_failure("record model calls")
            except Exception:
                # One of them cannot be written, whatever it holds: the others can.
                if len(built) == 1:
                    self.failed += 1
                    record_failure("write the record of a model call")
                for each in built if len(built) > 1 else ():
                    self._save([each])
                return
            else:
                self.written += len(built)
                self._sweeper.start()
                self._look_at_the_size()
                return

    def _look_at_the_size(self) -> None:
        """Have the records swept when this process has written more than may stay.

        Not for each call: what cannot go, because of a legal hold, would be looked at every time.
        """
        swept = self._sweeper.last
        before = 0 if swept is None else swept.kept_bytes
        most = self._runtime.settings.prompt_max_bytes
        if before + self._bytes > most and self._bytes * _PARTS > most:
            self._bytes = 0
            self._sweeper.now()

    def _let_go(self) -> None:
        store, self._store = self._store, None
        if store is not None:
            with guard("close the records"):
                store.close()

    def close(self, deadline: float) -> None:
        """Close the store, once nothing is being written to it any more."""
        if self._saving.acquire(timeout=max(0.0, deadline - time.monotonic())):
            try:
                self._let_go()
            finally:
                self._saving.release()

    def hurry(self, deadline: float) -> None:
        """Do nothing: what is written does not wait for anybody elsewhere."""

    def keeps(self) -> bool:
        """Say that what is not written in time is not kept either."""
        return False

    def keep(self, batch: list[tuple[Call, int]]) -> None:
        """Count a batch as lost."""
        self.failed += len(batch)

    # --- a forked child ------------------------------------------------------------------------

    def _new_sweeper(self) -> Sweeper:
        settings = self._runtime.settings
        return Sweeper(self.folder, lambda: retention_of(settings))

    def reset_after_fork(self) -> None:
        """Start anew: the open file and the sweeper are the parent's; the worker sees to itself."""
        self._lock = threading.RLock()
        self._saving = threading.Lock()
        self._inherited = self._store  # a file of SQLite is not closed by another process
        self._store = None
        self._held = self._bytes = 0
        self._sweeper = self._new_sweeper()


def _after_fork(recorder: Recorder) -> None:
    if not recorder._closed:
        with guard("restart the recorder after a fork"):
            recorder.reset_after_fork()
