"""The viewer's pages and their JSON twins, without a browser."""

# ruff: noqa: SIM300 - expected == actual, in this order
from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import sample_runs
from page_text import words
from sample_messages import send

from clew import semconv
from clew.sources.wording import UNKNOWN
from clew.web.server import Running, start
from clew.web.views import HERE

START = sample_runs.START_NS
TRIAGE = sample_runs.triage("11111111-0000-4000-8000-000000000001", base_ns=START)
SUSPENDED = sample_runs.suspended("22222222-0000-4000-8000-000000000002", base_ns=START + 10**9)
FAILED = sample_runs.failed("33333333-0000-4000-8000-000000000003", base_ns=START + 2 * 10**9)
FOREIGN = sample_runs.foreign("44444444-0000-4000-8000-000000000004", base_ns=START + 3 * 10**9)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A server whose store holds four runs, for tests that only read."""
    path = tmp_path_factory.mktemp("viewer") / "clew.db"
    with start(port=0, store_path=path) as running:
        send(running.address, TRIAGE, SUSPENDED, FAILED, FOREIGN)
        yield running


def test_the_list_shows_runs_newest_first(viewer: httpx.Client) -> None:
    """Each run has its agent, status, and totals; traces without Clew are left out."""
    page = viewer.get("/")
    found = re.findall(r'href="/runs/([0-9a-f-]{36})"', page.text)
    assert [FAILED.run_id, SUSPENDED.run_id, TRIAGE.run_id] == found
    shown = words(page.text)
    for expected in ("triage", "completed", "9.2k", "$0.0319", "failed", "no usage", "≥ $0.00500"):
        assert expected in shown


def test_the_list_and_its_twin_agree(viewer: httpx.Client) -> None:
    """By address and by `Accept`, the twin has the same runs with all totals."""
    twin = viewer.get("/api/runs").json()
    assert twin == viewer.get("/", headers={"accept": "application/json"}).json()
    assert None is twin["next"]
    run = twin["runs"][-1]
    assert (TRIAGE.run_id, TRIAGE.trace_id, "triage", "completed") == (
        run["run_id"],
        run["trace_id"],
        run["agent"],
        run["status"],
    )
    tokens = {
        "input": 9150, "output": 1221, "cache_read": 5200, "cache_write": 1024, "reasoning": 384,
    }  # fmt: skip
    assert tokens == run["tokens"]
    assert (0.031872, "priced", 1, 8420.0) == (
        run["cost_usd"],
        run["cost_status"],
        run["denials"],
        run["duration_ms"],
    )
    assert ("2026-12-01T10:00:00.000000000Z", str(START)) == (
        run["start_time"],
        run["start_time_unix_nano"],
    )


def test_the_list_is_filtered_and_paged(viewer: httpx.Client) -> None:
    """Query parameters narrow the list; `next` continues it."""

    def agents(**params: Any) -> list[str | None]:
        return [each["agent"] for each in viewer.get("/api/runs", params=params).json()["runs"]]

    assert ["refunds"] == agents(agent="refunds")
    assert ["nightly-report"] == agents(status="failed")
    assert ["triage"] == agents(denied=1)
    assert ["nightly-report", "triage"] == agents(failed="true")
    assert [None, "nightly-report"] == agents(everything=1, limit=2)
    first = viewer.get("/api/runs", params={"limit": 2}).json()
    assert ["triage"] == agents(limit=2, after=first["next"])
    page = viewer.get("/", params={"limit": 2})
    older = re.search(r'href="([^"]+)" rel="next"', page.text)
    assert older
    assert "triage" in words(viewer.get(older[1].replace("&amp;", "&")).text)
    assert "No run matches" in words(viewer.get("/", params={"agent": "nobody"}).text)


@pytest.mark.parametrize(
    "params",
    [
        {"limit": "0"},
        {"limit": "1001"},
        {"limit": "-1"},
        {"limit": "ten"},
        {"limit": "10000000000"},
        {"after": "x"},
        {"status": "fine"},
        {"denied": "maybe"},
    ],
)
@pytest.mark.parametrize("path", ["/", "/api/runs"])
def test_parameters_out_of_bounds_are_400(
    viewer: httpx.Client, path: str, params: dict[str, str]
) -> None:
    """Wrong limits, cursors and filters are errors, in the form that was asked for."""
    answer = viewer.get(path, params=params)
    assert 400 == answer.status_code
    if path == "/api/runs":
        assert 400 == answer.json()["error"]["status"]
    else:
        assert "400 Bad Request" in words(answer.text)


def test_a_run_and_its_twin_agree(viewer: httpx.Client) -> None:
    """The page has a row for each span, in the order of its twin; both forms of the id work."""
    twin = viewer.get(f"/api/runs/{TRIAGE.run_id}").json()
    assert twin == viewer.get(f"/api/runs/{TRIAGE.trace_id.upper()}").json()
    assert (
        twin == viewer.get(f"/runs/{TRIAGE.run_id}", headers={"accept": "application/json"}).json()
    )
    page = viewer.get(f"/runs/{TRIAGE.run_id}")
    rows = re.findall(r'<tr id="s-([0-9a-f]{16})"', page.text)
    assert [each["span_id"] for each in twin["spans"]] == rows
    assert [each.span_id for each in TRIAGE.spans] == rows
    decision = next(each for each in twin["spans"] if each["name"] == "decide tool")
    assert ("decision", "internal", "unset", 7, "search_orders") == (
        decision["type"],
        decision["kind"],
        decision["status"],
        decision["seq"],
        decision["attributes"][semconv.DECISION_SUBJECT],
    )


def test_the_header_states_the_totals(viewer: httpx.Client) -> None:
    """Status, duration, rounds, tokens with their parts, cost with its status, denials."""
    shown = words(viewer.get(f"/runs/{TRIAGE.run_id}").text)
    for expected in (
        "Duration 8.42 s",
        "Rounds 4",
        "Tool calls 4",
        "5.2k cache read",
        "1.0k cache write",
        "384 reasoning",
        "Cost $0.0319 priced",
        "Denials 1 of 4 decisions",
        "Errors 2",
    ):
        assert expected in shown


def test_denials_and_errors_are_told_in_words(viewer: httpx.Client) -> None:
    """A denied decision, a denied tool and a failed one are rows that say so."""
    page = viewer.get(f"/runs/{TRIAGE.run_id}").text
    rows = re.findall(r"<tr id=.*?</tr>", page, re.DOTALL)
    denied = [row for row in rows if 'class="row r-decision denied' in row]
    assert 1 == len(denied)
    assert re.search(r"badge b-bad.*deny</span>", denied[0])
    failed = [row for row in rows if " failed" in row.split(">")[0]]
    assert 2 == len(failed)
    assert all("error</span>" in row for row in failed)


def test_segments_have_an_axis_each(viewer: httpx.Client) -> None:
    """A run that waited an hour shows both segments at their own scale, and the wait."""
    page = viewer.get(f"/runs/{SUSPENDED.run_id}")
    shown = words(page.text)
    assert "Segment 1" in shown
    assert "after waiting 59 min 58 s" in shown
    assert "5.30 s in 2 segments" in shown
    assert 2 == page.text.count('<table class="spans"')


def test_a_span_can_be_opened_without_script(viewer: httpx.Client) -> None:
    """The selected span's attributes are on the page, on a page of their own and in a twin."""
    denied = next(
        each for each in TRIAGE.spans if each.attributes.get(semconv.DECISION_OUTCOME) == "deny"
    )
    page = viewer.get(f"/runs/{TRIAGE.run_id}", params={"span": denied.span_id})
    alone = viewer.get(f"/runs/{TRIAGE.run_id}/spans/{denied.span_id}")
    part = viewer.get(f"/runs/{TRIAGE.run_id}/spans/{denied.span_id}", params={"fragment": "1"})
    for answer in (page, alone, part):
        shown = words(answer.text)
        assert "clew.decision.reason trust_zone" in shown
        assert "2026-12-01T10:00:02.424000000Z" in shown
    assert "<html" not in part.text
    twin = viewer.get(f"/api/runs/{TRIAGE.run_id}/spans/{denied.span_id}").json()
    assert "trust_zone" == twin["span"]["attributes"][semconv.DECISION_REASON]


