"""Who may read: tokens, scopes, tenants, sign-in, and the log of accesses."""

# ruff: noqa: SIM300 - expected == actual, in this order
from __future__ import annotations

import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import sample_calls
import sample_messages
import sample_runs

from clew import semconv
from clew.digests import Digests
from clew.errors import StoreError
from clew.store.access import AccessLog, read
from clew.store.prompt_index import RecordStore
from clew.web import gate
from clew.web.server import Running, start
from clew.web.tokens import Entry, StaticTokens, add

KEY = "k" * 40
ANN = Digests(KEY.encode()).of("ann")
BOB = Digests(KEY.encode()).of("bob")
STEMS = {
    "acme": "11111111-0000-4000-8000-00000000000",
    "evil": "22222222-0000-4000-8000-00000000000",
    None: "33333333-0000-4000-8000-00000000000",
}


def run_of(
    tenant: str | None, number: int = 1, actor: str | None = ANN, status: str = "completed"
) -> sample_runs.Sample:
    """A small run of a tenant, acting for somebody."""
    run = sample_runs.Sample(f"{STEMS[tenant]}{number}")
    about: dict[str, Any] = {semconv.RUN_STATUS: status}
    if tenant is not None:
        about[semconv.TENANT] = tenant
    if actor is not None:
        about[semconv.ACTOR] = actor
    root = run.root(f"agent-{tenant or 'none'}", 0, 100, **about)
    run.mark("started", f"agent-{tenant or 'none'}", 0, root, **about)
    run.model(1, 1, 50, root, model=f"model-{tenant or 'none'}")
    return run


ACME, EVIL, NONE = run_of("acme"), run_of("evil"), run_of(None)
BOBS = run_of("acme", 2, BOB)
WAITING = run_of("acme", 3, BOB, "waiting_for_approval")
ALL = (ACME, EVIL, NONE, BOBS, WAITING)


class House:
    """A server that asks who is there, with a token for each kind of reader."""

    def __init__(self, running: Running, folder: Path, tokens: dict[str, str]) -> None:
        self.running = running
        self.folder = folder
        self.tokens = tokens
        self.call = ""
        self.theirs = ""

    def http(self, who: str | None, **headers: str) -> httpx.Client:
        if who is not None:
            headers["authorization"] = f"Bearer {self.tokens[who]}"
        return httpx.Client(
            base_url=self.running.address, timeout=20, trust_env=False, headers=headers
        )

    def get(self, who: str | None, path: str, **more: Any) -> httpx.Response:
        with self.http(who) as client:
            return client.get(path, **more)


ENTRIES = (
    Entry(id="root", admin=True),
    Entry(id="acme-reader", scopes=("agent:read",), tenant="acme"),
    Entry(id="acme-auditor", scopes=("agent:read", "capture:read"), tenant="acme"),
    Entry(id="plain-reader", scopes=("agent:read",)),
    Entry(id="all-reader", scopes=("agent:read", "capture:read", "capture:raise"), tenant="*"),
    Entry(id="collector", scopes=("ingest",)),
    Entry(id="nobody"),
    Entry(id="ann", kind="human", tenant="acme"),
    Entry(id="approver", kind="human", tenant="acme", scopes=("agent:approve",)),
    Entry(id="old", scopes=("agent:read",), tenant="*", expires="2020-01-01"),
)


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    folder = tmp_path_factory.mktemp("house")
    file = folder / "tokens.json"
    tokens = {entry.id: add(file, entry) for entry in ENTRIES}
    store = RecordStore(folder)
    ours = sample_calls.call(
        run_id=ACME.run_id,
        trace_id=ACME.trace_id,
        span_id=ACME.spans[2].span_id,
        tenant="acme",
        actor=ANN,
    )
    theirs = sample_calls.call(run_id=EVIL.run_id, trace_id=EVIL.trace_id, tenant="evil", actor=ANN)
    store.save([ours, theirs])
    store.close()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CLEW_DIGEST_KEY", KEY)
        with start(
            port=0, store_path=folder / "clew.db", authenticator=StaticTokens(file)
        ) as running:
            found = House(running, folder, tokens)
            found.call, found.theirs = ours[0].request_id, theirs[0].request_id
            with found.http("collector") as client:
                client.post(
                    "/v1/traces",
                    content=sample_messages.protobuf(*ALL),
                    headers={"content-type": "application/x-protobuf"},
                ).raise_for_status()
            yield found


