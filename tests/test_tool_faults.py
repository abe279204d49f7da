"""Tool calls that tend to be shown wrongly: failures, parallel calls, changed arguments, odd names."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from mcp.types import CallToolResult
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.trace import StatusCode

import clew
from clew.pipeline import runtime
from clew.settings import Settings
from clew.taps import mcp
from clew.testing import CaptureExporter, Reply, ScriptedProvider

Configure = Callable[..., CaptureExporter]


@pytest.fixture
def configure() -> Iterator[Configure]:
    """Return what configures Clew with settings and gives its exporter."""

    def make(**more: Any) -> CaptureExporter:
        exporter = CaptureExporter()
        settings = Settings.from_environment(export_delay_ms=20, seal_grace_s=0.02, **more)
        clew.configure("tests", settings=settings, span_exporters=[exporter])
        clew.instrument()
        current = runtime.get()
        assert current is not None
        exporter.flush = lambda: current.worker.flush(5) and None
        return exporter

    yield make
    clew.shutdown()


def content(span: Any, key: str) -> Any:
    """Return captured content of a span."""
    return json.loads(span.attributes[f"gen_ai.tool.call.{key}"])


# --- failures ------------------------------------------------------------------------------------


class Flagged:
    """What an MCP server answers when its tool has failed: no exception, but a flag."""

    is_error = True
    content = ()


@pytest.mark.parametrize("case", ["raises", "flagged", "times out", "says error"])
async def test_a_failed_tool_is_not_a_success(configure: Configure, case: str) -> None:
    """Three ways to fail are errors with a type; the word 'error' in a good result is none."""
    exported = configure()

    async def session(name: str, arguments: Any) -> Any:
        return Flagged() if case == "flagged" else "no error was found"

    async with clew.run("triage"):
        if case == "raises":
            try:
                with clew.tool("search"):
                    raise ValueError("SECRET")
            except ValueError:
                pass
        elif case == "times out":
            try:
                async with clew.tool("search"), asyncio.timeout(0.01):
                    await asyncio.sleep(5)
            except TimeoutError:
                pass
        else:
            await mcp._call_tool(session, None, ("search", {}), {})
    (span,) = exported.by_name("execute_tool")
    (run,) = exported.by_name("invoke_agent")
    assert run.attributes["clew.run.status"] == "completed"
    told = (span.attributes["clew.tool.outcome"], span.attributes.get("error.type"))
    assert (
        told
        == {
            "raises": ("error", "ValueError"),
            "flagged": ("error", "error"),
            "times out": ("timeout", "TimeoutError"),
            "says error": ("ok", None),
        }[case]
    )
    failed = case != "says error"
    assert span.status.status_code is (StatusCode.ERROR if failed else StatusCode.UNSET)


FLAGGED: dict[str, Any] = {
    "object": CallToolResult(content=[], is_error=True),
    "json": {"content": [{"type": "text", "text": "no such place"}], "isError": True},
}
GOOD: dict[str, Any] = {
    "word": "error: none were found",
    "object": CallToolResult(content=[], is_error=False),
    "json": {"content": [{"type": "text", "text": "isError"}], "isError": False},
    "other json": {"error": "none", "is_error": True, "status": "error"},
}
RESULTS = [("error", name, value) for name, value in FLAGGED.items()] + [
    ("ok", name, value) for name, value in GOOD.items()
]


@pytest.mark.parametrize("form", ["block", "async block", "function", "coroutine"])
@pytest.mark.parametrize(
    ("outcome", "result"),
    [(outcome, value) for outcome, _, value in RESULTS],
    ids=[f"{outcome} {name}" for outcome, name, _ in RESULTS],
)
async def test_a_result_that_is_flagged_as_an_error_is_one(
    configure: Configure, outcome: str, result: Any, form: str
) -> None:
    """A flagged result that a tool passes on is its failure; a word in a good one is none."""
    exported = configure()

    @clew.tool
    def find(given: Any) -> Any:
        return given

    @clew.tool("find")
    async def afind(given: Any) -> Any:
        return given

    async with clew.run("triage"):
        if form == "function":
            assert find(result) is result
        elif form == "coroutine":
            assert await afind(result) is result
        elif form == "block":
            with clew.tool("find") as call:
                call.result = result
        else:
            async with clew.tool("find") as call:
                call.result = result
    (span,) = exported.by_name("execute_tool")
    (run,) = exported.by_name("invoke_agent")
    assert span.attributes["clew.tool.outcome"] == outcome
    assert span.attributes.get("error.type") == (None if outcome == "ok" else "error")
    failed = outcome != "ok"
    assert span.status.status_code is (StatusCode.ERROR if failed else StatusCode.UNSET)
    assert run.attributes["clew.run.status"] == "completed"


class Guarded:
    """A result that nobody may look into."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(name)


