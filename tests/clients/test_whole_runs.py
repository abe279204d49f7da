"""Whole runs over the real clients, exported by real OTLP: totals, identity, and no content."""

from __future__ import annotations

import asyncio
import dataclasses
import subprocess
import sys
import uuid
from typing import Any

import pytest
from either_way import settle
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

import clew
from clew.testing import OtlpSink, Reply, ScriptedProvider, captured

MARK = "zqmark"
RETRY = Reply.failure(429, f"{MARK} slow down", retry_after_ms=5)


def attributes_of(span: Any) -> dict[str, Any]:
    """Return a received span's attributes as plain values."""
    values: dict[str, Any] = {}
    for each in span.attributes:
        kind = each.value.WhichOneof("value")
        value = getattr(each.value, kind)
        if kind == "array_value":
            value = [getattr(one, one.WhichOneof("value")) for one in value.values]
        values[each.key] = value
    return values


async def work(kit: Any, client: Any) -> str:
    """Do all that a run can do, with content in every place; return a reference to resume."""
    foreign = trace.get_tracer("somebody.else")
    await kit.ask(client)
    with (
        clew.decide("guardrail_input", policy="rules", subject=f"{MARK} subject") as decision,
        foreign.start_as_current_span(f"check the prompt {MARK}") as span,
    ):
        decision.outcome = "allow"
        decision.reason = f"{MARK} in prose"
        span.set_attribute("gen_ai.input.messages", f"{MARK} foreign")
        span.set_attribute("http.request.header.authorization", f"{MARK} foreign")
        span.add_event(f"event of {MARK}", {"exception.message": f"{MARK} foreign"})
    with clew.tool("find", call_id="call_1") as tool:
        tool.arguments_bytes = 12
    with pytest.raises(LookupError), clew.tool("find", call_id="call_2"):
        raise LookupError(f"{MARK} tool failed")
    with pytest.raises(RuntimeError):
        await help_out(kit, client)
    clew.decide("tool", "deny", reason="not_now", subject="find")
    with pytest.raises(kit.sdk.BadRequestError):
        await kit.ask(client)
    return clew.current_run().suspend("waiting_for_input")


async def help_out(kit: Any, client: Any) -> None:
    with clew.run("helper"):
        stream = await kit.stream(client)
        assert len([chunk async for chunk in kit.chunks(stream)]) > 3
        raise RuntimeError(f"{MARK} helper failed")


async def test_a_run_with_everything(kit: Any):
    """One trace per run, totals that add up over two segments, and no content on the wire."""
    script = [RETRY, kit.reply, kit.reply, Reply.failure(400, f"{MARK} bad"), kit.reply]
    run_id = uuid.uuid4()
    with ScriptedProvider(script) as server, OtlpSink() as sink:
        host = "{}:{}".format(*server.address)
        settings = clew.Settings(
            digest_key="key", provider_hosts={host: kit.provider}, seal_grace_s=0.01
        )
        clew.configure("support", settings=settings, span_exporters=[exporter_to(sink)])
        clew.instrument()
        try:
            client = kit.client(server, max_retries=1)
            with clew.run("desk", run_id=run_id, actor=f"{MARK} person", tenant="t1"):
                reference = await work(kit, client)
            with clew.resume(reference):
                await kit.ask(client)
            await settle(client.close())
        finally:
            clew.uninstrument()
            clew.shutdown(10)
        spans, bodies = sink.spans, sink.bodies
    assert MARK.encode() not in b"".join(bodies).lower()
    assert {span.trace_id for span in spans} == {run_id.bytes}
    told = [(span, attributes_of(span)) for span in spans]
    assert {attributes["clew.run.id"] for _, attributes in told} == {str(run_id)}
    assert_numbered(told)
    first, second = sorted(
        (each for each in told if each[1].get("clew.run.root")),
        key=lambda each: each[1]["clew.segment"],
    )
    assert first[1]["clew.run.status"] == "waiting_for_input"
    assert second[1]["clew.run.status"] == "completed"
    assert not first[0].parent_span_id
    assert not second[0].parent_span_id
    assert first[0].span_id in {link.span_id for link in second[0].links}
    assert_totals(told, first[1], second[1])


