"""Metrics of the pipeline itself: what waits, what is lost, what the allow-list kept out."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from metric_kit import MARK
from opentelemetry import trace
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

import clew
from clew import _guard
from clew.pipeline import metrics as metrics_module


class SlowExporter(SpanExporter):
    """Takes its time, and confirms nothing."""

    def __init__(self) -> None:
        self.release = threading.Event()
        self.exported = 0

    def export(self, spans: Any) -> SpanExportResult:
        assert self.release.wait(20)
        self.exported += len(spans)
        return SpanExportResult.FAILURE


def test_a_full_queue_and_a_failing_exporter_are_counted(
    measure: Callable[..., Any],
) -> None:
    """What waits, what was dropped and what was not confirmed are metrics, and add up."""
    slow = SlowExporter()
    measured = measure(exporter=slow, queue_size=20, batch_size=10)
    for _ in range(100):
        with clew.tool("search"):
            pass
    waiting = measured.runtime.worker.waiting()
    slow.release.set()
    assert waiting > 0
    dropped = measured.total("clew.pipeline.dropped", clew__pipeline__signal="spans")
    assert dropped == measured.runtime.worker.dropped > 0
    assert measured.total("clew.pipeline.failed") == slow.exported == 100 - dropped
    assert measured.total("clew.pipeline.queued") == 0
    assert measured.total("clew.tool.duration") == 100


def test_nothing_is_lost_between_threads(measure: Callable[..., Any]) -> None:
    """Many threads count while two drain: the sums are exact."""
    measured = measure(queue_size=100_000)
    stop = threading.Event()

    def drain() -> None:
        while not stop.is_set():
            measured.metrics.drain()

    def work() -> None:
        for _ in range(200):
            with clew.tool("search"), clew.decide("budget"):
                pass

    drainer = threading.Thread(target=drain)
    workers = [threading.Thread(target=work) for _ in range(8)]
    drainer.start()
    for one in workers:
        one.start()
    for one in workers:
        one.join(30)
    stop.set()
    drainer.join(30)
    assert measured.total("clew.decisions") == 1600
    assert measured.total("clew.tool.duration") == 1600


class BrokenExporter(SpanExporter):
    """Raises."""

    def export(self, spans: Any) -> SpanExportResult:
        raise ConnectionError(MARK)


def test_spans_of_an_exporter_that_raises_have_failed(
    measure: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    """An exception is no confirmation: it is logged once without its text, and counted."""
    measured = measure(exporter=BrokenExporter())
    for _ in range(3):
        with clew.tool("search"):
            pass
        measured.flush()
    assert measured.total("clew.pipeline.failed") == 3
    assert ["ConnectionError" in one.getMessage() for one in caplog.records] == [True]
    assert MARK not in caplog.text
    _guard.forget()


def test_the_caller_is_never_held_up_and_lost_events_are_counted(
    measure: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """While nobody drains, events are kept up to a bound; beyond it they are counted as lost."""
    measured = measure()
    measured.flush()
    monkeypatch.setattr(metrics_module, "_KEPT", 10)
    with measured.metrics._lock:
        begun = time.perf_counter()
        for _ in range(25):
            clew.decide("budget", "allow")
        measured.runtime.settle(everywhere=True)
        assert time.perf_counter() - begun < 1
    assert measured.total("clew.decisions") == 10
    assert measured.total("clew.pipeline.dropped", clew__pipeline__signal="metrics") == 15


def test_what_the_allow_list_kept_out_is_counted_by_rule(
    measure: Callable[..., Any],
) -> None:
    """A foreign span's content is counted under the rule that kept it out, never named."""
    measured = measure()
    with clew.run("triage"):
        span = trace.get_tracer("another.library").start_span("work")
        span.set_attribute(f"{MARK}.key", "value")
        span.set_attribute("http.request.method", f"{MARK} with spaces")
        span.end()
    row = measured.points()["clew.privacy.dropped"]
    found = {one["clew.privacy.rule"]: value for one, value in row}
    assert (found["key"], found["identifier"]) == (1, 1)
