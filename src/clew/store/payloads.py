"""Payload files: `<data folder>/prompts/<YYYY-MM-DD>/<request id>.json`, closed to others.

A file is written beside its place and renamed into it, so that nobody reads half of one. It is
plain JSON that needs no Clew to be read. Ids never come from a caller: a path is only ever made of
a start time and a request id of ours, or read from the index, where it has to look like that.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from clew.errors import StoreError
from clew.store.prompt_records import PromptRecord, RecordNotFoundError

FOLDER: Final = "prompts"
_DAY: Final = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
_NAME: Final = re.compile(r"[0-9a-f]{32}\.json", re.ASCII)
_UNFINISHED: Final = re.compile(r"[0-9a-f]{32}\.json\.[0-9]{1,10}\.tmp", re.ASCII)
_RELATIVE: Final = re.compile(rf"{FOLDER}/\d{{4}}-\d{{2}}-\d{{2}}/[0-9a-f]{{32}}\.json", re.ASCII)
_decoder: Final = msgspec.json.Decoder(PromptRecord)


class Payload(NamedTuple):
    """One payload file, or what was left of the writing of one."""

    request_id: str
    relative: str
    size: int
    modified: float
    """Seconds since 1970."""
    finished: bool
    """False for a file that was never renamed into its place."""


def day_of(start_ns: int) -> date:
    """Return the day in UTC on which a call began."""
    return datetime.fromtimestamp(start_ns // 1_000_000_000, UTC).date()


def relative_path(start_ns: int, request_id: str) -> str:
    """Return where the payload of a call lies, below the data folder."""
    return f"{FOLDER}/{day_of(start_ns).isoformat()}/{request_id}.json"


def write(folder: Path, record: PromptRecord) -> tuple[str, int]:
    """Write a record; return its path below `folder`, and its size in bytes.

    Raises:
        OSError: it cannot be written.
    """
    relative = relative_path(record.start_ns, record.request_id)
    path = folder / relative
    data = msgspec.json.format(msgspec.json.encode(record), indent=2) + b"\n"
    # A mode given for a folder is not that of the folders above it.
    (folder / FOLDER).mkdir(mode=0o700, parents=True, exist_ok=True)
    path.parent.mkdir(mode=0o700, exist_ok=True)
    unfinished = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        handle = os.open(unfinished, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600)
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        unfinished.replace(path)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise
    return relative, len(data)


def read_bytes(folder: Path, relative: str) -> bytes:
    """Return a payload file as it is.

    Raises:
        RecordNotFoundError: there is no such file any more.
        StoreError: it cannot be read, or the index names no payload file.
    """
    if not _RELATIVE.fullmatch(relative):
        raise StoreError(f"the index names a payload outside its folder: {relative[:80]!r}")
    path = folder / relative
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0)), "rb") as file:
            return file.read()
    except FileNotFoundError:
        raise RecordNotFoundError(
            f"the payload {path} is gone: it was swept, or somebody took it away"
        ) from None
    except OSError as error:
        raise StoreError(f"the payload {path} cannot be read: {error.strerror}") from None


def read(folder: Path, relative: str) -> PromptRecord:
    """Return the record in a payload file.

    Raises:
        RecordNotFoundError: there is no such file any more.
        StoreError: it cannot be read, or is no record.
    """
    data = read_bytes(folder, relative)
    try:
        record = _decoder.decode(data)
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise StoreError(f"the payload {folder / relative} is damaged") from error
    if not relative.endswith(f"/{record.request_id}.json"):
        raise StoreError(f"the payload {folder / relative} is of another request")
    return record


def remove(folder: Path, relative: str) -> bool:
    """Remove a payload file; tell whether it was there.

    Raises:
        OSError: it is there and cannot be removed.
    """
    if not _RELATIVE.fullmatch(re.sub(r"\.[0-9]{1,10}\.tmp$", "", relative)):
        return False
    try:
        (folder / relative).unlink()
    except FileNotFoundError:
        return False
    return True


def days(folder: Path) -> list[tuple[date, Path]]:
    """Return the folders of days, oldest first; whatever has another name is left alone."""
    found: list[tuple[date, Path]] = []
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        for entry in os.scandir(folder / FOLDER):
            day = _parsed(entry.name)
            if day is not None and entry.is_dir(follow_symlinks=False):
                found.append((day, Path(entry.path)))
    return sorted(found)


def in_day(day: Path) -> Iterator[Payload]:
    """Yield the payload files of one day; whatever has another name is left alone."""
    with contextlib.suppress(FileNotFoundError):
        for entry in os.scandir(day):
            finished = bool(_NAME.fullmatch(entry.name))
            if not finished and not _UNFINISHED.fullmatch(entry.name):
                continue
            with contextlib.suppress(FileNotFoundError):
                if entry.is_file(follow_symlinks=False):
                    state = entry.stat(follow_symlinks=False)
                    relative = f"{FOLDER}/{day.name}/{entry.name}"
                    yield Payload(
                        entry.name[:32], relative, state.st_size, state.st_mtime, finished
                    )


def _parsed(name: str) -> date | None:
    if not _DAY.fullmatch(name):
        return None
    try:
        return date.fromisoformat(name)
    except ValueError:
        return None
