"""Segmented prompts: what they are put together of, which blocks tile, and that they are text."""

from __future__ import annotations

import copy
import json
import pickle

import pytest
from cutting import cut

from clew.prompts import Block, Prompt, registry
from clew.prompts.blocks import UNREADABLE, fits, text_of
from clew.prompts.marks import OPEN

# --- concatenation --------------------------------------------------------------------------------


def test_sections_are_joined_by_blank_lines():
    """The blank line belongs to the block behind it; absent sections leave none."""
    prompt = Prompt.of({"a": "x", "b": None, "c": ""}, d="é")
    assert cut(prompt) == [("a", "x"), ("d", "\n\né")]
    assert Prompt.of() == ""
    assert cut(Prompt.of([("a", "x"), ("a", "y")])) == [("a", "x"), ("a", "\n\ny")]


def test_appending_a_section():
    """The separator belongs to the new block; the old prompt stays as it was."""
    first = Prompt.from_jinja("t", "prose é")
    second = first.append_section("working_memory", "old")
    assert cut(second) == [("template:t", "prose é"), ("working_memory", "\n\nold")]
    assert cut(first) == [("template:t", "prose é")]


def test_appending_nothing_changes_nothing():
    """Absent text gives the same prompt."""
    prompt = Prompt.of(a="x")
    assert prompt.append_section("b", "") is prompt
    assert prompt.append_section("b", None) is prompt


def test_appending_to_an_empty_prompt():
    """One block from byte 0, without separator."""
    assert cut(Prompt().append_section("a", "x")) == [("a", "x")]


def test_appending_behind_text_without_a_map():
    """No block is recorded: it could not tile. The text grows all the same."""
    prompt = Prompt("one line").append_section("a", "x")
    assert (prompt, prompt.blocks, prompt.dropped) == ("one line\n\nx", (), False)


def test_a_dropped_map_stays_dropped():
    """Nothing appended brings a map back, not even behind text that has become empty."""
    dropped = Prompt.from_jinja("t", "{{ a }}", sections={"a": OPEN})
    assert dropped.append_section("b", "x").append_section("c", "y").dropped
    empty = Prompt.from_jinja("t", "{{ a|replace(b, '') }}", sections={"a": "x", "b": "x"})
    assert (empty, empty.dropped) == ("", True)
    grown = empty.append_section("b", "x")
    assert (grown, grown.blocks, grown.dropped) == ("x", (), True)
    assert empty.adopt_appended("x", "b").blocks == ()


def test_adopting_what_was_appended(caplog):
    """What somebody else appended is one block, as it stands."""
    prompt = Prompt.of(a="x")
    assert cut(prompt.adopt_appended("x and é", "authority")) == [
        ("a", "x"),
        ("authority", " and é"),
    ]
    assert caplog.text == ""


def test_adopting_the_same_text():
    """Nothing new, no block."""
    prompt = Prompt.of(a="x")
    assert prompt.adopt_appended("x", "b") is prompt


def test_adopting_another_text(caplog):
    """A replacement that does not begin with the prompt: the text, no map, a warning."""
    prompt = Prompt.of(a="x").adopt_appended("something else", "b")
    assert (prompt, prompt.blocks, prompt.dropped) == ("something else", (), True)
    assert "no block map any more" in caplog.text
    assert prompt.append_section("c", "y").blocks == ()


def test_prompts_behind_one_another():
    """Blocks are kept and moved; one part without a map is one too many."""
    a, b = Prompt.of(a="é"), Prompt.from_jinja("t", "b{{ c }}", sections={"c": "ü"})
    assert cut(Prompt.concat(a, "", b, Prompt())) == [("a", "é"), ("template:t", "b"), ("c", "ü")]
    assert Prompt.concat(a, "plain", b).blocks == ()
    assert Prompt.concat(a, "plain", b) == "éplainbü"


def test_plain_text_has_no_map():
    """Text made a prompt is text: no map, and none dropped."""
    prompt = Prompt("hello")
    assert (prompt, prompt.text, prompt.blocks, prompt.mapped, prompt.dropped) == (
        "hello",
        "hello",
        (),
        False,
        False,
    )


