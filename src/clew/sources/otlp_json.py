"""A file of OTLP JSON as a source: one document, or one document on each line.

Lines are what a collector's file exporter writes; those with metrics or logs are skipped.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from clew.errors import ClewError
from clew.sources import BaseSource, RunNotFoundError, path_of
from clew.store.otlp import Batch, OtlpError
from clew.store.otlp_json import decode
from clew.store.records import (
    Page,
    RunFilter,
    RunPage,
    RunRecord,
    RunSummary,
    SpanRecord,
    cursor,
    run_id_of,
    span_order,
)
from clew.store.rows import prepare
from clew.store.scopes import EVERYTHING, Scope
from clew.store.summary import RunFold


def batches(path: Path) -> Iterator[Batch]:
    """Read a file, document by document; long files of lines are never held as a whole.

    Raises:
        OtlpError: the file, or a line of it, is no OTLP JSON.
        ClewError: the file cannot be read.
    """
    try:
        with path.open("rb") as file:
            first = file.readline().removeprefix(b"\xef\xbb\xbf")
            try:
                batch = decode(first)
            except OtlpError as error:
                yield _whole(first + file.read(), error, path)
                return
            yield batch
            for number, line in enumerate(file, 2):
                if line.strip():
                    try:
                        yield decode(line)
                    except OtlpError as error:
                        raise OtlpError(f"{path}, line {number}: {error}") from None
    except OSError as error:
        raise ClewError(f"{path} cannot be read: {error.strerror}") from None


def _whole(content: bytes, first_line: OtlpError, path: Path) -> Batch:
    try:
        return decode(content)
    except OtlpError as error:
        # A broken first line of many is a fault of that line, not of the file as one document.
        lines = content.count(b"\n", 0, len(content.rstrip())) > 0 and content.startswith(b'{"')
        message = f"line 1: {first_line}" if lines else str(error)
        raise OtlpError(f"{path}, {message}" if lines else f"{path}: {message}") from None


class OtlpJsonSource(BaseSource):
    """Reads every run of a file into memory.

    Raises:
        OtlpError: the file is no OTLP JSON.
        ClewError: the file cannot be read.
    """

    def __init__(self, where: str | Path) -> None:
        self._runs: dict[str, RunRecord] = {}
        spans: defaultdict[str, list[SpanRecord]] = defaultdict(list)
        for batch in batches(path_of(str(where))):
            for span in batch.spans:
                spans[span.trace_id].append(span)
        for trace_id, found in spans.items():
            self._runs[trace_id] = record_of(trace_id, found)

    def runs(self, wanted: RunFilter, page: Page) -> RunPage:
        """Return one page of runs, newest first."""
        position = page.position()
        found = [
            each.summary
            for each in self._runs.values()
            if wanted.accepts(each.summary)
            and (not wanted.asks_for_spans or wanted.accepts_spans(each.spans))
            and (position is None or _place(each.summary) < position)
        ]
        found.sort(key=_place, reverse=True)
        more = len(found) > page.limit
        found = found[: page.limit]
        return RunPage(runs=tuple(found), next=cursor(found[-1]) if more else None)

    def run(self, trace_id: str) -> RunRecord:
        """Return one run with all its spans."""
        if trace_id not in self._runs:
            raise RunNotFoundError(f"there is no run {run_id_of(trace_id)}")
        return self._runs[trace_id]

    def find(self, prefix: str, limit: int) -> tuple[str, ...]:
        """Return the trace ids that begin with these hex digits."""
        return tuple(sorted(each for each in self._runs if each.startswith(prefix))[:limit])

    def agents(self, scope: Scope = EVERYTHING) -> tuple[str, ...]:
        """Return the names of the agents in the file."""
        runs = (each.summary for each in self._runs.values())
        names = (
            each.agent
            for each in runs
            if scope.covers(tenant=each.tenant, agent=each.agent, actor=each.actor)
        )
        return tuple(sorted({each for each in names if each is not None}))


def _place(run: RunSummary) -> tuple[int, str]:
    return run.start_ns, run.trace_id


def record_of(trace_id: str, found: list[SpanRecord]) -> RunRecord:
    """Tell copies and conflicts apart by the rule of the store: the first version stays."""
    state = RunFold(trace_id=trace_id)
    digests: dict[str, set[bytes]] = {}
    spans: list[SpanRecord] = []
    conflicts: list[SpanRecord] = []
    for span in found:
        digest = prepare(span).digest
        seen = digests.setdefault(span.span_id, set())
        if not seen:
            spans.append(span)
            state.add(span)
        elif digest in seen:
            state.duplicates += 1
        else:
            conflicts.append(span)
            state.conflicts += 1
        seen.add(digest)
    spans.sort(key=span_order)
    return RunRecord(summary=state.summary(), spans=tuple(spans), conflicts=tuple(conflicts))
