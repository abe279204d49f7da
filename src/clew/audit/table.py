"""The auditor's table: one row a span, the same from every source.

Questions are SQL over it. It is a private temporary database, in memory as long as it is small and
on the disk beyond that, filled from a source, so nothing that is asked can change anything;
statements are run by a connection that may only read.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, cast

from clew import semconv
from clew.audit.names import NAMES, first
from clew.audit.questions import version_key
from clew.errors import ClewError
from clew.sources import Source
from clew.sources.otlp_json import batches
from clew.store.access import Reading
from clew.store.records import MAX_PAGE, Page, RunFilter, RunRecord, SpanRecord, run_id_of

_OWN: Final[dict[str, str]] = {
    "tool_call": semconv.TOOL_CALL_ID,
    "tool_effect": semconv.TOOL_EFFECT,
    "tool_outcome": semconv.TOOL_OUTCOME,
    "gate": semconv.DECISION_GATE,
    "outcome": semconv.DECISION_OUTCOME,
    "reason": semconv.DECISION_REASON,
    "policy": semconv.DECISION_POLICY,
    "policy_version": semconv.DECISION_POLICY_VERSION,
    "enforced": semconv.DECISION_ENFORCED,
    "executed": semconv.DECISION_EXECUTED,
    "subject": semconv.DECISION_SUBJECT,
    "subject_digest": semconv.DECISION_SUBJECT_DIGEST,
    "decided_by": semconv.DECISION_BY,
    "wait_ms": semconv.DECISION_WAIT_MS,
    "trust_zone": semconv.DECISION_TRUST_ZONE,
    "configuration": semconv.CONFIGURATION,
    "capture_level": semconv.CAPTURE_LEVEL,
    "run_status": semconv.RUN_STATUS,
    "cost_status": semconv.COST_STATUS,
    "segment_cost_usd": "clew.segment.cost.usd",
    "segment_rounds": "clew.segment.rounds",
    "error_type": semconv.ERROR_TYPE,
    "round": semconv.ROUND,
}
COLUMNS: Final = (
    "run_id", "trace_id", "span_id", "parent_id", "segment", "seq", "type", "name", "service",
    "start_ns", "duration_ns", "failed", "root", "data_class", *NAMES, *_OWN,
)  # fmt: skip
"""Columns of the table `spans`."""
_MICRO: Final = 1000


def row_of(span: SpanRecord, run_id: str) -> tuple[Any, ...]:
    """Return a span's row; times are whole microseconds, as every backend keeps them."""
    found = span.attributes
    return (
        run_id,
        span.trace_id,
        span.span_id,
        span.parent_id,
        span.segment,
        span.seq,
        span.type,
        span.name,
        span.resource.service,
        span.start_ns // _MICRO * _MICRO,
        span.duration_ns // _MICRO * _MICRO,
        span.status == 2,
        found.get(semconv.RUN_ROOT) is True,
        _plain(found.get(semconv.DECISION_DATA_CLASS) or found.get(semconv.DATA_CLASS)),
        *(_plain(first(found, column)) for column in NAMES),
        *(_plain(found.get(key)) for key in _OWN.values()),
    )


def _plain(value: Any) -> Any:
    return value if isinstance(value, (str, int, float)) or value is None else str(value)


_INSERT: Final = f"INSERT OR IGNORE INTO spans VALUES ({', '.join('?' * len(COLUMNS))})"  # noqa: S608


def _made() -> sqlite3.Connection:
    connection = sqlite3.connect("", isolation_level=None)
    connection.execute("PRAGMA cache_size = -65536")
    connection.create_function("version_key", 1, version_key, deterministic=True)
    connection.execute(f"CREATE TABLE spans ({', '.join(COLUMNS)})")
    connection.execute("CREATE TABLE readings (time_ns, reader, what, run_id, record_id, tenant)")
    return connection


class Table:
    """The table, filled from a source.

    Args:
        source: where the runs are.
        wanted: which of them.
        readings: what the log of accesses says.
        progress: told after each run how many there have been.
    """

    def __init__(
        self,
        source: Source,
        wanted: RunFilter,
        *,
        readings: Sequence[Reading] = (),
        progress: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._connection = _made()
        self.runs = 0
        for record in records(source, wanted):
            self._add(record.spans)
            self.runs += 1
            progress(self.runs)
        self._finish(readings)

    @classmethod
    def of_files(
        cls,
        paths: Sequence[Path],
        wanted: RunFilter,
        *,
        readings: Sequence[Reading] = (),
        progress: Callable[[int], None] = lambda _: None,
    ) -> Table:
        """Return the table of files of OTLP JSON, which are read line by line: of any size.

        Of several copies of a span the first one counts, as everywhere.

        Args:
            paths: the files.
            wanted: which of the runs, by when they began.
            readings: as for a source.
            progress: told after each message how many spans there have been.

        Raises:
            ClewError: a file cannot be read, or is no OTLP JSON.
        """
        table = cls.__new__(cls)
        table._connection = _made()
        table._connection.execute("CREATE UNIQUE INDEX spans_once ON spans (trace_id, span_id)")
        spans = 0
        for path in paths:
            for batch in batches(path):
                table._add(batch.spans)
                spans += len(batch.spans)
                progress(spans)
        table._connection.execute(
            "DELETE FROM spans WHERE trace_id IN (SELECT trace_id FROM spans GROUP BY trace_id"
            " HAVING min(start_ns) < coalesce(:since, min(start_ns))"
            " OR min(start_ns) >= coalesce(:until, min(start_ns) + 1))",
            {"since": wanted.since_ns, "until": wanted.until_ns},
        )
        counted = table._connection.execute("SELECT count(DISTINCT trace_id) FROM spans")
        table.runs = counted.fetchone()[0]
        table._finish(readings)
        return table

    def _add(self, spans: Sequence[SpanRecord]) -> None:
        self._connection.executemany(
            _INSERT, (row_of(span, run_id_of(span.trace_id)) for span in spans)
        )

    def _finish(self, readings: Sequence[Reading]) -> None:
        self._connection.executemany(
            "INSERT INTO readings VALUES (?, ?, ?, ?, ?, ?)",
            [
                (each.time_ns, each.reader, each.what, each.run_id, each.record_id, each.tenant)
                for each in readings
            ],
        )
        self._connection.execute("CREATE INDEX spans_of_trace ON spans (trace_id)")
        self._connection.execute("PRAGMA query_only = 1")

    def ask(
        self, sql: str, values: dict[str, Any] | None = None
    ) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
        """Return the names of the columns and the rows.

        Raises:
            ClewError: the statement is wrong, or would change something.
        """
        try:
            cursor = self._connection.execute(sql, values or {})
            rows = cast("list[tuple[Any, ...]]", cursor.fetchall())
        except sqlite3.Error as error:
            raise ClewError(f"the question cannot be answered: {error}") from None
        return tuple(each[0] for each in cursor.description or ()), rows

    def close(self) -> None:
        """Let go of the table."""
        self._connection.close()


def records(source: Source, wanted: RunFilter) -> Iterator[RunRecord]:
    """Give each run of a source that is wanted, newest first."""
    after: str | None = None
    while True:
        page = source.runs(wanted, Page(limit=MAX_PAGE, after=after))
        for run in page.runs:
            yield source.run(run.trace_id)
        if page.next is None:
            return
        after = page.next
