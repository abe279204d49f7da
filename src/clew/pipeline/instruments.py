"""The metrics of Clew: one table of instruments, each with its unit, buckets and label keys.

`gen_ai.*` follows the GenAI conventions
(https://opentelemetry.io/docs/specs/semconv/gen-ai/gen-ai-metrics/); the rest is Clew's own. A
label that an instrument's row does not list is never written, and every label has a closed or
bounded set of values (see `clew.pipeline.labels`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

from msgspec import Struct

from clew import semconv

DURATION: Final = "gen_ai.client.operation.duration"
FIRST_CHUNK: Final = "gen_ai.client.operation.time_to_first_chunk"
TOKEN_USAGE: Final = "gen_ai.client.token.usage"  # noqa: S105 - no secret
INFERENCE_DURATION: Final = "gen_ai.client.inference.duration"
INFERENCE_FIRST_CHUNK: Final = "gen_ai.client.inference.time_to_first_chunk"
INFERENCE_INPUT: Final = "gen_ai.client.inference.operation.input_tokens"
INFERENCE_OUTPUT: Final = "gen_ai.client.inference.operation.output_tokens"
INFERENCE_USAGE: Final = "gen_ai.client.inference.usage."
EMBEDDINGS_DURATION: Final = "gen_ai.client.embeddings.duration"
EMBEDDINGS_INPUT: Final = "gen_ai.client.embeddings.operation.input_tokens"
RUNS_STARTED: Final = "clew.runs.started"
RUNS_ENDED: Final = "clew.runs.ended"
RUNS_ACTIVE: Final = "clew.runs.active"
ROUNDS: Final = "clew.rounds"
ATTEMPTS: Final = "clew.attempts"
FALLBACKS: Final = "clew.fallbacks"
TOKENS: Final = "clew.tokens"
COST: Final = "clew.cost"
COST_UNPRICED: Final = "clew.cost.unpriced"
USAGE_ABSENT: Final = "clew.usage.absent"
DECISIONS: Final = "clew.decisions"
TOOL_DURATION: Final = "clew.tool.duration"
BUDGET_LIMIT: Final = "clew.budget.limit"
BUDGET_USED: Final = "clew.budget.used"
PIPELINE_QUEUED: Final = "clew.pipeline.queued"
PIPELINE_DROPPED: Final = "clew.pipeline.dropped"
PIPELINE_FAILED: Final = "clew.pipeline.failed"
PRIVACY_DROPPED: Final = "clew.privacy.dropped"

SECONDS: Final = tuple(0.01 * 2**power for power in range(19))
"""Bounds in seconds: the conventions' fourteen (0.01 to 81.92), doubled on to 2621.44, so that
an answer of two minutes and one of twenty are told apart."""
COUNTS: Final = tuple(4**power for power in range(14))
"""Bounds in tokens, as in the conventions: 1 to 67108864."""

Kind = Literal[
    "counter", "up_down_counter", "histogram", "gauge", "observable_counter", "observable_gauge"
]

_MODEL: Final = (
    semconv.OPERATION,
    semconv.PROVIDER,
    semconv.REQUEST_MODEL,
    semconv.RESPONSE_MODEL,
)
_AGENT: Final = (semconv.AGENT_NAME, semconv.TENANT)
_CALL: Final = (*_AGENT, *_MODEL)
_SIGNAL: Final = (semconv.PIPELINE_SIGNAL,)
_BUDGET: Final = (semconv.BUDGET_NAME, semconv.BUDGET_UNIT)


class Instrument(Struct, frozen=True, kw_only=True):
    """One metric."""

    name: str
    kind: Kind
    unit: str
    description: str
    labels: tuple[str, ...]
    buckets: tuple[float, ...] = ()


def _counter(name: str, unit: str, description: str, *labels: str) -> Instrument:
    return Instrument(name=name, kind="counter", unit=unit, description=description, labels=labels)


def _histogram(
    name: str, unit: str, description: str, buckets: tuple[float, ...], *labels: str
) -> Instrument:
    return Instrument(
        name=name,
        kind="histogram",
        unit=unit,
        description=description,
        labels=labels,
        buckets=buckets,
    )


def _other(kind: Kind, name: str, unit: str, description: str, *labels: str) -> Instrument:
    return Instrument(name=name, kind=kind, unit=unit, description=description, labels=labels)


_ALL: Final = (
    _histogram(DURATION, "s", "Duration of a model call", SECONDS, *_MODEL, semconv.ERROR_TYPE),
    _histogram(FIRST_CHUNK, "s", "Time until a stream's first chunk", SECONDS, *_MODEL),
    _histogram(
        TOKEN_USAGE, "{token}", "Tokens of a model call", COUNTS, *_MODEL, semconv.TOKEN_TYPE
    ),
    _counter(RUNS_STARTED, "{run}", "Runs started; resuming one is no start", *_AGENT),
    _counter(
        RUNS_ENDED,
        "{run}",
        "Runs ended; one that waits has not",
        *_AGENT,
        semconv.RUN_STATUS,
        semconv.RUN_TERMINATION_REASON,
    ),
    _other("up_down_counter", RUNS_ACTIVE, "{run}", "Runs executing in this process", *_AGENT),
    _counter(
        ROUNDS,
        "{round}",
        "Logical model calls",
        *_CALL,
        semconv.STREAM_OUTCOME,
        semconv.ERROR_TYPE,
    ),
    _counter(ATTEMPTS, "{attempt}", "HTTP requests", *_CALL, semconv.ATTEMPT_OUTCOME),
    _counter(FALLBACKS, "{fallback}", "Moves to the next provider", *_AGENT, semconv.PROVIDER),
    _counter(
        TOKENS,
        "{token}",
        "Tokens; input includes cache reads and writes, output includes reasoning",
        *_CALL,
        semconv.METRIC_TOKEN_TYPE,
    ),
    _counter(COST, "USD", "Known cost in US dollars", *_CALL, semconv.COST_STATUS),
    _counter(COST_UNPRICED, "{call}", "Calls with usage and without a rate", *_CALL),
    _counter(USAGE_ABSENT, "{call}", "Calls that reported no usage", *_CALL, semconv.ERROR_TYPE),
    _counter(
        DECISIONS,
        "{decision}",
        "Governance decisions",
        *_AGENT,
        semconv.DECISION_GATE,
        semconv.DECISION_OUTCOME,
        semconv.DECISION_ENFORCED,
        semconv.DECISION_REASON,
    ),
    _histogram(
        TOOL_DURATION,
        "s",
        "Duration of a tool call",
        SECONDS,
        *_AGENT,
        semconv.TOOL_NAME,
        semconv.TOOL_OUTCOME,
    ),
    _other("gauge", BUDGET_LIMIT, "{unit}", "Limit of a budget, in the budget's unit", *_BUDGET),
    _other("gauge", BUDGET_USED, "{unit}", "What a budget has used, in its unit", *_BUDGET),
    _other("observable_gauge", PIPELINE_QUEUED, "{item}", "Waiting for the export", *_SIGNAL),
    _other("observable_counter", PIPELINE_DROPPED, "{item}", "Lost to a full queue", *_SIGNAL),
    _other("observable_counter", PIPELINE_FAILED, "{item}", "Export was not confirmed", *_SIGNAL),
    _other(
        "observable_counter",
        PRIVACY_DROPPED,
        "{value}",
        "Values that the allow-list kept out of spans",
        semconv.PRIVACY_RULE,
    ),
)
INSTRUMENTS: Final[Mapping[str, Instrument]] = {one.name: one for one in _ALL}
"""Every instrument of the profile `current`, by name."""

USAGE_PARTS: Final = {
    "input_tokens": "Input tokens, cache reads and writes included",
    "output_tokens": "Output tokens, reasoning included",
    "cache_read.input_tokens": "Input tokens read from a cache",
    "cache_write.input_tokens": "Input tokens written to a cache",
    "reasoning.output_tokens": "Output tokens spent on reasoning",
}
"""What the counters below `INFERENCE_USAGE` count."""
_NEW: Final = (
    _histogram(
        INFERENCE_DURATION, "s", "Duration of a generation", SECONDS, *_MODEL, semconv.ERROR_TYPE
    ),
    _histogram(INFERENCE_FIRST_CHUNK, "s", "Time until a stream's first chunk", SECONDS, *_MODEL),
    _histogram(INFERENCE_INPUT, "{token}", "Input tokens of a generation", COUNTS, *_MODEL),
    _histogram(INFERENCE_OUTPUT, "{token}", "Output tokens of a generation", COUNTS, *_MODEL),
    *(
        _counter(INFERENCE_USAGE + part, "{token}", said, *_MODEL, semconv.TOKEN_MODALITY)
        for part, said in USAGE_PARTS.items()
    ),
    _histogram(
        EMBEDDINGS_DURATION, "s", "Duration of an embeddings call", SECONDS, *_MODEL,
        semconv.ERROR_TYPE,
    ),
    _histogram(EMBEDDINGS_INPUT, "{token}", "Input tokens of an embeddings call", COUNTS, *_MODEL),
)  # fmt: skip
_GONE: Final = (FIRST_CHUNK, TOKEN_USAGE)
"""Names that release 0.1.0 of the GenAI conventions no longer has."""
EVERY: Final[Mapping[str, Instrument]] = {**INSTRUMENTS, **{one.name: one for one in _NEW}}
"""The instruments of all profiles, by name."""


def of_profile(profile: str) -> tuple[Instrument, ...]:
    """Return the instruments of a profile: `current`, or `v0.1.0` of the GenAI conventions.

    https://github.com/open-telemetry/semantic-conventions-genai: inference and embeddings have
    metrics of their own there, and tokens are counters by modality. Clew's own are in both.
    """
    if profile != "v0.1.0":
        return _ALL
    return (*(one for one in _ALL if one.name not in _GONE), *_NEW)


def create(meter: Any, callbacks: Mapping[str, Any], profile: str = "current") -> dict[str, Any]:
    """Create the instruments on a meter.

    Histograms take their buckets as an advice, so that a view or the exporter's preferred
    aggregation (exponential histograms, say) still wins.

    Args:
        meter: an OpenTelemetry `Meter`.
        callbacks: what to ask for the value of each observable instrument, by name.
        profile: which names the metrics of the GenAI conventions have.
    """
    return {one.name: _create(meter, one, callbacks.get(one.name)) for one in of_profile(profile)}


def _create(meter: Any, one: Instrument, callback: Any) -> Any:
    if one.kind == "histogram":
        return meter.create_histogram(
            one.name,
            unit=one.unit,
            description=one.description,
            explicit_bucket_boundaries_advisory=list(one.buckets),
        )
    make = getattr(meter, f"create_{one.kind}")
    if callback is not None:
        return make(one.name, callbacks=[callback], unit=one.unit, description=one.description)
    return make(one.name, unit=one.unit, description=one.description)
