"""The playground in a real browser: ask, look at the steps, go on to the timeline."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from contrast import CONTRAST

import clew
from clew.cli.play import scripted
from clew.web.play import Playground
from clew.web.server import start

EXAMPLE = Path(__file__).parents[2] / "docs" / "play-example.yaml"


@pytest.fixture
def playing(browser: Any, tmp_path: Path, scheme: str) -> Iterator[Any]:
    """A page of a server with a playground; what the console says fails the test."""
    with start(
        port=0,
        store_path=tmp_path / "clew.db",
        playground=Playground([EXAMPLE], scripted=scripted),
    ) as running:
        context = browser.new_context(
            viewport={"width": 1280, "height": 900}, base_url=running.address, color_scheme=scheme
        )
        page = context.new_page()
        faults: list[str] = []
        page.on("console", lambda message: faults.append(message.text))
        page.on("pageerror", lambda error: faults.append(str(error)))
        yield page
        context.close()
    clew.uninstrument()
    assert faults == []


def test_ask_and_look(playing: Any):
    """From the header to the form, to the steps of the run, to its timeline."""
    playing.goto("/")
    playing.get_by_role("link", name="Play", exact=True).click()
    playing.get_by_label("Question").fill("hello")
    playing.get_by_role("button", name="Run", exact=True).click()
    steps = playing.locator(".steps .word").all_inner_texts()
    assert steps == ["context", "request", "answer", "tool", "context", "request", "answer"]
    assert "leap year" in playing.locator(".answer").inner_text()
    assert playing.get_by_label("Question").input_value() == "hello"
    assert playing.evaluate(CONTRAST)["poor"] == []
    playing.get_by_role("link", name="timeline").click()
    playing.get_by_text("execute_tool is_leap_year").first.wait_for()


def test_a_dry_run_by_keyboard(playing: Any):
    """Everything can be reached without a mouse; the body that would be sent is shown."""
    playing.goto("/play")
    playing.get_by_label("Question").fill("hello")
    playing.keyboard.press("Tab")
    playing.keyboard.press("Enter")
    playing.get_by_label("Forced snippets").fill("formal")
    playing.get_by_role("button", name="Dry run").focus()
    playing.keyboard.press("Enter")
    playing.locator(".wire").wait_for()
    assert "Write as one writes to a stranger." in playing.locator(".wire").inner_text()
    assert playing.get_by_label("Forced snippets").input_value() == "formal"
