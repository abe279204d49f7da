"""The prompt inspector in a real browser: minimap, copying, colours, keys."""

# ruff: noqa: SIM300 - expected == actual, in this order
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import sample_calls as calls
from contrast import CONTRAST
from msgspec.structs import replace

from clew.store.prompt_index import RecordStore
from clew.store.prompt_records import (
    PromptRecord,
    PromptRow,
    RecordedError,
    RecordedResponse,
    SystemPrompt,
)

Save = Callable[..., list[str]]
PALETTE = {
    "identity": (167, 139, 250),
    "contract": (148, 163, 184),
    "capabilities": (96, 165, 250),
    "knowledge": (52, 211, 153),
    "working": (251, 191, 36),
    "runtime": (251, 113, 133),
    "tools": (34, 211, 238),
}
STRIPS = """() => {
  const rail = document.getElementById("minimap").getBoundingClientRect();
  const reading = document.getElementById("reading");
  const top = reading.getBoundingClientRect().top - reading.scrollTop;
  const parts = [...reading.querySelectorAll("[data-part]")];
  return [...document.querySelectorAll(".strip")].map((strip, place) => {
    const at = strip.getBoundingClientRect();
    const part = parts[place].getBoundingClientRect();
    return {
      part: strip.dataset.part,
      strip: (at.top - rail.top) / rail.height,
      laid_out: (part.top - top) / reading.scrollHeight,
      height: at.height,
      share: (part.height / reading.scrollHeight) * rail.height,
    };
  });
}"""


@pytest.fixture
def save(served) -> Save:
    """Put calls into the store that is served; return their ids."""
    from clew.store.paths import store_path

    def keep(*records: tuple[PromptRow, PromptRecord | None]) -> list[str]:
        store = RecordStore(served.folder)
        store.save(records)
        store.close()
        return [each[0].request_id for each in records]

    assert store_path(served.folder).is_file()
    return keep


def open_call(page: Any, request_id: str) -> None:
    page.goto(f"/prompts/{request_id}")
    page.locator("#minimap .viewport").wait_for(state="attached")


def long_call() -> tuple[PromptRow, PromptRecord | None]:
    """A prompt with long lines, so that bytes and heights are far from proportional."""
    wide = ("wide", "knowledge", "volatile", "store", "word " * 2500 + "\n")
    tall = ("tall", "working", "volatile", "store", "x\n" * 250)
    return calls.call((*calls.PROMPT[:3], wide, tall, *calls.PROMPT[3:]))


def test_the_minimap_is_what_is_laid_out(page: Any, save: Save) -> None:
    """Each strip begins where its part begins, to a fraction of a pixel; small ones have 2 px."""
    (request_id,) = save(long_call())
    open_call(page, request_id)
    strips = page.evaluate(STRIPS)
    assert 20 <= len(strips)
    for each in strips:
        assert abs(each["strip"] - each["laid_out"]) < 0.0005
        assert abs(each["height"] - max(2, each["share"])) < 0.25
    for part in ("system", "tool definitions", "messages", "response", "search_orders", "tall"):
        assert part in {each["part"] for each in strips}
    # By bytes the wide block would be 25 times as long as the tall one.
    sizes = {each["part"]: each["height"] for each in strips}
    assert sizes["tall"] > sizes["wide"]


@pytest.mark.parametrize("depth", [0, 0.25, 0.5, 0.75, 1])
def test_the_indicator_does_not_drift(page: Any, save: Save, depth: float) -> None:
    """At five depths the box on the minimap covers exactly the part of the text on screen."""
    (request_id,) = save(long_call())
    open_call(page, request_id)
    found = page.evaluate(
        """async (depth) => {
          const reading = document.getElementById("reading");
          reading.scrollTop = depth * (reading.scrollHeight - reading.clientHeight);
          await new Promise(requestAnimationFrame);
          await new Promise(requestAnimationFrame);
          const rail = document.getElementById("minimap").getBoundingClientRect();
          const box = document.querySelector(".viewport").getBoundingClientRect();
          return {
            box: [(box.top - rail.top) / rail.height, (box.bottom - rail.top) / rail.height],
            screen: [
              reading.scrollTop / reading.scrollHeight,
              (reading.scrollTop + reading.clientHeight) / reading.scrollHeight,
            ],
            now: document.getElementById("minimap").getAttribute("aria-valuenow"),
          };
        }""",
        depth,
    )
    for box, screen in zip(found["box"], found["screen"], strict=True):
        assert abs(box - screen) < 0.0008
    assert str(round(100 * depth)) == found["now"]


