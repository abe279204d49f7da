"""How snippets get into a prompt: labelled blocks, behind the own prompt, at one place."""

# ruff: noqa: SIM300 - expected == actual, in this order
from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clew.errors import StoreError
from clew.prompts.blocks import tiles
from clew.prompts.composer import (
    EffectivePrompt,
    compose,
    effective_system_prompt,
    select_snippets,
)
from clew.prompts.configuration import Configuration
from clew.prompts.files import FileRepository
from clew.prompts.repository import MemoryRepository
from clew.prompts.segments import Prompt
from clew.prompts.snippets import Snippet
from clew.store.snippets import SqliteRepository

NOVA = Snippet(identifier="nova", name="Nova", text="You are Nova.\n", tags="persona, style")
BRIEF = Snippet(identifier="brief", name="Brief", text="Be brief.", tags="style", sorting=5)
FIRST = Snippet(identifier="first", name="First", text=" First. ", tags="style", sorting=-5)


def configured(prompt: str = "You help.", tags: str = "", **members: object) -> Configuration:
    return Configuration(
        provider="openai", model="gpt-4o", prompt=prompt, snippet_tags=tags, **members
    )


def effective(
    prompt: str, tags: str, snippets: Sequence[Snippet], override: str | None = None
) -> EffectivePrompt:
    return effective_system_prompt(
        configured(prompt, tags), MemoryRepository(snippets), override=override
    )


def ids(prompt: EffectivePrompt) -> list[str]:
    return [block.id for block in prompt.blocks]


# --- composing ------------------------------------------------------------------------------------


def test_blocks_are_labelled_and_joined_by_a_blank_line():
    """The label, a colon, a line break, the trimmed text; in the order given."""
    assert "TONE:\nBe brief.\n\nPersona:\nYou are Nova." == compose(
        {"TONE": BRIEF, "Persona": NOVA}
    )


def test_nothing_and_blanks_are_passed_over():
    """None and blank texts make no block and no blank line; without any there is no text."""
    blank = Snippet(identifier="blank", text=" \n\t")
    assert "A:\nBe brief." == compose({"x": None, "A": BRIEF, "y": blank, "z": None})
    assert "" == compose({"x": None, "y": blank})
    assert "" == compose({})


def test_pairs_may_repeat_a_label():
    """Two snippets with one name are both there."""
    other = Snippet(identifier="other", text="Other.")
    assert "Nova:\nYou are Nova.\n\nNova:\nOther." == compose([("Nova", NOVA), ("Nova", other)])


def test_a_label_stays_on_one_line():
    """A line break in a label begins no block of its own."""
    assert "A SYSTEM: B:\nBe brief." == compose([("A\n\nSYSTEM:\nB", BRIEF)])


@given(
    st.lists(
        st.tuples(st.text(alphabet="abc ", max_size=5), st.none() | st.text(max_size=20)),
        max_size=6,
    )
)
def test_a_composition_is_its_blocks(given_pairs: list[tuple[str, str | None]]):
    """What is composed together is what is composed one by one, joined."""
    pairs = [
        (label, None if text is None else Snippet(identifier="a", text=text))
        for label, text in given_pairs
    ]
    alone = [compose([pair]) for pair in pairs]
    assert "\n\n".join(filter(None, alone)) == compose(pairs)


# --- choosing -------------------------------------------------------------------------------------


def test_the_order_is_that_of_the_tags_then_of_the_repository():
    """Within a tag by sorting and name; a snippet stands where its first tag has it."""
    chosen, warnings = select_snippets("persona, style", MemoryRepository([BRIEF, NOVA, FIRST]))
    assert ["nova", "first", "brief"] == [each.identifier for each in chosen]
    assert [] == warnings


def test_a_snippet_with_two_chosen_tags_is_there_once():
    """Identity is the identifier, not the text and not the name."""
    same_text = Snippet(identifier="nova2", name="Nova", text="You are Nova.\n", tags="style")
    chosen, _ = select_snippets(["style", "persona"], MemoryRepository([NOVA, same_text]))
    assert ["nova", "nova2"] == [each.identifier for each in chosen]


def test_a_text_that_is_part_of_another_is_not_lost():
    """Both are there: nothing is compared by what it contains."""
    part = Snippet(identifier="part", name="Part", text="You are", tags="persona")
    assert "Nova:\nYou are Nova.\n\nPart:\nYou are" == effective("", "persona", [NOVA, part]).text


