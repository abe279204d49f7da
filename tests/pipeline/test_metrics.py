"""Metrics: exact values over real runs, closed labels, and never a word of content."""

from __future__ import annotations

import asyncio
import gc
import itertools
import json
import math
import threading
import time
from collections.abc import Callable
from typing import Any

import anthropic
import httpx
import openai
import pytest
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
from opentelemetry.sdk.metrics.export import HistogramDataPoint
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF

import clew
from clew import _guard
from clew.facts import Usage
from clew.pipeline import instruments
from clew.pipeline import metrics as metrics_module
from clew.testing import Reply, ScriptedProvider, ScriptedToolCall

MARK = "zqmark"
Labels = dict[str, Any]
MESSAGES: list[Any] = [{"role": "user", "content": f"{MARK} prompt"}]
OPENAI_RATES = {"input": 0.25 / 1e6, "cache_read": 0.025 / 1e6, "output": 2 / 1e6}
"""What gpt-5-mini costs for one token."""


def host(provider: ScriptedProvider) -> str:
    return provider.base_url.removeprefix("http://")


def chat(provider: ScriptedProvider, **options: Any) -> Any:
    """Make one call with the real client, and read it to its end."""
    with openai.OpenAI(base_url=provider.openai_base_url, api_key="any") as client:
        answer = client.chat.completions.create(model="gpt-5-mini", messages=MESSAGES, **options)
        return list(answer) if options.get("stream") else answer


async def chat_async(provider: ScriptedProvider, **options: Any) -> None:
    async with openai.AsyncOpenAI(base_url=provider.openai_base_url, api_key="any") as client:
        answer = await client.chat.completions.create(
            model="gpt-5-mini", messages=MESSAGES, **options
        )
        if options.get("stream"):
            async for _ in answer:
                pass


# --- values --------------------------------------------------------------------------------------

AGENT = {"gen_ai.agent.name": "triage"}
MODEL = {
    "gen_ai.operation.name": "chat",
    "gen_ai.provider.name": "openai",
    "gen_ai.request.model": "gpt-5-mini",
    "gen_ai.response.model": "gpt-5-mini",
}
CALL = {**AGENT, **MODEL}
ABANDONED = {"clew.stream.outcome": "abandoned"}


