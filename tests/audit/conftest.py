"""Runs that are exported with keyed digests."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import clew
from clew.audit.keys import KeyRing
from clew.integrity import Key
from clew.settings import Settings
from clew.testing import CaptureExporter, Reply, ScriptedProvider

sys.path.insert(0, str(Path(__file__).parent / "support"))

from tampering import SECRET, act


@pytest.fixture
def recorded() -> Callable[..., dict[str, Any]]:
    """Return what runs `work` with Clew configured and gives the OTLP JSON that left."""

    def record(work: Callable[[str], Any] = act, **settings: Any) -> dict[str, Any]:
        chosen = {"integrity_key": SECRET, "seal_grace_s": 0.0, **settings}
        exporter = CaptureExporter()
        with ScriptedProvider() as provider:
            provider.add(*[Reply(text="hi")] * 8)
            clew.configure(
                "tests",
                settings=Settings.from_environment(export_delay_ms=20, **chosen),
                span_exporters=[exporter],
            )
            clew.instrument()
            try:
                work(provider.base_url)
            finally:
                clew.shutdown()
        return exporter.otlp_json()

    return record


@pytest.fixture
def keys() -> KeyRing:
    """The key of the tests."""
    return KeyRing([Key(SECRET.encode())])
