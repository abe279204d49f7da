"""Fixtures that every room's tests use."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

import clew
from clew import _guard
from clew.prompts import registry
from clew.settings import VARIABLES, Settings
from clew.testing import CaptureExporter

# Machines are slow at times; how long an example takes is not what these tests are about.
hypothesis.settings.register_profile(
    "clew", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("clew")


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Start each test with no setting in the environment, and end it with Clew shut down."""
    for name in list(os.environ):
        if name.startswith(("OTEL_", "CLEW_")) and name not in ("CLEW_CORPUS", "CLEW_CACHE"):
            monkeypatch.delenv(name)
    for variable in VARIABLES:
        monkeypatch.delenv(variable.name, raising=False)
    monkeypatch.setenv("CLEW_DATA_DIR", str(tmp_path / "data"))
    _guard.forget()
    registry.forget()
    yield
    clew.uninstrument()
    clew.shutdown()


@pytest.fixture
def settings() -> Settings:
    """Settings with waiting times that suit a test."""
    return Settings.from_environment(export_delay_ms=50, seal_grace_s=0.05, shutdown_s=5)


@pytest.fixture
def exported(settings: Settings) -> Iterator[CaptureExporter]:
    """Clew, configured to export to the exporter that is returned."""
    from clew.pipeline import runtime

    exporter = CaptureExporter()
    clew.configure("tests", settings=settings, span_exporters=[exporter])
    current = runtime.get()
    assert current is not None
    assert current.prices.wait(10)

    def flush() -> None:
        current.settle(everywhere=True)
        current.worker.flush(5)

    exporter.flush = flush
    yield exporter
    failures = dict(_guard.failures)
    clew.shutdown()
    assert failures == {}, f"faults were swallowed: {failures}"
