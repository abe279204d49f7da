"""Under which of the conventions' names a model call is measured, by the profile that is set.

`current` has one set of metrics for all operations. In `v0.1.0` of the GenAI conventions inference
and embeddings have their own, tokens are counted by modality, and only what is neither keeps
`gen_ai.client.operation.duration`.
https://github.com/open-telemetry/semantic-conventions-genai/blob/main/docs/gen-ai/gen-ai-token-metrics.md

The conventions count 0 tokens where no usage was received. Here nothing is counted then: zero
means zero, and `clew.usage.absent` counts such calls.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from msgspec import Struct

from clew.facts import ROUND_OPERATIONS, Usage
from clew.pipeline import instruments as i

_PARTS: Final = (
    ("input_tokens", "input_tokens", "input_audio_tokens", "input_image_tokens"),
    ("output_tokens", "output_tokens", "output_audio_tokens", "output_image_tokens"),
    ("cache_read_tokens", "cache_read.input_tokens", "cache_read_audio_tokens", None),
    ("cache_write_tokens", "cache_write.input_tokens", None, None),
    ("reasoning_tokens", "reasoning.output_tokens", None, None),
)
"""Fields of a usage: the count, the metric's last words, and which part is audio, which images."""


class CallNames(Struct, frozen=True, kw_only=True):
    """The metrics of one kind of model call."""

    duration: str
    first_chunk: str | None = None
    tokens: str | None = None
    """The one histogram of tokens, by kind."""
    input: str | None = None
    """A histogram of input tokens alone."""
    output: str | None = None
    by_modality: bool = False
    """Whether tokens are counters by modality."""

    def distributions(self, usage: Usage) -> Iterator[tuple[str, int]]:
        """Return what the histograms of input and of output tokens take."""
        if self.input is not None and usage.input_tokens is not None:
            yield self.input, usage.input_tokens
        if self.output is not None and usage.output_tokens is not None:
            yield self.output, usage.output_tokens

    def counts(self, usage: Usage) -> Iterator[tuple[str, str, int]]:
        """Return metric, modality and count of each part of a usage."""
        if not self.by_modality:
            return
        for field, words, *kinds in _PARTS:
            total: int | None = getattr(usage, field)
            if total is None:
                continue
            name = i.INFERENCE_USAGE + words
            told = [None if kind is None else getattr(usage, kind) for kind in kinds]
            rest = total
            for modality, part in zip(("audio", "image"), told, strict=True):
                if part:
                    yield name, modality, part
                    rest -= part
            # Who breaks usage down says by it that the rest is text.
            broken_down = any(part is not None for part in told)
            if rest > 0 or not broken_down:
                yield name, "text" if broken_down else "unknown", max(0, rest)


_CURRENT: Final = CallNames(duration=i.DURATION, first_chunk=i.FIRST_CHUNK, tokens=i.TOKEN_USAGE)
_INFERENCE: Final = CallNames(
    duration=i.INFERENCE_DURATION,
    first_chunk=i.INFERENCE_FIRST_CHUNK,
    input=i.INFERENCE_INPUT,
    output=i.INFERENCE_OUTPUT,
    by_modality=True,
)
_EMBEDDINGS: Final = CallNames(duration=i.EMBEDDINGS_DURATION, input=i.EMBEDDINGS_INPUT)
_OTHERS: Final = CallNames(duration=i.DURATION)


class Names:
    """The metrics of model calls under one profile."""

    __slots__ = ("_new",)

    def __init__(self, profile: str) -> None:
        self._new = profile == "v0.1.0"

    def of(self, operation: str) -> CallNames:
        """Return the metrics of an operation."""
        if not self._new:
            return _CURRENT
        if operation in ROUND_OPERATIONS:
            return _INFERENCE
        return _EMBEDDINGS if operation == "embeddings" else _OTHERS
