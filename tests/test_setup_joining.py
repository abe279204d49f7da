"""Configure beside a provider of somebody else: joined, refused, or left alone."""

from __future__ import annotations

import uuid
from typing import Any

import httpx
import pytest
from fresh import run_python
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

import clew
from clew.errors import ConfigurationError
from clew.facts import Usage
from clew.pipeline import runtime
from clew.settings import Settings
from clew.testing import CaptureExporter, Reply, ScriptedProvider


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
