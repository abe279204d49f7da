"""In-house callables stand behind the gates like SDK clients do."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from saying import DENY, MARK, Govern, Saying, decisions

import clew
from clew.errors import ApprovalRequired, PolicyDenied
from clew.gates.guardrail import InputGuardrail, OutputGuardrail, redact
from clew.testing import Reply, ScriptedProvider
from clew.typing import Verdict

ALLOW = Verdict(outcome="allow", reason="fine")
FACTS = {
    "provider": "in-house",
    "model": "model",
    "input_tokens": "usage.input",
    "output_tokens": "usage.output",
}


@dataclass
class Answer:
    text: str
    usage: Any


def answer() -> Answer:
    return Answer(f"{MARK} answer", {"input": 12, "output": 7})


class House:
    """An in-house provider in five shapes."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def plain(self, prompt: str, *, model: str) -> Answer:
        self.calls.append(model)
        return answer()

    async def coroutine(self, prompt: str, *, model: str) -> Answer:
        self.calls.append(model)
        return answer()

    def awaitable(self, prompt: str, *, model: str) -> Any:
        return self.coroutine(prompt, model=model)

    def generator(self, prompt: str, *, model: str) -> Iterator[Answer]:
        self.calls.append(model)
        yield answer()

    async def agenerator(self, prompt: str, *, model: str) -> AsyncIterator[Answer]:
        self.calls.append(model)
        yield answer()


SHAPES = ("plain", "coroutine", "awaitable", "generator", "agenerator")


async def called(house: House, shape: str, prompt: str = f"{MARK} prompt") -> Any:
    """Call in a shape, and read what comes."""
    function = clew.instrument(getattr(house, shape), facts=FACTS)
    found = function(prompt, model="house-1")
    if inspect.isawaitable(found):
        return await found
    if hasattr(found, "__anext__"):
        return [item async for item in found]
    return list(found) if hasattr(found, "__next__") else found


@pytest.mark.parametrize("shape", SHAPES)
async def test_a_denied_callable_is_not_called(govern: Govern, shape: str) -> None:
    """`PolicyDenied` as itself, after one evaluation and one decision, and no round."""
    gate, house = Saying(DENY), House()
    exported = govern(gate)
    with pytest.raises(PolicyDenied) as caught, clew.run("triage"):
        await called(house, shape)
    assert type(caught.value) is PolicyDenied
    assert caught.value.__cause__ is None
    assert (house.calls, len(gate.asked)) == ([], 1)
    (found,) = decisions(exported)
    assert found["id"] == caught.value.decision_id
    assert (found["outcome"], found["executed"]) == ("deny", False)
    assert exported.by_name("chat") == ()
    (run,) = exported.by_name("invoke_agent")
    assert run.attributes["clew.run.rounds"] == 0
    assert MARK.encode() not in exported.otlp_bytes()


@pytest.mark.parametrize("shape", SHAPES)
async def test_an_allowed_callable_is_settled_with_its_usage(govern: Govern, shape: str) -> None:
    """The gate sees the facts and, if it asks, the arguments; it is told how the round ended."""
    gate, house = Saying(ALLOW), House()
    exported = govern(gate, trust_zones={"in-house": "private_hosted"})
    with clew.run("triage"):
        await called(house, shape)
    assert house.calls == ["house-1"]
    (proposal,) = gate.asked
    assert (proposal.kind, proposal.provider, proposal.model, proposal.operation) == (
        "model_call",
        "in-house",
        "house-1",
        "chat",
    )
    assert proposal.trust_zone == "private_hosted"
    assert proposal.content is not None
    assert proposal.content() == f'{{"model":"house-1","prompt":"{MARK} prompt"}}'.encode()
    ((settled, settlement),) = gate.settled
    assert settled is proposal
    assert (settlement.usage.input_tokens, settlement.usage.output_tokens) == (12, 7)
    assert [found["outcome"] for found in decisions(exported)] == ["allow"]
    assert MARK.encode() not in exported.otlp_bytes()


