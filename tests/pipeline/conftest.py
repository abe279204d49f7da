"""Clew with a metric reader, for the tests of what is measured."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fresh
import pytest
from opentelemetry.sdk.metrics.export import HistogramDataPoint, InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SpanExporter

import clew
from clew import _guard
from clew.pipeline import runtime
from clew.settings import Settings
from clew.testing import CaptureExporter, ScriptedProvider

sys.path.insert(0, str(Path(__file__).parent / "support"))

Labels = dict[str, Any]


class Measured:
    """Clew with a reader of its own, and what the reader has collected."""

    def __init__(
        self,
        *,
        exporter: SpanExporter | None = None,
        tracer_provider: TracerProvider | None = None,
        **options: Any,
    ) -> None:
        self.reader = InMemoryMetricReader()
        self.spans = CaptureExporter()
        settings = {"export_delay_ms": 50, "seal_grace_s": 0.05, **options}
        clew.configure(
            "tests",
            settings=Settings.from_environment(metric_readers=(self.reader,), **settings),
            span_exporters=[exporter or self.spans],
            tracer_provider=tracer_provider,
        )
        clew.instrument()
        current = runtime.get()
        assert current is not None
        assert current.metrics is not None
        self.runtime = current
        self.metrics = current.metrics

    def flush(self) -> None:
        self.runtime.settle(everywhere=True)
        assert self.runtime.worker.flush(10)

    def data(self) -> Any:
        self.flush()
        return self.reader.get_metrics_data()

    def points(self) -> dict[str, list[tuple[Labels, Any]]]:
        """Return the points of each metric: labels, and the value or the histogram's point."""
        found: dict[str, list[tuple[Labels, Any]]] = {}
        for resource in self.data().resource_metrics:
            for scope in resource.scope_metrics:
                assert scope.scope.name == "clew"
                for metric in scope.metrics:
                    row = found.setdefault(metric.name, [])
                    for point in metric.data.data_points:
                        histogram = isinstance(point, HistogramDataPoint)
                        row.append((dict(point.attributes), point if histogram else point.value))
        return found

    def total(self, name: str, **wanted: Any) -> Any:
        """Return the sum (of a histogram: the count) over the points with these labels."""
        wanted = {key.replace("__", "."): value for key, value in wanted.items()}
        return sum(
            point.count if isinstance(point, HistogramDataPoint) else point
            for found, point in self.points().get(name, [])
            if wanted.items() <= found.items()
        )


@pytest.fixture
def measure() -> Iterator[Callable[..., Measured]]:
    """Configure Clew with a reader and these settings; no fault of ours may be swallowed."""
    made: list[Measured] = []

    def make(*, ready: bool = True, **options: Any) -> Measured:
        made.append(Measured(**options))
        assert not ready or made[-1].runtime.prices.wait(20)
        return made[-1]

    yield make
    failures = dict(_guard.failures)
    clew.uninstrument()
    clew.shutdown()
    assert failures == {}, f"faults were swallowed: {failures}"


@pytest.fixture
def provider() -> Iterator[ScriptedProvider]:
    """A provider on loopback."""
    with ScriptedProvider() as scripted:
        yield scripted


@pytest.fixture
def free_port() -> int:
    """A port of 127.0.0.1 on which nobody listens."""
    return fresh.free_port()
