"""Runs that are sampled out, and what keeps them."""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import msgspec
import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased

import clew
from clew import semconv
from clew.audit.verify import verify
from clew.facts import Usage
from clew.pipeline import runtime
from clew.pipeline.keeping import Keeper
from clew.pipeline.sampling import (
    RunRatioSampler,
    drops_some,
    from_environment,
    harms_runs,
    kept_at,
    randomness,
)
from clew.settings import Settings
from clew.sources.otlp_json import record_of
from clew.store import otlp_json
from clew.testing import CaptureExporter, Reply, ScriptedProvider

BODY = {"model": "gpt-5-mini", "messages": [{"role": "user", "content": "hello"}]}
Configured = Callable[..., CaptureExporter]


@pytest.fixture
def configured() -> Iterator[Configured]:
    """Return what configures Clew with a sampler that drops every run of these tests."""

    def configure(ratio: str = "0", **settings: Any) -> CaptureExporter:
        exporter = CaptureExporter()
        chosen = Settings.from_environment(export_delay_ms=20, seal_grace_s=0.0, **settings)
        clew.configure("tests", settings=chosen, span_exporters=[exporter])
        clew.instrument()
        current = runtime.get()
        assert current is not None
        # The provider of a process is made once: give it the sampler of this test.
        assert current.light is not None
        current.light._sampler = RunRatioSampler(float(ratio))
        if chosen.keep or chosen.keep_above_usd is not None:
            current.keeper = Keeper(
                chosen.keep,
                chosen.keep_above_usd,
                chosen.keep_spans,
                current.light.finish,
                current.segments,
            )
            current.light.hold(TracerProvider(), current.keeper)
        return exporter

    yield configure
    clew.uninstrument()
    clew.shutdown()


def plain() -> None:
    with clew.run("desk"), clew.tool("search", effect="read_only"):
        clew.decide("tool", "allow", subject="search")


def denied() -> None:
    with clew.run("desk"), clew.tool("search", effect="read_only"):
        clew.decide("tool", "deny", subject="search")


def asking() -> None:
    with clew.run("desk"):
        clew.decide("approval", "require_approval", subject="refund")


def failing() -> None:
    with pytest.raises(ValueError, match="no"), clew.run("desk"), clew.tool("search"):
        raise ValueError("no")


def writing() -> None:
    with clew.run("desk"), clew.tool("refund", effect="idempotent_write"):
        pass


def exported_of(exporter: CaptureExporter) -> CaptureExporter:
    """Return the exporter once everything has left."""
    clew.shutdown()
    return exporter


@pytest.mark.parametrize(
    ("work", "rule"),
    [(denied, "deny"), (asking, "require_approval"), (failing, "error"), (writing, "write")],
)
def test_what_matters_keeps_the_whole_run(
    configured: Configured, work: Callable[[], None], rule: str
) -> None:
    """From its first span to its seal; a run in which nothing happened leaves nothing."""
    exporter = configured(keep=frozenset({rule}))
    plain()
    work()
    exported_of(exporter)
    traces = {span.context.trace_id for span in exporter.spans if span.context}
    assert len(traces) == 1
    names = [span.name.split(" ")[0] for span in exporter.spans]
    assert (names[0], names[-1]) == ("run_started", "run_sealed")
    document = exporter.otlp_json()
    batch = otlp_json.decode(msgspec.json.encode(document))
    seal = next(s for s in batch.spans if s.attributes.get(semconv.RUN_EVENT) == "sealed")
    seqs = sorted(s.seq for s in batch.spans if s.seq is not None and s is not seal)
    assert seqs == list(range(1, seal.attributes[semconv.SEAL_LAST_SEQ] + 1))


@pytest.mark.parametrize("work", [denied, asking, failing, writing, plain])
def test_rules_that_are_switched_off_keep_nothing(
    configured: Configured, work: Callable[[], None]
) -> None:
    """Without rules a run that is sampled out records nothing at all."""
    exporter = configured(keep=frozenset())
    work()
    with clew.run("desk") as run:
        assert not run.span.is_recording()
    exported_of(exporter)
    assert exporter.spans == ()


