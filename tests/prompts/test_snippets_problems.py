"""Snippets and skills in files: what is wrong, and where it stands."""

# ruff: noqa: SIM300 - expected == actual, in this order
from __future__ import annotations

import builtins
from pathlib import Path
from typing import Any

import pytest
from snippet_files import problems, write

from clew.errors import ConfigurationError, MissingExtraError
from clew.prompts.files import FileRepository, scan


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
