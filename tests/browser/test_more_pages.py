"""Settings, snippets and the prompts of a run in a real browser."""

# ruff: noqa: SIM300 - expected == actual, in this order
from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import sample_calls as calls
from contrast import CONTRAST

from clew.prompts.skills import Skill
from clew.prompts.snippets import Snippet
from clew.recording import switch
from clew.store.paths import store_path
from clew.store.prompt_index import RecordStore
from clew.store.snippets import SqliteRepository

Send = Callable[..., None]


@pytest.fixture
def untouched(served: Any) -> Iterator[Any]:
    """The switch as nobody has touched it, before and after."""
    path = switch.path_of(served.folder)
    path.unlink(missing_ok=True)
    yield served
    path.unlink(missing_ok=True)


def test_the_switch_is_set_without_leaving_the_page(page: Any, untouched: Any) -> None:
    """Controls cannot be used while a write is pending; afterwards they show what is in force."""
    held: list[Any] = []
    page.route("**/settings", lambda route: (
        held.append(route) if route.request.method == "POST" else route.continue_()
    ))  # fmt: skip
    page.goto("/settings")
    page.get_by_label("On every model call is recorded").check()
    page.locator("select[name=retention_days]").select_option("14")
    page.locator("#save").click()
    page.locator("#state", has_text="Saving").wait_for()
    for control in ("#save", "select[name=retention_days]", "input[value=on]"):
        assert page.locator(control).is_disabled()
    held[0].continue_()
    page.locator("#state", has_text="Saved").wait_for()
    assert page.locator("#save").is_enabled()
    assert switch.Switch(enabled=True, retention_days=14) == switch.read(untouched.folder)
    assert page.url.endswith("/settings")


def test_after_a_failure_the_controls_show_what_is_in_force(page: Any, untouched: Any) -> None:
    """The reason stands beside the controls; what was chosen and not saved is gone."""
    page.goto("/settings")
    page.get_by_label("On every model call is recorded").check()
    page.evaluate("document.querySelector('[name=token]').value = 'forged'")
    page.locator("#save").click()
    page.locator("#state .bad", has_text="not one of this server").wait_for()
    page.wait_for_selector("#save:enabled")
    assert page.locator("input[value=off]").is_checked()
    assert not switch.path_of(untouched.folder).exists()
    assert all("403" in each for each in page.faults)  # the answer that was refused
    page.faults.clear()


def test_a_server_that_does_not_answer_is_said(page: Any, untouched: Any) -> None:
    """Without an answer the form says so, and can be used again."""
    page.route("**/settings", lambda route: (
        route.abort() if route.request.method == "POST" else route.continue_()
    ))  # fmt: skip
    page.goto("/settings")
    page.get_by_label("On every model call is recorded").check()
    page.locator("#save").click()
    page.locator("#state .bad").wait_for()
    page.wait_for_selector("#save:enabled")
    assert page.locator("input[value=off]").is_checked()
    page.faults.clear()


def test_the_switch_is_set_without_script(plain_page: Any, untouched: Any) -> None:
    """A plain form does the same."""
    plain_page.goto("/settings")
    plain_page.locator("input[value=on]").check()
    plain_page.locator("#save").click()
    assert plain_page.url.endswith("/settings?saved=1")
    assert "Saved" in plain_page.locator("#state").inner_text()
    assert switch.read(untouched.folder).enabled


@pytest.mark.parametrize("width", [1440, 390])
def test_all_pages_can_be_read(coloured_page: Any, served: Any, send: Send, width: int) -> None:
    """Contrast is enough in both schemes, and nothing is wider than a narrow screen."""
    run = calls.developing()
    send(run)
    SqliteRepository(store_path(served.folder)).put(
        [Snippet(identifier="nova", text="You are Nova.", tags="persona,style", name="Nova"),
         Snippet(identifier="off", text="x", tags="layout", active=False)],
        [Skill(identifier="pdf", source="acme", body="Read.", trust="verified")],
    )  # fmt: skip
    store = RecordStore(served.folder)
    store.save([calls.call()])
    store.close()
    coloured_page.set_viewport_size({"width": width, "height": 900})
    for path in (f"/runs/{run.run_id}/prompts", "/settings", "/snippets", "/snippets?tag=layout",
                 "/snippets/nova", "/skills/acme%23pdf", "/prompts?message=nobody"):  # fmt: skip
        coloured_page.goto(path)
        measured = coloured_page.evaluate(CONTRAST)
        assert measured["seen"] > 5
        assert [] == measured["poor"]
        assert coloured_page.evaluate("document.documentElement.scrollWidth") <= width


def test_pages_are_reached_by_the_keyboard(page: Any, served: Any) -> None:
    """From the skip link through the header to the content, in the order of reading."""
    page.goto("/settings")
    seen = []
    for _ in range(12):
        page.keyboard.press("Tab")
        seen.append(
            page.evaluate(
                "(({ activeElement: a }) => a.textContent.trim() || a.name || a.tagName)(document)"
            )
        )
    assert "Skip to content" == seen[0]
    order = [seen.index(each) for each in ("clew", "Runs", "Prompts", "Settings", "JSON", "Save")]
    assert sorted(order) == order


def test_the_chart_is_drawn_to_scale(page: Any, send: Send) -> None:
    """Columns stand beside each other, breaks are marked below them."""
    run = calls.developing()
    send(run)
    page.goto(f"/runs/{run.run_id}/prompts")
    boxes = page.locator(".chart > svg:first-of-type g").evaluate_all(
        """groups => groups.map((group) => {
            const tops = [...group.querySelectorAll("rect")].map((r) => r.getBoundingClientRect());
            return [tops[0].left, Math.min(...tops.map((r) => r.top))]; })"""
    )
    assert 8 == len(boxes)
    assert sorted(boxes) == boxes
    # Round 8 has the largest prompt but one without the status: its column is the highest.
    assert min(each[1] for each in boxes) == boxes[7][1]
    assert 7 == page.locator(".marks rect").count()
