"""The timeline with script: long runs, filter, zoom, folding, keys, links, and news."""

# ruff: noqa: SIM300 - expected == actual, in this order
from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
import sample_messages
import sample_runs

from clew import semconv

Send = Callable[..., None]
READY = "html[data-ready]"
SHOWN = """() => [...document.querySelectorAll("tr.row")].map((row) => [
    row.id.slice(2), row.classList.contains("aside")])"""
LONG = 10_000


def long_run(spans: int = LONG) -> sample_runs.Sample:
    """A run of many rounds, tools and decisions; every 97th decision is a denial."""
    run = sample_runs.Sample()
    root = run.root("crawler", 0, spans * 10.0, **{semconv.RUN_STATUS: "completed"})
    number = 0
    while len(run.spans) < spans - 2:
        at = len(run.spans) * 10.0
        number += 1
        run.model(number, at, at + 9, root)
        denied = number % 97 == 0
        run.decide("tool", "deny" if denied else "allow", at + 9, root, "search", "by_rule")
        run.tool("search", at + 12, at + 18, root, "denied" if denied else "ok")
    run.mark("sealed", "crawler", spans * 10.0 + 5000, root)
    return run


@pytest.fixture(scope="module")
def long(served) -> sample_runs.Sample:
    """A run of ten thousand spans in the store."""
    run = long_run()
    sample_messages.send(served.address, run)
    return run


def open_run(page: Any, run: sample_runs.Sample, rest: str = "") -> None:
    page.goto(f"/runs/{run.run_id}{rest}")
    page.wait_for_selector(READY, state="attached")


def focused(page: Any) -> str:
    return page.evaluate("document.activeElement.closest('tr')?.id.slice(2) ?? ''")


def test_a_long_run_opens_quickly_and_in_little(page: Any, long: sample_runs.Sample) -> None:
    """Ten thousand spans: first rows within 2 s, under 100 kB for the page with all it needs."""
    shown: list[float] = []
    for _ in range(3):
        page.goto(f"/runs/{long.run_id}")
        shown.append(
            page.evaluate(
                "() => performance.getEntriesByType('navigation')[0].domContentLoadedEventEnd"
            )
        )
        page.wait_for_selector(READY, state="attached")
    assert min(shown) < 2000
    sizes = page.evaluate(
        """() => performance.getEntries().filter((each) => each.transferSize)
            .filter((each) => !each.name.includes("/api/")).map((each) => each.transferSize)"""
    )
    assert sum(sizes) < 100_000
    assert len(long.spans) + 1 == int(
        page.locator("table.spans").get_attribute("aria-rowcount") or 0
    )
    assert page.locator("tr.row").count() < 120


def test_a_long_run_scrolls_smoothly(page: Any, long: sample_runs.Sample) -> None:
    """While it scrolls a screen at a time, rows are always there and take few ms of script."""
    open_run(page, long)
    found = page.evaluate(
        """async () => {
          const empty = [], spent = [];
          const total = document.documentElement.scrollHeight - innerHeight;
          for (let each = 0; each < 120; each += 1) {
            scrollBy(0, 700);
            const before = performance.now();
            await new Promise(requestAnimationFrame);
            await new Promise((resolve) => setTimeout(resolve));
            spent.push(performance.now() - before);
            const middle = document.elementFromPoint(300, innerHeight / 2);
            if (!middle?.closest("tr.row")) empty.push(scrollY);
          }
          spent.sort((a, b) => a - b);
          return { empty, median: spent[60], total, at: scrollY };
        }"""
    )
    assert [] == found["empty"]
    assert 120 * 700 <= found["at"] + 1
    assert found["median"] < 100


def test_the_end_of_a_long_run_is_a_key_away(page: Any, long: sample_runs.Sample) -> None:
    """Home and End go to the first and last span, and the rows there are right."""
    open_run(page, long)
    page.keyboard.press("End")
    assert long.spans[-1].span_id == focused(page)
    assert page.locator(f"#s-{long.spans[-1].span_id}").is_visible()
    page.keyboard.press("Home")
    assert long.spans[0].span_id == focused(page)


