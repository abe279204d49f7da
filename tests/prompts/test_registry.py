"""Which prompts are known, how many, and what a round says of one."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading

import pytest

from clew import semconv
from clew.digests import Digests
from clew.prompts import Kind, Prompt, Section, registry
from clew.rules import DROPPED

KIND = Kind(layer="working", stability="epoch", source="store")


def test_only_prompts_with_a_map_are_known():
    """Plain text, dropped maps and nothing at all are not registered."""
    Prompt("plain")
    Prompt()
    Prompt.from_jinja("t", "{{ a }}", sections={"a": "\ue000"})
    assert registry.known == {}
    prompt = Prompt.of(a="x")
    assert [found.blocks for found in registry.known.values()] == [prompt.blocks]


def test_no_text_is_kept():
    """What is kept of a prompt is a keyed digest and its blocks."""
    Prompt.of(a="a secret sentence")
    kept = repr([(key, found.blocks) for key, found in registry.known.items()])
    assert "secret" not in kept
    assert all(len(key) == 32 for key in registry.known)


def test_a_prompt_is_found_by_its_whole_text():
    """Only the exact bytes find it."""
    prompt = Prompt.of(a="é", b="y")
    data = prompt.encode()
    assert registry.find(data).blocks == prompt.blocks
    for other in (data[:-1], data + b"\n", b" " + data, b""):
        assert registry.find(other) is None


def test_of_one_text_the_blocks_made_last_count():
    """The same text put together anew has the new blocks."""
    Prompt.of(a="x")
    second = Prompt.of(b="x")
    assert len(registry.known) == 1
    assert registry.find(b"x").blocks == second.blocks


def test_those_not_seen_for_longest_are_forgotten(monkeypatch):
    """The number is bounded; being made again or seen on the wire counts as being seen."""
    monkeypatch.setattr(registry, "MOST_PROMPTS", 3)
    for text in ("1", "2", "3"):
        Prompt.of(a=text)
    Prompt.of(a="1")
    registry.find(b"2")
    Prompt.of(a="4")
    Prompt.of(a="5")
    found = [text for text in "12345" if registry.find(text.encode())]
    assert found == ["2", "4", "5"]


def test_all_blocks_together_are_bounded(monkeypatch):
    """Prompts of many blocks push out more of the others; the one made last stays."""
    monkeypatch.setattr(registry, "MOST_BLOCKS", 10)
    many = [[(f"n{part}", f"{number}-{part}") for part in range(4)] for number in range(3)]
    first, second, third = (Prompt.of(sections) for sections in many)
    assert [registry.find(each.encode()) is None for each in (first, second, third)] == [
        True,
        False,
        False,
    ]
    assert registry._blocks == 8
    Prompt.of({f"other{part}": f"2-{part}" for part in range(4)})  # the text of the third
    assert (registry._blocks, len(registry.known)) == (8, 2)
    huge = Prompt.of([("a", str(number)) for number in range(40)])
    assert [found.blocks for found in registry.known.values()] == [huge.blocks]


FORK = """
import os
from clew.prompts import Prompt, registry

with registry._lock:
    child = os.fork()
    if not child:
        prompt = Prompt.of(a="x")
        os._exit(0 if registry.find(prompt.encode()) else 1)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_fork_while_a_prompt_is_being_made():
    """A child that was forked while the lock was held makes prompts all the same."""
    done = subprocess.run(
        [sys.executable, "-c", FORK], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.stdout, done.stderr) == ("0\n", "")


def test_sizes_are_forgotten_with_their_prompts(monkeypatch):
    """A text of a size that no known prompt has is not even hashed."""
    monkeypatch.setattr(registry, "MOST_PROMPTS", 2)
    for text in ("1", "22", "333", "333"):
        Prompt.of(a=text)
    assert dict(registry._sizes) == {2: 1, 3: 1}
    monkeypatch.setattr(registry.hmac, "digest", None)
    assert registry.find(b"1") is None


def test_many_threads():
    """Prompts made and looked for in many threads at once: none is mixed up, the bound holds."""
    failures: list[str] = []
    begin = threading.Barrier(8)

    def work(number: int) -> None:
        begin.wait()
        for turn in range(200):
            prompt = Prompt.of(**{f"n{number}": f"{number}-{turn}", "b": "é" * turn})
            found = registry.find(prompt.encode())
            if found is None or found.blocks != prompt.blocks:
                failures.append(prompt)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert len(registry.known) == 1600


def test_a_known_prompt_is_never_gone_for_a_moment():
    """The tap asks without the lock whether any prompt is known: looking one up takes none out."""
    prompt = Prompt.of(a="x")
    data = prompt.encode()
    done = threading.Event()

    def look() -> None:
        while not done.is_set():
            registry.find(data)
            registry.register(data, prompt.blocks)

    threads = [threading.Thread(target=look) for _ in range(3)]
    for thread in threads:
        thread.start()
    seen = [bool(registry.known) for _ in range(200_000)]
    done.set()
    for thread in threads:
        thread.join()
    assert all(seen)


