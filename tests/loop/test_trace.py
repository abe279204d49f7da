"""The run trace: what is recorded of each request, answer and tool call, and in which form."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from loop_kit import Kit, asks
from trace_kit import DONE, FIND, TURN, text, timeless

from clew.gates.guardrail import InputGuardrail, redact
from clew.loop import LoopLimits, Step, Tool, Trace
from clew.providers import ChatRequest, ChatResponse, Provider, provider
from clew.testing import CaptureExporter, Reply


async def test_nothing_is_recorded_and_nothing_changes_without_a_trace(kit: Kit):
    """The bytes that the provider gets are the same, and so is the result."""
    kit.script(TURN, DONE, TURN, DONE)
    loop = kit.loop(FIND, prompt="Be brief.", model="gpt-4o")
    trace = Trace()
    with_trace = await kit.run(loop, trace=trace)
    without = await kit.run(loop)
    requests = [request.body for request in kit.server.requests]
    assert requests[:2] == requests[2:]
    assert with_trace.messages == without.messages
    assert (with_trace.text, with_trace.totals) == (without.text, without.totals)
    assert [step.kind for step in trace.steps if step.kind != "context"] == [
        "request",
        "llm",
        "tool",
        "request",
        "llm",
    ]


async def test_each_round_and_each_tool_has_its_record(kit: Kit):
    """Messages out, tools offered, text, finish reason, tokens, cost, calls; the tool's call."""
    kit.script(TURN, DONE)
    trace = Trace()
    await kit.run(kit.loop(FIND, prompt="Be brief.", model="gpt-4o"), trace=trace)
    front = (text("system", "Be brief."), text("user", "Hello?"))
    asked = {"id": "c1", "name": "find", "arguments": {"number": "P"}}
    said = {
        "role": "assistant",
        "parts": [{"type": "text", "content": "I look."}, {"type": "tool_call", **asked}],
    }
    result = {"type": "tool_call_response", "response": "parcel P", "id": "c1"}
    tokens = {"promptTokens": 100, "completionTokens": 10, "totalTokens": 110}
    cost = {"estimatedCost": pytest.approx(100 * 2.5e-6 + 10 * 1e-5)}
    assert timeless(trace.steps) == [
        {"kind": "request", "round": 1, "messagesSent": front, "toolSpecs": ("find",)},
        {
            "kind": "llm",
            "round": 1,
            "content": "I look.",
            "finishReason": "tool_call",
            **tokens,
            **cost,
            "requestedToolCalls": (asked,),
            "provider": "openai",
            "model": "gpt-4o-2024-08-06",
        },
        {
            "kind": "tool",
            "round": 1,
            "toolName": "find",
            "toolArguments": {"number": "P"},
            "toolResult": "parcel P",
            "toolIsError": False,
            "toolArtifacts": ({"map": [1, 2]},),
        },
        {
            "kind": "request",
            "round": 2,
            "messagesSent": (*front, said, {"role": "tool", "parts": [result]}),
            "toolSpecs": ("find",),
        },
        {
            "kind": "llm",
            "round": 2,
            "content": "Done.",
            "finishReason": "stop",
            **tokens,
            **cost,
            "provider": "openai",
            "model": "gpt-4o",
        },
    ]
    assert b"map" not in kit.server.requests[1].body


async def test_thinking_is_recorded(kit: Kit):
    """What a model thinks stands apart from what it says."""
    kit.script(Reply(text="<think>Hm.</think>Yes."))
    trace = Trace()
    await kit.run(kit.loop(), trace=trace)
    assert (trace.steps[-1].thinking, trace.steps[-1].content) == ("Hm.", "Yes.")


async def test_times_are_taken_apart(kit: Kit):
    """Each provider call and each tool call by a monotonic clock, in ms with two decimals."""

    def slow() -> str:
        time.sleep(0.05)
        return "x"

    kit.script(Reply(tool_calls=(asks("slow"),), delay=0.08), Reply(text="x"))
    trace = Trace()
    await kit.run(kit.loop(Tool.of(slow, effect="read_only")), trace=trace)
    times = {(step.kind, step.round): step.duration_ms for step in trace.steps}
    assert times["llm", 1] >= 80
    assert 50 <= times["tool", 1] < 80
    assert times["request", 1] == times["context", 1] == 0.0
    assert all(round(value, 2) == value for value in times.values())


