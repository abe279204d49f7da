"""Other instrumentations beside Clew: calls that are recorded twice, content that they let out.

The variables are those that the libraries document themselves: the GenAI instrumentations of
OpenTelemetry, OpenLLMetry, OpenInference, LangSmith, Langfuse, Logfire, the OpenAI Agents SDK,
Azure's tracing, and the logs of the OpenAI and Anthropic clients.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from importlib import metadata
from typing import Any, Final, NamedTuple

from clew.doctor.findings import Finding, note, ok, warning

_PREFIXES: Final = (
    "opentelemetry-instrumentation-",
    "opentelemetry-instrumentation-genai-",
    "openinference-instrumentation-",
)
_MODELS: Final = (
    *("alephalpha", "anthropic", "bedrock", "beeai", "cohere", "crewai", "crew-ai", "dspy"),
    *("google-genai", "google-generativeai", "groq", "haystack", "instructor", "langchain"),
    *("litellm", "llama-index", "llamaindex", "mcp", "mistralai", "ollama", "openai"),
    *("openai-agents", "openai-v2", "pydantic-ai", "replicate", "smolagents", "together"),
    *("transformers", "vertexai", "watsonx", "writer", "botocore"),
)
_WHOLE: Final = (
    *("traceloop-sdk", "logfire", "langfuse", "langsmith", "openlit", "agentops", "ddtrace"),
    *("arize-phoenix", "arize-otel", "lunary", "weave", "mlflow", "braintrust", "opik"),
)
_TRUE: Final = ("1", "true", "yes", "on", "enabled", "all", "span", "event")


class Content(NamedTuple):
    """A variable of another library that decides on content."""

    variable: str
    library: str
    """Whose it is, in words."""
    lets_out: Callable[[str], bool]
    """Tells from its value (empty: not set) whether content goes out."""
    needs: tuple[str, ...] = ()
    """Beginnings of distributions without which the variable means nothing."""
    advice: str = ""


def _on(value: str) -> bool:
    return value.lower() in _TRUE


def _not_on(value: str) -> bool:
    return not _on(value)


def _debugs(value: str) -> bool:
    return value.lower() == "debug"


def _not_off(value: str) -> bool:
    return value.lower() not in ("0", "false", "no", "off")


def _captures(value: str) -> bool:
    return value.lower() in ("true", "1", "span_only", "event_only", "span_and_event")


CONTENT: Final = (
    Content(
        "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT",
        "OpenTelemetry's GenAI instrumentations",
        _captures,
        advice="Unset it, or set it to false",
    ),
    Content(
        "TRACELOOP_TRACE_CONTENT",
        "OpenLLMetry",
        _not_off,
        ("traceloop-sdk", "opentelemetry-semantic-conventions-ai"),
        advice="It lets content out unless it is `false`",
    ),
    Content(
        "OPENINFERENCE_HIDE_INPUTS",
        "OpenInference",
        _not_on,
        ("openinference-instrumentation",),
        advice="Inputs are recorded unless it is `true`",
    ),
    Content(
        "OPENINFERENCE_HIDE_OUTPUTS",
        "OpenInference",
        _not_on,
        ("openinference-instrumentation",),
        advice="Outputs are recorded unless it is `true`",
    ),
    Content("LANGSMITH_TRACING", "LangSmith", _on, advice="LANGSMITH_HIDE_INPUTS hides inputs"),
    Content("LANGCHAIN_TRACING_V2", "LangSmith", _on, advice="LANGSMITH_HIDE_INPUTS hides inputs"),
    Content(
        "LANGFUSE_SECRET_KEY",
        "Langfuse",
        bool,
        ("langfuse",),
        advice="LANGFUSE_TRACING_ENABLED=false stops it; a mask function hides content",
    ),
    Content(
        "LOGFIRE_TOKEN",
        "Logfire",
        bool,
        ("logfire",),
        advice="Its model integrations record messages; scrubbing does not cover prompts",
    ),
    Content(
        "AZURE_TRACING_GEN_AI_CONTENT_RECORDING_ENABLED",
        "Azure's AI tracing",
        _on,
        advice="Unset it, or set it to false",
    ),
    Content("HAYSTACK_CONTENT_TRACING_ENABLED", "Haystack", _on, advice="Set it to false"),
    Content("DD_LLMOBS_ENABLED", "Datadog's LLM Observability", _on, advice="It sends prompts"),
    Content(
        "OPENAI_AGENTS_DISABLE_TRACING",
        "The OpenAI Agents SDK (its own tracing, sent to OpenAI)",
        _not_on,
        ("openai-agents",),
        advice="Set it to 1, or RunConfig(trace_include_sensitive_data=False)",
    ),
    Content("OPENAI_LOG", "The OpenAI client's log", _debugs),
    Content("ANTHROPIC_LOG", "The Anthropic client's log", _debugs),
)


def installed() -> dict[str, str]:
    """Return the distributions that are installed, by normalised name, with their versions."""
    found: dict[str, str] = {}
    for each in metadata.distributions():
        name: str | None = each.metadata["Name"]
        if name:
            found[name.lower().replace("_", "-")] = each.version
    return found


def doubles(packages: Mapping[str, str]) -> Iterator[Finding]:
    """Look for other instrumentations of the same calls: installed, and at work in this process."""
    there = sorted(name for name in packages if is_instrumentation(name))
    active = sorted(_active())
    if active:
        yield warning(
            "instrumentations",
            f"Others instrument the same calls: {', '.join(active)}",
            "Clew folds their spans so that tokens and cost count once; switch one of them off to "
            "have each call once",
            active=active,
        )
    idle = [name for name in there if name not in active]
    if idle:
        yield note(
            "instrumentations",
            f"Installed beside Clew: {', '.join(idle)}",
            "`opentelemetry-instrument` switches on all that are installed "
            "(OTEL_PYTHON_DISABLED_INSTRUMENTATIONS names exceptions)",
            installed=idle,
        )
    if not there and not active:
        yield ok("instrumentations", "No other instrumentation of model calls is installed")


def is_instrumentation(name: str) -> bool:
    """Tell by the name of a distribution whether it instruments model calls."""
    if name in _WHOLE:
        return True
    for prefix in sorted(_PREFIXES, key=len, reverse=True):
        if name.startswith(prefix):
            return name.removeprefix(prefix) in _MODELS
    return False


def _active() -> Iterator[str]:
    """Give the distributions whose instrumentors are switched on in this process."""
    for entry in metadata.entry_points(group="opentelemetry_instrumentor"):
        distribution: Any = entry.dist
        name = distribution.name.lower().replace("_", "-") if distribution is not None else ""
        module = sys.modules.get(entry.module)
        kind = getattr(module, entry.attr, None) if module is not None else None
        one = getattr(kind, "_instance", None)
        at_work = getattr(one, "is_instrumented_by_opentelemetry", False)
        if at_work and is_instrumentation(name):
            yield name


def content(packages: Mapping[str, str], environ: Mapping[str, str]) -> Iterator[Finding]:
    """Look for content that other libraries let out, by their own switches."""
    quiet = True
    for each in CONTENT:
        if each.needs and not any(name.startswith(each.needs) for name in packages):
            continue
        if not each.lets_out(environ.get(each.variable, "").strip()):
            continue
        quiet = False
        said = "is set" if environ.get(each.variable) else "is not set"
        yield warning(
            "content",
            f"{each.variable} {said}: {each.library} may let content out, past Clew's allow-list "
            "where it has an exporter or log of its own",
            each.advice or "Unset it",
            variable=each.variable,
        )
    if quiet:
        yield ok("content", "No other library has its recording of content switched on")
