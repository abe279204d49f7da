"""Who is there: tokens, rights to send, signing in and out."""

# ruff: noqa: SIM300 - expected == actual, in this order
from __future__ import annotations

import pytest
from house import ACME, EVIL, House

from clew.web import gate


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
