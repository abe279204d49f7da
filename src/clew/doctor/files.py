"""The data folder: who may read it, whether the store is sound, which keys there are."""

from __future__ import annotations

import os
import shutil
import sqlite3
import stat
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Final

from clew.audit import keys
from clew.digests import KEY_FILE
from clew.doctor.findings import Finding, note, ok, problem, warning
from clew.errors import ClewError
from clew.pipeline.spool import Spool
from clew.settings import Settings
from clew.store import journal, paths
from clew.store.database import connect, explained
from clew.store.migrations import MIGRATIONS, pending

_MOST_FILES: Final = 5000
_LOW_BYTES: Final = 256 << 20
_QUICK_ABOVE: Final = 1 << 30
"""Above this size (bytes) a store is looked at less closely."""


def examine(settings: Settings, *, whole: bool = True) -> Iterator[Finding]:
    """Look at everything in the data folder.

    Args:
        settings: those in force.
        whole: whether each page of the store is checked, which takes a second a gigabyte or more.
    """
    folder = settings.data_dir
    yield from _keys(settings)
    if not folder.exists():
        level = problem if settings.audit == "fail_closed" else note
        if _may_write(_existing(folder)):
            yield note("folder", f"There is no data folder yet: {folder} is made when it is needed")
        else:
            yield level(
                "folder",
                f"The data folder {folder} does not exist and cannot be made",
                "Set CLEW_DATA_DIR to a place that the service may write to",
            )
        return
    if not folder.is_dir():
        yield problem("folder", f"The data folder {folder} is no folder", "Set CLEW_DATA_DIR")
        return
    yield from _folder(settings)
    yield from _store(paths.store_path(folder), whole=whole)
    yield from _journal(settings)


def _existing(path: Path) -> Path:
    while not path.exists() and path != path.parent:
        path = path.parent
    return path


def _may_write(path: Path) -> bool:
    return os.access(path, os.W_OK | os.X_OK)


def _folder(settings: Settings) -> Iterator[Finding]:
    folder = settings.data_dir
    if not _may_write(folder):
        level = problem if settings.audit == "fail_closed" else warning
        yield level(
            "folder",
            f"The data folder {folder} cannot be written by this user",
            "With CLEW_AUDIT=fail_closed no tool that writes will run"
            if settings.audit == "fail_closed"
            else "Captured content and the store need it",
        )
    open_to_others: list[str] = []
    if stat.S_IMODE(folder.stat().st_mode) & 0o077:
        open_to_others.append(str(folder))
    for number, path in enumerate(sorted(folder.rglob("*"))):
        if number >= _MOST_FILES:
            break
        try:
            mode = path.lstat().st_mode
        except OSError:
            continue
        if stat.S_ISREG(mode) and stat.S_IMODE(mode) & 0o077:
            open_to_others.append(str(path))
    if open_to_others:
        shown = ", ".join(open_to_others[:3])
        more = f" and {len(open_to_others) - 3} more" if len(open_to_others) > 3 else ""
        yield warning(
            "folder",
            f"Other users may read {shown}{more}",
            f"chmod -R go= {folder}",
            paths=open_to_others[:20],
        )
    else:
        yield ok("folder", f"The data folder {folder} is closed to other users")
    free = shutil.disk_usage(folder).free
    if free < _LOW_BYTES:
        yield warning(
            "folder",
            f"Its disk has {free >> 20} MiB left",
            "Records, the journal and the spool stop when it is full",
            free_bytes=free,
        )


def _keys(settings: Settings) -> Iterator[Finding]:
    path = settings.data_dir / KEY_FILE
    if settings.digest_key is not None:
        yield ok("keys", "Digests have a key of yours (CLEW_DIGEST_KEY)")
    elif not path.is_file():
        yield warning(
            "keys",
            "There is no digest key: each process takes one of its own, and its digests cannot be "
            "compared with those of others",
            "Set CLEW_DIGEST_KEY to a secret of your own",
        )
    elif stat.S_IMODE(path.stat().st_mode) & 0o077:
        yield problem("keys", f"{path} is readable by others, and is not used", f"chmod 600 {path}")
    else:
        yield ok("keys", f"Digests have the install key {path}")
    signing = settings.signing_key_file
    if signing is not None and signing.is_file() and stat.S_IMODE(signing.stat().st_mode) & 0o077:
        yield warning(
            "keys",
            f"Other users may read the signing key {signing}: they can seal what they forge",
            f"chmod 600 {signing}",
        )
    try:
        ring = keys.KeyRing.of(settings)
    except ClewError as error:
        yield problem("keys", f"The keys for `clew verify` cannot be read: {error}")
        return
    if settings.integrity and not (settings.integrity_key or signing):
        yield note(
            "keys",
            "Spans carry digests without a key: `clew verify` can say CONSISTENT, never unaltered",
            "Set CLEW_INTEGRITY_KEY or CLEW_SIGNING_KEY_FILE",
        )
    elif settings.integrity:
        count = len(ring.keys) + len(ring.signatures)
        yield ok("keys", f"Digests are keyed; {count} keys to verify with are known here")


