"""Erasing runs, or their content, and keeping the proof of it; legal holds.

What is erased leaves a tombstone: a line that says which run, how many spans and records, the
digests of its segments (which a checkpoint may hold), why, and by whom; each line is chained to the
one before. So an auditor can tell erased from lost, and that nothing else went with it. Runs and
tenants under a legal hold stay. Both files lie in the data folder, lines are only ever added.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, Literal

import msgspec
from msgspec import Struct

from clew import semconv
from clew.errors import ClewError, StoreError
from clew.store import chain, paths, payloads
from clew.store.chain import Chained, chained, parsed
from clew.store.database import connect, explained, transaction
from clew.store.groups import remove_all_empty
from clew.store.migrations import migrate
from clew.store.records import run_id_of
from clew.store.rollups import ROLLUPS

TOMBSTONES: Final = "tombstones.jsonl"
HOLDS: Final = "holds.jsonl"
Category = Literal["content", "all"]
"""`content`: payloads of records and captured content on spans. `all`: everything of the run."""


class Tombstone(Chained, frozen=True, kw_only=True, omit_defaults=True):
    """What is left of what was erased."""

    time_ns: int
    run_id: str
    category: Category
    reason: str
    """A code, such as `retention` or `data_subject_request`."""
    by: str
    """Who erased it."""
    spans: int
    """Spans of the run that there were."""
    records: int
    """Records of model calls that there were."""
    segments: tuple[tuple[str, str], ...] = ()
    """Id and digest of its sealed segments."""


class Hold(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A legal hold, or its end."""

    time_ns: int
    action: Literal["hold", "release"]
    run_id: str | None = None
    tenant: str | None = None
    reason: str
    by: str


class Wanted(Struct, frozen=True, kw_only=True):
    """Which runs are erased: those that all that is given holds for."""

    run_id: str | None = None
    tenant: str | None = None
    actor: str | None = None
    """The actor's keyed digest, as it stands on the run."""
    before_ns: int | None = None
    """Runs that began before then (ns since 1970)."""

    def is_empty(self) -> bool:
        """Tell whether nothing narrows it, which would mean everything."""
        return self == Wanted()


class Erased(Struct, frozen=True, kw_only=True):
    """What was erased, or would be."""

    tombstones: tuple[Tombstone, ...] = ()
    held: tuple[str, ...] = ()
    """Runs that stay because of a legal hold."""
    dry_run: bool = False


class BrokenTombstonesError(ClewError):
    """The file of tombstones is not whole."""


def erase(
    folder: Path,
    wanted: Wanted,
    *,
    category: Category,
    reason: str,
    by: str,
    dry_run: bool = False,
) -> Erased:
    """Erase runs, or their content, from the local store.

    Args:
        folder: the data folder.
        wanted: which.
        category: what of them.
        reason: a code.
        by: who erases.
        dry_run: say what would be erased, and erase nothing.

    Raises:
        ClewError: nothing narrows what is wanted, or the tombstones are not whole.
        StoreError: the store cannot be used.
    """
    if wanted.is_empty():
        raise ClewError("say what to erase: a run, a tenant, an actor, or what is older than when")
    kept = holds(folder)
    path = paths.store_path(folder)
    with explained(path):
        connection = connect(path, read_only=dry_run)
        try:
            if not dry_run:
                migrate(connection, path)
            found = _matching(connection, wanted)
            held = tuple(run_id for _, run_id, tenant in found if kept.keeps(run_id, tenant))
            chosen = [each for each in found if each[1] not in held]
            lines = [
                _described(connection, each, category=category, reason=reason, by=by)
                for each in chosen
            ]
            if not dry_run:
                # The line first: what was erased without one would look lost.
                lines = append(folder, lines)
                for trace_id, run_id, _ in chosen:
                    _remove(connection, folder, trace_id, run_id, category)
                with transaction(connection):
                    remove_all_empty(connection)
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        finally:
            connection.close()
    return Erased(tombstones=tuple(lines), held=held, dry_run=dry_run)


def _matching(
    connection: sqlite3.Connection, wanted: Wanted
) -> list[tuple[bytes, str, str | None]]:
    values = {
        "run": wanted.run_id,
        "trace": None if wanted.run_id is None else _trace_of(wanted.run_id),
        "tenant": wanted.tenant,
        "before": wanted.before_ns,
        "actor": wanted.actor,
        "key": f'$."{semconv.ACTOR}"',
    }
    rows = connection.execute(
        "SELECT trace_id, tenant FROM runs WHERE (:trace IS NULL OR trace_id = :trace)"
        " AND (:tenant IS NULL OR tenant = :tenant) AND (:before IS NULL OR start_ns < :before)"
        " AND (:actor IS NULL OR EXISTS (SELECT 1 FROM spans s WHERE s.trace_id = runs.trace_id"
        " AND s.type = 'run' AND json_extract(s.attributes, :key) = :actor))"
        " ORDER BY start_ns, trace_id",
        values,
    )
    found = {run_id_of(trace_id.hex()): (trace_id, tenant) for trace_id, tenant in rows.fetchall()}
    # Calls are recorded wherever the spans of their run go.
    rows = connection.execute(
        "SELECT run_id, max(tenant) FROM prompt_requests WHERE run_id IS NOT NULL"
        " AND (:run IS NULL OR run_id = :run) AND (:tenant IS NULL OR tenant = :tenant)"
        " AND (:actor IS NULL OR actor = :actor)"
        " GROUP BY run_id HAVING :before IS NULL OR min(start_ns) < :before"
        " ORDER BY min(start_ns), run_id",
        values,
    )
    for run_id, tenant in rows.fetchall():
        found.setdefault(run_id, (_trace_of(run_id), tenant))
    return [(trace_id, run_id, tenant) for run_id, (trace_id, tenant) in found.items()]


