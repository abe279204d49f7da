"""Metrics of single calls: without a run, failed, unpriced, abandoned, priced late."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from typing import Any

import httpx
import openai
import pytest
from metric_kit import MARK, MESSAGES, MODEL, OPENAI_RATES, chat, host
from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics

import clew
from clew.testing import Reply, ScriptedProvider

ABANDONED = {"clew.stream.outcome": "abandoned"}


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
