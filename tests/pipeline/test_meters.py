"""Where metrics go: OTLP, the process's own provider, nowhere; exits and forks."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from metric_kit import MARK, metrics_of
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

import clew
from clew import _guard
from clew.errors import ConfigurationError
from clew.pipeline import instruments, meters, runtime
from clew.settings import Settings
from clew.testing import CaptureExporter, OtlpSink, Reply, ScriptedProvider

WORK = """
    import clew
    with clew.run("triage"):
        clew.decide("budget", "allow")
"""


def run_python(
    code: str, env: dict[str, str], *, timeout: float = 60
) -> subprocess.CompletedProcess[str]:
    """Run a program of its own, with no variable but these."""
    return subprocess.run(
        # The OTLP exporters of the SDK leave a socket to the garbage collector.
        [sys.executable, "-Werror", "-Wignore::ResourceWarning", "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
        env={"PATH": "/usr/bin:/bin", **env},
    )


def values(sink: OtlpSink, name: str) -> dict[str, float]:
    """Return the last value (summed over labels) that each instance sent of a metric."""
    found: dict[str, float] = {}
    for message in sink.metrics:
        for resource in message.resource_metrics:
            attributes = {one.key: one.value.string_value for one in resource.resource.attributes}
            for scope in resource.scope_metrics:
                for metric in scope.metrics:
                    if metric.name == name:
                        points = [*metric.sum.data_points, *metric.gauge.data_points]
                        total = sum(one.as_int or one.as_double for one in points)
                        found[attributes["service.instance.id"]] = total
    return found


@pytest.fixture
def sink() -> Iterator[OtlpSink]:
    """An OTLP receiver on loopback."""
    with OtlpSink() as receiver:
        yield receiver


# --- whether, and where ---------------------------------------------------------------------------


def test_with_span_exporters_alone_there_are_no_metrics() -> None:
    """Nobody asked for any: nothing is counted, no thread is started."""
    before = set(threading.enumerate())  # other tests may have left some
    assert metrics_of(span_exporters=[CaptureExporter()]) is None
    names = {thread.name for thread in threading.enumerate() if thread not in before}
    assert meters.THREAD_NAME not in names


@pytest.mark.parametrize(
    "environ",
    [{"OTEL_METRICS_EXPORTER": "none"}, {"OTEL_TRACES_EXPORTER": "none"}],
    ids=["said so", "no spans by OTLP either"],
)
def test_none_is_none(monkeypatch: pytest.MonkeyPatch, environ: dict[str, str]) -> None:
    """`none` switches metrics off; where spans do not go by OTLP, metrics do not by default."""
    for name, value in {"OTEL_TRACES_EXPORTER": "none", **environ}.items():
        monkeypatch.setenv(name, value)
    assert metrics_of() is None


@pytest.mark.parametrize(
    ("name", "value", "word"),
    [
        ("OTEL_METRICS_EXPORTER", "carrier-pigeon", "carrier-pigeon"),
        ("OTEL_EXPORTER_OTLP_METRICS_PROTOCOL", "morse", "morse"),
        ("OTEL_METRIC_EXPORT_INTERVAL", "0", "OTEL_METRIC_EXPORT_INTERVAL"),
    ],
)
def test_what_nobody_knows_is_a_clear_error(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, word: str
) -> None:
    """An unknown exporter, protocol or interval is named in the error."""
    monkeypatch.setenv("OTEL_METRICS_EXPORTER", "otlp")
    monkeypatch.setenv(name, value)
    with pytest.raises(ConfigurationError, match=word):
        metrics_of(span_exporters=[CaptureExporter()])
    assert runtime.get() is None


@pytest.mark.parametrize("protocol", ["http/protobuf", "grpc"])
def test_the_protocol_chooses_the_exporter(protocol: str) -> None:
    """OTLP goes over HTTP or gRPC, as for spans; the reader has no thread of its own."""
    environ = {
        "OTEL_EXPORTER_OTLP_PROTOCOL": "unknown",
        "OTEL_EXPORTER_OTLP_METRICS_PROTOCOL": protocol,
    }
    before = threading.active_count()
    (reader,), endpoint = meters.Sinks(names=["otlp"], environ=environ).make()
    exporter: Any = reader._exporter  # type: ignore[attr-defined]
    kind = protocol.partition("/")[0]
    assert type(exporter).__module__ == f"opentelemetry.exporter.otlp.proto.{kind}.metric_exporter"
    assert endpoint is None
    if kind == "http":
        assert threading.active_count() == before
    exporter.shutdown()


def test_a_reader_serves_one_configuration(settings: Settings) -> None:
    """The second configuration with the same reader is refused with what to do."""
    given = settings.model_copy(update={"metric_readers": (InMemoryMetricReader(),)})
    assert metrics_of(given, span_exporters=[CaptureExporter()]) is not None
    clew.shutdown()
    with pytest.raises(ConfigurationError, match="make a new one"):
        metrics_of(given, span_exporters=[CaptureExporter()])
    assert runtime.get() is None


# --- OTLP -----------------------------------------------------------------------------------------


def test_metrics_go_out_while_the_process_runs(
    sink: OtlpSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are exported at the interval, by a named daemon thread, beside two of Clew's at most."""
    monkeypatch.setenv("OTEL_METRICS_EXPORTER", "otlp")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", sink.base_url)
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "50")
    before = set(threading.enumerate())
    with ScriptedProvider([Reply(text=MARK)]) as provider:
        metrics_of(span_exporters=[CaptureExporter()])
        with clew.run("triage", actor=MARK), httpx.Client() as client:
            clew.instrument(client)
            client.post(
                f"{provider.openai_base_url}/chat/completions",
                json={"model": "gpt-5-mini", "messages": [{"role": "user", "content": MARK}]},
            )
    own = [one for one in set(threading.enumerate()) - before if one.name.startswith("clew-")]
    names = {one.name for one in own}
    assert (
        {"clew-export", "clew-metrics"} <= names <= {"clew-export", "clew-metrics", "clew-prices"}
    )
    assert all(one.daemon for one in own)
    deadline = time.monotonic() + 10
    while not values(sink, "clew.rounds") and time.monotonic() < deadline:
        time.sleep(0.02)
    assert list(values(sink, "clew.rounds").values()) == [1]
    assert list(values(sink, "clew.runs.ended").values()) == [1]
    clew.shutdown()
    assert not any(one.is_alive() for one in own if one.name == "clew-metrics")
    assert MARK.encode() not in b"".join(sink.bodies)
    assert _guard.failures == {}