def test_events_and_links_are_shown(viewer: httpx.Client) -> None:
    """An exception event appears by type; the link of a resumed segment leads to the one before."""
    broken = FAILED.spans[-1]
    shown = words(viewer.get(f"/runs/{FAILED.run_id}", params={"span": broken.span_id}).text)
    assert "exception +921 ms" in shown
    assert "exception.type openai.InternalServerError" in shown
    first, second = (each for each in SUSPENDED.spans if each.name.startswith("invoke_agent"))
    page = viewer.get(f"/runs/{SUSPENDED.run_id}", params={"span": second.span_id})
    assert f"?span={first.span_id}#s-{first.span_id}" in page.text


def test_another_version_of_a_span_is_pointed_out(served: Running, viewer: httpx.Client) -> None:
    """A conflicting copy is told at the top, and shown beside the first version of its span."""
    run = sample_runs.running()
    send(served.address, run)
    send(served.address, run)
    span = run.spans[1]
    span.attributes[semconv.USAGE_INPUT] = 31_337
    send(served.address, run)
    shown = words(viewer.get(f"/runs/{run.run_id}", params={"span": span.span_id}).text)
    assert "1 copy of spans arrived with other content; the first version is shown." in shown
    assert "3 identical copies arrived again and changed nothing." in shown
    assert "Another version arrived gen_ai.usage.input_tokens 31337" in shown
    twin = viewer.get(f"/api/runs/{run.run_id}").json()
    assert (1, 3, 1200) == (
        twin["run"]["conflicting_copies"],
        twin["run"]["identical_copies"],
        twin["run"]["tokens"]["input"],
    )
    assert 31_337 == twin["conflicting_copies"][0]["attributes"][semconv.USAGE_INPUT]


