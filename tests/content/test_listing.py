"""Requests read entry by entry: written as if they were read as a whole, and remembered."""

# ruff: noqa: SIM300 - expected == actual, in this order
from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.dialects.support.usual_routes import usual_route

import clew
from clew import content, redaction
from clew.content import listing, shapes, writing
from clew.dialects.conversation import Conversation
from clew.redaction import FAILED, Redactor
from clew.testing import captured
from clew.typing import Beginning

NAMES = sorted({f.name for reader in content.READERS.values() for f in reader.fields})
BY_FIELDS = sorted(name for name, reader in content.READERS.items() if reader.fields)
WORDS = st.sampled_from(
    [
        "hello there",
        "sk-aaaaaaaaaaaaaaaaaaaaaa",
        "password: hunter22",
        "…[cut: 5 characters]",
        "\U0001f600 é",
        "\ud800",
        "x y" * 500,
        "QUJD" * 400,
        "data:image/png;base64," + "QUJD" * 9,
        '{"a": 1e+16, "b": [1.5, true]}',
    ]
)
LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | WORDS
KEYS = st.sampled_from(
    ["role", "content", "type", "text", "parts", "name", "id", "input", "function", "arguments"]
)
JSON = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=10,
)
ENTRIES = st.fixed_dictionaries(
    {}, optional={"role": WORDS | st.just("tool"), "content": JSON, "parts": JSON, "text": WORDS}
)
BODIES = st.dictionaries(
    st.sampled_from(NAMES), st.lists(ENTRIES | JSON, max_size=6) | JSON, max_size=5
)
LISTS = ("system_instructions", "input_messages", "tool_definitions")


@pytest.fixture(autouse=True)
def _nothing_is_remembered() -> Iterator[None]:
    listing.forget()
    yield
    listing.forget()


def digest(data: bytes) -> str:
    return f"<{len(data)}>"


def written(
    dialect: str,
    body: bytes,
    redactor: Redactor | None,
    limit: int = 32_768,
    beginning: Beginning | None = None,
) -> Any:
    """Return the lists of a request, each as it is written by the quick way."""
    found = content.listings_of(dialect, body, beginning)
    more: dict[str, Any] = {"limit": limit, "digest": digest, "redactor": redactor}
    return [
        value
        if value is None
        else listing.written(value, messages=name == "input_messages", key="key", **more)
        if isinstance(value, listing.Listing)
        else writing.write(value, messages=name == "input_messages", **more)
        for name, value in zip(LISTS, found, strict=True)
    ]


def as_a_whole(dialect: str, body: bytes, redactor: Redactor | None, limit: int = 32_768) -> Any:
    found = content.of_request(dialect, body)
    return [
        None
        if getattr(found, name) is None
        else writing.write(
            getattr(found, name),
            limit=limit,
            digest=digest,
            redactor=redactor,
            messages=name == "input_messages",
        )
        for name in LISTS
    ]


@settings(max_examples=200)
@given(st.sampled_from(BY_FIELDS), BODIES, st.booleans(), st.sampled_from([100, 700, 32_768]))
def test_a_request_is_written_as_if_it_were_read_as_a_whole(
    dialect: str, body: dict[str, Any], redacted: bool, limit: int
) -> None:
    """Every list, at both levels, at any limit, the first time and when it is remembered."""
    data = json.dumps(body).encode()
    redactor = Redactor() if redacted else None
    expected = as_a_whole(dialect, data, redactor, limit)
    assert expected == written(dialect, data, redactor, limit)
    assert expected == written(dialect, data, redactor, limit)


CONVERSATIONS = (
    *("openai_chat", "openai_responses", "anthropic_messages", "gemini_content"),
    *("bedrock_converse", "cohere_chat", "ollama"),
)


