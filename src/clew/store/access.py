"""The log of accesses: who read content, and when. Lines are only ever added.

One JSON object a line, in one file a day (UTC) in the data folder, 0600.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from clew.errors import StoreError
from clew.store.journal import lines

FOLDER: Final = "access"
_encoder: Final = msgspec.json.Encoder()


class Reading(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One reading of content."""

    time_ns: int
    reader: str
    """Who read it: the id that the authenticator gave, or `local:<user>` for a shell."""
    what: str
    """What was read: `prompt`, `response`, `diff`, `export`."""
    run_id: str | None = None
    record_id: str | None = None
    tenant: str | None = None


class AccessLog:
    """Writes the log of accesses.

    Args:
        data_dir: the data folder.
    """

    def __init__(self, data_dir: Path) -> None:
        self._folder = data_dir / FOLDER

    def write(
        self,
        reader: str,
        what: str,
        *,
        run_id: str | None = None,
        record_id: str | None = None,
        tenant: str | None = None,
    ) -> Reading:
        """Add a line and wait until it is on the disk. Call it before the content is shown.

        Raises:
            StoreError: it could not be written; then nothing may be shown.
        """
        reading = Reading(
            time_ns=time.time_ns(),
            reader=reader,
            what=what,
            run_id=run_id,
            record_id=record_id,
            tenant=tenant,
        )
        line = _encoder.encode(reading) + b"\n"
        day = datetime.fromtimestamp(reading.time_ns // 1_000_000_000, UTC).strftime("%Y-%m-%d")
        path = self._folder / f"{day}.jsonl"
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            try:
                if os.write(handle, line) != len(line):
                    raise OSError("the disk is full")
                os.fsync(handle)
            finally:
                os.close(handle)
        except OSError as error:
            raise StoreError(f"the log of accesses {path} cannot be written: {error}") from None
        return reading


def read(data_dir: Path) -> Iterator[Reading]:
    """Give all readings, oldest first; a line that was cut off by a crash is left out."""
    return lines(data_dir / FOLDER, Reading)
