"""Comparing two system texts by ids, sizes and keyed digests, and what broke a cache."""

from __future__ import annotations

import time
from typing import Any

import msgspec
import pytest

from clew.digests import Digests
from clew.prompts import Prompt, maps, registry
from clew.prompts.compare import BlockChange, compare, first_break, lost_tokens
from clew.prompts.maps import BlockMap

KEY, OTHER_KEY = Digests(b"key"), Digests(b"other")


def made(blocks: str, digests: Digests = KEY) -> BlockMap:
    """Return a map of blocks written as `id=text id=text`; `id` alone has its id as text."""
    pairs = [each.partition("=")[::2] for each in blocks.split()]
    texts = [text or name for name, text in pairs]
    return BlockMap(
        ids=tuple(name for name, _ in pairs),
        layers=("runtime",) * len(pairs),
        stabilities=("volatile",) * len(pairs),
        sources=("store",) * len(pairs),
        sizes=tuple(map(len, texts)),
        digests=tuple(map(digests.of, texts)),
        size=len("".join(texts)),
        digest=digests.of("".join(texts)),
        key_id=digests.key_id,
    )


def whole(text: str, digests: Digests = KEY) -> BlockMap:
    return maps.of_text(text, (), digests)


def said(before: str, after: str) -> list[str]:
    """Return the changes as `what id#occurrence before>after`."""
    found = compare(made(before), made(after))
    return [
        f"{each.what} {each.id}#{each.occurrence} "
        f"{'' if each.before is None else each.before}>{'' if each.after is None else each.after}"
        for each in found.changes
    ]


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ("a b c", "a b c", []),
        ("a b c", "a b=B c", ["changed b#1 1>1"]),
        # One block more is one addition, and nothing behind it has moved.
        ("a b c", "x a b c", ["added x#1 >0"]),
        ("a b c", "a x b c", ["added x#1 >1"]),
        ("a b c", "a b c x", ["added x#1 >3"]),
        ("a b c", "b c", ["removed a#1 0>"]),
        ("a b c", "a c", ["removed b#1 1>"]),
        ("a b c", "a b", ["removed c#1 2>"]),
        ("a b c", "a x c", ["removed b#1 1>", "added x#1 >1"]),
        ("a b c d", "a d b c", ["reordered d#1 3>1"]),
        ("a b c d", "d a b c", ["reordered d#1 3>0"]),
        ("a b c d", "b c d a", ["reordered a#1 0>3"]),
        (
            "a b c",
            "x b=B c y",
            ["removed a#1 0>", "added x#1 >0", "changed b#1 1>1", "added y#1 >3"],
        ),
        # The same id several times.
        ("t=1 m t=2", "t=1 m=M t=2", ["changed m#1 1>1"]),
        ("t=1 m t=2", "t=1 m t=3", ["changed t#2 2>2"]),
        ("t=1 t=2", "t=2", ["removed t#1 0>"]),
        ("t=1 t=2 t=3", "t=1 t=3", ["removed t#2 1>"]),
        ("t=1 t=2", "t=1 t=1 t=2", ["added t#2 >1"]),
        ("t=1 t=2", "t=8 t=9", ["changed t#1 0>0", "changed t#2 1>1"]),
        # A section appears in the middle of a template's prose.
        (
            "t=head m t=tail",
            "t=he o t=ad m t=tail",
            ["changed t#1 0>0", "added o#1 >1", "added t#2 >2"],
        ),
        # Everything is another.
        ("a b", "c d", ["removed a#1 0>", "removed b#1 1>", "added c#1 >0", "added d#1 >1"]),
    ],
)
def test_changes(before, after, expected):
    """Each block that is not where and as it was, and no other."""
    assert said(before, after) == expected
    assert compare(made(before), made(after)).outcome == ("changed" if expected else "identical")


