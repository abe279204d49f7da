"""The journal: what is about to happen, on the disk before it does.

One JSON object a line, in one file a day (UTC), appended and synced (`fsync`) by whichever process
acts; several may write to the same file. Only facts that may leave as attributes stand in it. A
process that is killed right after leaves a line here though its spans are lost, and `clew verify`
names them.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Literal, TypeVar

import msgspec
from msgspec import Struct

from clew._guard import record_failure

FOLDER: Final = "journal"
_encoder: Final = msgspec.json.Encoder()
_BEGINNING: Final = b'{"time_ns":'
T = TypeVar("T")


class Entry(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line."""

    time_ns: int
    kind: Literal["tool", "decision"]
    trace_id: str
    span_id: str
    segment_id: str | None = None
    seq: int | None = None
    facts: dict[str, Any] = {}
    """Attributes of the span, as far as they are known by then."""


class Journal:
    """Writes the journal of one process.

    Args:
        data_dir: the data folder.
        fail_closed: whether what cannot be written must not happen.
    """

    def __init__(self, data_dir: Path, *, fail_closed: bool) -> None:
        self._folder = data_dir / FOLDER
        self.fail_closed = fail_closed
        self.failed = 0
        """Entries that could not be written."""
        self.written = 0
        self._day = ""
        self._handle = -1
        self._lock = threading.Lock()

    def write(
        self,
        kind: Literal["tool", "decision"],
        ids: tuple[int, int],
        segment_id: str | None,
        seq: int | None,
        facts: Mapping[str, Any],
    ) -> bool:
        """Write a line and wait until it is on the disk; return whether it is. Never raises.

        Args:
            kind: what is about to happen.
            ids: trace id and span id.
            segment_id: the segment, in a run.
            seq: the span's number in it.
            facts: attributes that have obeyed their rules.
        """
        try:
            entry = Entry(
                time_ns=time.time_ns(),
                kind=kind,
                trace_id=f"{ids[0]:032x}",
                span_id=f"{ids[1]:016x}",
                segment_id=segment_id,
                seq=seq,
                facts=dict(facts),
            )
            line = _encoder.encode(entry) + b"\n"
            with self._lock:
                handle = self._open(entry.time_ns)
                # A line of another process may come between two lines, never into one.
                if os.write(handle, line) != len(line):
                    raise OSError("the disk is full")
                os.fsync(handle)
                self.written += 1
        except Exception:
            record_failure("write the journal")
            self.failed += 1
            self.close()
            return False
        return True

    def _open(self, time_ns: int) -> int:
        day = datetime.fromtimestamp(time_ns // 1_000_000_000, UTC).strftime("%Y-%m-%d")
        if day != self._day or self._handle < 0:
            if self._handle >= 0:
                os.close(self._handle)
                self._handle = -1
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            path = self._folder / f"{day}.jsonl"
            self._handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            self._day = day
            folder = os.open(self._folder, os.O_RDONLY)
            try:
                os.fsync(folder)  # so that a new file is found again
            finally:
                os.close(folder)
        return self._handle

    def close(self) -> None:
        """Close the file; it is opened again when it is needed."""
        with self._lock:
            if self._handle >= 0:
                os.close(self._handle)
                self._handle = -1


def read(data_dir: Path, since_ns: int = 0) -> Iterator[Entry]:
    """Give the entries of all days, oldest first; a line that was cut off by a crash is left out.

    Args:
        data_dir: the data folder.
        since_ns: only entries from then on (ns since 1970).
    """
    return (each for each in lines(data_dir / FOLDER, Entry) if each.time_ns >= since_ns)


def lines(folder: Path, kind: type[T]) -> Iterator[T]:
    """Give what stands in a folder's files of one day each, oldest first; cut-off lines left out.

    Args:
        folder: where the files are.
        kind: what a line holds.
    """
    decoder = msgspec.json.Decoder(kind)
    for path in sorted(folder.glob("????-??-??.jsonl")):
        with path.open("rb") as file:
            for line in file:
                entry = _last_of(line, decoder)
                if entry is not None:
                    yield entry


def _last_of(line: bytes, decoder: msgspec.json.Decoder[T]) -> T | None:
    """Return what a line holds; of one that was cut off, what another process wrote behind it."""
    start = line.rfind(_BEGINNING)
    try:
        return None if start < 0 else decoder.decode(line[start:])
    except msgspec.MsgspecError:
        return None
