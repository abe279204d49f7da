"""Snippets and skills in YAML and Markdown files: what is read, and what is said to be wrong."""

# ruff: noqa: SIM300 - expected == actual, in this order
from __future__ import annotations

import builtins
import os
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from clew.errors import ConfigurationError, MissingExtraError
from clew.prompts.files import FileRepository, scan
from clew.prompts.skills import Skill, checksum
from clew.prompts.snippets import Snippet


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is the current one, so that messages name files by short paths."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(name: str, text: str) -> Path:
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(dedent(text).lstrip("\n"), "utf-8")
    return path


def problems(name: str, text: str) -> list[str]:
    return list(scan(write(name, text)).problems)


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


# --- what is wrong --------------------------------------------------------------------------------


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("snippets:\n  - identifier: a\n    tagz: x\n", "3: 'tagz' is unknown; is it 'tags'?"),
        ("snippets:\n  - name: a\n", "2: identifier is missing"),
        ("snippets:\n  - identifier: a\n    text: 3\n", "3: text: give text"),
        ("snippets:\n  - identifier: 2026\n", "2: identifier: give text"),
        ("snippets:\n  - identifier: a\n    active: 1\n", "3: active: give true or false"),
        ("snippets:\n  - identifier: a\n    sorting: yes\n", "3: sorting: give a whole number"),
        (
            "snippets:\n  - identifier: a\n    tags:\n      - x\n      - 1\n",
            "3: tags: give text, or a list of texts",
        ),
        ("snippets:\n  - a\n", "2: give members, such as `identifier: ...`"),
        ("snippets: a\n", "1: snippets: give a list"),
        (
            "snippets:\n  - identifier: a\n    identifier: b\n",
            "3: 'identifier' is there twice",
        ),
        ("snippets: []\nsnippets: []\n", "2: 'snippets' is there twice"),
        (
            "snippets:\n  - identifier: [a\n",
            "3: no YAML: expected ',' or ']', but got '<stream end>'",
        ),
        ("snippets:\n  - text: a: b\n", "2: no YAML: mapping values are not allowed here"),
        ("a: !!python/object:os.system x\n", None),
        (
            "snippets:\n  - text: x\n    identifier: two words\n",
            (
                "3: snippet identifier 'two words' is no identifier: give at most 100 ASCII letters, "
                "digits and _ . : / @ + = ~ # -, without blanks"
            ),
        ),
        (
            "skills:\n  - identifier: a\n    trust: absolute\n",
            "3: trust: 'absolute' is unknown; give untrusted, community, verified, first_party",
        ),
        (
            "skills:\n  - identifier: a\n    source: a b\n",
            (
                "3: source identifier 'a b' is no identifier: give at most 100 ASCII letters, "
                "digits and _ . : / @ + = ~ # -, without blanks"
            ),
        ),
        (
            "snippets:\n  - identifier: a\n    data_class: x\n",
            (
                "3: data class 'x' is unknown; give one of: public_content, editor_content, "
                "source_code, internal_configuration, system_diagnostics, secret_adjacent"
            ),
        ),
        ("prompt: x\n", None),
        ("- identifier: a\n", None),
        ("", None),
        ("just text\n", None),
    ],
)
def test_a_problem_names_file_and_line(text: str, problem: str | None):
    """One problem for each wrong entry, at the line of the member that is wrong."""
    expected = (
        "1: no snippet file: give a list `snippets`, a list `skills`, or both, and nothing else"
    )
    if text.startswith("a: !!"):
        expected = (
            "1: no YAML: could not determine a constructor for the tag "
            "'tag:yaml.org,2002:python/object:os.system'"
        )
    assert [f"a.yaml:{problem or expected}"] == problems("a.yaml", text)


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("# No front matter\n", "1: no front matter: begin with a line `---`"),
        ("", "1: no front matter: begin with a line `---`"),
        ("---\ntags: x\n", "1: the front matter has no end: a line `---`"),
        ("---\n\ntags: x\nactiv: true\n---\n", "4: 'activ' is unknown; is it 'active'?"),
        ("---\ntags: x\ntags: y\n---\n", "3: 'tags' is there twice"),
        ("---\ntags: [x\n---\n", "3: no YAML: expected ',' or ']', but got '<stream end>'"),
        ("---\ntext: x\n---\n", "2: text: it stands below the front matter"),
        ("---\nkind: prompt\n---\n", "2: kind: give snippet or skill"),
        ("---\nkind: skill\nbody: x\ntrust: x\n---\n", None),
        ("---\n---\nText", "2: give members, such as `identifier: ...`"),
    ],
)
def test_a_problem_of_front_matter_counts_lines_of_the_file(text: str, problem: str | None):
    """The line is the one that an editor shows."""
    trust = "4: trust: 'x' is unknown; give untrusted, community, verified, first_party"
    assert [f"a.md:{problem or trust}"] == problems("a.md", text)


