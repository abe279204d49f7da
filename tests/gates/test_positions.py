"""Where gates stand: in front of model calls, at the SDK's entry or at `send`."""

# ruff: noqa: PT012 - what is called in a test may be sync or async

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest
from governed import Kit
from saying import DENY, MARK, Govern, Saying, decisions

import clew
from clew.errors import ConfigurationError, PolicyDenied
from clew.gates.guardrail import OutputGuardrail
from clew.providers import ChatRequest, Message, provider
from clew.providers.fallback import FallbackProvider
from clew.testing import Reply, ScriptedProvider
from clew.typing import Verdict


async def test_a_denial_reaches_the_caller_as_itself(
    govern: Govern, kit: Kit, server: ScriptedProvider
) -> None:
    """One evaluation, one decision, nothing sent, no failed round, and no wrapping by the SDK."""
    gate = Saying(DENY)
    exported = govern(gate)
    with pytest.raises(PolicyDenied) as caught, clew.run("triage"):
        await kit.ask()
    assert type(caught.value) is PolicyDenied
    assert (caught.value.__cause__, caught.value.__suppress_context__) == (None, True)
    assert (caught.value.gate, caught.value.reason) == ("house", "house_rule")
    assert MARK not in f"{caught.value!r}{caught.value}"
    assert (len(gate.asked), server.requests) == (1, [])
    (found,) = decisions(exported)
    assert found["id"] == caught.value.decision_id
    assert {key: found[key] for key in ("gate", "outcome", "reason", "enforced", "executed")} == {
        "gate": "house",
        "outcome": "deny",
        "reason": "house_rule",
        "enforced": True,
        "executed": False,
    }
    assert exported.by_name("chat") == ()
    (run,) = exported.by_name("invoke_agent")
    assert run.attributes["clew.run.termination_reason"] == "policy_denied"
    assert run.attributes["clew.run.denials"] == 1
    assert run.attributes["clew.run.rounds"] == 0
    assert MARK.encode() not in exported.otlp_bytes()


async def test_what_is_allowed_is_recorded_and_sent_once(
    govern: Govern, kit: Kit, server: ScriptedProvider
) -> None:
    """The gate sees the facts of the request; the round has the gate's decision beside it."""
    gate = Saying(Verdict(outcome="allow", reason="fine", policy="p", policy_version="7"))
    exported = govern(gate, trust_zones={"127.0.0.1": "local"})
    with clew.run("triage", actor="ann", configuration="v7", tenant="acme") as run:
        run.uses("notes", "source_code")
        assert await kit.text() == f"{MARK} answer"
    (proposal,) = gate.asked
    assert len(server.requests) == 1
    body = server.requests[0].body
    assert proposal.content is not None
    assert proposal.content() == body
    assert proposal.actor is not None
    assert (
        proposal.kind,
        proposal.run_id,
        proposal.agent,
        proposal.actor.id,
        proposal.configuration,
        proposal.tenant,
        proposal.model,
        proposal.operation,
        proposal.request_bytes,
        proposal.max_output_tokens,
        proposal.data_class,
        proposal.source,
        proposal.trust_zone,
    ) == (
        "model_call",
        str(run.run_id),
        "triage",
        "ann",
        "v7",
        "acme",
        kit.model,
        "chat",
        len(body),
        50,
        "source_code",
        "notes",
        "local",
    )
    assert MARK not in repr(proposal)
    (found,) = decisions(exported)
    assert (found["outcome"], found["policy"], found["policy_version"]) == ("allow", "p", "7")
    assert (found["trust_zone"], found["data_class"]) == ("local", "source_code")
    assert found["executed"] is True
    assert len(exported.by_name("chat")) == 1
    ((settled, settlement),) = gate.settled
    assert settled is proposal
    assert (settlement.usage.input_tokens, settlement.usage.output_tokens) == (12, 7)
    assert MARK.encode() not in exported.otlp_bytes()


