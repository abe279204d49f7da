"""`clew prompt`: what was sent to models and what came back, as it was recorded.

Exit codes: 1 for a store or a file that cannot be used, 2 for wrong usage, 3 where there is no such
record (or its payload is gone), 4 where several begin with the digits that were given; `budget`
ends with 1 where a bound is exceeded.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
import typer

from clew.cli import prompt_text
from clew.cli.output import is_terminal, print_json, print_table, say
from clew.errors import StoreError
from clew.recording import switch
from clew.recording.starting import forced, wanted
from clew.recording.sweeper import retention_of
from clew.settings import Settings
from clew.sources import (
    RunNotFoundError,
    open_source,
    prompt_budget,
    prompt_report,
    resolve,
    wording,
)
from clew.sources.prompt_forms import record_form, report_form, row_form
from clew.sources.prompt_report import AgentReport
from clew.store import paths
from clew.store.prompt_index import PromptReader
from clew.store.prompt_records import (
    AmbiguousRecordError,
    PromptFilter,
    PromptRecord,
    PromptRow,
    RecordNotFoundError,
    Scope,
)
from clew.store.records import MAX_PAGE, Page
from clew.store.retention import Retention, sweep

MISSING: Final = 3
AMBIGUOUS: Final = 4
_ON: Final = ("on", "true", "enable")
_OFF: Final = ("off", "false", "disable")
_UUID: Final = re.compile(r"[0-9a-fA-F]{8}-?(?:[0-9a-fA-F]{4}-?){3}[0-9a-fA-F]{12}")
_COLUMNS: Final = (
    "id", "process", "when (UTC)", "trigger", "outcome", "~systok", "msgs", "tools", "model",
)  # fmt: skip

prompt = typer.Typer(no_args_is_help=True, help="Look at recorded model calls, and record them.")

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Reference = Annotated[
    str, typer.Argument(help="A record's id, or how it begins.", metavar="RECORD")
]
Tenant = Annotated[str | None, typer.Option(help="Only records of this tenant.")]
Agent = Annotated[str | None, typer.Option("--agent", "-a", help="Only calls of this agent.")]
Run = Annotated[
    str | None, typer.Option("--run", "--process", "-p", help="Only calls of this run (its uuid).")
]


def folder() -> Path:
    """Return the data folder of this environment."""
    return paths.data_dir()


@contextmanager
def exit_codes() -> Generator[None]:
    """Let missing and ambiguous records have exit codes of their own."""
    try:
        yield
    except RecordNotFoundError as error:
        say(f"clew: {error}")
        raise typer.Exit(MISSING) from None
    except AmbiguousRecordError as error:
        say(f"clew: {error}")
        raise typer.Exit(AMBIGUOUS) from None


@contextmanager
def opened() -> Generator[PromptReader | None]:
    """Open the index; None where nothing was ever stored."""
    if not paths.store_path(folder()).is_file():
        yield None
        return
    reader = PromptReader(folder(), connections=1)
    try:
        yield reader
    finally:
        reader.close()


def found(reader: PromptReader | None, reference: str, scope: Scope) -> PromptRow:
    """Return the row that a reference names."""
    if reader is None:
        raise RecordNotFoundError(f"there is no record: nothing was recorded in {folder()}")
    return reader.find_record(reference, scope)


def scope_of(tenant: str | None) -> Scope:
    """Return whose records are shown: who may run the command may read the files."""
    return Scope(tenant=tenant, everything=True)


@prompt.command("list")
def list_(
    conversation: Annotated[
        str | None, typer.Option("--conversation", "-c", help="Only calls of this conversation.")
    ] = None,
    run: Run = None,
    message: Annotated[
        str | None,
        typer.Option("--message", "-m", help="All calls of this message; wins over the others."),
    ] = None,
    agent: Agent = None,
    model: Annotated[str | None, typer.Option(help="Only calls of this model.")] = None,
    failed: Annotated[bool, typer.Option("--failed", help="Only calls that failed.")] = False,
    tenant: Tenant = None,
    limit: Annotated[
        int, typer.Option("--limit", "-l", min=1, max=MAX_PAGE, help="How many at the most.")
    ] = 20,
    after: Annotated[
        str | None, typer.Option(help="Go on behind the `next` of the page before.")
    ] = None,
    json: Json = False,
) -> None:
    """List recorded calls, newest first."""
    filter_ = PromptFilter(
        conversation_id=conversation,
        run_id=run,
        message_id=message,
        agent=agent,
        model=model,
        status="error" if failed else None,
    )
    rows: tuple[PromptRow, ...] = ()
    next_ = None
    short: dict[str, str] = {}
    with opened() as reader:
        if reader is not None:
            page = reader.records(filter_, Page(limit=limit, after=after), scope_of(tenant))
            rows, next_ = page.records, page.next
            short = {each.request_id: reader.short_id(each) for each in rows}
    if json:
        print_json(
            {
                "capture_enabled": enabled(),
                "requests": [row_form(each) for each in rows],
                "next": next_,
            }
        )
        return
    if rows:
        table = [_cells(each, short[each.request_id]) for each in rows]
        print_table(_COLUMNS, table, right=range(5, 8))
    else:
        narrowed = filter_ != PromptFilter() or tenant is not None
        say("no record matches" if narrowed else "no calls were recorded")
        if not enabled():
            say("recording is off: `clew prompt capture on` switches it on")
    if next_:
        say(f"more: clew prompt list --after {next_}")


def _cells(row: PromptRow, short: str) -> tuple[str, ...]:
    when = wording.moment(row.start_ns)
    return (
        short,
        prompt_text.process(row),
        when[5:16] if is_terminal() else when,
        row.trigger or "",
        prompt_text.outcome(row),
        wording.tokens(row.system_tokens),
        wording.count(row.history_length),
        wording.count(row.tool_count),
        row.answered or row.model or "",
    )


def enabled() -> bool:
    """Tell whether calls are recorded, as far as this environment and the switch say."""
    return _state()["capture_enabled"]


def _state(settings: Settings | None = None) -> dict[str, Any]:
    settings = settings or Settings.from_environment()
    retention = retention_of(settings)
    return {
        "capture_enabled": wanted(settings),
        "forced": forced(settings) is not None,
        "level": settings.capture,
        "retention_days": retention.keep_days,
        "max_bytes": retention.max_bytes,
    }


@prompt.command("show")
def show(
    reference: Reference,
    raw: Annotated[
        bool, typer.Option("--raw", help="Print the system prompt alone, byte for byte.")
    ] = False,
    tenant: Tenant = None,
    json: Json = False,
) -> None:
    """Show one recorded call: its system prompt by block, tools, messages, response."""
    with exit_codes(), opened() as reader:
        row = found(reader, reference, scope_of(tenant))
        record = _record(reader, row)
        if raw:
            _print_raw(record)
        elif json:
            print_json(record_form(row, record))
        else:
            prompt_text.print_call(row, record)
            path = None if reader is None else reader.payload_path(row)
            if path is not None:
                say(f"payload: {path.absolute()}")


def _record(reader: PromptReader | None, row: PromptRow) -> PromptRecord:
    assert reader is not None  # noqa: S101 - a row came from it
    return reader.record(row)


def _print_raw(record: PromptRecord) -> None:
    text = record.system.text
    if text is None and record.system.bytes:
        why = prompt_text.missing(record, None)
        raise RecordNotFoundError(f"the system prompt of {record.request_id}: {why}")
    sys.stdout.flush()
    sys.stdout.buffer.write((text or "").encode())
    sys.stdout.buffer.flush()
    if record.level != "full":
        say("what looks like a secret is masked at this level, and long texts are cut")


@prompt.command("diff")
def diff(
    before: Annotated[str, typer.Argument(help="The earlier record.", metavar="RECORD")],
    after: Annotated[str, typer.Argument(help="The later record.", metavar="RECORD")],
    tenant: Tenant = None,
    json: Json = False,
) -> None:
    """Say what differs between two calls: blocks, tools, messages, model, parameters."""
    from clew.web import diff as differences

    with exit_codes(), opened() as reader:
        rows = [found(reader, each, scope_of(tenant)) for each in (before, after)]
        records = [_record(reader, each) for each in rows]
    known = differences.between((rows[0], records[0]), (rows[1], records[1]))
    if json:
        print_json(differences.form(known))
    else:
        prompt_text.print_difference(rows[0], rows[1], known)


@prompt.command("capture")
def capture(
    state: Annotated[
        str | None,
        typer.Argument(help="`on` or `off`; without it, say what holds.", metavar="[on|off]"),
    ] = None,
    retain: Annotated[
        int | None, typer.Option(help="Days that records are kept, from 1.", metavar="N")
    ] = None,
    json: Json = False,
) -> None:
    """Switch the recording of model calls on or off, for running processes too."""
    settings = Settings.from_environment()
    if state is not None:
        word = state.lower()
        if word not in (*_ON, *_OFF):
            raise typer.BadParameter(f"say on or off, not {state!r}")
        switch.write(folder(), enabled=word in _ON, retention_days=retain)
    elif retain is not None:
        switch.write(folder(), enabled=switch.read(folder()).enabled, retention_days=retain)
    now = _state(settings)
    if json:
        print_json(now)
        return
    says = "on" if now["capture_enabled"] else "off"
    print(f"recording is {says}; records are kept for {now['retention_days']} days")
    if now["forced"] and state is not None and (state.lower() in _ON) != now["capture_enabled"]:
        say(f"the settings of this environment force it {says}, whatever the switch says")
    if now["capture_enabled"] and now["level"] in ("none", "metadata"):
        say(
            f"at capture level `{now['level']}`, as in this environment, "
            + ("nothing is recorded" if now["level"] == "none" else "there is no content")
            + ": services need CLEW_CAPTURE=redacted or full for it"
        )


@prompt.command("sweep")
def sweep_(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Count, and remove nothing.")] = False,
    keep_days: Annotated[
        int | None, typer.Option(min=1, help="Days to keep. [default: as configured]")
    ] = None,
    max_bytes: Annotated[
        int | None, typer.Option(min=0, help="Bytes of payloads to keep. [default: as configured]")
    ] = None,
    json: Json = False,
) -> None:
    """Remove records that are too old or too many, and halves that lost the other half."""
    usual = retention_of(Settings.from_environment())
    retention = Retention(
        keep_days=usual.keep_days if keep_days is None else keep_days,
        max_bytes=usual.max_bytes if max_bytes is None else max_bytes,
    )
    swept = sweep(folder(), retention, dry_run=dry_run)
    if json:
        print_json({"dry_run": dry_run, **msgspec.to_builtins(swept)})
        return
    verb = "would remove" if dry_run else "removed"
    print(f"{verb} {swept.rows} rows and {swept.files} payloads ({swept.bytes} bytes)")
    reasons = (
        (swept.by_age, f"older than {retention.keep_days} days"),
        (swept.by_size, f"beyond {retention.max_bytes} bytes"),
        (swept.without_row, "files without a row"),
        (swept.without_file, "rows whose file is gone"),
        (swept.held, "stay because of a legal hold"),
        (swept.failed, "files that cannot be removed"),
    )
    for count, reason in reasons:
        if count:
            print(f"{count:>8}  {reason}")
    print(f"{'kept':>8}  {swept.kept_rows} rows, {swept.kept_bytes} bytes")


@prompt.command("report")
def report(
    run: Annotated[str, typer.Argument(help="A run's uuid, or how it begins.", metavar="RUN")],
    source: Annotated[
        str | None, typer.Option(help="Where the run is, as for `clew show`. [default: the store]")
    ] = None,
    tenant: Tenant = None,
    json: Json = False,
) -> None:
    """Say how the prompts of a run grew, what was evicted, and what broke the cache.

    It works with capture off: the spans of the run carry the block maps.
    """
    from clew.cli.prompt_growth import print_report

    with exit_codes():
        agents = _agents(run, source, scope_of(tenant))
    if json:
        print_json(report_form(agents))
    else:
        print_report(agents)


def _agents(run: str, source: str | None, scope: Scope) -> tuple[AgentReport, ...]:
    """Return the report of a run, from its spans, or else from its recorded calls alone."""
    with opened() as reader:
        try:
            with open_source(source) as runs:
                record = runs.run(resolve(runs, run))
        except (RunNotFoundError, StoreError):
            # A service that records may send its spans elsewhere.
            rows = () if reader is None or not _UUID.fullmatch(run) else reader.of_run(run, scope)
            if not rows:
                raise
            return prompt_report.report_of_rows(rows)
        if scope.tenant not in (None, record.summary.tenant):
            raise RecordNotFoundError(f"there is no run {run[:80]!r}")
        rows = () if reader is None else reader.of_run(record.summary.run_id, scope)
        return prompt_report.report(record, rows)


@prompt.command("budget")
def budget(
    rules: Annotated[Path, typer.Argument(help="A file of bounds, YAML or JSON.", metavar="RULES")],
    agent: Agent = None,
    run: Run = None,
    tenant: Tenant = None,
    json: Json = False,
) -> None:
    """Fail where a block, a prompt, the tools or a request is larger than a rule allows."""
    bounds = prompt_budget.read(rules)
    judged = prompt_budget.Judge(bounds)
    with opened() as reader:
        if reader is not None:
            calls = PromptFilter(agent=agent, run_id=run)
            for row in reader.every(calls, scope_of(tenant)):
                judged.look(row)
    verdicts = judged.verdicts()
    if json:
        print_json(prompt_budget.form(judged))
    else:
        print_table(
            ("verdict", "what", "agent", "largest", "bound", "record"),
            [_verdict_cells(each) for each in verdicts],
            right=(3, 4),
        )
        say(f"{judged.records} records were looked at")
    if not judged.fine:
        raise typer.Exit(1)


def _verdict_cells(verdict: prompt_budget.Verdict) -> tuple[str, ...]:
    bound = verdict.bound
    largest = wording.UNKNOWN if verdict.largest is None else f"{verdict.largest:g}"
    return (
        verdict.word,
        bound.of,
        bound.agent or "",
        largest,
        f"{bound.limit:g} {'%' if bound.unit == 'growth' else bound.unit}",
        (verdict.request_id or "")[:8],
    )