def _store(path: Path, *, whole: bool) -> Iterator[Finding]:
    if not path.is_file():
        yield note("store", f"There is no store at {path}: `clew serve` makes one")
        return
    size = path.stat().st_size
    try:
        with closing(connect(path, read_only=True)) as connection:
            step = pending(connection, path)
            damage = _damage(connection, path, quick=not whole or size > _QUICK_ABOVE)
            with explained(path):
                applied = connection.execute("SELECT max(number) FROM migrations").fetchone()[0]
                spans = connection.execute("SELECT count(*) FROM spans").fetchone()[0]
    except ClewError as error:
        yield problem("store", str(error), "`clew serve` and `clew runs` will fail")
        return
    if damage:
        yield problem(
            "store",
            f"The store {path} is damaged ({damage[0]})",
            "Keep a copy, and start with a new file",
            damage=damage,
        )
        return
    if step is not None:
        yield note(
            "store",
            f"The store has schema {applied}, this Clew has {len(MIGRATIONS)}",
            "It is brought up to date, with a copy kept, when `clew serve` opens it",
        )
    yield ok(
        "store",
        f"The store {path} is sound: {spans} spans, {size / (1 << 20):.1f} MiB, schema {applied}",
        spans=spans,
        bytes=size,
        schema=applied,
    )


def _damage(connection: sqlite3.Connection, path: Path, *, quick: bool) -> list[str]:
    """Return what SQLite finds wrong (https://www.sqlite.org/pragma.html#pragma_integrity_check)."""
    with explained(path):
        check = "quick_check" if quick else "integrity_check"
        rows = connection.execute(f"PRAGMA {check}(5)").fetchall()
    return [str(row[0]).splitlines()[0] for row in rows if row[0] != "ok"]


def spool(settings: Settings, environ: Mapping[str, str]) -> Iterator[Finding]:
    """Look at what waits on the disk for the receiver."""
    if settings.spool_dir is None:
        return
    place = settings.spool_dir.expanduser()
    names = environ.get("OTEL_TRACES_EXPORTER", "").strip() or "otlp"
    if "otlp" not in (name.strip() for name in names.split(",")):
        yield warning(
            "spool",
            f"CLEW_SPOOL_DIR has no effect: OTEL_TRACES_EXPORTER is {names!r}",
            "Only what goes out by OTLP can wait on the disk",
        )
        return
    if not _may_write(_existing(place)):
        yield problem(
            "spool",
            f"The spool {place} cannot be written: nothing waits there",
            "Set CLEW_SPOOL_DIR to a folder that the service may write to",
        )
        return
    waiting = [
        each
        for folder in (sorted(place.iterdir()) if place.is_dir() else ())
        for each in Spool(folder, settings.spool_max_bytes).files()
    ]
    if not waiting:
        yield ok("spool", f"Nothing waits in the spool {place}")
        return
    spans, size = sum(each.spans for each in waiting), sum(each.bytes for each in waiting)
    seconds = (time.time_ns() - min(each.since_ns for each in waiting)) / 1e9
    yield warning(
        "spool",
        f"{spans} spans wait in the spool {place} ({size / (1 << 20):.1f} MiB of "
        f"{settings.spool_max_bytes >> 20}), the oldest for {seconds:.0f} s",
        "They are sent when the receiver is back and a process of the service runs",
        spans=spans,
        bytes=size,
        files=len(waiting),
    )


def _journal(settings: Settings) -> Iterator[Finding]:
    folder = settings.data_dir / journal.FOLDER
    if settings.audit == "off":
        return
    days = sorted(each.name for each in folder.glob("*.jsonl")) if folder.is_dir() else []
    said = f"{len(days)} days, the last {days[-1].removesuffix('.jsonl')}" if days else "no day yet"
    yield ok("journal", f"The journal is {settings.audit.replace('_', ' ')}: {said}")
