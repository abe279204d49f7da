"""`clew diff`."""

from __future__ import annotations

from typing import Annotated, Any, Final

import typer

from clew.cli.output import clean, is_terminal, print_json, say
from clew.cli.runs import SOURCES
from clew.sources import open_source, resolve, wording
from clew.sources.run_diff import Fact, Pair, RunDiff, compare
from clew.store.records import SpanRecord

_SIGNS: Final = {"same": " ", "changed": "~", "added": "+", "removed": "-"}
_STYLES: Final = {"same": "dim", "changed": "yellow", "added": "green", "removed": "red"}
_Run = Annotated[str, typer.Argument(help="A run's uuid, or how it begins.", metavar="RUN")]


def diff(
    before: _Run,
    after: _Run,
    source: Annotated[
        str | None, typer.Option(help=f"Where from: {SOURCES}. [default: the store]")
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Spans that are the same, too.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Compare two runs: what the second did that the first did not, and what it cost."""
    with open_source(source) as opened:
        found = compare(opened.run(resolve(opened, before)), opened.run(resolve(opened, after)))
    if json:
        print_json(_form(found))
        return
    for line, style in _lines(found, everything=everything):
        _print(line, style)
    if found.identical:
        say("the runs did the same")


def _form(found: RunDiff) -> dict[str, Any]:
    return {
        "before": found.before.run_id,
        "after": found.after.run_id,
        "identical": found.identical,
        "totals": found.totals,
        "spans": [
            {
                "change": each.change,
                "name": _span(each).name,
                "type": _span(each).type,
                "before": None if each.before is None else each.before.span_id,
                "after": None if each.after is None else each.after.span_id,
                "facts": each.facts,
            }
            for each in found.pairs
        ],
    }


def _lines(found: RunDiff, *, everything: bool) -> list[tuple[str, str]]:
    lines = [
        (f"- {found.before.run_id}  {wording.moment(found.before.start_ns)} UTC", "red"),
        (f"+ {found.after.run_id}  {wording.moment(found.after.start_ns)} UTC", "green"),
    ]
    lines += [(f"~ {_fact(each)}", "yellow") for each in found.totals]
    for each in found.pairs:
        if each.change == "same" and not everything:
            continue
        facts = "  ".join(_fact(fact) for fact in each.facts)
        span = _span(each)
        shown = facts or " · ".join(wording.facts(span))
        name = f"{span.name}  {shown}".rstrip()
        lines.append((f"{_SIGNS[each.change]}   {name}", _STYLES[each.change]))
    return lines


def _span(pair: Pair) -> SpanRecord:
    span = pair.after or pair.before
    assert span is not None  # noqa: S101 - a pair has at least one
    return span


def _fact(fact: Fact) -> str:
    name = fact.name.removeprefix("clew.").removeprefix("gen_ai.")
    return f"{name} {_value(fact.before)} → {_value(fact.after)}"


def _value(value: Any) -> str:
    if value is None:
        return wording.UNKNOWN
    if isinstance(value, float):
        return f"{value:g}"
    return wording.value_text(value)


def _print(line: str, style: str) -> None:
    if not is_terminal():
        print(clean(line))
        return
    from rich.console import Console
    from rich.text import Text

    Console(highlight=False).print(Text(clean(line), style=style))
