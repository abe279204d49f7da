"""The tap on OpenAI Agents: workflows and agents are runs, function tools tool spans."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from frameworks import LEAVES_OPEN, asks, tree
from opentelemetry import trace

import clew
from clew.testing import CaptureExporter, Reply, ScriptedProvider

agents = pytest.importorskip("agents", reason="openai-agents is not installed")
pytest.importorskip("agents.tracing", reason="openai-agents is not installed")
import openai  # noqa: E402

pytestmark = LEAVES_OPEN


@pytest.fixture(autouse=True)
def _no_export(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Keep the SDK's own exporter from calling home."""
    agents.set_trace_processors([])
    monkeypatch.setattr("clew.taps.openai_agents._processor", None)
    yield
    agents.set_trace_processors([])


@pytest.fixture
async def client(server: ScriptedProvider) -> AsyncIterator[Any]:
    async with openai.AsyncOpenAI(
        base_url=server.openai_base_url, api_key="key", max_retries=0
    ) as made:
        yield made


def agent(client: Any, name: str, **more: Any) -> Any:
    model = agents.OpenAIChatCompletionsModel(model="gpt-5-mini", openai_client=client)
    return agents.Agent(name=name, model=model, instructions="SECRET", **more)


@agents.function_tool
def find(place: str) -> str:
    """Find a place."""
    return "SECRET place"


@agents.function_tool(failure_error_function=None)
def fail(place: str) -> str:
    """Fail."""
    raise ValueError("SECRET")


async def test_a_workflow(exported: CaptureExporter, server: ScriptedProvider, client: Any) -> None:
    """A workflow is a run, its agent a nested one, with rounds and tool calls, and no content."""
    clew.instrument()
    server.add(asks("find", place="SECRET"), Reply(text="done"))
    before = trace.get_current_span()
    result = await agents.Runner.run(agent(client, "triage agent", tools=[find]), "SECRET")
    assert trace.get_current_span() is before
    assert result.final_output == "done"
    assert tree(exported) == [
        "invoke_agent Agent_workflow",
        "  invoke_agent triage_agent",
        "    chat gpt-5-mini",
        "    execute_tool find",
        "    chat gpt-5-mini",
    ]
    assert len({span.context.trace_id for span in exported.spans}) == 1
    (run, _) = exported.by_name("invoke_agent")[::-1]
    found = dict(run.attributes or {})
    assert (found["clew.run.status"], found["clew.run.rounds"]) == ("completed", 2)
    (called,) = exported.by_name("execute_tool")
    found = dict(called.attributes or {})
    assert found["clew.tool.outcome"] == "ok"
    assert found["clew.tool.result.bytes"] == len("SECRET place")
    assert b"SECRET" not in exported.otlp_bytes()


async def test_a_streamed_workflow(
    exported: CaptureExporter, server: ScriptedProvider, client: Any
) -> None:
    """A workflow that runs in the background while its events are read."""
    clew.instrument()
    server.add(asks("find", place="SECRET"), Reply(text="done"))
    before = trace.get_current_span()
    result = agents.Runner.run_streamed(agent(client, "triage", tools=[find]), "SECRET")
    async for _ in result.stream_events():
        assert trace.get_current_span() is before
    assert tree(exported)[1:] == [
        "  invoke_agent triage",
        "    chat gpt-5-mini",
        "    execute_tool find",
        "    chat gpt-5-mini",
    ]


async def test_handing_over_inside_a_run(
    exported: CaptureExporter, server: ScriptedProvider, client: Any
) -> None:
    """Inside a run of the user's there is no run for the workflow; agents follow each other."""
    clew.instrument()
    expert = agent(client, "expert")
    server.add(asks("transfer_to_expert"), Reply(text="done"))
    with clew.run("outer"):
        await agents.Runner.run(agent(client, "triage", handoffs=[expert]), "SECRET")
    assert tree(exported) == [
        "invoke_agent outer",
        "  invoke_agent triage",
        "    chat gpt-5-mini",
        "  invoke_agent expert",
        "    chat gpt-5-mini",
    ]


async def test_a_tool_that_fails(
    exported: CaptureExporter, server: ScriptedProvider, client: Any
) -> None:
    """The tool span is failed, without text."""
    clew.instrument()
    server.add(asks("fail", place="SECRET"))
    with pytest.raises(agents.UserError):
        await agents.Runner.run(agent(client, "triage", tools=[fail]), "SECRET")
    (called,) = exported.by_name("execute_tool")
    assert dict(called.attributes or {})["clew.tool.outcome"] == "error"
    assert b"SECRET" not in exported.otlp_bytes()


async def test_too_many_turns(
    exported: CaptureExporter, server: ScriptedProvider, client: Any
) -> None:
    """A workflow that has had all its turns says so."""
    clew.instrument()
    server.add(*[asks("find", place="SECRET")] * 2)
    with pytest.raises(agents.MaxTurnsExceeded):
        await agents.Runner.run(agent(client, "triage", tools=[find]), "SECRET", max_turns=1)
    reasons = {
        span.name: dict(span.attributes or {})["clew.run.termination_reason"]
        for span in exported.by_name("invoke_agent")
    }
    assert reasons == {
        "invoke_agent Agent_workflow": "max_rounds",
        "invoke_agent triage": "max_rounds",
    }


async def test_taking_the_tap_off(
    exported: CaptureExporter, server: ScriptedProvider, client: Any
) -> None:
    """After `uninstrument` nothing is recorded; instrumented again, everything is, once."""
    clew.instrument()
    clew.uninstrument()
    server.add(Reply(text="done"), Reply(text="done"))
    triage = agent(client, "triage")
    await agents.Runner.run(triage, "SECRET")
    assert list(exported.spans) == []
    clew.instrument()
    clew.instrument()
    await agents.Runner.run(triage, "SECRET")
    assert len(exported.by_name("invoke_agent")) == 2
