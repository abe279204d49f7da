"""Redaction: what is masked, what is left alone, and that it never lets through by failing."""

# ruff: noqa: SIM300 - expected == actual, in this order
from __future__ import annotations

import json
import re
import string
import sys
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clew import redaction
from clew.redaction import DETECTORS, FAILED, MASK, TEXT_LIMIT, Redactor, names_a_secret

REDACTOR = Redactor()
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.text(st.characters(), max_size=30),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=20,
)
PEM = "-----BEGIN RSA PRIVATE KEY-----\nMIIEpAIBAAKCAQEA7\nzqsecret\n-----END RSA PRIVATE KEY-----"
SECRETS = {
    "url credentials": ("postgres://app:zqsecret@db:5432/x", "postgres://***@db:5432/x"),
    "url password with @": ("https://u:zq@secret@h/p", "https://***@h/p"),
    "url query": (
        "https://h/p?a=1&X-Amz-Signature=zqsecret&b=2",
        "https://h/p?a=1&X-Amz-Signature=***&b=2",
    ),
    "bearer": ("Authorization: Bearer zqsecret.abc", "Authorization: Bearer ***"),
    "openai": ("key sk-proj-zqsecretzqsecret1234 end", "key *** end"),
    "anthropic": ("sk-ant-api03-zqsecretzqsecret", "***"),
    "aws": ("AKIAIOSFODNN7EXAMPLE", "***"),
    "github": ("ghp_zqsecretzqsecret1234", "***"),
    "slack": ("xoxb-12345-zqsecret", "***"),
    "google": ("AIzaSyzqsecretzqsecretzqsecretzqsecret", "***"),
    "pem": (f"before {PEM} after", "before *** after"),
    "pem without an end": ("x -----BEGIN PRIVATE KEY-----\nzqsecret", "x ***"),
    "jwt": ("t=eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.zqsecret_sig", "t=***"),
    "e-mail": ("mail zq.secret+x@mail.example.com now", "mail *** now"),
    "card": ("pay 4111 1111 1111 1111 now", "pay *** now"),
    "card in one": ("5500-0055-5555-5559", "***"),
    "iban": ("to DE89 3704 0044 0532 0130 00 please", "to *** please"),
    "iban before capitals": ("GB82WEST12345698765432 AND THEN", "*** AND THEN"),
    "named": ('{"password": "zqsecret"}', '{"password": ***}'),
    "assigned": ("API_KEY=zqsecret", "API_KEY=***"),
}


@pytest.mark.parametrize(("text", "expected"), SECRETS.values(), ids=SECRETS.keys())
def test_a_secret_is_masked_and_what_is_around_it_stays(text: str, expected: str) -> None:
    """Each shape of secret, alone and in a sentence."""
    assert expected == REDACTOR.text(text)


@pytest.mark.parametrize(
    "text",
    [
        "4111 1111 1111 1112 fails the check",
        "DE89 3704 0044 0532 0130 03 fails the check",
        "order 1234567890123",
        "0000000000000000",
        "max_tokens=100 author: Ada, session.id = 7",
        "the key to success is a task-based approach",
        "https://example.com/a?page=2#part",
        "a@b and x @ y",
        "2026-11-30T07:53:00.000Z 192.168.0.1",
    ],
)
def test_ordinary_text_is_left_alone(text: str) -> None:
    """Numbers that fail their check, and words that only look alike."""
    assert text == REDACTOR.text(text)


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        *(
            (key, True)
            for key in ("password", "session_token", "apiKey", "X-API-Key", "DB_PASSWORD")
        ),
        *((key, False) for key in ("max_tokens", "author", "session.id", "token_type", "keyword")),
        *((key, False) for key in ("input_tokens", "", "1234", "primary_key", "passenger")),
    ],
)
def test_a_key_names_a_secret_by_its_last_word(key: str, expected: bool) -> None:
    """Useful keys survive: the rule looks at words, not at parts of words."""
    assert expected == names_a_secret(key)


def test_values_and_keys_are_walked() -> None:
    """Nested values, keys that hold a secret, numbers that are one; two masked keys stay two."""
    found = REDACTOR.redact(
        {
            "a": [{"deep": ("x ghp_zqsecretzqsecret1234", 4111111111111111, 42, None, True)}],
            "ada@mail.example.com": 1,
            "bob@mail.example.com": 2,
            "password": "short",
            "max_tokens": 100,
        }
    )
    expected = {
        "a": [{"deep": [f"x {MASK}", MASK, 42, None, True]}],
        MASK: 1,
        f"{MASK}+": 2,
        "password": MASK,
        "max_tokens": 100,
    }
    assert expected == found


@given(JSON)
def test_any_value_gives_valid_json_of_bounded_texts(value: Any) -> None:
    """Whatever the content is, the result can be written as JSON and no text is above the cap."""

    def longest(found: Any) -> int:
        if isinstance(found, str):
            return len(found)
        if isinstance(found, dict):
            return max((longest(item) for item in found.values()), default=0)
        return max(map(longest, found), default=0) if isinstance(found, list) else 0

    found = REDACTOR.redact(value)
    json.loads(json.dumps(found, allow_nan=False))
    assert longest(found) <= TEXT_LIMIT + 40


@given(
    st.sampled_from(sorted(SECRETS)),
    st.text(st.sampled_from("ab ,.\n\"'{}()"), max_size=40),
    st.integers(0, 3),
)
def test_a_secret_is_found_wherever_it_stands(name: str, around: str, depth: int) -> None:
    """In any text, and at any depth."""
    value: Any = f"{around} {SECRETS[name][0]} {around}"
    for _ in range(depth):
        value = {"k": [value]}
    dumped = json.dumps(REDACTOR.redact(value))
    for word in ("zqsecret", "zq.secret", "4111 1111", "3704 0044", "WEST1234", "AKIAIO", "5500-0"):
        assert word not in dumped