def test_a_change_says_both_sizes():
    """What changed says how long it was and is; what moved, whether it changed, too."""
    found = compare(made("a b=12345 c d"), made("c b=123 d"))
    assert found.changes == (
        BlockChange(id="a", occurrence=1, what="removed", before=0, bytes_before=1),
        BlockChange(
            id="b",
            occurrence=1,
            what="reordered",
            before=1,
            after=1,
            bytes_before=5,
            bytes_after=3,
            changed=True,
        ),
    )
    assert (found.bytes_before, found.bytes_after, found.basis) == (8, 5, "blocks")
    assert compare(made("a=1 b"), made("a=22 b")).changes == (
        BlockChange(
            id="a",
            occurrence=1,
            what="changed",
            before=0,
            after=0,
            bytes_before=1,
            bytes_after=2,
            changed=True,
        ),
    )
    moved = compare(made("a=1 b c"), made("b c a=2"))
    assert [(each.what, each.changed) for each in moved.changes] == [("reordered", True)]


def test_digests_of_different_keys_are_not_comparable():
    """Equal sizes and other keys: nothing is known, and nothing is called changed."""
    found = compare(made("a b c"), made("a b c", OTHER_KEY))
    assert found.outcome == "not_comparable"
    assert [(each.what, each.changed) for each in found.changes] == [("unknown", None)] * 3
    assert first_break(made("a b c"), made("a b c", OTHER_KEY)).outcome == "not_comparable"
    assert compare(whole("same"), whole("same", OTHER_KEY)).outcome == "not_comparable"
    assert compare(made("a"), whole("b", OTHER_KEY)).outcome == "not_comparable"


def test_what_the_sizes_and_ids_tell_is_said_whatever_the_keys():
    """A block that is gone, new, or of another size is so under any key."""
    found = compare(made("a b=12 c"), made("a b=123 d", OTHER_KEY))
    assert [(each.what, each.id) for each in found.changes] == [
        ("unknown", "a"),
        ("changed", "b"),
        ("removed", "c"),
        ("added", "d"),
    ]
    assert found.outcome == "changed"


def test_a_side_without_a_map_is_compared_as_a_whole():
    """Two different texts without a map are not identical, and equal ones are."""
    assert compare(whole("one text"), whole("two text")).outcome == "changed"
    assert compare(whole("one text"), whole("one text")).outcome == "identical"
    mapped = made("a b")
    for other, outcome in ((whole("ab"), "identical"), (whole("abc"), "changed")):
        found = compare(mapped, other)
        assert (found.basis, found.outcome, found.changes) == ("whole", outcome, ())
        assert compare(other, mapped).outcome == outcome


def test_what_nothing_is_known_of():
    """Without digests and sizes nothing is known; with sizes alone, another size is a change."""
    assert compare(BlockMap(), BlockMap()).outcome == "not_comparable"
    assert compare(BlockMap(size=5), BlockMap(size=5)).outcome == "not_comparable"
    assert compare(BlockMap(size=5), BlockMap(size=6)).outcome == "changed"


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ("a b c", "a b c", ("identical", None, None, 3, 3, 0)),
        ("a b c", "a b=B c", ("changed", "changed", "b", 1, 1, 2)),
        ("a b c", "a x b c", ("changed", "added", "x", 1, 1, 3)),
        ("a b c", "a c", ("changed", "removed", "b", 1, 1, 1)),
        ("a b c", "a b", ("changed", "removed", "c", 2, 2, 0)),
        ("a b c", "a b c d", ("changed", "added", "d", 3, 3, 1)),
        ("a b c d", "a c d b", ("changed", "reordered", "b", 1, 1, 3)),
        ("a=1 b=2", "a=9 b=8", ("changed", "changed", "a", 0, 0, 2)),
        # Of the two that changed the first is the one that broke the cache.
        ("a b=12 c=34", "a b=13 c=35", ("changed", "changed", "b", 1, 1, 4)),
        # Another name for the same text breaks nothing.
        ("a=text b", "c=text b", ("identical", None, None, 2, 5, 0)),
        ("t=1 t=2", "t=2", ("changed", "removed", "t", 0, 0, 1)),
    ],
)
def test_the_first_break(before, after, expected):
    """The block that is the first not to be as it was, and the bytes before and behind it."""
    found = first_break(made(before), made(after))
    assert (
        found.outcome,
        found.what,
        found.id,
        found.index,
        found.kept_bytes,
        found.lost_bytes,
    ) == expected


