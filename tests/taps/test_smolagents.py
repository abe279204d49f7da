"""The tap on smolagents: agents are runs, tools tool spans."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx2
import pytest
from frameworks import LEAVES_OPEN, asks, tree
from opentelemetry import trace
from taken_off import check_taken_off

import clew
from clew.testing import CaptureExporter, Reply, ScriptedProvider

smolagents = pytest.importorskip("smolagents", reason="smolagents is not installed")
tool = smolagents.tool

pytestmark = LEAVES_OPEN


@pytest.fixture
def model(server: ScriptedProvider) -> Iterator[Any]:
    with httpx2.Client() as client:
        yield smolagents.OpenAIModel(
            model_id="gpt-5-mini",
            api_base=server.openai_base_url,
            api_key="key",
            client_kwargs={"http_client": client},
        )


def agent(model: Any, *tools: Any, **more: Any) -> Any:
    return smolagents.ToolCallingAgent(
        tools=list(tools), model=model, name="triage", verbosity_level=0, **more
    )


@tool
def find(place: str) -> str:
    """Find a place.

    Args:
        place: where.
    """
    return "SECRET place"


AGENT = [
    "invoke_agent triage",
    "  chat gpt-5-mini",
    "  execute_tool find",
    "  chat gpt-5-mini",
    "  execute_tool final_answer",
]


def test_an_agent(exported: CaptureExporter, server: ScriptedProvider, model: Any) -> None:
    """An agent is a run of its own, with its rounds and tool calls in it, and no content."""
    clew.instrument()
    server.add(asks("find", place="SECRET"), asks("final_answer", answer="done"))
    before = trace.get_current_span()
    assert agent(model, find).run("SECRET") == "done"
    assert trace.get_current_span() is before
    assert tree(exported) == AGENT
    (called,) = exported.by_name("execute_tool find")
    found = dict(called.attributes or {})
    assert found["clew.tool.outcome"] == "ok"
    assert found["clew.tool.result.bytes"] == len("SECRET place")
    assert found["clew.round"] == 1
    assert b"SECRET" not in exported.otlp_bytes()


def test_a_stream_of_steps(exported: CaptureExporter, server: ScriptedProvider, model: Any) -> None:
    """Between two steps the consumer's context is its own."""
    clew.instrument()
    server.add(asks("find", place="SECRET"), asks("final_answer", answer="done"))
    before = trace.get_current_span()
    for _ in agent(model, find).run("SECRET", stream=True):
        assert trace.get_current_span() is before
    assert tree(exported) == AGENT


def test_a_managed_agent(exported: CaptureExporter, server: ScriptedProvider, model: Any) -> None:
    """An agent that another one manages is nested in its run."""
    clew.instrument()
    expert = agent(model, description="Knows.")
    expert.name = "expert"
    server.add(
        asks("expert", task="SECRET"),
        asks("final_answer", answer="inner"),
        asks("final_answer", answer="outer"),
    )
    agent(model, managed_agents=[expert]).run("SECRET")
    assert tree(exported) == [
        "invoke_agent triage",
        "  chat gpt-5-mini",
        "  invoke_agent expert",
        "    chat gpt-5-mini",
        "    execute_tool final_answer",
        "  chat gpt-5-mini",
        "  execute_tool final_answer",
    ]
    assert len({span.context.trace_id for span in exported.spans}) == 1


def test_a_tool_that_fails(exported: CaptureExporter, server: ScriptedProvider, model: Any) -> None:
    """Smolagents tells its model and goes on; the tool span is failed, without text."""

    @tool
    def fail(place: str) -> str:
        """Fail.

        Args:
            place: where.
        """
        raise ValueError("SECRET")

    clew.instrument()
    server.add(asks("fail", place="SECRET"), asks("final_answer", answer="done"))
    agent(model, fail).run("SECRET")
    (called,) = exported.by_name("execute_tool fail")
    found = dict(called.attributes or {})
    assert (found["clew.tool.outcome"], found["error.type"]) == ("error", "ValueError")
    assert b"SECRET" not in exported.otlp_bytes()


def test_too_many_steps(exported: CaptureExporter, server: ScriptedProvider, model: Any) -> None:
    """A run that has had all its steps says so."""
    clew.instrument()
    server.add(asks("find", place="SECRET"), Reply(text="done"))
    agent(model, find).run("SECRET", max_steps=1)
    (run,) = exported.by_name("invoke_agent")
    assert dict(run.attributes or {})["clew.run.termination_reason"] == "max_rounds"


def test_taking_the_tap_off(
    exported: CaptureExporter, server: ScriptedProvider, model: Any
) -> None:
    """After `uninstrument` the classes are as they came."""
    check_taken_off(
        (smolagents.MultiStepAgent, "run"),
        (smolagents.Tool, "__call__"),
    )
    server.add(asks("final_answer", answer="done"))
    agent(model, find).run("SECRET")
    assert list(exported.spans) == []
