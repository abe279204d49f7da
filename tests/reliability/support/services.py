"""Services that are started as processes, and what they say at their end."""

from __future__ import annotations

import re
import resource
from typing import Any

DEADLINE_S = 2.0
"""CLEW_SHUTDOWN_SECONDS of the services."""
SLACK_S = 3.0
"""For an interpreter to end, on a machine that is busy."""
WHOLE = ("COMPLETE", "CONSISTENT")
LOST = re.compile(r"Clew has lost (\d+) spans")


def lost_of(err: str) -> int:
    """Return how many spans the log says were lost."""
    found = LOST.findall(err)
    assert len(found) <= 1, err
    return int(found[0]) if found else 0


def in_time(ended: Any) -> None:
    assert ended.code == 0, ended.err
    assert ended.seconds < DEADLINE_S + SLACK_S, ended.err
    assert "Traceback" not in ended.err


def small_files() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (200, 200))


KILLED = """
import os, time
import clew
from clew import setup
clew.configure("killed")
for _ in range(20):
    with clew.run("desk") as run:
        with clew.tool("search"):
            pass
    print("run", f"{run.run_id.int:032x}", flush=True)
    time.sleep(0.02)
(exporter,) = setup.exporters_in_force()
while sum(each.spans for each in exporter.spool.files()) < 80:
    time.sleep(0.02)
print("waiting", flush=True)
time.sleep(60)
"""
"""Begins runs whose spans nobody takes; then waits to be killed."""

LONG = """
import sys, time
import clew
clew.configure("service")
for _ in range(3):
    with clew.run("desk") as run:
        with clew.tool("search"):
            pass
    print("run", f"{run.run_id.int:032x}", flush=True)
    time.sleep(0.3)
sys.stdin.readline()
print("done", flush=True)
"""
"""Has its runs, then does nothing until it is told to end."""
