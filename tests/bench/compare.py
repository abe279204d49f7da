"""Clew and its peers, through real SDK clients: `make bench` and `make bench-peers`.

    python tests/bench/compare.py [--peers] [--quick]

One process for each subject, in its own virtual environment, in which uses without it and with it
take turns. A figure is what it adds to one use, its export included, over the cost of one span of
the stock SDK with 25 attributes through the same kind of exporter, measured in the same rounds;
the median of the rounds counts, with the quartiles. OTLP goes to a receiver in another process.
Results are kept below CLEW_CACHE; `table.py` writes them into docs/performance.md.
"""

# ruff: noqa: E402
from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median, quantiles
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
from peers import PEERS, cache, make, versions

LOADS = ("small chat", "40 messages", "stream", "50 at once", "agent run")
OURS = (
    "Clew",
    "Clew, sampled out, keep rules",
    "Clew, sampled out",
    "Clew, not configured",
    "Clew, prompt registered",
)


def results_file() -> Path:
    """Return where results are kept."""
    return cache() / "bench-results.json"


def results() -> dict[str, Any]:
    """Return the results so far, by subject, library, exporter, content and method."""
    found = results_file()
    return json.loads(found.read_text("utf-8")) if found.exists() else {}


def keep(key: str, figures: dict[str, Any]) -> None:
    """Add a row to the results."""
    every = results()
    every[key] = figures
    results_file().parent.mkdir(parents=True, exist_ok=True)
    results_file().write_text(json.dumps(every, indent=1, sort_keys=True) + "\n", "utf-8")


@contextmanager
def sink() -> Iterator[str]:
    """Run a receiver that takes everything and keeps nothing, in a process of its own."""
    code = (
        "from http.server import *\n"
        "class H(BaseHTTPRequestHandler):\n"
        " protocol_version='HTTP/1.1'\n"
        " def do_POST(self):\n"
        "  self.rfile.read(int(self.headers.get('content-length') or 0))\n"
        "  self.send_response(200); self.send_header('content-length','0')\n"
        "  self.send_header('content-type','application/x-protobuf'); self.end_headers()\n"
        " def do_GET(self): self.do_POST()\n"
        " def log_message(self,*a): pass\n"
        "s=ThreadingHTTPServer(('127.0.0.1',0),H); print(s.server_port,flush=True)\n"
        "s.serve_forever()\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as taken:
        assert taken.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(taken.stdout.readline())}"
        finally:
            taken.kill()


def environment() -> dict[str, str]:
    """Return the variables of a member's process: what the user has set for Clew is left out."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("CLEW_", "OTEL_"))}
    return {
        **kept,
        "NO_PROXY": "*",
        "OTEL_SERVICE_NAME": "bench",
        "OTEL_BSP_SCHEDULE_DELAY": "60000",
        "CLEW_EXPORT_DELAY_MS": "60000",
        "CLEW_QUEUE_SIZE": "20000",
    }


def command(python: Path, subject: str, cell: Cell, *more: str) -> list[str]:
    return [
        str(python),
        str(HERE / "member.py"),
        subject,
        cell.library,
        cell.place,
        cell.content,
        *more,
    ]


class Cell:
    """One table: a client library, an exporter, with content or without."""

    def __init__(self, library: str, exporter: str, content: str, place: str) -> None:
        self.library = library
        self.exporter = exporter
        self.content = content
        self.place = place

    def key(self, subject: str) -> str:
        return f"{subject}|{self.library}|{self.exporter}|{self.content}"


class Member:
    """A process that measures what it is asked for."""

    def __init__(self, python: Path, subject: str, cell: Cell) -> None:
        self._process = subprocess.Popen(
            command(python, subject, cell),
            env=environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._answer()

    def ask(self, load: str) -> dict[str, float]:
        """Return what one use costs: `bare`, `added` and `export`, in seconds."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{load}\n")
        self._process.stdin.flush()
        return json.loads(self._answer())

    def _answer(self) -> str:
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(self._process.stderr.read().strip()[-1500:])
        return line

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


