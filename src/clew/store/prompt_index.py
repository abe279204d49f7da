"""The index of records, one row for each call: written by `RecordStore`, read by `PromptReader`."""

from __future__ import annotations

import sqlite3
import uuid
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import msgspec

from clew.errors import StoreError
from clew.store import paths, payloads
from clew.store.database import connect, explain, transaction
from clew.store.migrations import migrate
from clew.store.prompt_records import (
    EVERYTHING,
    SHORT,
    AmbiguousRecordError,
    ModelOfRecord,
    PromptFilter,
    PromptPage,
    PromptRecord,
    PromptRow,
    RecordedError,
    RecordedResponse,
    RecordedUsage,
    RecordNotFoundError,
    RunOfRecord,
    Scope,
    SystemPrompt,
    Trigger,
    cursor,
)
from clew.store.reader import Reader
from clew.store.records import MAX_PAGE, Page, QueryError

COLUMNS: Final = PromptRow.__struct_fields__
_JSON: Final = frozenset({"blocks", "tools"})
_SAVE: Final = (
    f"INSERT OR REPLACE INTO prompt_requests ({', '.join(COLUMNS)}) "  # noqa: S608 - our own words
    f"VALUES ({', '.join('?' * len(COLUMNS))})"
)
_SELECT: Final = f"SELECT {', '.join(COLUMNS)} FROM prompt_requests"  # noqa: S608
_LAST: Final = "\U0010ffff"
_SHOWN: Final = 5