@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
def test_a_run_has_exact_values(
    measure: Callable[..., Any], provider: ScriptedProvider, asynchronous: bool
) -> None:
    """Every metric of a run: its rounds, attempts, tokens, cost, tool calls and decisions."""
    measured = measure(provider_hosts={host(provider): "openai"})
    usage = Usage(input_tokens=1000, output_tokens=200, cache_read_tokens=400, reasoning_tokens=50)
    provider.add(
        Reply(text=f"{MARK} answer", usage=usage),
        Reply.failure(429, retry_after_ms=5),
        Reply(text="two"),
    )
    streamed = {"stream": True, "stream_options": {"include_usage": True}}

    @clew.tool("metrics.search")
    def search() -> None:
        """Find nothing."""

    def work() -> None:
        with clew.run("triage"):
            chat(provider)
            chat(provider, **streamed)
            search()
            clew.decide("budget", "deny", reason="over_limit")
            clew.decide("budget", "allow", enforced=False)

    async def work_async() -> None:
        async with clew.run("triage"):
            await chat_async(provider)
            await chat_async(provider, **streamed)
            search()
            clew.decide("budget", "deny", reason="over_limit")
            clew.decide("budget", "allow", enforced=False)

    if asynchronous:
        asyncio.run(work_async())
    else:
        work()
    found = measured.points()
    values = {
        name: {json.dumps(one, sort_keys=True): value for one, value in row}
        for name, row in found.items()
        if not isinstance(row[0][1], HistogramDataPoint)
    }

    def series(base: Labels, **more: Any) -> str:
        extra = {key.replace("__", "."): value for key, value in more.items()}
        return json.dumps({**base, **extra}, sort_keys=True)

    cost = values.pop("clew.cost")
    assert cost == {
        series(CALL, clew__cost__status="priced"): pytest.approx(
            600 * OPENAI_RATES["input"]
            + 400 * OPENAI_RATES["cache_read"]
            + 200 * OPENAI_RATES["output"]
            + 12 * OPENAI_RATES["input"]
            + 7 * OPENAI_RATES["output"]
        )
    }
    assert values == {
        "clew.runs.started": {series(AGENT): 1},
        "clew.runs.active": {series(AGENT): 0},
        "clew.runs.ended": {
            series(
                AGENT, clew__run__status="completed", clew__run__termination_reason="completed"
            ): 1
        },
        "clew.rounds": {series(CALL): 1, series(CALL, clew__stream__outcome="complete"): 1},
        "clew.attempts": {
            series(CALL, clew__attempt__outcome="ok"): 2,
            series(CALL, clew__attempt__outcome="failed"): 1,
        },
        "clew.tokens": {
            series(CALL, clew__token__type="input"): 1012,
            series(CALL, clew__token__type="output"): 207,
            series(CALL, clew__token__type="cache_read"): 400,
            series(CALL, clew__token__type="reasoning"): 50,
        },
        "clew.decisions": {
            series(
                AGENT,
                clew__decision__gate="budget",
                clew__decision__outcome="deny",
                clew__decision__enforced=True,
            ): 1,
            series(
                AGENT,
                clew__decision__gate="budget",
                clew__decision__outcome="allow",
                clew__decision__enforced=False,
            ): 1,
        },
        "clew.pipeline.queued": {
            series({}, clew__pipeline__signal="spans"): 0,
            series({}, clew__pipeline__signal="metrics"): 0,
        },
        "clew.pipeline.dropped": {
            series({}, clew__pipeline__signal="spans"): 0,
            series({}, clew__pipeline__signal="metrics"): 0,
        },
        "clew.pipeline.failed": {series({}, clew__pipeline__signal="spans"): 0},
    }
    histograms = {
        name: [(one, point.count) for one, point in row]
        for name, row in found.items()
        if isinstance(row[0][1], HistogramDataPoint)
    }
    assert histograms == {
        "gen_ai.client.operation.duration": [(MODEL, 2)],
        "gen_ai.client.operation.time_to_first_chunk": [(MODEL, 1)],
        "gen_ai.client.token.usage": [
            ({**MODEL, "gen_ai.token.type": "input"}, 2),
            ({**MODEL, "gen_ai.token.type": "output"}, 2),
        ],
        "clew.tool.duration": [
            ({**AGENT, "gen_ai.tool.name": "metrics.search", "clew.tool.outcome": "ok"}, 1)
        ],
    }
    sums = [point.sum for _, point in found["gen_ai.client.token.usage"]]
    assert sums == [1012, 207]


def test_metrics_equal_the_totals_of_the_run(
    measure: Callable[..., Any], provider: ScriptedProvider
) -> None:
    """Anthropic's cache counts are inside the input; counts and cost equal the run span's."""
    measured = measure(provider_hosts={host(provider): "anthropic"})
    usage = Usage(input_tokens=900, output_tokens=30, cache_read_tokens=500, cache_write_tokens=100)
    provider.add(Reply(text="one", usage=usage), Reply(text="two", usage=usage))
    with (
        anthropic.Anthropic(base_url=provider.base_url, api_key="any") as client,
        clew.run("triage"),
    ):
        options: Any = {"model": "claude-haiku-4-5", "max_tokens": 64, "messages": MESSAGES}
        client.messages.create(**options)
        with client.messages.stream(**options) as stream:
            stream.until_done()
    measured.flush()
    (root,) = measured.spans.by_name("invoke_agent")
    totals = dict(root.attributes or {})
    for kind in ("input", "output", "cache_read", "cache_write"):
        counted = measured.total("clew.tokens", clew__token__type=kind)
        assert counted == totals[f"clew.run.usage.{kind}_tokens"] > 0
    assert measured.total("clew.rounds") == totals["clew.run.rounds"] == 2
    assert measured.total("clew.cost") == pytest.approx(totals["clew.run.cost.usd"])


def test_runs_that_are_not_sampled_are_counted(
    measure: Callable[..., Any], provider: ScriptedProvider
) -> None:
    """A provider that samples nothing exports no span and all metrics."""
    measured = measure(
        provider_hosts={host(provider): "openai"},
        tracer_provider=TracerProvider(sampler=ALWAYS_OFF),
    )
    provider.add(Reply(text="one"))
    with clew.run("triage"), clew.tool("search"):
        clew.decide("tool", "allow")
        chat(provider)
    assert measured.total("clew.runs.ended") == 1
    assert measured.total("clew.rounds") == 1
    assert measured.total("clew.tokens", clew__token__type="input") == 12
    assert measured.total("clew.cost") > 0
    assert measured.total("clew.decisions") == 1
    assert measured.total("clew.tool.duration") == 1
    assert measured.spans.spans == ()


