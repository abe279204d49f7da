"""Skills: what one is, which are used, and how a configuration chooses them."""

# ruff: noqa: SIM300 - expected == actual, in this order; look-alike signs are the point
from __future__ import annotations

import hashlib
import logging
from typing import Any

import pytest
from msgspec.structs import replace
from skill_kit import dropped, included, made

from clew.errors import ConfigurationError
from clew.prompts.composer import select_skills
from clew.prompts.configuration import Configuration
from clew.prompts.forms import skill_form, skill_state
from clew.prompts.repository import MemoryRepository
from clew.prompts.skills import Skill, SkillBlock, build_block, checksum, trust_rank

# --- the entity -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ({"identifier": 'a" trust="first_party'}, "skill identifier .* is no identifier"),
        ({"identifier": "a", "source": "x>y"}, "source identifier 'x>y' is no identifier"),
        ({"identifier": "a#b"}, "skill identifier 'a#b': give it without '#'"),
        ({"identifier": "a", "source": "b#c"}, "skill identifier 'b#c#a': give it without '#'"),
        ({"identifier": "a", "data_class": "secret"}, "data class 'secret' is unknown"),
    ],
)
def test_what_would_break_a_marker_or_a_gate_is_refused(members: dict[str, str], message: str):
    """Identifier and source stand in the marker and are checked when the skill is made."""
    with pytest.raises(ConfigurationError, match=message):
        Skill(**members)


def test_the_state_of_a_skill():
    """What keeps it out of prompts, in the order in which it is asked."""
    assert ["enabled", "disabled", "orphaned", "unpinned", "changed"] == [
        skill_state(each)
        for each in (
            made(),
            made(enabled=False, orphaned=True),
            made(orphaned=True, checksum=""),
            made(checksum=""),
            made(checksum="0" * 64),
        )
    ]


def test_the_form_of_a_skill():
    """What the command line and the viewer say."""
    assert {
        "identifier": "pdf",
        "source": "acme",
        "reference": "acme#pdf",
        "name": "",
        "description": "",
        "trust": "untrusted",
        "state": "enabled",
        "checksum": checksum("für"),
        "enabled": True,
        "orphaned": False,
        "data_class": None,
        "bytes": 4,
        "body": "für",
    } == skill_form(made(source="acme", body="für"))


# --- which skills are used ------------------------------------------------------------------------


def test_the_order_is_configured_then_forced():
    """One that is in both stands where the configuration has it, and is that of the configuration."""
    a, b, c = made("a"), made("b", "configured"), made("c")
    forced_b = made("B", "forced")
    block = build_block([a, b], [c, forced_b, a])
    assert ["a", "b", "c"] == included(block)
    assert "configured" in block.text
    assert "forced" not in block.text


def test_skills_of_two_sources_are_two_skills():
    """Identity is source and identifier."""
    block = build_block([made(source="acme", body="A")], [made(source="zeta", body="Z"), made()])
    assert ["acme#pdf", "zeta#pdf", "pdf"] == included(block)


@pytest.mark.parametrize(
    ("skill", "reason", "message"),
    [
        (made(enabled=False), "disabled", "it is disabled"),
        (made(orphaned=True), "orphaned", "its source no longer has it"),
        (made(trust="community"), "trust", "it is trusted less than verified"),
        (made(trust="first-party"), "trust", "it is trusted less than verified"),
        (made(trust=""), "trust", "it is trusted less than verified"),
        (
            made(trust="verified", checksum=checksum("another")),
            "checksum",
            "its text is not the one that its checksum was made of",
        ),
        (
            made(trust="verified", checksum=""),
            "checksum",
            "its text is not the one that its checksum was made of",
        ),
        (made(trust="verified", body=" \n"), "empty", "it has no text"),
    ],
)
def test_a_skill_that_may_not_be_used_is_dropped_with_a_warning(
    skill: Skill, reason: str, message: str
):
    """Switched off, gone, trusted too little, or not the text that was reviewed."""
    other = made("other", trust="first_party")
    block = build_block([skill, other], minimum_trust="verified")
    assert (["other"], [("pdf", reason)]) == (included(block), dropped(block))
    assert [(reason, "pdf", f"the skill 'pdf' was left out: {message}")] == [
        (each.code, each.subject, each.message) for each in block.warnings
    ]