def test_a_break_without_a_map():
    """Without a map it is the text as a whole that changed, or did not."""
    found = first_break(whole("a"), made("b c"))
    assert (found.outcome, found.what, found.id, found.index) == ("changed", "whole", None, None)
    assert first_break(whole("a"), whole("a")).outcome == "identical"


@pytest.mark.parametrize(
    ("read_before", "written_before", "read_after", "expected"),
    [
        (1000, 0, 1000, 0),
        (1000, 200, 1200, 0),
        (1000, 200, 300, 900),
        (0, 800, 0, 800),
        (None, 800, 0, 800),
        (1000, None, 0, 1000),
        (100, 0, 500, 0),
        (None, None, 0, None),
        (1000, 0, None, None),
    ],
)
def test_lost_tokens(read_before, written_before, read_after, expected):
    """What was in the cache and was not read from it; unknown where the rounds do not tell."""
    assert (
        lost_tokens(read_before=read_before, written_before=written_before, read_after=read_after)
        == expected
    )


def test_a_map_from_attributes():
    """What a round says and what a text at hand says are the same."""
    prompt = Prompt.of(identity_context="Änn", working_memory="old")
    attributes = dict(registry.find(prompt.encode()).attributes(prompt.encode(), KEY))
    expected = maps.of_text(prompt, prompt.blocks, KEY)
    assert maps.of_attributes(attributes) == expected
    as_json = msgspec.json.decode(msgspec.json.encode(attributes))
    assert maps.of_attributes(as_json) == expected
    assert expected.mapped


@pytest.mark.parametrize(
    "change",
    [
        {"clew.prompt.block.ids": ("one",)},
        {"clew.prompt.block.bytes": (1, 2)},
        {"clew.prompt.block.bytes": ("4", "5")},
        {"clew.prompt.block.digests": None},
        {"clew.prompt.block.layers": "text"},
        {"clew.prompt.mapped": False},
        {"clew.prompt.mapped": None},
    ],
)
def test_arrays_that_do_not_fit_are_no_map(change: dict[str, Any]):
    """Half a map is none: what remains is the text as a whole."""
    prompt = Prompt.of(identity_context="Änn", working_memory="old")
    attributes = {**registry.find(prompt.encode()).attributes(prompt.encode(), KEY), **change}
    assert maps.of_attributes(attributes) == whole(prompt)


def test_attributes_without_a_prompt():
    """A round that says nothing of a system text has no map and no whole."""
    assert maps.of_attributes({}) is None
    assert maps.of_attributes({"clew.digest.key_id": "k", "clew.prompt.mapped": True}) is None


def test_unknown_words_are_kept():
    """Layers and sources that this version does not know are read as they are."""
    prompt = Prompt.of(identity_context="Änn")
    attributes = {
        **registry.find(prompt.encode()).attributes(prompt.encode(), KEY),
        "clew.prompt.block.layers": ("a_new_one",),
    }
    assert maps.of_attributes(attributes).layers == ("a_new_one",)


def test_the_largest_maps_are_compared_in_time():
    """Two maps of 256 blocks that have nothing in common but their ids take well under a second."""
    before = made(" ".join(f"t=a{number}" for number in range(256)))
    after = made(" ".join(f"t=b{number}" for number in range(256)))
    began = time.process_time()
    found = compare(before, after)
    assert len(found.changes) == 256
    assert time.process_time() - began < 3
