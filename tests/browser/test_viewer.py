"""The viewer in a real browser."""

# ruff: noqa: SIM300 - expected == actual, in this order
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import sample_runs
from contrast import CONTRAST

from clew import semconv
from clew.sources.wording import UNKNOWN
from clew.web.timeline import ROWS_AT_ONCE

START = sample_runs.START_NS
Send = Callable[..., None]


def rows(page: Any) -> list[dict[str, Any]]:
    """What a reader sees of the timeline, top to bottom."""
    return page.evaluate(
        """() => [...document.querySelectorAll("tr.row")]
            .filter((row) => row.offsetParent)
            .map((row) => ({
                id: row.id, top: row.getBoundingClientRect().top, text: row.innerText,
                bar: row.querySelector(".bar, .mark").getBoundingClientRect().toJSON(),
            }))"""
    )


def test_the_list_leads_to_every_run(page: Any, send: Send) -> None:
    """All runs are on the first page, newest first, and each opens its timeline."""
    runs = [sample_runs.triage(base_ns=START + each * 10**9) for each in range(3)]
    runs.append(sample_runs.failed(base_ns=START + 4 * 10**9))
    send(*runs)
    page.goto("/?limit=1000")
    shown = page.locator("table.list tbody a.whole").evaluate_all(
        "links => links.map((each) => each.getAttribute('href'))"
    )
    expected = [f"/runs/{run.run_id}" for run in reversed(runs)]
    assert expected == [each for each in shown if each in expected]
    page.locator(f"a[href='/runs/{runs[0].run_id}']").click()
    page.wait_for_url(f"**/runs/{runs[0].run_id}")
    assert "triage" == page.locator("h1").inner_text()


def test_the_timeline_shows_every_span_in_order(page: Any, send: Send) -> None:
    """Rows follow the sequence, and bars lie left to right as their spans began."""
    run = sample_runs.triage()
    send(run)
    page.goto(f"/runs/{run.run_id}")
    shown = rows(page)
    assert [f"s-{each.span_id}" for each in run.spans] == [each["id"] for each in shown]
    assert sorted(each["top"] for each in shown) == [each["top"] for each in shown]
    for row, span in zip(shown, run.spans, strict=True):
        assert span.name in row["text"]
        assert row["bar"]["width"] >= 1
    starts = [each["bar"]["left"] + (each["bar"]["width"] / 2 if "decide" in each["text"] else 0)
              for each in shown]  # fmt: skip
    for (left, one), (right, other) in zip(
        zip(starts, run.spans, strict=True),
        list(zip(starts, run.spans, strict=True))[1:],
        strict=False,
    ):
        if other.start_ms - one.start_ms > 50:
            assert left < right


def test_spans_are_nested_under_their_parents(page: Any, send: Send) -> None:
    """A child's name is further to the right than its parent's, its bar inside the parent's."""
    run = sample_runs.triage()
    send(run)
    page.goto(f"/runs/{run.run_id}")
    page.wait_for_selector("html[data-ready]", state="attached")  # rows are made anew until then
    places = {
        span.span_id: page.locator(f"#s-{span.span_id}").evaluate(
            """(row) => ({
                name: row.querySelector(".whole").getBoundingClientRect().left,
                bar: row.querySelector(".bar, .mark").getBoundingClientRect().toJSON(),
            })"""
        )
        for span in run.spans
    }
    by_id = {each.span_id: each for each in run.spans}
    for span in run.spans:
        if span.parent_id:
            inner, outer = places[span.span_id], places[span.parent_id]
            assert inner["name"] > outer["name"]
            long = span.end_ms - span.start_ms > 100
            if long and by_id[span.parent_id].end_ms >= span.end_ms:
                assert inner["bar"]["left"] >= outer["bar"]["left"] - 2
                assert inner["bar"]["right"] <= outer["bar"]["right"] + 2


def test_details_open_beside_the_timeline(page: Any, send: Send) -> None:
    """A click shows a span's attributes and a link to it; Escape closes them again."""
    run = sample_runs.triage()
    send(run)
    denied = next(
        each for each in run.spans if each.attributes.get(semconv.DECISION_OUTCOME) == "deny"
    )
    page.goto(f"/runs/{run.run_id}")
    assert page.locator("#panel").is_hidden()
    page.locator(f"#s-{denied.span_id}").click()
    page.wait_for_selector("#panel .details")
    assert "trust_zone" in page.locator("#panel").inner_text()
    assert page.url.endswith(f"/runs/{run.run_id}?span={denied.span_id}#s-{denied.span_id}")
    page.reload()
    assert "trust_zone" in page.locator("#panel").inner_text()
    page.keyboard.press("Escape")
    assert page.locator("#panel").is_hidden()
    assert page.url.endswith(f"/runs/{run.run_id}")


def test_the_timeline_is_used_by_keyboard_alone(page: Any, send: Send) -> None:
    """Tab reaches the skip link first; arrows walk the rows; Enter opens, and following rows show."""
    run = sample_runs.triage()
    send(run)
    page.goto(f"/runs/{run.run_id}")
    page.wait_for_selector("html[data-ready]", state="attached")
    page.keyboard.press("Tab")
    assert "Skip to content" == page.evaluate("document.activeElement.textContent")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    focused = "document.activeElement.closest('tr').id"
    assert f"s-{run.spans[1].span_id}" == page.evaluate(focused)
    page.keyboard.press("Enter")
    page.wait_for_selector("#panel .details")
    page.keyboard.press("j")
    page.locator("#panel h2", has_text="decide").wait_for()
    assert f"s-{run.spans[2].span_id}" == page.evaluate(focused)
    page.keyboard.press("k")
    assert f"s-{run.spans[1].span_id}" == page.evaluate(focused)


