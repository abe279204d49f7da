"""The settings: the switch of capture, and who may set it."""

# ruff: noqa: SIM300 - expected == actual, in this order
from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import sample_calls as calls
from starlette.requests import Request

from clew.recording import switch
from clew.store.prompt_index import RecordStore
from clew.web.csrf import ForgedError, Tokens
from clew.web.server import start
from clew.web.settings_page import RETENTION_CHOICES

JSON = {"accept": "application/json"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


@pytest.fixture
def viewer(folder: Path) -> Iterator[httpx.Client]:
    with (
        start(port=0, store_path=folder / "clew.db") as running,
        httpx.Client(base_url=running.address, timeout=20, trust_env=False) as client,
    ):
        yield client


def token(viewer: httpx.Client) -> str:
    (found,) = re.findall(r'name="token" value="([^"]+)"', viewer.get("/settings").text)
    return found


def save(viewer: httpx.Client, **sent: Any) -> httpx.Response:
    headers = sent.pop("headers", {})
    return viewer.post("/settings", data={"token": token(viewer), **sent}, headers=headers)


def test_capture_is_off_and_kept_for_a_week(viewer: httpx.Client) -> None:
    """An installation that nobody has touched: off, 7 days; page and twin say so."""
    assert {
        "capture_enabled": False,
        "retention_days": 7,
        "retention_choices": list(RETENTION_CHOICES),
    } == viewer.get("/api/settings").json()
    page = viewer.get("/settings").text
    assert re.search(r'value="off" checked', page)
    assert '<option value="7" selected>7 days' in page
    assert [1, 3, 7, 14, 30] == [int(each) for each in re.findall(r'<option value="(\d+)"', page)]


def test_the_switch_is_set_for_every_process(viewer: httpx.Client, folder: Path) -> None:
    """Saving writes the one switch of the data folder, then shows what is in force."""
    answer = save(viewer, enabled="on", retention_days="30")
    assert (303, "/settings?saved=1") == (answer.status_code, answer.headers["location"])
    assert switch.Switch(enabled=True, retention_days=30) == switch.read(folder)
    assert "Saved" in viewer.get("/settings?saved=1").text
    assert True is viewer.get("/api/settings").json()["capture_enabled"]
    saved = save(viewer, enabled="off", headers=JSON)
    assert (200, False, 30) == (
        saved.status_code, saved.json()["capture_enabled"], saved.json()["retention_days"],
    )  # fmt: skip
    assert switch.Switch(enabled=False, retention_days=30) == switch.read(folder)


def test_a_retention_from_elsewhere_can_be_kept(viewer: httpx.Client, folder: Path) -> None:
    """A number of days that the form does not offer stays on its list."""
    switch.write(folder, enabled=True, retention_days=11)
    assert '<option value="11" selected>11 days' in viewer.get("/settings").text


@pytest.mark.parametrize(
    "sent",
    [
        {"enabled": "perhaps"},
        {},
        {"enabled": "on", "retention_days": "0"},
        {"enabled": "on", "retention_days": "-1"},
        {"enabled": "on", "retention_days": "forever"},
        {"enabled": "on", "retention_days": "99999"},
        {"enabled": "on", "retention_days": "٣"},
    ],
)
def test_values_that_cannot_be_are_refused_beside_the_controls(
    viewer: httpx.Client, folder: Path, sent: dict[str, str]
) -> None:
    """400 with the reason in the form and in the twin; nothing was changed."""
    page = save(viewer, **sent)
    assert 400 == page.status_code
    state = page.text.split('id="state"')[1].split("</p>")[0]
    assert "must be" in state
    twin = save(viewer, **sent, headers=JSON)
    assert 400 == twin.status_code
    assert "must be" in twin.json()["error"]["message"]
    assert False is twin.json()["settings"]["capture_enabled"]
    assert not switch.path_of(folder).exists()


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"sec-fetch-site": "none"},
    ],
)
def test_a_form_from_another_page_is_refused(
    viewer: httpx.Client, folder: Path, headers: dict[str, str]
) -> None:
    """Whatever the browser says is elsewhere is 403, even with a token that is right."""
    assert 403 == save(viewer, enabled="on", headers=headers).status_code
    assert not switch.path_of(folder).exists()


@pytest.mark.parametrize("wrong", ["", "x", "1.2.3", "0.abc.", "9" * 400, "é"])
def test_a_form_without_its_token_is_refused(
    viewer: httpx.Client, folder: Path, wrong: str
) -> None:
    """A missing, made-up or foreign token is 403; the page offers a fresh one."""
    answer = viewer.post("/settings", data={"token": wrong, "enabled": "on"})
    assert 403 == answer.status_code
    assert "reload the page" in answer.text
    twin = viewer.post("/settings", data={"enabled": "on"}, headers=JSON)
    assert (403, 403) == (twin.status_code, twin.json()["error"]["status"])
    assert not switch.path_of(folder).exists()


def test_our_own_origin_is_accepted(viewer: httpx.Client, folder: Path) -> None:
    """What a browser says of a form on our page passes."""
    origin = str(viewer.base_url).rstrip("/")
    headers = {"origin": origin, "sec-fetch-site": "same-origin"}
    assert 303 == save(viewer, enabled="on", headers=headers).status_code
    assert switch.read(folder).enabled


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b'{"enabled": "on"}', "application/json"),
        (b"enabled=on", "text/plain"),
        (b"enabled=on", "multipart/form-data; boundary=x"),
        (b"a" * 20_000, "application/x-www-form-urlencoded"),
        (b"\xff=\xfe", "application/x-www-form-urlencoded"),
        (b"&".join(b"a=1" for _ in range(50)), "application/x-www-form-urlencoded"),
    ],
)
def test_only_small_forms_are_read(
    viewer: httpx.Client, folder: Path, body: bytes, kind: str
) -> None:
    """Other types, too large and malformed bodies are 400."""
    answer = viewer.post("/settings", content=body, headers={"content-type": kind, **JSON})
    assert 400 == answer.status_code
    assert not switch.path_of(folder).exists()


def test_a_switch_that_cannot_be_written_is_said(viewer: httpx.Client, folder: Path) -> None:
    """The error stands beside the controls, which show what is in force."""
    switch.path_of(folder).mkdir()
    page = save(viewer, enabled="on")
    assert 503 == page.status_code
    assert "cannot be written" in page.text
    assert re.search(r'value="off" checked', page.text)


def test_tokens_end() -> None:
    """A token of another process, or one that is too old, is none."""
    now = [1000.0]
    tokens = Tokens(lambda: now[0])
    request = Request({"type": "http", "headers": [(b"host", b"localhost:1")]})
    made = tokens.issue()
    tokens.check(request, made)
    with pytest.raises(ForgedError, match="not one of this server"):
        Tokens(lambda: now[0]).check(request, made)
    now[0] += 12 * 3600 + 1
    with pytest.raises(ForgedError, match="too old"):
        tokens.check(request, made)


def test_what_is_kept_is_said(viewer: httpx.Client, folder: Path) -> None:
    """The number of records, the bytes of their files, the folder, and the legend of layers."""
    store = RecordStore(folder)
    size = store.save([calls.call(), calls.call(level="metadata")])
    store.close()
    page = viewer.get("/settings").text
    shown = f"{size:,}".replace(",", "\u202f")
    assert f"<dd>{shown} bytes</dd>" in page
    assert "<dt>Records</dt><dd>2</dd>" in page
    assert str(folder) in page
    for layer in ("identity", "contract", "capabilities", "knowledge", "working", "runtime"):
        assert f'<i class="swatch l-{layer}"></i> <strong>{layer}</strong>' in page
