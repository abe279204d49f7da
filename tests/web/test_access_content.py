"""Who may read content: the right to it, and the log of who did."""

# ruff: noqa: SIM300 - expected == actual, in this order
from __future__ import annotations

import stat
from typing import Any

import pytest
from house import ACME, House

from clew.errors import StoreError
from clew.store.access import AccessLog, read


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
