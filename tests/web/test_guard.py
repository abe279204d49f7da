"""Which Host names are answered."""

# ruff: noqa: SIM300 - expected == actual, in this order
from __future__ import annotations

from typing import Any

import pytest

from clew.web.guard import Guard, host_name


@pytest.mark.parametrize(
    ("host", "allowed"),
    [
        ("localhost", True),
        ("localhost:4318", True),
        ("LOCALHOST.", True),
        ("127.0.0.1:1", True),
        ("[::1]:4318", True),
        ("clew.internal:4318", True),
        ("evil.example", False),
        ("localhost.evil.example", False),
        ("evil.example:4318", False),
        ("127.0.0.1.evil.example", False),
        ("192.0.2.7", False),
        ("localhost:4318@evil.example", False),
        ("[::1].evil.example", False),
        ("", False),
    ],
)
def test_unknown_host_names_are_refused(host: str, allowed: bool) -> None:
    """Only loopback names, the bound host and names given on purpose are answered."""

    async def app(*_: Any) -> None: ...

    guard = Guard(app, host="127.0.0.1", names=["Clew.Internal"])
    assert allowed == guard.allows(host)


@pytest.mark.parametrize(
    ("host", "name"),
    [("192.0.2.7:80", True), ("[2001:db8::1]", True), ("evil.example", False)],
)
def test_bound_to_every_address_only_addresses_are_added(host: str, name: bool) -> None:
    """No name can be rebound to an address that is written as digits; names stay refused."""

    async def app(*_: Any) -> None: ...

    assert name == Guard(app, host="0.0.0.0").allows(host)  # noqa: S104 - not bound here


def test_a_host_header_is_read_strictly() -> None:
    """Port, brackets and the last dot are not part of the name; anything else gives none."""
    assert ["a", "a", "::1", "", "", ""] == [
        host_name(each) for each in ("A:1", "a.", "[::1]:2", "[::1", "[::1]x", "a:b")
    ]
