"""Every function of ours that works between a service and its model raises in turn.

Above the pipeline, the store and the dialects: taps, gates, what records runs, rounds, tools and
decisions, prompts, content and its recording. A function is made to raise where code of ours calls
it; what the service calls itself is an entrance.
"""

from __future__ import annotations

import asyncio
import contextvars
import re
from collections.abc import Iterator
from pathlib import Path
from types import CodeType
from typing import Any

import aiohttp
import httpx
import openai
import pytest
import seams
from apart import APART, DONE_ANEW
from opentelemetry import trace
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from turns import in_force, reached_by, start, unnumbered, wrongs

import clew
from clew import context
from clew.prompts import Prompt
from clew.settings import Settings
from clew.testing import CaptureExporter, Reply, ScriptedProvider, ScriptedToolCall

ROOMS = (
    "clew.taps",
    "clew.governance",
    "clew.gates",
    "clew.recording",
    "clew.content",
    "clew.prompts",
    "clew.pricing",
)
SINGLE = (
    "runs", "rounds", "spans", "tools", "exchange", "attempts", "streams", "context", "decisions", "captured",
    "capturing", "describe", "sealing", "wrapping", "terms", "references", "actors", "levels",
    "digests", "integrity", "rules", "ids", "redaction", "facts", "accounts", "allow_list",
)  # fmt: skip
PACKAGES = (*ROOMS, *(f"clew.{name}" for name in SINGLE))
PLAIN: dict[str, Any] = {"trust_env": False, "verify": False}  # loads no certificates
PROMPT_TEXT = "You are a desk. zqmark"


def answer(request: Any) -> Reply:
    if b'"broken"' in request.body:
        return Reply.failure(429, "zqmark", headers={"x-should-retry": "false"})
    if b'"slow"' in request.body:
        return Reply(text="late", delay=0.5)
    if b'"tools"' in request.body:
        call = ScriptedToolCall(id="c1", name="search", arguments={"q": "zqmark"})
        return Reply(tool_calls=(call,))
    return Reply(text=("zq", "mark"))


class Service:
    """What a service does with a model, and all that it sees of it."""

    def __init__(self, provider: ScriptedProvider) -> None:
        self.provider = provider
        self.chat = provider.openai_base_url + "/chat/completions"

    def ask(self, model: str = "gpt-5-mini", **more: Any) -> dict[str, Any]:
        system = {"role": "system", "content": PROMPT_TEXT}
        return {"model": model, "messages": [system, {"role": "user", "content": "Hi"}], **more}

    def work(self) -> list[Any]:
        first = len(self.provider.requests)
        seen = [*self._sync(), *asyncio.run(self._awork())]
        asked = self.provider.requests[first:]
        seen += [(each.method, each.path, sorted(each.headers), each.body) for each in asked]
        assert context.current_node() is None, "a run is still current"
        assert not trace.get_current_span().get_span_context().is_valid
        return seen

    def _sync(self) -> list[Any]:
        seen: list[Any] = []
        tools = [{"type": "function", "function": {"name": "search", "parameters": {}}}]

        @clew.tool("look_up", effect="read_only")
        def look_up(query: str) -> str:
            return query * 2

        @clew.tool
        def listing() -> Iterator[int]:
            yield from (1, 2)

        @clew.run("helper")
        def helper() -> int:
            return 7

        base = self.provider.openai_base_url
        with (
            clew.run("desk", actor="ann", tenant="acme", conversation_id="c-1") as run,
            httpx.Client(**PLAIN) as http,
            openai.OpenAI(base_url=base, api_key="k", max_retries=0, http_client=http) as client,
        ):
            made = client.chat.completions.create(**self.ask(tools=tools))
            seen.append(_plain(made.model_dump_json()))
            with clew.tool("search", call_id="c1", arguments={"q": "zqmark"}) as tool:
                tool.returned("zqmark")
            streamed = client.chat.completions.create(**self.ask(stream=True))
            seen += [_plain(each.model_dump_json()) for each in streamed]
            left = client.chat.completions.create(**self.ask(stream=True))
            next(iter(left))
            left.close()
            seen += [look_up("zq"), list(listing()), helper()]
            clew.decide("mine", "deny", reason="because", enforced=True, policy="p")
            with clew.decide("budget") as decision:
                decision.outcome = "allow"
            with trace.get_tracer("other").start_as_current_span("inner") as inner:
                inner.set_attribute("message", "zqmark")
            with clew.capture("none"):
                got = http.post(self.chat, json=self.ask())
                seen.append((got.status_code, _plain(got.content)))
            for wrong in (LookupError("mine"), KeyboardInterrupt()):
                try:
                    with clew.run("inner"), clew.tool("search"):
                        raise wrong
                except BaseException as error:
                    seen.append((type(error), error is wrong))
            try:
                client.chat.completions.create(**self.ask("broken"))
            except openai.RateLimitError as error:
                seen.append(error.status_code)
            run.uses("notes", "source_code")
            reference = run.suspend()
        with clew.resume(reference) as again:
            seen.append(again.run_id == run.run_id)
        return seen

    async def _awork(self) -> list[Any]:
        seen: list[Any] = []

        @clew.tool("alook", effect="idempotent_write")
        async def look_up(query: str) -> str:
            return query * 2

        @clew.tool
        async def listing() -> Any:
            yield 1
            yield 2

        base = self.provider.openai_base_url
        http = httpx.AsyncClient(**PLAIN)
        client = openai.AsyncOpenAI(base_url=base, api_key="k", max_retries=0, http_client=http)
        async with clew.run("desk"), client, aiohttp.ClientSession() as session:
            made = await client.chat.completions.create(**self.ask())
            seen.append(_plain(made.model_dump_json()))
            streamed = await client.chat.completions.create(**self.ask(stream=True))
            seen += [_plain(each.model_dump_json()) async for each in streamed]
            seen += [await look_up("zq"), [each async for each in listing()]]
            async with session.post(self.chat, json=self.ask()) as got:
                seen.append((got.status, _plain(await got.read())))
            async with session.post(self.chat, json=self.ask(stream=True)) as got:
                pieces = [each async for each in got.content.iter_any()]
                seen.append(_plain(b"".join(pieces)))
            before = len(self.provider.requests)
            task = asyncio.ensure_future(client.chat.completions.create(**self.ask("slow")))
            while len(self.provider.requests) == before:  # noqa: ASYNC110 - of another thread
                await asyncio.sleep(0.001)
            task.cancel()
            seen.append((await asyncio.gather(task, return_exceptions=True))[0].__class__)
        return seen