def measured(python: Path, subject: str, cell: Cell, rounds: int) -> dict[str, Any]:
    """Return the figures of one subject: median and quartiles of the ratios to the floor.

    Raises:
        RuntimeError: its process failed.
    """
    member = Member(python, subject, cell)
    found: dict[str, Any] = {}
    try:
        for load in LOADS:
            for warm in ("floor", load, "flush floor", "flush"):  # a run is open until the flush
                member.ask(warm)
            floors: list[dict[str, float]] = []
            took: list[dict[str, float]] = []
            for _ in range(rounds):
                floors.append(member.ask("floor"))
                took.append(member.ask(load))
            spans = sum(one["spans"] for one in floors)
            uses = sum(one["uses"] for one in took)
            floor_export = member.ask("flush floor")["export"] / spans
            export = member.ask("flush")["export"] + sum(one["others"] for one in took)
            found[load] = _figures(floors, took, floor_export, export / uses)
    finally:
        member.close()
    return found


def _figures(
    floors: list[dict[str, float]],
    took: list[dict[str, float]],
    floor_export: float,
    export: float,
) -> dict[str, Any]:
    ratios = [
        (one["added"] + export) / (floor["added"] + floor_export)
        for floor, one in zip(floors, took, strict=True)
    ]
    low, middle, high = quantiles(ratios, n=4)
    return {
        "ratio": round(middle, 2),
        "low": round(low, 2),
        "high": round(high, 2),
        "bare us": round(median(one["bare"] for one in took) * 1e6, 1),
        "added us": round(median(one["added"] for one in took) * 1e6, 1),
        "export us": round(export * 1e6, 1),
        "floor us": round(median(one["added"] for one in floors) * 1e6, 1),
        "floor export us": round(floor_export * 1e6, 1),
    }


def _short(load: str, figures: dict[str, Any] | None) -> str:
    if figures is None:
        return f"{load} -"
    return f"{load} {figures['ratio']} ({figures['low']} to {figures['high']})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peers", action="store_true", help="build and measure the peers, too")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--quick", action="store_true", help="one client, content off")
    parser.add_argument("--only", help="measure only these subjects, such as `Clew;Logfire`")
    parser.add_argument("--cell", help="cells, such as `openai,otlp,off anthropic,no-op,on`")
    options = parser.parse_args()
    subjects = [(name, Path(sys.executable)) for name in OURS]
    for peer in PEERS if options.peers else ():
        python = make(peer)
        if python is not None:
            subjects.append((peer.name, python))
            keep(f"versions|{peer.name}", versions(python, peer))
    keep("versions|Python", {"python": platform.python_version(), "machine": platform.machine()})
    with sink() as endpoint:
        places = {"no-op": "-", "otlp": endpoint}
        cells = [
            (library, exporter, content)
            for content in ("off", "on")
            for library in ("openai", "anthropic")
            for exporter in ("no-op", "otlp")
        ]
        if options.quick:
            cells = [cell for cell in cells if cell[0] == "openai" and cell[2] == "off"]
        if options.cell:
            cells = [tuple(each.split(",")) for each in options.cell.split()]  # type: ignore[misc]
        for library, exporter, content in cells:
            cell = Cell(library, exporter, content, places[exporter])
            for name, python in subjects:
                if options.only and name not in options.only.split(";"):
                    continue
                if content == "on" and name in OURS[1:]:
                    continue
                began = time.monotonic()
                try:
                    found = measured(python, name, cell, options.rounds)
                except RuntimeError as error:
                    print(f"{name}, {library}: not measured: {str(error).splitlines()[-1]}")
                    found = {"error": str(error).strip().splitlines()[-1][:200]}
                keep(cell.key(name), found)
                row = "  ".join(_short(load, found.get(load)) for load in LOADS)
                took = time.monotonic() - began
                print(
                    f"{library:10}{exporter:6}{content:4}{name:32}{row}  ({took:.0f} s)", flush=True
                )


if __name__ == "__main__":
    main()
