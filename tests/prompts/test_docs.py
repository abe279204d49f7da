"""The page about segmented prompts keeps up with the code, and its examples run."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from clew import semconv
from clew.digests import Digests
from clew.prompts import Prompt, classify, registry, sections
from clew.prompts.registry import MOST_PROMPTS

PAGE = (Path(__file__).parents[2] / "docs" / "prompts.md").read_text("utf-8")
EXAMPLES = re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


class Client:
    """Takes what an example sends."""

    def __init__(self) -> None:
        self.sent: list[Any] = []
        self.chat = SimpleNamespace(completions=SimpleNamespace(create=self.create))

    def create(self, **arguments: Any) -> None:
        self.sent.append(arguments["messages"][0]["content"])


def test_the_table_of_sections():
    """Every known section is in the table as the code has it, and no other."""
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \| (\w+) \| (\w+) \|$", PAGE, re.MULTILINE)
    known = sections.classified()
    assert {name: tuple(words) for name, *words in rows} == {
        name: (kind.layer, kind.stability, kind.source) for name, kind in known.items()
    }


def test_every_attribute_is_explained():
    """Each key about prompts is in the table."""
    keys = [key for key in semconv.RULES if key.startswith("clew.prompt.")]
    assert re.findall(r"^\| `(clew\.prompt\.[\w.]+)` \|", PAGE, re.MULTILINE) == keys


def test_every_way_to_make_a_prompt_is_explained():
    """Each public method is on the page, and the bounds are the code's."""
    methods = [name for name in vars(Prompt) if not name.startswith("_")]
    assert [name for name in methods if f".{name}" not in PAGE] == ["blocks"]
    assert f"{MOST_PROMPTS:,}" in PAGE
    assert f"more\nthan {semconv.MOST_PROMPT_BLOCKS} blocks" in PAGE


def test_the_examples_run(monkeypatch: pytest.MonkeyPatch):
    """Each example does what the page says, one after the other."""
    monkeypatch.setattr(sections, "_sections", dict(sections._sections))
    client = Client()
    names: dict[str, Any] = {
        "client": client,
        "identity": "You are Nova.",
        "memory": None,
        "question": "Where is it?",
        "documents": "Page 7.",
    }
    first, second, third, fourth = EXAMPLES
    exec(first, names)  # noqa: S102 - the page's
    assert client.sent == ["You sort tickets, at most 5 at once.\n\nYou are Nova.\n"]
    assert [block.id for block in client.sent[0].blocks] == [
        "template:triage",
        "identity_context",
        "template:triage",
    ]
    exec(second, names)  # noqa: S102
    assert [block.id for block in names["prompt"].blocks] == [
        "identity_context",
        "house_rules",
        "working_memory",
    ]
    assert [block.id for block in names["shouted"].blocks] == ["identity_context", "template:shout"]
    exec(third, names)  # noqa: S102
    assert [block.layer for block in names["prompt"].blocks] == ["knowledge"]
    rounds = []
    for text in ("short", "longer"):
        data = Prompt.of(identity_context="You are Nova.", working_memory=text).encode()
        rounds.append(registry.find(data).attributes(data, Digests(b"key")))
    names["earlier"], names["later"] = (SimpleNamespace(attributes=each) for each in rounds)
    said: list[tuple[Any, ...]] = []
    names["print"] = lambda *words: said.append(words)
    exec(fourth, names)  # noqa: S102
    assert said[:2] == [("changed", "working_memory", 1, 7, 8), ("working_memory",)]
    assert [share.basis for share in said[2][0]] == ["scaled", "scaled"]


def test_classifying_is_for_the_process(monkeypatch: pytest.MonkeyPatch):
    """What the page classifies is known to prompts made afterwards."""
    monkeypatch.setattr(sections, "_sections", dict(sections._sections))
    classify("house_rules", layer="contract", stability="epoch", source="file")
    assert Prompt.of(house_rules="x").blocks[0].layer == "contract"
