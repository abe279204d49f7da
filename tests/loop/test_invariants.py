"""What holds for every run, whatever the model says: with made-up answers, without any HTTP."""

from __future__ import annotations

import asyncio
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from clew.facts import Usage
from clew.loop import Loop, LoopResult, Tool, Trace, Window
from clew.prompts.configuration import Configuration
from clew.providers import ChatRequest, ChatResponse, Message, Provider, ToolRequest

CALLS = st.builds(
    ToolRequest,
    id=st.sampled_from(["a", "b", None]),
    name=st.sampled_from(["read", "slow", "broken", "hidden", "nobody", ""]),
    arguments=st.sampled_from([{}, {"x": 1}, None]),
    arguments_text=st.sampled_from(["{}", "no json"]),
)
ANSWERS = st.builds(
    ChatResponse,
    text=st.sampled_from(["", "said"]),
    tool_calls=st.lists(CALLS, max_size=3).map(tuple),
    usage=st.none() | st.builds(Usage, input_tokens=st.integers(0, 900)),
    provider=st.just("made_up"),
)


class MadeUp(Provider):
    """Answers in order, then with the last one; remembers what it was asked."""

    name = "made_up"
    semconv_name = "made_up"

    def __init__(self, answers: list[ChatResponse]) -> None:
        self.answers = answers
        self.asked: list[ChatRequest] = []

    def chat(self, request: ChatRequest, *, hops: Any = None) -> ChatResponse:
        self.asked.append(request)
        return self.answers[min(len(self.asked), len(self.answers)) - 1]

    async def achat(self, request: ChatRequest, *, hops: Any = None) -> ChatResponse:
        return self.chat(request)

    def stream(self, request: ChatRequest, *, hops: Any = None) -> Any:
        raise NotImplementedError

    def astream(self, request: ChatRequest, *, hops: Any = None) -> Any:
        raise NotImplementedError

    def wire_body(self, request: ChatRequest, *, stream: bool = False) -> bytes:
        return b"{}"


def broken(**arguments: Any) -> str:
    raise ValueError(arguments)


def slow(**arguments: Any) -> str:
    return "x" * (400 + len(arguments))


def hidden(**arguments: Any) -> str:
    return f"never {arguments}"


TOOLS = tuple(
    Tool(name=name, function=function, effect="read_only")
    for name, function in (
        ("read", lambda **given: str(given)),
        ("slow", slow),
        ("broken", broken),
        ("hidden", hidden),
    )
)


def played(
    answers: list[ChatResponse], cap: int, length: int, mode: str, trace: Trace
) -> tuple[LoopResult, MadeUp]:
    by = MadeUp(answers)
    configuration = Configuration(
        provider="made_up",
        model="small",
        prompt="Be brief.",
        tools=("read", "slow", "broken"),
        limits={"max_rounds": cap},  # type: ignore[arg-type]
    )
    window = Window(context_length=length, reserved_output=0)
    loop = Loop(configuration, by, tools=TOOLS, window=window)
    if mode == "sync":
        return loop.run("Hello?", trace=trace), by
    return asyncio.run(loop.arun("Hello?", trace=trace)), by


def is_whole(messages: tuple[Message, ...]) -> bool:
    """Tell whether every call has its result, in order, right behind it, and no other is there."""
    at = 0
    while at < len(messages):
        calls = messages[at].tool_calls
        results = messages[at + 1 : at + 1 + len(calls)]
        if [(one.role, one.tool_name) for one in results] != [("tool", one.name) for one in calls]:
            return False
        at += 1 + len(calls)
    return True


@given(
    st.lists(ANSWERS, min_size=1, max_size=6),
    st.integers(1, 4),
    st.integers(60, 2000),
    st.sampled_from(["sync", "async"]),
)
def test_every_run(answers: list[ChatResponse], cap: int, length: int, mode: str):
    """Bounds hold, every call has its result, the sums are right, and the trace is whole."""
    trace = Trace()
    result, by = played(answers, cap, length, mode, trace)
    said = [by.answers[min(n, len(answers)) - 1] for n in range(1, len(by.asked) + 1)]
    assert result.status == "completed"
    assert result.reason in ("completed", "max_rounds", "context_truncated")
    assert result.rounds == len(by.asked) == result.totals.rounds <= cap + 1
    assert result.truncated is (result.reason != "completed")
    assert (result.reason == "max_rounds") is (result.rounds == cap + 1)
    used = [one.usage.input_tokens or 0 for one in said if one.usage is not None]
    assert (result.totals.input_tokens or 0) == sum(used)
    assert result.totals.rounds_without_usage == len(said) - len(used)

    last = said[-1] if said else None
    open_end = last is not None and bool(last.tool_calls) and result.reason == "max_rounds"
    transcript = result.messages[:-1] if open_end else result.messages
    assert is_whole(transcript)
    for request in by.asked:
        assert is_whole(request.messages)
        assert request.messages[0] == Message.system("Be brief.")
        assert request.messages[1] == Message.user("Hello?")

    executed = sum(len(one.tool_calls) for one in (said[:-1] if open_end else said))
    kinds = [step.kind for step in trace.steps]
    assert kinds.count("tool") == executed == result.totals.tool_calls
    assert kinds.count("request") == kinds.count("llm") == result.rounds
    tried = result.rounds + (result.reason == "context_truncated")
    assert kinds.count("context") == tried
    assert not [step for step in trace.steps if (step.tool_result or "").startswith("never")]
    for step in trace.steps:
        if step.context_budget is not None and step.round <= result.rounds:
            assert step.context_budget["remaining"] >= 0
