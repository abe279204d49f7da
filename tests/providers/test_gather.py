"""Putting content together: any input, any cut."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clew.providers import PROVIDERS, ToolRequest, provider
from clew.providers.gather import ThinkTags, arguments_of
from clew.providers.messages import merged

JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(
            st.sampled_from(
                [
                    *("choices", "delta", "message", "content", "tool_calls", "function", "index"),
                    *("type", "candidates", "parts", "functionCall", "text", "thinking", "name"),
                    *("content_block", "reasoning_details", "arguments", "args", "id", "thought"),
                ]
            ),
            inner,
            max_size=5,
        ),
    ),
    max_leaves=25,
)


@pytest.mark.parametrize("name", PROVIDERS)
@given(bodies=st.lists(JSON, max_size=4))
def test_any_answer_is_gathered(name: str, bodies: list[Any]):
    """Whatever the shape, nothing is raised, and what comes out is text and tool calls."""
    one: Any = provider(name)
    gatherer = one.gatherer()
    for body in bodies:
        if isinstance(body, dict):
            gatherer.event(body)
            gatherer.whole(body)
    gatherer.end()
    assert isinstance(gatherer.text + gatherer.thinking, str)
    assert all(isinstance(call.request(), ToolRequest) for call in gatherer.calls)
    assert all(isinstance(block.text, str) for block in gatherer.blocks())


def split(pieces: list[str]) -> tuple[str, str]:
    tags = ThinkTags()
    found = {"text": "", "thinking": ""}
    for piece in pieces:
        for kind, part in tags.feed(piece):
            found[kind] += part
    for kind, part in tags.end():
        found[kind] += part
    return found["thinking"], found["text"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ("", "")),
        ("plain", ("", "plain")),
        ("<think>a</think>b", ("a", "b")),
        ("\n<think>\na\n</think>\n\nb\n", ("a\n", "b\n")),
        ("<think>a", ("a", "")),
        ("<think>a</thin", ("a</thin", "")),
        ("<think></think>b", ("", "b")),
        ("<think>a</think>", ("a", "")),
        ("<think>a</think>b<think>c</think>", ("a", "b<think>c</think>")),
        ("b<think>a</think>", ("", "b<think>a</think>")),
        ("<thin", ("", "<thin")),
        ("<thinking>a", ("", "<thinking>a")),
        ("  x", ("", "  x")),
    ],
)
def test_thinking_tags(text: str, expected: tuple[str, str]):
    """Only in front of the text, and wherever the pieces are cut."""
    assert split([text]) == expected
    for size in (1, 2, 3):
        assert split([text[at : at + size] for at in range(0, len(text), size)]) == expected


@given(st.text(alphabet="<think>/ab \n", max_size=60), st.lists(st.integers(1, 9), max_size=30))
def test_cuts_do_not_matter(text: str, sizes: list[int]):
    """Text in any pieces gives what it gives in one, and no character of plain text is lost."""
    pieces, rest = [], text
    for size in sizes:
        pieces.append(rest[:size])
        rest = rest[size:]
    assert split([*pieces, rest]) == split([text])
    if not text.lstrip().startswith("<think>"):
        assert split([text]) == ("", text)


@given(st.text(max_size=40))
def test_any_text_is_arguments_or_none(text: str):
    """What is no JSON object is None, never an exception."""
    found = arguments_of(text)
    assert found is None or isinstance(found, dict)


@given(st.dictionaries(st.text(max_size=5), st.integers() | st.text(max_size=5), max_size=5))
def test_arguments_are_what_was_written(value: dict[str, Any]):
    """A JSON object comes back as it is."""
    assert arguments_of(json.dumps(value)) == value


def test_depth_and_digits_are_bounded():
    """What Python refuses to read is no argument."""
    assert arguments_of("[" * 100_000) is None
    assert arguments_of('{"a": ' + "9" * 10_000 + "}") is None


def test_further_fields_are_merged():
    """Objects are merged, all else is replaced; private names stay out at every depth."""
    body = {"a": {"b": 1, "c": [1]}, "d": 1}
    extra = {"a": {"c": [2], "_x": 1}, "d": {"e": 1}, "_y": 1, "f": None}
    assert merged(body, extra) == {"a": {"b": 1, "c": [2]}, "d": {"e": 1}, "f": None}
    assert body == {"a": {"b": 1, "c": [1]}, "d": 1}
