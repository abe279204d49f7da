"""Where gates stand: in front of tools, before anything of their bodies runs."""

# ruff: noqa: PT012 - what is called in a test may be sync or async

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator

import pytest
from saying import DENY, MARK, Govern, Saying, decisions

import clew
from clew.errors import ApprovalRequired, PolicyDenied
from clew.typing import Verdict

TOOLS = frozenset({"tool_call"})


@pytest.mark.parametrize("form", ["block", "function"])
@pytest.mark.parametrize("asynchronous", [False, True])
async def test_a_tool_that_is_denied_is_not_executed(
    govern: Govern, form: str, asynchronous: bool
) -> None:
    """The caller gets `PolicyDenied`; the tool call is there, as denied, with its decision."""
    gate = Saying(DENY, kinds=TOOLS)
    exported = govern(gate)
    done = []

    @clew.tool("refund", effect="idempotent_write")
    def plain(order: str) -> None:
        done.append(order)

    @clew.tool("refund", effect="idempotent_write")
    async def coroutine(order: str) -> None:
        done.append(order)

    with pytest.raises(PolicyDenied) as caught, clew.run("desk"):
        block = clew.tool(
            "refund", effect="idempotent_write", arguments=json.dumps({"order": MARK})
        )
        if form == "function" and asynchronous:
            await coroutine(MARK)
        elif form == "function":
            plain(order=MARK)
        elif asynchronous:
            async with block:
                done.append(MARK)
        else:
            with block:
                done.append(MARK)
    assert done == []
    (proposal,) = gate.asked
    assert (proposal.tool, proposal.effect) == ("refund", "idempotent_write")
    assert proposal.content is not None
    assert proposal.content() == json.dumps({"order": MARK}, separators=(",", ":")).encode()
    (tool,) = exported.by_name("execute_tool")
    (decision,) = exported.by_name("decide")
    assert tool.attributes["clew.tool.outcome"] == "denied"
    assert tool.attributes["clew.denials"] == 1
    assert decision.parent.span_id == tool.context.span_id
    assert decision.attributes["clew.decision.id"] == caught.value.decision_id
    assert decision.attributes["clew.decision.subject"] == "refund"
    assert MARK.encode() not in exported.otlp_bytes()


async def test_generator_tools_are_denied_before_their_first_step(govern: Govern) -> None:
    """A generator's body does not run either, sync or async."""
    exported = govern(Saying(DENY, kinds=TOOLS))
    done = []

    @clew.tool
    def lines() -> Iterator[int]:
        done.append(1)
        yield 1

    @clew.tool
    async def events() -> AsyncIterator[int]:
        done.append(1)
        yield 1

    with clew.run("desk"):
        with pytest.raises(PolicyDenied):
            list(lines())
        with pytest.raises(PolicyDenied):
            _ = [one async for one in events()]
    assert done == []
    outcomes = [s.attributes["clew.tool.outcome"] for s in exported.by_name("execute_tool")]
    assert outcomes == ["denied", "denied"]


def test_a_required_approval_names_the_run(govern: Govern) -> None:
    """`ApprovalRequired` has what resumes the run, and the run waits."""
    exported = govern(
        Saying(Verdict(outcome="require_approval", reason="large", approval_id="a1"), kinds=TOOLS)
    )
    with (
        pytest.raises(ApprovalRequired) as caught,
        clew.run("desk") as run,
        clew.tool("refund"),
    ):
        raise AssertionError
    assert caught.value.approval_id == "a1"
    assert caught.value.reference is not None
    assert clew.resume(caught.value.reference).run_id == run.run_id
    (tool,) = exported.by_name("execute_tool")
    assert tool.attributes["clew.tool.outcome"] == "awaiting_approval"
    (ended,) = exported.by_name("invoke_agent")
    assert ended.attributes["clew.run.status"] == "waiting_for_approval"
    assert "clew.run.termination_reason" not in ended.attributes
    (found,) = decisions(exported)
    assert (found["outcome"], found["executed"]) == ("require_approval", False)
