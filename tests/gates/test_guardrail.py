"""Guardrails: each text is looked at, and what is to change is changed before it leaves."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from governed import Kit
from saying import MARK, SECRET, Govern, Saying, decisions, no_keys, saying

import clew
from clew.errors import PolicyDenied
from clew.gates.guardrail import InputGuardrail, OutputGuardrail, redact
from clew.testing import Reply, ScriptedProvider
from clew.typing import Proposal, Verdict


@pytest.fixture
def server() -> Iterator[ScriptedProvider]:
    with ScriptedProvider(lambda _: Reply(text=f"the {SECRET} is here")) as running:
        yield running


async def test_a_request_is_redacted_on_the_wire(
    govern: Govern, kit: Kit, server: ScriptedProvider
) -> None:
    """The provider gets the changed text, with a length that is true, on every attempt."""
    exported = govern(InputGuardrail(no_keys, policy="secrets", policy_version="4"))
    server.replace(Reply.failure(500, retry_after_ms=1), Reply(text="done"))
    with clew.run("triage"):
        assert await kit.text(f"my {SECRET} please") == "done"
    assert len(server.requests) == 2
    for request in server.requests:
        assert request.json()["messages"] == [{"role": "user", "content": "my [gone] please"}]
        assert SECRET.encode() not in request.body
        assert request.header("content-length") == str(len(request.body))
    (found,) = decisions(exported)
    assert {key: found[key] for key in ("gate", "outcome", "reason", "executed", "policy")} == {
        "gate": "guardrail_input",
        "outcome": "redact",
        "reason": "found",
        "executed": True,
        "policy": "secrets",
    }
    assert MARK.encode() not in exported.otlp_bytes()


async def test_nothing_found_changes_nothing(
    govern: Govern, kit: Kit, server: ScriptedProvider
) -> None:
    """Without a finding the bytes on the wire are those that the SDK made."""
    bodies = []
    for gates in ((), (InputGuardrail(no_keys), OutputGuardrail(saying("allow")))):
        govern(*gates)
        await kit.ask("plain é text")
        bodies.append(server.requests[-1].body)
        clew.shutdown()
    assert bodies[0] == bodies[1]


@pytest.mark.parametrize("outcome", ["deny", "require_approval", "retry"])
async def test_a_request_can_be_stopped(
    govern: Govern, kit: Kit, server: ScriptedProvider, outcome: str
) -> None:
    """Each of these keeps the request in the house; a request is not asked for again: it is denied."""
    exported = govern(InputGuardrail(saying(outcome)))
    with pytest.raises(clew.ClewError, match="found") as caught, clew.run("triage"):
        await kit.ask(SECRET)
    assert SECRET not in repr(caught.value)
    assert server.requests == []
    (found,) = decisions(exported)
    expected = "deny" if outcome == "retry" else outcome
    assert (found["outcome"], found["executed"]) == (expected, False)
    assert MARK.encode() not in exported.otlp_bytes()


async def test_an_answer_is_redacted_before_the_caller_sees_it(
    govern: Govern, kit: Kit, server: ScriptedProvider
) -> None:
    """The SDK parses the changed answer; tokens are those of the real one."""
    exported = govern(OutputGuardrail(no_keys))
    with clew.run("triage") as run:
        assert await kit.text() == "the [gone] is here"
        assert (run.totals.input_tokens, run.totals.output_tokens) == (12, 7)
    (found,) = decisions(exported)
    assert (found["gate"], found["outcome"]) == ("guardrail_output", "redact")
    assert MARK.encode() not in exported.otlp_bytes()


async def test_an_answer_can_be_denied(govern: Govern, kit: Kit, server: ScriptedProvider) -> None:
    """The caller gets the denial, the SDK asks once, and the round is no failed one."""
    exported = govern(OutputGuardrail(saying("deny")))
    with pytest.raises(PolicyDenied) as caught, clew.run("triage"):
        await kit.ask()
    assert type(caught.value) is PolicyDenied
    assert len(server.requests) == 1
    (span,) = exported.by_name("chat")
    assert "error.type" not in span.attributes
    assert [found["outcome"] for found in decisions(exported)] == ["deny"]
    assert MARK.encode() not in exported.otlp_bytes()


@pytest.mark.parametrize("second", ["fine", f"again {SECRET}"])
async def test_the_model_is_asked_once_more(
    govern: Govern, kit: Kit, server: ScriptedProvider, second: str
) -> None:
    """`retry` sends the request again; a second `retry` denies. Each is a round of its own."""
    exported = govern(OutputGuardrail(saying("retry")))
    server.replace(Reply(text=SECRET), Reply(text=second), Reply(text="never"))
    with clew.run("triage") as run:
        if second == "fine":
            assert await kit.text() == "fine"
        else:
            with pytest.raises(PolicyDenied, match="found"):
                await kit.ask()
        assert run.totals.rounds == 2
    assert len(server.requests) == 2
    assert server.requests[0].body == server.requests[1].body
    outcomes = [found["outcome"] for found in decisions(exported)]
    assert outcomes == ["retry", "allow" if second == "fine" else "deny"]
    assert run.totals.denials == (0 if second == "fine" else 1)


async def test_guardrails_work_one_after_the_other(
    govern: Govern, server: ScriptedProvider
) -> None:
    """The second looks at what the first has made of the request."""
    seen = []

    def note(text: str) -> Verdict | None:
        seen.append(text)
        return None

    govern(InputGuardrail(no_keys), InputGuardrail(note, name="second"))
    kit = Kit("openai-sync", server)
    await kit.ask(SECRET)
    await kit.close()
    assert seen == ["[gone]"]


@pytest.mark.parametrize(
    ("header", "value"),
    [
        ("x-amz-content-sha256", "x"),
        ("content-digest", "x"),
        ("x-ms-content-sha256", "x"),
        ("x-content-sha256", "x"),
        ("signature-input", "sig1=()"),
        ("authorization", "AWS4-HMAC-SHA256 x"),
        ("authorization", "HMAC-SHA256 SignedHeaders=x-ms-date"),
        ("authorization", 'Signature version="1",keyId="x"'),
    ],
)
def test_what_is_signed_is_denied_and_not_changed(
    govern: Govern, server: ScriptedProvider, header: str, value: str
) -> None:
    """A body over which something was signed cannot be changed: the redaction denies."""
    govern(InputGuardrail(no_keys))
    body = {"model": "m", "messages": [{"role": "user", "content": SECRET}]}
    with httpx.Client(trust_env=False) as client:
        url = f"{server.openai_base_url}/chat/completions"
        with pytest.raises(PolicyDenied, match="redact_not_possible"):
            client.post(url, json=body, headers={header: value})
    assert server.requests == []


@pytest.mark.parametrize("mandatory", [True, False])
def test_a_body_that_is_not_in_memory(
    govern: Govern, server: ScriptedProvider, mandatory: bool
) -> None:
    """A mandatory guardrail denies what it cannot see; an optional one lets it pass and says so."""
    exported = govern(InputGuardrail(no_keys, mandatory=mandatory))

    def pieces() -> Iterator[bytes]:
        yield json.dumps({"model": "m", "messages": []}).encode()

    with httpx.Client(trust_env=False) as client:
        url = f"{server.openai_base_url}/chat/completions"
        if mandatory:
            with pytest.raises(PolicyDenied, match="content_unavailable"):
                client.post(url, content=pieces())
        else:
            assert client.post(url, content=pieces()).status_code == 200
    (found,) = decisions(exported)
    assert found["reason"] == "content_unavailable"


async def test_an_asynchronous_function(govern: Govern, server: ScriptedProvider) -> None:
    """It is awaited in asynchronous code; where nothing awaits, a mandatory gate denies."""

    async def look(text: str) -> Verdict | None:
        return saying("deny")(text)

    govern(InputGuardrail(alook=look), faults={"ask the gate InputGuardrail"})
    slow, quick = Kit("anthropic-async", server), Kit("anthropic-sync", server)
    with pytest.raises(PolicyDenied, match="found"):
        await slow.ask(SECRET)
    await slow.ask("fine")
    with pytest.raises(PolicyDenied, match="gate_error"):
        await quick.ask("fine")
    await slow.close()
    await quick.close()


@pytest.mark.parametrize(
    ("body", "seen"),
    [
        (
            {
                "model": "m",
                "messages": [{"role": "user", "content": [{"type": "text", "text": "a"}]}],
                "tools": [{"name": "t", "description": "d"}],
            },
            ["a", "d"],
        ),
        ({"contents": [{"parts": [{"text": "a"}, {"text": "b"}]}], "id": "i"}, ["a", "b"]),
        ({"messages": [{"tool_calls": [{"id": "i", "function": {"arguments": "{}"}}]}]}, ["{}"]),
        ({"prompt": "", "input": ["a", "a"]}, ["a"]),
        ([1, None, True], []),
    ],
)
def test_which_texts_are_looked_at(body: Any, seen: list[str]) -> None:
    """Every text but identifiers and words of the protocol, each once."""
    found: list[str] = []
    gate = InputGuardrail(found.append)
    verdict = gate.check(
        Proposal(kind="model_input", number=1, content=lambda: json.dumps(body).encode())
    )
    assert found == seen
    assert verdict == Verdict(outcome="allow", reason="no_finding")


def test_the_strictest_verdict_is_the_whole_one() -> None:
    """One text to deny outweighs another to redact, and nothing is replaced then."""
    words = {"a": redact("x"), "b": Verdict(outcome="deny", reason="b"), "c": None}
    gate = InputGuardrail(words.get)
    body = json.dumps({"messages": list(words)}).encode()
    verdict = gate.check(Proposal(kind="model_input", number=1, content=lambda: body))
    assert verdict == Verdict(outcome="deny", reason="b")


async def test_a_redaction_without_a_text_denies(govern: Govern, server: ScriptedProvider) -> None:
    """A gate that says redact and gives nothing to put there fails closed."""
    govern(Saying(Verdict(outcome="redact"), kinds=frozenset({"model_input"})))
    kit = Kit("openai-sync", server)
    with pytest.raises(PolicyDenied, match="no_text"):
        await kit.ask()
    await kit.close()
    assert server.requests == []


@pytest.mark.parametrize(
    ("body", "seen"),
    [
        (b'data: {"a":"b"}\n\ndata: {"a":"c"}\n\ndata: [DONE]\n\n', ["bc"]),
        (b'{"a":"b"}\n{"a":"c"}\n', ["bc"]),
        (b"data: words\n\n", ["words"]),
        (b"plain words", ["plain words"]),
        (b"", []),
    ],
)
def test_which_texts_of_a_whole_stream_are_looked_at(body: bytes, seen: list[str]) -> None:
    """Those of all events as one text; what is neither JSON nor a stream is a text itself."""
    found: list[str] = []
    gate = OutputGuardrail(found.append)
    gate.check(Proposal(kind="model_output", number=1, content=lambda: body))
    assert found == seen


@pytest.mark.parametrize("mandatory", [True, False])
def test_what_is_no_text_at_all(mandatory: bool) -> None:
    """Sound or a picture cannot be looked at: a mandatory guardrail denies, another one says so."""
    gate = OutputGuardrail(no_keys, mandatory=mandatory)
    verdict = gate.check(Proposal(kind="model_output", number=1, content=lambda: b"\xff\xd8\x00"))
    outcome = "deny" if mandatory else "allow"
    assert verdict == Verdict(outcome=outcome, reason="content_unavailable")  # type: ignore[arg-type]
