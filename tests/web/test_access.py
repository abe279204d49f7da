"""Whose runs there are: what readers of tenants, of other tenants and of none may see."""

# ruff: noqa: SIM300 - expected == actual, in this order
from __future__ import annotations

import pytest
from house import EVIL, WAITING, House, listed


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