def test_a_cost_above_the_bound_keeps_the_run(configured: Configured) -> None:
    """Below the bound it is forgotten."""
    hosts = {"127.0.0.1": "openai"}
    exporter = configured(keep=frozenset(), keep_above_usd=0.001, provider_hosts=hosts)
    current = runtime.get()
    assert current is not None
    assert current.prices.wait(10)
    with ScriptedProvider() as provider, httpx.Client() as client:
        for tokens in (10, 10_000):
            provider.add(Reply(text="hi", usage=Usage(input_tokens=tokens, output_tokens=tokens)))
            with clew.run("desk"):
                client.post(f"{provider.base_url}/v1/chat/completions", json=BODY)
    exported_of(exporter)
    roots = exporter.by_name("invoke_agent")
    assert [(span.attributes or {})["clew.run.usage.input_tokens"] for span in roots] == [10_000]


def test_spans_after_the_release_follow_at_once(configured: Configured) -> None:
    """What ends later is not held back."""
    exporter = configured()
    with clew.run("desk"):
        clew.decide("tool", "deny", subject="search")
        with clew.tool("search"):
            pass
        current = runtime.get()
        assert current is not None
        current.settle(everywhere=True)
        current.worker.flush(5)
        assert [span.name.split(" ")[0] for span in exporter.spans] == [
            *("run_started", "decide", "execute_tool")
        ]


def test_the_buffer_is_bounded_and_says_so(configured: Configured) -> None:
    """The run that began first is given up; kept all the same, it is visibly not whole."""
    exporter = configured(keep_spans=20)
    with clew.run("first") as first:
        for _ in range(15):
            with clew.tool("search"):
                pass
        with clew.run("second", run_id=uuid.uuid4()):
            for _ in range(15):
                with clew.tool("search"):
                    pass
        current = runtime.get()
        assert current is not None
        assert current.keeper is not None
        assert current.keeper.overflowed == 16
        clew.decide("tool", "deny", subject="search")
    exported_of(exporter)
    spans = otlp_json.decode(msgspec.json.encode(exporter.otlp_json())).spans
    assert {span.trace_id for span in spans} == {first.trace_id}
    report = verify(record_of(first.trace_id, list(spans)))
    assert report.status == "INCOMPLETE"
    assert report.segments[0].missing_seqs == tuple(range(2, 18))


async def test_parallel_runs_are_kept_apart(configured: Configured) -> None:
    """One denial keeps one run."""
    exporter = configured()

    async def one(number: int) -> None:
        with clew.run("desk", message_id=f"m-{number}"):
            await asyncio.sleep(0.001 * (number % 5))
            if number % 10 == 3:
                clew.decide("tool", "deny", subject="search")
            await asyncio.sleep(0.001)

    await asyncio.gather(*(one(number) for number in range(40)))
    exported_of(exporter)
    kept = {
        (span.attributes or {})[semconv.MESSAGE_ID] for span in exporter.by_name("invoke_agent")
    }
    assert kept == {"m-3", "m-13", "m-23", "m-33"}
    current = runtime.get()
    assert current is None


@pytest.mark.parametrize("kept", [False, True])
async def test_what_ends_after_the_seal_goes_the_way_of_its_run(
    configured: Configured, kept: bool
) -> None:
    """A late span of a run that was forgotten is no trace of its own; of a kept run it leaves."""
    exporter = configured()
    sealed = asyncio.Event()

    async def late() -> None:
        with clew.tool("search"):
            await sealed.wait()

    async with clew.run("desk") as run:
        task = asyncio.create_task(late())
        await asyncio.sleep(0)
        if kept:
            clew.decide("tool", "deny", subject="search")
    current = runtime.get()
    assert current is not None
    patience = time.monotonic() + 10
    while current.segments.of_trace(run.run_id.int) is not None:
        assert time.monotonic() < patience
        await asyncio.sleep(0.01)
    sealed.set()
    await task
    exported_of(exporter)
    assert len(exporter.by_name("execute_tool")) == int(kept)
    assert len(exporter.spans) == (5 if kept else 0)