async def test_attempts_of_one_call_are_decided_on_once(
    govern: Govern, kit: Kit, server: ScriptedProvider
) -> None:
    """What the SDK sends again is not asked about again."""
    gate = Saying(Verdict(outcome="allow"))
    exported = govern(gate)
    server.replace(Reply.failure(500, retry_after_ms=1), Reply(text="done"))
    with clew.run("triage"):
        assert await kit.text() == "done"
    assert (len(gate.asked), len(server.requests), len(gate.settled)) == (1, 2, 1)
    assert len(decisions(exported)) == 1
    (span,) = exported.by_name("chat")
    assert span.attributes["clew.attempts"] == 2


async def test_observing_stops_nothing(govern: Govern, kit: Kit, server: ScriptedProvider) -> None:
    """A denial that is only observed is recorded as not enforced, and the call is made."""
    exported = govern(Saying(DENY, mode="observe"))
    with clew.run("triage"):
        assert await kit.text() == f"{MARK} answer"
    (found,) = decisions(exported)
    assert (found["outcome"], found["enforced"], found["executed"]) == ("deny", False, True)


@pytest.mark.parametrize("mandatory", [True, False])
async def test_a_gate_that_crashes(
    govern: Govern, kit: Kit, server: ScriptedProvider, mandatory: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    """A mandatory gate denies then, an optional one allows; both say so, and neither quotes."""
    gate = Saying(RuntimeError(f"{MARK} text"), mandatory=mandatory)
    exported = govern(gate, faults={"ask the gate Saying"})
    if mandatory:
        with pytest.raises(PolicyDenied, match="gate_error") as caught, clew.run("triage"):
            await kit.ask()
        assert MARK not in repr(caught.value)
        assert caught.value.__context__ is None or MARK not in repr(caught.value.__context__)
    else:
        with clew.run("triage"):
            assert await kit.text() == f"{MARK} answer"
    (found,) = decisions(exported)
    assert found["reason"] == "gate_error"
    assert found["outcome"] == ("deny" if mandatory else "allow")
    assert len(server.requests) == (0 if mandatory else 1)
    assert ("what it was asked about is denied" in caplog.text) is mandatory
    assert ("The application is not affected" in caplog.text) is not mandatory
    assert MARK not in caplog.text
    assert MARK.encode() not in exported.otlp_bytes()


async def test_gates_are_asked_in_order_until_one_stops(
    govern: Govern, kit: Kit, server: ScriptedProvider
) -> None:
    """Cheap ones come first; those that had allowed are told that nothing happened."""
    first = Saying(Verdict(outcome="allow"), name="first", rank=10)
    second = Saying(DENY, name="second", rank=20)
    third = Saying(Verdict(outcome="allow"), name="third", rank=30)
    exported = govern(third, second, first)
    with pytest.raises(PolicyDenied), clew.run("triage"):
        await kit.ask()
    assert [found["gate"] for found in decisions(exported)] == ["first", "second"]
    assert [found["executed"] for found in decisions(exported)] == [False, False]
    assert (len(first.released), len(second.released), third.asked) == (1, 0, [])


async def test_a_run_adds_gates_and_drops_none(
    govern: Govern, kit: Kit, server: ScriptedProvider
) -> None:
    """Gates of a run come on top, also for its nested agents; other runs do not have them."""
    house, own = Saying(Verdict(outcome="allow")), Saying(DENY, name="own")
    govern(house)
    with clew.run("outer", gates=[own]), clew.run("nested"), pytest.raises(PolicyDenied):
        await kit.ask()
    with clew.run("other", gates=[]):
        await kit.ask()
    assert (len(house.asked), len(own.asked), len(server.requests)) == (2, 1, 1)


async def test_a_run_may_be_the_first_to_bring_gates(
    govern: Govern, kit: Kit, server: ScriptedProvider
) -> None:
    """Where the settings have none, those of a run are asked all the same."""
    govern()
    with clew.run("triage", gates=[Saying(DENY)]), pytest.raises(PolicyDenied):
        await kit.ask()
    assert server.requests == []


async def test_allowing_decisions_can_be_left_out(
    govern: Govern, kit: Kit, server: ScriptedProvider
) -> None:
    """With `record_allow` off only what is not plain allowing is recorded, in gapless order."""
    exported = govern(
        Saying(Verdict(outcome="allow")), Saying(DENY, mode="observe"), record_allow=False
    )
    with clew.run("triage"):
        await kit.ask()
    assert [found["outcome"] for found in decisions(exported)] == ["deny"]
    (run,) = exported.by_name("invoke_agent")
    numbers = sorted(s.attributes["clew.seq"] for s in exported.spans if "clew.seq" in s.attributes)
    assert numbers == list(range(1, len(numbers) + 1))
    assert run.attributes["clew.run.decisions"] == 1


async def test_streams_and_raw_responses_are_denied_alike(
    govern: Govern, kit: Kit, server: ScriptedProvider
) -> None:
    """Whatever form the SDK's method has, the denial is itself."""
    govern(Saying(DENY))
    with pytest.raises(PolicyDenied):
        await kit.ask(stream=True)
    resource = kit.client.chat.completions if kit.openai else kit.client.messages
    size = {"max_completion_tokens" if kit.openai else "max_tokens": 5}
    with pytest.raises(PolicyDenied):
        asked = resource.with_raw_response.create(
            model=kit.model, messages=[{"role": "user", "content": "x"}], **size
        )
        if kit.asynchronous:
            await asked
    assert server.requests == []


def raw_request(server: ScriptedProvider) -> dict[str, Any]:
    body = {"model": "gpt-5-mini", "messages": [{"role": "user", "content": MARK}]}
    return {"url": f"{server.openai_base_url}/chat/completions", "json": body}


@pytest.mark.parametrize("asynchronous", [False, True])
async def test_a_bare_http_client_is_denied_at_send(
    govern: Govern, server: ScriptedProvider, asynchronous: bool
) -> None:
    """Where no SDK is in between, the denial is raised by `send`; other requests pass."""
    gate = Saying(DENY)
    govern(gate)
    if asynchronous:
        async with httpx.AsyncClient(trust_env=False) as client:
            with pytest.raises(PolicyDenied):
                await client.post(**raw_request(server))
            assert (await client.get(f"{server.base_url}/other")).status_code == 404
    else:
        with httpx.Client(trust_env=False) as client:
            with pytest.raises(PolicyDenied):
                client.post(**raw_request(server))
            assert client.get(f"{server.base_url}/other").status_code == 404
    assert (len(gate.asked), len(server.requests)) == (1, 1)


@pytest.mark.parametrize("asynchronous", [False, True])
async def test_our_own_adapters_are_governed(
    govern: Govern, server: ScriptedProvider, asynchronous: bool
) -> None:
    """An adapter neither retries nor wraps a denial, whole or streamed."""
    gate = Saying(DENY)
    govern(gate)
    ours = provider("openai", api_key="k", base_url=server.openai_base_url)
    request = ChatRequest(model="small", messages=(Message.user(MARK),))
    with pytest.raises(PolicyDenied):
        if asynchronous:
            await ours.achat(request)
        else:
            ours.chat(request)
    with pytest.raises(PolicyDenied):
        if asynchronous:
            async with ours.astream(request) as stream:
                _ = [event async for event in stream]
        else:
            with ours.stream(request) as stream:
                _ = list(stream)
    await ours.aclose()
    ours.close()
    assert (len(gate.asked), server.requests) == (2, [])


async def test_asynchronous_gates_are_awaited(govern: Govern, server: ScriptedProvider) -> None:
    """A gate with `acheck` is awaited in asynchronous code, and asked plainly elsewhere."""

    class Slow(Saying):
        async def acheck(self, proposal: Any) -> Verdict | None:
            await asyncio.sleep(0.01)
            self.asked.append(proposal)
            return Verdict(outcome="deny", reason="slowly")

    govern(Slow(DENY))
    slow, quick = Kit("openai-async", server), Kit("openai-sync", server)
    with pytest.raises(PolicyDenied, match="slowly"):
        await slow.ask()
    with pytest.raises(PolicyDenied, match="house_rule"):
        await quick.ask()
    await slow.close()
    await quick.close()


async def test_a_cancelled_evaluation_gives_back_what_was_reserved(
    govern: Govern, server: ScriptedProvider
) -> None:
    """A task that is cancelled while a gate thinks has reserved nothing, and sent nothing."""

    class Thinking(Saying):
        begun = asyncio.Event()

        async def acheck(self, proposal: Any) -> Verdict | None:
            self.begun.set()
            await asyncio.sleep(30)
            return None

    first, thinking = Saying(Verdict(outcome="allow"), rank=1), Thinking(name="thinking")
    govern(first, thinking)
    kit = Kit("openai-async", server)
    task = asyncio.create_task(kit.ask())
    await asyncio.wait_for(thinking.begun.wait(), 10)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await kit.close()
    assert (len(first.released), server.requests) == (1, [])


def test_without_gates_nothing_is_asked(govern: Govern) -> None:
    """No gates, no governor: tools and calls are as they were."""
    exported = govern()
    with clew.run("desk"), clew.tool("refund"):
        pass
    assert decisions(exported) == []


@pytest.mark.parametrize("said", [True, "deny", Verdict(outcome="perhaps")])  # type: ignore[arg-type]
async def test_anything_but_a_verdict_is_a_crash(
    govern: Govern, server: ScriptedProvider, said: Any
) -> None:
    """A gate that answers with something else has not allowed."""
    govern(Saying(said), faults={"ask the gate Saying"})
    kit = Kit("openai-sync", server)
    with pytest.raises(PolicyDenied, match="gate_error"):
        await kit.ask()
    await kit.close()
    assert server.requests == []


def test_what_is_no_gate_is_refused_at_once(govern: Govern) -> None:
    """It could not be asked later: neither the settings nor a run take it."""
    with pytest.raises(ConfigurationError, match="object is given as a gate and has no name"):
        govern(object())
    with pytest.raises(ConfigurationError, match="as a gate"):
        clew.run("desk", gates=[print])  # type: ignore[list-item]


async def test_a_chain_does_not_fall_back_from_a_denial(
    govern: Govern, server: ScriptedProvider
) -> None:
    """What is denied at the first provider is not asked of the second one."""
    gate = Saying(DENY)
    govern(gate)
    chain = FallbackProvider(
        provider("openai", api_key="k", base_url=server.openai_base_url),
        provider("anthropic", api_key="k", base_url=server.base_url),
    )
    request = ChatRequest(model="small", messages=(Message.user(MARK),))
    with chain, pytest.raises(PolicyDenied):
        chain.chat(request)
    assert (len(gate.asked), server.requests) == (1, [])


@pytest.mark.parametrize("stream", [False, True])
async def test_a_fault_of_telemetry_drops_no_gate(
    govern: Govern,
    kit: Kit,
    server: ScriptedProvider,
    monkeypatch: pytest.MonkeyPatch,
    stream: bool,
) -> None:
    """Where the round cannot be begun, the answer is looked at all the same, held back as a whole."""
    monkeypatch.setattr("clew.exchange.begin", lambda *_, **__: 1 / 0)
    said: list[Verdict | None] = [DENY]
    exported = govern(OutputGuardrail(lambda _: said[0]), faults={"look at a request"})
    with pytest.raises(PolicyDenied), clew.run("triage"):
        await kit.text(stream=stream)
    (found,) = decisions(exported)
    assert (found["gate"], found["outcome"]) == ("guardrail_output", "deny")
    said[0] = None
    assert await kit.text(stream=stream) == f"{MARK} answer"
