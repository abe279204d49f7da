"""Content as JSON text: valid under every limit, media replaced."""

# ruff: noqa: SIM300 - expected == actual, in this order
from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clew.content.writing import write
from clew.redaction import Redactor
from clew.rules import DROPPED, Captured, CapturedText

TEXTS = st.text(st.characters(), max_size=60) | st.builds(
    lambda text, times: text * times, st.text(max_size=8), st.integers(1, 2000)
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXTS,
    lambda inner: (
        st.lists(inner, max_size=5)
        | st.dictionaries(st.text(max_size=8) | st.just("type"), inner, max_size=4)
    ),
    max_leaves=15,
)


def digest(data: bytes) -> str:
    return f"<{len(data)}>"


def written(value: Any, limit: int = 32_768, **more: Any) -> str:
    return write(value, limit=limit, digest=digest, redactor=None, **more)


@given(VALUES, st.integers(100, 4000), st.booleans(), st.booleans())
def test_any_value_is_valid_json_within_any_limit(
    value: Any, limit: int, redacted: bool, messages: bool
) -> None:
    """From 100 characters up, the text parses and is not longer than the limit."""
    redactor = Redactor() if redacted else None
    text = write(value, limit=limit, digest=digest, redactor=redactor, messages=messages)
    json.loads(text)
    text.encode()
    assert len(text) <= limit


@pytest.mark.parametrize("limit", [100, 500, 4000, 20_000])
def test_long_texts_are_shortened_with_a_mark_and_their_length(limit: int) -> None:
    """Escapes and emoji are never cut through; what was cut is said."""
    said = '"quoted"\n\U0001f600 ' * 5000
    messages = [{"role": "user", "parts": [{"type": "text", "content": said}]}]
    text = written(messages, limit, messages=True)
    assert len(text) <= limit
    found = json.loads(text)
    assert 1 == len(found)
    part = found[0]["parts"][0]
    if limit >= 500:
        assert part["content"].endswith(f"…[cut: {len(said)} characters]")
        assert said.startswith(part["content"].partition("…[cut")[0])


def test_messages_in_the_middle_are_left_out_with_their_number() -> None:
    """Both ends of a long conversation stay, and the gap is a message of its own."""
    messages = [
        {"role": "user", "parts": [{"type": "text", "content": f"message {at} " + "x" * 50}]}
        for at in range(300)
    ]
    found = json.loads(written(messages, 4000, messages=True))
    gaps = [one["parts"][0]["count"] for one in found if one["role"] == "_OTHER"]
    assert 300 == len(found) - 1 + gaps[0]
    assert found[0]["parts"][0]["content"].startswith("message 0 ")
    assert found[-1]["parts"][0]["content"].startswith("message 299 ")


def test_a_lower_limit_never_shows_more() -> None:
    """Where all fits, nothing is changed."""
    value = [{"type": "text", "content": "short"}]
    assert value == json.loads(written(value))


DATA = base64.b64encode(b"\x89PNG" * 800_000).decode()


def test_media_become_kind_type_size_and_digest() -> None:
    """A picture of three megabytes is a line, wherever it stands, and never its bytes."""
    value = [
        {"type": "blob", "modality": "image", "mime_type": "image/png", "content": DATA},
        {"type": "text", "content": f"look: data:image/png;base64,{DATA} there"},
        {"type": "tool_call_response", "response": {"raw": DATA, "bytes": b"abc"}},
    ]
    text = written(value)
    assert len(text) < 2000
    blob, line, response = json.loads(text)
    assert ("", 3_200_000, digest(DATA.encode())) == (
        blob["content"],
        blob["bytes"],
        blob["digest"],
    )
    expected = f"look: [image/png, 3200000 bytes, digest {digest(DATA.encode())}] there"
    assert expected == line["content"]
    assert response["response"]["raw"].startswith("[base64, 3200000 bytes")
    assert "[data, 3 bytes, digest <3>]" == response["response"]["bytes"]


def test_a_vector_becomes_its_length_and_a_digest() -> None:
    """Numbers in a row are no text that anybody reads; a few numbers are."""
    found = json.loads(written({"vector": [0.5] * 3072, "few": [1, 2, 3]}))
    assert ("vector", 3072) == (found["vector"]["type"], found["vector"]["length"])
    assert [1, 2, 3] == found["few"]


def test_only_captured_content_passes_its_rule() -> None:
    """Text that looks alike but was not captured is dropped."""
    rule = Captured()
    assert "[]" == rule.apply(CapturedText("[]"))
    assert str is type(rule.apply(CapturedText("[]")))
    for value in ("[]", b"[]", None, 1, ["[]"]):
        assert DROPPED is rule.apply(value)
