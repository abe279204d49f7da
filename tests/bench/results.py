"""What was measured, kept below CLEW_CACHE from one `make bench` to the next."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from peers import cache

LOADS = ("small chat", "40 messages", "stream", "50 at once", "agent run")
OURS = (
    "Clew",
    "Clew, sampled out, keep rules",
    "Clew, sampled out",
    "Clew, not configured",
    "Clew, prompt registered",
)
EXPORTERS = ("no-op", "otlp")
CELLS = tuple(
    (library, exporter, content)
    for content in ("off", "on")
    for library in ("openai", "anthropic")
    for exporter in EXPORTERS
)


def key(subject: str, library: str, exporter: str, content: str) -> str:
    """Return what a row is kept under."""
    return f"{subject}|{library}|{exporter}|{content}"


def _file() -> Path:
    return cache() / "bench-in-place.json"


def every() -> dict[str, Any]:
    """Return all rows, by `key`: for each load its figures, or `error`; and `versions|...`."""
    found = _file()
    return json.loads(found.read_text("utf-8")) if found.exists() else {}


def keep(row: str, figures: dict[str, Any]) -> None:
    """Add a row, or write it anew."""
    rows = {**every(), row: figures}
    _file().parent.mkdir(parents=True, exist_ok=True)
    _file().write_text(json.dumps(rows, indent=1, sort_keys=True) + "\n", "utf-8")