class RecordStore:
    """Writes records: payload files and rows. For one thread at a time.

    Args:
        folder: the data folder; what is missing there is made.

    Raises:
        StoreError: the store cannot be opened, or is newer than this program.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = paths.store_path(folder)
        paths.prepare(self.path)
        self._connection = connect(self.path)
        try:
            migrate(self._connection, self.path)
        except BaseException:
            self._connection.close()
            raise

    def save(self, records: Sequence[tuple[PromptRow, PromptRecord | None]]) -> int:
        """Write rows, each with its payload first where it has one; return the bytes of payloads.

        All rows or none are written; of rows that are not, no payload stays.

        Raises:
            StoreError: they cannot be written.
        """
        written: list[str] = []
        rows: list[PromptRow] = []
        total = 0
        try:
            for row, record in records:
                if record is not None:
                    relative, size = payloads.write(self.folder, record)
                    written.append(relative)
                    total += size
                    row = msgspec.structs.replace(row, path=relative, payload_bytes=size)  # noqa: PLW2901
                rows.append(row)
            with transaction(self._connection):
                self._connection.executemany(_SAVE, [_values(row) for row in rows])
        except BaseException as error:
            for relative in written:
                payloads.remove(self.folder, relative)
            if isinstance(error, sqlite3.Error):
                raise explain(error, self.path) from error
            if isinstance(error, OSError):
                raise StoreError(
                    f"the payloads in {self.folder / payloads.FOLDER} cannot be written: "
                    f"{error.strerror}"
                ) from error
            raise
        return total

    def close(self) -> None:
        """Close the file."""
        self._connection.close()


class PromptReader(Reader):
    """Reads records, and runs; safe to use from several threads, beside any writer.

    Every question names a scope: whose records may be read. What is outside of it does not exist.

    Args:
        folder: the data folder, with the store in it.

    Raises:
        StoreError: there is no store, it cannot be read, or it is newer than this program.
    """

    def __init__(self, folder: Path, *, connections: int = 8) -> None:
        super().__init__(paths.store_path(folder), connections=connections)
        self.folder = folder

    def records(self, wanted: PromptFilter, page: Page, scope: Scope) -> PromptPage:
        """Return one page of records, newest first.

        Raises:
            QueryError: the cursor is none that a list gave.
            StoreError: the store cannot be read.
        """
        where, values = _conditions(wanted, scope)
        position = page.position()
        if position is not None:
            where.append("(start_ns, request_id) < (?, ?)")
            values += [position[0], position[1]]
        sql = f"{_SELECT} WHERE {' AND '.join(where)} ORDER BY start_ns DESC, request_id DESC"
        with self._connection() as connection:
            rows = connection.execute(f"{sql} LIMIT ?", (*values, page.limit + 1)).fetchall()
            found = tuple(_row(each) for each in rows[: page.limit])
        more = len(rows) > page.limit
        return PromptPage(records=found, next=cursor(found[-1]) if more else None)

    def every(self, wanted: PromptFilter, scope: Scope) -> Iterator[PromptRow]:
        """Yield all records that there are, newest first, page by page."""
        after: str | None = None
        while True:
            page = self.records(wanted, Page(limit=MAX_PAGE, after=after), scope)
            yield from page.records
            after = page.next
            if after is None:
                return

    def of_message(self, message_id: str, scope: Scope) -> tuple[PromptRow, ...]:
        """Return the records of one message, oldest first (the newest 1,000 of them)."""
        return self._all(PromptFilter(message_id=message_id), scope)

    def of_run(self, run: str, scope: Scope) -> tuple[PromptRow, ...]:
        """Return the records of one run (its uuid or trace id), oldest first."""
        return self._all(PromptFilter(run_id=run), scope)

    def of_span(self, trace_id: str, span_id: str, scope: Scope) -> PromptRow | None:
        """Return the record of the call that a span of the timeline stands for."""
        where, values = _conditions(PromptFilter(trace_id=trace_id), scope)
        sql = f"{_SELECT} WHERE {' AND '.join(where)} AND span_id = ? LIMIT 1"
        with self._connection() as connection:
            row = connection.execute(sql, (*values, span_id)).fetchone()
            return None if row is None else _row(row)

    def find_record(self, reference: str, scope: Scope) -> PromptRow:
        """Return the row that a request id names, or the digits that only one id begins with.

        The text is taken literally, and an exact id wins.

        Raises:
            QueryError: an empty text.
            RecordNotFoundError: there is none within the scope.
            AmbiguousRecordError: several begin so.
            StoreError: the store cannot be read.
        """
        prefix = reference.strip()
        if not prefix:
            raise QueryError("give the id of a record, or how it begins")
        where, values = _conditions(PromptFilter(), scope)
        sql = (
            f"{_SELECT} WHERE request_id >= ? AND request_id < ? AND {' AND '.join(where)} "
            "ORDER BY request_id LIMIT ?"
        )
        with self._connection() as connection:
            rows = connection.execute(sql, (prefix, prefix + _LAST, *values, _SHOWN + 1)).fetchall()
            found = [_row(each) for each in rows]
        if not found:
            raise RecordNotFoundError(
                f"there is no record {reference[:80]!r}: `clew prompt list` lists them"
            )
        # An exact id sorts before all that it is the beginning of.
        if found[0].request_id != prefix and len(found) > 1:
            shown = ", ".join(row.request_id for row in found[:_SHOWN])
            more = ", ..." if len(found) > _SHOWN else ""
            raise AmbiguousRecordError(
                f"several records begin with {reference[:80]!r}: {shown}{more}; give more digits"
            )
        return found[0]

    def record(self, row: PromptRow) -> PromptRecord:
        """Return the whole record of a row; where the level kept content out, what the row knows.

        Raises:
            RecordNotFoundError: its payload is gone.
            StoreError: its payload cannot be read.
        """
        return without_content(row) if row.path is None else payloads.read(self.folder, row.path)

    def payload_path(self, row: PromptRow) -> Path | None:
        """Return the payload file of a row; None where it has none."""
        return None if row.path is None else self.folder / row.path

    def short_id(self, row: PromptRow) -> str:
        """Return the first digits of an id that name this record alone: 8, or as many as needed."""
        with self._connection() as connection:
            for length in range(SHORT, len(row.request_id)):
                short = row.request_id[:length]
                found = connection.execute(
                    "SELECT count(*) FROM (SELECT 1 FROM prompt_requests "
                    "WHERE request_id >= ? AND request_id < ? LIMIT 2)",
                    (short, short + _LAST),
                ).fetchone()
                if found[0] == 1:
                    return short
        return row.request_id

    def size(self, scope: Scope = EVERYTHING) -> tuple[int, int]:
        """Return how many records there are, and the bytes of their payloads."""
        where, values = _conditions(PromptFilter(), scope)
        with self._connection() as connection:
            row = connection.execute(
                "SELECT count(*), coalesce(sum(payload_bytes), 0) FROM prompt_requests "  # noqa: S608
                f"WHERE {' AND '.join(where)}",
                values,
            ).fetchone()
        return row[0], row[1]

    def _all(self, wanted: PromptFilter, scope: Scope) -> tuple[PromptRow, ...]:
        page = self.records(wanted, Page(limit=MAX_PAGE), scope)
        return tuple(reversed(page.records))


def without_content(row: PromptRow) -> PromptRecord:
    """Return what a row knows as a record that has no content."""
    given = {name: getattr(row, name) for name in COLUMNS}
    of_run = {name: given[name] for name in RunOfRecord.__struct_fields__}
    usage = {name: given[name] for name in RecordedUsage.__struct_fields__}
    error = None
    if row.status != "ok":
        error = RecordedError(type=row.error_type)
    return PromptRecord(
        request_id=row.request_id,
        level=row.level,
        operation=row.operation,
        started_at=iso(row.start_ns),
        start_ns=row.start_ns,
        duration_ms=round(row.duration_ns / 1e6, 2),
        partial=row.partial,
        run=RunOfRecord(**of_run),
        trigger=Trigger(kind=row.trigger, message_id=row.message_id, parent=row.parent),
        model=ModelOfRecord(
            name=row.model,
            provider=row.provider,
            answered=row.answered,
            served_by=row.served_by,
        ),
        system=SystemPrompt(
            bytes=row.system_bytes,
            chars=row.system_chars,
            digest=row.system_digest,
            blocks=row.blocks,
        ),
        tools=row.tools,
        history_length=row.history_length,
        request_bytes=row.request_bytes,
        response=RecordedResponse(
            finish_reason=row.finish_reason,
            error=error,
            outcome=row.outcome,
            bytes=row.response_bytes,
        ),
        usage=RecordedUsage(**usage) if row.has_usage else None,
    )


def iso(start_ns: int) -> str:
    """Return a time in UTC as ISO 8601 writes it, in microseconds."""
    seconds, rest = divmod(start_ns, 1_000_000_000)
    day = datetime.fromtimestamp(seconds, UTC)
    return f"{day:%Y-%m-%dT%H:%M:%S}.{rest // 1000:06d}Z"


def _values(row: PromptRow) -> tuple[Any, ...]:
    return tuple(
        msgspec.json.encode(getattr(row, name)).decode() if name in _JSON else getattr(row, name)
        for name in COLUMNS
    )


def _row(values: Sequence[Any]) -> PromptRow:
    given = dict(zip(COLUMNS, values, strict=True))
    for name in _JSON:
        given[name] = msgspec.json.decode(given[name] or "[]")
    given["partial"] = bool(given["partial"])
    return msgspec.convert(given, PromptRow)


def _conditions(wanted: PromptFilter, scope: Scope) -> tuple[list[str], list[Any]]:
    """Return the conditions of a question; what the scope says is always among them."""
    where, values = scope.conditions()
    if wanted.message_id is not None:
        return [*where, "message_id = ?", "message_id != ''"], [*values, wanted.message_id]
    for column, value in (
        ("agent", wanted.agent),
        ("run_id", None if wanted.run_id is None else _uuid(wanted.run_id)),
        ("trace_id", wanted.trace_id),
        ("conversation_id", wanted.conversation_id),
        ("operation", wanted.operation),
        ("status", wanted.status),
    ):
        if value is not None:
            where.append(f"{column} = ?")
            values.append(value)
    if wanted.model is not None:
        where.append("(model = ? OR answered = ?)")
        values += [wanted.model, wanted.model]
    if wanted.since_ns is not None:
        where.append("start_ns >= ?")
        values.append(wanted.since_ns)
    if wanted.until_ns is not None:
        where.append("start_ns < ?")
        values.append(wanted.until_ns)
    return where, values


def _uuid(run: str) -> str:
    try:
        return str(uuid.UUID(run))
    except ValueError:
        raise QueryError(f"{run[:80]!r} is no run: give its uuid") from None