async def test_a_response_does_not_repeat_the_messages(kit: Kit):
    """Messages stand in the request's half alone."""
    kit.script(TURN, DONE)
    trace = Trace()
    await kit.run(kit.loop(FIND), trace=trace)
    assert [step.kind for step in trace.steps if step.messages_sent is not None] == ["request"] * 2


def test_only_what_is_none_is_left_out():
    """Zero, false and empty text are said; what does not apply is not."""
    step = Step(kind="llm", round=1, content="", prompt_tokens=0, tool_is_error=False)
    assert step.as_dict() == {
        "kind": "llm",
        "round": 1,
        "durationMs": 0.0,
        "content": "",
        "promptTokens": 0,
        "toolIsError": False,
    }


def test_the_keys_of_a_step():
    """These and no others."""
    assert set(Step.__struct_encode_fields__) == {
        "kind",
        "round",
        "durationMs",
        "messagesSent",
        "toolSpecs",
        "content",
        "thinking",
        "finishReason",
        "promptTokens",
        "completionTokens",
        "totalTokens",
        "estimatedCost",
        "requestedToolCalls",
        "raw",
        "droppedSources",
        "toolName",
        "toolArguments",
        "toolResult",
        "toolIsError",
        "toolArtifacts",
        "contextBudget",
        "errorType",
        "provider",
        "model",
        "hop",
        "approved",
        "decidedBy",
        "submittedBy",
    }


async def test_rounds_are_numbered_from_one_and_the_closing_one_is_the_last(kit: Kit):
    """Steps of a closing round have the number after the cap."""
    kit.script(TURN, TURN, DONE)
    trace = Trace()
    await kit.run(kit.loop(FIND, limits={"max_rounds": 2}), trace=trace)
    assert [step.round for step in trace.steps if step.kind == "llm"] == [1, 2, 3]
    assert [step.round for step in trace.steps if step.kind == "tool"] == [1, 2]


async def test_a_round_that_fails_is_closed(kit: Kit):
    """A request has its partner: with the elapsed time and the class of the error, no text."""
    kit.script(Reply.failure(500, "SECRET", delay=0.05))
    trace = Trace()
    await kit.run(kit.loop(), trace=trace)
    request, answer = trace.steps[1:]
    assert (request.kind, answer.kind) == ("request", "llm")
    assert answer.error_type == "clew.providers.errors.ProviderError"
    assert answer.duration_ms >= 50
    assert "SECRET" not in repr(trace.as_list())
    (span,) = kit.exported.by_name("chat")
    assert span.status.status_code.name == "ERROR"


async def test_the_trace_has_what_leaves(kit: Kit, govern: Callable[..., CaptureExporter]):
    """After redaction by a gate, as the provider gets it; the transcript stays as it was."""
    kit.exported = govern(InputGuardrail(lambda said: redact(said.replace("SECRET", "***"))))
    kit.script(DONE)
    trace = Trace()
    result = await kit.run(kit.loop(prompt="Know SECRET."), "The SECRET?", trace=trace)
    (request,) = [step for step in trace.steps if step.kind == "request"]
    expected = (text("system", "Know ***."), text("user", "The ***?"))
    assert request.messages_sent == expected
    assert kit.sent == [[("system", "Know ***."), ("user", "The ***?")]]
    assert result.messages[1].text == "The SECRET?"


@pytest.mark.parametrize(
    ("name", "suffix"), [("anthropic", ""), ("gemini", "/v1beta"), ("ollama", ""), ("groq", "/v1")]
)
async def test_messages_are_read_from_each_providers_form(kit: Kit, name: str, suffix: str):
    """System prompts among them, wherever the provider wants them."""
    kit.script(DONE)
    trace = Trace()
    async with provider(name, api_key="k", base_url=kit.server.base_url + suffix) as by:
        await kit.run(kit.loop(by=by, prompt="Be brief."), trace=trace)
    (request,) = [step for step in trace.steps if step.kind == "request"]
    assert request.messages_sent == (text("system", "Be brief."), text("user", "Hello?"))