@pytest.mark.usefixtures("folder")
def test_all_problems_are_found_and_the_rest_is_read():
    """One wrong entry hides no other; a repository names the first and counts the rest."""
    write("lib/a.yaml", "snippets:\n  - identifier: a\n    x: 1\n  - identifier: b\n  - name: c\n")
    write("lib/b.yaml", "snippets: [\n")
    found = scan(Path("lib"))
    assert ["b"] == [each.value.identifier for each in found.snippets]
    assert ["lib/a.yaml:3", "lib/a.yaml:5", "lib/b.yaml:2"] == [
        each.split(": ")[0] for each in found.problems
    ]
    with pytest.raises(ConfigurationError) as raised:
        FileRepository("lib")
    assert str(raised.value).startswith("lib/a.yaml:3: 'x' is unknown; known are identifier, name")
    assert str(raised.value).endswith("(2 more: `clew snippets check --from`)")


@pytest.mark.usefixtures("folder")
def test_an_identifier_that_is_there_twice_is_a_problem():
    """Across files, without regard to case; it says where the first one stands."""
    write("lib/a.yaml", "snippets:\n  - identifier: Tone\nskills:\n  - identifier: x\n")
    write("lib/b/tone.md", "---\ntags: x\n---\nTone")
    write("lib/c.yaml", "skills:\n  - identifier: X\n  - {identifier: X, source: acme}\n")
    assert (
        "lib/b/tone.md:2: the snippet 'tone' is there twice, first at lib/a.yaml:2",
        "lib/c.yaml:2: the skill 'x' is there twice, first at lib/a.yaml:4",
    ) == scan(Path("lib")).problems


@pytest.mark.usefixtures("folder")
def test_what_is_no_file_of_ours_is_said_at_once():
    """Missing paths, other endings, text that is not UTF-8."""
    write("a.txt", "x")
    Path("b.yaml").write_bytes(b"snippets: \xff")
    assert ("gone: cannot be read: there is no such file or folder",) == scan(Path("gone")).problems
    assert ("a.txt: it is neither YAML nor Markdown: .yaml, .yml, .md",) == scan(
        Path("a.txt")
    ).problems
    assert ("b.yaml: it is not UTF-8: byte 10",) == scan(Path("b.yaml")).problems


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("text", ["[" * 5000, "&a [*a]", "snippets: &a [*a]", "{" * 5000])
def test_a_hostile_file_is_a_problem_and_no_crash(text: str):
    """Deep nesting and loops end in a message."""
    assert 1 == len(problems("a.yaml", text))


@pytest.mark.usefixtures("folder")
def test_metadata_that_loops_is_a_problem():
    """It has no JSON."""
    text = "snippets:\n  - identifier: a\n    metadata: &m {x: *m}\n"
    assert ["a.yaml:3: metadata: it has no JSON"] == problems("a.yaml", text)


@pytest.mark.usefixtures("folder")
def test_without_pyyaml_the_extra_is_named(monkeypatch: pytest.MonkeyPatch):
    """Files need the extra; snippets in code and in the store do not."""
    real = builtins.__import__

    def without(name: str, *rest: Any, **named: Any) -> Any:
        if name == "yaml":
            raise ImportError(name)
        return real(name, *rest, **named)

    path = write("a.yaml", "snippets: []\n")
    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MissingExtraError, match=r"pip install 'clew\[yaml\]'"):
        scan(path)