@pytest.mark.parametrize("name", CONVERSATIONS)
def test_a_conversation_that_goes_on_is_written_as_a_whole_one(name: str) -> None:
    """What the requests before began with is written once; nothing else differs."""
    route = usual_route(name)
    member = route.dialect.conversation
    assert member is not None
    long_one = {"role": "user", "content": [{"type": "text", "text": "words " * 1600}]}
    hits: list[bool] = []

    @settings(max_examples=40)
    @given(
        st.lists(ENTRIES, min_size=6, max_size=12),
        st.lists(ENTRIES | JSON, max_size=30),
        st.dictionaries(st.sampled_from(NAMES), st.lists(ENTRIES, max_size=2), max_size=2),
        st.booleans(),
        st.sampled_from([100, 700, 32_768]),
    )
    def run(
        said: list[Any], more: list[Any], others: dict[str, Any], redacted: bool, limit: int
    ) -> None:
        heard, redactor = Conversation(), Redactor() if redacted else None
        others.pop(member, None)
        for end in (0, 0, *range(0, len(more) + 1, 5)):
            body = {**others, member: [long_one, *said, *more[:end]], "model": "m"}
            data = json.dumps(body, separators=(",", ":")).encode()
            heard.request(route.dialect, data, route)
            expected = as_a_whole(name, data, redactor, limit)
            assert expected == written(name, data, redactor, limit, heard.known)
            hits.append(heard.known is not None and heard.known.rest_of(data) is not None)

    run()
    assert sum(hits) >= 10


@pytest.mark.parametrize(
    "body",
    [
        b'\xef\xbb\xbf{"messages": [{"role": "user", "content": "hello"}]}',
        b'{"messages": [{"role": "user", "content": "\\ud800"}], "n": NaN}',
        b'{"messages": [{"role": "user", "content": "hi"}], "messages": [7, {"role": "x"}]}',
        b'{"messages": "hello"}',
        b'{"messages": [{"role": "user", "content": "hi"}]',
        b'{"messages": [{"role": "user", "content": "h\xff"}]}',
        b"[]",
    ],
)
def test_bodies_that_are_not_quite_json_are_read_as_before(body: bytes) -> None:
    """What the quick way does not read is read as a whole, or has no content at all."""
    assert as_a_whole("openai_chat", body, None) == written("openai_chat", body, None)


def messages(count: int, text: str = "word " * 20) -> bytes:
    said = [{"role": "user", "content": f"{at} {text}"} for at in range(count)]
    return json.dumps({"messages": said}).encode()


def test_an_entry_that_was_seen_is_not_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a conversation that has grown by one message, one is decoded."""
    read: list[bytes] = []
    usual = listing.msgspec.json.decode
    monkeypatch.setattr(
        listing.msgspec.json, "decode", lambda data: (read.append(data), usual(data))[1]
    )
    written("openai_chat", messages(40), None)
    assert 40 == len(read)
    assert as_a_whole("openai_chat", messages(41), None) == written(
        "openai_chat", messages(41), None
    )
    assert 41 == len(read)


def test_what_is_shortened_is_shortened_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A conversation that is longer than an attribute costs its new messages only, too."""
    body = messages(40, "word " * 300)
    expected = as_a_whole("openai_chat", body, None, 5000)
    assert expected == written("openai_chat", body, None, 5000)
    monkeypatch.setattr(listing, "shortened", lambda *_: pytest.fail("shortened again"))
    assert expected == written("openai_chat", body, None, 5000)


def test_levels_and_lengths_are_remembered_apart() -> None:
    """What was written in full is not written where secrets are masked."""
    body = messages(1, "sk-aaaaaaaaaaaaaaaaaaaaaa")
    assert "sk-" in written("openai_chat", body, None)[1]
    assert "sk-" not in written("openai_chat", body, Redactor())[1]
    assert "sk-" in written("openai_chat", body, None)[1]


def remembered() -> list[tuple[bytes, listing._Piece]]:
    halves = (listing._kept.young, listing._kept.old)
    return [item for half in halves for shelf in half.values() for item in shelf.items()]


