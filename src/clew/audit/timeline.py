"""The timeline of a run as one HTML file that needs nothing else: for evidence, not for working."""

from __future__ import annotations

from html import escape
from typing import Final

from clew.audit.report import RunReport
from clew.sources import tree, wording
from clew.store.records import RunRecord, SpanRecord

_STYLE: Final = """
body { font: 14px/1.45 system-ui, sans-serif; margin: 2rem; color: #1b1f24; background: #fff; }
h1 { font-size: 1.2rem; } h2 { font-size: 1rem; margin-top: 2rem; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; padding: .2rem .6rem .2rem 0; border-bottom: 1px solid #d8dee4;
  vertical-align: top; } th { font-weight: 600; }
td.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.bar { position: relative; height: .7rem; background: #eef1f4; min-width: 14rem; }
.bar i { position: absolute; top: 0; bottom: 0; min-width: 2px; background: #3b6ea5; }
.failed { color: #a40e26; } dl { display: grid; grid-template-columns: max-content 1fr;
  gap: .1rem 1rem; } dt { color: #57606a; } dd { margin: 0; overflow-wrap: anywhere; }
"""


def page(record: RunRecord, report: RunReport) -> str:
    """Return the page: what was proven, and every span in its place."""
    run = record.summary
    facts = [
        ("run", run.run_id),
        ("agent", run.agent or ""),
        ("service", run.service or ""),
        ("started", f"{wording.moment(run.start_ns)} UTC"),
        ("status", wording.STATUS_WORDS.get(run.status or "", "")),
        ("cost", wording.cost(run.cost_usd, run.cost_status)),
        ("record", f"{report.status}: {report.reason}"),
        ("integrity", report.integrity),
        *(("found", f"{each.problem}, span {each.span_id}") for each in report.findings),
        *(("note", each) for each in report.notes),
    ]
    head = "".join(f"<dt>{escape(k)}</dt><dd>{escape(v)}</dd>" for k, v in facts if v)
    body = "".join(_section(section, len(record.spans)) for section in tree.sections(record))
    title = escape(f"{run.agent or 'run'} {run.run_id}")
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title>'
        f"<style>{_STYLE}</style><h1>{title}</h1><dl>{head}</dl>{body}</html>\n"
    )


def _section(section: tree.Section, spans: int) -> str:
    length = max(1, section.end_ns - section.start_ns)
    rows: list[str] = []
    for node in section.nodes:
        span = node.span
        left = 100 * (span.start_ns - section.start_ns) / length
        width = 100 * span.duration_ns / length
        failed = ' class="failed"' if span.status == 2 else ""
        rows.append(
            f'<tr{failed}><td class="number">{span.seq or ""}</td>'
            f'<td style="padding-left:{node.depth * 1.2:.1f}rem">{escape(span.name)}</td>'
            f"<td>{escape(_facts(span))}</td>"
            f'<td class="number">{escape(wording.offset(span.start_ns - section.start_ns))}</td>'
            f'<td class="number">{escape(wording.duration(span.duration_ns))}</td>'
            f'<td><div class="bar"><i style="left:{left:.3f}%;width:{width:.3f}%"></i></div></td>'
            "</tr>"
        )
    number = "" if section.segment is None else f" {section.segment}"
    return (
        f"<h2>segment{number}, {escape(wording.moment(section.start_ns))} UTC, "
        f"{len(section.nodes)} of {spans} spans</h2><table><thead><tr><th>seq<th>span<th>facts"
        f"<th>start<th>duration<th></tr></thead><tbody>{''.join(rows)}</tbody></table>"
    )


def _facts(span: SpanRecord) -> str:
    outcome = wording.outcome(span) if span.type != "run" else None
    said = [(outcome or "").replace("_", " "), *wording.facts(span)]
    return " · ".join(each for each in said if each)
