"""Configure: alone, joining, beside a foreign provider, from the environment, and again."""

from __future__ import annotations

import collections
import gc
import logging
import subprocess
import sys
import textwrap
import uuid
from pathlib import Path
from types import FunctionType
from typing import Any

import httpx
import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

import clew
from clew.errors import ConfigurationError, MissingExtraError
from clew.facts import Usage
from clew.pipeline import runtime
from clew.settings import Settings
from clew.testing import CaptureExporter, OtlpSink, Reply, ScriptedProvider


def run_python(code: str, *, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run a program of its own, for what can be done once per process only."""
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={"PATH": "/usr/bin:/bin", "OTEL_TRACES_EXPORTER": "none", **(env or {})},
    )


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


def test_joining_a_provider(settings: Settings) -> None:
    """The host's processors see our spans with allowed values; its own spans are not ours."""
    provider = TracerProvider()
    host, ours = CaptureExporter(), CaptureExporter()
    provider.add_span_processor(SimpleSpanProcessor(host))
    clew.configure(settings=settings, tracer_provider=provider, span_exporters=[ours])
    run_id = uuid.uuid4()
    with provider.get_tracer("host").start_as_current_span("request") as request:
        request.set_attribute("secret", "SECRET")
        with (
            clew.run("triage", run_id=run_id, trigger="has SECRET"),
            provider.get_tracer("host").start_as_current_span("inner") as inner,
        ):
            inner.set_attribute("secret", "SECRET")
            clew.decide("tool", "deny", reason="because of SECRET")
    clew.shutdown()
    mine = [span for span in host.spans if span.instrumentation_scope.name == "clew"]
    assert {span.context.trace_id for span in mine} == {run_id.int}
    assert "SECRET" not in "".join(span.to_json() for span in mine)
    assert {span.name for span in ours.spans} == {
        "run_started triage",
        "decide tool",
        "inner",
        "invoke_agent triage",
        "run_sealed triage",
    }
    assert b"SECRET" not in ours.otlp_bytes()
    names = [span.name for span in ours.spans]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("joined", [True, False], ids=["joined", "own"])
@pytest.mark.parametrize("count", [110, 300])
@pytest.mark.parametrize("wire", ["openai", "anthropic"])
@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
async def test_a_host_that_sets_hundreds_of_attributes_evicts_none_of_ours(
    joined: bool, count: int, wire: str, asynchronous: bool
) -> None:
    """The SDK keeps the newest 128: identity, usage, cost and decisions are always among them."""

    def crowd() -> None:
        for number in range(count):
            trace.get_current_span().set_attribute(f"host.{number}", number)

    kept = CaptureExporter()
    usage = Usage(input_tokens=11, output_tokens=7)
    with ScriptedProvider([Reply(text="ok", usage=usage)]) as provider:
        hosts = {"{}:{}".format(*provider.address): wire}
        settings = Settings(digest_key="k", seal_grace_s=0, provider_hosts=hosts)
        theirs = TracerProvider()
        theirs.add_span_processor(SimpleSpanProcessor(kept))
        if joined:
            clew.configure(settings=settings, tracer_provider=theirs)
        else:
            clew.configure(settings=settings, span_exporters=[kept])
        clew.instrument()
        current = runtime.get()
        assert current is not None
        assert current.prices.wait(20)
        model = {"openai": "gpt-5-mini", "anthropic": "claude-haiku-4-5"}[wire]
        path = {"openai": "/v1/chat/completions", "anthropic": "/v1/messages"}[wire]
        body = {"model": model, "max_tokens": 9, "messages": [{"role": "user", "content": "x"}]}
        with clew.run("triage", tenant="acme"):
            clew.decide("tool", "deny", reason="not_now")
            crowd()
            with clew.tool("find"):
                crowd()
            if asynchronous:
                async with httpx.AsyncClient() as client:
                    await client.post(provider.base_url + path, json=body)
            else:
                with httpx.Client() as client:
                    client.post(provider.base_url + path, json=body)
            crowd()
        clew.uninstrument()
        clew.shutdown()
    names = ("invoke_agent", "execute_tool", "decide", "chat")
    run, tool, decision, round_ = (dict(kept.by_name(name)[0].attributes or {}) for name in names)
    identity = {"clew.run.id", "clew.segment.id", "clew.segment", "clew.seq", "clew.agent.id"}
    for each in (run, tool, decision, round_):
        assert identity <= each.keys()
    assert (run["clew.tenant"], run["clew.run.denials"], run["clew.run.rounds"]) == ("acme", 1, 1)
    assert run["clew.run.usage.input_tokens"] == round_["gen_ai.usage.input_tokens"] == 11
    assert run["clew.run.cost.usd"] == round_["clew.cost.usd"] > 0
    assert (tool["gen_ai.tool.name"], tool["clew.tool.outcome"]) == ("find", "ok")
    assert decision["clew.decision.outcome"] == "deny"


def test_joining_without_exporters_exports_nothing_of_our_own(settings: Settings) -> None:
    """What leaves, leaves by the host's exporters alone, once; the seal included."""
    provider = TracerProvider()
    host = CaptureExporter()
    provider.add_span_processor(SimpleSpanProcessor(host))
    clew.configure(settings=settings, tracer_provider=provider)
    with clew.run("triage"):
        pass
    clew.shutdown()
    assert sorted(span.name for span in host.spans) == [
        "invoke_agent triage",
        "run_sealed triage",
        "run_started triage",
    ]


def test_a_provider_of_another_kind_is_refused() -> None:
    """A tracer provider that cannot take our ids is a clear error when it is given by hand."""
    with pytest.raises(ConfigurationError, match="NoOpTracerProvider"):
        clew.configure(tracer_provider=trace.NoOpTracerProvider())


def test_a_foreign_global_provider_is_left_alone() -> None:
    """Beside a provider that is not the SDK's, Clew uses a private one and says so."""
    done = run_python(
        """
        import clew, logging
        logging.basicConfig()
        from opentelemetry import trace
        from clew.testing import CaptureExporter
        foreign = trace.NoOpTracerProvider()
        trace.set_tracer_provider(foreign)
        exporter = CaptureExporter()
        clew.configure("x", span_exporters=[exporter])
        with clew.run("triage") as run:
            pass
        clew.shutdown()
        assert trace.get_tracer_provider() is foreign
        assert {s.context.trace_id for s in exporter.spans} == {run.run_id.int}
        print(len(exporter.spans))
        """
    )
    assert done.stdout == "3\n", done.stderr
    assert "NoOpTracerProvider" in done.stderr


def test_a_global_sdk_provider_is_joined() -> None:
    """A framework's provider stays the global one, and our trace id is still the run's."""
    done = run_python(
        """
        import clew
        from opentelemetry import trace
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import SimpleSpanProcessor
        from clew.testing import CaptureExporter
        theirs, host = TracerProvider(), CaptureExporter()
        theirs.add_span_processor(SimpleSpanProcessor(host))
        trace.set_tracer_provider(theirs)
        clew.configure("x")
        with clew.run("triage") as run:
            pass
        clew.shutdown()
        assert trace.get_tracer_provider() is theirs
        assert {s.context.trace_id for s in host.spans} == {run.run_id.int}
        print(len(host.spans))
        """
    )
    assert done.stdout == "3\n", done.stderr


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


def test_a_provider_around_the_sdks_is_joined() -> None:
    """A provider that only wraps the SDK's (as Logfire's does) is joined by what it wraps."""
    inner = TracerProvider()

    class Around(trace.TracerProvider):
        provider = inner

        def get_tracer(self, *args: Any, **kwargs: Any) -> Any:
            return inner.get_tracer(*args, **kwargs)

    around = Around()
    exporter = CaptureExporter()
    clew.configure("x", span_exporters=[exporter], tracer_provider=around)
    with clew.run("triage"), around.get_tracer("foreign").start_as_current_span("foreign"):
        pass
    clew.shutdown()
    assert {"foreign", "invoke_agent triage"} <= {span.name for span in exporter.spans}


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
    assert _ours() - before == {}
