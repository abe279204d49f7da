"""What is measured, set up in its own process: nothing, Clew, or another instrumentation.

Each function takes what a span exporter is made with, whether content is wanted, and the client
library; it returns how to open a run or a tool call, and how to wait for the exports.
"""

# ruff: noqa: ARG005
from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from floor import PATIENCE_MS, Discard, Subject, exporter, stock_provider
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor


def with_provider(provider: TracerProvider) -> Subject:
    """Return a subject whose runs and tool calls are plain spans of a provider."""
    tracer = provider.get_tracer("bench")

    def span(name: str) -> AbstractContextManager[object]:
        names = {
            "gen_ai.operation.name": name.split(maxsplit=1)[0],
            "gen_ai.agent.name": "support-bot",
        }
        return tracer.start_as_current_span(name, attributes=names)

    return Subject(
        lambda: provider.force_flush(PATIENCE_MS),
        lambda: span("invoke_agent support-bot"),
        lambda call_id: span("execute_tool find_order"),
    )


def nothing(endpoint: str | None, content: bool, library: str) -> Subject:
    return Subject(lambda: None, nullcontext, lambda call_id: nullcontext())


def _clew(endpoint: str | None, content: bool, library: str, **more: Any) -> Subject:
    import threading

    import clew

    if content:
        more.update(capture="full", content_to={"spans"})
    if endpoint is not None:
        os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"] = endpoint
    os.environ["OTEL_METRICS_EXPORTER"] = "none"
    clew.configure(
        settings=clew.Settings(service_name="bench", seal_grace_s=0.0, **more),
        span_exporters=[Discard()] if endpoint is None else None,
    )
    for thread in threading.enumerate():
        if thread.name == "clew-prices":
            thread.join(120)
    clew.instrument()
    from opentelemetry import trace

    provider: Any = trace.get_tracer_provider()
    return Subject(
        lambda: provider.force_flush(PATIENCE_MS),
        lambda: clew.run("support-bot"),
        lambda call_id: clew.tool("find_order", call_id=call_id),
    )


def clew_sampled_out(endpoint: str | None, content: bool, library: str) -> Subject:
    os.environ.update(OTEL_TRACES_SAMPLER="traceidratio", OTEL_TRACES_SAMPLER_ARG="0.0")
    return _clew(endpoint, content, library, keep=frozenset())


def clew_keep_rules(endpoint: str | None, content: bool, library: str) -> Subject:
    os.environ.update(OTEL_TRACES_SAMPLER="traceidratio", OTEL_TRACES_SAMPLER_ARG="0.0")
    return _clew(endpoint, content, library, keep=frozenset({"deny", "error"}))


_kept: list[object] = []


def clew_prompt(endpoint: str | None, content: bool, library: str) -> Subject:
    from shapes import SYSTEM

    from clew.prompts import Prompt

    half = len(SYSTEM) // 2
    first = Prompt.of([("identity_context", SYSTEM[:half])])
    _kept.append(Prompt.concat(first, Prompt.of([("working_memory", SYSTEM[half:])])))
    return _clew(endpoint, content, library)


def clew_idle(endpoint: str | None, content: bool, library: str) -> Subject:
    """Instrumented, and not configured."""
    import clew

    clew.instrument()
    return nothing(endpoint, content, library)._replace(
        run=lambda: clew.run("support-bot"),
        tool=lambda call_id: clew.tool("find_order", call_id=call_id),
    )


def _instrumentor(place: str, library: str, provider: TracerProvider) -> Subject:
    name = {"openai": "OpenAI", "anthropic": "Anthropic"}[library]
    module = importlib.import_module(f"{place}.{library}")
    getattr(module, f"{name}Instrumentor")().instrument(tracer_provider=provider)
    return with_provider(provider)


def opentelemetry(endpoint: str | None, content: bool, library: str) -> Subject:
    os.environ["OTEL_SEMCONV_STABILITY_OPT_IN"] = "gen_ai_latest_experimental"
    mode = "SPAN_ONLY" if content else "NO_CONTENT"
    os.environ["OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"] = mode
    return _instrumentor(
        "opentelemetry.instrumentation.genai", library, stock_provider(exporter(endpoint))
    )


def openllmetry(endpoint: str | None, content: bool, library: str) -> Subject:
    os.environ["TRACELOOP_TRACE_CONTENT"] = "true" if content else "false"
    return _instrumentor(
        "opentelemetry.instrumentation", library, stock_provider(exporter(endpoint))
    )


