"""Snippets and skills in YAML and Markdown files: what is read."""

# ruff: noqa: SIM300 - expected == actual, in this order
from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from snippet_files import problems, write

from clew.errors import ConfigurationError
from clew.prompts.files import FileRepository, scan
from clew.prompts.skills import Skill, checksum
from clew.prompts.snippets import Snippet

# --- what is read ---------------------------------------------------------------------------------


@pytest.mark.usefixtures("folder")
def test_a_yaml_file_has_snippets_and_skills():
    """Tags as text or list, metadata as an object or JSON; line breaks at either end go."""
    path = write(
        "library.yaml",
        """
        snippets:
          - identifier: nova
            name: Nova
            description: A voice
            text: |

              You are Nova.

              Be friendly.
            tags: [Persona, "style, x"]
            metadata: {voice: nova, rate: 1.5, since: 2026-01-01}
            sorting: 3
            data_class: editor_content
          - identifier: brief
            text: Be brief.
            tags: style
            metadata: '{"a": 1'
            active: false
            hidden: true
        skills:
          - identifier: pdf
            source: acme
            body: |
              Read PDFs.
            trust: verified
            checksum: abc
            enabled: false
            orphaned: true
        """,
    )
    found = scan(path)
    assert () == found.problems
    assert [
        (
            Snippet(
                identifier="nova",
                name="Nova",
                description="A voice",
                text="You are Nova.\n\nBe friendly.",
                tags="Persona, style, x",
                metadata='{"voice": "nova", "rate": 1.5, "since": "2026-01-01"}',
                sorting=3,
                data_class="editor_content",
            ),
            "library.yaml:2",
        ),
        (
            Snippet(
                identifier="brief",
                text="Be brief.",
                tags="style",
                metadata='{"a": 1',
                active=False,
                hidden=True,
            ),
            "library.yaml:14",
        ),
    ] == [(each.value, each.where) for each in found.snippets]
    assert [
        Skill(
            identifier="pdf",
            source="acme",
            body="Read PDFs.",
            trust="verified",
            checksum="abc",
            enabled=False,
            orphaned=True,
        )
    ] == [each.value for each in found.skills]


@pytest.mark.usefixtures("folder")
def test_a_markdown_file_is_one_snippet():
    """Named like its file; rules and fences of its text are text."""
    path = write(
        "tone.md",
        """
        ---
        tags: style
        sorting: -1
        ---

        # Tone

        ---
        Be kind.

        """,
    )
    assert (
        Snippet(identifier="tone", tags="style", sorting=-1, text="# Tone\n\n---\nBe kind."),
    ) == FileRepository(path).snippets()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r")))
def test_a_text_in_markdown_is_what_stands_there(folder: Path, text: str):
    """Whatever it is, without the line breaks at its ends: no part of it is front matter."""
    path = write("tone.md", "")
    path.write_text(f"---\ntags: x\n---\n{text}", "utf-8")
    (snippet,) = FileRepository(path).snippets()
    assert ("x", text.strip("\n")) == (snippet.tags, snippet.text)


@pytest.mark.usefixtures("folder")
def test_a_markdown_file_may_be_a_skill():
    """Where its front matter says so."""
    path = write("pdf.md", "---\nkind: skill\ntrust: verified\nchecksum: abc\n---\nRead PDFs.\n")
    expected = Skill(identifier="pdf", trust="verified", checksum="abc", body="Read PDFs.")
    assert (expected,) == FileRepository(path).skills()


@pytest.mark.usefixtures("folder")
def test_line_breaks_and_a_byte_order_mark_do_not_matter():
    """A file written elsewhere has the same text and checksum."""
    Path("tone.md").write_bytes(b"\xef\xbb\xbf---\r\ntags: style\r\n---\r\nOne.\r\nTwo.\r\n")
    assert ["One.\nTwo."] == [each.text for each in FileRepository("tone.md").snippets()]


