"""The command line, in this process and in others, and a store for it to read."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import sample_runs
from sample_messages import spans_of

from clew.store.writer import Writer

Clew = Callable[..., tuple[int, str, str]]
"""Runs the command line with these arguments: exit code, stdout, stderr."""
RUN = "import sys; from clew.cli import main; main(sys.argv[1:])"
"""A program that is the command line."""


def fill(data_dir: Path, *runs: sample_runs.Sample) -> None:
    """Put runs into the store of a data folder."""
    writer = Writer(data_dir / "clew.db")
    writer.write(spans_of(*runs))
    writer.close()


def process(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the command in a process of its own."""
    return subprocess.run(
        [sys.executable, "-c", RUN, *arguments],
        env={**os.environ, **environment}, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
