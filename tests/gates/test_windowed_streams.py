"""Streamed answers under output guardrails: held back by window, released, redacted, stopped."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator
from typing import Any

import pytest
from governed import Kit
from saying import MARK, SECRET, Govern, Saying, decisions, no_keys, saying

import clew
from clew.errors import ApprovalRequired, PolicyDenied
from clew.gates.guardrail import OutputGuardrail
from clew.testing import Reply, ScriptedProvider
from clew.typing import Verdict

OUTPUT = frozenset({"model_output"})
WORDS = ("one two three four ", "five six seven ", "eight nine ten ")


@pytest.fixture
def server() -> Iterator[ScriptedProvider]:
    with ScriptedProvider(
        lambda _: Reply(text=(*WORDS, SECRET[:5], SECRET[5:], " end"))
    ) as running:
        yield running


async def read(kit: Kit, into: list[str], **more: Any) -> None:
    """Read a stream, and keep what has come if it does not come to its end."""
    stream = await kit.ask(stream=True, **more)
    if kit.asynchronous:
        async for event in stream:
            into.append(kit._delta(event))  # noqa: PERF401
    else:
        for event in stream:
            into.append(kit._delta(event))  # noqa: PERF401


async def test_a_denial_in_the_middle(govern: Govern, kit: Kit) -> None:
    """What was looked at has come, nothing of the rest does; the decision says how much it was."""
    exported = govern(OutputGuardrail(saying("deny"), window=8, overlap=16, policy_version="4"))
    came: list[str] = []
    with pytest.raises(PolicyDenied) as caught, clew.run("triage") as run:
        await read(kit, came)
    assert type(caught.value) is PolicyDenied
    assert "".join(came) == "".join(WORDS[:2])
    (found,) = decisions(exported)
    assert {key: found[key] for key in ("outcome", "reason", "executed", "released_chars")} == {
        "outcome": "deny",
        "reason": "found",
        "executed": False,
        "released_chars": len("".join(WORDS[:2])),
    }
    assert (found["id"], found["policy_version"]) == (caught.value.decision_id, "4")
    (decision,) = exported.by_name("decide")
    assert decision.attributes["clew.run.id"] == str(run.run_id)
    (span,) = exported.by_name("chat")
    assert span.attributes["clew.stream.outcome"] in ("closed", "complete")
    assert "error.type" not in span.attributes
    (ended,) = exported.by_name("invoke_agent")
    assert ended.attributes["clew.run.termination_reason"] == "policy_denied"
    assert MARK.encode() not in exported.otlp_bytes()


async def test_a_denial_before_the_first_text(govern: Govern, kit: Kit) -> None:
    """It comes out of the call itself, and nothing was released."""
    exported = govern(OutputGuardrail(saying("deny")))
    with pytest.raises(PolicyDenied), clew.run("triage"):
        await kit.ask(stream=True)
    (found,) = decisions(exported)
    assert (found["outcome"], found["released_chars"]) == ("deny", 0)


async def test_a_redaction(govern: Govern, kit: Kit) -> None:
    """The round has the provider's counts, the caller the changed text, whatever the window."""
    for width in (1, 8, 512, None):
        exported = govern(OutputGuardrail(no_keys, window=width, overlap=16))
        came: list[str] = []
        more = {"stream_options": {"include_usage": True}} if kit.openai else {}
        if width is None:  # held back as a whole, and that cannot be changed
            with pytest.raises(PolicyDenied, match="redact_not_possible"), clew.run("triage"):
                await read(kit, came, **more)
            clew.shutdown()
            continue
        with clew.run("triage") as run:
            await read(kit, came, **more)
            assert "".join(came) == "".join((*WORDS, "[gone]", " end"))
            assert (run.totals.input_tokens, run.totals.output_tokens) == (12, 7)
        (found,) = decisions(exported)
        assert (found["outcome"], found["reason"], found["executed"]) == ("redact", "found", True)
        assert found["released_chars"] == len("".join(came))
        (span,) = exported.by_name("chat")
        assert span.attributes["clew.stream.outcome"] == "complete"
        assert MARK.encode() not in exported.otlp_bytes()
        clew.shutdown()


async def test_an_approval_is_required(govern: Govern, kit: Kit) -> None:
    """The stream ends with it, and it names the run."""
    exported = govern(OutputGuardrail(saying("require_approval"), window=8, overlap=16))
    came: list[str] = []
    with pytest.raises(ApprovalRequired) as caught, clew.run("triage") as run:
        await read(kit, came)
    assert caught.value.reference is not None
    assert clew.resume(caught.value.reference).run_id == run.run_id
    assert "".join(came) == "".join(WORDS[:2])
    (found,) = decisions(exported)
    assert (found["outcome"], found["executed"]) == ("require_approval", False)


