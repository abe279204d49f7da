"""The receiver and the viewer as somebody sees them who means no good."""

# ruff: noqa: SIM300 - expected == actual, in this order
from __future__ import annotations

import contextlib
import gzip
import json
import logging
import re
import socket
import stat
import time
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import httpx
import pytest
import sample_calls
import sample_runs
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sample_messages import send

from clew import semconv
from clew.store.prompt_index import RecordStore
from clew.web.bodies import Limits
from clew.web.server import Running, start
from clew.web.tokens import Entry, StaticTokens, add

HOSTILE = '<img src=x onerror="alert(1)">\'"&{{1234*4321}}</script></title></textarea>\u202e\x00'
RUN = sample_runs.triage("11111111-0000-4000-8000-000000000001")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("attacked")


@pytest.fixture(scope="module")
def served(folder: Path) -> Iterator[Running]:
    store = RecordStore(folder)
    store.save([sample_calls.call(run_id=RUN.run_id, tenant=HOSTILE, agent=HOSTILE)])
    store.close()
    with start(port=0, store_path=folder / "clew.db", limits=Limits(seconds=1.0)) as running:
        send(running.address, RUN, hostile())
        yield running


@pytest.fixture
def http(served: Running) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=served.address, timeout=20, trust_env=False) as client:
        yield client


def hostile() -> sample_runs.Sample:
    run = sample_runs.Sample(service=HOSTILE)
    root = run.root(HOSTILE, 0, 100, **{
        semconv.TENANT: HOSTILE, semconv.ACTOR: HOSTILE, semconv.RUN_STATUS: "failed",
        semconv.ERROR_TYPE: HOSTILE, semconv.CONVERSATION_ID: HOSTILE,
        semconv.CONFIGURATION: HOSTILE,
    })  # fmt: skip
    run.model(1, 1, 50, root, model=HOSTILE, provider=HOSTILE,
              **{semconv.COST_STATUS: HOSTILE})  # fmt: skip
    run.tool(HOSTILE, 51, 60, root, HOSTILE)
    run.decide(HOSTILE, HOSTILE, 61, root, HOSTILE, HOSTILE)
    return run


# --- what is shown ----------------------------------------------------------------------------