def assert_numbered(told: list[tuple[Any, dict[str, Any]]]) -> None:
    """Sequence numbers have no gap within a segment, and the seal knows how many there are."""
    for segment in (1, 2):
        inside = [attributes for _, attributes in told if attributes["clew.segment"] == segment]
        numbers = sorted(attributes["clew.seq"] for attributes in inside)
        assert numbers == list(range(1, len(inside) + 1))
        (seal,) = [each for each in inside if each.get("clew.run.event") == "sealed"]
        assert seal["clew.seal.spans"] == len(inside) - 1
        assert seal["clew.seal.open_seqs"] == []


def assert_totals(
    told: list[tuple[Any, dict[str, Any]]], first: dict[str, Any], second: dict[str, Any]
) -> None:
    """The plain sum over all spans is the total; so are the roots' totals."""

    def total(key: str) -> float:
        return sum(attributes.get(key, 0) for _, attributes in told)

    for part, key in (
        ("input", "gen_ai.usage.input_tokens"),
        ("output", "gen_ai.usage.output_tokens"),
        ("cache_read", "gen_ai.usage.cache_read.input_tokens"),
    ):
        assert second[f"clew.run.usage.{part}_tokens"] == total(key) > 0
        parts = [root[f"clew.segment.usage.{part}_tokens"] for root in (first, second)]
        assert sum(parts) == total(key)
    assert total("gen_ai.usage.input_tokens") == 300
    assert second["clew.run.cost.usd"] == pytest.approx(total("clew.cost.usd"))
    counts = {"rounds": 4, "tool_calls": 2, "decisions": 2, "denials": 1}
    assert {name: second[f"clew.run.{name}"] for name in counts} == counts
    assert {name: first[f"clew.run.{name}"] for name in counts} == counts | {"rounds": 3}


def exporter_to(sink: OtlpSink) -> Any:
    return OTLPSpanExporter(sink.traces_endpoint)


async def test_usage_stands_on_rounds_only(kit: Any):
    """A run of two steps with three calls: the plain sum over the trace is the sum of the calls."""
    with ScriptedProvider([kit.reply] * 3) as server, captured() as exporter:
        client = kit.client(server)
        with clew.run("agent"):
            with clew.run("step_one"):
                await kit.ask(client)
                await kit.ask(client)
            with clew.run("step_two"):
                await kit.ask(client)
        await settle(client.close())
        spans = exporter.spans
    with_usage = [span for span in spans if "gen_ai.usage.input_tokens" in span.attributes]
    assert len(with_usage) == 3
    assert sum(span.attributes["gen_ai.usage.input_tokens"] for span in with_usage) == 300
    assert sum(span.attributes["gen_ai.usage.output_tokens"] for span in with_usage) == 120
    assert {span.attributes["clew.attempts"] for span in with_usage} == {1}


async def test_a_framework_s_span_around_the_call_does_not_count_twice(kit: Any):
    """A wrapper's own model-call span, with usage of its own, is marked and stripped of it."""
    with ScriptedProvider([kit.reply]) as server, captured() as exporter:
        client = kit.client(server)
        tracer = trace.get_tracer("some.framework")
        with clew.run("agent"), tracer.start_as_current_span("chat") as around:
            around.set_attribute("gen_ai.operation.name", "chat")
            await kit.ask(client)
            around.set_attribute("gen_ai.usage.input_tokens", 100)
            around.set_attribute("gen_ai.usage.output_tokens", 40)
        await settle(client.close())
        spans = exporter.spans
    inputs = [span.attributes.get("gen_ai.usage.input_tokens") for span in spans]
    assert [count for count in inputs if count is not None] == [100]
    (wrapper,) = [s for s in spans if s.instrumentation_scope.name == "some.framework"]
    assert wrapper.attributes["clew.aggregate"] is True


async def test_trace_headers_stay_in_the_house(kit: Any):
    """No model call carries the run's id, unless its host is on the list."""
    headers = {"traceparent", "tracestate", "baggage"}
    with ScriptedProvider([kit.reply] * 2) as server:
        for allowed in (frozenset[str](), frozenset({"127.0.0.1"})):
            with captured(propagate_to=allowed):
                client = kit.client(server)
                with clew.run("agent"):
                    await kit.ask(
                        client, extra_headers={"traceparent": f"00-{'1' * 32}-{'2' * 16}-01"}
                    )
                await settle(client.close())
        kept = [
            {name.lower() for name, _ in request.headers} & headers for request in server.requests
        ]
    assert kept[0] == set()
    assert "traceparent" in kept[1]