@pytest.mark.parametrize("shape", ["generator", "agenerator"])
async def test_a_refused_stream_stays_refused(govern: Govern, shape: str) -> None:
    """Whoever goes on after the denial gets it again: one evaluation, and no call."""
    gate, house = Saying(DENY), House()
    govern(gate)
    stream: Any = clew.instrument(getattr(house, shape), facts=FACTS)("x", model="house-1")
    for _ in range(2):
        with pytest.raises(PolicyDenied):
            await anext(stream) if shape == "agenerator" else next(stream)
    assert (house.calls, len(gate.asked)) == ([], 1)


@pytest.mark.parametrize("shape", SHAPES)
async def test_an_approval_names_the_run(govern: Govern, shape: str) -> None:
    """`ApprovalRequired` has what resumes the run."""
    house = House()
    govern(Saying(Verdict(outcome="require_approval", reason="large", approval_id="a1")))
    with pytest.raises(ApprovalRequired) as caught, clew.run("triage") as run:
        await called(house, shape)
    assert caught.value.reference is not None
    assert clew.resume(caught.value.reference).run_id == run.run_id
    assert house.calls == []


@pytest.mark.parametrize("shape", SHAPES)
async def test_an_input_guardrail_sees_the_arguments(govern: Govern, shape: str) -> None:
    """What it would redact is denied: the arguments are not Clew's to change."""
    house = House()
    exported = govern(InputGuardrail(lambda text: redact("x") if "secret" in text else None))
    with clew.run("triage"):
        await called(house, shape, "fine")
        with pytest.raises(PolicyDenied, match="redact_not_possible"):
            await called(house, shape, "a secret")
    assert house.calls == ["house-1"]
    assert [found["outcome"] for found in decisions(exported)] == ["allow", "deny"]


@pytest.mark.parametrize("shape", SHAPES)
async def test_an_output_guardrail_sees_the_result(govern: Govern, shape: str) -> None:
    """A result is looked at, and a stream of objects when it is there as a whole."""
    house = House()
    look = OutputGuardrail(
        lambda text: Verdict(outcome="deny", reason="found") if MARK in text else None
    )
    exported = govern(look)
    with pytest.raises(PolicyDenied) as caught, clew.run("triage"):
        await called(house, shape)
    assert caught.value.reason == "found"
    assert house.calls == ["house-1"]
    (span,) = exported.by_name("chat")
    assert span.attributes["gen_ai.usage.output_tokens"] == 7
    assert "error.type" not in span.attributes
    assert [found["outcome"] for found in decisions(exported)] == ["deny"]


@pytest.mark.parametrize("ending", ["found", "nothing", "redact", "error", "object"])
@pytest.mark.parametrize("asynchronous", [False, True])
async def test_a_stream_of_items_is_held_back(
    govern: Govern, ending: str, asynchronous: bool
) -> None:
    """Not one item is handed out before all were looked at, together: a word may be cut over two."""
    said = Verdict(outcome="deny", reason="found")
    said = redact("x") if ending == "redact" else said
    exported = govern(OutputGuardrail(lambda text: said if MARK in text else None))
    last = {"error": RuntimeError("gone"), "object": object()}.get(ending)
    parts = ["a ", MARK[:3], "b" if ending in ("nothing", "error", "object") else MARK[3:]]

    def items(model: str) -> Iterator[Any]:
        yield from parts
        if isinstance(last, Exception):
            raise last
        if last is not None:
            yield last

    async def aitems(model: str) -> AsyncIterator[Any]:
        for item in items(model):
            yield item

    call: Any = clew.instrument(aitems if asynchronous else items, facts=FACTS)
    came: list[Any] = []

    async def read() -> None:
        if asynchronous:
            async for item in call("house-1"):
                came.append(item)  # noqa: PERF401
        else:
            for item in call("house-1"):
                came.append(item)  # noqa: PERF402

    with clew.run("triage"):
        if ending == "nothing":
            await read()
        else:
            with pytest.raises((PolicyDenied, RuntimeError)) as caught:
                await read()
            assert (
                getattr(caught.value, "reason", "gone")
                == {
                    "found": "found",
                    "redact": "redact_not_possible",
                    "error": "gone",
                    "object": "content_unavailable",
                }[ending]
            )
    assert came == (parts if ending in ("nothing", "error") else [])
    allowed = ending in ("nothing", "error")
    assert [found["outcome"] for found in decisions(exported)] == ["allow" if allowed else "deny"]
    (span,) = exported.by_name("chat")
    wanted = "failed" if ending == "error" else "complete"
    assert span.attributes["clew.stream.outcome"] == wanted


