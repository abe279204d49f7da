"""What was sent and what came back, in one normal form, for every wire format."""

# ruff: noqa: SIM300 - expected == actual, in this order
from __future__ import annotations

import hashlib
import hmac
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from recorded import Start, Wire, post, send
from wires import ANSWER, CALL, IMAGE, QUESTION, SCHEMA, SHAPES, THOUGHT, Shape

from clew.content.writing import exact
from clew.gates.guardrail import InputGuardrail, redact
from clew.recording import normal
from clew.recording.building import compact
from clew.typing import Verdict

PIECES = ["You are a clerk. Grüße!\n\n", 'Never say "no". 🎈\u2028\n', "  Be brief."]


BOTH = pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
EACH = pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)


@BOTH
@EACH
async def test_the_system_prompt_is_the_one_on_the_wire(
    start: Start, shape: Shape, asynchronous: bool
) -> None:
    """Whatever field it was sent in, as a text or in pieces: the hashes are equal."""
    session = start()
    wire = Wire(shape.answer)
    await post(shape.url, shape.body(PIECES), wire, asynchronous=asynchronous)
    sent = shape.on_the_wire(json.loads(wire.bodies[0]))
    row, record = session.only()
    assert record.system.text is not None
    assert (
        hashlib.sha256(sent.encode()).hexdigest()
        == hashlib.sha256(record.system.text.encode()).hexdigest()
    )
    expected = hmac.digest(b"key of the tests", sent.encode(), "sha256").hex()
    assert expected == record.system.digest == row.system_digest
    assert (len(sent.encode()), len(sent)) == (record.system.bytes, record.system.chars)


@EACH
async def test_the_request_is_recorded_whole(start: Start, shape: Shape) -> None:
    """History without the system prompt, tools whole, and every other field as it was sent."""
    session = start()
    wire = Wire(shape.answer)
    body = shape.body(PIECES)
    await post(shape.url, body, wire, asynchronous=False)
    row, record = session.only()
    assert [{"role": "user", "parts": [{"type": "text", "content": QUESTION}]}] == record.messages
    assert (1, 1) == (record.history_length, row.history_length)
    (tool,) = record.tools
    serialised = json.dumps(SCHEMA, separators=(",", ":"))
    chars = len("lookup") + len("Look an order up.") + len(serialised)
    assert ("lookup", "Look an order up.", SCHEMA) == (tool.name, tool.description, tool.schema)
    assert (chars, chars, 1) == (tool.chars, row.tool_chars, row.tool_count)
    rest = {**body}
    for key in ("messages", "input", "contents", "system", "systemInstruction", "tools"):
        rest.pop(key, None)
    for key in ("system_instruction", "instructions"):
        rest.pop(key, None)
    if "toolConfig" in rest:
        rest["toolConfig"] = {"toolChoice": {"auto": {}}}
    assert rest == record.parameters
    assert len(wire.bodies[0]) == record.request_bytes == row.request_bytes


@EACH
async def test_the_answer_is_recorded_whole(start: Start, shape: Shape) -> None:
    """Text, thinking, tool calls with their arguments, finish reason, tokens."""
    session = start()
    await post(shape.url, shape.body(PIECES), Wire(shape.answer), asynchronous=False)
    row, record = session.only()
    response = record.response
    assert (ANSWER, THOUGHT) == (response.text, response.thinking)
    assert [(CALL[0], "call_1", CALL[1])] == [
        (call.name, call.id, call.arguments) for call in response.tool_calls
    ]
    assert ("ok", None, False) == (row.status, response.error, record.partial)
    assert record.usage is not None
    assert (100, 20) == (record.usage.input_tokens, record.usage.output_tokens)
    assert (100, 20) == (row.input_tokens, row.output_tokens)
    assert response.finish_reason == row.finish_reason
    assert response.finish_reason in ("stop", "tool_call")


def _with_history(*messages: dict[str, Any]) -> dict[str, Any]:
    return {"model": "gpt-4o-mini", "messages": list(messages)}


SYSTEM = {"role": "system", "content": "Be brief."}
USER = {"role": "user", "content": QUESTION}
LATER = {"role": "system", "content": "Now be long."}