@pytest.mark.kits(asynchronous=True)
async def test_concurrent_runs_stay_apart(kit: Any):
    """Twenty runs at once in one loop: each call is a round of its own run."""
    reply = dataclasses.replace(kit.reply, delay=0.02)
    with ScriptedProvider(lambda _: reply) as server, captured() as exporter:
        clients = [kit.client(server) for _ in range(4)]

        async def agent(number: int) -> uuid.UUID:
            async with clew.run(f"agent{number}") as run:
                await kit.ask(clients[number % 4])
                stream = await kit.stream(clients[number % 4])
                assert [chunk async for chunk in stream]
                return run.run_id

        ids = await asyncio.gather(*(agent(number) for number in range(20)))
        for client in clients:
            await client.close()
        rounds = [span for span in exporter.spans if "clew.attempts" in span.attributes]
    assert len(rounds) == 40
    for run_id in ids:
        own = [span for span in rounds if span.context.trace_id == run_id.int]
        assert [span.attributes["clew.round"] for span in own] == [1, 2]


@pytest.mark.kits(asynchronous=False)
async def test_a_run_carried_into_a_thread(kit: Any):
    """`clew.bind` takes the run along into a thread."""
    with ScriptedProvider([kit.reply] * 2) as server, captured() as exporter:
        client = kit.client(server)

        def call() -> Any:
            return kit.resource(client).create(**kit.arguments())

        loop = asyncio.get_running_loop()
        with clew.run("agent") as run:
            await loop.run_in_executor(None, clew.bind(call))
        await loop.run_in_executor(None, call)
        await settle(client.close())
        inside, outside = [s for s in exporter.spans if "clew.attempts" in s.attributes]
    assert inside.context.trace_id == run.run_id.int
    assert outside.context.trace_id != run.run_id.int
    assert "clew.run.id" not in outside.attributes


RESUMING = """
import asyncio, sys
import anthropic, openai
import clew
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

reference, base_url, endpoint, provider, twin = sys.argv[1:]
ask = {"model": "m", "messages": [{"role": "user", "content": "zqmark"}]}
options = {"base_url": base_url, "api_key": "key"}

def work():
    if provider == "openai":
        with openai.OpenAI(**options) as client:
            client.chat.completions.create(**ask)
    else:
        with anthropic.Anthropic(**options) as client:
            client.messages.create(**ask, max_tokens=9)

async def awork():
    if provider == "openai":
        async with openai.AsyncOpenAI(**options) as client:
            await client.chat.completions.create(**ask)
    else:
        async with anthropic.AsyncAnthropic(**options) as client:
            await client.messages.create(**ask, max_tokens=9)

clew.configure(
    settings=clew.Settings(digest_key="key"), span_exporters=[OTLPSpanExporter(endpoint)]
)
clew.instrument()
with clew.resume(reference):
    asyncio.run(awork()) if twin == "async" else work()
clew.shutdown()
"""


async def test_a_run_resumed_in_another_process(kit: Any):
    """The reference is enough: the same trace goes on elsewhere, with the totals carried over."""
    with ScriptedProvider([kit.reply] * 2) as server, OtlpSink() as sink:
        settings = clew.Settings(digest_key="key")
        clew.configure(settings=settings, span_exporters=[exporter_to(sink)])
        clew.instrument()
        try:
            client = kit.client(server)
            with clew.run("agent") as run:
                await kit.ask(client)
                reference = run.suspend()
            await settle(client.close())
        finally:
            clew.uninstrument()
            clew.shutdown()
        command = [sys.executable, "-c", RESUMING, reference]
        result = await asyncio.to_thread(
            subprocess.run,
            [
                *command,
                server.openai_base_url if kit.provider == "openai" else server.base_url,
                sink.traces_endpoint,
                kit.provider,
                "async" if kit.asynchronous else "sync",
            ],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert (result.returncode, result.stderr) == (0, "")
        assert {span.trace_id for span in sink.spans} == {run.run_id.bytes}
        roots = [a for a in map(attributes_of, sink.spans) if a.get("clew.run.root")]
        assert b"zqmark" not in b"".join(sink.bodies)
    assert [root["clew.run.rounds"] for root in roots] == [1, 2]
    assert [root["clew.run.usage.input_tokens"] for root in roots] == [100, 200]
    assert [root["clew.segment.usage.input_tokens"] for root in roots] == [100, 100]
    assert [root["clew.segment"] for root in roots] == [1, 2]
