"""Sampling decided once per run, from the bits of its uuid that are random.

A uuid has fixed bits where the SDK's ratio sampler looks, so that sampler keeps all runs or none.
This one looks at the rightmost 56 bits, like the consistent probability samplers of
https://opentelemetry.io/docs/specs/otel/trace/tracestate-probability-sampling/; for uuids whose
bits are not random (neither version 4 nor 7) at a hash of the id.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from opentelemetry.context import Context
from opentelemetry.sdk.trace.sampling import (
    Decision,
    ParentBased,
    Sampler,
    SamplingResult,
    StaticSampler,
    TraceIdRatioBased,
)
from opentelemetry.trace import Link, SpanKind, TraceState

_BITS = 56
_RANDOM_VERSIONS = (4, 7)


class RunRatioSampler(Sampler):
    """Keeps a share of all runs, each whole.

    Args:
        ratio: the share that is kept, from 0 to 1.
    """

    def __init__(self, ratio: float) -> None:
        self.ratio = min(1.0, max(0.0, ratio))
        self._drop_below = _threshold(self.ratio)

    def should_sample(
        self,
        parent_context: Context | None,
        trace_id: int,
        name: str,
        kind: SpanKind | None = None,
        attributes: Mapping[str, Any] | None = None,
        links: Sequence[Link] | None = None,
        trace_state: TraceState | None = None,
    ) -> SamplingResult:
        """Decide by the trace id alone."""
        random = randomness(trace_id)
        decision = Decision.RECORD_AND_SAMPLE if random >= self._drop_below else Decision.DROP
        if not _is_random(trace_id):
            # Whoever samples again further on has to look at the same bits.
            trace_state = (trace_state or TraceState()).add("ot", f"rv:{random:014x}")
        return SamplingResult(decision, attributes, trace_state)

    def get_description(self) -> str:
        """Return the sampler's name and ratio."""
        return f"RunRatioSampler{{{self.ratio}}}"


def _threshold(ratio: float) -> int:
    return round((1 - ratio) * (1 << _BITS))


def _is_random(trace_id: int) -> bool:
    return (trace_id >> 76) & 0xF in _RANDOM_VERSIONS or not trace_id


def kept_at(trace_id: int, ratio: float) -> bool:
    """Tell whether a run is among the share that is kept."""
    return randomness(trace_id) >= _threshold(ratio)


def randomness(trace_id: int) -> int:
    """Return 56 random bits of a trace id."""
    if _is_random(trace_id):
        return trace_id & ((1 << _BITS) - 1)
    digest = hashlib.sha256(trace_id.to_bytes(16, "big")).digest()
    return int.from_bytes(digest[:7], "big")


def ignores_attributes(sampler: Sampler) -> bool:
    """Tell whether a sampler is known not to look at a span's attributes."""
    if isinstance(sampler, ParentBased):
        return type(sampler) is ParentBased and ignores_attributes(_root(sampler))
    return type(sampler) in (StaticSampler, RunRatioSampler)


def drops_some(sampler: Sampler) -> bool:
    """Tell whether a sampler may drop a run."""
    root = _root(sampler)
    if isinstance(root, RunRatioSampler):
        return root.ratio < 1
    decision = getattr(root, "_decision", None) if isinstance(root, StaticSampler) else None
    return decision is None or not decision.is_sampled()


def harms_runs(sampler: Sampler) -> bool:
    """Tell whether a sampler looks where a uuid has its fixed bits: the SDK's ratio sampler."""
    root = _root(sampler)
    return isinstance(root, TraceIdRatioBased) and root.rate < 1


def _root(sampler: Sampler) -> Any:
    """Return what decides over spans without a parent: every run's."""
    return getattr(sampler, "_root", sampler) if isinstance(sampler, ParentBased) else sampler


def from_environment(environ: Mapping[str, str]) -> Sampler | None:
    """Return the sampler for a ratio that OTEL_TRACES_SAMPLER asks for; None: the SDK's own."""
    name = environ.get("OTEL_TRACES_SAMPLER", "").strip().lower()
    if name not in ("traceidratio", "parentbased_traceidratio"):
        return None
    try:
        ratio = float(environ.get("OTEL_TRACES_SAMPLER_ARG", "1") or "1")
    except ValueError:
        ratio = 1.0
    sampler = RunRatioSampler(ratio)
    return ParentBased(sampler) if name.startswith("parentbased") else sampler
