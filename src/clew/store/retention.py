"""Retention: records go by age and by total size, rows and payload files together.

A day in UTC goes as a whole, its rows and its files, so that neither outlives the other. Only
folders whose names are dates, and in them only files that look like payloads, are ever touched.
Records of runs and tenants under a legal hold (`clew.store.erasure`) stay.
"""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections.abc import Callable, Generator, Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Final, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from clew.errors import ClewError, ConfigurationError
from clew.store import paths, payloads
from clew.store.database import connect, explained, transaction
from clew.store.erasure import Holds, holds
from clew.store.migrations import migrate
from clew.store.payloads import Payload

DEFAULT_DAYS: Final = 7
DEFAULT_BYTES: Final = 1024**3
GRACE_S: Final = 900.0
"""Seconds after which a file without a row is one that nobody will give a row any more."""
_AT_ONCE: Final = 500


class Retention(Struct, frozen=True, kw_only=True):
    """How long records are kept, and how many bytes their payloads may take."""

    keep_days: int = DEFAULT_DAYS
    """A record is kept for at least that many days of 24 hours; it goes with its day."""
    max_bytes: int = DEFAULT_BYTES
    """Of more, the oldest go."""

    def __post_init__(self) -> None:
        if self.keep_days < 1 or self.max_bytes < 0:
            raise ConfigurationError(
                f"records are kept for at least 1 day and 0 bytes, not {self.keep_days} days and "
                f"{self.max_bytes} bytes"
            )


class Swept(Struct, frozen=True, kw_only=True):
    """What a sweep removed, or would remove."""

    rows: int = 0
    """Rows of the index, for whatever reason."""
    files: int = 0
    """Payload files, for whatever reason."""
    bytes: int = 0
    """Bytes of these files."""
    by_age: int = 0
    """Records (rows, or files without one) that were too old."""
    by_size: int = 0
    """Records that went because all together were too large."""
    without_row: int = 0
    """Files that no row names."""
    without_file: int = 0
    """Rows whose file is gone."""
    held: int = 0
    """Records that would have gone, and stay because of a legal hold."""
    failed: int = 0
    """Files that could not be removed; their rows are gone."""
    kept_rows: int = 0
    kept_files: int = 0
    kept_bytes: int = 0
    complete: bool = True
    """False where the sweep was stopped before its end."""


class _Row(NamedTuple):
    request_id: str
    start_ns: int
    path: str | None
    run_id: str | None = None
    tenant: str | None = None


class _Plan:
    """What is to go, in the order in which it goes."""

    def __init__(self) -> None:
        self.rows: list[str] = []
        self.files: list[Payload] = []
        self.by_age = self.by_size = self.without_row = self.without_file = self.held = 0


def never() -> bool:
    """Say that a sweep need not stop."""
    return False


def sweep(
    folder: Path,
    retention: Retention,
    *,
    now_ns: int | None = None,
    dry_run: bool = False,
    stop: Callable[[], bool] = never,
) -> Swept:
    """Remove what is too old or too much, and what has lost its other half.

    Args:
        folder: the data folder.
        retention: what may stay.
        now_ns: the time, by default now (ns since the epoch).
        dry_run: count, and remove nothing.
        stop: asked now and then; True ends the sweep early.

    Raises:
        StoreError: the store is there and cannot be used.
        ClewError: the legal holds cannot be read; then nothing is removed.
    """
    kept = holds(folder)
    now_ns = time.time_ns() if now_ns is None else now_ns
    with _opened(folder, dry_run=dry_run) as connection:
        # Files first: one that is written from now on has a row by then, or is young.
        files = [each for _, day in payloads.days(folder) for each in payloads.in_day(day)]
        rows = [] if connection is None else _rows(connection)
        plan = _planned(folder, retention, now_ns, rows, files, kept)
        size = sum(each.size for each in plan.files)
        planned = Swept(
            rows=len(plan.rows),
            files=len(plan.files),
            bytes=size,
            by_age=plan.by_age,
            by_size=plan.by_size,
            without_row=plan.without_row,
            without_file=plan.without_file,
            held=plan.held,
            kept_rows=len(rows) - len(plan.rows),
            kept_files=len(files) - len(plan.files),
            kept_bytes=sum(each.size for each in files) - size,
        )
        if dry_run:
            return planned
        removed, gone, size, failed, complete = _carry_out(folder, connection, plan, stop)
        _remove_empty_days(folder)
        return replace(
            planned, rows=removed, files=gone, bytes=size, failed=failed, complete=complete
        )