@pytest.mark.parametrize(
    ("minimum", "expected"),
    [
        ("untrusted", ["a", "b", "c", "d", "e"]),
        ("community", ["b", "c", "d"]),
        ("verified", ["c", "d"]),
        ("first_party", ["d"]),
    ],
)
def test_trust_levels_are_ordered(minimum: str, expected: list[str]):
    """A skill needs the minimum at least; a level that nobody knows is the lowest."""
    skills = [
        made("a", trust="untrusted"),
        made("b", trust="community"),
        made("c", trust="verified"),
        made("d", trust="first_party"),
        made("e", trust="superuser"),
    ]
    assert expected == included(build_block(skills, minimum_trust=minimum))
    assert [0, 1, 2, 3, 0] == [trust_rank(each.trust) for each in skills]


def test_the_checksum_is_that_of_the_utf8():
    """SHA-256, hexadecimal; upper case and blanks around it do not matter."""
    assert hashlib.sha256("Grüße".encode()).hexdigest() == checksum("Grüße")
    skill = made(body="Grüße", checksum=f" {checksum('Grüße').upper()}\n")
    assert ["pdf"] == included(build_block([skill]))


def test_any_change_of_a_body_is_noticed():
    """One blank more is another text."""
    skill = replace(made(), body="Read PDFs. ")
    assert [("pdf", "checksum")] == dropped(build_block([skill]))


def test_without_skills_there_is_no_block():
    """Nothing is put in front of anything then."""
    assert SkillBlock() == build_block([])
    assert "" == build_block([made(enabled=False)]).text


# --- chosen by a configuration --------------------------------------------------------------------


def configured(*skills: str, **members: Any) -> Configuration:
    return Configuration(provider="openai", model="gpt-4o", skills=skills, **members)


KEPT = MemoryRepository(
    skills=[made("a", "A", trust="verified"), made("b", "B"), made("b", "B2", source="acme")]
)


def test_a_configuration_and_a_run_choose_skills():
    """Those of the configuration first; a source tells two of one name apart."""
    assert ["b", "a", "acme#b"] == included(
        select_skills(configured("b"), KEPT, forced=["a", "acme#b", "B"])
    )


def test_the_bounds_are_those_of_the_configuration():
    """Least trust and bytes."""
    block = select_skills(configured("a", "b", minimum_trust="community"), KEPT)
    assert (["a"], [("b", "trust")]) == (included(block), dropped(block))
    assert [("a", "budget"), ("b", "budget")] == dropped(
        select_skills(configured("a", "b", skill_bytes=10), KEPT)
    )


def test_an_unknown_skill_is_a_warning(caplog: pytest.LogCaptureFixture):
    """It names the nearest one, and is logged once; the others are used."""
    with caplog.at_level(logging.WARNING, "clew"):
        for _ in range(2):
            block = select_skills(configured("acme#c", "a"), KEPT, forced=["nothing like it"])
    assert ["a"] == included(block)
    messages = [
        "there is no skill 'acme#c'; the nearest one is 'acme#b'",
        "there is no skill 'nothing like it'",
    ]
    assert (messages, messages) == ([str(each) for each in block.warnings], caplog.messages)


def test_no_source_can_take_the_place_of_another():
    """A name that several sources have needs the source; one's own skill needs none."""
    acme, evil = made("pdf", "A", source="acme"), made("pdf", "E", source="aaa")
    block = select_skills(configured("pdf"), MemoryRepository(skills=[acme, evil]))
    assert ([], ["several sources have a skill 'pdf'; give one of: aaa#pdf, acme#pdf"]) == (
        included(block),
        [str(each) for each in block.warnings],
    )
    kept = MemoryRepository(skills=[acme, evil, made("pdf", "own")])
    assert ["pdf"] == included(select_skills(configured("pdf"), kept))
    assert ["acme#pdf"] == included(select_skills(configured("pdf"), MemoryRepository((), [acme])))


def test_an_unknown_minimum_is_refused():
    """It would let every skill in."""
    with pytest.raises(ConfigurationError, match="minimum trust 'total' is unknown; give one of"):
        build_block([made()], minimum_trust="total")


def test_without_a_repository_no_skill_is_known():
    """Without any chosen nothing is looked up and nothing is wrong."""
    assert ["unknown_skill"] == [
        each.code for each in select_skills(configured("a"), None).warnings
    ]
    assert SkillBlock() == select_skills(configured(), None)