@pytest.mark.parametrize("inside", ["attribute", "key"])
def test_a_stream_inside_of_a_result_is_held_back(govern: Govern, inside: str) -> None:
    """So is one that is an attribute or a key of the result."""
    govern(OutputGuardrail(lambda text: Verdict(outcome="deny") if MARK in text else None))

    def ask(model: str) -> Any:
        events = iter([model, MARK])
        return {"events": events} if inside == "key" else SimpleNamespace(events=events)

    call: Any = clew.instrument(ask, facts={**FACTS, "stream": "events"})
    with clew.run("triage"):
        found = call("house-1")
        events = found["events"] if inside == "key" else found.events
        for _ in range(2):
            with pytest.raises(PolicyDenied):
                next(events)


def test_observers_of_a_stream_of_items(govern: Govern) -> None:
    """What only observes holds nothing back, and has no decision on a stream of objects."""
    exported = govern(OutputGuardrail(lambda _: Verdict(outcome="deny"), mode="observe"))
    call: Any = clew.instrument(House().generator, facts=FACTS)
    with clew.run("triage"):
        assert len(list(call(MARK, model="house-1"))) == 1
    assert decisions(exported) == []


@pytest.mark.parametrize("asynchronous", [False, True])
async def test_what_a_callable_sends_is_decided_on_with_it(
    govern: Govern, asynchronous: bool
) -> None:
    """Its requests are part of its round: one evaluation, one decision."""
    gate = Saying(ALLOW)
    exported = govern(gate)
    body = {"model": "house-1", "messages": [{"role": "user", "content": MARK}]}
    with ScriptedProvider(lambda _: Reply(text="fine")) as server:
        url = f"{server.openai_base_url}/chat/completions"

        def plain(model: str) -> Any:
            with httpx.Client(trust_env=False) as client:
                return SimpleNamespace(**client.post(url, json=body).json())

        async def coroutine(model: str) -> Any:
            async with httpx.AsyncClient(trust_env=False) as client:
                return SimpleNamespace(**(await client.post(url, json=body)).json())

        function: Any = clew.instrument(coroutine if asynchronous else plain, facts=FACTS)
        with clew.run("triage"):
            found = function("house-1")
            assert (await found if asynchronous else found).object == "chat.completion"
        assert len(server.requests) == 1
    assert len(gate.asked) == len(decisions(exported)) == len(exported.by_name("chat")) == 1


@pytest.mark.parametrize("shape", SHAPES)
async def test_a_failing_callable_is_settled_as_failed(govern: Govern, shape: str) -> None:
    """A gate is told that what it allowed has failed."""
    gate = Saying(ALLOW)
    govern(gate)

    class Broken(House):
        @property
        def calls(self) -> Any:
            raise RuntimeError(MARK)

        @calls.setter
        def calls(self, value: Any) -> None: ...

    with pytest.raises(RuntimeError, match=MARK), clew.run("triage"):
        await called(Broken(), shape)
    ((_, settlement),) = gate.settled
    assert settlement.failed is True
