"""Snippets, their tags and metadata, and what every repository of them does."""

# ruff: noqa: SIM300 - expected == actual, in this order
from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import asdict

from clew.errors import ConfigurationError, StoreError
from clew.prompts.files import FileRepository
from clew.prompts.forms import snippet_form, tag_forms
from clew.prompts.repository import MemoryRepository, Repository, tag_choices
from clew.prompts.skills import Skill, checksum
from clew.prompts.snippets import Snippet, parse_tags, unmatched
from clew.store.snippets import SqliteRepository

Make = Callable[..., Repository]


@pytest.fixture(params=["code", "files", "store"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Make:
    """Make a repository of snippets and skills, in each of the three ways."""

    def build(snippets: Sequence[Snippet] = (), skills: Sequence[Skill] = ()) -> Repository:
        if request.param == "code":
            return MemoryRepository(snippets, skills)
        if request.param == "files":
            file = tmp_path / "library.yaml"
            written: dict[str, Any] = {
                "snippets": [asdict(each) for each in snippets],
                "skills": [asdict(each) for each in skills],
            }
            file.write_text(yaml.safe_dump(written, allow_unicode=True), "utf-8")
            return FileRepository(file)
        stored = SqliteRepository(tmp_path / "data" / "clew.db")
        stored.put(snippets, skills)
        return stored

    return build


def identifiers(found: Sequence[Snippet]) -> list[str]:
    return [each.identifier for each in found]


# --- the entity -----------------------------------------------------------------------------------


def test_a_snippet_is_a_fragment_and_nothing_more():
    """It has these members with these defaults: no model parameters, versions or counters."""
    assert {
        "identifier": "nova",
        "name": "",
        "description": "",
        "text": "",
        "tags": "",
        "metadata": "",
        "active": True,
        "hidden": False,
        "sorting": 0,
        "data_class": "",
    } == asdict(Snippet(identifier="nova"))


@pytest.mark.parametrize("identifier", ["", "two words", "-x", "ä", "a\nb", "x" * 101, '"'])
def test_what_is_no_identifier_is_refused(identifier: str):
    """Identifiers become ids of blocks and leave the process: they are checked when it is made."""
    with pytest.raises(ConfigurationError, match="is no identifier"):
        Snippet(identifier=identifier)


def test_an_unknown_data_class_is_refused():
    """A misspelt class would let content pass where it must not."""
    assert "editor_content" == Snippet(identifier="a", data_class="editor_content").data_class
    with pytest.raises(ConfigurationError, match="data class 'secret' is unknown; give one of"):
        Snippet(identifier="a", data_class="secret")


def test_the_label_is_the_name_on_one_line():
    """Without a name it is the identifier; a line break in a name makes no second label."""
    assert "nova" == Snippet(identifier="nova", name=" \n").label
    assert "Nova SYSTEM:" == Snippet(identifier="nova", name="Nova\n SYSTEM:").label


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        ('{"voice": "nova"}', {"voice": "nova"}),
        ("", {}),
        ("  ", {}),
        ("{voice: nova}", {}),
        ('{"voice"', {}),
        ('["nova"]', {}),
        ('"nova"', {}),
        ("3", {}),
        ("null", {}),
        ("true", {}),
        ("[" * 200_000, {}),
        ('{"a":' * 200_000, {}),
    ],
)
def test_metadata_is_an_object_or_empty(metadata: str, expected: dict[str, Any]):
    """Whatever an editor typed, a program that asks gets an object."""
    assert expected == Snippet(identifier="a", metadata=metadata).metadata_dict()


@given(st.text())
def test_metadata_never_raises(metadata: str):
    """No text makes it raise or return anything but an object."""
    assert isinstance(Snippet(identifier="a", metadata=metadata).metadata_dict(), dict)


def test_metadata_is_a_new_object_each_time():
    """Who changes it changes their own."""
    snippet = Snippet(identifier="a", metadata='{"voice": "nova"}')
    snippet.metadata_dict()["voice"] = "echo"
    assert {"voice": "nova"} == snippet.metadata_dict()


# --- tags -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("csv", "expected"),
    [
        ("", ()),
        (" , ,,", ()),
        ("Persona, STYLE ,persona", ("persona", "style")),
        ("b,a,b", ("b", "a")),
        ("tone of voice", ("tone of voice",)),
        ("Straße,STRASSE", ("straße",)),
        (["a,b", " B ", "c"], ("a", "b", "c")),
    ],
)
def test_tags_are_normalised(csv: str | list[str], expected: tuple[str, ...]):
    """Lower case, trimmed, each once, in order; empty ones are left out."""
    assert expected == parse_tags(csv)