@pytest.mark.parametrize(
    ("body", "system", "roles"),
    [
        (_with_history(SYSTEM, USER), "Be brief.", ["user"]),
        (_with_history(SYSTEM, USER, LATER), "Be brief.", ["user", "system"]),
        (_with_history(USER, LATER), None, ["user", "system"]),
        (_with_history(USER), None, ["user"]),
        (_with_history(SYSTEM, LATER, USER), "Be brief.Now be long.", ["user"]),
    ],
    ids=["leading", "leading and later", "later only", "none", "two leading"],
)
def test_only_the_leading_system_messages_are_the_system_prompt(
    body: dict[str, Any], system: str | None, roles: list[str]
) -> None:
    """They leave the history, which is counted without them; a later one stays in it."""
    found = normal.request_of("openai_chat", json.dumps(body).encode())
    assert system == found.system
    assert roles == [message["role"] for message in found.messages or ()]


async def test_media_are_replaced_and_the_prompt_is_not(start: Start) -> None:
    """An image becomes its kind, size and digest; a long run of letters in a prompt stays."""
    session = start()
    letters = "QUJD" * 400
    image = {"type": "image_url", "image_url": {"url": IMAGE}}
    body = _with_history(
        {"role": "system", "content": letters},
        {"role": "user", "content": [{"type": "text", "text": QUESTION}, image]},
    )
    url = "https://api.openai.com/v1/chat/completions"
    await post(url, body, Wire(SHAPES[0].answer), asynchronous=False)
    _, record = session.only()
    assert letters == record.system.text
    assert record.messages is not None
    blob = record.messages[0]["parts"][1]
    assert ("blob", "image/png", "", 165) == tuple(
        blob[key] for key in ("type", "mime_type", "content", "bytes")
    )
    path = session.folder / (session.rows()[0].path or "")
    assert "iVBORw0KGgo" not in path.read_text()


async def test_several_answers_are_all_kept(start: Start) -> None:
    """The first is the response; all of them are there as messages."""
    session = start()
    choices = [
        {"index": n, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}
        for n, text in enumerate(("one", "two"))
    ]
    url = "https://api.openai.com/v1/chat/completions"
    wire = Wire({"model": "m", "choices": choices})
    await post(url, {**_with_history(USER), "n": 2}, wire, asynchronous=False)
    _, record = session.only()
    assert "one" == record.response.text
    said = [each["parts"][0]["content"] for each in record.response.choices]
    assert ["one", "two"] == said
    assert record.usage is None


async def test_a_format_without_a_reader_keeps_its_bodies(start: Start) -> None:
    """Embeddings have a record too: what was asked, and what came back, vectors by length."""
    session = start()
    url = "https://api.openai.com/v1/embeddings"
    vector = [0.5] * 64
    wire = Wire({"data": [{"embedding": vector}], "model": "e", "usage": {"prompt_tokens": 3}})
    await post(url, {"model": "text-embedding-3-small", "input": "some text"}, wire,
               asynchronous=False)  # fmt: skip
    row, record = session.only()
    assert "embeddings" == row.operation
    assert {"model": "text-embedding-3-small", "input": "some text"} == record.body
    assert ("vector", 64) == tuple(
        record.response.body["data"][0]["embedding"][key] for key in ("type", "length")
    )
    assert record.usage is not None
    assert 3 == record.usage.input_tokens


@pytest.mark.parametrize("body", [b"", b"not json", b"[1, 2]", b'{"messages": 7}', b"\xff"])
async def test_a_request_that_cannot_be_read_has_a_record(start: Start, body: bytes) -> None:
    """Messages that cannot be read are null, and the call is still known."""
    session = start()
    url = "https://api.openai.com/v1/chat/completions"
    send(url, Wire(SHAPES[0].answer), content=body)
    row, record = session.only()
    assert (None, None) == (record.messages, record.system.text)
    assert len(body) == row.request_bytes
    assert ANSWER == record.response.text


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"messages": [USER]}, (0, 0)),
        ({"messages": [USER], "tools": []}, (0, 0)),
        ({"messages": [USER], "tools": [{"type": "web_search"}]}, (1, 10)),
    ],
)
async def test_no_tools_are_none_and_not_unknown(
    start: Start, body: dict[str, Any], expected: tuple[int, int]
) -> None:
    """A request that offers none says so; a tool of the provider's own is counted by its name."""
    session = start()
    url = "https://api.openai.com/v1/chat/completions"
    send(url, Wire(SHAPES[0].answer), json=body)
    row, _ = session.only()
    assert expected == (row.tool_count, row.tool_chars)


