"""The loop and the adapters go on while what records them raises, function by function."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Iterator
from pathlib import Path
from types import CodeType
from typing import Any

import pytest
import seams
from apart import APART
from turns import in_force, reached_by, start, wrongs

from clew.loop import Loop, Tool, Trace
from clew.prompts.configuration import Configuration
from clew.providers import provider as adapter
from clew.settings import Settings
from clew.testing import CaptureExporter, Reply, ScriptedProvider, ScriptedToolCall

PACKAGES = (
    "clew.pipeline", "clew.pricing",
    *(
        f"clew.{name}"
        for name in (
            "runs", "rounds", "spans", "tools", "exchange", "attempts", "streams", "decisions", "captured",
            "describe", "sealing", "digests", "integrity", "rules",
        )
    ),
)  # fmt: skip
MODULES = [each.__name__ for each in seams.modules(*PACKAGES)]
_ASKED = "is a part of the result that the caller has asked for"
_ENTRANCE = "is an entrance: what is below it is guarded"
_TEST = "is called here by the test itself"
_GUARD = "reads or sets a variable, for every call; or is the guard of a thread"
LEFT: dict[str, str] = {
    **APART,
    **dict.fromkeys(
        (
            "clew.pipeline.runtime.get", "clew.pipeline.runtime.set_current",
            "clew.pipeline.worker.Worker._run", "clew.pipeline.meters.OwnMeters._run",
        ),
        _GUARD,
    ),
    **dict.fromkeys(
        (
            "clew.pipeline.stamp.Segment.cumulative", "clew.pipeline.totals.Totals.add_usage",
            "clew.pipeline.totals.Totals.add_cost_of", "clew.tools.canonical",
        ),
        _ASKED,
    ),
    **dict.fromkeys(
        (
            "clew.runs.run", "clew.rounds.Hops.__init__", "clew.tools.ToolCall.__enter__",
            "clew.tools.ToolCall.__aenter__",
        ),
        _ENTRANCE,
    ),
    "clew.pipeline.worker.Worker.wake": _TEST,
}  # fmt: skip


def answer(request: Any) -> Reply:
    if b'"role":"tool"' in request.body.replace(b" ", b""):
        return Reply(text=("do", "ne"))
    return Reply(tool_calls=(ScriptedToolCall(id="c1", name="find", arguments={"number": "P"}),))


class Service:
    """A service that runs the loop, and all that it sees of it."""

    def __init__(self, provider: ScriptedProvider) -> None:
        self.provider = provider
        self.called: list[str] = []

    def find(self, number: str) -> str:
        """Find a parcel."""
        self.called.append(number)
        return f"parcel {number}"

    def work(self) -> list[Any]:
        self.called.clear()
        first = len(self.provider.requests)
        found = [self._result(asynchronous=False), self._result(asynchronous=True)]
        asked = self.provider.requests[first:]
        return [*found, list(self.called), [(each.path, each.body) for each in asked]]

    def _result(self, *, asynchronous: bool) -> tuple[Any, ...]:
        by = adapter("openai", api_key="k", base_url=self.provider.openai_base_url, retries=0)
        configuration = Configuration(provider="openai", model="gpt-5-mini", tools=("find",))
        loop = Loop(configuration, by, tools=(Tool.of(self.find, effect="read_only"),))
        trace = Trace()

        async def asynchronously() -> Any:
            try:
                return await loop.arun("Where?", trace=trace)
            finally:
                await by.aclose()

        if asynchronous:
            got = asyncio.run(asynchronously())
        else:
            got = loop.run("Where?", trace=trace)
            by.close()
        steps = [(step.kind, step.round, step.tool_name) for step in trace.steps]
        return got.text, got.status, got.reason, got.rounds, steps


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with ScriptedProvider(answer) as provider:
        yield Service(provider)


@pytest.fixture(scope="module")
def bare(service: Service) -> list[Any]:
    """What the service sees without Clew."""
    return service.work()


def configure(folder: Path) -> None:
    settings = Settings(
        digest_key="k", export_delay_ms=20, seal_grace_s=0, data_dir=folder, capture="redacted",
        content_to=frozenset({"spans"}),
    )  # fmt: skip
    start(settings, CaptureExporter())


@pytest.fixture(scope="module")
def reached(service: Service, tmp_path_factory: pytest.TempPathFactory) -> set[CodeType]:
    """The code that such a service reaches at all."""

    def work() -> None:
        configure(tmp_path_factory.mktemp("reached"))
        service.work()

    return reached_by(work)


@pytest.mark.parametrize("module", MODULES)
def test_the_loop_goes_on_while_a_function_raises(
    module: str, service: Service, bare: list[Any], reached: set[CodeType], tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    """The same answers, steps, tool calls and requests as without Clew; counted, and logged once."""
    chosen = seams.chosen(module, PACKAGES, reached, LEFT)
    if chosen:
        configure(tmp_path)

    def work() -> list[Any]:
        seen = contextvars.copy_context().run(service.work)
        in_force().worker.flush(0.5)
        return seen

    assert wrongs(chosen, work, bare, caplog, inside=True) == {}
