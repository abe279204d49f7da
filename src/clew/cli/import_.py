"""`clew import`."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Annotated

import typer

from clew.cli.output import print_json, say
from clew.errors import ClewError
from clew.sources.otlp_json import batches
from clew.store.otlp import Batch
from clew.store.paths import store_path
from clew.store.records import SpanRecord, run_id_of
from clew.store.writer import Writer, WriteResult

_MOST_RUNS = 20
_SPANS_AT_ONCE = 2000


def import_(
    file: Annotated[
        Path | None,
        typer.Argument(help="One OTLP JSON document, or one on each line.", metavar="[FILE]"),
    ] = None,
    records: Annotated[
        bool,
        typer.Option(
            "--records", help="Make spans of recorded model calls whose run has none of them."
        ),
    ] = False,
    data_dir: Annotated[
        Path | None, typer.Option(help="Folder of the store. [default: CLEW_DATA_DIR]")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Store the spans of an OTLP JSON file, or of what was recorded.

    Spans that are there already change nothing, so a file may be imported again.
    """
    if records == (file is not None):
        raise typer.BadParameter("give a FILE, or --records: one of the two")
    if file is None:
        _import_records(data_dir, json=json)
        return
    sent = gathered(batches(file))
    first = next(sent)  # a file that cannot be read leaves no empty store behind
    writer = Writer(store_path(data_dir))
    rejected = 0
    total = WriteResult()
    runs: dict[str, None] = {}
    try:
        for batch in chain((first,), sent):
            total = _sum(total, writer.write(batch.spans))
            rejected += batch.rejected
            runs.update(dict.fromkeys(each.trace_id for each in batch.spans))
    except ClewError as error:
        if total.stored:
            raise type(error)(f"{error} ({total.stored} spans before it are stored)") from None
        raise
    finally:
        writer.close()
    _report(total, rejected, [run_id_of(each) for each in runs], writer.path, json=json)


def _import_records(data_dir: Path | None, *, json: bool) -> None:
    """Make spans of the recorded calls of the data folder, where they have none."""
    from clew.store.backfill import span_of
    from clew.store.prompt_index import PromptReader
    from clew.store.prompt_records import EVERYTHING, PromptFilter

    path = store_path(data_dir)
    known: dict[str, frozenset[str]] = {}
    spans: list[SpanRecord] = []
    there = unknown = 0
    reader = PromptReader(path.parent)
    try:
        for row in reader.every(PromptFilter(), EVERYTHING):
            span = span_of(row)
            if span is None:
                unknown += 1
                continue
            if span.trace_id not in known:
                run = reader.run(span.trace_id)
                known[span.trace_id] = (
                    frozenset(e.span_id for e in run.spans) if run else frozenset()
                )
            if span.span_id in known[span.trace_id]:
                there += 1
            else:
                spans.append(span)
    finally:
        reader.close()
    total = WriteResult()
    writer = Writer(path)
    try:
        for at in range(0, len(spans), _SPANS_AT_ONCE):
            total = _sum(total, writer.write(tuple(spans[at : at + _SPANS_AT_ONCE])))
    finally:
        writer.close()
    runs = list(dict.fromkeys(run_id_of(each.trace_id) for each in spans))
    if json:
        counts = {"stored": total.stored, "there_already": there, "without_a_run": unknown}
        print_json({**counts, "runs": runs})
        return
    say(f"made {total.stored} spans of records, in {len(runs)} runs, marked clew.backfilled")
    for number, what in (
        (there, "records have their span already"),
        (unknown, "records belong to no known run and stay what they are"),
    ):
        if number:
            say(f"{number} {what}")
    _print_runs(runs)


def _print_runs(runs: list[str]) -> None:
    for run_id in runs[:_MOST_RUNS]:
        print(run_id)
    if len(runs) > _MOST_RUNS:
        say(f"and {len(runs) - _MOST_RUNS} more: `clew runs` lists them")


def gathered(sent: Iterator[Batch]) -> Iterator[Batch]:
    """Join small documents into batches that are worth a transaction of their own.

    What came before a broken line is handed on before its error is raised.
    """
    spans: list[SpanRecord] = []
    rejected = 0
    broken: ClewError | None = None
    while broken is None:
        try:
            batch = next(sent, None)
        except ClewError as error:
            broken, batch = error, None
        if batch is not None:
            spans += batch.spans
            rejected += batch.rejected
        if batch is None or len(spans) >= _SPANS_AT_ONCE:
            if broken is None or spans:
                yield Batch(spans=tuple(spans), rejected=rejected)
            spans, rejected = [], 0
        if batch is None and broken is None:
            return
    raise broken


def _sum(one: WriteResult, other: WriteResult) -> WriteResult:
    return WriteResult(
        stored=one.stored + other.stored,
        duplicates=one.duplicates + other.duplicates,
        conflicts=one.conflicts + other.conflicts,
    )


def _report(total: WriteResult, rejected: int, runs: list[str], path: Path, *, json: bool) -> None:
    if json:
        print_json(
            {
                "stored": total.stored,
                "identical_copies": total.duplicates,
                "conflicting_copies": total.conflicts,
                "rejected": rejected,
                "runs": runs,
            }
        )
        return
    say(f"stored {total.stored} spans of {len(runs)} traces in {path}")
    for number, what in (
        (total.duplicates, "were there already"),
        (total.conflicts, "differ from a stored span with the same id and are kept beside it"),
        (rejected, "were rejected: no valid ids or times"),
    ):
        if number:
            say(f"{number} spans {what}")
    _print_runs(runs)
