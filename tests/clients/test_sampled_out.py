"""Calls of a run that is sampled out, where nobody looks at what they say."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import httpx2
import pytest
from either_way import settle
from kits.comparing import compared
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.sampling import DEFAULT_ON

import clew
from clew.gates.budget import BudgetGate, Limit
from clew.pipeline.sampling import RunRatioSampler
from clew.rounds import Round
from clew.testing import Reply, ScriptedProvider, captured


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """No run is sampled; give a list to which each call adds how it was read to its end."""
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "traceidratio")
    monkeypatch.setenv("OTEL_TRACES_SAMPLER_ARG", "0.0")
    monkeypatch.setenv("OTEL_METRICS_EXPORTER", "none")
    # Its client would keep a tracer with this sampler for all tests after these.
    monkeypatch.setenv("ANTHROPIC_OPEN_TELEMETRY", "false")
    provider = trace.get_tracer_provider()
    before = getattr(provider, "sampler", DEFAULT_ON)
    if isinstance(provider, TracerProvider):  # of a test before this one: a process has one
        provider.sampler = RunRatioSampler(0.0)
    found: list[str] = []
    original = Round.finish

    def finish(self: Round, ending: Any) -> None:
        found.append("streamed" if ending.outcome else "whole")
        original(self, ending)

    monkeypatch.setattr(Round, "finish", finish)
    yield found
    cast("TracerProvider", trace.get_tracer_provider()).sampler = before


@pytest.mark.kits("all")
async def test_answers_are_not_read(kit: Any, read: list[str], monkeypatch: pytest.MonkeyPatch):
    """The caller gets what it gets without Clew; calls are counted, and their usage is unknown."""
    totals: list[Any] = []

    async def no_round_comes(_exporter: Any) -> None:
        return

    monkeypatch.setattr("kits.comparing.ended", no_round_comes)

    async def scenario(session: Any) -> Any:
        with clew.run("desk") as run:
            asked = await kit.ask(session.client)
            stream = await kit.stream(session.client)
            streamed = [chunk async for chunk in kit.chunks(stream)]
            totals.append(run.totals)
        assert read == []
        return asked, streamed

    found = await compared(kit, scenario, [kit.reply] * 2, {"keep": frozenset()}, {})
    assert (found.error, found.rounds, found.spans) == (None, [], ())
    without, counted = totals
    assert without.rounds == 0
    assert (counted.rounds, counted.rounds_without_usage) == (2, 2)


@pytest.mark.kits("sdks", having="retries")
async def test_attempts_are_one_call(kit: Any, read: list[str]):
    """What an SDK sends again is counted once, as for a run that is recorded."""
    refused = Reply.failure(kit.retried, "later", retry_after_ms=10)
    with ScriptedProvider([refused, kit.reply], formats=kit.formats) as server:
        with captured(keep=frozenset()):
            client = await settle(kit.client(server, retries=2))
            with clew.run("desk") as run:
                await kit.ask(client)
            await kit.close(client)
        assert len(server.requests) == 2
    assert read == []
    assert run.totals.rounds == (1 if kit.grouped else 2)


@pytest.mark.parametrize(
    "reason", ["nothing", "gates", "an inner run's gates", "capture", "keep rules"]
)
def test_who_needs_answers_has_them_read(reason: str, read: list[str]):
    """Gates, captured content and keep rules need what answers say, whether a span is kept or not."""
    more = {"keep": {"deny"} if reason == "keep rules" else frozenset()}
    if reason == "capture":
        more["capture"] = "full"
    outer = (
        [BudgetGate(Limit(per="everything", period="day", requests=9))] if reason == "gates" else []
    )
    inner = (
        [BudgetGate(Limit(per="everything", period="day", requests=9))] if "inner" in reason else []
    )
    body = {"model": "gpt-4o", "messages": [{"role": "user", "content": "hi"}]}
    with ScriptedProvider([Reply(text="yes")]) as server, captured(**more):
        with (
            httpx2.Client() as client,
            clew.run("desk", gates=outer) as run,
            clew.run("helper", gates=inner),
        ):
            client.post(f"{server.openai_base_url}/chat/completions", json=body)
        counted = run.totals
    assert read == ([] if reason == "nothing" else ["whole"])
    assert counted.rounds == 1
    assert counted.rounds_without_usage == (1 if reason == "nothing" else 0)


@pytest.mark.parametrize("used", ["block", "function"])
async def test_tool_calls_are_counted(used: str, read: list[str]):
    """What they do runs as ever, in the context of the run, and each is one."""
    seen: list[Any] = []

    def look() -> None:
        seen.append((clew.current_run(), trace.get_current_span().get_span_context().is_valid))

    with captured(keep=frozenset()) as exported, clew.run("desk") as run:
        for _ in range(2):
            if used == "function":
                clew.tool("find")(look)()
            else:
                with clew.tool("find"):
                    look()
        async with clew.tool("send"):
            with clew.tool("look up"), pytest.raises(ValueError, match="mine"):
                raise ValueError("mine")
        totals = run.totals
    assert seen == [(run, True)] * 2
    assert totals.tool_calls == 4
    assert exported.spans == ()
    assert read == []
