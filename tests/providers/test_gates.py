"""The adapters behind gates: a denial is itself, and streams are looked at by window."""

# ruff: noqa: PT012 - what is called in a test may be sync or async

from __future__ import annotations

from typing import Any

import pytest
from saying import DENY, MARK, SECRET, Govern, Saying, decisions, no_keys, saying

import clew
from clew.errors import PolicyDenied
from clew.gates.guardrail import OutputGuardrail
from clew.providers import ChatRequest, Message
from clew.testing import Reply

ASK = ChatRequest(model="small", messages=(Message.user(f"{MARK} question"),))
TOLD = ("once there was ", "a long tale of many words and ", SECRET[:8], SECRET[8:], " at the end")


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_denial(govern: Govern, kit: Any, streamed: bool) -> None:
    """One evaluation, one decision, nothing sent, no round; not wrapped and not tried again."""
    gate = Saying(DENY)
    exported = govern(gate)
    with pytest.raises(PolicyDenied) as caught, clew.run("desk"):
        await (kit.events(ASK) if streamed else kit.chat(ASK))
    assert type(caught.value) is PolicyDenied
    assert (len(gate.asked), kit.server.requests) == (1, [])
    (found,) = decisions(exported)
    assert found["id"] == caught.value.decision_id
    (run,) = exported.by_name("invoke_agent")
    assert (run.attributes or {})["clew.run.rounds"] == 0
    assert MARK.encode() not in exported.otlp_bytes()


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_redaction(govern: Govern, kit: Any, streamed: bool) -> None:
    """The adapter reads the changed answer, whole or streamed; the tokens are the provider's."""
    counts = []
    for gates in ((), (OutputGuardrail(no_keys, window=8, overlap=20),)):
        exported = govern(*gates)
        kit.server.add(Reply(text=TOLD))
        with clew.run("desk") as run:
            answer = await kit.answer(ASK, streamed=streamed)
            counts.append(run.totals.output_tokens)
    assert counts[0] == counts[1]
    assert answer.text == "".join(TOLD).replace(SECRET, "[gone]")
    (found,) = decisions(exported)
    assert (found["outcome"], found["executed"]) == ("redact", True)
    assert MARK.encode() not in exported.otlp_bytes()


async def test_a_denial_in_the_middle(govern: Govern, kit: Any) -> None:
    """It ends the stream as itself, without another attempt, after what had gone on."""
    exported = govern(OutputGuardrail(saying("deny"), window=8, overlap=20))
    kit.server.add(Reply(text=TOLD), Reply(text="never"))
    came: list[str] = []
    with pytest.raises(PolicyDenied) as caught, clew.run("desk"):
        if kit.mode == "sync":
            came.extend(event.text for event in kit.provider.stream(ASK))
        else:
            async for event in kit.provider.astream(ASK):
                came.append(event.text)  # noqa: PERF401
    assert type(caught.value) is PolicyDenied
    assert len(kit.server.requests) == 1
    assert SECRET[:8] not in "".join(came)
    (found,) = decisions(exported)
    assert (found["outcome"], found["reason"]) == ("deny", "found")
    assert found["released_chars"] == len(TOLD[0])
