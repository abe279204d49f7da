"""Durations and token counts: their buckets, quantiles of them, and a clock that is set."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable
from typing import Any

import pytest
from metric_kit import chat, chat_async

import clew
from clew.facts import Usage
from clew.pipeline import instruments
from clew.testing import Reply, ScriptedProvider


def test_buckets_are_the_conventions_and_reach_on() -> None:
    """Seconds start with the conventions' bounds, tokens have exactly theirs."""
    conventions = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28)
    assert instruments.SECONDS[:8] == conventions
    assert instruments.SECONDS[8:14] == (2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
    assert instruments.SECONDS[-1] > 40 * 60
    tokens = (1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304)
    assert (*tokens, 16777216, 67108864) == instruments.COUNTS


def test_each_histogram_has_its_buckets(
    measure: Callable[..., Any], provider: ScriptedProvider
) -> None:
    """Answers of 0.2 s, 8 s, 95 s and 20 min lie in buckets of their own; so do token counts."""
    measured = measure()
    seconds = (0.2, 8, 95, 20 * 60)
    for one in seconds:
        measured.metrics.tool_ended(None, "search", "ok", int(one * 1e9))
    for tokens in (30, 9_000, 180_000):
        provider.add(Reply(text="x", usage=Usage(input_tokens=tokens, output_tokens=1)))
        chat(provider)
    found = measured.points()
    ((_, tool),) = found["clew.tool.duration"]
    assert tool.explicit_bounds == instruments.SECONDS
    assert [count for count in tool.bucket_counts if count] == [1, 1, 1, 1]
    assert tool.sum == pytest.approx(sum(seconds))
    usage = {one["gen_ai.token.type"]: point for one, point in found["gen_ai.client.token.usage"]}
    assert usage["input"].explicit_bounds == instruments.COUNTS
    assert [count for count in usage["input"].bucket_counts if count] == [1, 1, 1]
    ((_, duration),) = found["gen_ai.client.operation.duration"]
    assert duration.explicit_bounds == instruments.SECONDS


def quantile(share: float, point: Any) -> float:
    """Return what Prometheus' `histogram_quantile` says of a histogram."""
    rank, below, lower = share * point.count, 0, 0.0
    for upper, count in zip((*point.explicit_bounds, math.inf), point.bucket_counts, strict=True):
        if count and below + count >= rank:
            return lower + (upper - lower) * (rank - below) / count if upper < math.inf else lower
        below, lower = below + count, upper
    raise AssertionError(share)


NAMES = {
    "current": ("gen_ai.client.operation.duration", "gen_ai.client.token.usage"),
    "v0.1.0": (
        "gen_ai.client.inference.duration",
        "gen_ai.client.inference.operation.input_tokens",
    ),
}


@pytest.mark.parametrize("profile", NAMES)
@pytest.mark.parametrize(
    ("seconds", "tokens"), [(0.2, 30), (8, 9_000), (95, 180_000), (20 * 60, 180_000)]
)
def test_quantiles_tell_each_case_apart(
    measure: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
    seconds: float,
    tokens: int,
    profile: str,
) -> None:
    """With one call in five twice as long and four times as large, p50 and p95 say so."""
    spent, calls, ticks = [0], itertools.count(), itertools.count()

    def answer(_: Any) -> Reply:
        slow = next(calls) % 5 == 4
        spent[0] += int(seconds * (2 if slow else 1) * 1e9)
        usage = Usage(input_tokens=tokens * (4 if slow else 1), output_tokens=1)
        return Reply(text="x", usage=usage)

    measured = measure(metric_profile=profile)
    monkeypatch.setattr(time, "perf_counter_ns", lambda: spent[0] + next(ticks))
    with ScriptedProvider(answer) as provider:
        for _ in range(10):
            with clew.tool("search"):
                chat(provider, stream=True, stream_options={"include_usage": True})
    found = measured.points()
    duration, usage = NAMES[profile]
    chunk = duration.replace(".duration", ".time_to_first_chunk")
    for name in (duration, chunk, "clew.tool.duration"):
        ((_, point),) = found[name]
        half, most = quantile(0.5, point), quantile(0.95, point)
        assert seconds / 2 <= half <= seconds * 2, name
        assert seconds <= most <= seconds * 4, name
        assert most > half * 1.5, name
    rows = found[usage]
    (point,) = (one for labels, one in rows if labels.get("gen_ai.token.type", "input") == "input")
    half, most = quantile(0.5, point), quantile(0.95, point)
    assert tokens / 4 <= half <= tokens * 4
    assert tokens <= most <= tokens * 16
    assert most > half * 2


@pytest.mark.parametrize("stream", [False, True], ids=["plain", "stream"])
@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize("hours", [-1, 1])
async def test_a_clock_that_is_set_makes_no_wrong_duration(
    measure: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
    hours: int,
    asynchronous: bool,
    stream: bool,
) -> None:
    """Durations come from the monotonic clock, however the wall clock is set during a call."""
    wall, wall_ns, step = time.time, time.time_ns, [0]

    def answer(_: Any) -> Reply:
        step[0] = hours * 3600
        return Reply(text="one two", delay=0.02, event_delay=0.01)

    measured = measure()
    monkeypatch.setattr(time, "time_ns", lambda: wall_ns() + step[0] * 10**9)
    monkeypatch.setattr(time, "time", lambda: wall() + step[0])
    with ScriptedProvider(answer) as provider, clew.run("triage"):
        with clew.tool("search"):
            if asynchronous:
                await chat_async(provider, stream=stream)
            else:
                chat(provider, stream=stream)
        with clew.decide("tool", "allow"):
            pass
    monkeypatch.undo()
    found = measured.points()
    names = ["clew.tool.duration", "gen_ai.client.operation.duration"]
    if stream:
        names.append("gen_ai.client.operation.time_to_first_chunk")
    for name in names:
        ((_, point),) = found[name]
        assert 0.02 <= point.sum < 10, name
    for span in measured.spans.spans:
        assert 0 <= (span.end_time or 0) - (span.start_time or 0) < 10e9, span.name