def markup(page: str) -> tuple[set[str], list[str]]:
    """The elements of a page, and what in it could run."""
    tags: set[str] = set()
    running: list[str] = []

    class Reader(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            tags.add(tag)
            for name, value in attrs:
                if name.startswith("on") or name in {"style", "srcdoc"}:
                    running.append(f"{tag} {name}")
                if name in {"href", "src", "action", "formaction"} and not re.match(
                    r"[/#?]", value or "#"
                ):
                    running.append(f"{tag} {name}={value}")
            if tag == "script" and not dict(attrs).get("src"):
                running.append("inline script")

    Reader().feed(page)
    return tags, running


FIELDS = ("agent", "model", "tool", "gate", "since", "until", "cost_from", "cost_to", "status",
          "outcome", "after", "limit", "denied", "first", "last", "tag", "run", "conversation",
          "message", "q", "kind", "span", "next", "request", "configuration")  # fmt: skip
PAGES = ("/", "/costs", "/prompts", "/snippets", "/settings", f"/runs/{RUN.run_id}",
         f"/runs/{RUN.run_id}/prompts", "/nothing", "/runs/x")  # fmt: skip


@pytest.mark.parametrize("path", PAGES)
def test_markup_in_an_address_stays_text(http: httpx.Client, path: str) -> None:
    """Whatever is asked for, in any parameter, no page has an element or a handler from it."""
    for name in FIELDS:
        page = http.get(path, params={name: HOSTILE}, headers={"accept": "text/html"})
        tags, running = markup(page.text)
        assert "img" not in tags
        assert [] == running
        assert "5332114" not in page.text


def test_markup_that_was_sent_stays_text(http: httpx.Client) -> None:
    """Names of agents, models, tools, gates and tenants are text in lists, forms and costs."""
    day = {"first": "2026-12-01", "last": "2026-12-01"}
    for path, asked in (("/", {"model": HOSTILE}), ("/", {}), ("/costs", day),
                        ("/costs", {**day, "agent": HOSTILE.replace("\x00", "")})):  # fmt: skip
        page = http.get(path, params=asked)
        assert 200 == page.status_code
        tags, running = markup(page.text)
        assert "img" not in tags
        assert [] == running
        assert "onerror" in page.text
    twin = http.get("/api/runs", params={"model": HOSTILE.replace("\x00", "")})
    assert "application/json" == twin.headers["content-type"]
    assert "nosniff" == twin.headers["x-content-type-options"]


# --- ids --------------------------------------------------------------------------------------

ODD_IDS = (
    "../../../../etc/passwd",
    "..%2f..%2f..%2fetc%2fpasswd",
    "%2e%2e/%2e%2e/clew.db",
    "....//....//clew.db",
    "/etc/passwd",
    "%00",
    "x%00.json",
    "' OR '1'='1",
    "'; DROP TABLE runs; --",
    "1 UNION SELECT * FROM runs",
    "%25",
    "_" * 32,
    "*",
    "a" * 5000,
    "\u202e",
    "%ff%fe",
    "-1",
    "0x10",
)


@pytest.mark.parametrize("odd", ODD_IDS)
def test_an_id_is_neither_a_path_nor_a_question(http: httpx.Client, odd: str) -> None:
    """No id reaches a file or becomes SQL: it is not there, and everything else still is."""
    for path in ("/runs/{}", "/api/runs/{}", "/api/runs/{}/timeline", "/prompts/{}",
                 "/api/prompts/{}", f"/api/runs/{RUN.run_id}/spans/{{}}", "/api/snippets/{}",
                 "/api/skills/{}", "/static/{}"):  # fmt: skip
        answer = http.get(path.format(odd))
        assert answer.status_code in {400, 404, 307}, path
        assert "root:" not in answer.text
        assert b"SQLite" not in answer.content
    assert 1 <= len(http.get("/api/runs").json()["runs"])


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(text=st.text(max_size=80), name=st.sampled_from(FIELDS))
def test_no_question_is_a_fault(http: httpx.Client, text: str, name: str) -> None:
    """Any text in any parameter is answered or refused; it never breaks a page."""
    for path in ("/api/runs", "/api/costs", "/api/prompts", f"/api/runs/{RUN.run_id}/timeline"):
        assert http.get(path, params={name: text}).status_code in {200, 400}


# --- bodies and connections -------------------------------------------------------------------


@pytest.mark.parametrize("depth", [200, 5_000, 500_000])
def test_json_that_is_deep_is_refused(http: httpx.Client, depth: int) -> None:
    """Nesting beyond the bound is a bad message, however deep it goes; the server goes on."""
    deep = b'{"resourceSpans": ' + b"[" * depth + b"]" * depth + b"}"
    value = b'{"arrayValue": {"values": [' * depth + b"{}" + b"]}}" * depth
    span = (
        b'{"resourceSpans": [{"scopeSpans": [{"spans": [{"traceId": "' + b"ab" * 16 + b'", "spanId'
        b'": "' + b"cd" * 8 + b'", "attributes": [{"key": "x", "value": ' + value + b"}]}]}]}]}"
    )
    for body in (deep, span):
        answer = http.post("/v1/traces", content=body, headers={"content-type": "application/json"})
        assert answer.status_code in {400, 413}
    packed = http.post(
        "/v1/traces",
        content=gzip.compress(deep),
        headers={"content-type": "application/json", "content-encoding": "gzip"},
    )
    assert 400 == packed.status_code
    assert 200 == http.get("/api/runs").status_code


FORM = b"content-length: 100\r\ncontent-type: application/x-www-form-urlencoded\r\n\r\nenabled="
MESSAGE = b"content-length: 100\r\ncontent-type: application/x-protobuf\r\n\r\n\x0a"


@pytest.mark.parametrize(
    "begun",
    [
        b"",
        b"GET / HTTP/1.1\r\nHost: localhost\r\n",
        b"POST /settings HTTP/1.1\r\nHost: localhost\r\n%s" % FORM,
        b"POST /v1/traces HTTP/1.1\r\nHost: localhost\r\n%s" % MESSAGE,
    ],
    ids=["nothing", "head", "form", "message"],
)
def test_a_request_that_does_not_come_is_not_waited_for(served: Running, begun: bytes) -> None:
    """Nothing, half a head, half a form, half a message: the connection ends at its deadline."""
    port = int(served.address.rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port), timeout=15) as sock:
        sock.sendall(begun)
        started = time.monotonic()
        while sock.recv(4096):
            pass
    assert 0.5 < time.monotonic() - started < 14


