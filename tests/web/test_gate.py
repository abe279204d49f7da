"""The gate: where signing in leads, how long it lasts, where it is needed, and what scopes mean."""

# ruff: noqa: SIM300 - expected == actual, in this order
from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from clew.errors import ClewError
from clew.store.scopes import EVERYTHING, NOTHING, Scope
from clew.web import access
from clew.web.access import Visit, principal
from clew.web.gate import Sessions, is_loopback, own_path
from clew.web.server import Running, start


@pytest.mark.parametrize(
    ("given", "path"),
    [
        ("/runs/x?span=1", "/runs/x?span=1"),
        ("", "/"),
        ("//evil.example", "/"),
        ("https://evil.example/", "/"),
        ("/\\evil.example", "/"),
        ("\\\\evil.example", "/"),
        ("/\t/evil.example", "/"),
        ("/\n/evil.example", "/"),
        ("javascript:alert(1)", "/"),
        ("/login?next=/login", "/"),
        ("/é", "/"),
        ("runs", "/"),
    ],
)
def test_signing_in_leads_nowhere_else(given: str, path: str) -> None:
    """Only a path on this server is gone on to."""
    assert path == own_path(given)


def test_sessions_end() -> None:
    """After 12 hours, when signed out, and the oldest where there are too many."""
    now = [0.0]
    sessions = Sessions(clock=lambda: now[0])
    first = sessions.begin("t1")
    assert "t1" == sessions.token(first)
    now[0] = 12 * 3600 + 1
    assert None is sessions.token(first)
    second = sessions.begin("t2")
    for _ in range(1000):
        sessions.begin("t")
    assert None is sessions.token(second)
    assert None is sessions.token("")


# --- where it listens -------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.com", ""])  # noqa: S104
def test_beyond_this_machine_it_needs_an_authenticator(host: str, tmp_path: Path) -> None:
    """Nothing is bound and no store is made where others could read without being asked."""
    path = tmp_path / "data" / "clew.db"
    with pytest.raises(ClewError, match="nobody would ask who they are"):
        start(host, 0, path)
    assert not path.parent.exists()


@pytest.mark.parametrize(
    ("host", "here"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("localhost", True),
        ("LOCALHOST", True),
        ("localhost.evil.example", False),
        ("0.0.0.0", False),  # noqa: S104
        ("10.0.0.1", False),
    ],
)
def test_what_loopback_is(host: str, here: bool) -> None:
    """Addresses of this machine alone, and its one name."""
    assert here is is_loopback(host)


def test_on_loopback_nobody_is_asked(server: Running, http: httpx.Client) -> None:
    """Without an authenticator whoever is on this machine reads everything, and can send."""
    assert 200 == http.get("/api/runs").status_code
    assert 404 == http.get("/login").status_code
    sent = http.post(
        "/v1/traces", content=b'{"resourceSpans": []}', headers={"content-type": "application/json"}
    )
    assert 200 == sent.status_code
    assert "Sign out" not in http.get("/").text


# --- the pieces -------------------------------------------------------------------------------


def visit(**given: Any) -> Visit:
    return Visit(principal=principal("svc", **given), digest_of=str.upper, log=None)


@pytest.mark.parametrize(
    ("given", "right", "scope"),
    [
        ({"kind": "service", "rights": {"agent:read"}, "tenant": "a"}, "agent:read",
         Scope(tenant="a")),
        ({"kind": "service", "rights": {"agent:read"}}, "agent:read", Scope(no_tenant=True)),
        ({"kind": "service", "rights": {"agent:read"}, "tenant": "*"}, "agent:read", EVERYTHING),
        ({"kind": "service", "rights": {"agent:read"}, "tenant": "*"}, "capture:read", NOTHING),
        ({"kind": "service", "rights": {"agent:reads"}, "tenant": "*"}, "agent:read", NOTHING),
        ({"tenant": "a"}, "agent:read", Scope(tenant="a", actor="SVC")),
        ({}, "capture:read", Scope(no_tenant=True, actor="SVC")),
        ({"tenant": "*"}, "agent:read", Scope(actor="SVC")),
        ({"rights": {"capture:read"}, "tenant": "a"}, "capture:read", Scope(tenant="a")),
        ({"rights": {"agent:approve"}, "tenant": "a"}, "agent:read",
         Scope(tenant="a", actor="SVC")),
        ({"admin": True}, "anything", EVERYTHING),
        ({"admin": True, "tenant": "a"}, "agent:read", Scope(tenant="a")),
    ],
)  # fmt: skip
def test_what_a_reader_has_a_right_to(given: dict[str, Any], right: str, scope: Scope) -> None:
    """Scope, grant or administrator: all of the tenant; a person: their own; else nothing."""
    given["rights"] = frozenset(given.get("rights", ()))
    assert scope == visit(**given).scope(right)


def test_scopes_in_memory_and_in_sql_agree() -> None:
    """What `covers` says is what the conditions say, for every combination."""
    import sqlite3

    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE TABLE runs (tenant TEXT, agent TEXT, actor TEXT)")
    some = (None, "a", "b")
    rows = [(t, g, c) for t in some for g in some for c in some]
    connection.executemany("INSERT INTO runs VALUES (?, ?, ?)", rows)
    scopes = [
        Scope(tenant=t, agent=g, actor=c, no_tenant=n, everything=e)
        for t in (None, "a")
        for g in (None, "a")
        for c in (None, "a")
        for n in (False, True)
        for e in (False, True)
    ]
    for scope in scopes:
        where, values = scope.conditions()
        found = connection.execute(
            f"SELECT tenant, agent, actor FROM runs WHERE {' AND '.join(where)}",  # noqa: S608
            values,
        ).fetchall()
        assert found == [
            each for each in rows if scope.covers(tenant=each[0], agent=each[1], actor=each[2])
        ]
    connection.close()


def test_nobody_asked_is_nobody() -> None:
    """A request that passed no gate reads nothing."""
    from starlette.requests import Request

    request = Request({"type": "http", "method": "GET", "path": "/", "headers": []})
    with pytest.raises(access.UnreadableError):
        access.scope_of(request)