async def test_a_chain_tells_of_each_provider(kit: Kit):
    """One request for each that is asked, with its place; the answer says which one it was."""
    from clew.providers import FallbackProvider

    kit.script(Reply.failure(500), DONE)
    trace = Trace()
    async with provider("anthropic", api_key="k", base_url=kit.server.base_url) as second:
        chain = FallbackProvider(kit.provider, second)
        await kit.run(kit.loop(by=chain, prompt="P"), trace=trace)
    steps = [step for step in trace.steps if step.kind != "context"]
    assert [(step.kind, step.hop) for step in steps] == [
        ("request", None),
        ("request", 1),
        ("llm", 1),
    ]
    assert steps[0].messages_sent == steps[1].messages_sent


class Echo(Provider):
    """A provider of somebody else's, without any HTTP."""

    name = "echo"
    semconv_name = "echo"

    def chat(self, request: ChatRequest, *, hops: Any = None) -> ChatResponse:
        return ChatResponse(text=request.messages[-1].text, provider="echo")

    async def achat(self, request: ChatRequest, *, hops: Any = None) -> ChatResponse:
        return self.chat(request)

    def stream(self, request: ChatRequest, *, hops: Any = None) -> Any:
        raise NotImplementedError

    def astream(self, request: ChatRequest, *, hops: Any = None) -> Any:
        raise NotImplementedError

    def wire_body(self, request: ChatRequest, *, stream: bool = False) -> bytes:
        return request.messages[-1].text.encode()


async def test_a_provider_that_is_none_of_ours_is_traced_too(kit: Kit):
    """Its requests are recorded as the loop makes them."""
    trace = Trace()
    result = await kit.run(kit.loop(by=Echo(), prompt="P"), "Hi", trace=trace)
    assert result.text == "Hi"
    assert [step.kind for step in trace.steps] == ["context", "request", "llm"]
    sent = ({"role": "system", "content": "P"}, {"role": "user", "content": "Hi"})
    assert trace.steps[1].messages_sent == sent
    assert (await kit.dry_run(kit.loop(by=Echo()), "Hi")).wire == b"Hi"


async def test_refusals_are_steps_that_took_no_time(kit: Kit):
    """Unknown, not offered, no JSON, no calls left: an error, zero ms, nothing of any exception."""
    seen: list[str] = []
    tools = [
        Tool(name=name, function=seen.append, effect="read_only", remote=True)
        for name in ("near", "far")
    ]
    kit.script(
        Reply(
            tool_calls=(
                asks("nobody"),
                asks("far"),
                asks("near", "no json"),
                asks("near", {"object": "a"}),
                asks("near", {"object": "b"}),
            )
        ),
        DONE,
    )
    trace = Trace()
    before: list[str] = []
    loop = kit.loop(
        *tools,
        tools=("near",),
        loop={"limits": LoopLimits(remote_calls=1), "before_tool": lambda e: before.append(e.tool)},
    )
    await kit.run(loop, trace=trace)
    steps = [step for step in trace.steps if step.kind == "tool"]
    told = {
        (step.tool_name, step.tool_is_error, step.tool_result)
        for step in steps
        if step.duration_ms == 0.0
    }
    sentence = "; the tool was not executed."
    assert told >= {
        ("nobody", True, "There is no tool of this name."),
        ("far", True, "This tool is not offered."),
        ("near", True, f"The arguments are no JSON object{sentence}"),
        ("near", True, f"No calls to the outside are left in this run{sentence}"),
    }
    assert len(steps) == 5
    assert before == ["near"]
    outcomes = [span["clew.tool.outcome"] for span in kit.spans("execute_tool")]
    assert sorted(outcomes) == ["denied", "error", "error", "not_offered", "unknown"]
