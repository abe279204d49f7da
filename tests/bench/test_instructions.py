"""The guard against slow growth: what Clew adds, in instructions, stays near what it was."""

from __future__ import annotations

import importlib.util
import os
import shutil
from pathlib import Path

import pytest


def load():
    place = Path(__file__).with_name("instructions.py")
    spec = importlib.util.spec_from_file_location("bench_instructions", place)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.timeout(600)
def test_no_workload_costs_a_tenth_more_than_it_did():
    """Small chat, 40 messages, 200 chunks, 50 calls at once, an agent run: at most +10 % each."""
    if shutil.which("valgrind") is None:
        if os.environ.get("CI") == "true":
            pytest.fail("valgrind is not installed")
        pytest.skip("valgrind is not installed")
    guard = load()
    figures = guard.stored().get(guard.key())
    if figures is None:
        pytest.skip(f"no figures for Python {guard.key()}: `make bench-figures` stores them")
    counted = guard.figures()
    assert set(counted) == set(figures)
    grown = {
        name: (figures[name], figure)
        for name, figure in counted.items()
        if figure > figures[name] * guard.TOLERANCE
    }
    assert grown == {}