def test_inactive_hidden_and_blank_snippets_are_left_out():
    """Either switch keeps a snippet out of every prompt."""
    off = [
        Snippet(identifier="a", text="A", tags="style", active=False),
        Snippet(identifier="b", text="B", tags="style", hidden=True),
        Snippet(identifier="c", text=" \n", tags="style"),
    ]
    chosen, warnings = select_snippets("style", MemoryRepository([*off, BRIEF]))
    assert (["brief"], []) == ([each.identifier for each in chosen], warnings)
    chosen, warnings = select_snippets("style", MemoryRepository(off))
    assert ([], ["unused_tag"]) == (chosen, [each.code for each in warnings])


def test_an_unknown_tag_gives_nothing_and_a_warning():
    """The others are composed; the warning names the nearest tag that there is."""
    prompt = effective("You help.", "styl, persona", [NOVA])
    assert "You help.\n\nNova:\nYou are Nova." == prompt.text
    assert [("unknown_tag", "styl")] == [(each.code, each.subject) for each in prompt.warnings]
    assert (
        "no snippet is tagged 'styl'; the nearest known tag is 'style'"
        == prompt.warnings[0].message
    )


def test_a_warning_is_logged_once(caplog: pytest.LogCaptureFixture):
    """An operator who looks at no result sees it in the log, not with every call."""
    with caplog.at_level(logging.WARNING, "clew"):
        effective("You help.", "styl", [NOVA])
        effective("You help.", "styl", [NOVA])
    assert ["no snippet is tagged 'styl'; the nearest known tag is 'style'"] == caplog.messages


def test_warnings_hold_no_text_of_a_snippet():
    """They go to logs, where content has no place."""
    secret = Snippet(identifier="a", text="the secret text", tags="style", active=False)
    prompt = effective("own secret", "style, nothing", [secret])
    assert [False, False] == ["secret" in each.message for each in prompt.warnings]


# --- the one place --------------------------------------------------------------------------------


def test_snippets_stand_behind_the_own_prompt():
    """After one blank line, in one system text; there are no further messages."""
    assert (
        "You help.\n\nFirst:\nFirst.\n\nNova:\nYou are Nova.\n\nBrief:\nBe brief."
        == effective("You help.", "STYLE", [BRIEF, NOVA, FIRST]).text
    )


def test_without_an_own_prompt_the_snippets_are_the_prompt():
    """There is no blank line in front then."""
    assert "Nova:\nYou are Nova." == effective("", "persona", [NOVA]).text


@pytest.mark.parametrize("own", ["", "You help.", "  \n", "ends with breaks\n\n", "Grüße 🧵"])
@pytest.mark.parametrize("tags", ["", " , ", "unheard", "off"])
def test_without_snippets_the_prompt_is_byte_for_byte_the_own_one(own: str, tags: str):
    """No tags, no match, or blank ones only: no separator, no trimming."""
    off = Snippet(identifier="off", text="  ", tags="off")
    prompt = effective(own, tags, [NOVA, off])
    assert own.encode() == prompt.text.encode()
    assert ((), 0) == (prompt.snippets, prompt.snippet_bytes)


def test_without_a_repository_the_prompt_is_the_own_one():
    """Nobody who has no snippets needs a repository."""
    prompt = effective_system_prompt(configured("You help.", "style"), None)
    assert ("You help.", ()) == (prompt.text, prompt.warnings)


def test_what_a_call_gives_instead_has_the_snippets_too():
    """An override replaces the own prompt alone; empty text means no own prompt."""
    assert (
        "Now this.\n\nNova:\nYou are Nova."
        == effective("You help.", "persona", [NOVA], override="Now this.").text
    )
    assert "Nova:\nYou are Nova." == effective("You help.", "persona", [NOVA], override="").text
    assert "" == effective("You help.", "", [NOVA], override="").text


def test_two_calls_give_the_same_bytes():
    """A preview and the call behind it have one text, whoever asks first."""
    kept = MemoryRepository([BRIEF, NOVA, FIRST])
    configuration = configured("You help.", "style, persona")
    first, second = (effective_system_prompt(configuration, kept) for _ in range(2))
    assert first == second
    assert first.blocks == second.blocks


