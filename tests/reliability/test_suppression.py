"""What exporting does is not traced: its requests become no spans that are exported in turn."""

from __future__ import annotations

import time
from collections.abc import Sequence

import httpx
import pytest
from opentelemetry.instrumentation.httpx import HTTPXClientInstrumentor
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

import clew
from clew.settings import Settings
from clew.testing import OtlpSink


class OverHttpx(SpanExporter):
    """An exporter of the host, through a client library that is instrumented."""

    def __init__(self, address: str) -> None:
        self._client = httpx.Client(trust_env=False)
        self._address = address
        self.names: list[str] = []

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.names += [each.name for each in spans]
        self._client.post(self._address, content=b"")
        return SpanExportResult.SUCCESS

    def shutdown(self) -> None:
        self._client.close()


@pytest.fixture
def instrumented():
    one = HTTPXClientInstrumentor()
    one.instrument()
    yield
    one.uninstrument()


def test_an_export_is_no_span(instrumented: None) -> None:
    """However long one waits, what was exported is the run and nothing else."""
    with OtlpSink() as sink:
        exporter = OverHttpx(f"{sink.base_url}/v1/traces")
        clew.configure(
            "tests",
            settings=Settings.from_environment(export_delay_ms=10, seal_grace_s=0.01),
            span_exporters=[exporter],
        )
        with clew.run("desk"):
            httpx.get(f"{sink.base_url}/seen", trust_env=False)
        time.sleep(0.3)
        clew.shutdown()
    assert sorted(exporter.names) == [
        "GET",
        "invoke_agent desk",
        "run_sealed desk",
        "run_started desk",
    ]