def test_masked_entries_are_remembered_without_what_was_masked() -> None:
    """Neither the bytes that were sent nor their secrets stay in memory."""
    written("openai_chat", messages(3, "sk-aaaaaaaaaaaaaaaaaaaaaa"), Redactor())
    kept = remembered()
    assert 3 == len(kept)
    assert {16} == {len(key) for key, _ in kept}
    assert not any("sk-a" in text for _, piece in kept for text in piece.texts)


def test_what_is_remembered_is_bounded() -> None:
    """Many conversations leave 8 MiB at the most, counted as they are kept."""
    for at in range(600):
        written("openai_chat", messages(10, f"{at} " + "x y " * 500), None, 3000)
    total = sum(
        len(key) + sum(map(listing._bytes_of, (piece.texts, *piece.cut.values())))
        for key, piece in remembered()
    )
    assert listing._HALF < total <= 2 * listing._HALF
    assert listing.size() <= listing._HALF


def test_media_are_not_remembered() -> None:
    """Of a picture there is its digest; the key of a long entry is a hash."""
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "QUJD" * 9000}}
    body = json.dumps({"messages": [{"role": "user", "content": [image]}]}).encode()
    written("openai_chat", body, None)
    assert [16] == [len(key) for key, _ in remembered()]
    assert listing.size() < 1000


def test_a_detector_of_ones_own_is_asked_each_time() -> None:
    """It may have learnt something since."""
    names: set[str] = set()

    def known(text: str) -> str:
        for name in names:
            text = text.replace(name, "***")
        return text

    redaction.ask_also([known])
    try:
        assert "Smith" in written("openai_chat", messages(1, "Smith"), Redactor())[1]
        names.add("Smith")
        assert "Smith" not in written("openai_chat", messages(1, "Smith"), Redactor())[1]
        assert [] == remembered()
    finally:
        redaction.ask_also(())


def test_where_a_rule_fails_all_of_the_list_is_masked() -> None:
    """One entry that cannot be looked at takes the others with it, and nothing is remembered."""

    def failing(text: str) -> str:
        if "2 " in text:
            raise ValueError(text)
        return text

    found = written("openai_chat", messages(3), Redactor(extra=[failing]))
    assert json.dumps(FAILED) == found[1]
    assert [] == remembered()


def test_more_values_than_an_attribute_takes_are_cut_as_before() -> None:
    """The number of values is limited in all, not for each entry."""
    body = messages(6000, "")
    for redactor in (None, Redactor()):
        limit = 10_000_000
        expected = as_a_whole("openai_chat", body, redactor, limit)
        assert expected == written("openai_chat", body, redactor, limit)


def test_another_key_for_digests_is_remembered_apart() -> None:
    """Digests of media are made with the key of the day."""
    body = messages(1, "QUJD" * 400)
    first, second = (
        listing.written(
            content.listings_of("openai_chat", body).input_messages,  # type: ignore[arg-type]
            limit=9999,
            digest=lambda _, key=key: key,
            redactor=None,
            messages=True,
            key=key,
        )
        for key in ("key-one", "key-two")
    )
    assert ("key-one" in str(first), "key-two" in str(second)) == (True, True)


def test_the_end_of_clew_forgets_all() -> None:
    """After `shutdown` no content is left."""
    with captured(capture="full", content_to={"spans"}):
        written("openai_chat", messages(2), None)
        assert 2 == len(remembered())
        clew.shutdown()
        assert [] == remembered()


@given(
    st.text(max_size=12) | JSON.map(json.dumps) | st.sampled_from(["NaN", " [1]", "-", "\ufeff1"])
)
def test_texts_that_are_json_are_parsed_as_python_does(text: str) -> None:
    """And all others stay what they are."""
    try:
        expected = json.loads(text)
    except ValueError:
        expected = text
    assert repr(expected) == repr(shapes.parsed(text))
