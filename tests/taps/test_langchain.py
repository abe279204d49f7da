"""The tap on LangChain and LangGraph: graphs are runs, tools tool spans, rounds come by the wire."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest
from either_way import items, settle
from frameworks import LEAVES_OPEN, asks, tree
from opentelemetry import trace
from taken_off import check_taken_off

import clew
from clew.testing import CaptureExporter, Reply, ScriptedProvider

pytest.importorskip("langchain.agents", reason="langchain is not installed")
pytest.importorskip("langchain_openai", reason="langchain-openai is not installed")
from langchain.agents import create_agent
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI

pytestmark = LEAVES_OPEN


ASK: Any = {"messages": [{"role": "user", "content": "SECRET"}]}


@pytest.fixture
async def model(server: ScriptedProvider) -> AsyncIterator[Any]:
    with httpx2.Client() as client:
        async with httpx2.AsyncClient() as twin:
            yield ChatOpenAI(
                model="gpt-5-mini",
                base_url=server.openai_base_url,
                api_key="key",
                http_client=client,
                http_async_client=twin,
            )


@tool
def find(place: str) -> str:
    """Find a place."""
    return "SECRET place"


@tool
def fail(place: str) -> str:
    """Fail."""
    raise ValueError("SECRET")


AGENT = [
    "invoke_agent triage",
    "  chat gpt-5-mini",
    "  execute_tool find",
    "  chat gpt-5-mini",
]


@pytest.mark.parametrize("method", ["invoke", "ainvoke"])
async def test_an_agent(
    exported: CaptureExporter, server: ScriptedProvider, model: Any, method: str
) -> None:
    """An agent is a run of its own, with its rounds and tool calls in it, and no content."""
    clew.instrument()
    server.add(asks("find", place="SECRET"), Reply(text="done"))
    agent = create_agent(model, [find], name="triage")
    before = trace.get_current_span()
    result = await settle(getattr(agent, method)(ASK))
    assert trace.get_current_span() is before
    assert result["messages"][-1].content == "done"
    assert tree(exported) == AGENT
    (run,) = exported.by_name("invoke_agent")
    found = dict(run.attributes or {})
    assert found["clew.run.status"] == "completed"
    assert (found["clew.run.rounds"], found["clew.run.tool_calls"]) == (2, 1)
    (called,) = exported.by_name("execute_tool")
    found = dict(called.attributes or {})
    assert found["gen_ai.tool.call.id"] == "call_find"
    assert found["clew.tool.outcome"] == "ok"
    assert found["clew.tool.result.bytes"] == len("SECRET place")
    assert found["clew.round"] == 1
    assert b"SECRET" not in exported.otlp_bytes()


@pytest.mark.parametrize("method", ["stream", "astream"])
@pytest.mark.parametrize("pieces", ["updates", "messages"])
async def test_a_stream(
    exported: CaptureExporter, server: ScriptedProvider, model: Any, method: str, pieces: str
) -> None:
    """Between two items, be they steps or tokens, the consumer's context is its own."""
    clew.instrument()
    server.add(asks("find", place="SECRET"), Reply(text="done"))
    agent = create_agent(model, [find], name="triage")
    before = trace.get_current_span()
    async for _ in items(getattr(agent, method)(ASK, stream_mode=pieces)):
        assert trace.get_current_span() is before
    assert tree(exported) == AGENT


def test_an_agent_inside_a_run(
    exported: CaptureExporter, server: ScriptedProvider, model: Any
) -> None:
    """Inside a run of the user's an agent is nested: one trace, one count."""
    clew.instrument()
    server.add(Reply(text="done"))
    with clew.run("outer") as run:
        create_agent(model, [find], name="triage").invoke(ASK)
    assert tree(exported) == [
        "invoke_agent outer",
        "  invoke_agent triage",
        "    chat gpt-5-mini",
    ]
    assert {format(one.context.trace_id, "032x") for one in exported.spans} == {run.trace_id}


def test_an_agent_as_a_tool(
    exported: CaptureExporter, server: ScriptedProvider, model: Any
) -> None:
    """An agent that a tool asks hangs under the tool."""
    clew.instrument()
    server.add(asks("ask", question="SECRET"), Reply(text="inner"), Reply(text="outer"))
    inner = create_agent(model, [find], name="expert")

    @tool
    def ask(question: str) -> str:
        """Ask an expert."""
        return inner.invoke(ASK)["messages"][-1].content

    create_agent(model, [ask], name="triage").invoke(ASK)
    assert tree(exported) == [
        "invoke_agent triage",
        "  chat gpt-5-mini",
        "  execute_tool ask",
        "    invoke_agent expert",
        "      chat gpt-5-mini",
        "  chat gpt-5-mini",
    ]


def test_a_tool_that_fails(exported: CaptureExporter, server: ScriptedProvider, model: Any) -> None:
    """The exception reaches the caller; tool and run are failed, by type and without text."""
    clew.instrument()
    server.add(asks("fail", place="SECRET"))
    agent = create_agent(model, [fail], name="triage")
    with pytest.raises(ValueError, match="SECRET"):
        agent.invoke(ASK)
    (called,) = exported.by_name("execute_tool")
    found = dict(called.attributes or {})
    assert (found["clew.tool.outcome"], found["error.type"]) == ("error", "ValueError")
    (run,) = exported.by_name("invoke_agent")
    found = dict(run.attributes or {})
    assert (found["clew.run.status"], found["error.type"]) == ("failed", "ValueError")
    assert b"SECRET" not in exported.otlp_bytes()


