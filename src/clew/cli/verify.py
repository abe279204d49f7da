"""`clew verify`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Final

import msgspec
import typer

from clew.audit.keys import KeyRing
from clew.audit.report import EXIT_CODES, RunReport, outcome
from clew.audit.verify import absent, verify
from clew.cli.output import is_terminal, print_table, say
from clew.cli.times import since
from clew.errors import ClewError
from clew.settings import Settings
from clew.sources import RunNotFoundError, Source, open_source, resolve, wording
from clew.store.erasure import tombstones
from clew.store.paths import data_dir
from clew.store.records import MAX_PAGE, Page, RunFilter

_UUID_DIGITS: Final = 32
_WORDS: Final = {
    "digest_mismatch": "does not have the facts that its digest was made of",
    "no_digest": "carries no digest, though its segment has them",
    "other_content": "is there twice, with different facts",
    "same_seq": "has a sequence number that another span has",
    "chain_mismatch": "seals other digests than those of the spans that are there",
    "bad_signature": "has a signature that is not its key's",
    "wrong_scope": "has facts of Clew's, and says that another library made it",
}


def command(
    run: Annotated[
        str | None,
        typer.Argument(help="A run's uuid, or how it begins.", metavar="[RUN]"),
    ] = None,
    since_: Annotated[
        str | None,
        typer.Option("--since", help="All runs since then: 2h, 7d, 2026-01-31, or a full time."),
    ] = None,
    source: Annotated[
        str | None,
        typer.Option(help="A file of OTLP JSON, or scheme://PLACE. [default: the store]"),
    ] = None,
    key: Annotated[
        list[Path] | None,
        typer.Option(
            "--key", help="A file with a key: a secret, or an Ed25519 key in PEM. Repeatable."
        ),
    ] = None,
    anchor: Annotated[
        Path | None, typer.Option(help="A checkpoint file that was kept elsewhere.")
    ] = None,
    sampling_ratio: Annotated[
        float | None,
        typer.Option(min=0, max=1, help="The share of runs that is sampled, if not all are."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object a run.")] = False,
) -> None:
    """Prove that nothing of a run is missing or altered.

    Exit code 0: every run is COMPLETE and none ALTERED. 1: one is INCOMPLETE, FORKED or ALTERED,
    or something is wrong with the request. 3: else one is OPEN or UNKNOWN.
    """
    if (run is None) == (since_ is None):
        raise ClewError("say which run to verify, or `--since` when: one of the two")
    keys = KeyRing.of(Settings.from_environment(), key or ())
    anchors = _anchors(anchor)
    reports: list[RunReport] = []
    erased = {} if source else {each.run_id: each for each in tombstones(data_dir())}
    with open_source(source) as opened:
        for trace_id in _wanted(opened, run, since_):
            try:
                report = verify(opened.run(trace_id), keys, anchors=anchors)
            except RunNotFoundError:
                report = absent(trace_id, sampling_ratio, erased=erased)
            reports.append(report)
            if json:
                print(msgspec.json.encode(report).decode())
    if not json:
        _print(reports)
    sys.exit(EXIT_CODES[outcome(tuple(reports))])


def _wanted(source: Source, run: str | None, since_: str | None) -> Iterator[str]:
    if run is not None:
        digits = run.strip().lower().replace("-", "")
        whole = len(digits) == _UUID_DIGITS and all(each in "0123456789abcdef" for each in digits)
        yield digits if whole else resolve(source, run)
        return
    wanted = RunFilter(since_ns=since(since_ or ""))
    after: str | None = None
    while True:
        page = source.runs(wanted, Page(limit=MAX_PAGE, after=after))
        yield from (each.trace_id for each in page.runs)
        if page.next is None:
            return
        after = page.next


def _anchors(path: Path | None) -> dict[str, str]:
    if path is None:
        return {}
    from clew.audit.checkpoints import anchored

    return anchored(path)


def _print(reports: list[RunReport]) -> None:
    if not reports:
        say("no run has started since then")
        return
    if len(reports) > 1:
        rows = [
            (each.run_id, each.agent or "", each.status, each.integrity, _summary(each))
            for each in reports
        ]
        if is_terminal():
            rows = [(row[0][:8], *row[1:]) for row in rows]
        print_table(("run", "agent", "complete", "unaltered", "why"), rows)
        return
    report = reports[0]
    lines = [
        ("run", report.run_id),
        ("agent", report.agent or ""),
        ("status", f"{report.status}: {report.reason}"),
        ("integrity", report.integrity),
    ]
    if report.open_since_ns is not None:
        lines.append(("open since", f"{wording.moment(report.open_since_ns)} UTC"))
    for each in report.segments:
        counted = "" if each.counted is None else f" of {each.counted} counted"
        sealed = "sealed" if each.sealed else "not sealed"
        by = f", checked by {each.checked_by}" if each.checked_by else ""
        extra = f", {len(each.never_ended)} never ended" if each.never_ended else ""
        late = f", {each.late} late" if each.late else ""
        lines.append(
            (f"segment {each.segment}", f"{each.spans} spans{counted}, {sealed}{extra}{late}{by}")
        )
    if report.copies:
        lines.append(("copies", f"{report.copies} identical copies, counted once"))
    if report.decisions:
        lacking = f", {report.decisions_incomplete} of them lack something"
        more = lacking if report.decisions_incomplete else ""
        lines.append(("decisions", f"{report.decisions} recorded{more}"))
    for found in report.findings:
        which = f"span {found.span_id} (seq {found.seq} of segment {found.segment})"
        fields = f": {', '.join(found.fields)}" if found.fields else ""
        lines.append(("altered", f"{which} {_WORDS[found.problem]}{fields}"))
    lines.extend(("note", each) for each in report.notes)
    for label, value in lines:
        if value:
            print(f"{label:<12}{value}")


def _summary(report: RunReport) -> str:
    if report.findings:
        first = report.findings[0]
        return f"span {first.span_id} (seq {first.seq}) {_WORDS[first.problem]}"
    return report.reason
