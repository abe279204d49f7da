"""Fixtures that every room's tests use."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest

import clew
from clew import _guard
from clew.prompts import registry
from clew.settings import VARIABLES, Settings
from clew.testing import CaptureExporter

sys.path.insert(0, str(Path(__file__).parent / "support"))

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
def collected() -> Iterator[None]:
    """Collect what a test has left open while warnings about it are no errors yet."""
    yield
    gc.collect()


Listen = Callable[[Settings], CaptureExporter]


@pytest.fixture
def listen() -> Listen:
    """Return what configures Clew; all that there is reaches the exporter that it returns."""
    from clew.pipeline import runtime

    def configure(settings: Settings) -> CaptureExporter:
        exporter = CaptureExporter()
        clew.configure("tests", settings=settings, span_exporters=[exporter])
        current = runtime.get()
        assert current is not None
        assert current.prices.wait(10)

        def flush() -> None:
            current.settle(everywhere=True)
            current.worker.flush(5)

        exporter.flush = flush
        return exporter

    return configure


@pytest.fixture
def exported(settings: Settings, listen: Listen) -> Iterator[CaptureExporter]:
    """Clew, configured to export to the exporter that is returned."""
    yield listen(settings)
    failures = dict(_guard.failures)
    clew.shutdown()
    assert failures == {}, f"faults were swallowed: {failures}"


@pytest.fixture
def tolerated() -> set[str]:
    """Kinds of faults that may be swallowed in a test; it adds to them."""
    return set()


@pytest.fixture
def govern(listen: Listen, tolerated: set[str]) -> Iterator[Callable[..., CaptureExporter]]:
    """Return what configures Clew and its taps with gates, each time anew; it returns the exporter.

    No fault is swallowed but those that are tolerated, or given as `faults`.
    """

    def configure(*gates: Any, faults: Iterable[str] = (), **more: Any) -> CaptureExporter:
        tolerated.update(faults)
        clew.shutdown()
        waits = {"export_delay_ms": 50, "seal_grace_s": 0.05}
        exporter = listen(Settings.from_environment(gates=gates, **{**waits, **more}))
        clew.instrument()
        return exporter

    yield configure
    clew.shutdown()
    assert set(_guard.failures) == tolerated