def listed(house: House, who: str, **asked: Any) -> set[str]:
    """Whose runs a reader gets in the list, by the beginnings of their ids and their number."""
    found = house.get(who, "/api/runs", params=asked).json()["runs"]
    return {f"{each['agent'].removeprefix('agent-')}{each['run_id'][-1]}" for each in found}


# --- whose runs there are ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("who", "runs"),
    [
        ("root", {"acme1", "acme2", "acme3", "evil1", "none1"}),
        ("all-reader", {"acme1", "acme2", "acme3", "evil1", "none1"}),
        ("acme-reader", {"acme1", "acme2", "acme3"}),
        ("plain-reader", {"none1"}),
        ("ann", {"acme1"}),
        ("approver", {"acme3"}),
        ("nobody", set()),
        ("collector", set()),
    ],
)
def test_a_reader_lists_what_they_may_read(house: House, who: str, runs: set[str]) -> None:
    """Administrators all; services their tenant, by scope; people what acts for them."""
    assert runs == listed(house, who)


def test_filters_do_not_widen_what_is_read(house: House) -> None:
    """No filter, cursor or name leads to another tenant's runs."""
    assert set() == listed(house, "acme-reader", agent="agent-evil")
    assert set() == listed(house, "acme-reader", model="model-evil-2026-08-07")
    assert {"acme1", "acme2", "acme3"} == listed(house, "acme-reader", everything="1")
    cursor = f"{2**60:x}-{EVIL.trace_id}"
    assert "evil1" not in listed(house, "acme-reader", after=cursor)
    page = house.get("acme-reader", "/", headers={"accept": "text/html"}).text
    assert "evil" not in page
    assert "agent-acme" in page


PATHS = (
    "/runs/{run}",
    "/runs/{run}/head",
    "/runs/{run}/timeline",
    "/runs/{run}/prompts",
    "/runs/{run}/spans/{span}",
    "/runs/{run}/spans/{span}/prompt",
    "/api/runs/{run}",
    "/api/runs/{run}/timeline",
    "/api/runs/{run}/prompts",
    "/api/runs/{run}/spans/{span}",
)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("who", ["acme-reader", "ann", "nobody", "plain-reader", "approver"])
def test_unreadable_equals_unknown(house: House, path: str, who: str) -> None:
    """Another tenant's run answers like one that is not there: status, body and headers."""
    span = EVIL.spans[2].span_id
    unreadable = house.get(who, path.format(run=EVIL.run_id, span=span))
    unknown = house.get(who, path.format(run="99999999-0000-4000-8000-000000000009", span=span))
    assert 404 == unreadable.status_code
    assert unknown.content == unreadable.content
    dated = {"date"}
    assert {k: v for k, v in unknown.headers.items() if k not in dated} == {
        k: v for k, v in unreadable.headers.items() if k not in dated
    }


def test_a_known_entity_tag_tells_nothing(house: House) -> None:
    """Who may not read a run does not learn whether it has changed either."""
    path = f"/api/runs/{EVIL.run_id}/timeline"
    tag = house.get("root", path).headers["etag"]
    assert 304 == house.get("root", path, headers={"if-none-match": tag}).status_code
    assert 404 == house.get("acme-reader", path, headers={"if-none-match": tag}).status_code


def test_an_approval_is_listed_and_not_opened(house: House) -> None:
    """Who may approve sees what waits, without a link; the page has nothing to approve with."""
    page = house.get("approver", "/", headers={"accept": "text/html"}).text
    assert "waiting for approval" in page
    assert f"/runs/{WAITING.run_id}" not in page
    row = house.get("approver", "/api/runs").json()["runs"][0]
    assert (False, "waiting_for_approval") == (row["readable"], row["status"])
    assert 404 == house.get("approver", f"/runs/{WAITING.run_id}").status_code


def test_nothing_can_be_approved_from_a_timeline(house: House) -> None:
    """The pages about runs have no form that sends anything, and no route that takes it."""
    with house.http("root") as client:
        page = client.get(f"/runs/{WAITING.run_id}").text
        assert {"/logout"} == set(_posting(page))
        for path in (f"/runs/{WAITING.run_id}", f"/api/runs/{WAITING.run_id}", "/", "/api/runs"):
            for method in ("POST", "PUT", "PATCH", "DELETE"):
                assert 405 == client.request(method, path).status_code


def _posting(page: str) -> list[str]:
    import re

    return re.findall(r'<form[^>]*method="post"[^>]*action="([^"]*)"', page)