@pytest.mark.parametrize("depth", [0.1, 0.35, 0.6, 0.9])
def test_what_is_clicked_is_on_screen(page: Any, save: Save, depth: float) -> None:
    """A click on the minimap brings the part under the pointer to the middle of the screen."""
    (request_id,) = save(long_call())
    open_call(page, request_id)
    rail = page.locator("#minimap").bounding_box()
    x, y = rail["x"] + rail["width"] / 2, rail["y"] + rail["height"] * depth
    strip = page.evaluate(
        """([x, y]) => document.elementsFromPoint(x, y).find((each) =>
            each.matches(".strip"))?.dataset.part""",
        [x, y],
    )
    page.mouse.click(x, y)
    on_screen = page.evaluate(
        """() => { const box = document.getElementById("reading").getBoundingClientRect();
          return [...document.querySelectorAll("#reading [data-part]")].filter((part) => {
            const at = part.getBoundingClientRect();
            return at.bottom > box.top && at.top < box.bottom;
          }).map((part) => part.dataset.part); }"""
    )
    assert strip in on_screen


def test_the_minimap_is_dragged_and_keyed(page: Any, save: Save) -> None:
    """Dragging scrolls along; arrows, pages, Home and End do when it has the focus."""
    (request_id,) = save(long_call())
    open_call(page, request_id)
    at = "document.getElementById('reading').scrollTop"
    rail = page.locator("#minimap").bounding_box()
    x = rail["x"] + rail["width"] / 2
    page.mouse.move(x, rail["y"] + 40)
    page.mouse.down()
    places = []
    for share in (0.3, 0.5, 0.7):
        page.mouse.move(x, rail["y"] + rail["height"] * share)
        places.append(page.evaluate(at))
    page.mouse.up()
    assert sorted(places) == places
    assert len(set(places)) == 3
    assert "minimap" == page.evaluate("document.activeElement.id")
    page.keyboard.press("Home")
    assert 0 == page.evaluate(at)
    page.keyboard.press("PageDown")
    assert page.evaluate(at) > 300
    page.keyboard.press("End")
    assert page.evaluate(
        """() => { const reading = document.getElementById("reading");
            return reading.scrollTop + reading.clientHeight >= reading.scrollHeight - 1; }"""
    )


def test_a_narrower_window_is_measured_anew(page: Any, save: Save) -> None:
    """Lines that wrap, and schemas that open, move the strips with them."""
    (request_id,) = save(long_call())
    open_call(page, request_id)
    before = {each["part"]: each["laid_out"] for each in page.evaluate(STRIPS)}
    page.set_viewport_size({"width": 1000, "height": 640})
    page.locator("summary", has_text="Schema").first.click()
    page.wait_for_timeout(150)
    after = page.evaluate(STRIPS)
    for each in after:
        assert abs(each["strip"] - each["laid_out"]) < 0.0008
    assert before != {each["part"]: each["laid_out"] for each in after}


def test_what_fits_has_no_indicator(page: Any, save: Save) -> None:
    """Where everything is on screen there is no box."""
    (request_id,) = save(calls.call(system=SystemPrompt(), tools=(), messages=[], parameters={}))
    page.set_viewport_size({"width": 1440, "height": 1400})
    open_call(page, request_id)
    assert page.locator(".viewport").is_hidden()
    assert page.locator("#minimap").is_visible()