@given(st.lists(st.text(), max_size=8))
def test_parsing_tags_again_changes_nothing(tags: list[str]):
    """What was parsed is parsed: joined and parsed again it is the same, whatever the texts."""
    once = parse_tags(tags)
    assert once == parse_tags(", ".join(once))
    assert all(tag and tag == tag.strip() and "," not in tag for tag in once)
    assert len(once) == len({tag.casefold() for tag in once})


@given(st.lists(st.text(min_size=1), max_size=6), st.text())
def test_a_tag_matches_a_whole_token_and_nothing_else(tags: list[str], asked: str):
    """A snippet has a tag exactly if one of its comma-separated tokens is that word."""
    snippet = Snippet(identifier="a", tags=",".join(tags))
    tokens = {token.strip().casefold() for token in ",".join(tags).split(",")} - {""}
    assert (asked.strip().casefold() in tokens) is snippet.has_tag(asked)


@given(
    st.text()
    .filter(lambda text: text.strip() and "," not in text)
    # Unicode folds not every letter with its capital: the Turkish dotless i is one.
    .filter(lambda text: text.upper().casefold() == text.casefold())
)
def test_case_and_blanks_around_a_tag_do_not_matter(tag: str):
    """The tag that a snippet has is found in upper and lower case, and with blanks around it."""
    snippet = Snippet(identifier="a", tags=tag)
    assert snippet.has_tag(f" {tag.upper()}\t")
    assert snippet.has_tag(tag.lower())


def test_a_part_of_a_tag_matches_nothing():
    """`style` is not in `lifestyle`, wild cards are plain characters, and an empty tag is none."""
    snippet = Snippet(identifier="a", tags="lifestyle, tone_of_voice,")
    for asked in ("style", "life", "tone", "tone%", "tone of voice", "%", "_", "", " ", "a,b"):
        assert not snippet.has_tag(asked)


@pytest.mark.parametrize(
    ("tag", "code", "message"),
    [
        ("styel", "unknown_tag", "no snippet is tagged 'styel'; the nearest known tag is 'style'"),
        (
            "PERSONAS",
            "unknown_tag",
            "no snippet is tagged 'PERSONAS'; the nearest known tag is 'persona'",
        ),
        (
            "xyz",
            "unknown_tag",
            "no snippet is tagged 'xyz'; known tags are 'legacy', 'persona', 'style'",
        ),
        ("legacy", "unused_tag", "every snippet tagged 'legacy' is inactive, hidden or empty"),
    ],
)
def test_a_tag_without_snippets_has_an_explanation(tag: str, code: str, message: str):
    """The nearest known tag, else those that there are; or that its snippets are switched off."""
    known = [
        Snippet(identifier="a", tags="style,persona"),
        Snippet(identifier="b", tags="legacy", active=False),
    ]
    warning = unmatched(tag, known)
    assert (code, tag, message) == (warning.code, warning.subject, str(warning))


def test_an_explanation_names_at_most_eight_tags():
    """A warning stays one sentence however many tags there are; without any it says so."""
    many = [Snippet(identifier=f"s{number}", tags=f"t{number:02}") for number in range(20)]
    assert str(unmatched("qqqq", many)).endswith("'t06', 't07', ...")
    assert "no snippet is tagged 'q'; no snippet has a tag" == str(unmatched("q", []))


# --- repositories ---------------------------------------------------------------------------------


def test_snippets_come_by_sorting_then_name(make: Make):
    """All of them, inactive and hidden ones too, in one order everywhere."""
    kept = make(
        [
            Snippet(identifier="d", name="beta", sorting=1),
            Snippet(identifier="c", name="Zeta", sorting=-1, active=False),
            Snippet(identifier="b", name="Alpha", sorting=1, hidden=True),
            Snippet(identifier="a", name="beta", sorting=1),
        ]
    )
    assert ["c", "b", "a", "d"] == identifiers(kept.snippets())


def test_every_member_comes_back(make: Make):
    """Text of any length and script, tags, metadata and states are what was put in."""
    snippet = Snippet(
        identifier="Nova.2",
        name="Nova · später",
        description="Überall",
        text='Zeile 1\n\n  "Zeile 2" 🧵\t·\n---\nEnde',
        tags=" Persona,, STYLE",
        metadata='{"voice": "nova", "n": [1, 2.5, null]}',
        active=False,
        hidden=True,
        sorting=-7,
        data_class="internal_configuration",
    )
    assert [snippet] == list(make([snippet]).snippets())


def test_a_tag_query_asks_for_active_only(make: Make):
    """Hidden snippets are returned: leaving them out is for who makes a prompt."""
    kept = make(
        [
            Snippet(identifier="a", tags="Style"),
            Snippet(identifier="b", tags="lifestyle"),
            Snippet(identifier="c", tags="style", active=False),
            Snippet(identifier="d", tags="x, STYLE ", hidden=True),
        ]
    )
    assert ["a", "d"] == identifiers(kept.find_active_by_tag(" stYle "))
    for none in ("", "  ", "unheard of", "styl"):
        assert [] == kept.find_active_by_tag(none)


