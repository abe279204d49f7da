"""The file of tokens."""

# ruff: noqa: SIM300 - expected == actual, in this order
from __future__ import annotations

import json
import logging
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from starlette.datastructures import Headers

from clew.web.tokens import Entry, StaticTokens, TokensError, add, load, remove


def test_a_token_is_stored_as_its_digest(tmp_path: Path) -> None:
    """The file is for its owner alone and has no token in it; no text of ours shows one."""
    file = tmp_path / "sub" / "tokens.json"
    token = add(file, Entry(id="svc", scopes=("agent:read",)))
    assert 0o600 == stat.S_IMODE(file.stat().st_mode)
    assert token not in file.read_text()
    assert token.startswith("clew_")
    assert len(token) > 40
    known = StaticTokens(file)
    assert token not in repr(known) + repr(load(file)) + repr(known.of_token(token))
    found = known.of_headers(Headers({"authorization": f"bearer {token}"}))
    assert found is not None
    assert ("svc", frozenset({"agent:read"})) == (found.actor.id, found.actor.scopes)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o666, 0o620])
def test_a_file_that_others_can_use_is_refused(tmp_path: Path, mode: int) -> None:
    """Readable or writable by others: the message says how to mend it."""
    file = tmp_path / "tokens.json"
    add(file, Entry(id="svc"))
    file.chmod(mode)
    with pytest.raises(TokensError, match="can be read by others: chmod 600"):
        StaticTokens(file)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "it is no JSON"),
        ("[]", "Expected `object`"),
        ('{"tokens": [{"id": "a", "sha256": "12"}]}', "64 hexadecimal digits"),
        ('{"tokens": [{"id": "a", "token": "short-secret"}]}', "needs 32 to 1024 characters"),
        ('{"tokens": [{"id": "a"}]}', "one of both"),
        ('{"tokens": [{"id": "", "token": "%s"}]}' % ("s" * 40), "no usable id"),
        ('{"tokens": [{"id": "0", "token": "%s"}]}' % ("s" * 40), "no usable id"),
        ('{"tokens": [{"id": "a", "token": "%s", "scopes": ["root"]}]}' % ("s" * 40), "unknown"),
        ('{"tokens": [{"id": "a", "token": "%s", "tenant": ""}]}' % ("s" * 40), "is empty"),
        ('{"tokens": [{"id": "a", "token": "%s", "expires": "soon"}]}' % ("s" * 40), "no day"),
        ('{"tokens": [{"id": "a", "secret": "x"}]}', "unknown field"),
    ],
)
def test_a_wrong_file_is_told(tmp_path: Path, content: str, said: str) -> None:
    """What is wrong is said, and nothing of a token."""
    file = tmp_path / "tokens.json"
    file.write_text(content)
    file.chmod(0o600)
    with pytest.raises(TokensError, match=said) as error:
        StaticTokens(file)
    assert "short-secret" not in str(error.value)
    assert "ssss" not in str(error.value)


def test_a_file_that_is_missing_is_told(tmp_path: Path) -> None:
    """A server without its file does not start open."""
    with pytest.raises(TokensError, match="`clew token add` makes one"):
        StaticTokens(tmp_path / "tokens.json")


def test_plain_tokens_of_others_are_taken(tmp_path: Path) -> None:
    """A file that something else writes may have tokens themselves."""
    file = tmp_path / "tokens.json"
    file.write_text(json.dumps({"tokens": [{"id": "a", "token": "s" * 32}]}))
    file.chmod(0o600)
    found = StaticTokens(file).of_token("s" * 32)
    assert found is not None
    assert None is StaticTokens(file).of_token("s" * 31)


def test_a_change_is_noticed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Removing a token ends it at once; a file that is broken lets nobody in, until it is mended."""
    file = tmp_path / "tokens.json"
    one, two = (add(file, Entry(id=each)) for each in ("one", "two"))
    known = StaticTokens(file)
    remove(file, "one")
    assert None is known.of_token(one)
    assert known.of_token(two)
    file.chmod(0o644)
    with caplog.at_level(logging.ERROR, "clew.web"):
        assert None is known.of_token(two)
    assert "Nobody can sign in" in caplog.text
    assert two not in caplog.text
    file.chmod(0o600)
    assert known.of_token(two)
    file.unlink()
    assert None is known.of_token(two)


def test_an_id_is_there_once(tmp_path: Path) -> None:
    """Adding it twice, or removing what is not there, is an error."""
    file = tmp_path / "tokens.json"
    add(file, Entry(id="one"))
    with pytest.raises(TokensError, match="already"):
        add(file, Entry(id="one"))
    with pytest.raises(TokensError, match="there is no token 'two'"):
        remove(file, "two")


def test_every_token_is_compared_in_constant_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A match does not end the search: each known digest is compared, by `compare_digest` alone."""
    import hmac

    file = tmp_path / "tokens.json"
    first = add(file, Entry(id="one"))
    add(file, Entry(id="two"))
    seen: list[tuple[int, int]] = []
    real: Callable[[bytes, bytes], bool] = hmac.compare_digest

    def compare(one: bytes, other: bytes) -> bool:
        seen.append((len(one), len(other)))
        return real(one, other)

    known = StaticTokens(file)
    monkeypatch.setattr(hmac, "compare_digest", compare)
    found = known.of_token(first)
    assert found is not None
    assert "one" == found.actor.id
    assert None is known.of_token("x")
    assert [(32, 32)] * 4 == seen