def test_a_repository_that_cannot_be_read_is_an_error(tmp_path: Path):
    """A prompt without its snippets would be another prompt, so there is none."""
    file = tmp_path / "clew.db"
    file.write_bytes(b"this is not a database, whatever its name says" * 10)
    with pytest.raises(StoreError):
        effective_system_prompt(configured("You help.", "style"), SqliteRepository(file))
    assert "You help." == effective_system_prompt(configured(), SqliteRepository(file)).text


# --- the block map --------------------------------------------------------------------------------


def test_each_snippet_is_a_block():
    """With the blank line in front of it; the own prompt is the first one."""
    prompt = effective("Grüße.", "style", [NOVA, FIRST])
    assert [
        ("prompt", "contract", "epoch", "config", "Grüße."),
        ("snippet:first", "contract", "epoch", "config", "\n\nFirst:\nFirst."),
        ("snippet:nova", "contract", "epoch", "config", "\n\nNova:\nYou are Nova."),
    ] == [
        (
            block.id,
            block.layer,
            block.stability,
            block.source,
            prompt.text.encode()[block.start : block.end].decode(),
        )
        for block in prompt.blocks
    ]
    assert sum(block.bytes for block in prompt.blocks[1:]) == prompt.snippet_bytes


def test_a_block_says_where_its_snippet_came_from(tmp_path: Path):
    """From code, a file or the store."""
    file = tmp_path / "nova.md"
    file.write_text("---\ntags: persona\n---\nYou are Nova.\n", "utf-8")
    stored = SqliteRepository(tmp_path / "clew.db")
    stored.put([NOVA])
    assert ["config", "file", "store"] == [
        effective_system_prompt(configured("", "persona"), kept).blocks[0].source
        for kept in (MemoryRepository([NOVA]), FileRepository(file), stored)
    ]


def test_an_override_is_a_block_of_its_own_name():
    """It changes from call to call, the configuration's prompt does not."""
    prompt = effective("You help.", "persona", [NOVA], override="Now this.")
    assert ["prompt_override", "snippet:nova"] == ids(prompt)
    assert "volatile" == prompt.blocks[0].stability


def test_the_blocks_of_a_segmented_prompt_stay():
    """Its own sections, then the snippets; also where the configuration carries it."""
    own = Prompt.of([("identity_context", "You are Nova."), ("status_text", "All is well.")])
    prompt = effective(own, "style", [BRIEF])
    assert ["identity_context", "status_text", "snippet:brief"] == ids(prompt)
    assert tiles(prompt.blocks, len(prompt.text.encode()))
    assert own == effective(own, "", [BRIEF]).text
    assert ["identity_context", "status_text"] == ids(effective(own, "", [BRIEF]))


def test_behind_a_prompt_without_a_map_there_is_none():
    """The text is right all the same."""
    prompt = effective(Prompt("You help."), "persona", [NOVA])
    assert ("You help.\n\nNova:\nYou are Nova.", []) == (prompt.text, ids(prompt))
    assert len("\n\nNova:\nYou are Nova.") == prompt.snippet_bytes


def test_an_empty_prompt_has_no_blocks():
    """There is nothing to map."""
    assert ("", []) == (effective("", "", []).text, ids(effective("", "", [])))


@given(
    own=st.text(max_size=30),
    texts=st.lists(st.text(max_size=30), max_size=5),
    tags=st.sampled_from(["a", "b", "a, b", "b, a", "c", ""]),
)
def test_blocks_tile_whatever_is_composed(own: str, texts: list[str], tags: str):
    """Own prompts and snippets of any text: the blocks are the text, and end where it ends."""
    snippets = [
        Snippet(identifier=f"s{place}", name=text, text=text, tags="ab"[place % 2])
        for place, text in enumerate(texts)
    ]
    prompt = effective(own, tags, snippets)
    data = prompt.text.encode()
    assert tiles(prompt.blocks, len(data)) or not data
    assert prompt.text.startswith(own)
    assert len(data) - len(own.encode()) == prompt.snippet_bytes
    assert len(prompt.snippets) == sum(block.id.startswith("snippet:") for block in prompt.blocks)


def test_declared_data_classes_are_named_for_the_gate():
    """By block id; a snippet that declares none is not in the list."""
    secret = Snippet(identifier="s", text="S", tags="style", data_class="secret_adjacent")
    prompt = effective("", "style", [BRIEF, secret])
    assert (("snippet:s", "secret_adjacent"),) == prompt.data_classes
