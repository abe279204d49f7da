"""Services that run in processes of their own, and receivers that do what receivers do."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent / "support"))


@dataclass(frozen=True, kw_only=True)
class Ended:
    """What was seen of a service from outside."""

    code: int
    out: str
    err: str
    seconds: float
    """From when it said that its work was done until its process had ended."""

    @property
    def runs(self) -> list[str]:
        """The trace ids of the runs that it said it had done."""
        return [line.split()[1] for line in self.out.splitlines() if line.startswith("run ")]


SERVICE = """
import sys, time
import clew
import os
clew.configure("service")
for _ in range(int(os.environ.get("RUNS", "3"))):
    with clew.run("desk") as run:
        with clew.tool("search"):
            clew.decide("tool", "allow", subject="search")
    print("run", f"{run.run_id.int:032x}")
print("done", flush=True)
"""

Service = Callable[..., Ended]


@pytest.fixture
def service(tmp_path: Path) -> Service:
    """Run a program until it ends by itself."""

    def run(program: str = SERVICE, before: Any = None, **environment: str) -> Ended:
        child = subprocess.Popen(
            [sys.executable, "-c", program],
            env={
                **os.environ,
                "OTEL_METRICS_EXPORTER": "none",
                "CLEW_SEAL_GRACE_SECONDS": "0.01",
                "CLEW_SHUTDOWN_SECONDS": "2",
                # `requests` prefers these to the exporter's own variable.
                **dict.fromkeys(("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"), ""),
                **environment,
            },
            cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            preexec_fn=before,  # noqa: PLW1509 - this process has no other threads that matter
        )  # fmt: skip
        lines: list[str] = []
        assert child.stdout is not None
        for line in child.stdout:
            lines.append(line)
            if line == "done\n":
                break
        began = time.monotonic()
        try:
            rest, err = child.communicate(timeout=60)
        finally:
            child.kill()
        seconds = time.monotonic() - began
        return Ended(code=child.returncode, out="".join(lines) + rest, err=err, seconds=seconds)

    return run
