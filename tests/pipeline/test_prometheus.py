"""The Prometheus endpoint: what it answers, and that a port costs no service."""

from __future__ import annotations

import importlib
import logging
import socket
import sys
from typing import Any

import httpx
import pytest
from metric_kit import MARK, metrics_of

import clew
from clew import _guard
from clew.errors import ConfigurationError, MissingExtraError
from clew.pipeline import runtime
from clew.pipeline.prometheus import PrometheusEndpoint
from clew.testing import CaptureExporter


@pytest.fixture
def prometheus(monkeypatch: pytest.MonkeyPatch, free_port: int) -> str:
    """The environment of a Prometheus endpoint; its address."""
    monkeypatch.setenv("OTEL_METRICS_EXPORTER", "prometheus")
    monkeypatch.setenv("OTEL_EXPORTER_PROMETHEUS_PORT", str(free_port))
    return f"http://127.0.0.1:{free_port}"


def test_prometheus_scrapes_what_happened_until_now(prometheus: str) -> None:
    """The endpoint answers at once with every metric, on loopback, and closes with Clew."""
    metrics_of(span_exporters=[CaptureExporter()])
    with clew.run("triage", actor=MARK):
        clew.decide("budget", "deny", reason=MARK)
        clew.decide("tool", "allow")
    current = runtime.get()
    assert current is not None
    current.settle(everywhere=True)
    answer = httpx.get(f"{prometheus}/metrics")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain")
    lines = answer.text.splitlines()
    (started,) = [one for one in lines if one.startswith("clew_runs_started_total{")]
    assert 'gen_ai_agent_name="triage"' in started
    assert started.endswith(" 1.0")
    decisions = [one for one in lines if one.startswith("clew_decisions_total{")]
    assert len(decisions) == 2
    assert 'service_instance_id="' in answer.text
    assert MARK not in answer.text
    assert httpx.get(f"{prometheus}/").status_code == 404
    with pytest.raises(httpx.ConnectError):
        httpx.get(prometheus.replace("127.0.0.1", "127.0.0.2"))
    clew.shutdown()
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{prometheus}/metrics")
    assert _guard.failures == {}


def test_prometheus_understands_openmetrics(prometheus: str) -> None:
    """A scraper that asks for OpenMetrics gets it."""
    metrics_of(span_exporters=[CaptureExporter()])
    accept = {"accept": "application/openmetrics-text; version=1.0.0"}
    answer = httpx.get(f"{prometheus}/metrics", headers=accept)
    assert answer.headers["content-type"].startswith("application/openmetrics-text")
    assert answer.text.endswith("# EOF\n")


def test_a_port_that_is_taken_is_a_warning(
    prometheus: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The service starts all the same: a second process of it must not fail."""
    with socket.socket() as taken, caplog.at_level(logging.WARNING, "clew"):
        taken.bind(("127.0.0.1", int(prometheus.rpartition(":")[2])))
        taken.listen()
        assert metrics_of(span_exporters=[CaptureExporter()]) is not None
        with clew.run("triage"):
            pass
        clew.shutdown()
    assert ["OTEL_EXPORTER_PROMETHEUS_PORT" in one.getMessage() for one in caplog.records] == [True]


@pytest.mark.parametrize("port", ["http", "-1", "65536"])
def test_a_port_that_is_none_is_an_error(monkeypatch: pytest.MonkeyPatch, port: str) -> None:
    """The error names the variable and what it holds."""
    monkeypatch.setenv("OTEL_METRICS_EXPORTER", "prometheus")
    monkeypatch.setenv("OTEL_EXPORTER_PROMETHEUS_PORT", port)
    with pytest.raises(ConfigurationError, match=f"OTEL_EXPORTER_PROMETHEUS_PORT is '{port}'"):
        metrics_of(span_exporters=[CaptureExporter()])


def test_without_the_extra_the_error_says_what_to_install(
    prometheus: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`clew[prometheus]` is named."""
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.prometheus", None)
    with pytest.raises(MissingExtraError, match=r"clew\[prometheus\]"):
        metrics_of(span_exporters=[CaptureExporter()])


def test_an_older_prometheus_exporter_serves_too(
    monkeypatch: pytest.MonkeyPatch, free_port: int
) -> None:
    """One that takes no registry uses the process's."""
    exporter = importlib.import_module("opentelemetry.exporter.prometheus")
    newer = exporter.PrometheusMetricReader

    def older(disable_target_info: bool = False) -> Any:
        return newer(disable_target_info)

    monkeypatch.setattr(exporter, "PrometheusMetricReader", older)
    endpoint = PrometheusEndpoint({"OTEL_EXPORTER_PROMETHEUS_PORT": str(free_port)})
    assert "python_info" in endpoint.answer("")[1].decode()
    endpoint.reader.shutdown()
