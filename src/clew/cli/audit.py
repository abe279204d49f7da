"""`clew audit`: what the record says, in one command."""

from __future__ import annotations

import csv
import getpass
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from clew.audit.keys import KeyRing
from clew.audit.questions import BY_NAME, FILTERS, QUESTIONS
from clew.audit.table import Table
from clew.cli.output import clean, is_terminal, print_json, print_table, say
from clew.cli.times import since
from clew.errors import ClewError
from clew.ids import parse_run_id
from clew.settings import Settings
from clew.sources import open_source, resolve
from clew.store.access import read as readings
from clew.store.paths import data_dir
from clew.store.records import RunFilter

audit = typer.Typer(no_args_is_help=True)
_EVERY: Final = 500
_NUMBERS: Final = frozenset({"times", "failed", "readings", "runs", "rounds", "cost_usd",
                             "without_cost", "waited_s", "decisions"})  # fmt: skip

_Source = Annotated[
    str | None, typer.Option(help="A file of OTLP JSON, or scheme://PLACE. [default: the store]")
]
_Since = Annotated[
    str | None, typer.Option("--since", help="Only runs since then: 2h, 7d, a date.")
]
_Until = Annotated[str | None, typer.Option("--until", help="Only runs before then.")]
_Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
_Csv = Annotated[bool, typer.Option("--csv", help="Print CSV.")]
_Explain = Annotated[bool, typer.Option("--explain", help="Print what is asked, and do not ask.")]
_Tool = Annotated[str | None, typer.Option(help="Only this tool.")]
_Model = Annotated[str | None, typer.Option(help="Only this model.")]
_Gate = Annotated[str | None, typer.Option(help="Only this gate.")]
_Class = Annotated[str | None, typer.Option(help="Only this class of data.")]
_Zone = Annotated[str | None, typer.Option(help="Only this trust zone.")]
_Tenant = Annotated[str | None, typer.Option(help="Only this tenant.")]
_Agent = Annotated[str | None, typer.Option(help="Only this agent.")]
_Actor = Annotated[str | None, typer.Option(help="Only this actor, by its keyed digest.")]


def _command(name: str) -> None:
    """Make the command of a question."""
    question = BY_NAME[name]

    def ask(
        source: _Source = None,
        since_: _Since = None,
        until: _Until = None,
        tool: _Tool = None,
        model: _Model = None,
        gate: _Gate = None,
        data_class: _Class = None,
        zone: _Zone = None,
        tenant: _Tenant = None,
        agent: _Agent = None,
        actor: _Actor = None,
        policy: Annotated[str | None, typer.Option(help="Only this policy.")] = None,
        older_than: Annotated[
            str | None, typer.Option(help="Only versions before this one (`policies`).")
        ] = None,
        json: _Json = False,
        csv_: _Csv = False,
        explain: _Explain = False,
    ) -> None:
        values = (tool, model, gate, data_class, zone, tenant, agent, actor, policy, older_than)
        given: dict[str, Any] = dict(zip(FILTERS, values, strict=True))
        unused = [each for each, value in given.items() if value and f":{each}" not in question.sql]
        if unused:
            options = ", ".join(f"--{each.replace('_', '-')}" for each in unused)
            raise ClewError(f"`clew audit {name}` cannot be narrowed by {options}")
        wanted = RunFilter(
            since_ns=since(since_) if since_ else None,
            until_ns=since(until) if until else None,
            everything=True,
        )
        if explain:
            _explain(question.sql, given, source, wanted)
            return
        columns, rows = _ask(question.sql, given, source, wanted)
        _print(columns, rows, json=json, as_csv=csv_)

    ask.__doc__ = question.help
    audit.command(name, help=question.help)(ask)


def _ask(
    sql: str, values: dict[str, Any], source: str | None, wanted: RunFilter
) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
    began = time.monotonic()

    def progress(runs: int) -> None:
        if runs % _EVERY == 0 and sys.stderr.isatty():
            say(f"{runs} runs read in {time.monotonic() - began:.0f} s")

    seen = tuple(readings(data_dir()))
    files = _files(source)
    if files:
        table = Table.of_files(files, wanted, readings=seen)
    else:
        with open_source(source) as opened:
            table = Table(opened, wanted, readings=seen, progress=progress)
    try:
        return table.ask(sql, values)
    finally:
        table.close()