def test_other_results_are_not_looked_into(configure: Configure) -> None:
    """Whether an object of the host's is flagged is none of Clew's business: asking may do harm."""
    exported = configure()

    @clew.tool
    def find() -> Any:
        return Guarded()

    find()
    (span,) = exported.by_name("execute_tool")
    assert span.attributes["clew.tool.outcome"] == "ok"


# --- parallel calls ------------------------------------------------------------------------------


def three_calls(exported: CaptureExporter) -> dict[str | None, Any]:
    """Return the spans of the three parallel calls by id; each has what is its own."""
    spans = {
        span.attributes.get("gen_ai.tool.call.id"): span
        for span in exported.by_name("execute_tool")
    }
    assert {
        key: (content(span, "arguments")["query"], span.attributes["gen_ai.tool.call.result"])
        for key, span in spans.items()
    } == {
        "c1": ("one", '"found one"'),
        "c2": ("two", '"found two"'),
        None: ("three", '"found three"'),
    }
    return spans


async def test_parallel_calls_keep_what_is_theirs(configure: Configure) -> None:
    """Each has its own id, arguments, result and time, whatever the order in which they end."""
    exported = configure(capture="full", content_to=("spans",))

    @clew.tool
    async def search(query: str, seconds: float) -> str:
        await asyncio.sleep(seconds)
        return f"found {query}"

    async def call(call_id: str | None, query: str, seconds: float) -> None:
        with clew.tool("search", call_id=call_id, arguments={"query": query}) as called:
            await asyncio.sleep(seconds)
            called.result = f"found {query}"

    async with clew.run("triage"):
        await asyncio.gather(call("c1", "one", 0.3), call("c2", "two", 0.1), search("three", 0.0))
    spans = three_calls(exported)
    took = {key: (span.end_time - span.start_time) / 1e9 for key, span in spans.items()}
    assert 0.29 < took["c1"] < 0.9
    assert 0.09 < took["c2"] < took["c1"] - 0.1
    assert took[None] < took["c2"]


def test_parallel_calls_in_threads_keep_what_is_theirs(configure: Configure) -> None:
    """The same for threads, which end in another order than they began."""
    exported = configure(capture="full", content_to=("spans",))
    order: list[str] = []

    @clew.tool
    def search(query: str, seconds: float) -> str:
        time.sleep(seconds)
        order.append(query)
        return f"found {query}"

    def call(call_id: str, query: str, seconds: float) -> None:
        with clew.tool("search", call_id=call_id, arguments={"query": query}) as called:
            time.sleep(seconds)
            order.append(query)
            called.result = f"found {query}"

    with clew.run("triage") as run, ThreadPoolExecutor(3) as pool:
        jobs = [
            pool.submit(clew.bind(call), "c1", "one", 0.3),
            pool.submit(clew.bind(call), "c2", "two", 0.15),
            pool.submit(clew.bind(search), "three", 0.0),
        ]
        for job in jobs:
            job.result()
        assert run.totals.tool_calls == 3
    assert order == ["three", "two", "one"]
    spans = three_calls(exported)
    (run_span,) = exported.by_name("invoke_agent")
    assert {span.parent.span_id for span in spans.values()} == {run_span.context.span_id}
    took = {key: (span.end_time - span.start_time) / 1e9 for key, span in spans.items()}
    assert 0.3 <= took["c1"] < 2
    assert 0.15 <= took["c2"] < took["c1"]


