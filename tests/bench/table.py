"""Writes what `compare.py` measured into docs/performance.md: the aims, and every figure."""

# ruff: noqa: E402
from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
from peers import PEERS
from results import CELLS, EXPORTERS, LOADS, OURS, every, key
from shapes import CHUNKS

PAGE = HERE.parents[1] / "docs" / "performance.md"
AIMS_MARKS = ("<!-- aims of make bench -->", "<!-- end of the aims -->")
FIGURES_MARKS = ("<!-- figures of make bench -->", "<!-- end of the figures -->")
ORDER = (*OURS, *(peer.name for peer in PEERS))
LIBRARIES = {"openai": "OpenAI", "anthropic": "Anthropic"}
SAID = {"no-op": "no-op", "otlp": "OTLP", "on": "content on", "off": "content off"}

NOISY = frozenset({("openai", "stream")})
"""Where a client's own time varies by more than a floor adds to it, so that one row does not tell what
that is: the rows of that client do together, each of which has measured the same span."""

Rows = dict[str, Any]


class Aim(NamedTuple):
    """What is aimed at: at most so many floors for a load, without and with OTLP."""

    said: str
    subject: str
    load: str
    content: str
    most: tuple[float, float]
    per_chunk: bool = False
    """Whether it is in microseconds of the calling thread for a chunk instead."""


AIMS = (
    Aim("small chat", "Clew", "small chat", "off", (1.3, 0.7)),
    Aim("40 messages", "Clew", "40 messages", "off", (1.4, 0.75)),
    Aim("agent run", "Clew", "agent run", "off", (1.2, 0.6)),
    Aim("stream of 200 chunks", "Clew", "stream", "off", (2.0, 2.0)),
    Aim("stream, us a chunk", "Clew", "stream", "off", (0.6, 0.6), per_chunk=True),
    Aim("40 messages, content on", "Clew", "40 messages", "on", (2.5, 1.2)),
    Aim("small chat, sampled out, keep rules", OURS[1], "small chat", "off", (0.6, 0.6)),
    Aim("small chat, sampled out", OURS[2], "small chat", "off", (0.15, 0.15)),
    Aim("small chat, not configured", OURS[3], "small chat", "off", (0.02, 0.02)),
)


