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
        self._drop_below = round((1 - self.ratio) * (1 << _BITS))

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
        kept = randomness(trace_id) >= self._drop_below
        decision = Decision.RECORD_AND_SAMPLE if kept else Decision.DROP
        return SamplingResult(decision, attributes, trace_state)

    def get_description(self) -> str:
        """Return the sampler's name and ratio."""
        return f"RunRatioSampler{{{self.ratio}}}"


def kept_at(trace_id: int, ratio: float) -> bool:
    """Tell whether a run is among the share that is kept."""
    return randomness(trace_id) >= round((1 - ratio) * (1 << _BITS))


def randomness(trace_id: int) -> int:
    """Return 56 random bits of a trace id."""
    if (trace_id >> 76) & 0xF in _RANDOM_VERSIONS or not trace_id:
        return trace_id & ((1 << _BITS) - 1)
    digest = hashlib.sha256(trace_id.to_bytes(16, "big")).digest()
    return int.from_bytes(digest[:7], "big")


def ignores_attributes(sampler: Sampler) -> bool:
    """Tell whether a sampler is known not to look at a span's attributes."""
    if isinstance(sampler, ParentBased):
        return (
            ignores_attributes(getattr(sampler, "_root", sampler))
            if type(sampler) is ParentBased
            else False
        )
    return type(sampler) in (StaticSampler, RunRatioSampler)


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