# --- arguments that change -----------------------------------------------------------------------


@pytest.mark.parametrize("form", ["block", "function"])
def test_recorded_arguments_are_those_of_the_call(configure: Configure, form: str) -> None:
    """A tool that takes keys out of its arguments has not changed what was recorded."""
    exported = configure(capture="full", content_to=("spans",))
    given = {"place": "here", "more": {"deep": [1]}}

    @clew.tool("find")
    def find(arguments: dict[str, Any]) -> str:
        arguments["more"]["deep"].append(2)
        return arguments.pop("place")

    with clew.run("triage"):
        if form == "function":
            assert find(given) == "here"
        else:
            with clew.tool("find", arguments=given):
                given["more"]["deep"].append(2)  # type: ignore[index]
                given.pop("place")
    (span,) = exported.by_name("execute_tool")
    recorded = content(span, "arguments")
    wanted = {"place": "here", "more": {"deep": [1]}}
    assert recorded == ({"arguments": wanted} if form == "function" else wanted)


class Untouchable(dict[str, Any]):
    """Arguments that notice when they are copied or read through."""

    def items(self) -> Any:
        raise AssertionError

    __iter__ = keys = values = __copy__ = __deepcopy__ = items  # type: ignore[assignment]


@pytest.mark.parametrize("form", ["block", "function"])
def test_without_capture_nothing_is_copied(configure: Configure, form: str) -> None:
    """With capture off the arguments are not looked at."""
    exported = configure()
    given = Untouchable(place="here")

    @clew.tool("find")
    def find(arguments: dict[str, Any]) -> str:
        return arguments["place"]

    with clew.run("triage"):
        if form == "function":
            assert find(given) == "here"
        else:
            with clew.tool("find", arguments=given):
                pass
    (span,) = exported.by_name("execute_tool")
    assert span.attributes["clew.tool.outcome"] == "ok"


def test_messages_that_grow_while_a_stream_runs(configure: Configure) -> None:
    """What is recorded is what was on the wire when the call was made."""
    exported = configure(capture="full", content_to=("spans",))
    messages = [{"role": "user", "content": "first"}]
    with ScriptedProvider([Reply(text=("a", "b"))]) as server, httpx.Client() as client:
        body = {"model": "m", "messages": messages, "stream": True}
        url = f"{server.openai_base_url}/chat/completions"
        with clew.run("triage"), client.stream("POST", url, json=body) as response:
            for _ in response.iter_bytes():
                messages += [{"role": "user", "content": "later"}]
        sent = server.requests[0].json()["messages"]
    (span,) = exported.by_name("chat")
    asked = json.loads(span.attributes["gen_ai.input.messages"])
    assert [part["content"] for message in asked for part in message["parts"]] == ["first"]
    assert [message["content"] for message in sent] == ["first"]


# --- names ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [None, "", "x" * 5000, "drop table;", "Unbekanntes Werkzeug"])
def test_an_odd_name_is_never_written(configure: Configure, name: str | None) -> None:
    """Span and metric have one fixed word for such a tool; the outcome says that it is unknown."""
    reader = InMemoryMetricReader()
    exported = configure(metric_readers=(reader,))
    with clew.run("triage"), clew.tool(name) as call:
        call.outcome = "unknown"
    (span,) = exported.by_name("execute_tool")
    measured = {
        metric.name: [dict(point.attributes) for point in metric.data.data_points]
        for resource in reader.get_metrics_data().resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
    }
    assert measured["clew.tool.duration"] == [
        {
            "gen_ai.agent.name": "triage",
            "gen_ai.tool.name": "_OTHER",
            "clew.tool.outcome": "unknown",
        }
    ]
    assert span.name == "execute_tool _OTHER"
    assert span.attributes["gen_ai.tool.name"] == "_OTHER"
    assert span.attributes["clew.tool.outcome"] == "unknown"
    assert span.attributes["error.type"] == "unknown"
    if name:
        assert name.encode() not in exported.otlp_bytes()