def test_types_of_spans_can_be_hidden(page: Any, send: Send) -> None:
    """Each entry of the legend hides its spans; the others stay."""
    run = sample_runs.triage()
    send(run)
    page.goto(f"/runs/{run.run_id}")
    page.locator("#show-foreign").uncheck()
    kept = [f"s-{each.span_id}" for each in run.spans if each.scope == semconv.SCOPE]
    assert kept == [each["id"] for each in rows(page)]
    page.locator("#show-foreign").check()
    assert len(run.spans) == len(rows(page))


def test_everything_works_without_script(plain_page: Any, send: Send) -> None:
    """List, timeline, details and hiding need no JavaScript."""
    run = sample_runs.triage()
    send(run)
    plain_page.goto("/")
    plain_page.locator(f"a[href='/runs/{run.run_id}']").click()
    assert len(run.spans) == plain_page.locator("tr.row").count()
    plain_page.locator(f"#s-{run.spans[3].span_id} a.whole").click()
    assert "gen_ai.usage.input_tokens" in plain_page.locator("#panel").inner_text()
    plain_page.locator("#show-tool").uncheck()
    assert 0 == plain_page.locator("tr.r-tool:visible").count()
    plain_page.locator("#panel a.close").click()
    assert plain_page.locator("#panel").is_hidden()


def test_markup_in_names_and_values_is_text(page: Any, send: Send) -> None:
    """Nothing that a sender writes runs or becomes an element; it is shown as it is."""
    hostile = (
        "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"
    )
    run = sample_runs.Sample(service=hostile)
    root = run.root(hostile, 0, 100, **{semconv.RUN_STATUS: "failed", semconv.ERROR_TYPE: hostile})
    root.name, root.status = hostile, 2
    root.events.append((hostile, 5, {hostile: hostile}))
    run.tool(hostile, 10, 20, root, hostile, **{hostile: hostile})
    run.decide(hostile, hostile, 30, root, hostile, hostile)
    send(run)
    page.goto("/")
    assert hostile in page.locator(f"a[href='/runs/{run.run_id}']").inner_text()
    page.goto(f"/runs/{run.run_id}")
    for span in run.spans:
        page.locator(f"#s-{span.span_id} a.whole").click()
        page.locator(f"#s-{span.span_id}.selected").wait_for()
        assert hostile in page.locator("#panel").inner_text()
    assert "owned" != page.title()
    assert 0 == page.locator("img, body script").count()


def test_a_script_that_got_in_would_not_run(page: Any, send: Send) -> None:
    """The policy forbids inline script, so a hole in escaping would still run nothing."""
    page.goto("/")
    refused = page.evaluate(
        """() => new Promise((resolve) => {
            document.addEventListener("securitypolicyviolation", (event) =>
                resolve(event.effectiveDirective));
            const script = document.createElement("script");
            script.textContent = "document.title = 'owned'";
            document.head.append(script);
            setTimeout(() => resolve("nothing was refused"), 2000);
        })"""
    )
    assert "script-src-elem" == refused
    assert "owned" != page.title()
    (told,) = page.faults
    assert "Content Security Policy" in told
    page.faults.clear()


@pytest.mark.parametrize("make", [sample_runs.triage, sample_runs.suspended, sample_runs.failed])
def test_text_and_marks_have_enough_contrast(coloured_page: Any, send: Send, make: Any) -> None:
    """Text has 4.5:1 and marks 3:1 against what is behind them, in light and in dark."""
    run = make()
    send(run)
    for address in ("/", f"/runs/{run.run_id}?span={run.spans[-1].span_id}", "/?agent=nobody"):
        coloured_page.goto(address)
        measured = coloured_page.evaluate(CONTRAST)
        assert measured["seen"] > 5
        assert [] == measured["poor"]


def test_narrow_windows_keep_everything_reachable(page: Any, send: Send) -> None:
    """On a small screen the page does not scroll sideways; the timeline does, in itself."""
    run = sample_runs.triage()
    send(run)
    page.set_viewport_size({"width": 420, "height": 800})
    for address in ("/", f"/runs/{run.run_id}"):
        page.goto(address)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_a_long_run_is_paged_without_script(plain_page: Any, send: Send) -> None:
    """A run of ten thousand spans is there within two seconds, a page at a time."""
    run = sample_runs.Sample()
    root = run.root("long", 0, 100_000)
    for number in range(9_999):
        run.tool(f"tool_{number % 7}", number * 10, number * 10 + 8, root)
    for first in range(0, 10_000, 2_500):
        part = sample_runs.Sample(run.run_id)
        part.spans = run.spans[first : first + 2_500]
        send(part)
    took: list[float] = []
    for _ in range(3):
        plain_page.goto(f"/runs/{run.run_id}", wait_until="load")
        took.append(
            plain_page.evaluate("performance.getEntriesByType('navigation')[0].loadEventEnd")
        )
    assert ROWS_AT_ONCE == plain_page.locator("tr.row").count()
    assert f"Spans 1{UNKNOWN}{ROWS_AT_ONCE} of 10000" in plain_page.locator(".pager").inner_text()
    assert min(took) < 2000
    plain_page.goto(f"/runs/{run.run_id}?span={run.spans[-1].span_id}")
    assert "10000" in plain_page.locator("tr.selected .seq").inner_text()