ENDINGS = [
    (None, None, "completed", "completed"),
    (ValueError(f"{MARK} text"), None, "failed", "error"),
    (asyncio.CancelledError(), None, "cancelled", "cancelled"),
    (None, "max_rounds", "completed", "max_rounds"),
    (None, "policy_denied", "failed", "policy_denied"),
]


@pytest.mark.parametrize(("error", "told", "status", "reason"), ENDINGS)
def test_an_ended_run_says_how(
    measure: Callable[..., Any],
    error: BaseException | None,
    told: str | None,
    status: str,
    reason: str,
) -> None:
    """Status and termination reason are the run span's."""
    measured = measure()

    def work() -> None:
        with clew.run("triage") as run:
            if told is not None:
                run.terminate(told)
            if error is not None:
                raise error

    if error is None:
        work()
    else:
        with pytest.raises(type(error)):
            work()
    expected = {**AGENT, "clew.run.status": status, "clew.run.termination_reason": reason}
    assert measured.points()["clew.runs.ended"] == [(expected, 1)]


def test_a_run_that_waits_has_not_ended(measure: Callable[..., Any]) -> None:
    """Suspending makes it inactive; resumed, it is active again, started once, ended once."""
    measured = measure()
    with clew.run("triage") as run:
        assert measured.total("clew.runs.active") == 1
        reference = run.suspend("waiting_for_approval")
    assert measured.total("clew.runs.active") == 0
    assert measured.total("clew.runs.ended") == 0
    with clew.resume(reference):
        assert measured.total("clew.runs.active") == 1
    assert measured.total("clew.runs.started") == 1
    assert measured.total("clew.runs.ended") == 1
    assert measured.total("clew.runs.active") == 0


def test_a_nested_agent_is_no_run_and_keeps_the_tenant(
    measure: Callable[..., Any], provider: ScriptedProvider
) -> None:
    """Its rounds carry its name and the outer run's tenant; only the root is a run."""
    measured = measure(metric_tenants=frozenset({"acme"}))
    provider.add(Reply(text="one"))
    with clew.run("triage", tenant="acme"), clew.run("helper"):
        chat(provider)
    labels_of = {"clew.tenant": "acme", "gen_ai.agent.name": "triage"}
    assert measured.points()["clew.runs.started"] == [(labels_of, 1)]
    rounds = measured.total("clew.rounds", gen_ai__agent__name="helper", clew__tenant="acme")
    assert rounds == 1


def test_without_a_run_a_call_is_measured_without_an_agent(
    measure: Callable[..., Any], provider: ScriptedProvider
) -> None:
    """Calls, tools and decisions outside a run count too."""
    measured = measure(provider_hosts={host(provider): "openai"})
    provider.add(Reply(text="one"))
    chat(provider)
    clew.decide("rate", "allow")
    assert measured.points()["clew.rounds"] == [(MODEL, 1)]
    assert measured.total("clew.decisions") == 1


def test_a_failed_call_says_why(measure: Callable[..., Any], provider: ScriptedProvider) -> None:
    """The error type is on the duration and the round; the failed attempts are counted."""
    measured = measure()
    provider.add(*[Reply.failure(500, f"{MARK} text", retry_after_ms=1)] * 3)
    with pytest.raises(openai.InternalServerError):
        chat(provider)
    ((duration, _),) = measured.points()["gen_ai.client.operation.duration"]
    assert duration["error.type"] == "server_error"
    assert measured.total("clew.rounds", error__type="server_error") == 1
    assert measured.total("clew.attempts", clew__attempt__outcome="failed") == 3
    assert measured.total("clew.attempts") == 3
    assert measured.total("clew.usage.absent", error__type="server_error") == 1
    assert "clew.cost" not in measured.points()


def test_where_no_logical_call_is_known_a_failure_is_an_attempt(
    measure: Callable[..., Any], provider: ScriptedProvider
) -> None:
    """With a bare HTTP client each try is a request of its own: it fails as an attempt."""
    measured = measure()
    provider.add(Reply.failure(503), Reply(text="one"))
    body = {"model": "gpt-5-mini", "messages": MESSAGES}
    with httpx.Client() as client:
        for _ in range(2):
            client.post(f"{provider.openai_base_url}/chat/completions", json=body)
    assert measured.total("clew.attempts", clew__attempt__outcome="failed") == 1
    assert measured.total("clew.attempts", clew__attempt__outcome="ok") == 1
    assert measured.total("clew.rounds") == 1
    assert measured.total("gen_ai.client.operation.duration") == 2


