"""The tap on pydantic-ai: agent runs are runs, function tools tool spans."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from frameworks import LEAVES_OPEN, asks, tree
from opentelemetry import trace

import clew
from clew.testing import CaptureExporter, Reply, ScriptedProvider

pydantic_ai = pytest.importorskip("pydantic_ai", reason="pydantic-ai is not installed")
pytest.importorskip("pydantic_ai.capabilities", reason="pydantic-ai is too old")
import openai  # noqa: E402
from pydantic_ai.models.openai import OpenAIChatModel  # noqa: E402
from pydantic_ai.providers.openai import OpenAIProvider  # noqa: E402

pytestmark = LEAVES_OPEN


@pytest.fixture
async def client(server: ScriptedProvider) -> AsyncIterator[Any]:
    async with openai.AsyncOpenAI(base_url=server.openai_base_url, api_key="key") as made:
        yield made


def agent(client: Any, name: str | None = "triage", **more: Any) -> Any:
    provider = OpenAIProvider(openai_client=client)
    model = OpenAIChatModel("gpt-5-mini", provider=provider)
    return pydantic_ai.Agent(model, name=name, instructions="SECRET", **more)


def find(place: str) -> str:
    """Find a place."""
    return "SECRET place"


def fail(place: str) -> str:
    """Fail."""
    raise ValueError("SECRET")


AGENT = [
    "invoke_agent triage",
    "  chat gpt-5-mini",
    "  execute_tool find",
    "  chat gpt-5-mini",
]


async def test_an_agent(exported: CaptureExporter, server: ScriptedProvider, client: Any) -> None:
    """An agent is a run of its own, with its rounds and tool calls in it, and no content."""
    clew.instrument()
    server.add(asks("find", place="SECRET"), Reply(text="done"))
    before = trace.get_current_span()
    result = await agent(client, tools=[find]).run("SECRET")
    assert trace.get_current_span() is before
    assert result.output == "done"
    assert tree(exported) == AGENT
    (called,) = exported.by_name("execute_tool")
    found = dict(called.attributes or {})
    assert found["gen_ai.tool.call.id"] == "call_find"
    assert found["clew.tool.outcome"] == "ok"
    assert found["clew.tool.result.bytes"] == len("SECRET place")
    assert b"SECRET" not in exported.otlp_bytes()


def test_an_agent_synchronously(
    exported: CaptureExporter, server: ScriptedProvider, client: Any
) -> None:
    """The synchronous twin."""
    clew.instrument()
    server.add(asks("find", place="SECRET"), Reply(text="done"))
    agent(client, tools=[find]).run_sync("SECRET")
    assert tree(exported) == AGENT


async def test_a_streamed_run(
    exported: CaptureExporter, server: ScriptedProvider, client: Any
) -> None:
    """While a stream is read its consumer's context is its own."""
    clew.instrument()
    server.add(asks("find", place="SECRET"), Reply(text="done"))
    before = trace.get_current_span()
    async with agent(client, tools=[find]).run_stream("SECRET") as stream:
        async for _ in stream.stream_text():
            pass
    assert trace.get_current_span() is before
    assert tree(exported) == AGENT
    assert [dict(one.attributes or {})["clew.stream.outcome"] for one in exported.by_name("chat")]


async def test_an_agent_as_a_tool(
    exported: CaptureExporter, server: ScriptedProvider, client: Any
) -> None:
    """An agent that a tool asks hangs under the tool; all is one trace with the run around."""
    clew.instrument()
    server.add(asks("ask", question="SECRET"), Reply(text="inner"), Reply(text="outer"))
    expert = agent(client, "expert")

    async def ask(question: str) -> str:
        """Ask an expert."""
        return (await expert.run(question)).output

    with clew.run("outer"):
        await agent(client, tools=[ask]).run("SECRET")
    assert tree(exported) == [
        "invoke_agent outer",
        "  invoke_agent triage",
        "    chat gpt-5-mini",
        "    execute_tool ask",
        "      invoke_agent expert",
        "        chat gpt-5-mini",
        "    chat gpt-5-mini",
    ]
    assert len({span.context.trace_id for span in exported.spans}) == 1


