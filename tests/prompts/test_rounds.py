"""The block map on rounds: which rounds, at which level, and nothing where no prompt is known."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

import clew
from clew import _guard, exchange
from clew.prompts import Prompt, maps, recognition, registry
from clew.prompts.compare import compare, first_break
from clew.testing import Reply, ScriptedProvider, captured
from clew.typing import Proposal, Verdict

SECRET = "zqmark"
WHOLE = ("clew.prompt.bytes", "clew.prompt.digest", "clew.prompt.mapped")
BLOCKS = tuple(
    f"clew.prompt.block.{each}"
    for each in ("bytes", "digests", "ids", "layers", "sources", "stabilities")
)


def told(span: Any) -> dict[str, Any]:
    return {key: value for key, value in span.attributes.items() if key.startswith("clew.prompt.")}


def rounds(exported: Any) -> list[Any]:
    return [span for span in exported.spans if "clew.attempts" in span.attributes]


@pytest.fixture
def server() -> Iterator[ScriptedProvider]:
    with ScriptedProvider([Reply(text="hello")] * 9) as provider:
        yield provider


def post(
    server: ScriptedProvider, system: Any, path: str = "/chat/completions", **more: Any
) -> int:
    messages: list[dict[str, Any]] = [{"role": "user", "content": f"{SECRET} hello"}]
    if system is not None:
        messages.insert(0, {"role": "system", "content": system})
    body = {"model": "gpt-5-mini", "messages": messages, **more}
    url = server.openai_base_url + path
    with httpx2.Client(trust_env=False) as client:
        return client.post(url, json=body).status_code


async def apost(server: ScriptedProvider, system: Any) -> int:
    body = {"model": "gpt-5-mini", "messages": [{"role": "system", "content": system}]}
    async with httpx2.AsyncClient(trust_env=False) as client:
        answer = await client.post(server.openai_base_url + "/chat/completions", json=body)
    return answer.status_code


def test_nothing_is_looked_for_where_no_prompt_is_known(server, monkeypatch):
    """Without a segmented prompt no system text is decoded, and rounds say nothing of one."""

    def forbidden(*args: Any) -> Any:
        pytest.fail("a system text was looked at")

    monkeypatch.setattr(exchange, "with_prompt", forbidden)
    monkeypatch.setattr(recognition, "attributes_of", forbidden)
    with captured() as exported:
        Prompt("plain text")
        assert registry.known == {}
        post(server, "plain text")
    assert [told(span) for span in rounds(exported)] == [{}]


def test_a_round_has_the_map(server):
    """The whole map and no content, on the round alone."""
    prompt = Prompt.of(identity_context=f"{SECRET} Änn", working_memory=f"{SECRET} old")
    with captured(digest_key="key") as exported:
        with clew.run("agent"):
            post(server, prompt)
        spans = exported.spans
    (round_,) = rounds(exported)
    assert sorted(told(round_)) == sorted((*BLOCKS, *WHOLE))
    assert told(round_)["clew.prompt.block.ids"] == ("identity_context", "working_memory")
    assert [told(span) for span in spans if span is not round_] == [{}] * (len(spans) - 1)
    assert all(SECRET not in repr(span.attributes) + span.name for span in spans)


async def test_a_round_of_an_asynchronous_client(server):
    """The asynchronous twin."""
    prompt = Prompt.of(identity_context="Änn")
    with captured() as exported:
        assert await apost(server, prompt) == 200
    assert told(rounds(exported)[0])["clew.prompt.block.ids"] == ("identity_context",)


def test_another_text_is_unmapped(server):
    """While a prompt is known, other system texts say their digest and that they are unmapped."""
    prompt = Prompt.of(identity_context="Änn")
    with captured() as exported:
        for text in (prompt + " and more", "something else", None):
            post(server, text)
    first, second, third = map(told, rounds(exported))
    assert tuple(sorted(first)) == tuple(sorted(second)) == WHOLE
    assert (first["clew.prompt.mapped"], second["clew.prompt.mapped"]) == (False, False)
    assert first["clew.prompt.digest"] != second["clew.prompt.digest"]
    assert third == {}


@pytest.mark.parametrize("how", ["setting", "run", "block"])
def test_at_level_none_there_is_no_map(server, how, monkeypatch):
    """Level none: no digest, no map, no mark that there could be one; no text is looked at."""

    def forbidden(*args: Any) -> Any:
        pytest.fail("a system text was looked at")

    monkeypatch.setattr(recognition, "attributes_of", forbidden)
    prompt = Prompt.of(identity_context="Änn")
    with captured(capture="none" if how == "setting" else "metadata") as exported:
        if how == "block":
            with clew.capture("none"):
                post(server, prompt)
        else:
            with clew.run("agent", capture="none" if how == "run" else None):
                post(server, prompt)
    (round_,) = rounds(exported)
    assert told(round_) == {}
    assert "clew.digest.key_id" not in round_.attributes


@pytest.mark.parametrize("level", ["metadata", "redacted", "full"])
def test_above_none_there_is_one(server, level):
    """Every other level has the map."""
    with captured(capture=level, content_to=("spans",)) as exported:
        post(server, Prompt.of(identity_context="Änn"))
    assert sorted(told(rounds(exported)[0])) == sorted((*BLOCKS, *WHOLE))


def test_calls_that_are_no_rounds_have_none(server):
    """Embeddings and the like have no system text, whatever their bodies hold."""
    prompt = Prompt.of(identity_context="Änn")
    with captured() as exported:
        post(server, prompt, "/embeddings", input="x")
    assert [told(span) for span in rounds(exported)] == [{}]


def test_a_body_that_is_not_in_memory(server):
    """Of a body that is streamed nothing is known, and nothing is said."""
    prompt = Prompt.of(identity_context="Änn")
    body = json.dumps({"model": "m", "messages": [{"role": "system", "content": prompt}]}).encode()
    with captured() as exported, httpx2.Client(trust_env=False) as client:
        client.post(
            server.openai_base_url + "/chat/completions",
            content=iter([body[:10], body[10:]]),
            headers={"content-type": "application/json"},
        )
    assert [told(span) for span in rounds(exported)] == [{}]


def test_a_failed_round_has_the_map():
    """What was sent is known however the round ends."""
    with (
        ScriptedProvider([Reply.failure(500)]) as server,
        captured() as exported,
    ):
        assert post(server, Prompt.of(identity_context="Änn")) == 500
    assert told(rounds(exported)[0])["clew.prompt.mapped"] is True


def test_a_prompt_made_before_clew_is_configured(server):
    """Prompts are made at import, too: they are known when Clew is there."""
    prompt = Prompt.of(identity_context="Änn")
    for _ in range(2):
        with captured() as exported:
            post(server, prompt)
        assert told(rounds(exported)[0])["clew.prompt.mapped"] is True


def test_a_fault_of_ours_stays_ours(server, monkeypatch):
    """When looking for a prompt fails, the call is made and the round is recorded."""

    def broken(*args: Any) -> Any:
        raise RuntimeError

    prompt = Prompt.of(identity_context="Änn")
    monkeypatch.setattr(recognition, "system_text", broken)
    with captured() as exported:
        assert post(server, prompt) == 200
    assert [told(span) for span in rounds(exported)] == [{}]
    assert dict(_guard.failures) == {"look for a prompt's blocks": 1}


def test_the_block_that_grew_is_named_with_capture_off(server):
    """Two rounds, no content captured: their attributes tell which block grew and what it broke."""
    first = Prompt.from_jinja(
        "support",
        "You help.\n\n{{ working_memory }}\n\nBe brief.",
        sections={"working_memory": f"{SECRET} short"},
    )
    second = Prompt.from_jinja(
        "support",
        "You help.\n\n{{ working_memory }}\n\nBe brief.",
        sections={"working_memory": f"{SECRET} much longer by now"},
    )
    with captured() as exported, clew.run("agent"):
        post(server, first)
        post(server, second)
    before, after = (maps.of_attributes(span.attributes) for span in rounds(exported))
    assert before is not None
    assert after is not None
    (change,) = compare(before, after).changes
    assert (change.what, change.id, change.bytes_before, change.bytes_after) == (
        "changed",
        "working_memory",
        12,
        25,
    )
    broken = first_break(before, after)
    assert (broken.what, broken.id, broken.kept_bytes) == ("changed", "working_memory", 11)


class Told:
    """What a callable returns."""

    text = "hello"


def asked(system: Any) -> Told:
    return Told()


@pytest.mark.parametrize(
    ("system", "expected"),
    [
        (lambda prompt: prompt, True),
        (lambda prompt: prompt.text, True),
        (lambda prompt: [prompt[:2], prompt[2:]], True),
        (lambda prompt: prompt + " more", False),
        ("", None),
        (None, None),
        (5, None),
    ],
)
def test_callables_of_ones_own(system, expected):
    """Where the facts say which argument is the system text, its blocks are on the round."""
    prompt = Prompt.of(identity_context="Änn")
    with captured() as exported:
        clew.instrument(asked, facts={"system": "system"})(
            system(prompt) if callable(system) else system
        )
    (round_,) = rounds(exported)
    assert round_.attributes.get("clew.prompt.mapped") is expected


async def test_coroutines_of_ones_own():
    """The asynchronous twin."""

    async def call(system: str) -> Told:
        return Told()

    prompt = Prompt.of(identity_context="Änn")
    with captured() as exported:
        await clew.instrument(call, facts={"system": "system"})(system=prompt)
    assert rounds(exported)[0].attributes["clew.prompt.block.ids"] == ("identity_context",)


def test_a_system_text_of_a_callable_is_only_looked_at_for_prompts():
    """Without a segmented prompt the place is not asked; at level none it says nothing."""

    def place(arguments: Any) -> Any:
        pytest.fail("was asked for the system text")

    with captured() as exported:
        clew.instrument(asked, facts={"system": place})("text")
    assert [told(span) for span in rounds(exported)] == [{}]
    prompt = Prompt.of(identity_context="Änn")
    with captured(capture="none") as exported:
        clew.instrument(asked, facts={"system": "system"})(prompt)
    assert [told(span) for span in rounds(exported)] == [{}]


class Masking:
    """A gate that takes a word out of what is sent."""

    name, mode, mandatory, kinds = "guardrail_input", "enforce", False, frozenset({"model_input"})

    def __init__(self, word: str) -> None:
        self.word = word.encode()

    def check(self, proposal: Proposal) -> Verdict | None:
        body = proposal.content() if proposal.content is not None else None
        if body is None or self.word not in body:
            return None
        return Verdict(
            outcome="redact", reason="masked", replacement=body.replace(self.word, b"***")
        )


@pytest.mark.parametrize(("word", "mapped"), [("hello", True), ("Nova", False)])
def test_what_a_gate_has_changed_counts(server, word, mapped):
    """The map is of what is sent: a redacted system text is not the prompt any more."""
    prompt = Prompt.of(identity_context="You are Nova.")
    with captured(gates=(Masking(word),)) as exported:
        assert post(server, prompt) == 200
    (received,) = server.requests
    assert b"***" in received.body
    (round_,) = rounds(exported)
    assert round_.attributes["clew.prompt.mapped"] is mapped


def test_a_retried_round_has_one_map():
    """All attempts of a call are one round, with the map of what was sent."""
    import openai

    prompt = Prompt.of(identity_context="Änn")
    replies = [Reply.failure(429, retry_after_ms=1), Reply(text="hello")]
    with ScriptedProvider(replies) as server, captured() as exported:
        client = openai.OpenAI(api_key="key", base_url=server.openai_base_url, max_retries=1)
        with client:
            client.chat.completions.create(
                model="gpt-5-mini", messages=[{"role": "system", "content": prompt}]
            )
    (round_,) = rounds(exported)
    assert (round_.attributes["clew.attempts"], round_.attributes["clew.prompt.mapped"]) == (
        2,
        True,
    )
