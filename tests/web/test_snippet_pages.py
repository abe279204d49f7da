"""Pages about snippets and skills."""

# ruff: noqa: SIM300 - expected == actual, in this order
from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from page_text import words

from clew.prompts.skills import Skill, checksum
from clew.prompts.snippets import Snippet
from clew.sources.wording import UNKNOWN
from clew.store.snippets import SqliteRepository
from clew.web.server import start

SNIPPETS = (
    Snippet(identifier="nova", name="Nova", text="You are Nova. Grüße!", tags="persona, Style",
            metadata='{"owner": "desk"}', sorting=1),
    Snippet(identifier="shop/short", text="Be brief.", tags="style", sorting=2,
            data_class="editor_content", metadata="[1]"),
    Snippet(identifier="old", text="Old.", tags="layout", active=False),
    Snippet(identifier="away", text="Away.", tags="lifestyle", hidden=True),
)  # fmt: skip
SKILLS = (
    Skill(identifier="pdf", source="acme", name="PDF", body="Read it.", trust="verified",
          checksum=checksum("Read it."), description="Reads PDF."),
    Skill(identifier="odd", body="Changed.", checksum="0" * 64),
)  # fmt: skip


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "clew.db"


@pytest.fixture
def viewer(store: Path) -> Iterator[httpx.Client]:
    with (
        start(port=0, store_path=store) as running,
        httpx.Client(base_url=running.address, timeout=20, trust_env=False) as client,
    ):
        yield client


def test_an_empty_store_says_how_to_begin(viewer: httpx.Client) -> None:
    """Without snippets and skills there is a command."""
    assert "clew snippets import FOLDER" in words(viewer.get("/snippets").text)


def test_snippets_are_listed_in_their_order(viewer: httpx.Client, store: Path) -> None:
    """By sorting, then name; inactive and hidden ones say so; skills have their state."""
    SqliteRepository(store).put(SNIPPETS, SKILLS)
    page = viewer.get("/snippets").text
    found = re.findall(r'href="/snippets/([^"]+)"', page)
    assert ["away", "old", "nova", "shop/short"] == found
    shown = words(page)
    for expected in ("Nova nova persona style active 1", "old old layout inactive",
                     "away away lifestyle hidden", "shop/short", "editor_content",
                     "PDF pdf acme verified enabled", f"odd odd {UNKNOWN} untrusted changed"):  # fmt: skip
        assert expected in shown
    twin = viewer.get("/api/snippets").json()
    assert found == [each["identifier"] for each in twin["snippets"]]
    assert ["odd", "pdf"] == [each["identifier"] for each in twin["skills"]]
    assert "text" not in twin["snippets"][0]


def test_a_tag_is_a_whole_word(viewer: httpx.Client, store: Path) -> None:
    """`style` finds what carries it, whatever the case, and nothing of `lifestyle`."""
    SqliteRepository(store).put(SNIPPETS)
    for tag in ("style", " STYLE "):
        twin = viewer.get("/api/snippets", params={"tag": tag}).json()
        assert ["nova", "shop/short"] == [each["identifier"] for each in twin["snippets"]]
        assert None is twin["warning"]


def test_a_tag_that_chooses_nothing_says_why(viewer: httpx.Client, store: Path) -> None:
    """A slip of the pen is met with the nearest tag; snippets that are off are said to be."""
    SqliteRepository(store).put(SNIPPETS)
    shown = words(viewer.get("/snippets", params={"tag": "stile"}).text)
    assert "No snippet matches" in shown
    assert "the nearest known tag is 'style'" in shown
    assert "inactive, hidden or empty" in words(viewer.get("/snippets?tag=layout").text)


def test_one_snippet_is_shown_whole(viewer: httpx.Client, store: Path) -> None:
    """Text, tags, metadata; metadata that nothing can read is pointed out."""
    SqliteRepository(store).put(SNIPPETS, SKILLS)
    shown = words(viewer.get("/snippets/NOVA").text)
    assert "Nova active Snippet nova Sorting 1 Bytes 22 Tags persona style" in shown
    assert 'You are Nova. Grüße! Metadata { "owner": "desk" }' in shown
    assert "The metadata is no JSON object" in words(viewer.get("/snippets/shop/short").text)
    assert "desk" == viewer.get("/api/snippets/nova").json()["snippet"]["metadata"]["owner"]
    assert "Read it." in words(viewer.get("/skills/acme%23pdf").text)
    assert "verified" == viewer.get("/api/skills/acme%23pdf").json()["skill"]["trust"]
    listed = viewer.get("/snippets").text
    assert 'href="/skills/acme%23pdf"' in listed


@pytest.mark.parametrize("path", ["snippets/none", "skills/none", "snippets/..%2F..", "snippets/%"])
def test_what_is_not_there_is_404(viewer: httpx.Client, path: str) -> None:
    """Unknown ones, as page and as twin."""
    assert 404 == viewer.get(f"/{path}").status_code
    assert 404 == viewer.get(f"/api/{path}").status_code


def test_everything_is_escaped(viewer: httpx.Client, store: Path) -> None:
    """Markup in names, texts and tags is text."""
    hostile = "<img src=x onerror=alert(1)>\"'{{7*7}}"
    SqliteRepository(store).put(
        [Snippet(identifier="x", name=hostile, description=hostile, text=hostile, tags=hostile,
                 metadata='{"<img>": "<img>"}')],
        [Skill(identifier="y", name=hostile, description=hostile, body=hostile, trust=hostile)],
    )  # fmt: skip
    for path in ("/snippets", "/snippets/x", "/skills/y", f"/snippets?tag={hostile}"):
        page = viewer.get(path)
        assert 200 == page.status_code
        assert "<img" not in page.text
        assert "{{7*7}}" in words(page.text)
