"""A provider, and Clew with a price file of its own."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from clew.settings import Settings
from clew.testing import CaptureExporter

sys.path.insert(0, str(Path(__file__).parent / "support"))

from billing import RATES, SILENT, TIERED, Answering, start


@pytest.fixture(scope="module")
def server() -> Iterator[Answering]:
    with Answering() as running:
        yield running


@pytest.fixture
def exporter(tmp_path: Path) -> CaptureExporter:
    """Clew, with a price file of its own."""
    prices = tmp_path / "prices.json"
    content = {"version": "2026-11-01", "currency": "USD", "prices": [RATES, SILENT, TIERED]}
    prices.write_text(json.dumps(content))
    one = CaptureExporter()
    settings = Settings(digest_key="k", export_delay_ms=20, seal_grace_s=0, prices_file=prices)
    start(settings, one)
    return one
