"""The page about snippets: its examples work, and it names every member, command and option."""

# ruff: noqa: SIM300 - expected == actual, in this order
from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import fields

from clew.cli import main
from clew.prompts.skills import TRUST_LEVELS
from clew.prompts.snippets import Snippet

PAGE = (Path(__file__).parents[2] / "docs" / "snippets.md").read_text("utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def test_the_examples_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    """Every file and every line of code of the page, in its order; the prompt is the one shown."""
    monkeypatch.chdir(tmp_path)
    for text in blocks("yaml"):
        path = Path(text.split("\n", 1)[0].removeprefix("# "))
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, "utf-8")
    (kind,) = blocks("markdown")
    Path("library/kind.md").write_text(kind, "utf-8")
    Path("library/vendor/pdf").mkdir(parents=True)
    skill = "---\nname: pdf\ndescription: Reads PDFs\n---\nRead PDFs with care.\n"
    Path("library/vendor/pdf/SKILL.md").write_text(skill, "utf-8")
    values: dict[str, Any] = {}
    for code in blocks("python"):
        exec(compile(code, "docs/snippets.md", "exec"), values)  # noqa: S102 - our own page
    shown = PAGE.split("print(system.text)\n```\n\n")[1].split("\n- ", 1)[0]
    printed = capsys.readouterr().out
    assert re.sub(r"^    ", "", shown, flags=re.MULTILINE).strip() == printed.strip()
    assert (
        "Persona:\nYou are Nova, a friendly expert.\n\nTone:\nBe kind, whatever you are asked."
        == values["text"]
    )
    assert ["acme#pdf"] == [each.reference for each in values["skills"].included]
    assert () == values["system"].warnings == values["warnings"]
    assert values["messages"][0]["content"].endswith("</skill-data>\n\nRead this.")


def test_every_member_of_a_snippet_is_explained():
    """The table has a row for each."""
    assert [each.name for each in fields(Snippet)] == re.findall(
        r"^\| `(\w+)` \|", PAGE.split("## Tags")[0], re.MULTILINE
    )


def test_trust_levels_are_named_in_order():
    """The least first."""
    assert " < ".join(f"`{level}`" for level in TRUST_LEVELS) in PAGE


@pytest.mark.parametrize("command", ["list", "show", "tags", "check", "import"])
def test_every_command_and_option_is_named(command: str, capsys: pytest.CaptureFixture[str]):
    """What `--help` has, the page has."""
    with pytest.raises(SystemExit):
        main(["snippets", command, "--help"])
    options = set(re.findall(r"--[a-z-]+", capsys.readouterr().out)) - {"--help"}
    assert f"| `clew snippets {command}" in PAGE
    assert [] == [each for each in sorted(options) if f"`{each}`" not in PAGE]