def test_heads_that_trickle_are_cut_off(served: Running) -> None:
    """Sending a little now and then does not buy more time."""
    port = int(served.address.rpartition(":")[2])
    started = time.monotonic()
    with socket.create_connection(("127.0.0.1", port), timeout=15) as sock:
        sock.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n")
        sock.settimeout(0.1)
        while time.monotonic() - started < 10:
            try:
                sock.sendall(b"x: y\r\n")
                if not sock.recv(4096):
                    break
            except TimeoutError:
                continue
            except OSError:
                break
    assert time.monotonic() - started < 8


def test_a_head_is_bounded(served: Running) -> None:
    """Headers beyond the bound of the protocol are refused."""
    with httpx.Client(base_url=served.address, trust_env=False) as client:
        with contextlib.suppress(httpx.TransportError):  # it may be closed in its face
            assert client.get("/", headers={"x": "y" * 200_000}).status_code in {400, 431}
        assert 200 == client.get("/").status_code


def test_silent_connections_do_not_keep_others_out(served: Running) -> None:
    """As many connections as there may be, saying nothing: after their time others are served."""
    port = int(served.address.rpartition(":")[2])
    idle = [socket.create_connection(("127.0.0.1", port), timeout=15) for _ in range(300)]
    try:
        deadline = time.monotonic() + 10
        status = 0
        while status != 200 and time.monotonic() < deadline:
            try:
                status = httpx.get(f"{served.address}/api/runs", trust_env=False).status_code
            except httpx.TransportError:
                continue
        assert 200 == status
    finally:
        for each in idle:
            each.close()


# --- other sites ------------------------------------------------------------------------------

ELSEWHERE = (
    {"origin": "https://evil.example"},
    {"origin": "null"},
    {"origin": "http://localhost:1"},
    {"origin": "garbage"},
    {"origin": "http://["},
    {"sec-fetch-site": "cross-site"},
    {"sec-fetch-site": "same-site"},
    {"sec-fetch-site": "cross-site", "origin": "null"},
)


@pytest.mark.parametrize("headers", ELSEWHERE, ids=str)
@pytest.mark.parametrize("path", ["/settings", "/v1/traces", "/login", "/logout", "/play"])
def test_what_another_site_sends_is_refused(
    http: httpx.Client, path: str, headers: dict[str, str]
) -> None:
    """A form or a script of another origin changes nothing, with or without our headers."""
    answer = http.post(path, content=b"enabled=on", headers={
        "content-type": "application/x-www-form-urlencoded", **headers})  # fmt: skip
    assert 403 == answer.status_code
    assert False is http.get("/api/settings").json()["capture_enabled"]


def test_our_own_pages_may_send(http: httpx.Client, served: Running) -> None:
    """The same request from a page of ours passes, told by either header."""
    for headers in ({"origin": served.address}, {"sec-fetch-site": "same-origin"}, {}):
        answer = http.post(
            "/v1/traces",
            content=b'{"resourceSpans": []}',
            headers={"content-type": "application/json", **headers},
        )
        assert 200 == answer.status_code


@pytest.mark.parametrize(
    "path", ["/", "/api/runs", "/v1/traces", "/openapi.json", "/static/clew.css"]
)
def test_no_other_origin_may_read(http: httpx.Client, path: str) -> None:
    """There is no CORS: no answer allows an origin, and a preflight gets nothing."""
    for method in ("GET", "OPTIONS"):
        answer = http.request(
            method,
            path,
            headers={
                "origin": "https://evil.example",
                "access-control-request-method": "POST",
                "access-control-request-headers": "content-type, authorization",
            },
        )
        assert [] == [name for name in answer.headers if name.startswith("access-control-")]
        assert "same-origin" == answer.headers["cross-origin-resource-policy"]
        if method == "OPTIONS":
            assert answer.status_code in {404, 405}


