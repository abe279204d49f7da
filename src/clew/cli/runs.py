"""`clew runs`."""

from __future__ import annotations

from collections.abc import Sequence
from shutil import get_terminal_size
from typing import Annotated

import typer

from clew import semconv
from clew.cli import times
from clew.cli.output import is_terminal, print_json, print_table, say
from clew.sources import open_source, wording
from clew.sources.forms import list_form
from clew.store.records import MAX_PAGE, Page, RunFilter, RunSummary

_COLUMNS = (
    "run", "agent", "status", "start (UTC)", "duration", "rounds", "tools", "denials",
    "input", "output", "cost",
)  # fmt: skip
_LEFT = 4
"""The first columns are words, the others numbers."""
_NARROW = 112
SOURCES = "a file of OTLP JSON, store://PATH, jaeger://HOST, tempo://HOST or clickhouse://HOST"
_LEFT_OUT_WHERE_NARROW = frozenset({"rounds", "tools", "input", "output"})


def runs(
    agent: Annotated[str | None, typer.Option(help="Only runs of this agent.")] = None,
    status: Annotated[
        str | None, typer.Option(help=f"Only runs that are {', '.join(semconv.RUN_STATUSES)}.")
    ] = None,
    denied: Annotated[bool, typer.Option("--denied", help="Only runs with a denial.")] = False,
    failed: Annotated[bool, typer.Option("--failed", help="Only runs with an error.")] = False,
    everything: Annotated[
        bool, typer.Option("--everything", help="Traces without any span of Clew too.")
    ] = False,
    since: Annotated[
        str | None, typer.Option(help="Only runs since then: 12h (ago), or 2026-12-01T10:00.")
    ] = None,
    until: Annotated[str | None, typer.Option(help="Only runs before then.")] = None,
    limit: Annotated[
        int, typer.Option(min=1, max=MAX_PAGE, help="How many runs at the most.")
    ] = 20,
    after: Annotated[
        str | None, typer.Option(help="Go on behind the `next` of the page before.")
    ] = None,
    source: Annotated[
        str | None, typer.Option(help=f"Where from: {SOURCES}. [default: the store]")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List runs, newest first."""
    wanted = RunFilter(
        agent=agent,
        status=status,
        denied=denied,
        failed=failed,
        everything=everything,
        since_ns=times.since(since) if since else None,
        until_ns=times.since(until) if until else None,
    )
    with open_source(source) as opened:
        page = opened.runs(wanted, Page(limit=limit, after=after))
    if json:
        print_json(list_form(page))
        return
    if page.runs:
        _print(page.runs)
    else:
        say("no run matches" if wanted != RunFilter() else "no runs yet")
    if page.next:
        say(f"more: clew runs --after {page.next}")


def _print(found: Sequence[RunSummary]) -> None:
    rows = [_row(each) for each in found]
    columns = _COLUMNS
    if is_terminal():
        # A terminal has little room: how an id begins is enough for `clew show`.
        rows = [(row[0][:8], *row[1:]) for row in rows]
        if get_terminal_size().columns < _NARROW:
            kept = [
                place for place, name in enumerate(columns) if name not in _LEFT_OUT_WHERE_NARROW
            ]
            columns = tuple(columns[place] for place in kept)
            rows = [tuple(row[place] for place in kept) for row in rows]
            # Month to minute; the year and the seconds are in --json.
            rows = [(*row[:3], row[3][5:16], *row[4:]) for row in rows]
    print_table(columns, rows, right=range(_LEFT, len(columns)))


def _row(run: RunSummary) -> tuple[str, ...]:
    return (
        run.run_id,
        run.agent or run.service or "",
        wording.STATUS_WORDS.get(run.status or "", "trace"),
        wording.moment(run.start_ns),
        wording.duration(run.duration_ns),
        wording.count(run.rounds),
        wording.count(run.tool_calls),
        wording.count(run.denials),
        wording.tokens(run.input_tokens),
        wording.tokens(run.output_tokens),
        wording.cost(run.cost_usd, run.cost_status),
    )