async def test_a_tool_that_fails(
    exported: CaptureExporter, server: ScriptedProvider, client: Any
) -> None:
    """The exception reaches the caller; tool and run are failed, by type and without text."""
    clew.instrument()
    server.add(asks("fail", place="SECRET"))
    with pytest.raises(ValueError, match="SECRET"):
        await agent(client, tools=[fail]).run("SECRET")
    (called,) = exported.by_name("execute_tool")
    found = dict(called.attributes or {})
    assert (found["clew.tool.outcome"], found["error.type"]) == ("error", "ValueError")
    (run,) = exported.by_name("invoke_agent")
    assert dict(run.attributes or {})["clew.run.status"] == "failed"
    assert b"SECRET" not in exported.otlp_bytes()


async def test_a_tool_that_wants_approval(
    exported: CaptureExporter, server: ScriptedProvider, client: Any
) -> None:
    """A tool whose call is put off for somebody's approval says so."""

    def delete(place: str) -> str:
        """Delete a place."""
        raise pydantic_ai.ApprovalRequired

    clew.instrument()
    server.add(asks("delete", place="SECRET"))
    made = agent(client, tools=[delete], output_type=[str, pydantic_ai.DeferredToolRequests])
    await made.run("SECRET")
    (called,) = exported.by_name("execute_tool")
    assert dict(called.attributes or {})["clew.tool.outcome"] == "awaiting_approval"


async def test_a_limit_that_is_reached(
    exported: CaptureExporter, server: ScriptedProvider, client: Any
) -> None:
    """A run that may ask no more has used up its budget."""
    clew.instrument()
    server.add(*[asks("find", place="SECRET")] * 3)
    limits = pydantic_ai.UsageLimits(request_limit=1)
    with pytest.raises(pydantic_ai.UsageLimitExceeded):
        await agent(client, tools=[find]).run("SECRET", usage_limits=limits)
    (run,) = exported.by_name("invoke_agent")
    assert dict(run.attributes or {})["clew.run.termination_reason"] == "budget_exhausted"


async def test_agents_at_the_same_time(
    exported: CaptureExporter, server: ScriptedProvider, client: Any
) -> None:
    """Runs side by side do not mix."""
    clew.instrument()
    server.replace(*[Reply(text="done")] * 8)
    shared = agent(client)
    await asyncio.gather(*[shared.run("SECRET") for _ in range(8)])
    runs, chats = exported.by_name("invoke_agent"), exported.by_name("chat")
    assert len({run.context.trace_id for run in runs}) == 8
    assert sorted(one.parent.span_id for one in chats if one.parent) == sorted(
        run.context.span_id for run in runs
    )


async def test_beside_its_own_instrumentation(
    exported: CaptureExporter, server: ScriptedProvider, client: Any
) -> None:
    """With pydantic-ai's own spans around, each token is still counted once."""
    clew.instrument()
    server.add(
        Reply(
            text="done", usage={"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120}
        )
    )
    await agent(client, capabilities=[pydantic_ai.capabilities.Instrumentation()]).run("SECRET")
    attributes = [dict(span.attributes or {}) for span in exported.spans]
    counted = [one.get("gen_ai.usage.input_tokens", 0) for one in attributes]
    assert sum(counted) == 100
    assert len(exported.spans) > 4
    assert b"SECRET" not in exported.otlp_bytes()


async def test_taking_the_tap_off(
    exported: CaptureExporter, server: ScriptedProvider, client: Any
) -> None:
    """After `uninstrument` the class is as it came."""
    before = vars(pydantic_ai.Agent)["iter"]
    clew.instrument()
    assert vars(pydantic_ai.Agent)["iter"] is not before
    clew.uninstrument()
    assert vars(pydantic_ai.Agent)["iter"] is before
    server.add(Reply(text="done"))
    await agent(client).run("SECRET")
    assert list(exported.spans) == []