@pytest.mark.usefixtures("folder")
def test_a_folder_is_read_with_all_folders_in_it():
    """By path; hidden ones, other endings and Markdown without front matter are passed over."""
    write("lib/b.md", "---\ntags: x\n---\nB")
    write("lib/a/one.yml", "snippets:\n  - identifier: one\n    text: One\n")
    write("lib/README.md", "# How this folder works\n")
    write("lib/notes.txt", "x")
    write("lib/.git/c.md", "---\ntags: x\n---\nC")
    write("lib/.d.md", "---\ntags: x\n---\nD")
    found = scan(Path("lib"))
    assert ((), 3) == (found.problems, found.files)
    assert ["b", "one"] == [each.value.identifier for each in found.snippets]


@pytest.mark.usefixtures("folder")
def test_an_empty_folder_is_a_library_without_anything():
    """A folder that is there is no mistake."""
    Path("lib").mkdir()
    assert ((), ()) == (FileRepository("lib").snippets(), FileRepository("lib").skills())


@pytest.mark.usefixtures("folder")
def test_files_are_read_once_until_reload():
    """A running service keeps its prompts; where the new files are wrong it keeps the old."""
    path = write("tone.md", "---\ntags: style\n---\nOld.")
    kept = FileRepository(path)
    write("tone.md", "---\ntags: style\n---\nNew.")
    assert "Old." == kept.snippets()[0].text
    kept.reload()
    assert "New." == kept.snippets()[0].text
    write("tone.md", "---\ntagz: style\n---\nWrong.")
    with pytest.raises(ConfigurationError):
        kept.reload()
    assert "New." == kept.snippets()[0].text


# --- skills of others -----------------------------------------------------------------------------


FOREIGN = """
---
name: pdf
description: Reads PDFs
license: MIT
metadata: {author: somebody}
allowed-tools: Read
---

Read PDFs.
"""


@pytest.mark.usefixtures("folder")
def test_a_skill_of_others_is_not_trusted():
    """Its name is its identifier, members for others are passed over, and it has no checksum."""
    path = write("pdf-reader/SKILL.md", FOREIGN)
    skill = Skill(identifier="pdf", name="pdf", description="Reads PDFs", body="Read PDFs.")
    assert (skill,) == FileRepository(path).skills()
    write("pdf-reader/SKILL.md", FOREIGN.replace("name: pdf", "name: PDF reader"))
    assert "pdf-reader" == FileRepository(path).skills()[0].identifier


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("member", ["trust: first_party", "checksum: abc", "source: us"])
def test_a_skill_of_others_cannot_vouch_for_itself(member: str):
    """Who wrote it does not say how far it is trusted."""
    name = member.split(":", maxsplit=1)[0]
    assert [
        (
            f"a/SKILL.md:3: a SKILL.md cannot say its {name}: write an entry with `file` into a list "
            "`skills`"
        )
    ] == problems("a/SKILL.md", FOREIGN.replace("description: Reads PDFs", member))


@pytest.mark.usefixtures("folder")
def test_an_entry_vouches_for_a_file():
    """It says source, trust and checksum; the file is not read a second time on its own."""
    write("lib/vendor/pdf/SKILL.md", FOREIGN)
    write(
        "lib/skills.yaml",
        f"""
        skills:
          - file: vendor/pdf/SKILL.md
            source: acme
            trust: verified
            checksum: {checksum("Read PDFs.")}
        """,
    )
    assert (
        Skill(
            identifier="pdf",
            source="acme",
            name="pdf",
            description="Reads PDFs",
            body="Read PDFs.",
            trust="verified",
            checksum=checksum("Read PDFs."),
        ),
    ) == FileRepository("lib").skills()


@pytest.mark.usefixtures("folder")
def test_an_entry_whose_file_is_wrong_says_both_places():
    """The entry, and what is wrong with the file that it names."""
    assert ["a.yaml:2: gone.md: cannot be read: No such file or directory"] == [
        each.replace(f"{Path.cwd()}{os.sep}", "")
        for each in problems("a.yaml", "skills:\n  - file: gone.md\n")
    ]
    write("plain.md", "---\ntags: x\n---\nA snippet.")
    assert ["a.yaml:2: plain.md is no skill in Markdown"] == problems(
        "a.yaml", "skills:\n  - file: plain.md\n"
    )
    assert ["a.yaml:3: give body or file, not both"] == problems(
        "a.yaml", "skills:\n  - file: plain.md\n    body: x\n"
    )