@pytest.mark.parametrize(
    ("who", "agents"),
    [
        ("root", {"agent-acme", "agent-evil", "agent-none"}),
        ("acme-reader", {"agent-acme"}),
        ("ann", {"agent-acme"}),
        ("plain-reader", {"agent-none"}),
        ("nobody", set()),
    ],
)
def test_costs_are_of_what_may_be_read(house: House, who: str, agents: set[str]) -> None:
    """The page about cost sums nothing of others, and names none of them."""
    asked = {"first": "2026-12-01", "last": "2026-12-01"}
    found = house.get(who, "/api/costs", params=asked).json()
    assert agents == {each["agent"] for each in found["agents"]}
    page = house.get(who, "/costs", params=asked, headers={"accept": "text/html"}).text
    for name in ("evil", "acme", "none-2026"):
        named = any(name.removesuffix("-2026") in each for each in agents)
        assert named == (f"model-{name}" in page)


# --- content ----------------------------------------------------------------------------------


def readings(house: House) -> list[tuple[str, str, str | None]]:
    return [(each.reader, each.what, each.record_id) for each in read(house.folder)]


def test_content_needs_its_own_right(house: House) -> None:
    """Without `capture:read` a recorded call is like one that is not there; its row is listed."""
    before = readings(house)
    for path in ("/prompts/{}", "/api/prompts/{}", "/api/prompts/{}/diff/{}"):
        refused = house.get("acme-reader", path.format(house.call, house.call))
        unknown = house.get("acme-reader", path.format("0" * 32, "0" * 32))
        assert (404, unknown.content) == (refused.status_code, refused.content)
    listed = house.get("acme-reader", "/api/prompts").json()["requests"]
    assert [house.call] == [each["request_id"] for each in listed]
    assert before == readings(house)


def test_a_link_is_offered_where_it_leads_somewhere(house: House) -> None:
    """A span's details lead to its recorded call for those alone who may open it."""
    path = f"/runs/{ACME.run_id}/spans/{ACME.spans[2].span_id}"
    for who, offered in (("acme-reader", False), ("acme-auditor", True), ("ann", True)):
        page = house.get(who, path, headers={"accept": "text/html"}).text
        assert offered == (f"/prompts/{house.call}" in page)


def test_content_of_others_is_not_there(house: House) -> None:
    """With the right, but in another tenant, there is no such call: not by id, not by its start."""
    for reference in (house.theirs, house.theirs[:12]):
        assert 404 == house.get("acme-auditor", f"/api/prompts/{reference}").status_code
    path = f"/api/prompts/{house.call}/diff/{house.theirs}"
    assert 404 == house.get("acme-auditor", path).status_code


def test_each_reading_is_written_down(house: House) -> None:
    """Who read what is in the log; a difference reads two calls; the owner may read their own."""
    before = len(readings(house))
    assert 200 == house.get("acme-auditor", f"/api/prompts/{house.call}").status_code
    assert 200 == house.get("ann", f"/prompts/{house.call}").status_code
    assert 200 == house.get("root", f"/prompts/{house.call}/diff/{house.theirs}").status_code
    assert [
        ("acme-auditor", "prompt", house.call),
        ("ann", "prompt", house.call),
        ("root", "diff", house.call),
        ("root", "diff", house.theirs),
    ] == readings(house)[before:]
    for file in (house.folder / "access").iterdir():
        assert 0o600 == stat.S_IMODE(file.stat().st_mode)


