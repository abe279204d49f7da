"""Of a conversation that goes on, only what is new is read, and the facts are those of all of it."""

from __future__ import annotations

import gc
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from usual_routes import usual_route

from clew.dialects.conversation import LONG, Conversation
from clew.facts import RequestFacts
from clew.typing import Route

WORDS = "The order was sent on Monday, and is due on Thursday. "
COMPACT = {"separators": (",", ":")}


def chat_like(kind: str, number: int, text: str) -> dict[str, Any]:
    """An entry as OpenAI, Cohere and Ollama have it."""
    if kind == "result":
        return {"role": "tool", "tool_call_id": f"call_{number}", "content": text}
    return {"role": kind, "content": text}


def anthropic(kind: str, number: int, text: str) -> dict[str, Any]:
    if kind == "result":
        block = {"type": "tool_result", "tool_use_id": f"toolu_{number}", "content": text}
        return {"role": "user", "content": [block]}
    if kind == "assistant":
        use = {"type": "tool_use", "id": f"toolu_{number}", "name": "find", "input": {"q": text}}
        return {"role": kind, "content": [{"type": "text", "text": text}, use]}
    return {"role": kind, "content": text}


def responses(kind: str, number: int, text: str) -> dict[str, Any]:
    if kind == "result":
        return {"type": "function_call_output", "call_id": f"call_{number}", "output": text}
    return {"role": kind, "content": [{"type": "input_text", "text": text}]}


def gemini(kind: str, number: int, text: str) -> dict[str, Any]:
    if kind == "result":
        answer = {"id": f"call_{number}", "name": "find", "response": {"found": text}}
        return {"role": "user", "parts": [{"functionResponse": answer}]}
    return {"role": "model" if kind == "assistant" else kind, "parts": [{"text": text}]}


def converse(kind: str, number: int, text: str) -> dict[str, Any]:
    if kind == "result":
        result = {"toolUseId": f"tooluse_{number}", "content": [{"text": text}]}
        return {"role": "user", "content": [{"toolResult": result}]}
    return {"role": kind, "content": [{"text": text}]}


ENTRIES: dict[str, Callable[[str, int, str], dict[str, Any]]] = {
    "openai_chat": chat_like,
    "openai_responses": responses,
    "anthropic_messages": anthropic,
    "gemini_content": gemini,
    "bedrock_converse": converse,
    "cohere_chat": chat_like,
    "ollama": chat_like,
}


class Reading:
    """A dialect that says how many bytes it was given to read."""

    def __init__(self, name: str) -> None:
        self.route = usual_route(name)
        self._dialect = self.route.dialect
        self.name = self._dialect.name
        self.conversation = self._dialect.conversation
        self.read: list[int] = []

    def request(self, body: bytes, route: Route) -> RequestFacts:
        self.read.append(len(body))
        return self._dialect.request(body, route)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._dialect, name)

    def plainly(self, body: bytes) -> RequestFacts:
        return self._dialect.request(body, self.route)


def conversation(name: str, length: int, text: str = WORDS) -> list[dict[str, Any]]:
    kinds = ("user", "assistant", "result")
    return [ENTRIES[name](kinds[at % 3], at, text) for at in range(length)]


def body(
    dialect: Reading,
    entries: list[dict[str, Any]],
    first: dict[str, Any] | None = None,
    **json_as: Any,
) -> bytes:
    assert dialect.conversation is not None
    last = {"temperature": 0.5, "tools": [{"name": "find"}]}
    request = {**(first or {}), dialect.conversation: entries, **last}
    return json.dumps(request, **(json_as or COMPACT)).encode()


@pytest.mark.parametrize("json_as", [COMPACT, {"ensure_ascii": False}], ids=["compact", "spaced"])
@pytest.mark.parametrize("name", sorted(ENTRIES))
def test_only_what_is_new_is_read(name: str, json_as: dict[str, Any]) -> None:
    """A hundred requests that grow by two entries: each but the first few is read from its end."""
    dialect, heard = Reading(name), Conversation()
    everything = conversation(name, 300)
    for length in range(100, 300, 2):
        sent = body(dialect, everything[:length], {"model": "some-model"}, **json_as)
        expected = dialect.plainly(sent)
        assert expected.messages == length
        assert len(expected.tool_result_ids) == length // 3
        assert heard.request(dialect, sent, dialect.route) == expected
    size = len(sent)
    # Each is read once; what is known is learnt anew, and read once more, after some entries.
    assert size > 20_000
    assert max(dialect.read[4:]) < size / 8
    assert len(dialect.read) < 140
    heard.forget()
    assert Conversation.held == 0


CHANGES = st.sampled_from(
    ["grow", "same", "mark", "edit", "cut", "shift", "odd", "twice", "broken"]
)