async def test_asking_once_more(govern: Govern, kit: Kit, server: ScriptedProvider) -> None:
    """While nothing was released the model is asked again, unseen by the caller."""
    exported = govern(OutputGuardrail(saying("retry")))
    server.replace(Reply(text=("x ", SECRET)), Reply(text="fine"), Reply(text="never"))
    came: list[str] = []
    with clew.run("triage") as run:
        await read(kit, came)
        assert "".join(came) == "fine"
        assert run.totals.rounds == 2
    assert [found["outcome"] for found in decisions(exported)] == ["retry", "allow"]
    assert len(server.requests) == 2


async def test_asking_once_more_is_too_late(govern: Govern, kit: Kit) -> None:
    """When text has gone on, a wish to ask again ends the stream."""
    exported = govern(OutputGuardrail(saying("retry"), window=8, overlap=16))
    with pytest.raises(PolicyDenied, match="found"), clew.run("triage"):
        await read(kit, [])
    (found,) = decisions(exported)
    assert (found["outcome"], found["executed"]) == ("deny", False)


async def test_observing(govern: Govern, kit: Kit, server: ScriptedProvider) -> None:
    """The bytes pass as they came; what was found is a decision that is not enforced."""
    whole = Saying(Verdict(outcome="redact", reason="all"), kinds=OUTPUT, mode="observe")
    exported = govern(OutputGuardrail(saying("deny"), mode="observe", window=8, overlap=16), whole)
    came: list[str] = []
    with clew.run("triage"):
        await read(kit, came)
    assert "".join(came) == "".join((*WORDS, SECRET, " end"))
    found = {each["gate"]: each for each in decisions(exported)}
    assert (found["guardrail_output"]["outcome"], found["guardrail_output"]["reason"]) == (
        "deny",
        "found",
    )
    assert {each["enforced"] for each in found.values()} == {False}
    assert {each["executed"] for each in found.values()} == {True}
    assert ["released_chars" in each for each in found.values()] == [False, False]
    (asked,) = whole.asked
    assert asked.content is not None
    assert SECRET[5:].encode() in (asked.content() or b"")


async def test_an_observer_beside_an_enforced_one(govern: Govern, kit: Kit) -> None:
    """Both look, one stops."""
    exported = govern(
        OutputGuardrail(saying("deny"), window=8, overlap=16),
        OutputGuardrail(no_keys, mode="observe", name="second", window=8),
    )
    with pytest.raises(PolicyDenied), clew.run("triage"):
        await read(kit, [])
    found = {each["gate"]: each["outcome"] for each in decisions(exported)}
    assert found == {"guardrail_output": "deny", "second": "allow"}


async def test_the_second_sees_what_the_first_has_made(govern: Govern, kit: Kit) -> None:
    """Guardrails of a stream work one after the other, as those of a whole answer do."""
    seen: list[str] = []
    govern(
        OutputGuardrail(no_keys, window=8, overlap=16),
        OutputGuardrail(seen.append, name="second", window=4, overlap=2),
    )
    came: list[str] = []
    with clew.run("triage"):
        await read(kit, came)
    assert "[gone]" in "".join(came)
    assert SECRET not in "".join(seen)


@pytest.mark.parametrize("mandatory", [True, False])
async def test_a_guardrail_that_crashes(govern: Govern, kit: Kit, mandatory: bool) -> None:
    """A mandatory one denies, an optional one lets the text pass; both say so."""

    def look(text: str) -> Verdict | None:
        if SECRET in text:
            raise RuntimeError(text)
        return None

    guardrail = OutputGuardrail(look, mandatory=mandatory, window=8, overlap=16)
    exported = govern(guardrail, faults={"ask the gate OutputGuardrail"})
    came: list[str] = []
    if mandatory:
        with pytest.raises(PolicyDenied, match="gate_error"), clew.run("triage"):
            await read(kit, came)
        assert "".join(came) == "".join(WORDS[:2])
    else:
        with clew.run("triage"):
            await read(kit, came)
        assert "".join(came) == "".join((*WORDS, SECRET, " end"))
    (found,) = decisions(exported)
    assert (found["outcome"], found["reason"]) == ("deny" if mandatory else "allow", "gate_error")
    assert MARK.encode() not in exported.otlp_bytes()


async def test_closing_early(govern: Govern, kit: Kit) -> None:
    """A caller that stops reading leaves a decision on what had been looked at."""
    exported = govern(OutputGuardrail(saying("deny"), window=8, overlap=4))
    with clew.run("triage"):
        stream = await kit.ask(stream=True)
        if kit.asynchronous:
            async for part in stream:
                if kit._delta(part):
                    break
            await stream.close()
        else:
            for part in stream:
                if kit._delta(part):
                    break
            stream.close()
    (found,) = decisions(exported)
    assert (found["outcome"], found["executed"]) == ("allow", True)
    assert found["released_chars"] > 0
    (span,) = exported.by_name("chat")
    assert span.attributes["clew.stream.outcome"] == "closed"