def test_a_link_to_a_span_brings_it_into_view(page: Any, long: sample_runs.Sample) -> None:
    """A deep link shows its row and its details, wherever in the run it is."""
    span = long.spans[7_003]
    open_run(page, long, f"?span={span.span_id}#s-{span.span_id}")
    row = page.locator(f"#s-{span.span_id}")
    box = row.bounding_box()
    assert box is not None
    assert 0 < box["y"] < 900
    assert "selected" in (row.get_attribute("class") or "")
    assert span.span_id in page.locator("#panel").inner_text()


def test_what_stays_at_the_top_covers_nothing(page: Any, long: sample_runs.Sample) -> None:
    """Filter and column heads stay on screen below each other; a row that is visited is below them."""
    open_run(page, long)
    for _ in range(3):
        page.keyboard.press("n")
    page.evaluate("scrollBy(0, 400)")
    page.keyboard.press("k")
    tools, heads = page.locator("#filter").bounding_box(), page.locator("thead th").first
    row = page.locator(f"#s-{focused(page)}").bounding_box()
    assert abs(tools["y"]) < 1
    assert abs(heads.bounding_box()["y"] - tools["height"]) < 1
    assert row["y"] >= tools["height"] + heads.bounding_box()["height"] - 1


def test_problems_are_a_key_apart(page: Any, long: sample_runs.Sample) -> None:
    """`n` and `p` walk denials and failures, around the end."""
    open_run(page, long)
    denied = [
        each.span_id for each in long.spans
        if "den" in str(each.attributes.get(semconv.DECISION_OUTCOME))
        or each.attributes.get(semconv.TOOL_OUTCOME) == "denied"
    ]  # fmt: skip
    for expected in denied[:3]:
        page.keyboard.press("n")
        assert expected == focused(page)
    page.keyboard.press("p")
    assert denied[1] == focused(page)
    page.keyboard.press("Home")
    page.keyboard.press("p")
    assert denied[-1] == focused(page)


def test_script_draws_what_the_server_draws(page: Any, plain_page: Any, send: Send) -> None:
    """A row that script made has the words, the classes and the bar of one that the server made."""
    run = sample_runs.triage()
    send(run)
    rows = """() => [...document.querySelectorAll("tr.row")].map((row) => ({
        text: row.innerText.replace(/\\s+/g, " ").trim(),
        classes: [...row.classList].sort(),
        bar: (({ x, width }) => [Math.round(x * 2), Math.round(width * 2)])(
            row.querySelector(".bar, .mark").getBoundingClientRect()),
        name: Math.round(row.querySelector(".whole").getBoundingClientRect().x),
        link: row.querySelector(".whole").getAttribute("href").split("#")[1],
    }))"""
    open_run(page, run)
    plain_page.goto(f"/runs/{run.run_id}")
    made, sent = page.evaluate(rows), plain_page.evaluate(rows)
    for one, other in zip(made, sent, strict=True):
        assert other["text"] == one["text"]
        assert other["classes"] == one["classes"]
        assert other["link"] == one["link"]
        assert other["name"] == one["name"]
        for here, there in zip(one["bar"], other["bar"], strict=True):
            assert abs(here - there) <= 2


@pytest.mark.parametrize(
    ("asked", "words", "outcome"),
    [("?q=fetch", "fetch", ""), ("?outcome=problem", "", "problem"), ("?q=nothing", "nothing", "")],
)
def test_the_filter_agrees_with_the_server(
    page: Any, plain_page: Any, send: Send, asked: str, words: str, outcome: str
) -> None:
    """Typing shows the same rows as a form that is sent, and the address says what is shown."""
    run = sample_runs.triage()
    send(run)
    plain_page.goto(f"/runs/{run.run_id}{asked}")
    open_run(page, run)
    page.locator("#q").fill(words)
    page.locator("#outcome").select_option(outcome)
    assert plain_page.evaluate(SHOWN) == page.evaluate(SHOWN)
    assert page.url.endswith(f"/runs/{run.run_id}{asked}")
    page.reload()
    page.wait_for_selector(READY, state="attached")
    assert plain_page.evaluate(SHOWN) == page.evaluate(SHOWN)
    assert (words == "nothing") == page.locator("#none").is_visible()
    page.locator("#clear").click()
    assert len(run.spans) == page.locator("tr.row").count()