@pytest.mark.parametrize(
    "path",
    [
        "/runs/99999999-0000-4000-8000-000000000009",
        "/runs/nonsense",
        "/runs/1111",
        f"/runs/{TRIAGE.run_id}/spans/ffffffffffffffff",
        "/nothing",
        "/static/../pages.py",
        "/static/%2e%2e/pages.py",
    ],
)
def test_what_is_not_there_is_404(viewer: httpx.Client, path: str) -> None:
    """Unknown runs, spans and pages look the same, as pages and as JSON."""
    assert 404 == viewer.get(path).status_code
    if path.startswith("/runs"):
        answer = viewer.get(f"/api{path}")
        assert (404, "There is no such run or span.") == (
            answer.status_code,
            answer.json()["error"]["message"],
        )


def test_a_trace_of_others_is_shown_too(viewer: httpx.Client) -> None:
    """A trace without Clew has a page: what is not known is a dash, never zero."""
    page = viewer.get(f"/runs/{FOREIGN.run_id}")
    assert f"Rounds {UNKNOWN} Tool calls {UNKNOWN}" in words(page.text)
    assert None is viewer.get(f"/api/runs/{FOREIGN.run_id}").json()["run"]["rounds"]


def test_an_empty_store_says_how_to_begin(store_file: Path) -> None:
    """The first page names the endpoint to send to."""
    with start(port=0, store_path=store_file) as running:
        page = httpx.get(running.address, trust_env=False)
        assert f"OTEL_EXPORTER_OTLP_ENDPOINT={running.address}" in words(page.text)


def test_pages_are_small(viewer: httpx.Client) -> None:
    """The list with all the files that it names stays under 100 kB as transferred."""
    files = re.findall(r'"(/static/[^"]+)"', viewer.get("/").text)
    assert {"clew.css", "parts.css", "lists.css", "clew.js", "icon.svg"} == {
        each.split("?")[0].removeprefix("/static/") for each in files
    }
    answers = [viewer.get(path) for path in ("/", *files)]
    assert {200} == {each.status_code for each in answers}
    assert sum(int(each.headers["content-length"]) for each in answers) < 100_000


def test_every_file_belongs_to_a_page() -> None:
    """Templates name the files that there are, each at least once, and no others."""
    templates = "".join(each.read_text() for each in sorted((HERE / "templates").iterdir()))
    named = {
        f"{name}.{ending}"
        for call, ending in (("styles", "css"), ("scripts", "js"))
        for names in re.findall(rf"{{{{ {call}\(([^)]*)\)", templates)
        for name in re.findall(r'"([^"]+)"', names)
    }
    static = HERE / "static"
    found = {each.relative_to(static).as_posix() for each in static.rglob("*") if each.is_file()}
    assert {*named, "icon.svg"} == found


def test_files_are_kept_by_the_browser(viewer: httpx.Client) -> None:
    """A style sheet under the address of its version is asked for once; pages always are."""
    page = viewer.get("/")
    (address,) = re.findall(r'href="(/static/clew.css\?v=[0-9a-f]{12})"', page.text)
    for each in (address, address.replace("clew.css", "timeline/page.js")):
        assert "public, max-age=31536000, immutable" == viewer.get(each).headers["cache-control"]
    assert "no-store" == page.headers["cache-control"]
    assert "no-store" == viewer.get("/static/clew.css").headers["cache-control"]