def test_colours_are_in_the_theme(coloured_page: Any, save: Save) -> None:
    """Swatches, gauges and strips have the layer's colour, computed; unknown layers have one too."""
    (request_id,) = save(calls.call())
    open_call(coloured_page, request_id)
    colour = """(selector) => getComputedStyle(document.querySelector(selector)).{}"""
    for layer, rgb in PALETTE.items():
        expected = f"rgb({rgb[0]}, {rgb[1]}, {rgb[2]})"
        for selector in (f".strip.l-{layer}", f".swatch.l-{layer}"):
            assert expected == coloured_page.evaluate(colour.format("backgroundColor"), selector)
        if layer != "tools":
            assert expected == coloured_page.evaluate(
                colour.format("fill"), f".gauge rect.l-{layer}"
            )
    for look in ("other", "messages", "response", "divider"):
        value = coloured_page.evaluate(colour.format("backgroundColor"), f".strip.l-{look}")
        assert value not in ("rgba(0, 0, 0, 0)", "transparent")


def test_text_has_enough_contrast(coloured_page: Any, save: Save) -> None:
    """Every text of inspector and comparison has 4.5:1, in light and in dark."""
    one, two, three = save(
        calls.call(), calls.call(calls.PROMPT[1:], model="gpt-5"),
        calls.call(response=calls.broken(), input_tokens=None, output_tokens=None),
    )  # fmt: skip
    for path in (f"/prompts/{one}", f"/prompts/{three}", f"/prompts/{one}/diff/{two}"):
        coloured_page.goto(path)
        measured = coloured_page.evaluate(CONTRAST)
        assert measured["seen"] > 20
        assert [] == measured["poor"]


def test_both_handles_are_copied(browser: Any, served: Any, save: Save) -> None:
    """With a clipboard that is allowed, each button copies its line and says so."""
    (request_id,) = save(calls.call())
    context = browser.new_context(
        base_url=served.address, permissions=["clipboard-read", "clipboard-write"]
    )
    page = context.new_page()
    page.goto(f"/prompts/{request_id}")
    for place in (0, 1):
        button = page.locator(".handles .copy").nth(place)
        wanted = button.get_attribute("data-copy")
        button.click()
        button.and_(page.locator('[data-state="done"]')).wait_for()
        assert "copied" == button.inner_text()
        assert wanted == page.evaluate("navigator.clipboard.readText()")
    context.close()


@pytest.mark.parametrize(
    "break_it",
    [
        "Object.defineProperty(navigator, 'clipboard', { value: undefined })",
        "navigator.clipboard.writeText = () => Promise.reject(new Error('refused'))",
    ],
)
def test_a_refused_or_absent_clipboard_is_said(page: Any, save: Save, break_it: str) -> None:
    """Both buttons say that nothing was copied, and go back to what they were."""
    (request_id,) = save(calls.call())
    page.add_init_script(break_it)
    page.goto(f"/prompts/{request_id}")
    for place in (0, 1):
        button = page.locator(".handles .copy").nth(place)
        button.click()
        page.wait_for_function(
            "(place) => document.querySelectorAll('.handles .copy')[place].dataset.state", arg=place
        )
        assert "failed" == button.get_attribute("data-state")
        assert "not copied" == button.inner_text()
    page.wait_for_function(
        "() => [...document.querySelectorAll('.handles .copy')].every((b) => !b.dataset.state)"
    )
    assert "copy" == page.locator(".handles .copy").first.inner_text()


def test_calls_are_walked_by_key(page: Any, save: Save) -> None:
    """`j` and `k` open the next and the previous call, `n` the next part, Escape the timeline."""
    old, new = save(
        calls.call(run_id=None, message_id="walk"), calls.call(run_id=None, message_id="walk")
    )
    page.goto("/prompts?message=walk")
    assert f"clew prompt show {new[:8]}" in page.locator(".handles").inner_text()
    page.keyboard.press("j")
    page.wait_for_url(f"**/prompts/{old}?message=walk")
    page.keyboard.press("k")
    page.wait_for_url(f"**/prompts/{new}?message=walk")
    page.keyboard.press("n")
    page.keyboard.press("n")
    assert page.evaluate("document.getElementById('reading').scrollTop") > 0


