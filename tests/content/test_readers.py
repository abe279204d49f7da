"""The content of each format in the conventions' shapes, whole and streamed."""

from __future__ import annotations

import json
from typing import Any

import pytest
from formats import FORMATS
from hypothesis import given
from hypothesis import strategies as st
from marks import ARGUMENTS, mark
from wire_format import Format

from clew import content
from clew.content import READERS
from clew.content.framing import events_of

COVERED = [one for one in FORMATS if one.name in READERS]
REQUIRED = {
    "text": {"content"},
    "reasoning": {"content"},
    "tool_call": {"name"},
    "tool_call_response": {"response"},
    "server_tool_call": {"name", "server_tool_call"},
    "blob": {"modality", "content"},
    "file": {"modality", "file_id"},
    "uri": {"modality", "uri"},
}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    *("role", "content", "parts", "messages", "type", "text", "choices", "message"),
                    *("tool_calls", "function", "input", "output", "candidates", "delta", "index"),
                    *("source", "tools", "contents", "system", "toolUse", "images", "image_url"),
                ]
            ),
            inner,
            max_size=5,
        )
    ),
    max_leaves=25,
)


def check_messages(messages: Any) -> None:
    """Check what the conventions' JSON schemas require of messages."""
    assert isinstance(messages, list)
    for message in messages:
        assert isinstance(message["role"], str)
        check_parts(message["parts"])
        assert isinstance(message.get("finish_reason", ""), str | type(None))


def check_parts(parts: Any) -> None:
    assert isinstance(parts, list)
    for part in parts:
        assert isinstance(part["type"], str)
        assert REQUIRED.get(part["type"], set()) <= part.keys(), part


def streamed(one: Format) -> list[dict[str, Any]]:
    return content.of_stream(one.name, one.stream_type, b"".join(one.events)) or []


def parts_of(messages: Any, kind: str) -> list[Any]:
    return [part for message in messages for part in message["parts"] if part["type"] == kind]


def test_every_reader_is_proven_by_a_format() -> None:
    """A reader without a format here would be untested."""
    assert set(READERS) == {one.name for one in COVERED}


@pytest.mark.parametrize("one", COVERED, ids=lambda one: one.name)
def test_a_request_is_read_as_the_conventions_say(one: Format) -> None:
    """System text, prompt, history, tools and results, each in its place."""
    found = content.of_request(one.name, json.dumps(one.request).encode())
    check_messages(found.input_messages)
    dumped = json.dumps(found.input_messages)
    assert mark("prompt") in dumped
    whole = json.dumps([found.system_instructions, found.input_messages])
    if mark("system") in json.dumps(one.request):
        assert mark("system") in whole
    if found.system_instructions is not None:
        check_parts(found.system_instructions)
        assert mark("system") not in dumped
    if mark("result") in json.dumps(one.request):
        assert mark("result") in json.dumps(parts_of(found.input_messages, "tool_call_response"))
    if mark("tool") in json.dumps(one.request):
        assert found.tool_definitions is not None
        assert {"type": "function", "name": "find"}.items() <= found.tool_definitions[0].items()
        assert mark("tool") == found.tool_definitions[0]["description"]
        assert "properties" in found.tool_definitions[0]["parameters"]


@pytest.mark.parametrize("one", COVERED, ids=lambda one: one.name)
def test_an_answer_is_read_as_the_conventions_say(one: Format) -> None:
    """Text, reasoning and tool calls, whose arguments are objects."""
    found = content.of_response(one.name, json.dumps(one.answer).encode())
    check_messages(found)
    assert mark("completion") in [part["content"] for part in parts_of(found, "text")]
    if mark("chosen-tool") in json.dumps(one.answer):
        call = parts_of(found, "tool_call")[0]
        assert (mark("chosen-tool"), ARGUMENTS) == (call["name"], call["arguments"])
    if "reasoning" in json.dumps(one.answer):
        assert parts_of(found, "reasoning")


