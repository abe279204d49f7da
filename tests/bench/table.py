"""Writes what `compare.py` measured into docs/performance.md, between its two marks."""

# ruff: noqa: E402
from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
from compare import LOADS, OURS, results
from peers import PEERS

PAGE = HERE.parents[1] / "docs" / "performance.md"
BEGIN, END = "<!-- figures of make bench -->", "<!-- end of the figures -->"
ORDER = (*OURS, *(peer.name for peer in PEERS))


def table(library: str, exporter: str, content: str, every: dict[str, Any]) -> str:
    """Return one table in Markdown; empty where nothing was measured."""
    rows: list[str] = []
    for subject in ORDER:
        found = every.get(f"{subject}|{library}|{exporter}|{content}")
        if found is None:
            continue
        if "error" in found:
            rows.append(f"| {subject} | not measured |" + " |" * (len(LOADS) - 1))
            continue
        cells = [
            f"{found[load]['ratio']:.2f} ({found[load]['low']:.2f} to {found[load]['high']:.2f})"
            for load in LOADS
        ]
        rows.append(f"| {subject} | " + " | ".join(cells) + " |")
    if not rows:
        return ""
    said = {"on": "content on", "off": "content off"}[content]
    head = f"**{library}, {exporter} exporter, {said}**\n\n"
    head += "| | " + " | ".join(LOADS) + " |\n|---|" + "---|" * len(LOADS) + "\n"
    return head + "\n".join(rows) + "\n"


def versions(every: dict[str, Any]) -> str:
    """Return what was compared, in Markdown."""
    lines: list[str] = []
    for key in sorted(every):
        kind, _, name = key.partition("|")
        if kind == "versions":
            lines.append(f"- {name}: " + ", ".join(f"{k} {v}" for k, v in every[key].items()))
    return "\n".join(lines) + "\n"


def figures(every: dict[str, Any]) -> str:
    """Return every table that was measured, and the versions."""
    cells = [
        table(library, exporter, content, every)
        for content in ("off", "on")
        for library in ("openai", "anthropic")
        for exporter in ("no-op", "otlp")
    ]
    return "\n".join([*(cell for cell in cells if cell), versions(every)])


def write() -> None:
    """Put the figures on the page, if the peers are among them."""
    if not any(key.startswith(peer.name) for key in results() for peer in PEERS):
        print(f"{PAGE.name} is left as it is: `make bench-peers` measures the peers, too")
        return
    text = PAGE.read_text("utf-8")
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(f"{before}{BEGIN}\n\n{figures(results())}\n{END}{after}", "utf-8")


if __name__ == "__main__":
    if "--write" in sys.argv:
        write()
    print(figures(results()))