def test_without_a_log_nothing_is_shown(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the log cannot be written, content is not shown, to nobody."""

    def full(self: AccessLog, *_: Any, **__: Any) -> None:
        raise StoreError("the disk is full")

    monkeypatch.setattr(AccessLog, "write", full)
    answer = house.get("root", f"/api/prompts/{house.call}")
    assert 503 == answer.status_code
    assert "Nova" not in answer.text


@pytest.mark.parametrize("path", ["/snippets", "/api/snippets", "/api/skills/x"])
def test_snippets_need_the_right_to_content(house: House, path: str) -> None:
    """They belong to no tenant: whoever is of one, or lacks the right, gets 403."""
    for who in ("acme-reader", "acme-auditor", "plain-reader", "ann", "nobody"):
        assert 403 == house.get(who, path).status_code
    assert house.get("all-reader", path).status_code in {200, 404}


def test_settings_are_for_who_may_raise_capture(house: House) -> None:
    """Reading and changing the switch takes the right, and no tenant."""
    for who in ("acme-reader", "plain-reader", "ann"):
        assert 403 == house.get(who, "/api/settings").status_code
        with house.http(who) as client:
            assert 403 == client.post("/settings", data={"enabled": "on"}).status_code
    assert 200 == house.get("all-reader", "/api/settings").status_code
    assert False is house.get("root", "/api/settings").json()["capture_enabled"]


# --- who is there -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "Bearer",
        "Bearer clew_wrong",
        "Basic cm9vdDpyb290",
        "Bearer \u00e9\u00e8",
        f"Bearer {'x' * 60_000}",
    ],
)
def test_without_a_known_token_there_is_nothing(house: House, header: str | None) -> None:
    """401 with a challenge, for twins, the description and unknown addresses alike."""
    headers = {} if header is None else {"authorization": header.encode("latin-1")}
    for path in ("/api/runs", "/api/costs", "/openapi.json", "/api/nothing", "/settings"):
        with house.http(None) as client:
            answer = client.get(path, headers=headers)
        assert answer.status_code in {401, 400, 431}
        if answer.status_code == 401:
            assert 'Bearer realm="clew"' == answer.headers["www-authenticate"]
        assert "agent-" not in answer.text


def test_an_expired_token_is_not_taken(house: House) -> None:
    """From its day on a token is as good as none."""
    assert 401 == house.get("old", "/api/runs").status_code


def test_a_token_in_an_address_is_not_taken(house: House) -> None:
    """Addresses end in logs and histories: only headers and the form count."""
    token = house.tokens["root"]
    for name in ("token", "access_token"):
        assert 401 == house.get(None, "/api/runs", params={name: token}).status_code


def test_sending_needs_the_right_to_ingest(house: House) -> None:
    """401 without a token, 403 without the right, in the message that exporters read."""
    for who, status, code in ((None, 401, 16), ("root", 200, 0), ("acme-reader", 403, 7),
                              ("ann", 403, 7), ("collector", 200, 0)):  # fmt: skip
        with house.http(who) as client:
            for path in ("/v1/traces", "/v1/metrics", "/v1/logs"):
                answer = client.post(
                    path,
                    content=b'{"resourceSpans": []}',
                    headers={"content-type": "application/json"},
                )
                assert status == answer.status_code
                if status != 200:
                    assert code == answer.json()["code"]


def test_a_session_cannot_send(house: House) -> None:
    """The cookie of a browser is not taken by the receiver."""
    with house.http(None) as client:
        client.post("/login", data={"token": house.tokens["root"]})
        answer = client.post(
            "/v1/traces",
            content=b'{"resourceSpans": []}',
            headers={"content-type": "application/json"},
        )
        assert 401 == answer.status_code


def test_a_browser_signs_in_and_out(house: House) -> None:
    """The form leads to the page that was asked for; after signing out nothing is shown."""
    with house.http(None, accept="text/html") as client:
        away = client.get(f"/runs/{ACME.run_id}?span=x")
        assert 303 == away.status_code
        assert f"/login?next=%2Fruns%2F{ACME.run_id}%3Fspan%3Dx" == away.headers["location"]
        form = client.get(away.headers["location"])
        assert f'name="next" value="/runs/{ACME.run_id}?span=x"' in form.text
        wrong = client.post("/login", data={"token": "clew_no", "next": "/costs"})
        assert 401 == wrong.status_code
        assert "This token is not known" in wrong.text
        assert not client.cookies
        token = house.tokens["ann"]
        done = client.post("/login", data={"token": token, "next": f"/runs/{ACME.run_id}"})
        assert (303, f"/runs/{ACME.run_id}") == (done.status_code, done.headers["location"])
        cookie = done.headers["set-cookie"].lower()
        assert "httponly" in cookie
        assert "samesite=strict" in cookie
        assert token.lower() not in cookie
        assert 200 == client.get(f"/runs/{ACME.run_id}").status_code
        assert 404 == client.get(f"/runs/{EVIL.run_id}").status_code
        name = client.cookies[gate.COOKIE]
        assert 303 == client.post("/logout").status_code
        client.cookies.set(gate.COOKIE, name)
        assert 303 == client.get("/").status_code


def test_a_cookie_is_secure_behind_tls(house: House) -> None:
    """Where a proxy on this machine says that browsers come by https, the cookie stays there."""
    with house.http(None) as client:
        done = client.post(
            "/login",
            data={"token": house.tokens["ann"]},
            headers={"x-forwarded-proto": "https"},
        )
        assert "secure" in done.headers["set-cookie"].lower()


def test_the_form_takes_no_large_token(house: House) -> None:
    """A body beyond the bound is refused, not kept."""
    with house.http(None) as client:
        assert 400 == client.post("/login", data={"token": "x" * 100_000}).status_code