def test_what_a_round_says_of_a_prompt():
    """Parallel arrays and the whole, with digests of the configured key."""
    prompt = Prompt.of(identity_context="Änn", x=Section(text="y", kind=KIND))
    digests = Digests(b"key")
    found = registry.find(prompt.encode())
    assert found.attributes(prompt.encode(), digests) == {
        "clew.prompt.mapped": True,
        "clew.prompt.digest": digests.of("Änn\n\ny"),
        "clew.prompt.bytes": 7,
        "clew.digest.key_id": digests.key_id,
        "clew.prompt.block.ids": ("identity_context", "x"),
        "clew.prompt.block.layers": ("identity", "working"),
        "clew.prompt.block.stabilities": ("epoch", "epoch"),
        "clew.prompt.block.sources": ("file", "store"),
        "clew.prompt.block.bytes": (4, 3),
        "clew.prompt.block.digests": (digests.of("Änn"), digests.of("\n\ny")),
    }


def test_attributes_are_made_once_for_each_key():
    """The digests of a prompt are made when it is first seen, and anew for another key."""
    prompt = Prompt.of(a="x")
    found = registry.find(prompt.encode())
    first = found.attributes(prompt.encode(), Digests(b"one"))
    assert found.attributes(prompt.encode(), Digests(b"one")) is first
    other = found.attributes(prompt.encode(), Digests(b"two"))
    assert other["clew.digest.key_id"] != first["clew.digest.key_id"]
    assert other["clew.prompt.block.digests"] != first["clew.prompt.block.digests"]


def test_an_id_that_is_no_identifier_is_filled_in():
    """Ids are names given in code; what is none leaves its place and not its text."""
    prompt = Prompt.of({"a name with blanks": "x", "ok": "y", "": "z"})
    found = registry.find(prompt.encode()).attributes(prompt.encode(), Digests(b"key"))
    assert found["clew.prompt.block.ids"] == ("_OTHER", "ok", "_OTHER")


@pytest.mark.parametrize(("count", "mapped"), [(256, True), (257, False)])
def test_a_map_has_an_end(count, mapped):
    """A prompt of more blocks than an attribute holds has no map on its rounds, never half of one."""
    prompt = Prompt.of([("a", str(number)) for number in range(count)])
    attributes = registry.find(prompt.encode()).attributes(prompt.encode(), Digests(b"key"))
    assert attributes["clew.prompt.mapped"] is mapped
    assert [key in attributes for key in semconv.PROMPT_BLOCKS] == [mapped] * 6


def test_attributes_obey_their_rules():
    """Everything that a round says of a prompt is on the allow-list and passes unchanged."""
    prompt = Prompt.from_jinja("t", "a{{ b }}", sections={"b": "x"})
    attributes = registry.find(prompt.encode()).attributes(prompt.encode(), Digests(b"key"))
    kept = {key: semconv.RULES[key].apply(value) for key, value in attributes.items()}
    assert DROPPED not in kept.values()
    assert kept == attributes


def test_a_prompt_that_is_held_is_found_by_comparing(monkeypatch):
    """No digest is made for it, and the attributes are those that a digest finds."""
    prompt = Prompt.concat(Prompt.of(a="é " * 500), Prompt.of(b="y"))
    digests = Digests(b"key")
    found = registry.find(prompt.encode())
    assert found.made(digests) is None
    made = found.attributes(prompt.encode(), digests)
    monkeypatch.setattr(registry.hmac, "digest", lambda *_: pytest.fail("a digest was made"))
    assert registry.find_held("".join(prompt)) is found
    assert found.made(digests) is made
    assert found.made(Digests(b"other")) is None


def test_a_text_of_the_same_length_and_ends_is_not_taken_for_a_prompt():
    """What is in the middle counts."""
    prompt = Prompt.of(a="x" * 100 + "middle" + "y" * 100)
    assert registry.find_held("x" * 100 + "middle" + "y" * 100).blocks == prompt.blocks
    assert registry.find_held("x" * 100 + "muddle" + "y" * 100) is None
    assert registry.find_held("") is None


def test_a_prompt_that_nobody_holds_is_found_by_its_digest():
    """The registry keeps no text alive; a new prompt of the same text is held again."""
    text = "x" * 300
    prompt = Prompt.of(a=text)
    blocks = prompt.blocks
    del prompt
    gc.collect()
    assert registry._held == {}
    assert registry.find_held(text) is None
    assert registry.find(text.encode()).blocks == blocks
    again = Prompt.of(b=text)
    assert registry.find_held(text).blocks == again.blocks


def test_a_held_prompt_that_is_forgotten_is_not_found(monkeypatch):
    """Comparing counts as being seen, and finds nothing that a digest would not."""
    monkeypatch.setattr(registry, "MOST_PROMPTS", 2)
    first, second = Prompt.of(a="first"), Prompt.of(a="second")
    assert registry.find_held("first") is not None
    third = Prompt.of(a="third")
    assert registry.find_held("first") is not None
    assert registry.find_held("second") is None
    registry.forget()
    assert [registry.find_held(each) for each in (first, second, third)] == [None] * 3