@pytest.mark.parametrize("temporality", ["cumulative", "delta"])
def test_short_processes_add_up(sink: OtlpSink, temporality: str) -> None:
    """Programs of one run that just end: each sends its metrics, as an instance of its own."""
    env = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": sink.base_url,
        "OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE": temporality,
    }
    for _ in range(3):
        done = run_python("import clew\nclew.configure('cron')\n" + textwrap.dedent(WORK), env)
        assert (done.returncode, done.stderr) == (0, "")
    assert list(values(sink, "clew.runs.ended").values()) == [1, 1, 1]
    assert list(values(sink, "clew.decisions").values()) == [1, 1, 1]
    kinds = {
        metric.sum.aggregation_temporality
        for message in sink.metrics
        for resource in message.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
        if metric.name == "clew.runs.ended"
    }
    assert kinds == {{"cumulative": 2, "delta": 1}[temporality]}


def test_spans_and_metrics_name_the_same_instance(sink: OtlpSink) -> None:
    """The resource of the metrics is that of the spans, and passed the allow-list like it."""
    env = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": sink.base_url,
        "OTEL_RESOURCE_ATTRIBUTES": f"deployment.environment.name=test,my.note={MARK}",
    }
    done = run_python("import clew\nclew.configure('bot')\n" + textwrap.dedent(WORK), env)
    assert (done.returncode, done.stderr) == (0, "")

    def resource(one: Any) -> dict[str, str]:
        return {item.key: item.value.string_value for item in one.resource.attributes}

    of_metrics = [resource(one) for message in sink.metrics for one in message.resource_metrics]
    of_spans = [resource(one) for message in sink.traces for one in message.resource_spans]
    assert len(of_metrics[0]["service.instance.id"]) == 36
    assert of_metrics[0]["service.name"] == "bot"
    assert of_metrics[0]["deployment.environment.name"] == "test"
    assert all(one == of_metrics[0] for one in (*of_metrics, *of_spans))
    assert MARK.encode() not in b"".join(sink.bodies)


def test_a_sampled_out_process_sends_metrics_and_no_span(sink: OtlpSink) -> None:
    """The sampler of the environment decides over spans alone."""
    env = {"OTEL_EXPORTER_OTLP_ENDPOINT": sink.base_url, "OTEL_TRACES_SAMPLER": "always_off"}
    done = run_python("import clew\nclew.configure('bot')\n" + textwrap.dedent(WORK), env)
    assert (done.returncode, done.stderr) == (0, "")
    assert list(values(sink, "clew.runs.ended").values()) == [1]
    assert sink.spans == ()


def test_the_cost_of_a_call_right_before_the_exit_is_sent(sink: OtlpSink) -> None:
    """The last collection waits for prices that are still loading."""
    with ScriptedProvider([Reply(text="one")]) as provider:
        code = f"""
            import clew, httpx
            clew.configure("bot", settings=clew.Settings(
                provider_hosts={{"{provider.base_url.removeprefix("http://")}": "openai"}}))
            with httpx.Client() as client:
                clew.instrument(client)
                client.post("{provider.openai_base_url}/chat/completions",
                            json={{"model": "gpt-5-mini", "messages": []}})
        """
        done = run_python(
            code,
            {"OTEL_EXPORTER_OTLP_ENDPOINT": sink.base_url, "OTEL_TRACES_SAMPLER": "always_off"},
        )
    assert (done.returncode, done.stderr) == (0, "")
    expected = 12 * 0.25 / 1e6 + 7 * 2 / 1e6
    assert list(values(sink, "clew.cost").values()) == [pytest.approx(expected)]


