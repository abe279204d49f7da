"""Metrics: exact values over real runs, and never a word of content."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import anthropic
import openai
import pytest
from metric_kit import (
    AGENT,
    CALL,
    MARK,
    MESSAGES,
    MODEL,
    OPENAI_RATES,
    Labels,
    chat,
    chat_async,
    host,
)
from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
from opentelemetry.sdk.metrics.export import HistogramDataPoint
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF

import clew
from clew.facts import Usage
from clew.testing import Reply, ScriptedProvider, ScriptedToolCall


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
