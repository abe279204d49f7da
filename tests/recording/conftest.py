"""Clew with recording on, into a folder of the test's own."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import clew
from clew import _guard
from clew.pipeline import runtime
from clew.settings import Settings
from clew.testing import CaptureExporter, Reply, ScriptedProvider

sys.path.insert(0, str(Path(__file__).parents[1] / "store" / "support"))
sys.path.insert(0, str(Path(__file__).parent / "support"))

from recorded import Session, Start


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Configure Clew to record, at level `full` unless another is given."""

    def begin(**options: Any) -> Session:
        folder = tmp_path / "data"
        given: dict[str, Any] = {
            "capture": "full",
            "prompt_capture": True,
            "data_dir": folder,
            "digest_key": "key of the tests",
            "export_delay_ms": 20,
            **options,
        }
        exporter = CaptureExporter()
        clew.configure("tests", settings=Settings(**given), span_exporters=[exporter])
        current = runtime.get()
        assert current is not None
        assert current.prices.wait(10)
        exporter.flush = lambda: current.worker.flush(10)
        clew.instrument()
        return Session(folder, exporter)

    yield begin
    failures = dict(_guard.failures)
    clew.uninstrument()
    clew.shutdown()
    assert failures == {}, f"faults were swallowed: {failures}"


@pytest.fixture
def provider() -> Iterator[ScriptedProvider]:
    """A provider that greets whoever asks."""
    with ScriptedProvider(lambda _: Reply(text=("Hello ", "there"))) as running:
        yield running
