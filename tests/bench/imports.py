"""What it costs to import Clew and to set it up: `python tests/bench/imports.py` (a minute).

CPU of fresh processes, each kind in turn, the least of the rounds: whatever else the machine does only
ever adds. Bytecode is there already, as it is at every start but the first.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
from pathlib import Path

THIRD_PARTY = (
    "import openai, anthropic\n"
    "from opentelemetry.sdk.trace import TracerProvider\n"
    "from opentelemetry.sdk.trace.export import BatchSpanProcessor\n"
    "from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter\n"
)
SET_UP = "import clew\nclew.configure('bench')\nclew.instrument()\nimport openai, anthropic\n"
LEAVE = "import os\nos._exit(0)\n"
"""Nothing is exported at the end: what is measured is the start."""
KINDS = {
    "python": [sys.executable, "-c", LEAVE],
    "import clew": [sys.executable, "-c", f"import clew\n{LEAVE}"],
    "third parties": [sys.executable, "-c", THIRD_PARTY + LEAVE],
    "set up": [sys.executable, "-c", SET_UP + LEAVE],
    "clew --help": [str(Path(sys.executable).with_name("clew")), "--help"],
}


def cpu_ms(command: list[str]) -> float:
    """Return the CPU time of a process in milliseconds.

    Raises:
        subprocess.CalledProcessError: it failed.
    """
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("CLEW_", "OTEL_"))}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, env=kept, stdout=subprocess.DEVNULL, check=True, timeout=120)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=11)
    options = parser.parse_args()
    rounds = [{kind: cpu_ms(KINDS[kind]) for kind in KINDS} for _ in range(options.rounds)]
    least = {kind: min(each[kind] for each in rounds) for kind in KINDS}
    start = least["python"]
    print(f"import clew: {least['import clew'] - start:.0f} ms")
    print(
        f"OpenAI's and Anthropic's SDKs and the OTLP exporter: {least['third parties'] - start:.0f} ms;"
        f" the same with Clew configured and instrumenting: {least['set up'] - start:.0f} ms,"
        f" {(least['set up'] - start) / (least['third parties'] - start):.2f} times that"
    )
    print(f"clew --help: {least['clew --help']:.0f} ms")


if __name__ == "__main__":
    main()
