"""The one thread that writes to a store.

Whoever has spans submits them and gets a future; the future is done when they are on disk. What
was stored once is never changed by a later message: an identical copy of a span is only counted,
other content under the same ids is kept beside it.
"""

from __future__ import annotations

import contextlib
import queue
import sqlite3
import threading
import time
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import Future
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import Struct

from clew._guard import guard, record_failure
from clew.errors import StoreError
from clew.store import groups, paths
from clew.store.database import connect, explain, transaction
from clew.store.migrations import migrate
from clew.store.records import Resource, RunSummary, Scope, SpanRecord
from clew.store.rollups import Rollups
from clew.store.rows import INSERT, Prepared, prepare, to_row
from clew.store.summary import RunFold

_AT_ONCE: Final = 8192
"""Most spans in one transaction, as far as whole messages allow."""
_KEYS_AT_ONCE: Final = 500
_FOLD: Final = msgspec.json.Decoder(RunFold)
_UPSERT_RUN: Final = """
    INSERT INTO runs (trace_id, is_run, start_ns, end_ns, agent, service, status, tenant,
        actor, conversation_id, denials, errors, input_tokens, output_tokens, cost_usd, fold)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT (trace_id) DO UPDATE SET
        is_run = excluded.is_run, start_ns = excluded.start_ns, end_ns = excluded.end_ns,
        agent = excluded.agent, service = excluded.service, status = excluded.status,
        tenant = coalesce(tenant, excluded.tenant), actor = coalesce(actor, excluded.actor),
        conversation_id = excluded.conversation_id,
        denials = excluded.denials, errors = excluded.errors,
        input_tokens = excluded.input_tokens, output_tokens = excluded.output_tokens,
        cost_usd = excluded.cost_usd, fold = excluded.fold
"""


class WriteResult(Struct, frozen=True, kw_only=True):
    """What became of the spans of one message."""

    stored: int = 0
    duplicates: int = 0
    """Identical copies of spans that were there already."""
    conflicts: int = 0
    """Other content under the ids of a stored span, kept for an auditor."""


class _Job(Struct):
    spans: Sequence[SpanRecord]
    future: Future[WriteResult]