async def test_dropping_a_stream(govern: Govern, kit: Kit) -> None:
    """So does one that drops the stream; the round is abandoned."""
    exported = govern(OutputGuardrail(saying("deny"), window=8, overlap=4))
    with clew.run("triage"):
        stream = await kit.ask(stream=True)
        _ = await anext(aiter(stream)) if kit.asynchronous else next(iter(stream))
        del stream, _
        gc.collect()
        for _ in range(12):
            await asyncio.sleep(0)
        gc.collect()
    (found,) = decisions(exported)
    assert found["outcome"] == "allow"
    (span,) = exported.by_name("chat")
    assert span.attributes["clew.stream.outcome"] in ("abandoned", "closed")


@pytest.mark.parametrize("reset", [False, True])
async def test_an_error_in_the_middle(
    govern: Govern, kit: Kit, server: ScriptedProvider, reset: bool
) -> None:
    """The caller gets the text before it, looked at, and the error that it would have got."""
    reply = Reply(text=WORDS * 2, cut_after=5, reset=reset)
    results = []
    for gates in ((), (OutputGuardrail(saying("deny")),)):
        exported = govern(*gates)
        server.replace(reply, reply, reply)
        came: list[str] = []
        with pytest.raises(Exception) as caught, clew.run("triage"):  # noqa: PT011
            await read(kit, came)
        results.append((type(caught.value), "".join(came)))
        (span,) = exported.by_name("chat")
        assert span.attributes["clew.stream.outcome"] == "failed"
        clew.shutdown()
    assert results[0] == results[1]
    assert [found["outcome"] for found in decisions(exported)] == ["allow"]


async def test_a_finding_before_an_error(
    govern: Govern, kit: Kit, server: ScriptedProvider
) -> None:
    """What was held back when the connection broke is looked at, and denied."""
    govern(OutputGuardrail(saying("deny")))
    server.replace(Reply(text=("a ", SECRET, " b", " c", " d"), cut_after=5))
    came: list[str] = []
    with pytest.raises(PolicyDenied), clew.run("triage"):
        await read(kit, came)
    assert came == []


@pytest.mark.parametrize("name", ["openai-async", "anthropic-async"])
async def test_cancelling_in_the_middle(
    govern: Govern, server: ScriptedProvider, name: str
) -> None:
    """A task that is cancelled while it waits for text leaves a decision, and its round."""
    exported = govern(OutputGuardrail(saying("deny"), window=8, overlap=4))
    server.replace(Reply(text=WORDS * 2, hang_after=5))
    kit = Kit(name, server)
    came: list[str] = []

    async def work() -> None:
        with clew.run("triage"):
            await read(kit, came)

    task = asyncio.create_task(work())
    for _ in range(500):
        if came:
            break
        await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await kit.close()
    assert "".join(came).startswith(WORDS[0])
    (found,) = decisions(exported)
    assert (found["outcome"], found["released_chars"]) == ("allow", len("".join(came)))
    (span,) = exported.by_name("chat")
    assert span.attributes["clew.stream.outcome"] == "cancelled"


async def test_a_gate_without_a_window_sees_the_whole(govern: Govern, kit: Kit) -> None:
    """A gate of your own that knows no windows is asked once, before anything was released."""
    gate = Saying(Verdict(outcome="deny", reason="no"), kinds=OUTPUT)
    govern(gate, OutputGuardrail(saying("allow")))
    with pytest.raises(PolicyDenied), clew.run("triage"):
        await kit.ask(stream=True)
    (asked,) = gate.asked
    assert asked.content is not None
    assert b" end" in (asked.content() or b"")


async def test_an_asynchronous_function(govern: Govern, server: ScriptedProvider) -> None:
    """It is awaited for each part of a stream in asynchronous code; elsewhere it is a crash."""

    async def look(text: str) -> Verdict | None:
        await asyncio.sleep(0)
        return no_keys(text)

    exported = govern(OutputGuardrail(alook=look), faults={"ask the gate OutputGuardrail"})
    slow, quick = Kit("openai-async", server), Kit("openai-sync", server)
    came: list[str] = []
    await read(slow, came)
    assert "".join(came).endswith("[gone] end")
    with pytest.raises(PolicyDenied, match="gate_error"):
        await read(quick, [])
    await slow.close()
    await quick.close()
    assert [found["outcome"] for found in decisions(exported)] == ["redact", "deny"]