def _files(source: str | None) -> list[Path]:
    """Return the files that a folder or a pattern stands for; none where it is something else."""
    if source is None or "://" in source:
        return []
    path = Path(source).expanduser()
    if path.is_dir():
        return sorted(each for each in path.iterdir() if each.suffix in (".json", ".jsonl"))
    if any(each in source for each in "*?["):
        root = Path(path.anchor or ".")
        found = sorted(root.glob(str(path.relative_to(path.anchor))))
        if not found:
            raise ClewError(f"no file is called like {source!r}")
        return found
    return []


def _explain(sql: str, values: dict[str, Any], source: str | None, wanted: RunFilter) -> None:
    print(f"-- the spans of {source or 'the local store'} in a temporary table, then:")
    for name, value in values.items():
        if value is not None:
            print(f"-- :{name} = {clean(value)!r}")
    for name in ("since_ns", "until_ns"):
        if getattr(wanted, name) is not None:
            print(f"-- runs with start {name.removesuffix('_ns')} {getattr(wanted, name)}")
    print(sql.strip())


def _print(
    columns: Sequence[str], rows: Sequence[Sequence[Any]], *, json: bool, as_csv: bool
) -> None:
    if json:
        print_json([dict(zip(columns, row, strict=True)) for row in rows])
        return
    if as_csv:
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows([["" if cell is None else _safe(cell) for cell in row] for row in rows])
        return
    if not rows:
        say("nothing in the record answers to this")
        return
    right = [place for place, name in enumerate(columns) if name in _NUMBERS]
    cells = [["" if cell is None else str(cell) for cell in row] for row in rows]
    if is_terminal() and "run" in columns:
        place = columns.index("run")
        cells = [[*row[:place], row[place][:8], *row[place + 1 :]] for row in cells]
    print_table(columns, cells, right=right)


def _safe(cell: Any) -> Any:
    """Keep a spreadsheet from taking a text for a formula."""
    return f"'{cell}" if isinstance(cell, str) and cell[:1] in "=+-@\t\r" else cell


@audit.command()
def checkpoint(
    file: Annotated[
        Path, typer.Argument(help="The file; it is made, or continued.", metavar="FILE")
    ],
    source: _Source = None,
    json: _Json = False,
) -> None:
    """Write the digests of sealed segments into a chained file, hour by hour, to keep elsewhere."""
    from clew import semconv
    from clew.audit.checkpoints import append
    from clew.audit.table import records

    seals: list[tuple[int, str, str]] = []
    with open_source(source) as opened:
        for record in records(opened, RunFilter()):
            for span in record.spans:
                digest = span.attributes.get(semconv.SEGMENT_DIGEST)
                if isinstance(digest, str) and span.segment_id is not None:
                    seals.append((span.start_ns, span.segment_id, digest))
    added = append(file, seals, until_ns=time.time_ns())
    if json:
        print_json({"file": str(file), "hours": [each.hour for each in added],
                    "segments": sum(len(each.segments) for each in added)})  # fmt: skip
        return
    counted = sum(len(each.segments) for each in added)
    say(f"{len(added)} hours with {counted} segments added to {file}" if added
        else "no hour that is over has a segment that is not in the file yet")  # fmt: skip


_Key = Annotated[
    list[Path] | None,
    typer.Option("--key", help="A file with a key: a secret, or an Ed25519 key. Repeatable."),
]


