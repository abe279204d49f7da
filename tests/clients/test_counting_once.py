"""Frameworks, providers' instrumentations and HTTP instrumentations around a call: it counts once."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest
from either_way import settle
from opentelemetry import trace

import clew
from clew.facts import Usage
from clew.store import otlp_protobuf
from clew.store.writer import Writer
from clew.testing import OtlpSink, Reply, ScriptedProvider, captured

USAGE = Usage(input_tokens=100, output_tokens=20)
ASK = [{"role": "user", "content": "zqmark"}]


def plain_sum(spans: Any, kind: str) -> int:
    """Add up an attribute over all spans, as a query would that knows nothing else."""
    return sum(span.attributes.get(f"gen_ai.usage.{kind}_tokens", 0) for span in spans)


@pytest.fixture
def http_spans() -> Iterator[None]:
    """OpenTelemetry's own instrumentation of httpx, put on while the test runs."""
    from opentelemetry.instrumentation.httpx import HTTPXClientInstrumentor

    instrumentor = HTTPXClientInstrumentor()
    instrumentor.instrument()
    yield
    instrumentor.uninstrument()


def counts(span: Any) -> None:
    """Say what instrumentations of frameworks and providers say of a model call."""
    span.set_attribute("gen_ai.operation.name", "chat")
    span.set_attribute("gen_ai.request.model", "m")
    span.set_attribute("gen_ai.usage.input_tokens", 100)
    span.set_attribute("gen_ai.usage.output_tokens", 20)
    span.set_attribute("gen_ai.usage.cost", 0.5)


@pytest.mark.kits("all")
@pytest.mark.parametrize("early", [True, False], ids=["said before", "said after"])
@pytest.mark.parametrize("streaming", [False, True], ids=["plain", "streamed"])
async def test_every_layer_counts_once(streaming: bool, early: bool, kit: Any, http_spans: None):
    """Three layers around the wire, each with the usage: the plain sum is that of one call."""
    framework, provider = trace.get_tracer("some.framework"), trace.get_tracer("some.provider")
    reply = Reply(text="zqmark", usage=USAGE, model="m")
    with ScriptedProvider([reply], formats=kit.formats) as server, captured() as exporter:
        client = await settle(kit.client(server))
        with (
            clew.run("agent"),
            framework.start_as_current_span("ChatModel.chat") as outer,
            provider.start_as_current_span("chat m") as inner,
        ):
            for span in (outer, inner) if early else ():
                counts(span)
            if streaming:
                assert [chunk async for chunk in kit.chunks(await kit.stream(client))]
            else:
                await kit.ask(client)
            for span in () if early else (inner, outer):
                counts(span)
        await kit.close(client)
        spans = exporter.spans
        assert b"zqmark" not in exporter.otlp_bytes()
    assert (plain_sum(spans, "input"), plain_sum(spans, "output")) == (100, 20)
    others = [span for span in spans if span.instrumentation_scope.name.startswith("some.")]
    assert [span.attributes.get("clew.aggregate") for span in others] == [True, True]
    assert [span.attributes.get("gen_ai.usage.cost") for span in others] == [None, None]
    carriers = [span for span in spans if "clew.attempts" in span.attributes]
    assert len(carriers) == 1


@pytest.mark.kits("all")
async def test_the_plain_sum_of_a_store_is_that_of_the_calls(kit: Any, tmp_path: Path):
    """Agent, two steps, three calls: SQL over all spans finds each token once, copies or not."""
    reply = Reply(text="zqmark", usage=Usage(input_tokens=10, output_tokens=2), model="m")
    with ScriptedProvider([reply] * 3, formats=kit.formats) as server, captured() as exporter:
        client = await settle(kit.client(server))
        with clew.run("agent") as run:
            with clew.run("first"):
                await kit.ask(client)
                await kit.ask(client)
            with clew.run("second"):
                await kit.ask(client)
        await kit.close(client)
        spans = otlp_protobuf.decode(exporter.otlp_bytes()).spans
    assert (run.totals.input_tokens, run.totals.output_tokens) == (30, 6)
    writer = Writer(tmp_path / "clew.db")
    for _ in range(2):  # the second time as a retried export
        writer.write(spans)
    writer.close()
    assert sums_of(tmp_path / "clew.db") == (30, 6)


