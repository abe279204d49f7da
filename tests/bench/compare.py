"""Clew and its peers, through real SDK clients: `make bench` and `make bench-peers`.

    python tests/bench/compare.py [--peers] [--quick] [--scale 0.3] [--only ...] [--cell ...]

A few processes for each subject (`member.py`), in its own virtual environment, in which uses without
it, with the floor in its place, and with it take turns. A figure is what the subject adds to one
use, its export included, over what the floor adds to the same use. OTLP goes to a receiver in
another process. What was measured is kept; `table.py` writes it into docs/performance.md.
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
from contextlib import contextmanager, suppress
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
from peers import CLEW, PEERS, make, versions
from results import CELLS, LOADS, OURS, keep, key

LONGEST_S = 180
"""How long one process may take."""
PEERS_SCALE = 0.7
"""How much shorter a peer is measured: its figures are larger, so they need fewer turns."""


class Row(NamedTuple):
    """One process: a subject in a client library, with an exporter, with content or without."""

    subject: str
    python: Path
    library: str
    exporter: str
    content: str
    scale: float


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
    """Return the variables of a member's process: what the user has set for Clew is left out.

    Anthropic's client writes a span of its own for each call once a provider is registered for the
    process, as some subjects do and others do not; it would be in bare calls, too.
    """
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("CLEW_", "OTEL_"))}
    return {
        **kept,
        "NO_PROXY": "*",
        "PYTHONHASHSEED": "0",
        "ANTHROPIC_OPEN_TELEMETRY": "false",
        "OTEL_SERVICE_NAME": "bench",
        "CLEW_QUEUE_SIZE": "20000",
    }


def measured(row: Row, endpoint: str) -> dict[str, Any]:
    """Return the figures of a row for each load that was measured, or `error`."""
    place = "-" if row.exporter == "no-op" else endpoint
    member = [str(row.python), str(HERE / "member.py"), row.subject, row.library, place]
    with subprocess.Popen(
        [*member, row.content, str(row.scale)],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            out, said = process.communicate(timeout=LONGEST_S)
        except subprocess.TimeoutExpired:
            process.kill()
            out, said = process.communicate()[0], "took too long"
    found: dict[str, Any] = {}
    for line in out.splitlines():
        with suppress(ValueError):  # cut off when the process was ended
            figures = json.loads(line)
            found[figures.pop("load")] = figures
    reason = (said.strip().splitlines() or ["its process ended"])[-1][:200]
    if not found:
        return {"error": reason}
    return {load: {"error": reason} for load in LOADS} | found


def together(found: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the figures of a row that several processes measured: the middle ones.

    Intervals reach from the least of the processes to the greatest: these differ in where their
    memory lies, and in when garbage is collected, which no turn within one of them tells.
    """
    if len(found) == 1 or all("error" in each for each in found):
        return found[0]
    rows: dict[str, Any] = {}
    for load in LOADS:
        several = [each.get(load, {"error": each.get("error", "no answer")}) for each in found]
        fine = [each for each in several if "error" not in each]
        if not fine:
            rows[load] = several[0]
            continue
        values = {name: [each[name] for each in fine] for name in fine[0]}
        rows[load] = {
            **{name: median(each) for name, each in values.items()},
            "low": min(values["ratio"]),
            "high": max(values["ratio"]),
            "added low us": min(values["added us"]),
            "added high us": max(values["added us"]),
            "turns": sum(values["turns"]),
        }
    return rows


def _short(load: str, figures: dict[str, Any]) -> str:
    if "ratio" not in figures:
        return f"{load} {figures.get('error', '-')[:60]}"
    return f"{load} {figures['ratio']:.2f} ({figures['low']:.2f} to {figures['high']:.2f})"


def rows(options: argparse.Namespace) -> list[Row]:
    """Return what is to be measured, in its order; peers are installed first."""
    subjects = [(name, Path(sys.executable)) for name in OURS]
    wanted = options.only.split(";") if options.only else None
    for peer in PEERS if options.peers else ():
        if wanted is not None and peer.name not in wanted:
            continue
        python, said = make(peer)
        if python is None:
            print(f"{peer.name}: {said}", flush=True)
            for cell in CELLS:
                keep(key(peer.name, *cell), {"error": said})
            continue
        subjects.append((peer.name, python))
        keep(f"versions|{peer.name}", versions(python, peer))
    keep("versions|Clew", versions(Path(sys.executable), CLEW))
    cells = [cell for cell in CELLS if not options.quick or cell[::2] == ("openai", "off")]
    if options.cell:
        cells = [cell for cell in cells if ",".join(cell) in options.cell.split()]
    return [
        Row(name, python, *cell, options.scale * (1 if name in OURS else PEERS_SCALE))
        for cell in cells
        for name, python in subjects
        if (wanted is None or name in wanted) and (cell[2] == "off" or name not in OURS[1:])
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peers", action="store_true", help="build and measure the peers, too")
    parser.add_argument("--scale", type=float, default=1.0, help="of the time for each load")
    parser.add_argument("--quick", action="store_true", help="one client, content off")
    parser.add_argument(
        "--processes", type=int, default=3, help="among which a row's time is split"
    )
    parser.add_argument("--only", help="measure only these subjects, such as `Clew;Logfire`")
    parser.add_argument("--cell", help="cells, such as `openai,otlp,off anthropic,no-op,on`")
    load, *_ = os.getloadavg()
    machine = {"kind": platform.machine(), "cores": os.cpu_count(), "load before": round(load, 1)}
    keep("versions|Machine", machine)
    options = parser.parse_args()
    wanted = rows(options)
    with sink() as endpoint:
        for number, row in enumerate(wanted, 1):
            began = time.monotonic()
            part = row._replace(scale=row.scale / options.processes)
            found = together([measured(part, endpoint) for _ in range(options.processes)])
            keep(key(row.subject, row.library, row.exporter, row.content), found)
            said = found.get("error") or "  ".join(_short(load, found[load]) for load in LOADS)
            print(
                f"{number}/{len(wanted)} {row.library:10}{row.exporter:6}{row.content:4}"
                f"{row.subject:30} {said}  ({time.monotonic() - began:.0f} s)",
                flush=True,
            )


if __name__ == "__main__":
    main()
