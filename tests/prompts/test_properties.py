"""What holds for every prompt: it tiles, it is known by its digest, and nothing forges a block.

The number of examples is that of a profile: `segments`, or `segments-ci` where CI=true.
"""

from __future__ import annotations

import itertools
import json
import os
import pickle
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clew.digests import Digests
from clew.prompts import Prompt, maps, registry
from clew.prompts.blocks import fits, text_of
from clew.prompts.compare import compare, first_break
from clew.prompts.marks import CLOSE, OPEN, SEPARATOR, split
from clew.prompts.recognition import attributes_of

settings.register_profile("segments", settings.get_profile("clew"), max_examples=200)
settings.register_profile("segments-ci", settings.get_profile("clew"), max_examples=10_000)
MANY = settings.get_profile("segments-ci" if os.environ.get("CI") == "true" else "segments")
SOME = settings(max_examples=1000)
ALL = settings.get_profile("segments-ci")

SENTINELS = OPEN + SEPARATOR + CLOSE
HARMLESS = st.text(st.sampled_from('ab é🎈\n\t {}%"\\01.\u2028\x00'), max_size=8)
HOSTILE = st.text(st.sampled_from(SENTINELS + "a01.é"), max_size=8)
ANY = st.one_of(HARMLESS, HOSTILE, st.text(max_size=8))
POOL = st.sampled_from(
    [
        "",
        " ",
        "a",
        "é",
        "🎈",
        "a\n\n",
        "\\",
        '"{}"',
        "\u2028",
        "\x00",
        "{{ x }}",
        "long " * 40,
        OPEN,
        "\ud800",
    ]
)
"""Texts that are drawn as they are: drawing characters one by one takes most of the time."""
SOUND = POOL.filter(lambda text: text != "\ud800")
NAMES = st.sampled_from(["identity_context", "working_memory", "authority", "mine"])
INLINE = st.recursive(
    st.one_of(ANY, st.integers(), st.booleans(), st.none()),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(ANY, inner, max_size=3), st.tuples(inner)
    ),
    max_leaves=5,
)
TEMPLATES = (
    "{{ a }}{{ b }}",
    "é {{ a }}\n\n{{ b }} {{ c }}",
    "{% if a %}A: {{ a }}{% endif %}{% for each in [a, b] %}- {{ each }}\n{% endfor %}{{ c }}",
    "{{ a }}{{ a }}{% set d = b %}{{ d }}{{ c|string|length }}",
    "{{ a|trim }} {{ b|upper }} {{ c }}",
    "{{ a|indent(2) }}{{ b|replace('a', c|string) }}",
    "{{ a ~ b ~ c }}{{ a|list|join }}",
    "{% if a == b %}{{ a }}{% else %}{{ b|reverse }}{% endif %}",
)
PLAIN = TEMPLATES[:4]
"""Templates without filters on sections: what they are given, they give."""


def holds(value: Any) -> bool:
    """Tell whether a sentinel stands in a value, found in another way than the code's."""
    if isinstance(value, str):
        return any(each in value for each in SENTINELS)
    if isinstance(value, dict):
        return any(map(holds, [*value.keys(), *value.values()]))
    return isinstance(value, (list, tuple)) and any(map(holds, value))


def check(prompt: Prompt) -> None:
    """Check that a prompt tiles to the byte, and is known, or has no blocks."""
    data = prompt.encode("utf-8", "surrogatepass")
    found = registry.find(data)
    if prompt.blocks:
        assert fits(prompt.blocks, data)
        assert "".join(text_of(block, data) for block in prompt.blocks) == prompt
        assert sum(block.bytes for block in prompt.blocks) == len(data)
        assert sum(block.chars for block in prompt.blocks) == len(prompt)
        assert found is not None
        assert found.blocks == prompt.blocks


def plain(template: str, values: dict[str, Any]) -> str:
    from clew.prompts import templates

    return templates.jinja(template)(values)


def rendering(template: str, a: str, b: str, c: Any) -> None:
    """The text is the plain render; its blocks tile it, or a hostile value left it without."""
    prompt = Prompt.from_jinja("t", template, sections={"a": a, "b": b}, inline={"c": c})
    assert prompt == plain(template, {"a": a, "b": b, "c": c})
    check(prompt)
    if holds([a, b, c]):
        assert prompt.blocks == ()
    if prompt.blocks and template in PLAIN:
        data = prompt.encode()
        texts = {"a": a, "b": b}
        for block in prompt.blocks:
            if block.id != "template:t":
                assert text_of(block, data) == texts[block.id]


RENDERING = given(st.sampled_from(TEMPLATES), ANY, ANY, INLINE)
test_every_rendering_tiles_or_has_no_map = MANY(RENDERING(rendering))


def forging(value: str, other: str, template: str) -> None:
    """No value makes a block with a text that is not a section's."""
    prompt = Prompt.from_jinja(
        "t", template, sections={"a": "safe"}, inline={"b": value, "c": [other]}
    )
    blocks = {(block.id, text_of(block, prompt.encode())) for block in prompt.blocks}
    assert {each for each in blocks if each[0] != "template:t"} <= {("a", "safe")}
    if holds([value, other]):
        assert prompt.blocks == ()


FORGING = given(HOSTILE, ANY, st.sampled_from(PLAIN))
test_no_value_forges_a_block = MANY(FORGING(forging))