def sums_of(path: Path) -> tuple[int, int]:
    """Add up what stands under the usual names on whatever span of a store."""
    names = [f'$."gen_ai.usage.{kind}_tokens"' for kind in ("input", "output")]
    query = "SELECT sum(json_extract(attributes, ?)), sum(json_extract(attributes, ?)) FROM spans"
    with closing(sqlite3.connect(path)) as database:
        (found,) = database.execute(query, names)
        assert [found] == database.execute(
            "SELECT sum(input_tokens), sum(output_tokens) FROM spans"
        ).fetchall()
    return found


# --- subclasses of clients ----------------------------------------------------------------------------


def azure(server: Any, asynchronous: bool) -> Any:
    kind = openai.AsyncAzureOpenAI if asynchronous else openai.AzureOpenAI
    return kind(azure_endpoint=server.base_url, api_key="key", api_version="v", max_retries=0)


def bedrock(server: Any, asynchronous: bool) -> Any:
    kind = anthropic.AsyncAnthropicBedrock if asynchronous else anthropic.AnthropicBedrock
    return kind(
        aws_access_key="key",
        aws_secret_key="key",
        aws_region="eu-west-1",
        base_url=server.base_url,
        max_retries=0,
    )


def ask(client: Any) -> Any:
    if hasattr(client, "chat"):
        return client.chat.completions.create(model="m", messages=ASK)
    return client.messages.create(model="m", max_tokens=5, messages=ASK)


@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize("make", [azure, bedrock])
async def test_a_subclass_whose_base_is_listened_to_as_well(make: Any, asynchronous: bool):
    """One span for a call, however often it is wrapped; one `uninstrument` undoes it all."""
    reply = Reply(text="zqmark", usage=USAGE)
    with ScriptedProvider(lambda _: reply) as server, captured() as exporter:
        client = make(server, asynchronous)
        _ = client.messages if make is bedrock else client.chat  # the SDK keeps it
        before = set(vars(client)), set(vars(client._client))
        for _ in range(2):
            clew.instrument()
            assert clew.instrument(clew.instrument(client)) is client
            clew.instrument(client._client)
        await settle(ask(client))
        rounds = [span for span in exporter.spans if "clew.attempts" in span.attributes]
        assert [span.attributes["gen_ai.usage.input_tokens"] for span in rounds] == [100]
        clew.uninstrument()
        assert (set(vars(client)), set(vars(client._client))) == before
        exporter.clear()
        await settle(ask(client))
        assert [span for span in exporter.spans if "clew.attempts" in span.attributes] == []
        await settle(client.close())


# --- set up many times --------------------------------------------------------------------------------


@pytest.mark.kits("all")
async def test_set_up_in_each_thread_of_a_tool_exports_once(kit: Any):
    """A tool that sets Clew up whenever it runs, in a thread of its own: one copy of each span."""
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    reply = Reply(text="zqmark", usage=USAGE)
    with ScriptedProvider([reply], formats=kit.formats) as server, OtlpSink() as sink:
        exporters = [OTLPSpanExporter(sink.traces_endpoint)]
        settings = clew.Settings(digest_key="key", seal_grace_s=0)

        def set_up() -> None:
            clew.configure("tests", settings=settings, span_exporters=exporters)
            clew.instrument()

        try:
            threads = [threading.Thread(target=set_up) for _ in range(5)]
            for thread in threads:
                thread.start()
            for thread in threads:
                await asyncio.to_thread(thread.join, 20)
            client = await settle(kit.client(server))
            with clew.run("agent"):
                await asyncio.to_thread(set_up)
                await kit.ask(client)
            await kit.close(client)
        finally:
            clew.uninstrument()
            clew.shutdown(10)
        ids = [span.span_id for span in sink.spans]
        assert len(ids) == len(set(ids))
        rounds = [span for span in sink.spans if "clew.attempts" in keys(span)]
        assert len(rounds) == 1


def keys(span: Any) -> set[str]:
    """Return the names of a received span's attributes."""
    return {each.key for each in span.attributes}
