"""Captured content through the Collector into Jaeger, and the size limits on the way."""

# ruff: noqa: SIM300 - expected == actual, in this order
from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import agent_runs
import anthropic
import openai
import pytest
import real_peers
from opentelemetry.sdk.trace import ReadableSpan

import clew
from clew import semconv
from clew.allow_list import AllowList
from clew.audit.keys import KeyRing
from clew.audit.verify import verify
from clew.cli.collector import documents
from clew.integrity import Key
from clew.rules import Captured
from clew.settings import Settings
from clew.sources import open_source
from clew.store.records import RunRecord
from clew.testing import CaptureExporter, Reply, ScriptedProvider

CALLS = 300
SPANS = CALLS + CALLS // 2 + 2 * (CALLS // 10) + 3
"""Anthropic's client has spans of its own; a tool and a decision follow each tenth call."""
KEY = "a secret of thirty-two bytes, or more"
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


def answer(_: Any) -> Reply:
    return Reply(text='It says: "soon" \\ {"a": [1]}')


def talk(base_url: str, calls: int, **options: Any) -> tuple[str, list[ReadableSpan]]:
    """Hold a conversation of so many model calls, with a tool and a decision after each tenth.

    Returns:
        The run's trace id, and its spans as they were exported.
    """
    kept = CaptureExporter()
    with (
        ScriptedProvider(answer) as desk,
        ScriptedProvider(answer) as carrier,
        openai.OpenAI(
            base_url=desk.openai_base_url,
            api_key="scripted",
            http_client=openai.DefaultHttpxClient(trust_env=False),
        ) as one,
        anthropic.Anthropic(
            base_url=carrier.base_url,
            api_key="scripted",
            http_client=anthropic.DefaultHttpxClient(trust_env=False),
        ) as other,
    ):
        hosts = {
            "{}:{}".format(*desk.address): "openai",
            "{}:{}".format(*carrier.address): "anthropic",
        }
        settings = Settings.from_environment(
            service_name="talker", capture="full", content_to=frozenset({"spans"}),
            provider_hosts=hosts, seal_grace_s=0.05, shutdown_s=60, **options,
        )  # fmt: skip
        clew.configure(settings=settings, span_exporters=[kept, agent_runs.exporter(base_url)])
        clew.instrument()
        with clew.run("talker") as run:
            for number in range(calls):
                messages: Any = [{"role": "user", "content": f"{number}: {QUESTION}"}]
                if number % 2:
                    other.messages.create(
                        model="claude-haiku-4-5", max_tokens=64, messages=messages
                    )
                else:
                    one.chat.completions.create(model="gpt-4o-mini", messages=messages)
                if number % 10 == 9:
                    with clew.tool("look", arguments={"order": QUESTION}) as tool:
                        tool.result = QUESTION
                    clew.decide("tool", "deny", subject="look", reason="not_now", policy="p")
            trace_id = run.trace_id
        clew.uninstrument()
        clew.shutdown()
    return trace_id, [each for each in kept.spans if each.attributes]


def record_of(jaeger: real_peers.Jaeger, trace_id: str, spans: int) -> RunRecord:
    """Return a run once all its spans are there."""
    with open_source(f"jaeger://{jaeger.address}?timeout=60") as source:
        agent_runs.eventually(lambda: len(source.run(trace_id).spans), spans, seconds=60)
        return source.run(trace_id)


def figures(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is no content, with lists as they are read back."""
    return {
        key: list(value) if isinstance(value, tuple) else value
        for key, value in attributes.items()
        if key not in semconv.CONTENT
    }


def test_three_hundred_calls_with_content_arrive_whole(
    open_gateway: real_peers.Collector, jaeger: real_peers.Jaeger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Jaeger's default limits lose no span of a large run, and all content in it is valid JSON.

    The content alone is about 13 MB; Jaeger takes messages of 4 MiB.
    """
    monkeypatch.setenv("CLEW_INTEGRITY_KEY", KEY)
    trace_id, exported = talk(open_gateway.otlp, CALLS)
    record = record_of(jaeger, trace_id, SPANS)
    assert SPANS == len(record.spans) == len(exported)
    rounds = [each for each in record.spans if each.type == "round"]
    for number, span in enumerate(rounds):
        asked = json.loads(span.attributes[semconv.INPUT_MESSAGES])
        assert asked[0]["parts"][0]["content"].startswith(f"{number}: Where is it? \u00e4")
        said = json.loads(span.attributes[semconv.OUTPUT_MESSAGES])
        assert 'It says: "soon" \\ {"a": [1]}' == said[0]["parts"][0]["content"]
    # What dashboards and auditors read stands beside it: every other attribute of every span, each
    # so small that no backend's usual limit is near (Tempo cuts at 2048 bytes).
    stored = {each.span_id: figures(each.attributes) for each in record.spans}
    assert 1024 > max(len(str(value)) for held in stored.values() for value in held.values())
    assert {
        f"{each.context.span_id:016x}": figures(each.attributes or {}) for each in exported
    } == stored
    assert (CALLS, CALLS // 10, CALLS // 10, "completed") == (
        record.summary.rounds,
        record.summary.tool_calls,
        record.summary.denials,
        record.summary.status,
    )
    spent = [span.attributes["clew.cost.usd"] for span in rounds]
    read = [span.attributes["gen_ai.usage.input_tokens"] for span in rounds]
    totals = next(each for each in record.spans if each.type == "run").attributes
    assert sum(read) == totals["clew.run.usage.input_tokens"] > 0
    assert sum(spent) == pytest.approx(totals["clew.run.cost.usd"])
    report = verify(record, KeyRing([Key(KEY.encode())]))
    assert ("COMPLETE", "SIGNED", ()) == (report.status, report.integrity, report.findings)


def test_the_gateway_lets_no_content_pass_unless_it_is_told_to(
    gateway: real_peers.Collector, jaeger: real_peers.Jaeger
) -> None:
    """Content that a service captured does not pass a gateway with the list as it comes."""
    trace_id, _ = talk(gateway.otlp, 2)
    record = record_of(jaeger, trace_id, 6)
    assert 6 == len(record.spans)
    keys = {key for each in record.spans for key in each.attributes}
    assert set() == keys & set(semconv.CONTENT)
