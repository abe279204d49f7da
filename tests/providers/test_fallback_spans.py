"""Chains of providers: what is told of each try, in spans, decisions and metrics."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from pair import BUSY, Clock

import clew
from clew.providers import Circuits, FallbackError, FallbackProvider
from clew.settings import Settings
from clew.testing import CaptureExporter, Reply


@pytest.fixture
def reader() -> InMemoryMetricReader:
    return InMemoryMetricReader()


@pytest.fixture
def settings(reader: InMemoryMetricReader) -> Settings:
    return Settings.from_environment(
        export_delay_ms=50,
        seal_grace_s=0.05,
        shutdown_s=5,
        metric_readers=(reader,),
    )


@pytest.fixture
def spans(exported: CaptureExporter) -> Callable[..., Any]:
    """Return attributes of the spans whose name begins with a word; content is not in them."""
    clew.instrument()

    def found(word: str, *keys: str) -> list[tuple[Any, ...]]:
        assert b"SECRET" not in exported.otlp_bytes()
        listed = [
            dict(span.attributes or {}) for span in exported.spans if span.name.startswith(word)
        ]
        listed.sort(key=lambda one: one["clew.seq"])
        return [tuple(one.get(key) for key in keys) for one in listed]

    return found


HOP = (
    "clew.round",
    "clew.provider.hop",
    "clew.provider.failure_class",
    "gen_ai.request.model",
    "clew.attempts",
)


async def test_each_try_is_a_span_of_the_same_round(pair: Any, spans: Any):
    """With its place, its failure class, and the next round counted on from there."""
    chain = FallbackProvider(pair.one, pair.second)
    pair.script([BUSY, Reply(text="SECRET")], [Reply(text="SECRET")])
    with clew.run("triage") as run:
        await pair.ask(chain)
        await pair.ask(chain)
    assert spans("chat", *HOP) == [
        (1, 0, "server_error", "small", 1),
        (1, 1, None, "large", 1),
        (2, 0, None, "small", 1),
    ]
    assert (run.totals.rounds, run.totals.rounds_without_usage) == (2, 0)


async def test_a_skipped_provider_is_a_decision(pair: Any, spans: Any):
    """Gate, outcome, reason and the model, in the place of the try that was not made."""
    chain = FallbackProvider(pair.one, pair.second, circuits=Circuits(threshold=1, clock=Clock()))
    pair.script([BUSY], [Reply(text="SECRET")] * 2)
    with clew.run("triage") as run:
        await pair.ask(chain)
        await pair.ask(chain)
    keys = ("gate", "outcome", "reason", "subject", "executed", "enforced")
    assert spans("decide", *[f"clew.decision.{key}" for key in keys]) == [
        ("circuit", "deny", "circuit_open", "small", False, True)
    ]
    assert [found[:3] for found in spans("chat", *HOP)] == [
        (1, 0, "server_error"),
        (1, 1, None),
        (2, 1, None),
    ]
    assert (run.totals.rounds, run.totals.denials) == (2, 1)


async def test_a_chain_that_fails_is_one_round(pair: Any, spans: Any):
    """It counts as one, without usage."""
    pair.script([BUSY], [BUSY])
    with clew.run("triage") as run, pytest.raises(FallbackError):
        await pair.ask(FallbackProvider(pair.one, pair.second))
    assert (run.totals.rounds, run.totals.rounds_without_usage) == (1, 1)
    assert [found[:3] for found in spans("chat", *HOP)] == [
        (1, 0, "server_error"),
        (1, 1, "server_error"),
    ]


def count(reader: InMemoryMetricReader, name: str) -> list[tuple[Any, Any]]:
    data: Any = reader.get_metrics_data()
    return [
        (point.attributes.get("gen_ai.provider.name"), point.value)
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
        if metric.name == name
        for point in metric.data.data_points
    ]


async def test_moves_are_counted(pair: Any, spans: Any, reader: InMemoryMetricReader):
    """One for each sibling that was asked, under the provider that was left; rounds once."""
    pair.script([BUSY, Reply(text="one")], [Reply(text="two")])
    chain = FallbackProvider(pair.one, pair.second)
    with clew.run("triage"):
        await pair.ask(chain)
        await pair.ask(chain)
    assert len(spans("chat", "clew.seq")) == 3
    assert count(reader, "clew.fallbacks") == [("openai", 1)]
    assert sum(value for _, value in count(reader, "clew.rounds")) == 2


async def test_without_a_chain_there_is_no_hop(pair: Any, spans: Any):
    """The attribute says that there was a choice."""
    pair.script([Reply(text="one")], [])
    with clew.run("triage"):
        await pair.ask(pair.one)
    assert spans("chat", *HOP) == [(1, None, None, "small", 1)]


async def test_outside_of_a_run(pair: Any, exported: CaptureExporter):
    """The hops are told, the round has no number."""
    clew.instrument()
    pair.script([BUSY], [Reply(text="two")])
    await pair.ask(FallbackProvider(pair.one, pair.second))
    found = [dict(span.attributes or {}) for span in exported.by_name("chat")]
    assert [(one["clew.provider.hop"], one.get("clew.round")) for one in found] == [
        (0, None),
        (1, None),
    ]