def _plain(data: str | bytes) -> bytes:
    data = data.encode() if isinstance(data, str) else data
    return re.sub(rb'"created":\s*\d+', b"", unnumbered(data))


class Gate:
    """Looks at everything, and lets everything pass."""

    name = "mine"
    rank = 1
    mode = "enforce"
    mandatory = False
    kinds = frozenset({"model_call", "tool_call", "model_output"})

    def check(self, proposal: Any) -> None:
        return None


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with ScriptedProvider(answer) as provider:
        yield Service(provider)


@pytest.fixture(scope="module")
def bare(service: Service) -> list[Any]:
    """What the service sees without Clew."""
    return service.work()


def configure(folder: Path, gates: tuple[Any, ...]) -> None:
    settings = Settings(
        digest_key="k", export_delay_ms=20, seal_grace_s=0, shutdown_s=3, data_dir=folder,
        capture="redacted", content_to=frozenset({"spans", "store"}), prompt_capture=True,
        metric_readers=(InMemoryMetricReader(),), gates=gates, audit="best_effort",
    )  # fmt: skip
    start(settings, CaptureExporter())
    assert Prompt.of(identity=PROMPT_TEXT) == PROMPT_TEXT


def settle() -> None:
    """Let the other threads do what they have to do."""
    current = in_force()
    current.settle(everywhere=True)
    current.worker.flush(2)
    if current.recording is not None:
        current.recording.flush(10)


GOVERNED = ("clew.governance", "clew.gates", "clew.taps.governed", "clew.taps.windowed")
"""Rooms that have work only where a gate stands."""
MODULES = [each.__name__ for each in seams.modules(*PACKAGES)]


def gates_for(module: str) -> tuple[Any, ...]:
    return (Gate(),) if module.startswith(GOVERNED) else ()


@pytest.fixture(scope="module")
def reached(service: Service, tmp_path_factory: pytest.TempPathFactory) -> set[CodeType]:
    """The code that such a service reaches at all, with gates and without."""
    found: set[CodeType] = set()
    for gates in ((), (Gate(),)):

        def work(gates: tuple[Any, ...] = gates) -> None:
            configure(tmp_path_factory.mktemp("reached"), gates)
            service.work()

        found |= reached_by(work)
    return found


@pytest.mark.parametrize("module", MODULES)
def test_each_function_above_raises_in_turn(
    module: str, service: Service, bare: list[Any], reached: set[CodeType], tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    """The service sees what it sees without Clew; the fault is counted, and logged once a kind."""
    chosen = seams.chosen(module, PACKAGES, reached, APART)
    if chosen:
        configure(tmp_path, gates_for(module))

    def work() -> list[Any]:
        seen = contextvars.copy_context().run(service.work)
        settle()
        return seen

    assert wrongs(chosen, work, bare, caplog, inside=True, uncounted=DONE_ANEW) == {}