@audit.command()
def export(
    runs: Annotated[list[str], typer.Argument(help="Runs: uuids, or how they begin.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="The ZIP file to write.")],
    source: _Source = None,
    key: _Key = None,
    anchor: Annotated[Path | None, typer.Option(help="A checkpoint file to add.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that is there.")] = False,
) -> None:
    """Write an evidence pack: spans, timeline, proof and manifest of runs in one ZIP file."""
    from importlib.metadata import version

    from clew.audit.evidence import pack

    if output.exists() and not force:
        raise ClewError(f"{output} is there already: give another name, or --force")
    with open_source(source) as opened:
        found = [opened.run(resolve(opened, each)) for each in dict.fromkeys(runs)]
    data = pack(
        found,
        KeyRing.of(Settings.from_environment(), key or ()),
        clew_version=version("clew"),
        checkpoint_file=anchor,
    )
    output.write_bytes(data)
    say(f"{output}: {len(found)} runs, {len(data)} bytes; check it with `clew audit check`")


@audit.command()
def check(
    file: Annotated[Path, typer.Argument(help="An evidence pack.", metavar="FILE")],
    key: _Key = None,
    json: _Json = False,
) -> None:
    """Check an evidence pack: its files, its runs, its checkpoints.

    Exit code 0: everything is as it was, complete and not altered. 1: something is not.
    """
    from clew.audit.evidence import check as check_pack
    from clew.audit.report import outcome

    try:
        data = file.read_bytes()
    except OSError as error:
        raise ClewError(f"{file} cannot be read: {error.strerror}") from None
    found = check_pack(data, KeyRing.of(Settings.from_environment(), key or ()))
    if json:
        print_json(found)
    else:
        rows = [(each.run_id, each.agent or "", each.status, each.integrity, each.reason)
                for each in found.reports]  # fmt: skip
        print_table(("run", "agent", "complete", "unaltered", "why"), rows)
        for problem in found.problems:
            print(f"problem: {clean(problem)}")
    sys.exit(0 if not found.problems and outcome(found.reports) == "proven" else 1)


_By = Annotated[
    str | None, typer.Option("--by", help="Who does it. [default: your name on this machine]")
]
_Reason = Annotated[str, typer.Option(help="Why: a code, such as `data_subject_request`.")]


@audit.command()
def erase(
    reason: _Reason,
    run: Annotated[str | None, typer.Option(help="This run: its uuid.")] = None,
    tenant: Annotated[str | None, typer.Option(help="Runs of this tenant.")] = None,
    actor: Annotated[str | None, typer.Option(help="Runs of this actor (keyed digest).")] = None,
    before: Annotated[
        str | None, typer.Option(help="Runs that began before then: 90d, or a date.")
    ] = None,
    content: Annotated[
        bool, typer.Option("--content", help="Only captured content; the spans stay.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be erased, and erase nothing.")
    ] = False,
    by: _By = None,
    json: _Json = False,
) -> None:
    """Erase runs, or their content, from the local store, and keep the proof of it.

    Runs and tenants under a legal hold stay. Each run that is erased leaves a tombstone.
    """
    from clew.store.erasure import Wanted
    from clew.store.erasure import erase as erase_runs

    found = erase_runs(
        data_dir(),
        Wanted(
            run_id=None if run is None else str(parse_run_id(run)),
            tenant=tenant,
            actor=actor,
            before_ns=since(before) if before else None,
        ),
        category="content" if content else "all",
        reason=reason,
        by=by or f"local:{getpass.getuser()}",
        dry_run=dry_run,
    )
    if json:
        print_json(found)
        return
    rows = [(each.run_id, each.category, str(each.spans), str(each.records))
            for each in found.tombstones]  # fmt: skip
    if rows:
        print_table(("run", "what", "spans", "records"), rows, right=(2, 3))
    what = "would be erased" if dry_run else "erased"
    held = f", {len(found.held)} stay under a legal hold" if found.held else ""
    say(f"{len(found.tombstones)} runs {what}{held}")


@audit.command()
def hold(
    action: Annotated[str, typer.Argument(help="`add`, `release` or `list`.")],
    run: Annotated[str | None, typer.Option(help="This run: its uuid.")] = None,
    tenant: Annotated[str | None, typer.Option(help="This tenant.")] = None,
    reason: Annotated[str | None, typer.Option(help="Why: a code, such as a case number.")] = None,
    by: _By = None,
    json: _Json = False,
) -> None:
    """Put a run or a tenant under a legal hold, release it, or list what is held."""
    from clew.store.erasure import holds, set_hold

    if action == "list":
        found = holds(data_dir())
        rows = [*(("run", each) for each in sorted(found.runs)),
                *(("tenant", each) for each in sorted(found.tenants))]  # fmt: skip
        if json:
            print_json({"runs": sorted(found.runs), "tenants": sorted(found.tenants)})
        elif rows:
            print_table(("held", "which"), rows)
        else:
            say("nothing is under a legal hold")
        return
    if action not in ("add", "release") or reason is None:
        raise ClewError("write `clew audit hold add|release --run RUN --reason CODE`, or `list`")
    set_hold(
        data_dir(),
        "hold" if action == "add" else "release",
        run_id=None if run is None else str(parse_run_id(run)),
        tenant=tenant,
        reason=reason,
        by=by or f"local:{getpass.getuser()}",
    )
    say("held" if action == "add" else "released")


for _each in QUESTIONS:
    _command(_each.name)
