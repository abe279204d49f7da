"""Tool calls of frameworks are looked at by gates before the tool is executed."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import openai
import pytest
from frameworks import LEAVES_OPEN
from saying import DENY, MARK, Govern, Saying, decisions

import clew
from clew.errors import ApprovalRequired, PolicyDenied
from clew.gates.approval import ApprovalGate
from clew.testing import Reply, ScriptedProvider, ScriptedToolCall
from clew.typing import Verdict

pytestmark = LEAVES_OPEN
TOOLS = frozenset({"tool_call"})
PLACE = f"{MARK} place"


@pytest.fixture
def server() -> Iterator[ScriptedProvider]:
    call = ScriptedToolCall(name="find", arguments={"place": PLACE}, id="call_1")
    with ScriptedProvider([Reply(tool_calls=(call,)), Reply(text="done")]) as provider:
        yield provider


async def langchain(server: ScriptedProvider, executed: list[str], *, sync: bool = False) -> None:
    agents = pytest.importorskip("langchain.agents", reason="langchain is not installed")
    from langchain_core.tools import tool
    from langchain_openai import ChatOpenAI

    @tool
    def find(place: str) -> str:
        """Find a place."""
        executed.append(place)
        return "there"

    with httpx2.Client() as client:
        async with httpx2.AsyncClient() as twin:
            url = server.openai_base_url
            model = ChatOpenAI(
                model="gpt-5-mini",
                base_url=url,
                api_key="k",  # type: ignore[arg-type]
                http_client=client,  # type: ignore[call-arg]
                http_async_client=twin,  # type: ignore[call-arg]
            )
            agent = agents.create_agent(model, [find], name="desk")
            ask: Any = {"messages": [{"role": "user", "content": MARK}]}
            _ = agent.invoke(ask) if sync else await agent.ainvoke(ask)


async def langchain_sync(server: ScriptedProvider, executed: list[str]) -> None:
    await langchain(server, executed, sync=True)


async def openai_agents(
    server: ScriptedProvider, executed: list[str], *, streamed: bool = False, **config: Any
) -> None:
    agents = pytest.importorskip("agents", reason="openai-agents is not installed")
    agents.set_trace_processors([])
    sys.modules["clew.taps.openai_agents"]._processor = None  # type: ignore[attr-defined]
    clew.uninstrument()
    clew.instrument()

    @agents.function_tool
    def find(place: str) -> str:
        """Find a place."""
        executed.append(place)
        return "there"

    async with openai.AsyncOpenAI(base_url=server.openai_base_url, api_key="k") as client:
        model = agents.OpenAIChatCompletionsModel(model="gpt-5-mini", openai_client=client)
        agent = agents.Agent(name="desk", model=model, tools=[find])
        options = {"run_config": agents.RunConfig(**config)}
        try:
            if streamed:
                found = agents.Runner.run_streamed(agent, MARK, **options)
                async for _ in found.stream_events():
                    pass
            else:
                await agents.Runner.run(agent, MARK, **options)
        finally:
            agents.set_trace_processors([])


async def openai_agents_streamed(server: ScriptedProvider, executed: list[str]) -> None:
    await openai_agents(server, executed, streamed=True)


async def openai_agents_untraced(server: ScriptedProvider, executed: list[str]) -> None:
    await openai_agents(server, executed, tracing_disabled=True)


async def pydantic_ai(server: ScriptedProvider, executed: list[str]) -> None:
    framework = pytest.importorskip("pydantic_ai", reason="pydantic-ai is not installed")
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    def find(place: str) -> str:
        """Find a place."""
        executed.append(place)
        return "there"

    async with openai.AsyncOpenAI(base_url=server.openai_base_url, api_key="k") as client:
        provider = OpenAIProvider(openai_client=client)
        agent = framework.Agent(OpenAIChatModel("gpt-5-mini", provider=provider), tools=[find])
        await agent.run(MARK)


async def smolagents(server: ScriptedProvider, executed: list[str]) -> None:
    framework = pytest.importorskip("smolagents", reason="smolagents is not installed")

    tool = framework.tool

    @tool
    def find(place: str) -> str:
        """Find a place.

        Args:
            place: where.
        """
        executed.append(place)
        return "there"

    with httpx2.Client() as client:
        model = framework.OpenAIModel(
            model_id="gpt-5-mini",
            api_base=server.openai_base_url,
            api_key="k",
            client_kwargs={"http_client": client},
        )
        framework.ToolCallingAgent(
            tools=[find], model=model, name="desk", verbosity_level=0, max_steps=1
        ).run(MARK)


@asynccontextmanager
async def mcp_session(executed: list[str]) -> AsyncIterator[Any]:
    pytest.importorskip("mcp.server.mcpserver", reason="mcp is not installed")
    from mcp import Client
    from mcp.server.mcpserver import MCPServer

    house = MCPServer("house")

    @house.tool()
    async def find(place: str) -> str:
        executed.append(place)
        return "there"

    async with Client(house) as client:
        yield client


async def mcp(server: ScriptedProvider, executed: list[str]) -> None:
    del server
    async with mcp_session(executed) as client:
        await client.call_tool("find", {"place": PLACE})


FRAMEWORKS = [
    langchain,
    langchain_sync,
    openai_agents,
    openai_agents_streamed,
    openai_agents_untraced,
    pydantic_ai,
    smolagents,
    mcp,
]
each_framework = pytest.mark.parametrize("framework", FRAMEWORKS, ids=lambda one: one.__name__)


def alone(error: BaseException) -> BaseException:
    """Return the one error in a group, which the MCP client's task group makes of it."""
    while isinstance(error, BaseExceptionGroup):
        (error,) = error.exceptions
    return error


