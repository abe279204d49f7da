"""Captured content through the Collector into Jaeger, and the size limits on the way."""

# ruff: noqa: SIM300 - expected == actual, in this order
from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import agent_runs
import openai
import pytest
import real_peers

import clew
from clew import semconv
from clew.allow_list import AllowList
from clew.cli.collector import documents
from clew.rules import Captured
from clew.settings import Settings
from clew.sources import open_source
from clew.store.records import RunRecord
from clew.testing import Reply, ScriptedProvider

CALLS = 300
QUESTION = "Where is it? \u00e4\u4e2d\U0001f600\n" * 1500
"""About 30 000 characters, 45 kB."""


@pytest.fixture(scope="module")
def open_gateway(
    jaeger: real_peers.Jaeger, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[real_peers.Collector]:
    """The gateway as `clew collector-config gateway --content` configures it."""
    folder = tmp_path_factory.mktemp("open-gateway")
    allow_list = AllowList.default().extended(dict.fromkeys(semconv.CONTENT, Captured()))
    config = folder / "gateway.yaml"
    config.write_text(documents.document("gateway", allow_list))
    with real_peers.Collector(folder, config, CLEW_JAEGER=jaeger.otlp) as running:
        yield running


def talk(base_url: str, calls: int, **options: Any) -> str:
    """Hold a conversation of so many model calls; return the run's trace id."""
    settings = Settings.from_environment(
        service_name="talker", capture="full", content_to=frozenset({"spans"}),
        seal_grace_s=0.05, shutdown_s=60, **options,
    )  # fmt: skip
    clew.configure(settings=settings, span_exporters=[agent_runs.exporter(base_url)])
    clew.instrument()
    with (
        ScriptedProvider(lambda _: Reply(text='It says: "soon" \\ {"a": [1]}')) as provider,
        openai.OpenAI(
            base_url=provider.openai_base_url,
            api_key="scripted",
            http_client=openai.DefaultHttpxClient(trust_env=False),
        ) as client,
    ):
        with clew.run("talker") as run:
            for number in range(calls):
                client.chat.completions.create(
                    model="gpt-4o-mini",
                    messages=[{"role": "user", "content": f"{number}: {QUESTION}"}],
                )
            trace_id = run.trace_id
        clew.uninstrument()
        clew.shutdown()
    return trace_id


def record_of(jaeger: real_peers.Jaeger, trace_id: str, spans: int) -> RunRecord:
    """Return a run once all its spans are there."""
    with open_source(f"jaeger://{jaeger.address}?timeout=60") as source:
        agent_runs.eventually(lambda: len(source.run(trace_id).spans), spans, seconds=60)
        return source.run(trace_id)


def test_three_hundred_calls_with_content_arrive_whole(
    open_gateway: real_peers.Collector, jaeger: real_peers.Jaeger
) -> None:
    """Jaeger's default limits lose no span of a large run, and all content in it is valid JSON.

    The content alone is about 13 MB; Jaeger takes messages of 4 MiB.
    """
    trace_id = talk(open_gateway.otlp, CALLS)
    record = record_of(jaeger, trace_id, CALLS + 3)
    assert CALLS + 3 == len(record.spans)
    assert (CALLS, "completed") == (record.summary.rounds, record.summary.status)
    rounds = [each for each in record.spans if each.type == "round"]
    for number, span in enumerate(rounds):
        asked = json.loads(span.attributes[semconv.INPUT_MESSAGES])
        assert asked[0]["parts"][0]["content"].startswith(f"{number}: Where is it? \u00e4")
        said = json.loads(span.attributes[semconv.OUTPUT_MESSAGES])
        assert 'It says: "soon" \\ {"a": [1]}' == said[0]["parts"][0]["content"]
    # What dashboards and auditors read is in small attributes of the run span.
    totals = next(each for each in record.spans if each.type == "run").attributes
    assert CALLS == totals["clew.run.rounds"]


def test_the_gateway_lets_no_content_pass_unless_it_is_told_to(
    gateway: real_peers.Collector, jaeger: real_peers.Jaeger
) -> None:
    """Content that a service captured does not pass a gateway with the list as it comes."""
    trace_id = talk(gateway.otlp, 2)
    record = record_of(jaeger, trace_id, 5)
    assert 5 == len(record.spans)
    keys = {key for each in record.spans for key in each.attributes}
    assert set() == keys & set(semconv.CONTENT)