class Figure(NamedTuple):
    """A measured value and its interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.2f} ({self.low:.2f} to {self.high:.2f})"


def figure(rows: Rows, row: str, load: str) -> Figure | None:
    """Return the ratio of a load to the floor; None where it was not measured."""
    found = rows.get(row, {}).get(load, {})
    if "ratio" not in found:
        return None
    library = row.split("|")[1]
    if (library, load) not in NOISY:
        return Figure(found["ratio"], found["low"], found["high"])
    whole = floor(rows, library, load) + found["floor export us"]
    names = ("added us", "added low us", "added high us")
    return Figure(*((found[name] + found["export us"]) / whole for name in names))


def floor(rows: Rows, library: str, load: str) -> float:
    """Return what the floor adds to a use on the calling thread, by all rows, in microseconds.

    The mean, by how many turns each of them has: a row of few turns tells little.
    """
    found = [
        loads[load]
        for row, loads in rows.items()
        if f"|{library}|" in row and "ratio" in loads.get(load, {})
    ]
    turns = sum(each["turns"] for each in found)
    return sum(each["turns"] * each["floor us"] for each in found) / turns


def per_chunk(rows: Rows, row: str) -> Figure | None:
    """Return the microseconds that the calling thread spends on each chunk of a stream."""
    found = rows.get(row, {}).get("stream", {})
    if "ratio" not in found:
        return None
    names = ("added us", "added low us", "added high us")
    return Figure(*(found[name] / CHUNKS for name in names))


def verdict(found: Figure | None, most: float) -> str:
    """Return a measured value, and whether it is at most what was aimed at."""
    if found is None:
        return "not measured"
    state = "met" if found.value <= most else "**missed**"
    noise = ", within noise" if found.low <= most <= found.high else ""
    return f"{found.value:.2f} {state}{noise}"


def aims(rows: Rows) -> str:
    """Return the table of what was aimed at, and where a peer is ahead, in Markdown."""
    head = "| |"
    for exporter in EXPORTERS:
        head += f" aim, {SAID[exporter]} |"
        head += "".join(f" {name} |" for name in LIBRARIES.values())
    lines = [head, "|---" * (1 + len(EXPORTERS) * (1 + len(LIBRARIES))) + "|"]
    for aim in AIMS:
        line = f"| {aim.said} |"
        for exporter, most in zip(EXPORTERS, aim.most, strict=True):
            line += f" {most} |"
            for library in LIBRARIES:
                row = key(aim.subject, library, exporter, aim.content)
                found = per_chunk(rows, row) if aim.per_chunk else figure(rows, row, aim.load)
                line += f" {verdict(found, most)} |"
        lines.append(line)
    return "\n".join(lines) + "\n\n" + beside(rows)


def beside(rows: Rows) -> str:
    """Return in how many places Clew costs less than every peer, and where not, in Markdown."""
    behind: list[str] = []
    places = 0
    for cell in CELLS:
        for load in LOADS:
            ours = figure(rows, key("Clew", *cell), load)
            theirs = {
                peer.name: found
                for peer in PEERS
                if (found := figure(rows, key(peer.name, *cell), load)) is not None
            }
            if ours is None or not theirs:
                continue
            places += 1
            best = min(theirs, key=lambda name: theirs[name].value)
            if ours.value >= theirs[best].value:
                close = ours.low <= theirs[best].high
                library, exporter, content = cell
                said = f"{LIBRARIES[library]}, {SAID[exporter]}, {SAID[content]}"
                behind.append(
                    f"| {said} | {load} | {ours} | {best} {theirs[best]} |"
                    f" {'yes' if close else 'no'} |"
                )
    said = f"Clew costs less than every peer in {places - len(behind)} of {places} places"
    if not behind:
        return f"{said} (client, exporter, content, load).\n"
    return (
        f"{said} (client, exporter, content, load). The others:\n\n"
        "| | load | Clew | least of the peers | intervals overlap |\n|---|---|---|---|---|\n"
        + "\n".join(behind)
        + "\n"
    )


def table(library: str, exporter: str, content: str, rows: Rows) -> str:
    """Return one table in Markdown; empty where nothing was measured."""
    lines: list[str] = []
    for subject in ORDER:
        row = key(subject, library, exporter, content)
        if row not in rows:
            continue
        if "error" in rows[row]:
            lines.append(f"| {subject} | not measured: {rows[row]['error']} |" + " |" * len(LOADS))
            continue
        cells = [
            str(figure(rows, row, load) or f"not measured: {_reason(rows[row], load)}")
            for load in LOADS
        ]
        chunk = per_chunk(rows, row)
        cells.append("" if chunk is None else f"{chunk.value:.1f}")
        lines.append(f"| {subject} | " + " | ".join(cells) + " |")
    if not lines:
        return ""
    head = f"**{LIBRARIES[library]}, {SAID[exporter]} exporter, {SAID[content]}**\n\n"
    head += "| | " + " | ".join(LOADS) + " | stream, us a chunk |\n"
    head += "|---" * (len(LOADS) + 2) + "|\n"
    return head + "\n".join([*_unit(rows, library, exporter, content), *lines]) + "\n"


def _reason(row: dict[str, Any], load: str) -> str:
    return str(row.get(load, {}).get("error", "no answer")).replace("|", "/")[:80]


def _unit(rows: Rows, library: str, exporter: str, content: str) -> list[str]:
    """Return what a use costs without anybody, and what the floor adds, beside Clew's own row."""
    found = rows.get(key("Clew", library, exporter, content), {})
    if any("ratio" not in found.get(load, {}) for load in LOADS):
        return []
    bare = " | ".join(f"{found[load]['bare us']:,.0f}" for load in LOADS)
    floors = [
        floor(rows, library, load) if (library, load) in NOISY else found[load]["floor us"]
        for load in LOADS
    ]
    unit = " | ".join(
        f"{added:,.0f} + {found[load]['floor export us']:,.0f}"
        for added, load in zip(floors, LOADS, strict=True)
    )
    return [
        f"| *nothing, us* | {bare} | |",
        f"| *the floor, us + its export* | {unit} | |",
    ]


def versions(rows: Rows) -> str:
    """Return on what machine what was compared, in Markdown."""
    lines: list[str] = []
    for name in ("Machine", "Clew", *(peer.name for peer in PEERS)):
        found = rows.get(f"versions|{name}")
        if found is not None:
            lines.append(f"- {name}: " + ", ".join(f"{k} {v}" for k, v in found.items()))
    return "\n".join(lines) + "\n"


def figures(rows: Rows) -> str:
    """Return every table that was measured, and the versions."""
    cells = [table(*cell, rows) for cell in CELLS]
    return "\n".join([*(cell for cell in cells if cell), versions(rows)])


def between(text: str, marks: tuple[str, str], content: str) -> str:
    """Return a page with other content between two marks.

    Raises:
        ValueError: the page does not have both marks.
    """
    begin, end = marks
    before, found, rest = text.partition(begin)
    _, found_end, after = rest.partition(end)
    if not (found and found_end):
        raise ValueError(f"the page has no {begin} or no {end}")
    return f"{before}{begin}\n\n{content}\n{end}{after}"


def page(text: str, rows: Rows) -> str:
    """Return the page with the aims and the figures of these rows."""
    return between(between(text, AIMS_MARKS, aims(rows)), FIGURES_MARKS, figures(rows))


def main() -> None:
    rows = every()
    print(aims(rows), figures(rows), sep="\n")
    if "--write" not in sys.argv:
        return
    if not any(key(peer.name, *cell) in rows for peer in PEERS for cell in CELLS):
        print(f"{PAGE.name} is left as it is: `make bench-peers` measures the peers, too")
        return
    PAGE.write_text(page(PAGE.read_text("utf-8"), rows), "utf-8")


if __name__ == "__main__":
    main()
