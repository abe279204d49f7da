"""Batches that wait on the disk: one file each, in order, bounded, whole or not there.

A file is written beside its place, synced and renamed, so that a crash leaves no half of one. Its
name says all that has to be known without reading it: when it was written (ns since 1970), by which
process, its number there, how many spans it has, and the checksum of its content. Several processes
share a folder; the right to send what waits is a lock that ends with its process.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import time
import zlib
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from clew._guard import record_failure, warn_once

try:
    import fcntl
except ImportError:  # a system without such locks: each process sends what it finds
    fcntl = None

SUFFIX: Final = ".otlp"
_TEMPORARY: Final = ".tmp"
_LOCK: Final = "lock"
_STALE_S: Final = 3600.0
"""Age (s) of a half-written file whose process must be gone."""
_LOOK_S: Final = 5.0
"""Seconds between two looks for what other processes have left."""


class Waiting(NamedTuple):
    """One batch that waits."""

    name: str
    spans: int
    bytes: int

    @property
    def since_ns(self) -> int:
        """When it was written (ns since 1970)."""
        return int(self.name.partition("-")[0])


def folder_for(spool_dir: Path, endpoint: str) -> Path:
    """Return the folder for one receiver: what waits for one is never sent to another."""
    return spool_dir / hashlib.sha256(endpoint.encode()).hexdigest()[:16]


class Spool:
    """The batches that wait for one receiver. One thread at a time.

    Args:
        folder: where they lie; made (0700) when the first one is written.
        most: bytes that they take together at the most; of more, the oldest are given up.
    """

    def __init__(self, folder: Path, most: int) -> None:
        self.folder = folder
        self._most = most
        self._numbers = itertools.count(1)
        self._looked = -_LOOK_S
        self.waiting = False
        """Whether something waits, as far as is known."""
        self.dropped = 0
        """Spans that were given up: for want of room, or because their file was damaged."""
        self.failed = 0
        """Batches that could not be written."""

    def look(self) -> bool:
        """Tell whether something waits; looks at the disk every few seconds."""
        now = time.monotonic()
        if not self.waiting and now - self._looked >= _LOOK_S:
            self._looked = now
            self.waiting = bool(self.files())
        return self.waiting

    def add(self, data: bytes, spans: int) -> bool:
        """Write a batch and wait until it is on the disk; return whether it is. Never raises."""
        try:
            if len(data) > self._most:
                raise ValueError("the batch is larger than the spool")
            self._make_room(len(data))
            try:
                self._write(data, spans)
            except OSError:
                # The disk may be full of our own: what is oldest makes room for what is new.
                if not self._give_up_oldest(len(data)):
                    raise
                self._write(data, spans)
        except Exception:
            record_failure("write to the spool")
            self.failed += 1
            return False
        self.waiting = True
        return True

    def _write(self, data: bytes, spans: int) -> None:
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        stamp = f"{time.time_ns():020d}-{os.getpid()}-{next(self._numbers):08d}"
        name = f"{stamp}-{spans}-{zlib.crc32(data):08x}{SUFFIX}"
        beside = self.folder / f"{stamp}{_TEMPORARY}"
        handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            try:
                left = memoryview(data)
                while left:
                    left = left[os.write(handle, left) :]
                os.fsync(handle)
            finally:
                os.close(handle)
            beside.rename(self.folder / name)
        except BaseException:
            beside.unlink(missing_ok=True)
            raise
        if hasattr(os, "O_DIRECTORY"):
            folder = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(folder)  # so that the new name is found again
            finally:
                os.close(folder)

    def files(self) -> list[Waiting]:
        """Return what waits, oldest first; removes half-written files of processes long gone."""
        found: list[Waiting] = []
        try:
            with os.scandir(self.folder) as entries:
                for entry in entries:
                    one = _parse(entry)
                    if one is not None:
                        found.append(one)
                    elif entry.name.endswith(_TEMPORARY):
                        self._remove_stale(entry)
        except OSError:  # it is not there, or cannot be read: nothing that could be sent
            return []
        return sorted(found)

    def _remove_stale(self, entry: os.DirEntry[str]) -> None:
        try:
            if time.time() - entry.stat().st_mtime > _STALE_S:
                (self.folder / entry.name).unlink(missing_ok=True)
        except OSError:
            return

    def read(self, waiting: Waiting) -> bytes | None:
        """Return the content of one; None where it is gone or damaged, and then it is removed."""
        try:
            data = (self.folder / waiting.name).read_bytes()
        except FileNotFoundError:
            return None
        if f"{zlib.crc32(data):08x}" == waiting.name.removesuffix(SUFFIX).rpartition("-")[2]:
            return data
        self.dropped += waiting.spans
        warn_once(
            "read the spool",
            "A batch of spans that waited on the disk is damaged and was removed (%d spans)",
            waiting.spans,
        )
        self.remove(waiting)
        return None

    def remove(self, waiting: Waiting) -> None:
        """Remove one: it has been delivered, or never will be."""
        (self.folder / waiting.name).unlink(missing_ok=True)

    def _make_room(self, wanted: int) -> None:
        found = self.files() if self.folder.is_dir() else []
        total = sum(one.bytes for one in found)
        for oldest in found:
            if total + wanted <= self._most:
                return
            self._drop(oldest)
            total -= oldest.bytes

    def _give_up_oldest(self, wanted: int) -> bool:
        """Remove old batches of as many bytes; return whether there were any."""
        freed = 0
        for oldest in self.files():
            if freed >= wanted:
                break
            self._drop(oldest)
            freed += oldest.bytes
        return freed > 0

    def _drop(self, oldest: Waiting) -> None:
        self.remove(oldest)
        self.dropped += oldest.spans
        warn_once(
            "keep spans in the spool",
            "The spool %s is full: the oldest spans that wait in it are given up "
            "(CLEW_SPOOL_MAX_BYTES)",
            self.folder,
        )

    @contextmanager
    def claimed(self) -> Generator[bool]:
        """Give the right to send what waits; False where another process has it."""
        handle = os.open(self.folder / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            # A lock of the process: a forked child does not have it.
            mine = True
            if fcntl is not None:
                try:
                    fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except OSError:
                    mine = False
            yield mine
        finally:
            os.close(handle)


def _parse(entry: os.DirEntry[str]) -> Waiting | None:
    if not entry.name.endswith(SUFFIX):
        return None
    parts = entry.name.removesuffix(SUFFIX).split("-")
    if len(parts) != 5 or not all(part.isdecimal() for part in parts[:4]):
        return None
    try:
        return Waiting(entry.name, int(parts[3]), entry.stat().st_size)
    except OSError:  # another process has sent it meanwhile
        return None