def openinference(endpoint: str | None, content: bool, library: str) -> Subject:
    hide = "false" if content else "true"
    os.environ.update(OPENINFERENCE_HIDE_INPUTS=hide, OPENINFERENCE_HIDE_OUTPUTS=hide)
    return _instrumentor(
        "openinference.instrumentation", library, stock_provider(exporter(endpoint))
    )


def logfire(endpoint: str | None, content: bool, library: str) -> Subject:
    """Content cannot be left out."""
    import logfire

    processor = BatchSpanProcessor(exporter(endpoint), max_queue_size=20_000)
    logfire.configure(
        send_to_logfire=False,
        console=False,
        metrics=False,
        additional_span_processors=[processor],
        inspect_arguments=False,
    )

    getattr(logfire, f"instrument_{library}")()
    return Subject(
        lambda: logfire.force_flush(PATIENCE_MS),
        lambda: logfire.span("invoke_agent support-bot"),
        lambda call_id: logfire.span("execute_tool find_order"),
    )


def langfuse(endpoint: str | None, content: bool, library: str) -> Subject:
    """Content can be masked, which looks at it first.

    Anthropic's client is instrumented as Langfuse's documentation says: by OpenLLMetry's package,
    whose spans Langfuse's own provider takes.
    https://langfuse.com/integrations/model-providers/anthropic
    """
    from langfuse import Langfuse

    found = Langfuse(
        public_key="pk-lf-none",
        secret_key="sk-lf-none",
        base_url=endpoint or "http://127.0.0.1:9",
        mask=None if content else lambda data, **more: None,
        span_exporter=exporter(endpoint),
    )
    if library == "openai":
        importlib.import_module("langfuse.openai")  # patches the client's classes
    else:
        os.environ["TRACELOOP_TRACE_CONTENT"] = "true" if content else "false"
        module = importlib.import_module("opentelemetry.instrumentation.anthropic")
        module.AnthropicInstrumentor().instrument()
    return Subject(
        found.flush,
        lambda: found.start_as_current_observation(name="support-bot", as_type="agent"),
        lambda call_id: found.start_as_current_observation(name="find_order", as_type="tool"),
    )


def openlit(endpoint: str | None, content: bool, library: str) -> Subject:
    import openlit

    provider = stock_provider(exporter(endpoint))
    from opentelemetry import trace

    trace.set_tracer_provider(provider)
    openlit.init(
        capture_message_content=content,
        disable_metrics=True,
        disable_events=True,
    )
    return with_provider(provider)


def mlflow(endpoint: str | None, content: bool, library: str) -> Subject:
    """Content cannot be left out; without OTLP its own exporter runs, discarding at the end."""
    os.environ["MLFLOW_ENABLE_ASYNC_TRACE_LOGGING"] = "true"
    os.environ["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"] = (
        f"{endpoint or 'http://127.0.0.1:9'}/v1/traces"
    )
    os.environ["OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"] = "http/protobuf"
    import mlflow

    if endpoint is None:
        stock = importlib.import_module("mlflow.tracing.utils.otlp")
        stock.get_otlp_exporter = Discard  # the provider's module takes it from here
        importlib.import_module("mlflow.tracing.provider").get_otlp_exporter = Discard
    importlib.import_module(f"mlflow.{library}").autolog()

    holder: Any = importlib.import_module("mlflow.tracing.provider").provider
    holder.get_or_init_tracer("bench")

    return Subject(
        lambda: holder.get().force_flush(PATIENCE_MS),
        lambda: mlflow.start_span("support-bot"),
        lambda call_id: mlflow.start_span("find_order"),
    )


SUBJECTS: dict[str, Callable[[str | None, bool, str], Subject]] = {
    "nothing": nothing,
    "Clew": _clew,
    "Clew, sampled out": clew_sampled_out,
    "Clew, sampled out, keep rules": clew_keep_rules,
    "Clew, prompt registered": clew_prompt,
    "Clew, not configured": clew_idle,
    "OpenTelemetry": opentelemetry,
    "OpenLLMetry": openllmetry,
    "OpenInference": openinference,
    "Logfire": logfire,
    "Langfuse": langfuse,
    "OpenLIT": openlit,
    "MLflow": mlflow,
}
