"""The doctor, run as its users run it: in a process of its own, in a real set-up."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

RUN = "import sys; from clew.cli import main; main(sys.argv[1:])"
Found = dict[str, list[dict[str, Any]]]
Doctor = Callable[..., tuple[int, Found]]


@pytest.fixture
def doctor(tmp_path: Path) -> Doctor:
    """Run `clew doctor --json`; return the exit code and what was found, by check."""

    def run(
        *arguments: str, program: str | None = None, imports: bool = False, **environment: str
    ) -> tuple[int, Found]:
        more: list[str] = [] if imports else ["--no-imports"]
        if program is not None:
            (tmp_path / "service.py").write_text(program)
            more += ["--app", "service"]
        done = subprocess.run(
            [sys.executable, "-c", RUN, "doctor", "--json", *more, *arguments],
            env={**os.environ, "OTEL_METRICS_EXPORTER": "none", **environment},
            cwd=tmp_path, capture_output=True, text=True, timeout=90, check=False,
        )  # fmt: skip
        assert done.stdout, done.stderr
        found: Found = {}
        for each in json.loads(done.stdout)["findings"]:
            found.setdefault(each["check"], []).append(each)
        return done.returncode, found

    return run