@given(st.text(max_size=300))
def test_masking_twice_changes_nothing_more(text: str) -> None:
    """What was masked is no secret."""
    once = REDACTOR.text(text)
    assert once == REDACTOR.text(once)


@pytest.mark.parametrize("length", [TEXT_LIMIT - 1, TEXT_LIMIT, TEXT_LIMIT + 1, 100_000])
def test_a_long_text_is_capped_with_a_mark(length: int) -> None:
    """The mark tells the original length; a secret at the cut is never cut in half."""
    text = "word " * (length // 5) + "x" * (length % 5)
    found = REDACTOR.text(text)
    if length <= TEXT_LIMIT:
        assert text == found
    else:
        assert found == f"{text[:TEXT_LIMIT]}…[cut: {length} characters]"
    hidden = "a " * 990 + "sk-proj-" + "zqsecret" * 20
    assert "zqsecret" not in REDACTOR.text(hidden)
    assert "zqsecret" not in REDACTOR.text("sk-proj-" + "zqsecret" * 10_000)


def failing(_: str) -> str:
    raise ValueError("a rule that fails")


def not_text(_: str) -> str:
    return None  # type: ignore[return-value]


class Hostile:
    """A value that JSON does not have."""

    def __str__(self) -> str:
        raise ValueError("zqsecret")


@pytest.mark.parametrize("extra", [failing, not_text])
def test_a_rule_that_fails_lets_nothing_through(extra: Any) -> None:
    """Fail closed: the whole content is masked, not passed."""
    redactor = Redactor([extra])
    assert FAILED == redactor.text("zqsecret")
    assert "zqsecret" not in json.dumps(redactor.redact({"a": ["zqsecret"], "b": 1}))
    assert FAILED == REDACTOR.redact({Hostile(): 1})
    assert FAILED == REDACTOR.redact(Hostile())


def test_a_further_detector_is_asked_too() -> None:
    """A maintained library's detector comes on top of ours."""
    assert "*** and ###" == Redactor([lambda text: text.replace("Ada", "###")]).text(
        "ada@mail.example.com and Ada"
    )


def test_depth_and_number_of_values_are_bounded() -> None:
    """A value nested without end, and one with very many parts, cost little."""
    deep: Any = "zqsecret-leaf"
    for _ in range(5000):
        deep = [deep]
    assert "zqsecret" not in json.dumps(REDACTOR.redact(deep))
    wide = REDACTOR.redact([["x"] * 1000] * 1000)
    assert sum(len(row) for row in wide if isinstance(row, list)) <= 20_001


@pytest.mark.parametrize(
    "text",
    ["a" * 40_000, "a@" * 20_000, "1 " * 20_000, "DE89 " * 8000, "://" * 13_000, "key=" * 9000],
)
def test_no_text_makes_a_pattern_slow(text: str) -> None:
    """Every rule takes time that grows with the length, not with its square."""
    started = time.process_time()
    REDACTOR.text(text)
    assert time.process_time() - started < 2.0
    assert len({name for name, _ in DETECTORS}) == len(DETECTORS)


LIKELY = st.sampled_from(
    [
        *(
            "sk-",
            "sk_live_",
            "gsk_",
            "AIza",
            "ghp_",
            "npm_",
            "SG.",
            "eyJ",
            "ya29.",
            "xoxb-",
            "AKIA",
        ),
        *(
            "PRIVATE KEY",
            "-----BEGIN ",
            "-----",
            "https://",
            "@",
            "?",
            "&",
            "=",
            ": ",
            "key",
            "api_",
        ),
        *("bearer ", "BAS\u0130C ", "pa\u017f\u017fword", "\u212aey", "token", "basic ", "a" * 17),
        *(
            "GB82",
            "WEST",
            "1234",
            "4111 1111 1111 1111",
            "5698 7654 32",
            ".",
            "-",
            "_",
            "A" * 16,
            "\n",
        ),
    ]
)


@given(st.lists(LIKELY | st.text(max_size=5), max_size=8).map("".join))
def test_what_is_searched_first_is_in_whatever_a_pattern_fits(text: str) -> None:
    """A text that a pattern is not tried on is one that it does not fit."""
    for name, detector in DETECTORS:
        if isinstance(detector, redaction._Pattern) and detector.pattern.search(text):
            assert detector.may_be(text), name
    if redaction._IBAN.search(text):
        assert redaction._TWO_DIGITS(text)
    if redaction._CARD.search(text):
        assert redaction._TWELVE_DIGITS(text)


def test_letters_are_alike_where_the_case_does_not_matter() -> None:
    """Every character that a pattern takes for a letter is taken for it by the quick search."""
    alike = re.compile("[a-z]", re.IGNORECASE)
    found = [chr(code) for code in range(sys.maxunicode + 1) if alike.match(chr(code))]
    assert {"\u0130", "\u0131", "\u017f", "\u212a"} < set(found)
    for one in found:
        letters = [each for each in string.ascii_lowercase if re.match(each, one, re.IGNORECASE)]
        assert letters == [redaction._folded(one)]


@given(st.text("_abcdefKSkls\u00e9", max_size=15) | st.text(max_size=15))
def test_a_short_word_is_no_secret(word: str) -> None:
    """What is passed over for being short and of letters is nothing that any rule looks for."""
    expected = word
    for _, detect in DETECTORS:
        expected = detect(expected)
    assert expected == redaction._own(word)


def test_keys_of_messages_name_no_secret() -> None:
    """Keys that are not looked at are none that would be found."""
    for key in redaction._NO_SECRETS:
        assert not names_a_secret(key + " ")
        assert key == REDACTOR.text(key)