def test_ids_are_found_in_the_order_asked_for(make: Make):
    """By id only active ones, and existing ones in any state; unknown ids are passed over."""
    kept = make(
        [
            Snippet(identifier="a"),
            Snippet(identifier="B", hidden=True),
            Snippet(identifier="c", active=False),
        ]
    )
    asked = ["c", "gone", " b", "a", "A"]
    assert ["B", "a"] == identifiers(kept.find_by_ids(asked))
    assert ["c", "B", "a"] == identifiers(kept.find_existing_by_ids(asked))
    assert [] == kept.find_existing_by_ids([])
    found = kept.find("b")
    assert found is not None
    assert "B" == found.identifier
    assert kept.find("gone") is None


def test_tags_are_those_that_snippets_carry(make: Make):
    """Each once, in alphabetical order, of snippets in any state."""
    kept = make(
        [
            Snippet(identifier="a", tags="style, Persona"),
            Snippet(identifier="b", tags="STYLE, audience", active=False),
        ]
    )
    assert ("audience", "persona", "style") == kept.tags()


def test_a_form_offers_known_and_chosen_tags(make: Make):
    """A chosen tag that nobody carries any more stays on the list, once."""
    kept = make([Snippet(identifier="a", tags="style")])
    assert ("style",) == tag_choices(kept)
    assert ("style", "legacy") == tag_choices(kept, "Legacy, STYLE")


def test_a_form_stays_usable_without_its_repository(tmp_path: Path):
    """A store that cannot be read offers no tags of its own, and nothing is raised."""
    file = tmp_path / "clew.db"
    file.write_bytes(b"this is not a database, whatever its name says" * 10)
    broken = SqliteRepository(file)
    with pytest.raises(StoreError, match="is not a database of Clew"):
        broken.snippets()
    assert () == tag_choices(broken)
    assert ("legacy",) == tag_choices(broken, ["legacy"])


def test_skills_come_by_source_then_identifier(make: Make):
    """Every member comes back; one is found with its source, or where no other has its name."""
    skills = [
        Skill(identifier="pdf", source="zeta", body="z", checksum=checksum("z")),
        Skill(
            identifier="PDF",
            source="acme",
            name="PDF · lesen",
            description="d",
            body="# Titel\n\n🧵 lesen\n---\nEnde",
            trust="verified",
            checksum="0" * 64,
            enabled=False,
            orphaned=True,
            data_class="public_content",
        ),
        Skill(identifier="own"),
    ]
    kept = make(skills=skills)
    assert [skills[2], skills[1], skills[0]] == list(kept.skills())
    assert kept.find_skill("pdf") is None
    assert skills[1] == kept.find_skill(" acme#PDF ")
    assert skills[0] == kept.find_skill("ZETA#pdf")
    assert skills[2] == kept.find_skill(" own ")
    assert kept.find_skill("zeta#own") is None


def test_an_empty_repository_has_nothing(make: Make):
    """Without snippets and skills every question has an empty answer."""
    kept = make()
    assert ([], [], ()) == (list(kept.snippets()), list(kept.skills()), kept.tags())


def test_of_two_snippets_given_in_code_with_one_identifier_the_first_is_kept():
    """Identifiers that differ by case are the same."""
    kept = MemoryRepository([Snippet(identifier="a", text="1"), Snippet(identifier="A", text="2")])
    assert ["1"] == [each.text for each in kept.snippets()]


# --- forms ----------------------------------------------------------------------------------------


def test_the_form_of_a_snippet():
    """What the command line and the viewer say: units are named, undeclared is null."""
    snippet = Snippet(
        identifier="a", name="A", text="für", tags="B, a", metadata="[1]", hidden=True
    )
    assert {
        "identifier": "a",
        "name": "A",
        "description": "",
        "tags": ["b", "a"],
        "state": "hidden",
        "active": True,
        "hidden": True,
        "sorting": 0,
        "data_class": None,
        "bytes": 4,
        "metadata": {},
        "metadata_text": "[1]",
        "text": "für",
    } == snippet_form(snippet)


def test_the_form_of_tags_says_what_each_gets_into_a_prompt():
    """Hidden, inactive and empty snippets carry a tag and are not used by it."""
    known = [
        Snippet(identifier="a", tags="style", text="A"),
        Snippet(identifier="b", tags="style", text="B", hidden=True),
        Snippet(identifier="c", tags="style", text=" "),
        Snippet(identifier="d", tags="other", text="D", active=False),
    ]
    assert [
        {"tag": "other", "snippets": [], "carried_by": 1},
        {"tag": "style", "snippets": ["a"], "carried_by": 3},
    ] == tag_forms(known)
