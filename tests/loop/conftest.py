"""The loop beside a scripted provider, sync and async, with Clew listening."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import clew
from clew import _guard
from clew.pipeline import runtime
from clew.settings import Settings
from clew.testing import CaptureExporter, ScriptedProvider

sys.path.insert(0, str(Path(__file__).parent / "support"))

from loop_kit import MODES, Kit


@pytest.fixture(params=MODES)
def mode(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def tolerated() -> set[str]:
    return set()


@pytest.fixture
def tolerate(tolerated: set[str]) -> Callable[[str], None]:
    """Return what says that a kind of fault may be swallowed in this test."""
    return tolerated.add


@pytest.fixture
def govern(tolerated: set[str]) -> Iterator[Callable[..., CaptureExporter]]:
    """Return what configures Clew, with gates, and returns its exporter."""

    def configure(*gates: Any, **more: Any) -> CaptureExporter:
        clew.shutdown()
        exporter = CaptureExporter()
        settings = Settings.from_environment(
            gates=gates,
            export_delay_ms=50,
            seal_grace_s=0.05,
            **{"provider_hosts": {"127.0.0.1": "openai"}, **more},
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
    assert set(_guard.failures) == tolerated


@pytest.fixture
async def kit(mode: str, govern: Callable[..., CaptureExporter]) -> AsyncIterator[Kit]:
    """A provider with an empty script, and Clew without gates."""
    with ScriptedProvider() as server:
        kit = Kit(mode, server, govern())
        async with kit.provider:
            yield kit