def test_markup_that_was_recorded_is_text(page: Any, save: Save) -> None:
    """In prompt, tools, history, answer, errors and names nothing runs or becomes an element."""
    hostile = (
        "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"
    )
    tool = replace(
        calls.TOOLS[0], name=hostile, description=hostile, schema={hostile: {hostile: [hostile]}}
    )
    block = (hostile, hostile, hostile, hostile, f"{hostile}\n" * 40)
    part = {"type": "text", "content": hostile}
    call = {"type": "tool_call", "name": hostile, "id": hostile, "arguments": {hostile: hostile}}
    answered = RecordedResponse(text=hostile, error=RecordedError(type=hostile, code=hostile))
    one, two = (
        calls.call(
            (block, *blocks),
            run_id=None,
            message_id="hostile",
            tools=(tool,),
            parameters={hostile: hostile},
            messages=[{"role": hostile, "parts": [part, call, {"type": hostile}]}],
            response=answered,
            agent=hostile,
            model=hostile,
            provider=hostile,
            trigger=hostile,
            finish_reason=hostile,
        )
        for blocks in ((), (block,))
    )
    old, new = save(one, two)
    open_call(page, new)
    for key in ("n", "n", "n", "j", "k"):
        page.keyboard.press(key)
    page.locator("#minimap").hover()
    shown = page.locator("body").inner_text()
    assert shown.count("<img src=x") >= 8
    assert 0 == page.locator("img, body script").count()
    for path in (f"/prompts/{new}/diff/{old}", "/prompts?message=hostile"):
        page.goto(path)
        assert "<img src=x" in page.locator("body").inner_text()
        assert 0 == page.locator("img, body script").count()
    assert "owned" != page.title()


def test_the_inspector_needs_no_script(plain_page: Any, save: Save) -> None:
    """Text, index and comparison are there; what needs script is not shown broken."""
    old, new = save(calls.call(message_id="plain"), calls.call(message_id="plain"))
    plain_page.goto("/prompts?message=plain")
    assert "Rule number 30" in plain_page.locator("#reading").inner_text()
    assert plain_page.locator("#minimap").is_hidden()
    assert 0 == plain_page.locator(".copy:visible").count()
    plain_page.locator("#index li a").nth(1).click()
    assert plain_page.url.endswith(f"/prompts/{old}?message=plain")
    plain_page.goto(f"/prompts/{new}")
    plain_page.get_by_text("Compare with the call before").click()
    assert "identical" in plain_page.locator("main").inner_text()


def test_a_narrow_window_shows_everything(page: Any, save: Save) -> None:
    """On a phone the panes stand below each other and nothing is wider than the screen."""
    one, two = save(calls.call(), calls.call(calls.PROMPT[1:]))
    page.set_viewport_size({"width": 390, "height": 844})
    for path in (f"/prompts/{one}", f"/prompts/{one}/diff/{two}"):
        page.goto(path)
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.goto(f"/prompts/{one}")
    assert "Your parcel is in Tallinn." in page.locator("#reading").inner_text()


def test_the_inspector_is_small(page: Any, save: Save) -> None:
    """The page with all it needs is under 100 kB as transferred."""
    (request_id,) = save(calls.call())
    page.goto(f"/prompts/{request_id}")
    sizes = page.evaluate("() => performance.getEntries().map((each) => each.transferSize ?? 0)")
    assert 0 < sum(sizes) < 100_000


def test_from_the_timeline_and_back(page: Any, save: Save, send: Callable[..., None]) -> None:
    """`i` opens the call of the round whose details are open; Escape returns to that round."""
    run = calls.developing("99999999-0000-4000-8000-000000000099", rounds=2)
    send(run)
    span = next(each for each in run.spans if each.name.startswith("chat"))
    (request_id,) = save(calls.call(span_id=span.span_id, run_id=run.run_id, trace_id=run.trace_id))
    page.goto(f"/runs/{run.run_id}?span={span.span_id}#s-{span.span_id}")
    page.wait_for_selector("html[data-ready]", state="attached")
    page.keyboard.press("i")
    page.wait_for_url(f"**/prompts/{request_id}?run={run.run_id}")
    page.keyboard.press("Escape")
    page.wait_for_url(f"**/runs/{run.run_id}?span={span.span_id}#s-{span.span_id}")