class Writer:
    """Writes spans to the store at `path`, which it makes if it is missing.

    Args:
        path: the file.
        waiting: how many messages may wait for the writer; one more is refused.
        busy_s: how long to wait for another program that writes to the same file.
        max_bytes: the file grows no larger than this; None means as large as the disk allows.

    Raises:
        StoreError: the store cannot be opened, or is newer than this program.
    """

    def __init__(
        self, path: Path, *, waiting: int = 64, busy_s: float = 5.0, max_bytes: int | None = None
    ) -> None:
        self.path = path
        paths.prepare(path)
        self._connection = connect(path, busy_s=busy_s)
        try:
            migrate(self._connection, path)
            if max_bytes is not None:
                size = self._connection.execute("PRAGMA page_size").fetchone()[0]
                self._connection.execute(f"PRAGMA max_page_count = {max(1, max_bytes // size)}")
        except BaseException:
            self._connection.close()
            raise
        self._ids: dict[tuple[str, bytes], int] = {}
        self._left: groups.Left = {}
        self._queue: queue.Queue[_Job | None] = queue.Queue(waiting)
        self._closed = False
        self._thread = threading.Thread(target=self._work, name="clew-store", daemon=True)
        self._thread.start()

    def submit(self, spans: Sequence[SpanRecord]) -> Future[WriteResult]:
        """Hand spans to the writer; the future is done when they are stored.

        Raises:
            StoreError: the store is closed, or too many messages are waiting.
        """
        job = _Job(spans, Future())
        if self._closed:
            raise StoreError(f"the store {self.path} is closed")
        try:
            self._queue.put_nowait(job)
        except queue.Full:
            raise StoreError(f"the store {self.path} cannot keep up: try again later") from None
        return job.future

    def write(self, spans: Sequence[SpanRecord]) -> WriteResult:
        """Store spans and wait for it.

        Raises:
            StoreError: they could not be stored.
        """
        return self.submit(spans).result()

    def close(self) -> None:
        """Store what is waiting and close the file."""
        if not self._closed:
            self._closed = True
            self._queue.put(None)
            self._thread.join()
            self._connection.close()

    # --- on the writer's thread -----------------------------------------------------------------

    def _work(self) -> None:
        last = False
        while not last:
            jobs: list[_Job] = []
            job = self._queue.get()
            waiting = 0
            while job is not None:
                # A future that runs can no longer be cancelled, so its result can be set later.
                if job.future.set_running_or_notify_cancel():
                    jobs.append(job)
                    waiting += len(job.spans)
                if waiting >= _AT_ONCE or self._queue.empty():
                    break
                job = self._queue.get()
            last = job is None
            if jobs:
                self._settle(jobs)
        if self._left:
            with (
                guard("tidy the store up"),
                contextlib.suppress(sqlite3.Error),
                transaction(self._connection),
            ):
                groups.remove_empty(self._connection, self._left)
        while not self._queue.empty():
            left = self._queue.get()
            if left is not None:
                left.future.set_exception(StoreError(f"the store {self.path} is closed"))

    def _settle(self, jobs: list[_Job]) -> None:
        """Store what is asked for; whatever fails, each who waits is answered."""
        try:
            self._store(jobs)
        except Exception:
            record_failure("store spans", "They are refused; the next are stored as before")
            for job in jobs:
                if not job.future.done():
                    failed = StoreError(f"spans could not be stored in {self.path}")
                    job.future.set_exception(failed)

    def _store(self, jobs: list[_Job]) -> None:
        try:
            with transaction(self._connection):
                results = [self._write(job.spans) for job in jobs]
        except Exception as error:
            # Ids given out inside a transaction that never happened.
            self._ids.clear()
            self._left.clear()
            if len(jobs) > 1:
                for job in jobs:
                    self._store([job])
            else:
                known = isinstance(error, sqlite3.Error)
                jobs[0].future.set_exception(explain(error, self.path) if known else error)
            return
        for job, result in zip(jobs, results, strict=True):
            job.future.set_result(result)

    def _write(self, spans: Sequence[SpanRecord]) -> WriteResult:
        received_ns = time.time_ns()
        known = self._known(spans)
        rows: list[tuple[Any, ...]] = []
        news: defaultdict[str, list[SpanRecord]] = defaultdict(list)
        duplicates: defaultdict[str, int] = defaultdict(int)
        conflicts: defaultdict[str, int] = defaultdict(int)
        ids: dict[int, int] = {}
        for span in spans:
            prepared = prepare(span)
            key = prepared.trace_id + prepared.span_id
            digest = known.setdefault(key, prepared.digest)
            if digest is prepared.digest:
                # The spans of one message share these objects; their identity is enough here.
                resource_id = ids.get(id(span.resource))
                if resource_id is None:
                    resource_id = ids[id(span.resource)] = self._resource_id(span.resource)
                scope_id = ids.get(id(span.scope))
                if scope_id is None:
                    scope_id = ids[id(span.scope)] = self._scope_id(span.scope)
                rows.append(to_row(prepared, resource_id, scope_id, received_ns))
                news[span.trace_id].append(span)
            elif digest == prepared.digest or not self._keep_conflict(prepared, received_ns):
                duplicates[span.trace_id] += 1
            else:
                conflicts[span.trace_id] += 1
        self._connection.executemany(INSERT, rows)
        self._summarise(news, duplicates, conflicts)
        return WriteResult(
            stored=len(rows),
            duplicates=sum(duplicates.values()),
            conflicts=sum(conflicts.values()),
        )

    def _known(self, spans: Sequence[SpanRecord]) -> dict[bytes, bytes]:
        """Return the digests of those spans that the store has already, by trace and span id."""
        known: dict[bytes, bytes] = {}
        by_trace: defaultdict[str, list[str]] = defaultdict(list)
        for span in spans:
            by_trace[span.trace_id].append(span.span_id)
        for trace_id, span_ids in by_trace.items():
            trace = bytes.fromhex(trace_id)
            for first in range(0, len(span_ids), _KEYS_AT_ONCE):
                some = span_ids[first : first + _KEYS_AT_ONCE]
                found = self._connection.execute(
                    "SELECT span_id, digest FROM spans WHERE trace_id = ? AND span_id IN "  # noqa: S608
                    f"({', '.join('?' * len(some))})",
                    (trace, *map(bytes.fromhex, some)),
                )
                known.update((trace + span_id, digest) for span_id, digest in found)
        return known

    def _keep_conflict(self, prepared: Prepared, received_ns: int) -> bool:
        changed = self._connection.execute(
            "INSERT OR IGNORE INTO span_conflicts (trace_id, span_id, digest, received_ns, record)"
            " VALUES (?, ?, ?, ?, ?)",
            (
                prepared.trace_id,
                prepared.span_id,
                prepared.digest,
                received_ns,
                msgspec.json.encode(prepared.span).decode(),
            ),
        )
        return changed.rowcount > 0

    def _summarise(
        self,
        news: dict[str, list[SpanRecord]],
        duplicates: dict[str, int],
        conflicts: dict[str, int],
    ) -> None:
        rows: list[tuple[Any, ...]] = []
        rollups = Rollups(self._connection, self._left)
        for trace_id in {*news, *duplicates, *conflicts}:
            key = bytes.fromhex(trace_id)
            stored = self._connection.execute(
                "SELECT fold, tenant, actor FROM runs WHERE trace_id = ?", (key,)
            ).fetchone()
            fold = _FOLD.decode(stored[0]) if stored else RunFold(trace_id=trace_id)
            fold.duplicates += duplicates.get(trace_id, 0)
            fold.conflicts += conflicts.get(trace_id, 0)
            for span in news.get(trace_id, ()):
                fold.add(span)
            run = fold.summary()
            # Whose a run is does not change: the upsert keeps what the row says.
            tenant, actor = stored[1:] if stored else (None, None)
            tenant = run.tenant if tenant is None else tenant
            actor = run.actor if actor is None else actor
            rollups.add(
                key, news.get(trace_id, ()), run, stored=bool(stored), tenant=tenant, actor=actor
            )
            rows.append(_run_row(key, fold, run))
        self._connection.executemany(_UPSERT_RUN, rows)
        rollups.write()

    def _resource_id(self, resource: Resource) -> int:
        return self._id("resources", "service", resource.service, msgspec.json.encode(resource))

    def _scope_id(self, scope: Scope) -> int:
        return self._id("scopes", "name", scope.name, msgspec.json.encode(scope))

    def _id(self, table: str, column: str, label: str | None, record: bytes) -> int:
        digest = blake2b(record, digest_size=16).digest()
        known = self._ids.get((table, digest))
        if known is None:
            self._connection.execute(
                f"INSERT OR IGNORE INTO {table} (digest, {column}, record) VALUES (?, ?, ?)",  # noqa: S608
                (digest, label, record.decode()),
            )
            known = self._connection.execute(
                f"SELECT id FROM {table} WHERE digest = ?",  # noqa: S608
                (digest,),
            ).fetchone()[0]
            self._ids[table, digest] = known
        return known


def _run_row(key: bytes, fold: RunFold, run: RunSummary) -> tuple[Any, ...]:
    return (
        key,
        run.is_run,
        run.start_ns,
        run.end_ns,
        run.agent,
        run.service,
        run.status,
        run.tenant,
        run.actor,
        run.conversation_id,
        run.denials,
        run.errors,
        run.input_tokens,
        run.output_tokens,
        run.cost_usd,
        msgspec.json.encode(fold).decode(),
    )