def test_ten_thousand_spans_are_filtered_at_once(page: Any, long: sample_runs.Sample) -> None:
    """Finding text in a long run takes no round trip."""
    open_run(page, long)
    page.locator("#q").fill("execute_tool")
    tools = [each for each in long.spans if each.name.startswith("execute_tool")]
    assert f"{len(tools)} of {len(long.spans)}" == page.locator("#found").inner_text()


def test_branches_can_be_folded(page: Any, send: Send) -> None:
    """Left hides what is below a span, right shows it; a click on the mark does both."""
    run = sample_runs.triage()
    send(run)
    open_run(page, run)
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowLeft")
    assert 1 == page.locator("tr.row").count()
    assert run.spans[0].span_id == focused(page)
    page.keyboard.press("ArrowRight")
    assert len(run.spans) == page.locator("tr.row").count()
    delegate = next(each for each in run.spans if each.name == "execute_tool delegate")
    twist = page.locator(f"#s-{delegate.span_id} .twist")
    assert "true" == twist.get_attribute("aria-expanded")
    twist.click()
    assert len(run.spans) - 3 == page.locator("tr.row").count()
    assert "false" == page.locator(f"#s-{delegate.span_id} .twist").get_attribute("aria-expanded")
    assert page.locator("#panel").is_hidden()


def test_the_axis_can_be_zoomed(page: Any, send: Send) -> None:
    """`f` fits a span, `0` shows all; keys, buttons and a drag on the axis zoom."""
    run = sample_runs.triage()
    send(run)
    open_run(page, run)
    search = next(each for each in run.spans if each.name == "execute_tool search_orders")
    bar = page.locator(f"#s-{search.span_id} .bar")
    lane = page.locator(f"#s-{search.span_id} .lane").bounding_box()["width"]
    whole = bar.bounding_box()["width"]
    page.locator(f"#s-{search.span_id} .whole").focus()
    page.keyboard.press("f")
    assert bar.bounding_box()["width"] > 0.6 * lane
    assert "ms" in page.locator(".ticks").inner_text()
    head = page.locator("thead th").first.bounding_box()
    assert head["y"] >= page.locator("#filter").bounding_box()["y"]
    page.keyboard.press("0")
    assert abs(whole - bar.bounding_box()["width"]) < 0.5
    page.keyboard.press("+")
    twice = bar.bounding_box()["width"]
    assert twice > 1.5 * whole
    page.locator("#out").click()
    assert bar.bounding_box()["width"] < twice
    page.locator("#all").click()
    box = page.locator(".ticks").bounding_box()
    page.mouse.move(box["x"] + box["width"] * 0.2, box["y"] + 8)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.4, box["y"] + 8, steps=4)
    page.mouse.up()
    assert bar.bounding_box()["width"] > 2.5 * whole
    assert 0 == page.locator(".brush").count()
    page.keyboard.press("]")
    page.keyboard.press("[")
    page.keyboard.press("0")
    assert abs(whole - bar.bounding_box()["width"]) < 0.5


def test_what_is_on_screen_fills_the_axis(page: Any, long: sample_runs.Sample) -> None:
    """In the middle of a long run bars are slivers; `v` zooms to the rows that are seen."""
    span = long.spans[5_001]
    open_run(page, long, f"?span={span.span_id}#s-{span.span_id}")
    page.keyboard.press("Escape")
    bar = page.locator(f"#s-{long.spans[5_002].span_id} .bar")
    lane = page.locator(f"#s-{span.span_id} .lane").bounding_box()["width"]
    assert bar.first.bounding_box()["width"] < 0.01 * lane
    page.locator("#screen").click()
    assert bar.first.bounding_box()["width"] > 0.01 * lane
    page.keyboard.press("0")
    assert bar.first.bounding_box()["width"] < 0.01 * lane
    page.keyboard.press("v")
    assert bar.first.bounding_box()["width"] > 0.01 * lane


