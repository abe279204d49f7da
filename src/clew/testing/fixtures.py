"""Fixtures for pytest.

A `conftest.py` brings them with `pytest_plugins = ["clew.testing.fixtures"]`.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from clew.testing.capture import CaptureExporter
from clew.testing.otlp_sink import OtlpSink
from clew.testing.provider import ScriptedProvider
from clew.testing.session import captured


@pytest.fixture
def clew_spans() -> Iterator[CaptureExporter]:
    """Clew, configured and listening to the client libraries; what it exports is kept."""
    with captured() as exporter:
        yield exporter


@pytest.fixture
def scripted_provider() -> Iterator[ScriptedProvider]:
    """A provider on loopback; give it replies with `add`."""
    with ScriptedProvider() as provider:
        yield provider


@pytest.fixture
def otlp_sink() -> Iterator[OtlpSink]:
    """An OTLP/HTTP receiver on loopback."""
    with OtlpSink() as sink:
        yield sink
