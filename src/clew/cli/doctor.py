"""`clew doctor`."""

from __future__ import annotations

import sys
from typing import Annotated, Final

import msgspec
import typer

from clew.cli.output import clean, is_terminal, print_json, say
from clew.doctor import examine
from clew.doctor.findings import LEVELS, Finding, Report

_MARKS: Final = {"ok": "ok", "note": "note", "warning": "WARNING", "problem": "PROBLEM"}
_STYLES: Final = {"ok": "green", "note": "dim", "warning": "yellow", "problem": "bold red"}


def doctor(
    app: Annotated[
        str | None,
        typer.Option(help="The module that sets the service up, or module:function."),
    ] = None,
    source: Annotated[
        str | None,
        typer.Option(help="Read the test span back from here: a file, or scheme://PLACE."),
    ] = None,
    wait: Annotated[
        float, typer.Option(min=0, max=600, help="Seconds that the span may take to get there.")
    ] = 10.0,
    send: Annotated[
        bool, typer.Option("--send/--no-send", help="Whether a test span is sent.")
    ] = True,
    imports: Annotated[
        bool,
        typer.Option("--imports/--no-imports", help="Whether client libraries are imported."),
    ] = True,
    strict: Annotated[bool, typer.Option("--strict", help="Warnings count as problems.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Say what is wrong with a set-up, in plain words.

    Run it where the service runs: same environment variables, same virtual environment.

    Exit code 0: no problem. 1: a problem, or with --strict a warning.
    """
    report = examine(application=app, source=source, wait_s=wait, send=send, imports=imports)
    if json:
        findings = msgspec.to_builtins(report.findings)
        print_json({"level": report.level, "findings": findings})
    else:
        _print(report)
    bad = ("problem", "warning") if strict else ("problem",)
    sys.exit(1 if report.level in bad else 0)


def _print(report: Report) -> None:
    for finding in report.findings:
        _print_line(finding)
        if finding.advice is not None and finding.level != "ok":
            print(f"{'':9}{'':18}{clean(finding.advice)}")
    counted = dict.fromkeys(LEVELS, 0)
    for finding in report.findings:
        counted[finding.level] += 1
    say(
        f"{_many(counted['problem'], 'problem')}, {_many(counted['warning'], 'warning')}, "
        f"{_many(counted['note'], 'note')}, {counted['ok']} in order"
    )


def _many(number: int, word: str) -> str:
    return f"{number} {word}{'' if number == 1 else 's'}"


def _print_line(finding: Finding) -> None:
    mark = f"{_MARKS[finding.level]:<9}"
    rest = f"{finding.check:<18}{clean(finding.message)}"
    if not is_terminal():
        print(f"{mark}{rest}")
        return
    from rich.console import Console
    from rich.text import Text

    line = Text(mark, style=_STYLES[finding.level])
    line.append(rest, style="default")
    Console(highlight=False).print(line, soft_wrap=True)