def test_unpriced_and_unreported_calls_are_counted_apart(
    measure: Callable[..., Any], provider: ScriptedProvider
) -> None:
    """No rate is no cost, no usage is no tokens: each has a counter, and neither is a zero."""
    measured = measure()
    provider.add(Reply(text="one"), Reply(text="two", usage=None))
    for _ in range(2):
        chat(provider)
    found = measured.points()
    assert measured.total("clew.cost.unpriced") == 1
    assert measured.total("clew.usage.absent") == 1
    assert "clew.cost" not in found
    assert measured.total("clew.tokens", clew__token__type="input") == 12


def test_an_abandoned_stream_is_counted_when_it_is_collected(
    measure: Callable[..., Any], provider: ScriptedProvider
) -> None:
    """A stream that nobody reads to its end counts once, from the finaliser on."""
    measured = measure()
    provider.add(Reply(text="one two three four", hang_after=2))
    with openai.OpenAI(base_url=provider.openai_base_url, api_key="any") as client:
        stream: Any = client.chat.completions.create(
            model="gpt-5-mini", messages=MESSAGES, stream=True
        )
        next(iter(stream))
        del stream
        gc.collect()
        (one,) = measured.points()["clew.rounds"]
    assert one == ({**MODEL, "gen_ai.provider.name": "_OTHER", **ABANDONED}, 1)