@pytest.mark.parametrize("kind", ["silent", "refusing"])
def test_a_dead_collector_does_not_hold_up_the_exit(kind: str, free_port: int) -> None:
    """One that accepts and never answers, or refuses, costs the deadline at the most."""
    with socket.socket() as silent:
        if kind == "silent":
            silent.bind(("127.0.0.1", free_port))
            silent.listen(16)
        code = f"""
            import time, clew
            clew.configure("bot", settings=clew.Settings(shutdown_s=2))
            {textwrap.indent(textwrap.dedent(WORK), " " * 12).strip()}
            begun = time.monotonic()
            clew.shutdown()
            print(time.monotonic() - begun)
        """
        env = {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{free_port}"}
        done = run_python(code, env, timeout=30)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < 2.5
    assert "Clew has lost its last metrics" in done.stderr


# --- forks ----------------------------------------------------------------------------------------


FORKED = """
    import os, clew
    clew.configure("bot")
    with clew.run("parent"):
        pass
    with clew.run("open"):
        child = os.fork()
    if child == 0:
        with clew.run("child"):
            clew.decide("budget", "allow")
        clew.shutdown()
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert status == 0, status
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_child_counts_its_own_and_not_the_parents(sink: OtlpSink) -> None:
    """It starts from zero as another instance, and leaves the parent's open run to the parent."""
    done = run_python(FORKED, {"OTEL_EXPORTER_OTLP_ENDPOINT": sink.base_url})
    assert done.returncode == 0, done.stderr
    started = values(sink, "clew.runs.started")
    ended = values(sink, "clew.runs.ended")
    assert sorted(started.values()) == [1, 2]
    assert sorted(ended.values()) == [1, 2]
    assert set(values(sink, "clew.runs.active").values()) == {0}
    child = next(instance for instance, value in started.items() if value == 1)
    assert values(sink, "clew.decisions") == {child: 1}
    of_spans = {
        attribute.value.string_value
        for message in sink.traces
        for resource in message.resource_spans
        for attribute in resource.resource.attributes
        if attribute.key == "service.instance.id"
    }
    assert of_spans == set(started)


# --- the process's own provider -------------------------------------------------------------------


JOINED = """
    import threading
    from opentelemetry import metrics
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader
    reader = InMemoryMetricReader()
    metrics.set_meter_provider(MeterProvider([reader]))
    import clew
    from clew.testing import CaptureExporter
    for number in range(2):
        clew.configure(span_exporters=[CaptureExporter()])
        with clew.run("triage"):
            with clew.tool("search"):
                pass
        names = {one.name for one in threading.enumerate()}
        assert "clew-metrics" not in names, names
        clew.shutdown()
    metrics.get_meter("host").create_counter("host.counter").add(1)
    for resource in reader.get_metrics_data().resource_metrics:
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                for point in metric.data.data_points:
                    value = getattr(point, "value", None)
                    bounds = getattr(point, "explicit_bounds", ())
                    print(scope.scope.name, metric.name, value, len(bounds))
"""


def test_the_processs_meter_provider_is_joined() -> None:
    """Clew adds no reader and no thread, advises its buckets, and leaves the provider running."""
    done = run_python(JOINED, {})
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert "clew clew.runs.ended 2 0" in lines
    assert "clew clew.runs.active 0 0" in lines
    assert f"clew clew.tool.duration None {len(instruments.SECONDS)}" in lines
    assert "host host.counter 1 0" in lines


def test_clews_own_provider_is_not_the_processs(
    monkeypatch: pytest.MonkeyPatch, sink: OtlpSink
) -> None:
    """Metrics of other libraries, which no list of Clew's has seen, do not leave through it."""
    from opentelemetry import metrics as api

    monkeypatch.setenv("OTEL_METRICS_EXPORTER", "otlp")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", sink.base_url)
    metrics_of(span_exporters=[CaptureExporter()])
    api.get_meter("another.library").create_counter(f"{MARK}.counter").add(1)
    clew.shutdown()
    assert sink.metrics != []
    assert MARK.encode() not in b"".join(sink.bodies)


def test_a_reader_of_ones_own_replaces_the_environments(
    monkeypatch: pytest.MonkeyPatch, sink: OtlpSink, settings: Settings
) -> None:
    """`Settings.metric_readers` wins over OTEL_METRICS_EXPORTER."""
    monkeypatch.setenv("OTEL_METRICS_EXPORTER", "otlp")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", sink.base_url)
    reader = InMemoryMetricReader()
    given = settings.model_copy(update={"metric_readers": (reader,)})
    metrics_of(given, span_exporters=[CaptureExporter()])
    with clew.run("triage"):
        pass
    clew.shutdown()
    assert reader.get_metrics_data() is not None
    assert sink.metrics == []
