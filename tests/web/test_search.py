"""Searching in the list of runs, and the page about cost, as they are asked over HTTP."""

# ruff: noqa: SIM300 - expected == actual, in this order
from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import sample_messages
import sample_runs
from hypothesis import given
from hypothesis import strategies as st

from clew.sources import BaseSource
from clew.store.records import QueryError, RunFilter
from clew.web.costs import bars
from clew.web.gate import AccessControl
from clew.web.pages import Pages
from clew.web.parameters import amount, day, moment
from clew.web.server import Running, start

START = sample_runs.START_NS
TRIAGE = sample_runs.triage("11111111-0000-4000-8000-000000000001")
SUSPENDED = sample_runs.suspended(
    "22222222-0000-4000-8000-000000000002", base_ns=START + 86_400 * 10**9
)
FAILED = sample_runs.failed(
    "33333333-0000-4000-8000-000000000003", base_ns=START + 2 * 86_400 * 10**9
)
NAMES = {TRIAGE.run_id: "triage", SUSPENDED.run_id: "suspended", FAILED.run_id: "failed"}


@pytest.fixture(scope="module")
def viewer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    path = tmp_path_factory.mktemp("search") / "clew.db"
    with (
        start(port=0, store_path=path) as running,
        httpx.Client(base_url=running.address, timeout=20, trust_env=False) as client,
    ):
        client.post(
            "/v1/traces",
            content=sample_messages.protobuf(TRIAGE, SUSPENDED, FAILED),
            headers={"content-type": "application/x-protobuf"},
        ).raise_for_status()
        yield client


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ({}, ["failed", "suspended", "triage"]),
        ({"model": "claude-sonnet-5-2026-08-07"}, ["triage"]),
        ({"tool": "search_orders"}, ["triage"]),
        ({"tool": " search_orders "}, ["triage"]),
        ({"tool": "SEARCH_ORDERS"}, []),
        ({"gate": "tool", "outcome": "deny"}, ["triage"]),
        ({"gate": "guardrail_input", "outcome": "deny"}, []),
        ({"outcome": "redact"}, ["triage"]),
        ({"since": "2026-12-02"}, ["failed", "suspended"]),
        ({"until": "2026-12-01"}, ["triage"]),
        ({"since": "2026-12-02", "until": "2026-12-02"}, ["suspended"]),
        ({"since": "2026-12-01T10:00:01", "until": "2026-12-02T12:00+01:00"}, ["suspended"]),
        ({"since": "2026-12-01T10:00:00Z", "until": "2026-12-01T10:00:00.000001"}, ["triage"]),
        ({"cost_from": "0.03"}, ["triage"]),
        ({"cost_to": "0.01", "failed": "1"}, []),
        ({"tool": "'; DROP TABLE runs; --"}, []),
        ({"agent": "%"}, []),
        ({"agent": "_riage"}, []),
        ({"model": "*", "gate": '"'}, []),
    ],
)
def test_runs_are_searched(viewer: httpx.Client, asked: dict[str, str], found: list[str]) -> None:
    """Each condition narrows the list; names are taken literally; page and twin agree."""
    twin = viewer.get("/api/runs", params=asked).json()
    assert found == [NAMES[each["run_id"]] for each in twin["runs"]]
    page = viewer.get("/", params=asked)
    assert found == [NAMES[each] for each in re.findall(r'href="/runs/([0-9a-f-]{36})"', page.text)]
    assert ('<details class="more" open>' in page.text) == bool(set(asked) - {"agent", "failed"})


@pytest.mark.parametrize(
    "asked",
    [
        {"outcome": "fine"},
        {"since": "yesterday"},
        {"since": "2026-13-01"},
        {"since": "1969-12-31"},
        {"since": "9999-12-31"},
        {"since": "0001-01-01T00:00+23:00"},
        {"until": "2026-12-01T10:00:00\u0661"},
        {"since": "2026-12-02", "until": "2026-12-01"},
        {"since": "99999999d"},
        {"cost_from": "-1"},
        {"cost_from": "1e9"},
        {"cost_from": "nan"},
        {"cost_to": "0x10"},
        {"cost_from": "2", "cost_to": "1"},
        {"cost_to": "\u0663"},
        {"tool": "x" * 257},
        {"agent": "x" * 10_000},
        {"limit": "10000000"},
        {"limit": "-5"},
        {"after": "-1-" + "0" * 32},
        {"after": "0" * 40},
        {"after": f"{2**63:x}-{'0' * 32}"},
    ],
)
@pytest.mark.parametrize("path", ["/", "/api/runs"])
def test_bad_bounds_are_400(viewer: httpx.Client, path: str, asked: dict[str, str]) -> None:
    """What cannot be meant is said, in the form that was asked for."""
    answer = viewer.get(path, params=asked)
    assert 400 == answer.status_code
    assert next(iter(asked)).split("_")[0] in answer.text or "list" in answer.text