def splitting(text: str) -> None:
    """Whatever is cut at marks, nothing is lost, and only whole marks of known tokens are cut."""
    pieces = split(text, {"0": 1, "1": 1})
    again = "".join(
        value if token is None else f"{OPEN}{token}{SEPARATOR}{value}{CLOSE}"
        for token, value in pieces
    )
    assert again == text
    assert all(token in (None, "0", "1") for token, _ in pieces)


SPLITTING = given(st.text(st.sampled_from(SENTINELS + "01a"), max_size=30))
test_cutting_at_marks_loses_nothing = MANY(SPLITTING(splitting))


def appending(steps: list[tuple[str, str, str]]) -> None:
    """However a prompt grows, it tiles, and its blocks are those that were added."""
    prompt = Prompt()
    expected: list[tuple[str, str]] = []
    for how, name, text in steps:
        if how == "append":
            prompt = prompt.append_section(name, text)
            expected += [(name, ("\n\n" if expected else "") + text)] if text else []
        elif how == "adopt":
            prompt = prompt.adopt_appended(prompt + text, name)
            expected += [(name, text)] if text else []
        elif how == "concat":
            prompt = Prompt.concat(prompt, Prompt.of({name: text}))
            expected += [(name, text)] if text else []
        else:
            prompt = pickle.loads(pickle.dumps(prompt))  # noqa: S301 - our own
    data = prompt.encode("utf-8", "surrogatepass")
    assert prompt == "".join(text for _, text in expected)
    try:
        prompt.encode()
    except UnicodeEncodeError:
        assert prompt.blocks == ()
        return
    assert [(block.id, text_of(block, data)) for block in prompt.blocks] == expected
    check(prompt)


STEPS = st.tuples(st.sampled_from(["append", "adopt", "concat", "pickle"]), NAMES, POOL)
APPENDING = given(st.lists(STEPS, max_size=5))
test_however_a_prompt_grows_it_tiles = MANY(APPENDING(appending))


class Fixed:
    """The digests of one key."""

    made = Digests(b"key")

    def get(self) -> Digests:
        return self.made


def known_again(
    sections: list[tuple[str, str]], cuts: list[int], other: str, escaped: bool
) -> None:
    """On the wire only the very text is known, in parts cut anywhere; every other is not."""
    registry.forget()
    prompt = Prompt.of(sections)
    places = sorted({0, *(cut % (len(prompt) + 1) for cut in cuts), len(prompt)})
    parts = [prompt[i:j] for i, j in itertools.pairwise(places)]

    def told(texts: list[str]) -> Any:
        content = [{"type": "text", "text": text} for text in texts]
        body = {
            "messages": [
                {"role": "system", "content": content},
                {"role": "user", "content": prompt},
            ]
        }
        data = json.dumps(body, ensure_ascii=escaped).encode()
        found = attributes_of("openai_chat", data, Fixed())
        return found.get("clew.prompt.mapped"), found.get("clew.prompt.block.ids")

    ids = tuple(block.id for block in prompt.blocks)
    assert told(parts) == ((True, ids) if prompt else (None, None))
    changed = "".join([*parts[: len(parts) // 2], other, *parts[len(parts) // 2 :]])
    assert told([changed]) == (
        (True, ids) if changed == prompt and prompt else (False if changed else None, None)
    )


WIRE = given(
    st.lists(st.tuples(NAMES, SOUND), max_size=4),
    st.lists(st.integers(0, 60), max_size=2),
    SOUND,
    st.booleans(),
)
test_only_the_very_text_is_known_again = MANY(WIRE(known_again))


def comparing(before: list[tuple[str, str]], after: list[tuple[str, str]]) -> None:
    """Every block is unchanged, or named once; the same texts have no change."""
    maps_ = [
        maps.BlockMap(
            ids=tuple(name for name, _ in blocks),
            layers=("runtime",) * len(blocks),
            stabilities=("static",) * len(blocks),
            sources=("store",) * len(blocks),
            sizes=tuple(len(text) for _, text in blocks),
            digests=tuple(Fixed.made.of(text) for _, text in blocks),
            key_id=Fixed.made.key_id,
        )
        for blocks in (before, after)
    ]
    found = compare(*maps_)
    if not (before and after):
        assert found.basis == "whole"
        return
    changes = found.changes
    places_before = [each.before for each in changes if each.before is not None]
    places_after = [each.after for each in changes if each.after is not None]
    assert len(set(places_before)) == len(places_before)
    assert len(set(places_after)) == len(places_after)
    # What is not named is, in its order, the same on both sides.
    rest_before = [each for place, each in enumerate(before) if place not in places_before]
    rest_after = [each for place, each in enumerate(after) if place not in places_after]
    assert rest_before == rest_after
    assert (found.outcome == "identical") is (before == after)
    broken = first_break(*maps_)
    same = 0
    while same < min(len(before), len(after)) and before[same][1] == after[same][1]:
        same += 1
    assert broken.index == same
    unchanged = [text for _, text in before] == [text for _, text in after]
    assert (broken.outcome == "identical") is unchanged
    assert (broken.what is None) is unchanged


LISTS = st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["x", "y", "zz"])), max_size=6)
test_comparing_names_every_change_once = SOME(given(LISTS, LISTS)(comparing))

PROPERTIES = {
    "rendering": RENDERING(rendering),
    "forging": FORGING(forging),
    "splitting": SPLITTING(splitting),
    "appending": APPENDING(appending),
    "wire": WIRE(known_again),
    "comparing": given(LISTS, LISTS)(comparing),
}


@pytest.mark.soak
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", PROPERTIES)
def test_ten_thousand_examples(name):
    """Each of these with ten thousand examples, wherever it runs."""
    ALL(PROPERTIES[name])()