def test_keys_are_told(page: Any, send: Send) -> None:
    """`?` opens the list of keys; Escape closes it and nothing else; typing is no command."""
    run = sample_runs.failed()
    send(run)
    open_run(page, run)
    page.keyboard.press("?")
    assert page.locator("#help").is_visible()
    page.keyboard.press("Escape")
    assert page.locator("#help").is_hidden()
    page.keyboard.press("/")
    page.keyboard.type("jkn?0")
    assert "jkn?0" == page.locator("#q").input_value()
    assert page.locator("#help").is_hidden()
    page.locator("#q").fill("chat")
    page.keyboard.press("ArrowDown")
    assert run.spans[-1].span_id == focused(page)


def test_a_run_that_goes_on_is_followed_to_its_seal(page: Any, send: Send) -> None:
    """New rows, totals and the end appear without a reload; after the seal nothing is asked."""
    run = sample_runs.running()
    send(run)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    open_run(page, run)
    assert "live" == page.locator("#live-words").inner_text()
    page.locator(f"#s-{run.spans[1].span_id} .whole").click()
    page.wait_for_selector("#panel .details")
    root = sample_runs.Sent(run, "9" * 16, "", "", 0, 0, {})
    tool = run.tool("late_tool", 910, 990, root)
    send(run)
    page.locator(f"#s-{tool.span_id}").wait_for(timeout=15_000)
    assert "1" == page.locator(".total", has_text="Tool calls").locator("dd").first.inner_text()
    assert "selected" in (page.locator(f"#s-{run.spans[1].span_id}").get_attribute("class") or "")
    ended = run.root("triage", 0, 1000, **{semconv.RUN_STATUS: "completed"})
    ended.span_id = "9" * 16
    run.mark("sealed", "triage", 6000, ended)
    send(run)
    page.locator(".chip", has_text="completed").wait_for(timeout=15_000)
    assert 0 == page.locator("#live").count()
    assert 0 == page.locator(".ongoing").count()
    before = len(asked)
    time.sleep(2.5)
    assert before == len(asked)


def test_a_sealed_run_asks_for_nothing_more(page: Any, send: Send) -> None:
    """A run that has ended is read once."""
    run = sample_runs.triage()
    send(run)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    open_run(page, run)
    before = len(asked)
    time.sleep(2.5)
    assert before == len(asked)


def test_denials_are_marked_beside_the_scroll_bar(page: Any, long: sample_runs.Sample) -> None:
    """The ruler has a mark where each denial is on the page; a click goes there."""
    open_run(page, long)
    denied = [
        place for place, each in enumerate(long.spans)
        if each.attributes.get(semconv.TOOL_OUTCOME) == "denied"
    ]  # fmt: skip
    marks = page.locator("#ruler rect")
    assert len(denied) <= marks.count() <= 2 * len(denied)
    box = marks.nth(marks.count() - 1).bounding_box()
    page.mouse.click(box["x"] + 2, box["y"] + 1)
    page.locator(f"#s-{long.spans[denied[-1]].span_id}").wait_for()
    # A run that is on screen has none.
    short = sample_runs.failed()
    sample_messages.send(page.url.split("/runs")[0], short)
    open_run(page, short)
    assert page.locator("#ruler").is_hidden()


def test_details_stay_in_reach_on_a_small_screen(page: Any, long: sample_runs.Sample) -> None:
    """Without room beside the rows details cover the lower half; the row stays above them."""
    page.set_viewport_size({"width": 420, "height": 800})
    span = long.spans[4_000]
    open_run(page, long, f"?span={span.span_id}#s-{span.span_id}")
    panel = page.locator("#panel").bounding_box()
    assert panel["y"] + panel["height"] == 800
    assert 300 < panel["y"]
    row = page.locator(f"#s-{span.span_id}").bounding_box()
    assert row["y"] + row["height"] <= panel["y"]
    for _ in range(12):
        page.keyboard.press("j")
    page.locator("#panel", has_text=long.spans[4_012].span_id).wait_for()
    row = page.locator(f"#s-{long.spans[4_012].span_id}").bounding_box()
    assert row["y"] + row["height"] <= page.locator("#panel").bounding_box()["y"]
    page.keyboard.press("Escape")
    assert page.locator("#panel").is_hidden()