def test_a_resumed_segment_of_a_kept_run_is_kept(configured: Configured) -> None:
    """In the same process, before and after the seal of the segment before it."""
    exporter = configured()
    with clew.run("desk") as run:
        clew.decide("approval", "require_approval", subject="refund")
        reference = run.suspend()
    with clew.resume(reference), clew.tool("search", effect="read_only"):
        pass
    exported_of(exporter)
    record = record_of(
        run.trace_id, list(otlp_json.decode(msgspec.json.encode(exporter.otlp_json())).spans)
    )
    assert verify(record).status == "COMPLETE"
    assert len(exporter.by_name("invoke_agent")) == 2


def test_a_seal_forgets_no_segment_that_goes_on(configured: Configured) -> None:
    """What has ended of a run's next segment waits, and leaves with it."""
    exporter = configured()
    with clew.run("desk") as run:
        reference = run.suspend("waiting_for_input")
    with clew.resume(reference):
        with clew.tool("search", effect="read_only"):
            pass
        time.sleep(0.2)  # the first segment is sealed
        clew.decide("tool", "deny", subject="search")
    exported_of(exporter)
    assert len(exporter.by_name("execute_tool")) == 1


def test_calls_outside_runs_are_decided_on_when_they_end(configured: Configured) -> None:
    """Ten thousand of them leave nothing behind; one that failed is kept."""
    exporter = configured(keep_spans=100)
    for _ in range(10_000):
        with clew.tool("search"):
            pass
    with pytest.raises(ValueError, match="no"), clew.tool("broken"):
        raise ValueError("no")
    current = runtime.get()
    assert current is not None
    keeper = current.keeper
    assert keeper is not None
    assert (keeper.overflowed, keeper._size, len(keeper._held)) == (0, 0, 0)
    exported_of(exporter)
    assert [span.name for span in exporter.spans] == ["execute_tool broken"]


def test_runs_keep_their_share(configured: Configured) -> None:
    """Under a ratio the sampled runs leave as ever, the others by the rules."""
    exporter = configured("0.5")
    ids = [uuid.uuid4() for _ in range(60)]
    for run_id in ids:
        with clew.run("desk", run_id=run_id):
            pass
    exported_of(exporter)
    found = {span.context.trace_id for span in exporter.by_name("invoke_agent") if span.context}
    assert found == {each.int for each in ids if kept_at(each.int, 0.5)}


def test_a_uuid_that_is_not_random_says_what_it_was_sampled_by() -> None:
    """Others that sample by the same bits decide alike: `ot=rv` of the trace state."""
    named = uuid.uuid5(uuid.NAMESPACE_URL, "x").int
    result = RunRatioSampler(1).should_sample(None, named, "run")
    assert result.trace_state is not None
    assert result.trace_state.get("ot") == f"rv:{randomness(named):014x}"
    assert RunRatioSampler(1).should_sample(None, uuid.uuid4().int, "run").trace_state is None


def test_samplers_that_drop_and_samplers_that_harm() -> None:
    """The SDK's ratio sampler looks at bits that a uuid does not have at random."""
    assert drops_some(ParentBased(RunRatioSampler(0.5)))
    assert not drops_some(RunRatioSampler(1))
    assert from_environment({}) is None
    assert not drops_some(TracerProvider().sampler)
    assert harms_runs(ParentBased(TraceIdRatioBased(0.5)))
    assert not harms_runs(TracerProvider().sampler)


def test_a_host_that_samples_by_the_sdks_ratio_is_warned(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Once, at configure, with what to use instead."""
    provider = TracerProvider(sampler=ParentBased(TraceIdRatioBased(0.5)))
    with caplog.at_level(logging.WARNING, logger="clew"):
        clew.configure("tests", tracer_provider=provider, span_exporters=[CaptureExporter()])
    assert "RunRatioSampler" in caplog.text