def test_a_cost_that_is_known_late_is_counted_once(
    measure: Callable[..., Any], provider: ScriptedProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A round that ends while the prices load adds its cost when they have loaded."""
    from clew.pricing import library

    loaded, original = threading.Event(), library.library

    def slowly() -> Any:
        assert loaded.wait(20)
        return original()

    monkeypatch.setattr(library, "library", slowly)
    provider.add(Reply(text="one"))
    measured = measure(
        ready=False, provider_hosts={host(provider): "openai"}, export_delay_ms=60_000
    )
    chat(provider)
    measured.metrics.drain()
    collected = encode_metrics(measured.reader.get_metrics_data()).SerializeToString()
    assert b"clew.rounds" in collected
    assert b"clew.cost" not in collected
    loaded.set()
    assert measured.runtime.prices.wait(20)
    expected = 12 * OPENAI_RATES["input"] + 7 * OPENAI_RATES["output"]
    for _ in range(2):
        assert measured.total("clew.cost") == pytest.approx(expected)
    assert measured.total("clew.cost.unpriced") == 0
    (span,) = measured.spans.by_name("chat")
    assert (span.attributes or {})["clew.cost.usd"] == pytest.approx(expected)


# --- durations and buckets -----------------------------------------------------------------------


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


# --- the pipeline itself --------------------------------------------------------------------------


class SlowExporter(SpanExporter):
    """Takes its time, and confirms nothing."""

    def __init__(self) -> None:
        self.release = threading.Event()
        self.exported = 0

    def export(self, spans: Any) -> SpanExportResult:
        assert self.release.wait(20)
        self.exported += len(spans)
        return SpanExportResult.FAILURE


def test_a_full_queue_and_a_failing_exporter_are_counted(
    measure: Callable[..., Any],
) -> None:
    """What waits, what was dropped and what was not confirmed are metrics, and add up."""
    slow = SlowExporter()
    measured = measure(exporter=slow, queue_size=20, batch_size=10)
    for _ in range(100):
        with clew.tool("search"):
            pass
    waiting = measured.runtime.worker.waiting()
    slow.release.set()
    assert waiting > 0
    dropped = measured.total("clew.pipeline.dropped", clew__pipeline__signal="spans")
    assert dropped == measured.runtime.worker.dropped > 0
    assert measured.total("clew.pipeline.failed") == slow.exported == 100 - dropped
    assert measured.total("clew.pipeline.queued") == 0
    assert measured.total("clew.tool.duration") == 100


def test_nothing_is_lost_between_threads(measure: Callable[..., Any]) -> None:
    """Many threads count while two drain: the sums are exact."""
    measured = measure(queue_size=100_000)
    stop = threading.Event()

    def drain() -> None:
        while not stop.is_set():
            measured.metrics.drain()

    def work() -> None:
        for _ in range(200):
            with clew.tool("search"), clew.decide("budget"):
                pass

    drainer = threading.Thread(target=drain)
    workers = [threading.Thread(target=work) for _ in range(8)]
    drainer.start()
    for one in workers:
        one.start()
    for one in workers:
        one.join(30)
    stop.set()
    drainer.join(30)
    assert measured.total("clew.decisions") == 1600
    assert measured.total("clew.tool.duration") == 1600


class BrokenExporter(SpanExporter):
    """Raises."""

    def export(self, spans: Any) -> SpanExportResult:
        raise ConnectionError(MARK)


def test_spans_of_an_exporter_that_raises_have_failed(
    measure: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    """An exception is no confirmation: it is logged once without its text, and counted."""
    measured = measure(exporter=BrokenExporter())
    for _ in range(3):
        with clew.tool("search"):
            pass
        measured.flush()
    assert measured.total("clew.pipeline.failed") == 3
    assert ["ConnectionError" in one.getMessage() for one in caplog.records] == [True]
    assert MARK not in caplog.text
    _guard.forget()


def test_the_caller_is_never_held_up_and_lost_events_are_counted(
    measure: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """While nobody drains, events are kept up to a bound; beyond it they are counted as lost."""
    measured = measure()
    measured.flush()
    monkeypatch.setattr(metrics_module, "_KEPT", 10)
    with measured.metrics._lock:
        begun = time.perf_counter()
        for _ in range(25):
            clew.decide("budget", "allow")
        measured.runtime.settle(everywhere=True)
        assert time.perf_counter() - begun < 1
    assert measured.total("clew.decisions") == 10
    assert measured.total("clew.pipeline.dropped", clew__pipeline__signal="metrics") == 15


def test_what_the_allow_list_kept_out_is_counted_by_rule(
    measure: Callable[..., Any],
) -> None:
    """A foreign span's content is counted under the rule that kept it out, never named."""
    measured = measure()
    with clew.run("triage"):
        span = trace.get_tracer("another.library").start_span("work")
        span.set_attribute(f"{MARK}.key", "value")
        span.set_attribute("http.request.method", f"{MARK} with spaces")
        span.end()
    row = measured.points()["clew.privacy.dropped"]
    found = {one["clew.privacy.rule"]: value for one, value in row}
    assert (found["key"], found["identifier"]) == (1, 1)


def test_budgets_and_fallbacks_have_instruments(measure: Callable[..., Any]) -> None:
    """A gate tells how full its budget is, a chain that it moved on."""
    measured = measure()
    measured.metrics.budget("daily", "usd", limit=5.0, used=1.25)
    measured.metrics.budget("hourly", "tokens", limit=None, used=7)
    measured.metrics.budget("odd", f"{MARK}", limit=1, used=0)
    measured.metrics.fell_back(None, "openai")
    found = measured.points()
    daily = {"clew.budget.name": "daily", "clew.budget.unit": "usd"}
    hourly = {"clew.budget.name": "hourly", "clew.budget.unit": "tokens"}
    odd = {"clew.budget.name": "odd", "clew.budget.unit": "_OTHER"}
    assert found["clew.budget.limit"] == [(daily, 5.0), (odd, 1)]
    assert found["clew.budget.used"] == [(daily, 1.25), (hourly, 7), (odd, 0)]
    assert found["clew.fallbacks"] == [({"gen_ai.provider.name": "openai"}, 1)]


def test_no_word_of_content_is_in_the_bytes(
    measure: Callable[..., Any], provider: ScriptedProvider
) -> None:
    """Prompts, answers, arguments, users, errors and made-up names never reach a metric."""
    measured = measure()
    call = ScriptedToolCall(name=f"{MARK}_tool", arguments={MARK: MARK}, id=f"{MARK}_id")
    provider.add(Reply(text=MARK, tool_calls=(call,)), Reply.failure(400, MARK, type=MARK))
    with clew.run(f"{MARK} agent with spaces", actor=MARK, tenant=MARK, message_id=MARK):
        chat(provider)
        with pytest.raises(openai.BadRequestError):
            chat(provider)
        with clew.tool(f"{MARK}_tool", call_id=f"{MARK}_id"):
            pass
        clew.decide(MARK, "deny", reason=MARK, policy=MARK, subject=MARK)
    assert measured.total("clew.decisions") == 1
    assert MARK.encode() not in encode_metrics(measured.data()).SerializeToString()