@contextlib.contextmanager
def _opened(folder: Path, *, dry_run: bool) -> Generator[sqlite3.Connection | None]:
    path = paths.store_path(folder)
    if not path.is_file():
        yield None
        return
    with explained(path):
        connection = connect(path, read_only=dry_run)
        try:
            if not dry_run:
                migrate(connection, path)
            yield connection
        finally:
            connection.close()


def _rows(connection: sqlite3.Connection) -> list[_Row]:
    known = connection.execute(
        "SELECT count(*) FROM sqlite_schema WHERE name = 'prompt_requests'"
    ).fetchone()
    if not known[0]:
        return []  # a dry run changes nothing, an old schema neither
    found = connection.execute(
        "SELECT request_id, start_ns, path, run_id, tenant FROM prompt_requests "
        "ORDER BY start_ns, request_id"
    )
    return [_Row(*each) for each in found]


def _planned(
    folder: Path,
    retention: Retention,
    now_ns: int,
    rows: Sequence[_Row],
    files: Sequence[Payload],
    kept: Holds,
) -> _Plan:
    plan = _Plan()
    today = datetime.fromtimestamp(now_ns // 1_000_000_000, UTC).date()
    oldest = _before(today, retention.keep_days)
    by_id = {each.request_id: each for each in files if each.finished}
    left: list[tuple[_Row, Payload]] = []
    named: set[str] = set()
    for row in rows:
        named.add(row.request_id)
        file = by_id.get(row.request_id)
        old = payloads.day_of(row.start_ns) < oldest
        gone = file is None and row.path is not None and not (folder / row.path).exists()
        if not old and file is not None:
            left.append((row, file))
        elif (old or gone) and kept.keeps(row.run_id, row.tenant):
            plan.held += 1
        elif old or gone:
            plan.by_age += old
            plan.without_file += not old
            plan.rows.append(row.request_id)
            if file is not None:
                plan.files.append(file)
    _plan_files(plan, folder, [f for f in files if f.request_id not in named or not f.finished],
                oldest, now_ns, kept)  # fmt: skip
    _plan_size(plan, left, retention.max_bytes, kept)
    return plan


def _plan_files(
    plan: _Plan,
    folder: Path,
    files: Sequence[Payload],
    oldest: date,
    now_ns: int,
    kept: Holds,
) -> None:
    """Have files go that no row names: with their day, or once nobody will write the row."""
    for file in files:
        old = date.fromisoformat(file.relative.split("/")[1]) < oldest
        if not old and now_ns / 1e9 - file.modified <= GRACE_S:
            continue
        if kept != Holds() and file.finished and _is_held(folder, file, kept):
            plan.held += 1
            continue
        plan.by_age += old and file.finished
        plan.without_row += not old
        plan.files.append(file)


def _is_held(folder: Path, file: Payload, kept: Holds) -> bool:
    """Tell whether a payload is of a run under a hold; one that cannot be read may be."""
    try:
        run = payloads.read(folder, file.relative).run
    except ClewError:
        return True
    return kept.keeps(run.run_id, run.tenant)


def _plan_size(plan: _Plan, left: Sequence[tuple[_Row, Payload]], most: int, kept: Holds) -> None:
    """Have the oldest go until the rest is small enough."""
    total = sum(file.size for _, file in left)
    for row, file in left:
        if total <= most:
            return
        if kept.keeps(row.run_id, row.tenant):
            plan.held += 1
            continue
        total -= file.size
        plan.by_size += 1
        plan.rows.append(row.request_id)
        plan.files.append(file)


def _before(today: date, days: int) -> date:
    try:
        return today - timedelta(days=days)
    except OverflowError:
        return date.min


def _carry_out(
    folder: Path, connection: sqlite3.Connection | None, plan: _Plan, stop: Callable[[], bool]
) -> tuple[int, int, int, int, bool]:
    """Remove rows, then files; return how many of each, bytes, failures, and whether it ended."""
    removed = gone = size = failed = 0
    if connection is not None:
        for first in range(0, len(plan.rows), _AT_ONCE):
            if stop():
                return removed, gone, size, failed, False
            some = plan.rows[first : first + _AT_ONCE]
            with transaction(connection):
                removed += connection.execute(
                    "DELETE FROM prompt_requests WHERE request_id IN "  # noqa: S608
                    f"({', '.join('?' * len(some))})",
                    some,
                ).rowcount
    for place, file in enumerate(plan.files):
        if place % _AT_ONCE == 0 and stop():
            return removed, gone, size, failed, False
        try:
            if payloads.remove(folder, file.relative):
                gone += 1
                size += file.size
        except OSError:
            failed += 1
    return removed, gone, size, failed, True


def _remove_empty_days(folder: Path) -> None:
    for _, day in payloads.days(folder):
        with contextlib.suppress(OSError):  # somebody writes into it, or something else lies there
            day.rmdir()
