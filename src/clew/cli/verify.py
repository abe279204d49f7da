"""`clew verify`."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Final

import msgspec
import typer

from clew.audit.begun import by_run, held_against, without_spans
from clew.audit.keys import KeyRing
from clew.audit.report import EXIT_CODES, RunReport, outcome
from clew.audit.verify import absent, verify
from clew.cli.output import is_terminal, print_table, say
from clew.cli.times import since
from clew.errors import ClewError
from clew.pipeline.sampling import kept_at
from clew.settings import Settings
from clew.sources import RunNotFoundError, Source, open_source, resolve, wording
from clew.store.erasure import Tombstone, tombstones
from clew.store.journal import Entry
from clew.store.journal import read as journal_entries
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


_Run = Annotated[
    str | None, typer.Argument(help="A run's uuid, or how it begins.", metavar="[RUN]")
]
_Since = Annotated[
    str | None,
    typer.Option("--since", help="All runs since then: 2h, 7d, 2026-01-31, or a full time."),
]
_Source = Annotated[
    str | None, typer.Option(help="A file of OTLP JSON, or scheme://PLACE. [default: the store]")
]
_Keys = Annotated[
    list[Path] | None,
    typer.Option(
        "--key", help="A file with a key: a secret, or an Ed25519 key in PEM. Repeatable."
    ),
]
_Anchor = Annotated[Path | None, typer.Option(help="A checkpoint file that was kept elsewhere.")]
_JournalOf = Annotated[
    Path | None,
    typer.Option(
        help="The data folder whose journal is held against the spans. "
        "[default: with the store, that of this machine]"
    ),
]
_Signed = Annotated[
    bool, typer.Option("--require-signed", help="Exit with 1 where a run is not SIGNED.")
]
_Ratio = Annotated[
    float | None,
    typer.Option(min=0, max=1, help="The share of runs that is sampled, if not all are."),
]


def command(
    run: _Run = None,
    since_: _Since = None,
    source: _Source = None,
    key: _Keys = None,
    anchor: _Anchor = None,
    journal: _JournalOf = None,
    require_signed: _Signed = False,
    sampling_ratio: _Ratio = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object a run.")] = False,
) -> None:
    """Prove that nothing of a run is missing or altered.

    Exit code 0: every run is COMPLETE and none ALTERED. 1: one is INCOMPLETE, FORKED or ALTERED,
    a segment of the checkpoint file is gone, or something is wrong with the request. 3: else one is
    OPEN or UNKNOWN.
    """
    if (run is None) == (since_ is None):
        raise ClewError("say which run to verify, or `--since` when: one of the two")
    keys = KeyRing.of(Settings.from_environment(), key or ())
    anchors = _anchors(anchor)
    from_ns = since(since_) if since_ is not None else 0
    begun = _begun(journal or (None if source else data_dir()), from_ns)
    erased = {} if source else {each.run_id: each for each in tombstones(data_dir())}
    reports: list[RunReport] = []
    with open_source(source) as opened:
        for trace_id in _wanted(opened, run, from_ns, begun):
            report = _report(
                opened, trace_id, keys, anchors, begun.get(trace_id, ()), sampling_ratio, erased
            )
            reports.append(report)
            if json:
                print(msgspec.json.encode(report).decode())
        gone = []
        if anchor is not None and since_ is not None:
            gone = _gone(opened, anchor, from_ns, reports, erased)
    if not json:
        _print(reports)
    for segment, hour in gone:
        say(f"segment {segment}, sealed in {hour} by the checkpoint file, is not there")
    found = outcome(tuple(reports), signed=require_signed)
    sys.exit(EXIT_CODES["contradicted" if gone else found])


def _begun(folder: Path | None, from_ns: int) -> dict[str, list[Entry]]:
    return {} if folder is None else by_run(journal_entries(folder, from_ns))


def _report(
    source: Source,
    trace_id: str,
    keys: KeyRing,
    anchors: dict[str, str],
    entries: Sequence[Entry],
    ratio: float | None,
    erased: dict[str, Tombstone],
) -> RunReport:
    try:
        record = source.run(trace_id)
    except RunNotFoundError:
        report = absent(trace_id, ratio, erased=erased)
        sampled_out = ratio is not None and not kept_at(int(trace_id, 16), ratio)
        lost = not sampled_out and report.run_id not in erased
        return without_spans(report, entries, lost=lost) if entries else report
    return held_against(verify(record, keys, anchors=anchors), record, entries)


def _gone(
    source: Source,
    anchor: Path,
    from_ns: int,
    reports: Sequence[RunReport],
    erased: Mapping[str, Tombstone],
) -> list[tuple[str, str]]:
    """Return the segments of the checkpoint file that are nowhere, each with its hour."""
    from clew.audit import checkpoints
    from clew.audit.table import records

    wanted = checkpoints.since(anchor, from_ns)
    for report in reports:
        for each in report.segments:
            wanted.pop(each.segment_id or "", None)
    for stone in erased.values():
        for segment, _ in stone.segments:
            wanted.pop(segment, None)
    if wanted:  # of runs that began before, perhaps
        for record in records(source, RunFilter(until_ns=max(from_ns, 1), everything=True)):
            for span in record.spans:
                wanted.pop(span.segment_id or "", None)
            if not wanted:
                break
    return sorted(wanted.items(), key=lambda each: (each[1], each[0]))


def _wanted(
    source: Source, run: str | None, from_ns: int, begun: Mapping[str, Sequence[Entry]]
) -> Iterator[str]:
    if run is not None:
        digits = run.strip().lower().replace("-", "")
        whole = len(digits) == _UUID_DIGITS and all(each in "0123456789abcdef" for each in digits)
        yield digits if whole else resolve(source, run)
        return
    wanted = RunFilter(since_ns=from_ns)
    after: str | None = None
    seen: set[str] = set()
    while True:
        page = source.runs(wanted, Page(limit=MAX_PAGE, after=after))
        for each in page.runs:
            seen.add(each.trace_id)
            yield each.trace_id
        if page.next is None:
            break
        after = page.next
    yield from sorted(begun.keys() - seen)  # runs that began before, or of which nothing arrived


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
    for each in report.begun:
        what = "tool call" if each.kind == "tool" else "decision of gate"
        where = f"no span {each.span_id} (seq {each.seq} of segment {each.segment_id})"
        when = wording.moment(each.time_ns)
        lines.append(("begun", f"{what} {each.name} at {when} UTC: {where}"))
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