def test_a_graph_that_waits_for_input(
    exported: CaptureExporter, server: ScriptedProvider, model: Any
) -> None:
    """An interrupted graph is no failure: its run waits."""
    from langgraph.checkpoint.memory import InMemorySaver
    from langgraph.types import interrupt

    @tool
    def approve(place: str) -> str:
        """Ask a person."""
        return interrupt("SECRET")

    clew.instrument()
    server.add(asks("approve", place="SECRET"))
    agent = create_agent(model, [approve], name="triage", checkpointer=InMemorySaver())
    agent.invoke(ASK, {"configurable": {"thread_id": "1"}})
    (called,) = exported.by_name("execute_tool")
    assert dict(called.attributes or {})["clew.tool.outcome"] == "awaiting_input"
    (run,) = exported.by_name("invoke_agent")
    assert dict(run.attributes or {})["clew.run.status"] == "waiting_for_input"


async def test_agents_at_the_same_time(
    exported: CaptureExporter, server: ScriptedProvider, model: Any
) -> None:
    """Runs side by side, over one model object, do not mix."""
    clew.instrument()
    server.replace(*[Reply(text="done")] * 8)
    agents = [create_agent(model, [find], name=f"agent_{number}") for number in range(8)]
    await asyncio.gather(*[agent.ainvoke(ASK) for agent in agents])
    runs = exported.by_name("invoke_agent")
    chats = exported.by_name("chat")
    assert len({run.context.trace_id for run in runs}) == 8
    assert sorted(one.parent.span_id for one in chats if one.parent) == sorted(
        run.context.span_id for run in runs
    )


def test_a_chain_that_is_no_graph(
    exported: CaptureExporter, server: ScriptedProvider, model: Any
) -> None:
    """A plain call of a chat model is a round and no run."""
    clew.instrument()
    server.add(Reply(text="done"))
    model.invoke("SECRET")
    assert tree(exported) == ["chat gpt-5-mini"]


def test_a_graph_of_ones_own(exported: CaptureExporter) -> None:
    """A graph without an agent is a run, too; a node that interrupts it makes it wait."""
    from langgraph.checkpoint.memory import InMemorySaver
    from langgraph.graph import END, START, StateGraph
    from langgraph.types import interrupt

    def node(state: dict[str, Any]) -> dict[str, Any]:
        return {"a": interrupt("SECRET")}

    clew.instrument()
    builder: Any = StateGraph(dict)
    builder.add_node("node", node)
    builder.add_edge(START, "node")
    builder.add_edge("node", END)
    graph = builder.compile(name="my graph", checkpointer=InMemorySaver())
    graph.invoke({"a": "SECRET"}, {"configurable": {"thread_id": "1"}})
    (run,) = exported.by_name("invoke_agent")
    assert run.name == "invoke_agent my_graph"
    assert dict(run.attributes or {})["clew.run.status"] == "waiting_for_input"
    assert b"SECRET" not in exported.otlp_bytes()


async def test_a_tool_called_by_hand(exported: CaptureExporter) -> None:
    """A tool outside of any agent is a tool span, and leaves its caller's context alone."""
    clew.instrument()
    before = trace.get_current_span()
    assert await find.ainvoke({"place": "SECRET"}) == "SECRET place"
    assert trace.get_current_span() is before
    assert tree(exported) == ["execute_tool find"]


@pytest.mark.parametrize("times", [1, 2], ids=["once", "instrumented twice"])
async def test_a_tool_with_both_forms(exported: CaptureExporter, times: int) -> None:
    """A function and a coroutine of one tool: each call is one span, whichever form it goes through."""
    from langchain_core.tools import StructuredTool

    def look(place: str) -> str:
        """Look at a place."""
        return place

    async def look_later(place: str) -> str:
        """Look at a place."""
        return place

    for _ in range(times):
        clew.instrument()
    both = StructuredTool.from_function(look, look_later)
    late = StructuredTool.from_function(coroutine=look_later, name="late")
    for made in (both, late):
        assert await made.ainvoke({"place": "SECRET"}) == "SECRET"
    assert both.invoke({"place": "SECRET"}) == "SECRET"
    names = [span.name for span in exported.by_name("execute_tool")]
    assert names == ["execute_tool look", "execute_tool late", "execute_tool look"]


def test_taking_the_tap_off(
    exported: CaptureExporter, server: ScriptedProvider, model: Any
) -> None:
    """After `uninstrument` the classes are as they came."""
    from langchain_core.tools import BaseTool
    from langgraph.pregel import Pregel

    check_taken_off(
        (BaseTool, "run"),
        (BaseTool, "arun"),
        (Pregel, "stream"),
        (Pregel, "astream"),
    )
    server.add(Reply(text="done"))
    create_agent(model, [find], name="triage").invoke(ASK)
    assert list(exported.spans) == []