@each_framework
async def test_a_tool_is_allowed_with_its_arguments(
    govern: Govern, server: ScriptedProvider, framework: Any
) -> None:
    """The gate sees the arguments in one form, and the tool is executed once."""
    gate = Saying(Verdict(outcome="allow"), kinds=TOOLS)
    exported = govern(gate)
    executed: list[str] = []
    with clew.run("triage"):
        await framework(server, executed)
    assert executed == [PLACE]
    seen = [proposal for proposal in gate.asked if proposal.tool == "find"]
    assert [proposal.content() for proposal in seen if proposal.content] == [
        json.dumps({"place": PLACE}, separators=(",", ":")).encode()
    ]
    assert [found["executed"] for found in decisions(exported) if found["subject"] == "find"] == [
        True
    ]
    assert MARK.encode() not in exported.otlp_bytes()


@each_framework
async def test_a_tool_that_is_denied(
    govern: Govern, server: ScriptedProvider, framework: Any
) -> None:
    """The tool is not executed, and there is one decision, below the tool call that it denies."""
    gate = Saying(DENY, kinds=TOOLS)
    exported = govern(gate)
    executed: list[str] = []
    with pytest.raises((PolicyDenied, BaseExceptionGroup)) as caught, clew.run("triage"):
        await framework(server, executed)
    error = alone(caught.value)
    assert type(error) is PolicyDenied
    assert (error.gate, error.reason) == ("house", "house_rule")
    assert executed == []
    assert len(gate.asked) == 1
    (found,) = decisions(exported)
    assert (found["outcome"], found["executed"]) == ("deny", False)
    (tool,) = exported.by_name("execute_tool")
    (decision,) = exported.by_name("decide")
    assert tool.attributes["clew.tool.outcome"] == "denied"
    # The MCP client's task group has made a group of it when it reaches the run.
    assert {
        run.attributes["clew.run.termination_reason"] for run in exported.by_name("invoke_agent")
    } == {"policy_denied"}
    assert decision.parent.span_id == tool.context.span_id
    assert MARK.encode() not in exported.otlp_bytes()


@each_framework
async def test_an_approval_is_for_the_arguments(
    govern: Govern, server: ScriptedProvider, framework: Any
) -> None:
    """The arguments are known, so that a person can approve them: nothing is executed before."""
    govern(ApprovalGate({"find"}))
    executed: list[str] = []
    with pytest.raises((ApprovalRequired, BaseExceptionGroup)) as caught, clew.run("triage"):
        await framework(server, executed)
    error = alone(caught.value)
    assert type(error) is ApprovalRequired
    assert error.reference is not None
    assert executed == []


ASKING = [one for one in FRAMEWORKS if one is not mcp]


@pytest.mark.parametrize("framework", ASKING, ids=lambda one: one.__name__)
@pytest.mark.parametrize("outcome", ["deny", "require_approval"])
async def test_a_model_call_that_is_denied(
    govern: Govern, server: ScriptedProvider, framework: Any, outcome: Any
) -> None:
    """No framework wraps or swallows it: the caller is told, nothing was sent, the run says why."""
    gate = Saying(Verdict(outcome=outcome, reason="house_rule"))
    exported = govern(gate)
    executed: list[str] = []
    expected = PolicyDenied if outcome == "deny" else ApprovalRequired
    with pytest.raises(expected) as caught, clew.run("triage"):
        await framework(server, executed)
    assert type(caught.value) is expected
    assert (executed, server.requests) == ([], [])
    assert len(gate.asked) == 1
    (found,) = decisions(exported)
    assert (found["outcome"], found["executed"]) == (outcome, False)
    ended = exported.by_name("invoke_agent")
    if outcome == "deny":
        assert {one.attributes["clew.run.termination_reason"] for one in ended} == {"policy_denied"}
    else:
        roots = [one for one in ended if one.attributes.get("clew.run.root")]
        assert [one.attributes["clew.run.status"] for one in roots] == ["waiting_for_approval"]
    assert exported.by_name("chat") == ()
    assert MARK.encode() not in exported.otlp_bytes()


async def test_tools_that_cannot_be_seen(
    govern: Govern, server: ScriptedProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the SDK has moved what invokes its tools, a gate that looks at them denies all of it."""
    pytest.importorskip("agents", reason="openai-agents is not installed")
    import agents.run_internal.tool_execution as moved

    exported = govern(Saying(DENY, kinds=TOOLS))
    monkeypatch.delattr(moved, "_invoke_function_tool_with_metadata")
    executed: list[str] = []
    with pytest.raises(PolicyDenied, match="tool_calls_unseen"), clew.run("triage"):
        await openai_agents(server, executed)
    assert (executed, server.requests) == ([], [])
    assert [found["reason"] for found in decisions(exported)] == ["tool_calls_unseen"]


@pytest.mark.parametrize("mode", ["observe", "enforce"])
async def test_tools_that_cannot_be_seen_and_need_not(
    govern: Govern, server: ScriptedProvider, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    """Gates that only observe, or look at model calls alone, stop no workflow for that."""
    pytest.importorskip("agents", reason="openai-agents is not installed")
    import agents.run_internal.tool_execution as moved

    kinds = TOOLS if mode == "observe" else frozenset({"model_call"})
    govern(Saying(Verdict(outcome="allow"), kinds=kinds, mode=mode))
    monkeypatch.delattr(moved, "_invoke_function_tool_with_metadata")
    server.replace(Reply(text="done"))
    with clew.run("triage"):
        await openai_agents(server, [])
    assert len(server.requests) == 1
