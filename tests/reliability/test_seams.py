"""Every function of the pipeline, the store and the dialects raises in turn: the host never notices."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType
from typing import Any

import httpx
import pytest
import seams
from opentelemetry import trace
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from turns import reached_by, start, unnumbered, wrongs

import clew
from clew import _guard
from clew.errors import PolicyDenied
from clew.pipeline import stamp
from clew.pipeline.otlp_spool import SpoolingOTLPSpanExporter
from clew.settings import Settings
from clew.testing import OtlpSink, Reply, ScriptedProvider

PACKAGES = ("clew.pipeline", "clew.store", "clew.dialects")
MODULES = [each.__name__ for each in seams.modules(*PACKAGES)]
GUARDS = {
    "clew.pipeline.processor.RootProcessor.on_start": "called by OpenTelemetry; all of it is guarded",
    "clew.pipeline.processor.RootProcessor.on_end": "called by OpenTelemetry; all of it is guarded",
    "clew.pipeline.runtime.get": "reads a variable, for every call of the host",
    "clew.pipeline.runtime.set_current": "sets a variable",
    "clew.pipeline.worker.Worker._run": "the guard around the export thread's turns",
    "clew.pipeline.meters.OwnMeters._run": "the guard around the metrics thread's turns",
    "clew.pipeline.meters.OwnMeters._finish": "the last turn of the metrics thread, guarded",
}
"""Functions that are left out, with the reason: what is in them is guarded, they are the guard."""
ASK = {"model": "gpt-5-mini", "messages": [{"role": "user", "content": "zqmark"}]}
ASK_ANTHROPIC = {**ASK, "model": "claude-haiku-4-5", "max_tokens": 9}


class Host:
    """A service as it is with Clew and without: what it sees of a few calls."""

    def __init__(self, provider: ScriptedProvider) -> None:
        self._openai = provider.openai_base_url + "/chat/completions"
        self._anthropic = provider.base_url + "/v1/messages"
        self._provider = provider

    def work(self) -> list[Any]:
        """Return all that the service sees, and what the provider saw."""
        first = len(self._provider.requests)
        seen: list[Any] = []
        with clew.run("agent"), httpx.Client(trust_env=False) as client:
            seen += [self._plain(client.post(self._openai, json=ASK))]
            with client.stream("POST", self._openai, json={**ASK, "stream": True}) as answer:
                seen.append(unnumbered(b"".join(answer.iter_bytes())))
            seen += [self._plain(client.post(self._anthropic, json=ASK_ANTHROPIC))]
            with clew.tool("search", effect="idempotent_write") as tool:
                tool.result_bytes = 3
            clew.decide("tool", "deny", reason="no_rule", enforced=True)
            with trace.get_tracer("other").start_as_current_span("inner") as span:
                span.set_attribute("message", "zqmark")
            try:
                with clew.tool("search"):
                    raise LookupError("mine")
            except LookupError as error:
                seen.append(repr(error))
            seen += [self._plain(client.post(self._openai, json={**ASK, "model": "broken"}))]
        seen += asyncio.run(self._awork())
        seen += [
            (each.method, each.path, each.headers, each.body)
            for each in self._provider.requests[first:]
        ]
        return seen

    async def _awork(self) -> list[Any]:
        seen: list[Any] = []
        async with clew.run("agent"), httpx.AsyncClient(trust_env=False) as client:
            seen += [self._plain(await client.post(self._openai, json=ASK))]
            asked = {**ASK_ANTHROPIC, "stream": True}
            async with client.stream("POST", self._anthropic, json=asked) as answer:
                body = b"".join([each async for each in answer.aiter_bytes()])
                seen.append(unnumbered(body))
        return seen

    def _plain(self, answer: httpx.Response) -> tuple[int, bytes, int]:
        return answer.status_code, unnumbered(answer.content), len(answer.history)


def answer(request: Any) -> Reply:
    if b'"broken"' in request.body:
        return Reply.failure(400, "zqmark")
    return Reply(text="yes")


@pytest.fixture(scope="module")
def host() -> Iterator[Host]:
    with ScriptedProvider(answer) as provider:
        yield Host(provider)


@pytest.fixture(scope="module")
def sink() -> Iterator[OtlpSink]:
    with OtlpSink() as running:
        yield running


@pytest.fixture(scope="module")
def bare(host: Host) -> list[Any]:
    """What the service sees without Clew."""
    return host.work()


def configure(folder: Path, sink: OtlpSink) -> None:
    """Switch on all that a service can have of the three rooms."""
    import requests

    session = requests.Session()
    session.trust_env = False
    exporter = SpoolingOTLPSpanExporter(
        folder / "spool", 1 << 20, endpoint=sink.traces_endpoint, session=session, timeout=5
    )
    settings = Settings(
        digest_key="k", export_delay_ms=20, seal_grace_s=0, shutdown_s=3, data_dir=folder,
        capture="redacted", content_to=frozenset({"spans", "store"}), audit="best_effort",
        metric_readers=(InMemoryMetricReader(),), heartbeat_s=0.05,
    )  # fmt: skip
    start(settings, exporter)


@pytest.fixture(scope="module")
def reached(host: Host, sink: OtlpSink, tmp_path_factory: pytest.TempPathFactory) -> set[CodeType]:
    """The code that such a service reaches at all."""

    def work() -> None:
        configure(tmp_path_factory.mktemp("reached"), sink)
        host.work()

    return reached_by(work)


@pytest.mark.parametrize("module", MODULES)
def test_each_function_raises_in_turn(
    module: str, host: Host, bare: list[Any], reached: set[CodeType], sink: OtlpSink,
    tmp_path: Path, caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    """The service sees what it sees without Clew; the fault is counted, and logged once a kind."""

    @contextmanager
    def configured(name: str) -> Iterator[None]:
        configure(tmp_path / name, sink)
        try:
            yield
        finally:
            clew.uninstrument()
            clew.shutdown()

    def work() -> list[Any]:
        seen = host.work()
        clew.shutdown()
        return seen

    wrong = wrongs(
        seams.reachable(module, PACKAGES, reached, GUARDS), work, bare, caplog,
        inside=False, around=configured, lost_counts=True,
    )  # fmt: skip
    assert wrong == {}


class Gate:
    """Lets everything pass."""

    name = "mine"
    rank = 1
    mode = "enforce"

    def __init__(self, mandatory: bool) -> None:
        self.mandatory = mandatory
        self.kinds = frozenset({"model_call", "tool_call"})

    def check(self, proposal: Any) -> None:
        return None


@pytest.mark.parametrize("mandatory", [True, False])
def test_a_fault_before_a_gate_is_the_gates_fault(mandatory: bool, host: Host) -> None:
    """Nothing is sent past a mandatory gate that could not be asked; others are passed over."""
    settings = Settings(digest_key="k", gates=(Gate(mandatory),), seal_grace_s=0)
    clew.configure("tests", settings=settings, span_exporters=[])
    clew.instrument()
    cumulative = seams.functions(stamp)["clew.pipeline.stamp.Segment.cumulative"]
    first = len(host._provider.requests)
    outcomes: list[str] = []
    with seams.failing(cumulative), clew.run("agent"), httpx.Client(trust_env=False) as client:
        for work in (lambda: client.post(host._openai, json=ASK), _tool):
            try:
                work()
                outcomes.append("passed")
            except PolicyDenied as denied:
                outcomes.append(denied.reason)
    assert outcomes == (["gate_error"] * 2 if mandatory else ["passed"] * 2)
    assert len(host._provider.requests) - first == (0 if mandatory else 1)
    _guard.forget()


def _tool() -> None:
    with clew.tool("search"):
        pass
