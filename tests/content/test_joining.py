"""Events that go on with a text are made one, and say what each of them has said."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clew.content import READERS
from clew.content.framing import events_of
from clew.content.joining import joined

JOINING = sorted(name for name, reader in READERS.items() if reader.growing)
SSE = "text/event-stream"
# Halves of a surrogate pair in two events are no characters, and one in one.
TEXTS = st.text(st.characters(exclude_categories=("Cs",)), max_size=6) | st.sampled_from(
    ['"', "\\", '\\"', "\n", "\n\n", "\r", '"}}\n\n', "data: {", '","text":"', "\u2028", "", "\\\\"]
)


def anthropic(kind: str, text: str, number: int) -> dict[str, Any]:
    index = number % 2
    block = {"text": {"type": "text", "text": text}, "tool": {"type": "tool_use", "id": text}}
    deltas = {
        "text": {"type": "text_delta", "text": text},
        "thinking": {"type": "thinking_delta", "thinking": text},
        "arguments": {"type": "input_json_delta", "partial_json": text},
        "signature": {"type": "signature_delta", "signature": text},
        "cited": {"type": "text_delta", "text": text, "citations": [{"text": text}]},
    }
    if kind in deltas:
        return {"type": "content_block_delta", "index": index, "delta": deltas[kind]}
    if kind == "begin":
        begun = block["tool" if number % 3 else "text"]
        return {"type": "content_block_start", "index": index, "content_block": begun}
    if kind == "end":
        return {"type": "message_delta", "delta": {"stop_reason": text}, "text": text}
    return {"type": "ping"}


def openai(kind: str, text: str, number: int) -> dict[str, Any]:
    call = {"index": number % 2, "function": {"arguments": text}}
    deltas: dict[str, dict[str, Any]] = {
        "text": {"content": text},
        "thinking": {"reasoning": text, "content": ""},
        "arguments": {"tool_calls": [call]},
        "signature": {"content": "same", "reasoning": text},
        "cited": {"content": text, "annotations": [{"content": text}]},
        "begin": {"role": "assistant", "tool_calls": [{**call, "id": text}]},
    }
    ended = text if kind == "end" else None
    choice = {"index": number % 3 // 2, "delta": deltas.get(kind, {}), "finish_reason": ended}
    return {"id": "c", "choices": [choice], "usage": None}


EVENTS = {"anthropic_messages": anthropic, "openai_chat": openai}
KINDS = ("text", "thinking", "arguments", "signature", "cited", "begin", "end", "ping")
SAID = st.tuples(st.sampled_from(KINDS), st.integers(0, 3), st.lists(TEXTS, min_size=1, max_size=6))


def written(name: str, events: list[dict[str, Any]], *, spaced: bool = False) -> bytes:
    separators = None if spaced else (",", ":")
    lines = []
    for event in events:
        kind = f"event: {event['type']}\n" if name == "anthropic_messages" else ""
        lines.append(f"{kind}data: {json.dumps(event, separators=separators)}\n\n")
    return "".join(lines).encode()


@pytest.mark.parametrize("name", JOINING)
def test_nothing_else_is_said(name: str) -> None:
    """Whatever stands in the texts, between the events and beside the texts."""

    @settings(max_examples=300, deadline=None)
    @given(st.lists(SAID, max_size=8), st.booleans(), st.integers(0, 40))
    def run(said: list[tuple[str, int, list[str]]], spaced: bool, cut: int) -> None:
        make = EVENTS[name]
        events = [make(kind, text, number) for kind, number, texts in said for text in texts]
        body = written(name, events, spaced=spaced)
        body = body[: len(body) - cut]
        reader = READERS[name]
        expected = reader.events(events_of(SSE, body))
        assert expected == reader.events(events_of(SSE, body, None, reader.growing))

    run()


@pytest.mark.parametrize("name", JOINING)
def test_a_long_text_is_one_event(name: str) -> None:
    """Two hundred pieces in a row, with a ping among them, and what comes before and after."""
    make = EVENTS[name]
    texts = [f'word {number} "said" \\ ' for number in range(200)]
    events = [make("begin", "a", 0), *[make("text", text, 0) for text in texts]]
    events.insert(100, make("ping", "", 0))
    events.append(make("end", "stop", 0))
    body = written(name, events)
    reader = READERS[name]
    found = list(events_of(SSE, joined(body, reader.growing)))
    assert len(found) <= 6
    assert reader.events(events) == reader.events(found)


def response(kind: str, text: str) -> dict[str, Any]:
    told = {"output_index": 0, "content_index": 0, "delta": text, "sequence_number": len(text)}
    output = [{"type": "message", "content": [{"type": "output_text", "text": text}]}]
    return {
        "text": {"type": "response.output_text.delta", **told},
        "thinking": {"type": "response.reasoning_text.delta", **told},
        "completed": {"type": "response.completed", "response": {"output": output}},
        "empty": {"type": "response.completed", "response": {"output": []}},
        "failed": {"type": "response.failed", "response": {"error": {"message": text}}},
    }[kind]


@settings(max_examples=300, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(("text", "text", "thinking", "completed", "empty", "failed")), TEXTS
        ),
        max_size=8,
    ),
    st.integers(0, 40),
)
def test_a_closing_event_says_what_all_of_them_do(said: list[tuple[str, str]], cut: int) -> None:
    """Given first it changes nothing; and where it says all, no other is decoded."""
    events = [response(kind, text) for kind, text in said]
    *before, last = events or [{}]
    if any(event["type"] == "response.completed" for event in before):
        return  # nothing comes after it
    body = written("anthropic_messages", events)
    body = body[: len(body) - cut]
    reader = READERS["openai_responses"]
    expected = reader.events(events_of(SSE, body))
    assert expected == reader.events(events_of(SSE, body, closing=reader.closing))
    if cut <= 2 and said and said[-1][0] == "completed":
        first = next(events_of(SSE, body, closing=reader.closing))
        assert (first, expected) == (last, reader.events([last]))
