"""`clew show`."""

from __future__ import annotations

from typing import Annotated

import typer

from clew.cli.output import clean, is_terminal, print_encoded, print_json
from clew.cli.runs import SOURCES
from clew.sources import open_source, resolve, tree, wording
from clew.sources.forms import record_form
from clew.store import otlp_export
from clew.store.records import RunRecord, RunSummary, SpanRecord


def show(
    run: Annotated[
        str,
        typer.Argument(
            help="A run's uuid, with or without dashes, or how it begins.", metavar="RUN"
        ),
    ],
    source: Annotated[
        str | None, typer.Option(help=f"Where from: {SOURCES}. [default: the store]")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    otlp: Annotated[
        bool, typer.Option("--otlp", help="Print one OTLP JSON document, as `clew import` reads.")
    ] = False,
) -> None:
    """Show one run as a tree."""
    with open_source(source) as opened:
        record = opened.run(resolve(opened, run))
    if otlp:
        print_encoded(otlp_export.encode(record.spans))
    elif json:
        print_json(record_form(record))
    elif is_terminal():
        _print_rich(record)
    else:
        _print_plain(record)


def head(run: RunSummary) -> list[tuple[str, str]]:
    """Return what is said about a run above its tree: labels and values."""
    denials = f"{run.denials} of {run.decisions} decisions" if run.denials else "0"
    lines = [
        ("run", run.run_id),
        ("agent", run.agent or ""),
        ("service", run.service or ""),
        ("status", wording.STATUS_WORDS.get(run.status or "", "")),
        ("reason", _reason(run)),
        ("error", run.error_type or ""),
        ("started", f"{wording.moment(run.start_ns)} UTC"),
        ("duration", wording.duration(run.duration_ns)),
        ("segments", str(run.segments) if run.segments > 1 else ""),
        ("rounds", wording.count(run.rounds)),
        ("tool calls", wording.count(run.tool_calls)),
        ("denials", denials if run.denials is not None else wording.UNKNOWN),
        ("input", _with_parts(run.input_tokens, ("cache read", run.cache_read_tokens),
                              ("cache write", run.cache_write_tokens))),
        ("output", _with_parts(run.output_tokens, ("reasoning", run.reasoning_tokens))),
        ("cost", wording.cost(run.cost_usd, run.cost_status)
         + (f" ({run.cost_status})" if run.cost_usd is not None and run.cost_status else "")),
    ]  # fmt: skip
    if run.conflicts:
        lines.append(("conflicts", f"{run.conflicts} copies of spans with other content"))
    return [(label, clean(value)) for label, value in lines if value]


def _reason(run: RunSummary) -> str:
    reason = run.termination_reason or ""
    return "" if reason == run.status else reason.replace("_", " ")


def _with_parts(total: int | None, *parts: tuple[str, int | None]) -> str:
    known = [f"{wording.count(value)} {label}" for label, value in parts if value is not None]
    return f"{wording.count(total)} tokens" + (f" ({', '.join(known)})" if known else "")


def _line(span: SpanRecord) -> tuple[str, str, str, str]:
    """Return name, outcome, facts and figures of a span."""
    outcome = wording.outcome(span) if span.type != "run" else None
    if outcome is None and span.status == 2:
        outcome = "error"
    facts = " · ".join(wording.facts(span))
    figures = [wording.duration(span.duration_ns) if span.type != "event" else ""]
    figures.append(wording.span_cost(span))
    shown = "  ".join(each for each in figures if each)
    return (
        clean(span.name or "(no name)"),
        clean((outcome or "").replace("_", " ")),
        clean(facts),
        shown,
    )


def _print_plain(record: RunRecord) -> None:
    for label, value in head(record.summary):
        print(f"{label:<11}{value}")
    for section in tree.sections(record):
        print()
        if section.segment is not None and record.summary.segments > 1:
            print(f"segment {section.segment}, {wording.moment(section.start_ns)} UTC")
        for node in section.nodes:
            span = node.span
            name, outcome, facts, figures = _line(span)
            seq = "" if span.seq is None else str(span.seq)
            start = wording.offset(span.start_ns - section.start_ns)
            said = "  ".join(each for each in (outcome, facts, figures) if each)
            print(f"{seq:>4}  {start:>10}  {'  ' * node.depth}{name}  {said}".rstrip())


def _print_rich(record: RunRecord) -> None:
    from rich.console import Console
    from rich.text import Text
    from rich.tree import Tree

    console = Console(highlight=False)
    for label, value in head(record.summary):
        console.print(Text.assemble((f"{label:<11}", "dim"), value))
    for section in tree.sections(record):
        title = f"segment {section.segment}" if section.segment is not None else "spans"
        top = Tree(
            Text.assemble((f"{title}, {wording.moment(section.start_ns)} UTC", "bold")),
            guide_style="dim",
        )
        branches = [top]
        for node in section.nodes:
            del branches[node.depth + 1 :]
            branches.append(branches[-1].add(_rich_line(node.span, section.start_ns)))
        console.print()
        console.print(top)


_COLOURS = {
    "run": "bold",
    "agent": "bold magenta",
    "round": "blue",
    "call": "cyan",
    "tool": "green",
    "decision": "yellow",
}
_BAD = frozenset({"deny", "denied", "error", "timeout", "not offered", "unknown"})


def _rich_line(span: SpanRecord, start_ns: int):  # noqa: ANN202 - rich is imported late
    from rich.text import Text

    name, outcome, facts, figures = _line(span)
    line = Text(name, style=_COLOURS.get(span.type, "dim"))
    if outcome:
        bad = outcome in _BAD
        line.append(f"  {'✕ ' if bad else ''}{outcome}", style="bold red" if bad else "")
    if facts:
        line.append(f"  {facts}", style="dim")
    line.append(f"  {wording.offset(span.start_ns - start_ns)}", style="dim")
    if figures:
        line.append(f"  {figures}")
    return line