def test_a_form_keeps_what_was_asked(viewer: httpx.Client) -> None:
    """Pages lead on with the same conditions; the form shows them; everything works by links."""
    asked = {"model": "gpt-5-mini-2026-08-07", "limit": "1", "since": "2026-01-01"}
    page = viewer.get("/", params=asked).text
    assert 'name="model" value="gpt-5-mini-2026-08-07"' in page
    assert '<option value="search_orders"></option>' in page
    older = re.search(r'href="([^"]+)" rel="next"', page)
    assert older
    address = older[1].replace("&amp;", "&")
    assert "model=gpt-5-mini-2026-08-07" in address
    assert SUSPENDED.run_id in page
    assert TRIAGE.run_id in viewer.get(address).text


@given(text=st.text(max_size=60))
def test_any_text_is_a_time_or_an_error(text: str) -> None:
    """No text breaks the reading of times, amounts and days."""
    for read in (moment, amount, day):
        try:
            found = read({"x": text}, "x")
        except QueryError:
            continue
        assert found is None or found >= (type(found)(1971, 1, 1) if read is day else 0)


# --- costs ------------------------------------------------------------------------------------


def test_costs_and_their_twin_agree(viewer: httpx.Client) -> None:
    """Known cost as a lower bound, what is not in it in words, and a bar for each line."""
    asked = {"first": "2026-12-01", "last": "2026-12-03"}
    page = viewer.get("/costs", params=asked).text
    twin = viewer.get("/api/costs", params=asked).json()
    assert twin == viewer.get("/costs", params=asked, headers={"accept": "application/json"}).json()
    total = twin["total"]
    assert total["lower_bound"]
    assert f"{total['unknown']} call" in page
    assert f"≥ ${total['cost_usd']:.4f}" in page
    assert ["2026-12-01", "2026-12-02", "2026-12-03"] == [each["day"] for each in twin["days"]]
    assert sum(each["cost_usd"] or 0 for each in twin["models"]) == pytest.approx(total["cost_usd"])
    assert {"triage", "researcher", "refunds", "nightly-report"} == {
        each["agent"] for each in twin["agents"]
    }
    silent = next(each for each in twin["agents"] if each["agent"] == "nightly-report")
    assert silent["cost_usd"] is None or silent["lower_bound"]
    assert "style=" not in page


def test_a_day_without_calls_is_a_dash(viewer: httpx.Client) -> None:
    """Nothing is known of it: not zero dollars."""
    asked = {"first": "2026-11-01", "last": "2026-11-02"}
    twin = viewer.get("/api/costs", params=asked).json()
    assert (0, None, None, False) == (
        twin["total"]["calls"],
        twin["total"]["cost_usd"],
        twin["total"]["input_tokens"],
        twin["total"]["lower_bound"],
    )
    assert "$0" not in viewer.get("/costs", params=asked).text


@pytest.mark.parametrize(
    "asked",
    [
        {"first": "2026-12-32"},
        {"first": "20261201"},
        {"first": "1850-01-01"},
        {"last": "tomorrow"},
        {"first": "2026-12-02", "last": "2026-12-01"},
        {"first": "2020-01-01", "last": "2026-12-01"},
        {"model": "x" * 300},
    ],
)
@pytest.mark.parametrize("path", ["/costs", "/api/costs"])
def test_bad_days_are_400(viewer: httpx.Client, path: str, asked: dict[str, str]) -> None:
    """Days that are none, the wrong way round, or too many."""
    assert 400 == viewer.get(path, params=asked).status_code


def test_costs_are_narrowed_by_links(viewer: httpx.Client) -> None:
    """A name in a table leads to the costs of that name alone."""
    page = viewer.get("/costs", params={"first": "2026-12-01", "last": "2026-12-03"}).text
    links = [each.replace("&amp;", "&") for each in re.findall(r'href="(/costs\?[^"]+)"', page)]
    triage = next(each for each in links if each.endswith("agent=triage"))
    assert {"triage"} == {each["agent"] for each in viewer.get(f"/api{triage}").json()["agents"]}


def test_bars_are_in_proportion() -> None:
    """The dearest line is full, what costs next to nothing is still seen, no cost has no bar."""
    from clew.store.costs import CostRow

    costs = (2.0, 1.0, 0.000001, 0.0, None)
    rows = tuple(CostRow(name="x", calls=1, cost_usd=each) for each in costs)
    assert [100.0, 50.0, 0.6, 0.0, 0.0] == [each.length for each in bars(rows)]


def test_a_source_that_does_not_add_up_says_so() -> None:
    """There is no page about cost over a source that would have to read every run."""
    from starlette.applications import Starlette
    from starlette.middleware import Middleware
    from starlette.testclient import TestClient

    class Other(BaseSource):
        def runs(self, wanted: RunFilter, page: Any) -> Any: ...

    pages = Pages(Other(), address="")
    control = Middleware(
        AccessControl, authenticator=None, digest_of=str, log=None, views=pages.views
    )
    client = TestClient(Starlette(routes=pages.routes(), middleware=[control]))
    assert 404 == client.get("/api/costs").status_code


def test_an_empty_store_has_no_costs(server: Running, http: httpx.Client) -> None:
    """The page is there all the same."""
    assert "No calls." in http.get("/costs").text