@pytest.mark.parametrize("name", sorted(ENTRIES))
def test_facts_are_those_of_the_whole(name: str) -> None:
    """Whatever changes between two requests, what is read is what a single request says."""

    @settings(max_examples=80, deadline=None)
    @given(st.lists(st.tuples(CHANGES, st.integers(0, 10**6)), min_size=2, max_size=14), st.text())
    def run(changes: list[tuple[str, int]], text: str) -> None:
        dialect, heard = Reading(name), Conversation()
        entries = conversation(name, 24, WORDS * 9 + text)
        for change, number in changes:
            place = number % len(entries)
            sent = body(dialect, entries)
            if change == "grow":
                kind = ("user", "assistant", "result")[number % 3]
                entries += [ENTRIES[name](kind, number + each, text) for each in range(number % 9)]
                sent = body(dialect, entries)
            elif change == "mark":
                marked = [*entries[:-1], {**entries[-1], "cache_control": {"type": "ephemeral"}}]
                sent = body(dialect, marked)
            elif change == "edit":
                entries[place] = ENTRIES[name]("result", number, text)
                sent = body(dialect, entries)
            elif change == "cut":
                entries = [*entries[:2], *entries[2 + number % 8 :]]
                sent = body(dialect, entries)
            elif change == "shift":
                sent = body(dialect, entries, {"system": text})
            elif change == "odd":
                sent = body(dialect, [*entries[:place], 7, None, *entries[place:]])  # type: ignore[list-item]
            elif change == "twice":
                assert dialect.conversation is not None
                again = json.dumps({dialect.conversation: entries[:place]}, **COMPACT).encode()
                sent = sent[:-1] + b"," + again[1:]
            elif change == "broken":
                sent = sent[: number % len(sent)]
            assert heard.request(dialect, sent, dialect.route) == dialect.plainly(sent)

    run()


def test_the_same_list_deeper_inside_is_not_taken_for_the_conversation() -> None:
    """A tool that is given a conversation, as those are that call a model themselves."""
    dialect, heard = Reading("anthropic_messages"), Conversation()
    entries = conversation("anthropic_messages", 40)
    given_ = {"type": "tool_use", "id": "t", "name": "ask", "input": {"messages": entries}}
    outer = [{"role": "assistant", "content": [given_]}, *entries]
    for first in ({"metadata": {"messages": entries}}, {}):
        for length in range(30, len(outer)):
            sent = body(dialect, outer[:length], first)
            assert heard.request(dialect, sent, dialect.route) == dialect.plainly(sent)


def test_what_never_goes_on_is_not_looked_for_any_more() -> None:
    """Requests that have nothing in common: after a few of them nothing is held or compared."""
    dialect, heard = Reading("openai_chat"), Conversation()
    for number in range(20):
        entries = conversation("openai_chat", 60, f"{number} {WORDS}")
        sent = body(dialect, entries)
        dialect.read.clear()
        assert heard.request(dialect, sent, dialect.route) == dialect.plainly(sent)
        if number >= 5:
            assert dialect.read == [len(sent)]
    heard.forget()


def test_large_tools_do_not_hide_a_conversation() -> None:
    """While they are the most of a request it is read as before; later they are all that is."""
    dialect, heard = Reading("openai_chat"), Conversation()
    tools = {"more": [{"name": "find", "description": WORDS * 400}]}
    everything = conversation("openai_chat", 1200)
    for length in range(10, 1200, 5):
        dialect.read.clear()
        sent = body(dialect, everything[:length])
        sent = sent[:-1] + b"," + json.dumps(tools, separators=(",", ":")).encode()[1:]
        assert heard.request(dialect, sent, dialect.route) == dialect.plainly(sent)
        if length < 180:
            assert heard.known is None
            assert dialect.read[0] == len(sent)
            assert len(dialect.read) == 1 or length in (15, 60)
    assert sum(dialect.read) < len(sent) / 2
    heard.forget()


def test_short_requests_and_single_ones_hold_nothing() -> None:
    """Only from its second long request on is anything kept of an agent."""
    dialect, heard = Reading("openai_chat"), Conversation()
    short = body(dialect, conversation("openai_chat", 20))
    assert len(short) < LONG
    for _ in range(5):
        heard.request(dialect, short, dialect.route)
    heard.request(dialect, body(dialect, conversation("openai_chat", 100)), dialect.route)
    assert Conversation.held == 0


def test_what_all_hold_is_bounded_and_let_go() -> None:
    """16 MiB for the process: who comes later reads everything, and it is free again afterwards."""
    dialect = Reading("openai_chat")
    sent = body(dialect, conversation("openai_chat", 100, WORDS * 180))
    many = [Conversation() for _ in range(40)]
    for heard in many:
        for _ in range(3):
            assert heard.request(dialect, sent, dialect.route) == dialect.plainly(sent)
    assert 15 << 20 < Conversation.held <= 16 << 20
    del heard, many
    gc.collect()
    assert Conversation.held == 0