def test_blocks_that_do_not_tile_are_no_map(caplog):
    """Wrong start, gap, overlap, too short, too long, empty, off a character: no map."""
    good = Prompt.of(a="ab", b="é").blocks
    a, b = good

    def block(start: int, end: int, chars: int) -> Block:
        return Block(
            id="x",
            layer="runtime",
            stability="static",
            source="file",
            start=start,
            end=end,
            chars=chars,
        )

    data = "ab\n\né".encode()
    assert fits(good, data)
    for bad in (
        (),
        (a,),
        (b,),
        (block(1, 6, 4),),
        (block(0, 2, 2), block(3, 6, 2)),
        (block(0, 4, 4), block(2, 6, 3)),
        (*good, block(6, 8, 2)),
        (block(0, 0, 0), *good),
        (block(0, 5, 5), block(5, 6, 1)),
        (block(0, 6, 6),),
    ):
        assert not fits(bad, data)
    wrong = Prompt._made("other", good)
    assert (wrong, wrong.blocks, wrong.dropped) == ("other", (), True)
    assert "do not tile" in caplog.text


def test_a_block_is_cut_by_bytes():
    """A range past the end or through a character gives a placeholder, never an error."""
    prompt = Prompt.of(a="é" * 500, b="x")
    data = prompt.encode()
    assert [text_of(block, data) for block in prompt.blocks] == ["é" * 500, "\n\nx"]
    assert text_of(prompt.blocks[0], data[:7]) == UNREADABLE
    assert text_of(prompt.blocks[0].moved(1), data) == UNREADABLE
    assert text_of(prompt.blocks[0].moved(-5), data) == UNREADABLE


# --- a prompt is text -----------------------------------------------------------------------------


def test_a_prompt_is_text():
    """Equality, hash, order, formatting, JSON and encoding are those of the text."""
    prompt, text = Prompt.of(a="é", b="y"), "é\n\ny"
    assert isinstance(prompt, str)
    assert prompt == text
    assert hash(prompt) == hash(text)
    assert {text: 1}[prompt] == 1
    assert (repr(prompt), f"{prompt}", str(prompt)) == (repr(text), text, text)
    assert type(str(prompt)) is type(prompt.text) is str
    assert json.dumps([prompt]) == json.dumps([text])
    assert prompt.encode() == text.encode()
    assert prompt.format() == text
    assert ",".join([prompt, "x", *[prompt]]) == f"{text},x,{text}"


@pytest.mark.parametrize(
    "make", [lambda p: p + "x", lambda p: p[:2], lambda p: p.strip(), str.upper]
)
def test_what_is_made_of_a_prompt_is_plain_text(make):
    """Text cut from a prompt or added to it does not claim the prompt's blocks."""
    assert type(make(Prompt.of(a="é", b="y"))) is str


def test_copies_and_pickles():
    """A copy is the same; a pickle brings text and map back, and is known again there."""
    prompt = Prompt.of(a="é").append_section("b", "y")
    assert copy.copy(prompt) is prompt
    assert copy.deepcopy({"k": [prompt]})["k"][0] is prompt
    pickled = pickle.dumps(prompt)
    registry.forget()
    again = pickle.loads(pickled)  # noqa: S301 - our own
    assert (again, again.blocks, again.dropped, type(again)) == (
        prompt,
        prompt.blocks,
        False,
        Prompt,
    )
    assert registry.find(prompt.encode()) is not None


def test_a_prompt_does_not_change():
    """Neither its map nor anything else can be set."""
    prompt = Prompt.of(a="x")
    for name in ("blocks", "dropped", "other"):
        with pytest.raises(AttributeError):
            setattr(prompt, name, ())
    with pytest.raises(AttributeError):
        prompt.blocks[0].id = "y"


def test_what_the_package_exports():
    """The public names are loaded on demand, and no others are there."""
    import clew.prompts

    assert {name: getattr(clew.prompts, name).__name__ for name in clew.prompts.__all__} == {
        name: name for name in clew.prompts.__all__
    }
    assert set(clew.prompts.__all__) <= set(dir(clew.prompts))
    with pytest.raises(AttributeError):
        _ = clew.prompts.nothing
