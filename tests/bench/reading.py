"""How the reading side grows: `python tests/bench/reading.py [--full]`.

Starts `clew serve` on loopback over an empty store and sends it runs of 14 spans as OTLP/HTTP
protobuf, 20 runs in a request (`--runs`), plain and packed with gzip by turns, up to 10,000, 100,000
and (with `--full`) 1,000,000 spans. At each size it prints what receiving cost (CPU time of the
server process, all its threads), how large the file is, and how long questions take: lists,
searches whose conditions never meet, one run, costs, a timeline. Questions are asked over HTTP (CPU
time of the server for one request) and below it, of the store alone (CPU time of this thread).

CPU time, because wall time on a busy machine is that of its other work. Linux only: the times of
another process are read from /proc.
"""

from __future__ import annotations

import argparse
import gzip
import http.client
import itertools
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple
from urllib.parse import urlencode

sys.path.insert(0, str(Path(__file__).resolve().parent))
from sent_runs import AGENTS, SHADES, SPANS, Template, copy_of, never_met, templates

from clew.store.paths import store_path
from clew.store.reader import Reader
from clew.store.records import Page, RunFilter

SIZES = (10_000, 100_000, 1_000_000)
APART_NS = 36 * 10**9
"""Between the starts of two runs, so that 71,000 of them fill a month."""
TIMES = 9
_TICK = os.sysconf("SC_CLK_TCK")