def _trace_of(run_id: str) -> bytes:
    return bytes.fromhex(run_id.replace("-", ""))


def _described(
    connection: sqlite3.Connection,
    run: tuple[bytes, str, str | None],
    *,
    category: Category,
    reason: str,
    by: str,
) -> Tombstone:
    trace_id, run_id, _ = run
    spans = connection.execute("SELECT count(*) FROM spans WHERE trace_id = ?", (trace_id,))
    records = connection.execute("SELECT count(*) FROM prompt_requests WHERE run_id = ?", (run_id,))
    seals = connection.execute(
        "SELECT segment_id, json_extract(attributes, ?) FROM spans"
        " WHERE trace_id = ? AND type = 'event' ORDER BY seq",
        (f'$."{semconv.SEGMENT_DIGEST}"', trace_id),
    )
    return Tombstone(
        time_ns=time.time_ns(),
        run_id=run_id,
        category=category,
        reason=reason,
        by=by,
        spans=spans.fetchone()[0],
        records=records.fetchone()[0],
        segments=tuple((a, b) for a, b in seals.fetchall() if a is not None and b is not None),
        previous="",
    )


def _remove(
    connection: sqlite3.Connection, folder: Path, trace_id: bytes, run_id: str, category: Category
) -> None:
    rows = connection.execute("SELECT path FROM prompt_requests WHERE run_id = ?", (run_id,))
    files = [path for (path,) in rows.fetchall() if path is not None]
    with transaction(connection):
        if category == "all":
            connection.execute("DELETE FROM prompt_requests WHERE run_id = ?", (run_id,))
            for table in ("spans", "span_conflicts", "runs", *ROLLUPS):
                connection.execute(
                    f"DELETE FROM {table} WHERE trace_id = ?",  # noqa: S608 - constants
                    (trace_id,),
                )
        else:
            connection.execute("UPDATE prompt_requests SET path = NULL WHERE run_id = ?", (run_id,))
            _strip(connection, trace_id)
    for relative in files:
        try:
            payloads.remove(folder, relative)
        except OSError as error:
            raise StoreError(f"the payload {relative} cannot be removed: {error}") from None


def _strip(connection: sqlite3.Connection, trace_id: bytes) -> None:
    """Take captured content off the spans of a run, and nothing else: digests do not cover it."""
    keys = ", ".join("?" * len(semconv.CONTENT))
    # Of other versions of a span the whole record is one column.
    for table, column, place in (
        ("spans", "attributes", "$"),
        ("span_conflicts", "record", "$.attributes"),
    ):
        connection.execute(
            f"UPDATE {table} SET {column} = json_remove({column}, {keys})"  # noqa: S608 - constants
            " WHERE trace_id = ?",
            (*(f'{place}."{key}"' for key in semconv.CONTENT), trace_id),
        )


# --- tombstones ----------------------------------------------------------------------------------


def tombstones(folder: Path) -> tuple[Tombstone, ...]:
    """Read the tombstones and prove their chain.

    Raises:
        BrokenTombstonesError: a line was changed, taken out or put in.
    """
    return parsed(_lines(folder / TOMBSTONES), Tombstone, _broken)


def append(folder: Path, lines: Sequence[Tombstone]) -> list[Tombstone]:
    """Add tombstones to the file, chained; return them as they are there."""
    added = chained(tombstones(folder), lines)
    chain.append(folder / TOMBSTONES, added)
    return added


def _broken(number: int, problem: str) -> BrokenTombstonesError:
    return BrokenTombstonesError(f"{TOMBSTONES}, line {number}: {problem}")


# --- legal holds ---------------------------------------------------------------------------------


class Holds(Struct, frozen=True):
    """What must not be erased."""

    runs: frozenset[str] = frozenset()
    tenants: frozenset[str] = frozenset()

    def keeps(self, run_id: str | None, tenant: str | None) -> bool:
        """Tell whether a run, or the tenant that it belongs to, is under a hold."""
        return (run_id is not None and run_id in self.runs) or (
            tenant is not None and tenant in self.tenants
        )


def holds(folder: Path) -> Holds:
    """Return the legal holds in force.

    Raises:
        ClewError: the file cannot be read; then nothing may be erased.
    """
    runs: set[str] = set()
    tenants: set[str] = set()
    for each in hold_lines(folder):
        for kept, value in ((runs, each.run_id), (tenants, each.tenant)):
            if value is not None:
                (kept.add if each.action == "hold" else kept.discard)(value)
    return Holds(frozenset(runs), frozenset(tenants))


def hold_lines(folder: Path) -> Iterator[Hold]:
    """Give all holds and releases, oldest first."""
    for number, line in enumerate(_lines(folder / HOLDS), 1):
        try:
            yield msgspec.json.decode(line, type=Hold)
        except msgspec.MsgspecError as error:
            raise ClewError(f"{HOLDS}, line {number}: {error}") from None


def set_hold(
    folder: Path,
    action: Literal["hold", "release"],
    *,
    run_id: str | None = None,
    tenant: str | None = None,
    reason: str,
    by: str,
) -> Hold:
    """Put a run or a tenant under a legal hold, or release it.

    Raises:
        ClewError: neither or both are given.
    """
    if (run_id is None) == (tenant is None):
        raise ClewError("say which run, or which tenant: one of the two")
    line = Hold(
        time_ns=time.time_ns(), action=action, run_id=run_id, tenant=tenant, reason=reason, by=by
    )
    chain.append(folder / HOLDS, [line])
    return line


def _lines(path: Path) -> list[bytes]:
    try:
        return path.read_bytes().splitlines()
    except FileNotFoundError:
        return []
    except OSError as error:
        raise ClewError(f"{path} cannot be read: {error.strerror}") from None
