"""`clew token`, and who `clew serve` asks."""

# ruff: noqa: SIM300 - expected == actual, in this order
from __future__ import annotations

import json
import signal
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from commands import Clew


@pytest.fixture
def clew(clew: Clew) -> Iterator[Clew]:
    """The command line, which leaves this process its handlers of signals."""
    before = [(each, signal.getsignal(each)) for each in (signal.SIGINT, signal.SIGTERM)]
    yield clew
    for number, handler in before:
        signal.signal(number, handler)


def test_a_token_is_printed_once(clew: Clew, tmp_path: Path) -> None:
    """Data on stdout, talk on stderr; the list does not have it, nor does the file."""
    file = tmp_path / "tokens.json"
    given = ("--scope", "agent:read", "--scope", "capture:read", "--tenant", "acme")
    code, out, err = clew("token", "add", "grafana", *given, "--file", str(file))
    assert 0 == code
    token = out.strip()
    assert token.startswith("clew_")
    assert "it cannot be shown again" in err
    assert 0o600 == stat.S_IMODE(file.stat().st_mode)
    assert token not in file.read_text()
    code, out, _ = clew("token", "list", "--file", str(file))
    assert 0 == code
    assert ["grafana", "service", "agent:read", "capture:read", "acme"] == out.split()[6:11]
    assert token not in out
    listed = json.loads(clew("token", "list", "--file", str(file), "--json")[1])
    assert [("grafana", ["agent:read", "capture:read"], None)] == [
        (each["id"], each["scopes"], each["expires"]) for each in listed
    ]


def test_a_token_is_taken_away(clew: Clew, tmp_path: Path) -> None:
    """Once; then there is none."""
    file = ("--file", str(tmp_path / "tokens.json"))
    made = json.loads(clew("token", "add", "ann", "--person", "--json", *file)[1])
    assert ("ann", True) == (made["id"], made["token"].startswith("clew_"))
    assert 0 == clew("token", "remove", "ann", *file)[0]
    code, _, err = clew("token", "remove", "ann", *file)
    assert 1 == code
    assert "there is no token 'ann'" in err
    assert "there are no tokens" in clew("token", "list", *file)[2]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("--scope", "root"), "unknown scopes ['root']"),
        (("--expires", "soon"), "expires on no day"),
        (("--tenant", ""), "is empty"),
    ],
)
def test_what_makes_no_sense_is_refused(
    clew: Clew, tmp_path: Path, given: tuple[str, ...], said: str
) -> None:
    """Nothing is stored, and no token is printed."""
    file = tmp_path / "tokens.json"
    code, out, err = clew("token", "add", "x", *given, "--file", str(file))
    assert (1, "") == (code, out)
    assert said in err
    assert not file.exists()


def test_a_token_that_may_nothing_is_pointed_out(clew: Clew, tmp_path: Path) -> None:
    """It is made, with a word about it."""
    err = clew("token", "add", "x", "--file", str(tmp_path / "tokens.json"))[2]
    assert "it has no scope and may do nothing" in err


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("--host", "0.0.0.0"), "nobody would ask who they are"),  # noqa: S104
        (("--tokens", "{}/none.json"), "there is no file of tokens"),
        (("--oidc", "{}/none.json"), "cannot be read"),
        (("--tokens", "{}/a", "--oidc", "{}/b"), "not both"),
    ],
)
def test_serve_does_not_start_open(
    clew: Clew, tmp_path: Path, given: tuple[str, ...], said: str
) -> None:
    """Where it could not ask who is there it ends at once, with the reason."""
    asked = [each.format(tmp_path) for each in given]
    code, _, err = clew("serve", "--port", "0", "--data-dir", str(tmp_path / "d"), *asked)
    assert 1 == code
    assert said in err