class Served:
    """`clew serve` in a process of its own, and one connection to it."""

    def __init__(self, folder: Path) -> None:
        command = str(Path(sys.executable).parent / "clew")
        self.process = subprocess.Popen(
            [command, "serve", "--port", "0", "--data-dir", str(folder)],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self.process.stdout is not None
        address = self.process.stdout.readline().strip()
        self.store = store_path(folder)
        host, _, port = address.removeprefix("http://").partition(":")
        self._connection = http.client.HTTPConnection(host, int(port), timeout=120)

    def send(self, body: bytes, *, packed: bool) -> None:
        """Send one message; it is on disk when this returns."""
        headers = {"content-type": "application/x-protobuf"}
        if packed:
            headers["content-encoding"] = "gzip"
        self._connection.request("POST", "/v1/traces", body, headers)
        response = self._connection.getresponse()
        answer = response.read()
        if response.status != 200:
            raise SystemExit(f"the server answered {response.status}: {answer[:200]!r}")

    def get(self, path: str) -> bytes:
        """Ask for one page or twin."""
        self._connection.request("GET", path)
        response = self._connection.getresponse()
        body = response.read()
        if response.status != 200:
            raise SystemExit(f"{path} was answered with {response.status}: {body[:200]!r}")
        return body

    def reconnect(self) -> None:
        """Drop the connection; one on which nothing was said for a minute is closed anyway."""
        self._connection.close()

    def cpu_s(self) -> float:
        """CPU seconds of the process so far, user and system, all threads that ever ran."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICK

    def threads_s(self) -> float:
        """CPU seconds of the threads that are alive, in nanoseconds' resolution."""
        tasks = Path(f"/proc/{self.process.pid}/task")
        spent = [(each / "schedstat").read_text().split()[0] for each in tasks.iterdir()]
        return sum(map(int, spent)) / 1e9

    def close(self) -> None:
        """End the server."""
        self._connection.close()
        self.process.terminate()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class Ingest(NamedTuple):
    """Spans per second of the server's CPU since the size before."""

    plain: float
    packed: float


class Filler:
    """Sends runs until the store has as many spans as are wanted."""

    def __init__(
        self, server: Served, made: tuple[Template, ...], deadline: float, at_once: int
    ) -> None:
        self._server = server
        self._at_once = at_once
        self._made = made
        self._deadline = deadline
        self._began_ns = time.time_ns() - 29 * 86_400 * 10**9
        self.runs = 0

    @property
    def spans(self) -> int:
        return self.runs * SPANS

    def fill(self, size: int) -> Ingest | None:
        """Fill up to `size` spans; None where the time is over before."""
        spent, sent = {False: 0.0, True: 0.0}, {False: 0, True: 0}
        for turn in itertools.count():
            if self.spans >= size:
                break
            if time.monotonic() > self._deadline:
                return None
            packed = turn % 2 == 1
            # Several requests in one measurement: the clock of a process ticks in 10 ms.
            bodies = [self._body() for _ in range(max(4, 80 // self._at_once))]
            if packed:
                bodies = [gzip.compress(each, 6) for each in bodies]
            before = self._server.cpu_s()
            for body in bodies:
                self._server.send(body, packed=packed)
            spent[packed] += self._server.cpu_s() - before
            sent[packed] += len(bodies) * self._at_once * SPANS
        return Ingest(*(sent[each] / max(spent[each], 1e-9) for each in (False, True)))

    def _body(self) -> bytes:
        first, self.runs = self.runs, self.runs + self._at_once
        return b"".join(
            copy_of(
                self._made[number % len(self._made)],
                number // len(self._made),
                self._began_ns + number * APART_NS,
            )
            for number in range(first, self.runs)
        )


# --- questions ------------------------------------------------------------------------------------


def thread_ms(work: Callable[[], object]) -> float:
    """Return the median CPU time of some uses on this thread, in ms."""
    took: list[float] = []
    for _ in range(TIMES):
        began = time.thread_time()
        work()
        took.append((time.thread_time() - began) * 1e3)
    return median(took)


def served_ms(server: Served, path: str) -> float:
    """Return the median CPU time that the server spends on one request, in ms."""
    took: list[float] = []
    for _ in range(TIMES):
        began = server.threads_s()
        server.get(path)
        took.append((server.threads_s() - began) * 1e3)
    return median(took)


def asked(reader: Reader) -> dict[str, tuple[Callable[[], object], str | None]]:
    """Return the questions by name: of the store, and of the server."""
    page = reader.runs(RunFilter(), Page())
    run = page.runs[0]
    late = page.next
    for _ in range(20):
        late = reader.runs(RunFilter(), Page(limit=500, after=late)).next or late
    special = f"special-{SHADES - 1:02d}"

    def listed(after: str | None = None, **wanted: Any) -> tuple[Callable[[], object], str]:
        query = {key: str(value).lower() for key, value in wanted.items()}
        query |= {"after": after} if after else {}
        return (
            lambda: reader.runs(RunFilter(**wanted), Page(after=after)),
            f"/api/runs?{urlencode(query)}",
        )

    questions: dict[str, tuple[Callable[[], object], str | None]] = {
        "list of runs": listed(),
        "later page": listed(after=late),
        "one agent's": listed(agent=AGENTS[0]),
        "one agent's that failed": listed(agent=AGENTS[1], status="failed"),
        "a rare tool": listed(tool=special),
        "cost from": listed(cost_from=0.5),
        "one run": (lambda: reader.run(run.trace_id), f"/api/runs/{run.run_id}"),
        "timeline": (lambda: reader.run(run.trace_id), f"/api/runs/{run.run_id}/timeline"),
        "list, as a page": (lambda: reader.names("tool"), "/"),
        "costs, a month": (lambda: None, "/api/costs"),
    }
    pairs = {name: listed(**wanted) for name, wanted in never_met().items()}
    slowest = max(pairs, key=lambda each: thread_ms(pairs[each][0]))
    questions[f"never met, the slowest of {len(pairs)} pairs ({slowest})"] = pairs[slowest]
    return questions


def show(server: Served, reader: Reader) -> None:
    """Print the questions with their times."""
    questions = asked(reader)
    server.reconnect()
    for name, (below, path) in questions.items():
        over = served_ms(server, path) if path else 0.0
        print(f"  {name:<64}{thread_ms(below):>9.2f}{over:>9.2f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", action="store_true", help="up to 1,000,000 spans (ten minutes)")
    parser.add_argument("--minutes", type=float, default=20.0, help="stop filling after that long")
    parser.add_argument("--runs", type=int, default=20, help="runs in a request")
    options = parser.parse_args()
    made = templates()
    folder = Path(tempfile.mkdtemp(prefix="clew-bench-"))
    try:
        server = Served(folder)
        reader: Reader | None = None
        filler = Filler(server, made, time.monotonic() + options.minutes * 60, options.runs)
        try:
            for size in SIZES if options.full else SIZES[:-1]:
                found = filler.fill(size)
                if found is None:
                    print(
                        f"stopped at {filler.spans:,} spans: {options.minutes:g} minutes are over"
                    )
                    break
                stored = sum(each.stat().st_size for each in server.store.parent.glob("clew.db*"))
                print(
                    f"{filler.spans:,} spans: {found.plain:,.0f} spans per second of CPU received "
                    f"plain, {found.packed:,.0f} with gzip; {stored / filler.spans:,.0f} bytes each "
                    f"on disk\n  {'ms of CPU':<64}{'store':>9}{'HTTP':>9}",
                    flush=True,
                )
                reader = reader or Reader(server.store)
                show(server, reader)
        finally:
            if reader is not None:
                reader.close()
            server.close()
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