@pytest.mark.parametrize(
    ("more", "kept"),
    [
        ({}, False),
        ({"tools": [{"type": "web_search_20250305", "name": "web_search", "max_uses": 3}]}, True),
        (
            {"messages": [{"role": "user", "content": [{"type": "container_upload", "id": 7}]}]},
            True,
        ),
    ],
    ids=["plain", "a tool of the provider's own", "a part that is not known"],
)
async def test_nothing_of_a_request_is_lost(start: Start, more: dict[str, Any], kept: bool) -> None:
    """Where something has no place in the normal form, the request is kept as it was sent."""
    session = start()
    body = {
        "model": "claude-sonnet-4-5", "max_tokens": 9, "system": "Be brief.",
        "messages": [{"role": "user", "content": QUESTION}], **more,
    }  # fmt: skip
    send("https://api.anthropic.com/v1/messages", Wire(SHAPES[5].answer), json=body)
    _, record = session.only()
    assert (body if kept else None) == record.body
    assert ("Be brief.", 1) == (record.system.text, record.history_length)


async def test_half_a_surrogate_pair_is_no_reason_to_lose_a_record(start: Start) -> None:
    """JSON can say what UTF-8 cannot: it is replaced, in texts and in keys."""
    session = start()
    body = '{"messages": [{"role": "system", "content": "a \\ud800 b"}, {"role": "user", "content": "\\udfff"}], "\\ud83d": 1}'
    url = "https://api.openai.com/v1/chat/completions"
    send(url, Wire(SHAPES[0].answer), content=body.encode())
    _, record = session.only()
    assert "a ? b" == record.system.text
    assert record.messages is not None
    assert "?" == record.messages[0]["parts"][0]["content"]
    assert {"?": 1} == record.parameters


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)
DIALECTS = st.sampled_from(
    [
        *("openai_chat", "openai_responses", "anthropic_messages", "gemini_content", "ollama"),
        *("cohere_chat", "bedrock_converse", "bedrock_invoke", "openai_completions", "unknown"),
    ]
)
FIELDS = st.sampled_from(
    [
        *("messages", "input", "contents", "prompt", "system", "systemInstruction", "tools"),
        *("instructions", "toolConfig", "model", "choices", "output", "content", "candidates"),
    ]
)


@given(DIALECTS, st.dictionaries(FIELDS | st.text(), JSON, max_size=6))
def test_any_object_is_read_without_an_error(dialect: str, data: dict[str, Any]) -> None:
    """Foreign JSON of any shape gives a normal form; nothing in it makes the recorder fail."""
    body = json.dumps(data).encode()
    normal.request_of(dialect, body)
    normal.response_of(dialect, None, body)
    normal.response_of(dialect, "text/event-stream", b"data: " + body + b"\n\n")


@given(st.binary(max_size=200))
def test_any_bytes_are_read_without_an_error(body: bytes) -> None:
    """So do bytes that are no JSON."""
    normal.request_of("openai_chat", body)
    normal.response_of("anthropic_messages", None, body)
    normal.response_of("bedrock_converse", "application/vnd.amazon.eventstream", body)


@given(st.text(st.characters()))
def test_text_that_utf_8_can_say_stays_as_it_is(text: str) -> None:
    """Only half surrogate pairs are replaced."""
    kept = exact(text)
    assert kept.encode().decode() == kept
    if not any(0xD800 <= ord(character) < 0xE000 for character in text):
        assert text == kept


def test_a_schema_is_measured_as_it_is_written() -> None:
    """Characters, not bytes; no spaces; the order of the keys is the sender's."""
    assert '{"b":"ü","a":[1]}' == compact({"b": "ü", "a": [1]})


async def test_a_gate_that_changes_the_prompt(start: Start) -> None:
    """What a gate made of the request is what was sent, and so what is recorded."""

    def no_names(text: str) -> Verdict | None:
        return redact(text.replace("Änn", "***")) if "Änn" in text else None

    session = start(gates=(InputGuardrail(no_names),))
    wire = Wire(SHAPES[0].answer)
    body = _with_history({"role": "system", "content": "You serve Änn."}, USER)
    url = "https://api.openai.com/v1/chat/completions"
    send(url, wire, json=body)
    _, record = session.only()
    assert "You serve ***." == json.loads(wire.bodies[0])["messages"][0]["content"]
    assert "You serve ***." == record.system.text
    assert len(wire.bodies[0]) == record.request_bytes
