"""The page about cost, the search form and signing in, in a real browser."""

# ruff: noqa: SIM300 - expected == actual, in this order
from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import sample_runs
from contrast import CONTRAST

from clew.web.server import Running, start
from clew.web.tokens import Entry, StaticTokens, add

RUN = sample_runs.triage("c0570000-0000-4000-8000-000000000001")
DAYS = "first=2026-12-01&last=2026-12-03"
Send = Callable[..., None]


@pytest.fixture
def closed(tmp_path: Path) -> Iterator[tuple[Running, str]]:
    """A server that asks who is there, and a token for it."""
    file = tmp_path / "tokens.json"
    token = add(file, Entry(id="root", admin=True))
    path = tmp_path / "clew.db"
    with start(port=0, store_path=path, authenticator=StaticTokens(file)) as running:
        yield running, token


def test_costs_are_drawn(coloured_page: Any, send: Send) -> None:
    """Bars have their length and a colour of the theme; every text has enough contrast."""
    send(RUN, sample_runs.failed())
    page = coloured_page
    page.goto(f"/costs?{DAYS}")
    track = page.locator(".cost-by .cost-bar").first.bounding_box()
    fill = page.locator(".cost-by .cost-bar .fill").first.bounding_box()
    assert track["width"] == pytest.approx(fill["width"], abs=1)
    colours = page.evaluate(
        "() => ['.fill', '.track'].map((each) => "
        "getComputedStyle(document.querySelector('.cost-days ' + each)).fill)"
    )
    assert "rgb(0, 0, 0)" not in colours
    assert len(set(colours)) == 2
    assert [] == page.evaluate(CONTRAST)["poor"]
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_the_list_is_searched_without_script(plain_page: Any, send: Send) -> None:
    """The fields behind "More" open, take a value and lead to the runs that have it."""
    send(RUN)
    page = plain_page
    page.goto("/")
    assert not page.locator("input[name=tool]").is_visible()
    page.locator("summary", has_text="More").click()
    page.locator("input[name=tool]").fill("refund_payment")
    page.locator("input[name=gate]").fill("tool")
    page.locator("select[name=outcome]").select_option("deny")
    page.keyboard.press("Tab")
    page.get_by_role("button", name="Apply").click()
    assert page.locator(f'a[href="/runs/{RUN.run_id}"]').is_visible()
    assert "refund_payment" == page.locator("input[name=tool]").input_value()
    page.goto("/?tool=nothing-of-this-name")
    assert page.get_by_text("No run matches").is_visible()


def test_the_form_has_enough_contrast(coloured_page: Any, send: Send) -> None:
    """With all its fields open."""
    send(RUN)
    coloured_page.goto("/?tool=search_orders")
    assert [] == coloured_page.evaluate(CONTRAST)["poor"]


@pytest.mark.parametrize("script", [True, False])
def test_signing_in_with_the_keyboard(
    browser: Any, closed: tuple[Running, str], scheme: str, script: bool
) -> None:
    """The field has the focus; a wrong token is told, the right one leads on; then out again."""
    running, token = closed
    context = browser.new_context(
        base_url=running.address, color_scheme=scheme, java_script_enabled=script
    )
    page = context.new_page()
    page.goto("/costs")
    assert page.url.endswith("/login?next=%2Fcosts")
    assert "token" == page.evaluate("document.activeElement.id")
    page.keyboard.type("clew_wrong")
    page.keyboard.press("Enter")
    page.get_by_role("alert").wait_for()
    if script:
        assert [] == page.evaluate(CONTRAST)["poor"]
    page.locator("#token").fill(token)
    page.keyboard.press("Enter")
    page.wait_for_url("**/costs")
    assert "" == page.evaluate("document.cookie")
    page.get_by_role("button", name="Sign out").click()
    page.wait_for_url("**/login")
    page.goto("/")
    assert "/login" in page.url
    context.close()
