"""What two runs did differently: their spans side by side, and their totals."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import SequenceMatcher
from typing import Any, Final, Literal

from msgspec import Struct

from clew import semconv
from clew.store.records import RunRecord, RunSummary, SpanRecord

Change = Literal["same", "changed", "added", "removed"]

TOTALS: Final = (
    "status", "termination_reason", "segments", "rounds", "tool_calls", "decisions", "denials",
    "errors", "input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens",
    "reasoning_tokens", "cost_usd", "cost_status", "capture_level", "configuration",
)  # fmt: skip
"""What is compared of the runs as a whole."""

_COMPARED: Final = (
    *(semconv.RUN_STATUS, semconv.RUN_TERMINATION_REASON, semconv.RESPONSE_MODEL),
    *(semconv.RESPONSE_FINISH_REASONS, semconv.USAGE_INPUT, semconv.USAGE_OUTPUT),
    *(semconv.USAGE_CACHE_READ, semconv.USAGE_CACHE_WRITE, semconv.USAGE_REASONING),
    *(semconv.COST_USD, semconv.COST_STATUS, semconv.STREAM_OUTCOME, semconv.ATTEMPTS),
    *(semconv.PROVIDER_HOP, semconv.REQUEST_MESSAGES, semconv.REQUEST_TOOLS),
    *(semconv.TOOL_OUTCOME, semconv.TOOL_ARGUMENTS_BYTES, semconv.TOOL_RESULT_BYTES),
    *(semconv.DECISION_OUTCOME, semconv.DECISION_REASON, semconv.DECISION_POLICY_VERSION),
    *(semconv.DECISION_ENFORCED, semconv.DECISION_EXECUTED, semconv.DECISION_BY),
    *(semconv.ERROR_TYPE, semconv.PROMPT_DIGEST),
)
"""What is compared of two spans in the same place; never times, which always differ."""


class Fact(Struct, frozen=True):
    """One thing that differs."""

    name: str
    before: Any
    after: Any


class Pair(Struct, frozen=True, kw_only=True):
    """A span of one run, and its counterpart in the other."""

    change: Change
    before: SpanRecord | None = None
    after: SpanRecord | None = None
    facts: tuple[Fact, ...] = ()


class RunDiff(Struct, frozen=True, kw_only=True):
    """What two runs did differently."""

    before: RunSummary
    after: RunSummary
    totals: tuple[Fact, ...]
    pairs: tuple[Pair, ...]

    @property
    def identical(self) -> bool:
        """Tell whether the runs did the same."""
        return not self.totals and all(each.change == "same" for each in self.pairs)


def compare(before: RunRecord, after: RunRecord) -> RunDiff:
    """Compare two runs; spans are aligned by what they are, in their order.

    Marks (started, heartbeat, sealed) are left out: they say nothing of what a run did.
    """
    left = [each for each in before.spans if each.type != "event"]
    right = [each for each in after.spans if each.type != "event"]
    return RunDiff(
        before=before.summary,
        after=after.summary,
        totals=tuple(
            Fact(name, one, other)
            for name in TOTALS
            if (one := getattr(before.summary, name)) != (other := getattr(after.summary, name))
        ),
        pairs=tuple(_aligned(left, right)),
    )


def _aligned(left: Sequence[SpanRecord], right: Sequence[SpanRecord]) -> list[Pair]:
    keys = [_key(each) for each in left], [_key(each) for each in right]
    found = SequenceMatcher(None, *keys, autojunk=False)
    pairs: list[Pair] = []
    for tag, low, high, from_, to in found.get_opcodes():
        if tag == "equal":
            pairs += [_pair(a, b) for a, b in zip(left[low:high], right[from_:to], strict=True)]
            continue
        pairs += [Pair(change="removed", before=each) for each in left[low:high]]
        pairs += [Pair(change="added", after=each) for each in right[from_:to]]
    return pairs


def _key(span: SpanRecord) -> tuple[Any, ...]:
    found = span.attributes
    return (span.type, span.name, found.get(semconv.DECISION_SUBJECT))


def _pair(before: SpanRecord, after: SpanRecord) -> Pair:
    facts = [
        Fact(key, one, other)
        for key in _COMPARED
        if (one := before.attributes.get(key)) != (other := after.attributes.get(key))
    ]
    if (before.status == 2) != (after.status == 2):
        facts.append(Fact("failed", before.status == 2, after.status == 2))
    change: Change = "changed" if facts else "same"
    return Pair(change=change, before=before, after=after, facts=tuple(facts))