@pytest.mark.parametrize("one", COVERED, ids=lambda one: one.name)
def test_a_streamed_answer_is_put_together(one: Format) -> None:
    """The pieces become the same parts; a stream that was cut off gives what had come."""
    found = streamed(one)
    check_messages(found)
    assert mark("completion") in json.dumps(parts_of(found, "text"))
    if mark("chosen-tool") in json.dumps(one.answer) and "stream" not in one.name:
        names = [part["name"] for part in parts_of(found, "tool_call")]
        assert mark("chosen-tool") in names
    body = b"".join(one.events)
    for end in range(0, len(body), max(1, len(body) // 40)):
        cut = content.of_stream(one.name, one.stream_type, body[:end])
        check_messages(cut or [])


@given(st.sampled_from(sorted(READERS)), JSON)
def test_any_json_gives_valid_messages_or_none(name: str, data: Any) -> None:
    """Whatever stands in a body, what is read of it obeys the shapes."""
    body = json.dumps(data).encode()
    found = content.of_request(name, body)
    check_messages(found.input_messages or [])
    check_parts(found.system_instructions or [])
    check_messages(content.of_response(name, body) or [])
    for made in (b"data: " + body + b"\n\n", body + b"\n" + body, b"[" + body + b"]"):
        check_messages(content.of_stream(name, "text/event-stream", made) or [])


@given(st.binary(max_size=200), st.sampled_from(["text/event-stream", "amazon.eventstream"]))
def test_any_bytes_are_split_into_events(data: bytes, content_type: str) -> None:
    """No body makes the splitting fail."""
    assert all(isinstance(event, dict) for event in events_of(content_type, data))


def test_what_is_no_json_has_no_content() -> None:
    """A body that cannot be read is left out; a format without a reader too."""
    for body in (b"", b"not json", b"[1]", b"[" * 100_000):
        assert content.Content() == content.of_request("openai_chat", body)
        assert content.of_response("openai_chat", body) is None
    assert content.of_response("openai_embeddings", b"{}") is None
    assert content.of_stream("openai_embeddings", "text/event-stream", b"") is None


PIECES = st.sampled_from(
    [
        b'{"choices":[{"index":0,"delta":{"content":"a"}}]}',
        b'{"choices":[{"delta":{"content":"b"},"finish_reason":"stop"}],"usage":null}',
        b'{"choices":[{"delta":{"content":5}}]}',
        b'{"z":"\\ud800","choices":[{"delta":{"content":"s"}}]}',
        b'{"n":NaN,"choices":[{"delta":{"reasoning":"r"}}]}',
        b'{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}',
        b'{"type":"content_block_delta","index":0,"delta":{"text":"t"},"z":1}',
        b'{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":3}}',
        *(b"[DONE]", b"[1]", b"3", b"x", b""),
    ]
)
FIELDS = st.sampled_from([b"", b"event: a\n", b": c\n", b"id: 1\nevent: data: z\n", b"data: {}\n"])


@given(st.lists(st.tuples(FIELDS, PIECES), max_size=6), st.sampled_from([b"\n", b"\r\n", b"\r"]))
def test_events_are_the_same_whatever_ends_their_lines(
    given_: list[tuple[bytes, bytes]], end: bytes
) -> None:
    """Each line end is read alike, and members that are passed over change nothing."""
    body = b"".join(fields + b"data: " + data + b"\n\n" for fields, data in given_)
    expected: list[Any] = []
    for fields, data in given_:
        lines = [b"{}"] if fields.startswith(b"data") else []
        try:
            event = json.loads(b"\n".join([*lines, data]))
        except ValueError:
            continue
        expected += [event] if isinstance(event, dict) else []
    ended = body.replace(b"\n", end)
    assert repr(expected) == repr(list(events_of("text/event-stream", ended)))
    for name in ("openai_chat", "anthropic_messages"):
        read = READERS[name].events(expected) or None
        assert read == content.of_stream(name, "text/event-stream", ended)