@pytest.mark.parametrize(
    "host",
    ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example", "evil.example:4318",
     "127.0.0.1@evil.example", "0x7f000001", "2130706433", "[::ffff:127.0.0.1]", "localhost,evil"],
)  # fmt: skip
def test_a_rebound_name_gets_nothing(http: httpx.Client, host: str) -> None:
    """A name that somebody made resolve to this machine is not answered, on any path."""
    for method, path in (("GET", "/"), ("GET", "/api/runs"), ("GET", "/openapi.json"),
                         ("POST", "/settings"), ("POST", "/v1/traces"),
                         ("GET", "/static/clew.css")):  # fmt: skip
        answer = http.request(method, path, headers={"host": host})
        assert 400 == answer.status_code
        assert "triage" not in answer.text


def test_other_headers_do_not_stand_for_the_host(http: httpx.Client) -> None:
    """Only `Host` counts; a forwarded one neither opens nor changes anything."""
    answer = http.get("/", headers={"x-forwarded-host": "evil.example", "forwarded": "host=evil"})
    assert 200 == answer.status_code
    assert "evil" not in answer.text


def test_without_a_host_there_is_no_answer(served: Running) -> None:
    """HTTP/1.0 without a Host header is refused."""
    port = int(served.address.rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port), timeout=10) as sock:
        sock.sendall(b"GET /api/runs HTTP/1.0\r\n\r\n")
        assert b"400 Bad Request" in sock.recv(4096)


# --- secrets ----------------------------------------------------------------------------------


def test_files_are_closed_to_others(folder: Path, served: Running) -> None:
    """Whatever this made in its folder is for its owner alone."""
    httpx.get(f"{served.address}/prompts", trust_env=False).raise_for_status()
    found = list(folder.rglob("*"))
    assert {"access", "clew.db"} < {each.name for each in found}
    for each in found:
        if each.is_file():
            assert 0o600 == stat.S_IMODE(each.stat().st_mode), each
        else:
            assert 0o700 == stat.S_IMODE(each.stat().st_mode), each


def test_a_token_is_in_no_log_and_no_answer(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not when it is taken, not when it is refused, not when a page breaks while it is used."""
    from clew.store.reader import Reader

    file = tmp_path / "tokens.json"
    token = add(file, Entry(id="root", admin=True))
    wrong = f"{token[:-4]}AAAA"
    answers: list[str] = []
    with (
        caplog.at_level(logging.DEBUG),
        start(port=0, store_path=tmp_path / "clew.db", authenticator=StaticTokens(file)) as up,
        httpx.Client(base_url=up.address, trust_env=False) as client,
    ):
        for given in (token, wrong):
            headers = {"authorization": f"Bearer {given}"}
            answers += [client.get(each, headers=headers).text for each in ("/", "/api/runs")]
            answers.append(client.post("/login", data={"token": given}).text)
            answers.append(client.post("/v1/traces", content=b"x", headers=headers).text)

        def broken(*_: Any) -> None:
            raise ZeroDivisionError(token)

        monkeypatch.setattr(Reader, "runs", broken)
        failed = client.get("/api/runs", headers={"authorization": f"Bearer {token}"})
        assert 500 == failed.status_code
        answers.append(failed.text)
    ours = [
        each.getMessage() for each in caplog.records if each.name.startswith(("clew", "uvicorn"))
    ]
    assert not [each for each in [*answers, *ours] if token in each or wrong in each]


def test_a_session_s_name_is_no_token(tmp_path: Path) -> None:
    """The cookie opens pages while it lasts, and is nothing to the header."""
    file = tmp_path / "tokens.json"
    token = add(file, Entry(id="root", admin=True))
    with (
        start(port=0, store_path=tmp_path / "clew.db", authenticator=StaticTokens(file)) as up,
        httpx.Client(base_url=up.address, trust_env=False) as client,
    ):
        client.post("/login", data={"token": token})
        name = client.cookies["clew_session"]
        assert token != name
        client.cookies.clear()
        answer = client.get("/api/runs", headers={"authorization": f"Bearer {name}"})
        assert 401 == answer.status_code


def test_errors_tell_nothing_of_the_machine(http: httpx.Client, folder: Path) -> None:
    """No path, no version of a library and no trace of a program in what a stranger is answered."""
    for path in ("/api/runs/x", "/nothing", "/api/runs?limit=x", "/static/x", "/api/prompts/x"):
        answer = http.get(path)
        said = answer.text + json.dumps(dict(answer.headers))
        for word in (str(folder), "Traceback", "starlette", "uvicorn", "site-packages"):
            assert word not in said
