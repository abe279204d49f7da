"""Configure: alone, from the environment, again and again, and what is left of it."""

from __future__ import annotations

import collections
import gc
import logging
import subprocess
import sys
import time
import uuid
from pathlib import Path
from types import FunctionType
from typing import Any

import pytest
from fresh import run_python

import clew
from clew.errors import ConfigurationError, MissingExtraError
from clew.settings import Settings
from clew.testing import CaptureExporter, OtlpSink


def test_configuring_twice_alike_changes_nothing(
    exported: CaptureExporter, settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    """The same arguments again are silent; each span still arrives once."""
    for _ in range(5):
        clew.configure("tests", settings=settings, span_exporters=[exported])
    with clew.run("triage"):
        pass
    assert caplog.records == []
    assert len(exported.by_name("invoke_agent")) == 1


def test_configuring_otherwise_says_so(
    exported: CaptureExporter, caplog: pytest.LogCaptureFixture
) -> None:
    """Other arguments change nothing and are logged with what to do."""
    with caplog.at_level(logging.WARNING, "clew"):
        clew.configure("another")
    assert ["clew.shutdown() first" in record.getMessage() for record in caplog.records] == [True]


def test_after_shutdown_clew_can_be_configured_again(settings: Settings) -> None:
    """The second configuration exports to its own exporter, under its own service name."""
    first, second = CaptureExporter(), CaptureExporter()
    clew.configure("first", settings=settings, span_exporters=[first])
    with clew.run("triage"):
        pass
    clew.shutdown()
    with clew.run("unseen"):
        pass
    clew.configure("second", settings=settings, span_exporters=[second])
    with clew.run("triage"):
        pass
    clew.shutdown()
    for exporter, name in ((first, "first"), (second, "second")):
        assert len(exporter.by_name("invoke_agent")) == 1
        assert {span.resource.attributes["service.name"] for span in exporter.spans} == {name}
        assert all(span.resource.attributes["service.instance.id"] for span in exporter.spans)


def test_spans_are_exported_by_otlp_to_the_standard_variables() -> None:
    """OTEL_EXPORTER_OTLP_ENDPOINT, headers, resource attributes and service name are honoured."""
    with OtlpSink() as sink:
        done = run_python(
            """
            import clew
            clew.configure()
            with clew.run("triage") as run:
                pass
            print(run.trace_id)
            """,
            env={
                "OTEL_TRACES_EXPORTER": "otlp",
                "OTEL_EXPORTER_OTLP_ENDPOINT": sink.base_url,
                "OTEL_EXPORTER_OTLP_HEADERS": "x-tenant=acme",
                "OTEL_SERVICE_NAME": "from-env",
                "OTEL_RESOURCE_ATTRIBUTES": "deployment.environment.name=prod,secret=SECRET",
            },
        )
        assert done.returncode == 0, done.stderr
        spans = sink.spans
        assert {span.trace_id.hex() for span in spans} == {done.stdout.strip()}
        assert len(spans) == 3
        body = b"".join(request.body for request in sink.requests)
        assert {dict(request.headers)["x-tenant"] for request in sink.requests} == {"acme"}
    assert b"from-env" in body
    assert b"prod" in body
    assert b"SECRET" not in body


def test_grpc_without_its_extra_is_a_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """The protocol is chosen by the standard variable; what is missing is named."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
    for name in list(sys.modules):
        if name.startswith("opentelemetry.exporter.otlp.proto.grpc"):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.grpc", None)
    with pytest.raises(MissingExtraError, match=r"clew\[grpc\]"):
        clew.configure()


def test_grpc_is_chosen_by_the_standard_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the extra installed the gRPC exporter is the one that is used."""
    pytest.importorskip("opentelemetry.exporter.otlp.proto.grpc")
    from clew.pipeline import exporters

    (exporter,) = exporters.from_environment({"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"})
    assert type(exporter).__module__ == "clew.pipeline.otlp_grpc"
    exporter.shutdown()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "carrier-pigeon"),
        ("OTEL_TRACES_EXPORTER", "fax"),
        ("OTEL_BSP_MAX_QUEUE_SIZE", "many"),
        ("CLEW_PROVIDER_HOSTS", "no-equals-sign"),
        ("CLEW_STREAM_IDLE_SECONDS", "-1"),
    ],
)
def test_a_wrong_variable_is_named(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    """The error names the variable and what it holds."""
    monkeypatch.setenv(name, value)
    with pytest.raises(ConfigurationError) as caught:
        clew.configure()
    assert name in str(caught.value)
    assert value in str(caught.value)


def test_disabled_by_the_standard_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    """OTEL_SDK_DISABLED=true leaves everything a no-op."""
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    exporter = CaptureExporter()
    clew.configure("x", span_exporters=[exporter])
    with clew.run("triage"):
        pass
    clew.shutdown()
    assert exporter.spans == ()


@pytest.mark.parametrize("ratio", [0.1, 0.5, 0.75])
def test_ratio_sampling_keeps_whole_runs(ratio: float) -> None:
    """Of 10,000 uuids the share that is kept is the ratio, within two points."""
    from clew.pipeline.sampling import RunRatioSampler

    sampler = RunRatioSampler(ratio)
    kept = sum(
        sampler.should_sample(None, uuid.uuid4().int, "run").decision.is_sampled()
        for _ in range(10_000)
    )
    assert abs(kept / 10_000 - ratio) < 0.02


@pytest.mark.parametrize(("keep", "spans"), [("none", 0), ("error", 0), ("deny", 4)])
def test_sampled_out_runs_export_nothing_and_count_all_the_same(keep: str, spans: int) -> None:
    """OTEL_TRACES_SAMPLER decides once per run, keep rules after it; totals are true either way."""
    done = run_python(
        """
        import clew
        from clew.testing import CaptureExporter
        exporter = CaptureExporter()
        clew.configure("x", span_exporters=[exporter])
        with clew.run("triage") as run:
            clew.decide("tool", "deny")
        clew.shutdown()
        print(len(exporter.spans), run.totals.denials)
        """,
        env={
            "OTEL_TRACES_SAMPLER": "traceidratio",
            "OTEL_TRACES_SAMPLER_ARG": "0",
            "CLEW_KEEP": keep,
        },
    )
    assert done.stdout == f"{spans} 1\n", done.stderr


@pytest.mark.parametrize("distro", [None, "clew"])
def test_opentelemetry_instrument_activates_clew(distro: str | None) -> None:
    """Without a line of set-up in the program, its run is exported by OTLP."""
    program = (
        "import clew, httpx\n"
        "with clew.run('triage') as run: pass\n"
        "print(run.trace_id, hasattr(httpx.Client.send, '_self_wrapper'))\n"
    )
    with OtlpSink() as sink:
        env = {
            "PATH": "/usr/bin:/bin",
            "OTEL_EXPORTER_OTLP_ENDPOINT": sink.base_url,
            "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
            "OTEL_METRICS_EXPORTER": "none",
            "OTEL_LOGS_EXPORTER": "none",
        }
        if distro:
            env |= {"OTEL_PYTHON_DISTRO": distro, "OTEL_PYTHON_CONFIGURATOR": distro}
        launcher = [
            sys.executable,
            "-c",
            "from opentelemetry.instrumentation.auto_instrumentation import run; run()",
        ]
        done = subprocess.run(
            [*launcher, sys.executable, "-c", program],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            env=env,
        )
        spans = [span for span in sink.spans if span.name == "invoke_agent triage"]
    trace_id, tapped = done.stdout.split()
    assert [span.trace_id.hex() for span in spans] == [trace_id], done.stderr
    assert tapped == "True"


def _ours() -> collections.Counter[str]:
    """Count the objects of Clew's classes, and the functions that were made on the way."""
    for _ in range(3):
        gc.collect()
    found: collections.Counter[str] = collections.Counter()
    for each in gc.get_objects():
        # Not `isinstance`, which asks objects of other tests for their `__class__`.
        named = each if type(each) is FunctionType else type(each)
        if str(named.__module__).startswith("clew."):
            found[f"{named.__module__}.{named.__qualname__}"] += 1
    return found


@pytest.mark.parametrize("more", [{}, {"prompt_capture": True}, {"audit": "best_effort"}])
def test_nothing_is_left_of_a_configuration(tmp_path: Path, more: dict[str, Any]) -> None:
    """However often a process configures and shuts down, it keeps one set of everything."""

    def once(number: int) -> None:
        settings = Settings(
            digest_key="k", export_delay_ms=1, seal_grace_s=0, data_dir=tmp_path, **more
        )
        clew.configure(f"s{number}", settings=settings, span_exporters=[CaptureExporter()])
        with clew.run("desk"), clew.tool("search"):
            clew.decide("tool", "allow")
        clew.shutdown()

    for number in range(3):
        once(number)
    before = _ours()
    for number in range(10):
        once(number)
    until = time.monotonic() + 5
    while _ours() - before and time.monotonic() < until:
        time.sleep(0.05)  # what a thread that still runs has in hand is not left
    assert _ours() - before == {}
