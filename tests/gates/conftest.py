"""Clew with gates."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import clew
from clew import _guard
from clew.pipeline import runtime
from clew.settings import Settings
from clew.testing import CaptureExporter

sys.path.insert(0, str(Path(__file__).parent / "support"))


@pytest.fixture
def govern() -> Iterator[Callable[..., CaptureExporter]]:
    """Return what configures Clew with gates and returns its exporter; no fault may be swallowed."""
    expected: list[set[str]] = []

    def configure(*gates: Any, faults: set[str] = frozenset(), **more: Any) -> CaptureExporter:  # type: ignore[assignment]
        expected.append(set(faults))
        exporter = CaptureExporter()
        settings = Settings.from_environment(
            gates=gates, export_delay_ms=50, seal_grace_s=0.05, **more
        )
        clew.configure("tests", settings=settings, span_exporters=[exporter])
        clew.instrument()
        current = runtime.get()
        assert current is not None
        assert current.prices.wait(10)

        def flush() -> None:
            current.settle(everywhere=True)
            current.worker.flush(5)

        exporter.flush = flush
        return exporter

    yield configure
    clew.shutdown()
    assert set(_guard.failures) == set().union(*expected)
