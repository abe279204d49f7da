"""The page on proof is true to the code."""

from __future__ import annotations

import hashlib
from pathlib import Path

from clew.audit.questions import QUESTIONS
from clew.integrity import COVERED

PAGE = Path(__file__).parents[2] / "docs" / "audit.md"


def listed() -> str:
    """Return the list of covered facts as the page should have it."""
    return "\n".join(f"{place}. `{key}`" for place, key in enumerate(COVERED))


def test_the_page_lists_what_digests_cover() -> None:
    """In order, with the numbers that stand in the encoding."""
    text = PAGE.read_text()
    body = text.split("<!-- covered -->")[1].split("<!-- /covered -->")[0].strip()
    assert body == listed()


def test_the_page_has_every_question() -> None:
    """Each with the command's own help."""
    text = PAGE.read_text()
    for question in QUESTIONS:
        assert f"| `clew audit {question.name}` |" in text


def test_the_first_version_stays_as_it_is() -> None:
    """A fact that moves would make every digest of before look altered."""
    digest = hashlib.sha256("\n".join(COVERED).encode()).hexdigest()
    assert digest == "107680cf51427fc5978ed326c381dea1dfd2b5d583816bfb6cc5767aabfb951b"
