"""Configurations: reading them, and finding what they choose that is not there."""

# ruff: noqa: SIM300 - expected == actual, in this order
from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from clew.errors import ConfigurationError
from clew.prompts.checking import Finding, check, metadata_problem
from clew.prompts.composer import effective_system_prompt
from clew.prompts.configuration import Configuration
from clew.prompts.files import scan
from clew.prompts.repository import MemoryRepository
from clew.prompts.segments import Prompt
from clew.prompts.skills import Skill, checksum
from clew.prompts.snippets import Snippet


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages name files by short paths."""
    monkeypatch.chdir(tmp_path)


def write(name: str, text: str) -> Path:
    Path(name).write_text(text, "utf-8")
    return Path(name)


BASE = "provider: openai\nmodel: gpt-4o\n"


@pytest.mark.parametrize(
    ("tags", "expected"),
    [
        ("Persona, STYLE ,persona", ("persona", "style")),
        ("[Persona, ' style', STYLE, '', 'a, b']", ("persona", "style", "a", "b")),
        ("''", ()),
        ("[]", ()),
    ],
)
def test_tags_are_normalised(tags: str, expected: tuple[str, ...]):
    """Lower case, trimmed, each once, in order: as text or as a list."""
    read = Configuration.read(write("c.yaml", f"{BASE}snippet_tags: {tags}\n"))
    assert expected == read.snippet_tags


def test_a_file_is_a_configuration():
    """What is not said has its default; a block of text ends without its last line break."""
    path = write(
        "c.yaml",
        BASE
        + "prompt: |\n  You help.\n\n  Be kind.\nskills: [pdf]\nminimum_trust: verified\n"
        + "skill_bytes: 0\n",
    )
    read = Configuration.read(path)
    assert (
        Configuration(
            provider="openai",
            model="gpt-4o",
            prompt="You help.\n\nBe kind.",
            skills=("pdf",),
            minimum_trust="verified",
            skill_bytes=0,
        )
        == read
    )
    snippet = Snippet(identifier="a", name="A", text="x", tags="style")
    whole = read.model_copy(update={"snippet_tags": ("style",)})
    assert (
        "You help.\n\nBe kind.\n\nA:\nx"
        == effective_system_prompt(whole, MemoryRepository([snippet])).text
    )


def test_a_prompt_with_blocks_keeps_them():
    """Given in code; other values than text are refused."""
    own = Prompt.of([("identity_context", "You are Nova.")])
    kept = Configuration(provider="openai", model="gpt-4o", prompt=own)
    assert own is kept.prompt
    with pytest.raises(ValidationError):
        Configuration.model_validate({"provider": "openai", "model": "gpt-4o", "prompt": 3})


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("provider: openai\nmodle: gpt-4o\n", "c.yaml:2: modle: is unknown; is it 'model'?"),
        (f"{BASE}xyzzy: 1\n", "c.yaml:3: xyzzy: is unknown"),
        (f"{BASE}minimum_trust: total\n", "c.yaml:3: minimum_trust: Input should be"),
        (f"{BASE}snippet_tags: 3\n", "c.yaml:3: snippet_tags: Input should be a valid tuple"),
        (
            f"{BASE}snippet_tags: [a, 3]\n",
            "c.yaml:3: snippet_tags.1: Input should be a valid string",
        ),
        (f"{BASE}identifier: two words\n", "c.yaml:3: identifier: Value error, configuration id"),
        (f"{BASE}prompt: 3\n", "c.yaml:3: prompt: Input should be a valid string"),
        (f"{BASE}model: x\n", "c.yaml:3: 'model' is there twice"),
        ("model: gpt-4o\n", "c.yaml:1: provider: Field required"),
        ("- a\n", "c.yaml:1: no configuration: give a mapping"),
        ("", "c.yaml:1: no configuration: give a mapping"),
        ("a: [\n", "c.yaml:2: no YAML: "),
    ],
)
def test_what_is_wrong_with_a_file_has_a_line(text: str, problem: str):
    """A misspelt member is told before the one that is missing because of it."""
    with pytest.raises(ConfigurationError) as raised:
        Configuration.read(write("c.yaml", text))
    assert str(raised.value).startswith(problem)


# --- checking -------------------------------------------------------------------------------------


def found(findings: tuple[Finding, ...]) -> list[tuple[str, str, str, bool]]:
    return [(each.code, each.where, each.message, each.problem) for each in findings]


def test_a_library_without_faults_has_no_findings():
    """Nor has a configuration that chooses what is there."""
    skill = Skill(identifier="pdf", body="Read.", checksum=checksum("Read."))
    kept = MemoryRepository([Snippet(identifier="a", text="A", tags="style")], [skill])
    path = write("c.yaml", f"{BASE}snippet_tags: STYLE\nskills: [pdf]\n")
    assert () == check(kept, [path])


def test_unknown_tags_and_skills_are_found_at_their_lines():
    """With the nearest one; a tag whose snippets are all off is a note."""
    kept = MemoryRepository(
        [
            Snippet(identifier="a", text="A", tags="style"),
            Snippet(identifier="b", text="B", tags="legacy", active=False),
        ],
        [Skill(identifier="pdf", source="acme", body="x", checksum=checksum("x"))],
    )
    path = write("c.yaml", f"{BASE}snippet_tags: styel, legacy\nskills: [pfd]\n")
    assert [
        (
            "unknown_tag",
            "c.yaml:3",
            "no snippet is tagged 'styel'; the nearest known tag is 'style'",
            True,
        ),
        (
            "unused_tag",
            "c.yaml:3",
            "every snippet tagged 'legacy' is inactive, hidden or empty",
            False,
        ),
        ("unknown_skill", "c.yaml:4", "there is no skill 'pfd'; the nearest one is 'pdf'", True),
    ] == found(check(kept, [path]))


def test_a_broken_configuration_is_a_finding_and_the_others_are_checked():
    """Each file has its own."""
    kept = MemoryRepository([Snippet(identifier="a", text="A", tags="style")])
    paths = [write("a.yaml", "modle: x\n"), write("b.yaml", f"{BASE}snippet_tags: x\n")]
    assert [
        ("configuration", "a.yaml:1", "modle: is unknown; is it 'model'?", True),
        ("unknown_tag", "b.yaml:3", "no snippet is tagged 'x'; known tags are 'style'", True),
        ("configuration", "gone.yaml", "cannot be read: No such file or directory", True),
    ] == found(check(kept, [*paths, Path("gone.yaml")]))


def test_files_are_checked_whole():
    """Their own problems, metadata, checksums, and texts that are not there, each with its line."""
    path = write(
        "lib.yaml",
        "snippets:\n"
        "  - {identifier: a, text: A, metadata: '[1]'}\n"
        "  - {identifier: A, text: A}\n"
        "  - {identifier: b}\n"
        "  - {identifier: c, hidden: true}\n"
        "  - {identifier: d, textt: x}\n"
        "skills:\n"
        "  - {identifier: s, body: S}\n"
        "  - {identifier: t, body: T, checksum: abc}\n",
    )
    assert [
        ("file", "lib.yaml:6", "'textt' is unknown; is it 'text'?", True),
        ("file", "lib.yaml:3", "the snippet 'a' is there twice, first at lib.yaml:2", True),
        (
            "metadata",
            "lib.yaml:2",
            "the metadata of 'a' is no JSON object; programs see none",
            True,
        ),
        ("empty", "lib.yaml:4", "the snippet 'b' has no text", False),
        (
            "checksum",
            "lib.yaml:8",
            f"the skill 's' says no checksum and is not used; that of its text is {checksum('S')}",
            True,
        ),
        (
            "checksum",
            "lib.yaml:9",
            (
                "the skill 't' says another checksum and is not used; that of its text is "
                f"{checksum('T')}"
            ),
            True,
        ),
    ] == found(check(scan(path)))


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        ("", None),
        (" \n", None),
        ("{}", None),
        ('{"a": [1]}', None),
        ('{"a"', "is no JSON at character 4"),
        ("nova", "is no JSON at character 0"),
        ("[]", "is no JSON object"),
        ("null", "is no JSON object"),
        ("[" * 200_000, "is nested too deeply"),
    ],
)
def test_why_metadata_is_none(metadata: str, expected: str | None):
    """A program would see an empty object, and nobody would know why."""
    assert expected == metadata_problem(metadata)
    assert (expected is None) or {} == Snippet(identifier="a", metadata=metadata).metadata_dict()
