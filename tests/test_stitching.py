"""Tool calls seen on the wire: inferred spans, and calls without a run that share a trace."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import httpx2
import pytest
from opentelemetry import trace

import clew
from clew.dialects.conversation import Conversation
from clew.testing import CaptureExporter, Reply, ScriptedProvider, ScriptedToolCall

TOOLS = [{"type": "function", "function": {"name": "search", "parameters": {}}}]


class Chat:
    """A program that keeps a conversation and answers the model's tool calls, without Clew."""

    def __init__(self, client: httpx2.Client, url: str) -> None:
        self.client = client
        self.url = url
        self.messages: list[dict[str, Any]] = [{"role": "user", "content": "hi"}]

    def say(self) -> list[dict[str, Any]]:
        body = {"model": "m", "messages": self.messages, "tools": TOOLS}
        message = self.client.post(self.url, json=body).json()["choices"][0]["message"]
        self.messages.append(message)
        return message.get("tool_calls") or []

    def answer(self, calls: list[dict[str, Any]]) -> None:
        for call in calls:
            self.messages.append(
                {"role": "tool", "tool_call_id": call["id"], "content": json.dumps("x")}
            )


def wants(*calls: tuple[str, str]) -> Reply:
    return Reply(tool_calls=tuple(ScriptedToolCall(id=i, name=n) for i, n in calls))


@pytest.fixture
def chat(exported: CaptureExporter) -> Iterator[Callable[..., Chat]]:
    with ScriptedProvider() as provider, httpx2.Client() as client:
        clew.instrument()

        def make(*replies: Reply) -> Chat:
            provider.add(*replies)
            return Chat(client, f"{provider.openai_base_url}/chat/completions")

        yield make


def tools(exported: CaptureExporter) -> list[dict[str, Any]]:
    return [dict(span.attributes or {}) for span in exported.by_name("execute_tool")]


def test_an_execution_that_nobody_recorded_is_inferred(
    exported: CaptureExporter, chat: Callable[..., Chat]
) -> None:
    """Its span lies between the two rounds, once, with name, id and round, and no outcome."""
    program = chat(wants(("c1", "search"), ("c2", "search")), Reply(text="a"), Reply(text="b"))
    with clew.run("triage") as run:
        program.answer(program.say())
        program.say()
        program.say()
    found = tools(exported)
    assert [one["gen_ai.tool.call.id"] for one in found] == ["c1", "c2"]
    assert all(one["clew.tool.inferred"] is True for one in found)
    assert all(one["clew.round"] == 1 for one in found)
    assert all("clew.tool.outcome" not in one for one in found)
    first, second, _ = exported.by_name("chat")
    for span in exported.by_name("execute_tool"):
        assert first.end_time <= span.start_time <= span.end_time <= second.start_time
        assert span.context.trace_id == run.run_id.int
    (root,) = exported.by_name("invoke_agent")
    assert root.attributes["clew.run.tool_calls"] == 2


def test_a_long_conversation_says_as_much_as_a_short_one(
    exported: CaptureExporter, chat: Callable[..., Chat]
) -> None:
    """Of which only the new messages are read: all are counted, each execution inferred once."""
    rounds = 12
    program = chat(*[wants((f"c{number}", "search")) for number in range(rounds)], Reply(text="a"))
    program.messages *= 30
    program.messages[0] = {"role": "system", "content": "Answer shortly. " * 400}
    with clew.run("triage"):
        for _ in range(rounds):
            program.answer(program.say())
        program.say()
    assert [one["gen_ai.tool.call.id"] for one in tools(exported)] == [
        f"c{number}" for number in range(rounds)
    ]
    sent = [(span.attributes or {})["clew.request.messages"] for span in exported.by_name("chat")]
    assert sent == [30 + 2 * number for number in range(rounds + 1)]
    assert Conversation.held == 0


@pytest.mark.parametrize("with_id", [True, False])
def test_an_execution_that_was_recorded_is_not_inferred(
    exported: CaptureExporter, chat: Callable[..., Chat], with_id: bool
) -> None:
    """A recorded tool call is matched by its id, else by its name."""
    program = chat(wants(("c1", "search"), ("c2", "search")), Reply(text="a"))
    with clew.run("triage"):
        calls = program.say()
        with clew.tool("search", call_id=calls[0]["id"] if with_id else None):
            pass
        program.answer(calls)
        program.say()
    recorded, inferred = tools(exported)
    assert "clew.tool.inferred" not in recorded
    assert inferred["gen_ai.tool.call.id"] == "c2"


def test_a_name_that_only_the_model_gave_leaves_as_other(
    exported: CaptureExporter, chat: Callable[..., Chat]
) -> None:
    """An inferred call of a tool that was not offered has a digest instead of its name."""
    program = chat(wants(("c1", "SECRET_TOOL")), Reply(text="a"))
    with clew.run("triage"):
        program.answer(program.say())
        program.say()
    (found,) = tools(exported)
    assert found["gen_ai.tool.name"] == "_OTHER"
    assert len(found["clew.tool.name.digest"]) == 64
    assert b"SECRET" not in exported.otlp_bytes()


def test_calls_that_answer_each_other_share_a_trace(
    exported: CaptureExporter, chat: Callable[..., Chat]
) -> None:
    """Without a run, the ids of tool calls stitch calls together; a lone call stands alone."""
    program = chat(
        wants(("c1", "search")), wants(("c2", "search")), Reply(text="a"), Reply(text="b")
    )
    other = chat()
    program.answer(program.say())
    calls = program.say()
    with clew.tool("search", call_id="c2"):
        pass
    program.answer(calls)
    program.say()
    other.say()
    first, second, third, alone = exported.by_name("chat")
    assert first.parent is None
    for span in (second, third, *exported.by_name("execute_tool")):
        assert span.context.trace_id == first.context.trace_id
        assert span.parent.span_id == first.context.span_id
    assert alone.context.trace_id != first.context.trace_id
    assert [one["gen_ai.tool.call.id"] for one in tools(exported)] == ["c1", "c2"]
    assert uuid.UUID(int=alone.context.trace_id).version == 4


def test_a_current_span_stays_the_parent(
    exported: CaptureExporter, chat: Callable[..., Chat]
) -> None:
    """A call inside a request's trace is in that trace, whatever it answers."""
    program = chat(wants(("c1", "search")), Reply(text="a"))
    program.answer(program.say())
    with trace.get_tracer("server").start_as_current_span("GET") as server:
        program.say()
    _, second = exported.by_name("chat")
    assert second.parent.span_id == server.get_span_context().span_id
