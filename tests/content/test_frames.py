"""Bodies cut into events, and the places of texts in them."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clew.content.deltas import FORMATS, deltas
from clew.content.frames import Frame, Frames, framing
from clew.content.texts import change, leaves, places

PIECES = st.lists(
    st.sampled_from(
        [b"data: ", b'{"a":"b"}', b"\n", b"\r", b"\r\n", b"\n\n", b": ping", b"event: x", b"[DONE]"]
    )
    | st.binary(max_size=5),
    max_size=30,
).map(b"".join)


def cut(body: bytes, at: list[int]) -> list[bytes]:
    """Return a body in pieces."""
    places = sorted({0, len(body), *(place % (len(body) + 1) for place in at)})
    return [body[begin:end] for begin, end in pairwise(places)]


@given(PIECES, st.lists(st.integers(0, 500), max_size=8), st.booleans())
def test_nothing_is_lost_or_added(body: bytes, at: list[int], sse: bool) -> None:
    """However a body is cut into pieces, its events together are the body."""
    frames = Frames(sse=sse)
    found = [frame for piece in cut(body, at) for frame in frames.feed(piece)]
    found += frames.end()
    assert b"".join(frame.bytes() for frame in found) == body


@given(st.lists(st.integers(0, 500), max_size=8), st.sampled_from([b"\n", b"\r\n", b"\r"]))
def test_events_do_not_depend_on_the_pieces(at: list[int], end: bytes) -> None:
    """Each line end of the specification ends a line, and two of them an event."""
    lines = [b": ping", b"", b"event: a", b'data: {"n": 1}', b"", b'data: {"n":', b"data: 2}", b""]
    body = end.join(lines) + end
    frames = Frames(sse=True)
    found = [frame for piece in cut(body, at) for frame in frames.feed(piece)] + frames.end()
    assert [frame.document for frame in found if frame.document] == [{"n": 1}, {"n": 2}]


@pytest.mark.parametrize(
    ("raw", "document", "text"),
    [
        (b'data: {"a": "b"}\n\n', {"a": "b"}, None),
        (b'\xef\xbb\xbfdata:{"a":"b"}\n\n', {"a": "b"}, None),
        (b"data: [DONE]\n\n", None, None),
        (b": ping\n\n", None, None),
        (b"data: plain words\n\n", None, "plain words"),
        (b'data: "a"\n\n', None, '"a"'),
        (b'data: {"cut\n\n', None, '{"cut'),
    ],
)
def test_what_an_event_carries(raw: bytes, document: Any, text: str | None) -> None:
    """JSON, or a text that is none, or nothing."""
    frame = Frame(raw, sse=True)
    assert (frame.document, frame.text) == (document, text)


def test_an_event_that_was_changed_is_written_anew() -> None:
    """Its other lines stay, its data is one line, half a surrogate stays what it was."""
    frame = Frame(b'event: a\r\nid: 7\r\ndata: {"t":\r\ndata: "\\ud83d"}\r\n\r\n', sse=True)
    frame.document["u"] = "é"
    frame.changed = True
    assert frame.bytes() == (b'event: a\r\nid: 7\r\ndata: {"t":"\\ud83d","u":"\\u00e9"}\r\n\r\n')
    first = Frame(b'\xef\xbb\xbfdata: {"t": "x"}\n\n', sse=True)
    first.document["t"] = "y"
    first.changed = True
    assert first.bytes() == b'data: {"t":"y"}\n\n'
    line = Frame(b'{"t": "x"}\r\n', sse=False)
    line.document["t"] = "y"
    line.changed = True
    assert line.bytes() == b'{"t":"y"}\r\n'


def test_which_media_types_have_events() -> None:
    """Server-sent events, lines, or neither."""
    assert framing("text/event-stream") is True
    assert framing("application/x-ndjson") is False
    assert framing("application/json") is None
    assert framing("application/vnd.amazon.eventstream") is None


def call(**function: Any) -> dict[str, Any]:
    return {"index": 2, "id": "c", "function": function}


@pytest.mark.parametrize(
    ("dialect", "event", "expected"),
    [
        (
            "openai_chat",
            {"choices": [{"index": 1, "delta": {"content": "a", "reasoning": "b", "role": "x"}}]},
            [((1, "content"), "a"), ((1, "reasoning"), "b")],
        ),
        (
            "openai_chat",
            {"choices": [{"delta": {"tool_calls": [call(name="f", arguments='{"')]}}]},
            [((0, "tool", 2), '{"')],
        ),
        (
            "openai_chat",
            {"choices": [{"delta": {"content": [{"type": "text", "text": "a"}]}}]},
            [((0, "content"), "a")],
        ),
        ("openai_completions", {"choices": [{"text": "a", "index": 0}]}, [((0, "text"), "a")]),
        (
            "openai_responses",
            {"type": "response.output_text.delta", "output_index": 1, "delta": "a"},
            [(("response.output_text.delta", 1, None, None), "a")],
        ),
        ("openai_responses", {"type": "response.output_text.done", "text": "a"}, []),
        (
            "anthropic_messages",
            {"type": "content_block_delta", "index": 3, "delta": {"text": "a"}},
            [((3, "text"), "a")],
        ),
        (
            "anthropic_messages",
            {"type": "content_block_delta", "index": 0, "delta": {"partial_json": "{"}},
            [((0, "partial_json"), "{")],
        ),
        (
            "gemini_content",
            {
                "candidates": [
                    {"content": {"parts": [{"text": "a"}, {"text": "b", "thought": True}]}}
                ]
            },
            [((0, False), "a"), ((0, True), "b")],
        ),
        ("ollama", {"message": {"content": "a"}}, [((True, "content"), "a")]),
        ("ollama", {"response": "a"}, [((False, "response"), "a")]),
        (
            "cohere_chat",
            {"index": 0, "delta": {"message": {"content": {"text": "a"}}}},
            [((0, "text"), "a")],
        ),
        ("openai_chat", {"choices": [{"delta": {"content": ""}}]}, []),
    ],
)
def test_where_text_is_added(dialect: str, event: Any, expected: Any) -> None:
    """Each piece with the channel that it belongs to."""
    found = deltas(dialect, event)
    assert [(delta.channel, delta.holder[delta.key]) for delta in found] == expected


JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["choices", "delta", "content", "parts", "candidates", "message", "text", "type"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=20,
)


@given(st.dictionaries(st.sampled_from(["choices", "delta", "candidates", "type"]), JSON))
def test_any_event_can_be_read(event: dict[str, Any]) -> None:
    """Whatever a provider sends is read without an exception, and each text has one place."""
    for dialect in FORMATS:
        for delta in deltas(dialect, event):
            assert isinstance(delta.holder[delta.key], str)


@given(JSON)
def test_texts_and_their_places(value: Any) -> None:
    """Each text stands where it is said to stand; changed, all of its kind are."""
    assert all(place.holder[place.key] == place.text for place in places(value))
    changed = json.loads(json.dumps(value))
    change(changed, "a", "b")
    if isinstance(value, (dict, list)):
        assert list(leaves(changed)) == ["b" if text == "a" else text for text in leaves(value)]
