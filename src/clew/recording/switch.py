"""The one switch of an installation: whether model calls are recorded, and how long they are kept.

It is a small file in the data folder, so that it holds for every process that uses the folder, and
for running ones too. What cannot be read is off, and said.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from clew._guard import warn_once
from clew.errors import StoreError

FILE_NAME: Final = "prompt-capture.json"
DEFAULT_RETENTION_DAYS: Final = 7


class Switch(Struct, frozen=True, kw_only=True):
    """What the switch says."""

    enabled: bool = False
    retention_days: int = DEFAULT_RETENTION_DAYS
    """Days that records are kept; one that is not above 0 is read as 7."""


def path_of(folder: Path) -> Path:
    """Return the switch's file in a data folder."""
    return folder / FILE_NAME


def read(folder: Path) -> Switch:
    """Return what the switch says: off where nobody has touched it, or where it is unreadable."""
    path = path_of(folder)
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return Switch()
    except OSError as error:
        warn_once(
            f"read the switch {path}",
            "The switch %s cannot be read (%s): recording is off",
            *(path, error.strerror or type(error).__name__),
        )
        return Switch()
    try:
        found = msgspec.json.decode(data)
        enabled, days = found.get("enabled"), found.get("retention_days")
    except (msgspec.DecodeError, UnicodeError, AttributeError):
        warn_once(
            f"understand the switch {path}",
            "The switch %s is damaged: recording is off; `clew prompt capture on|off` mends it",
            path,
        )
        return Switch()
    fine = isinstance(days, int) and not isinstance(days, bool) and days > 0
    return Switch(enabled=enabled is True, retention_days=days if fine else DEFAULT_RETENTION_DAYS)


def write(folder: Path, *, enabled: bool, retention_days: int | None = None) -> Switch:
    """Set the switch; return what it says now.

    Args:
        folder: the data folder, made if it is missing.
        enabled: whether model calls are recorded.
        retention_days: days that records are kept; None, and what is not above 0, leaves the
            value that is there.

    Raises:
        StoreError: it cannot be written.
    """
    before = read(folder)
    keep = retention_days if retention_days is not None and retention_days > 0 else None
    now = Switch(enabled=enabled, retention_days=keep or before.retention_days)
    path = path_of(folder)
    unfinished = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle = os.open(unfinished, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600)
        with os.fdopen(handle, "wb") as file:
            file.write(msgspec.json.format(msgspec.json.encode(now), indent=2) + b"\n")
        unfinished.replace(path)
    except OSError as error:
        raise StoreError(f"the switch {path} cannot be written: {error.strerror}") from None
    return now
