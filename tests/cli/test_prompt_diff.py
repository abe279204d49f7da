"""`clew prompt diff`: what two recorded calls have in common."""

# ruff: noqa: SIM300 - expected == actual, in this order
from __future__ import annotations

import json
from pathlib import Path

import pytest
from commands import Clew
from msgspec.structs import replace
from prompt_rows import SYSTEM, digits, record, row
from recorded_calls import mapped, save

from clew.store.prompt_records import ToolDefinition


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ("a1 b1 c1", "a1 b1 c1", []),
        ("a1 b1 c1", "a1 b2 c1", ["changed    b  8 → 8 chars"]),
        ("a1 b1 c1", "a1 x1 b1 c1", ["added      x  8 chars"]),
        ("a1 b1 c1", "a1 c1", ["removed    b  8 chars"]),
        ("a1 b1 c1", "c1 a1 b1", ["reordered  c  block 3 → 1"]),
        ("a1 a2", "a1 a3 a2", ["added      a #2  8 chars"]),
    ],
)
def test_prompts_are_compared_by_block(
    prompt: Clew, data_dir: Path, before: str, after: str, expected: list[str]
) -> None:
    """By id and occurrence: one inserted block is one line, and nothing behind it has moved."""
    rows = [
        mapped(number, *((each[0], each[1:]) for each in blocks.split()), history_length=0)
        for number, blocks in ((1, before), (2, after))
    ]
    save(data_dir, *((each, None) for each in rows))
    code, out, _ = prompt("diff", digits(1), digits(2))
    assert 0 == code
    assert (expected or ["identical"]) == out.splitlines()


def test_identical_calls_are_identical(prompt: Clew, data_dir: Path) -> None:
    """All of it was compared, and nothing differs."""
    given = {"system_digest": "d", "digest_key": "k", "tools": record().tools}
    one, two = (row(number, **given) for number in (1, 2))
    save(data_dir, (one, record(one)), (two, record(two)))
    assert (0, "identical\n", "") == prompt("diff", digits(1), digits(2))
    _, out, _ = prompt("diff", digits(1), digits(2), "--json")
    assert json.loads(out)["identical"] is True


def test_unmapped_prompts_are_compared_as_a_whole(prompt: Clew, data_dir: Path) -> None:
    """Two different texts without a map are not the same, though no block says so."""
    one, two = (
        row(number, system_digest=str(number), digest_key="k", level="metadata")
        for number in (1, 2)
    )
    save(data_dir, (one, None), (two, None))
    _, out, _ = prompt("diff", digits(1), digits(2))
    assert "changed    (whole prompt)  34 → 34 chars, one of them has no map\n" == out


def test_prompts_of_different_keys_are_compared_by_their_text(prompt: Clew, data_dir: Path) -> None:
    """Where the texts are there; without them, nothing is claimed."""
    one, two = (row(number, system_digest="x", digest_key=str(number)) for number in (1, 2))
    other = record(two)
    changed = replace(other.system, text=SYSTEM.replace("brief", "quick"))
    save(data_dir, (one, record(one)), (two, replace(other, system=changed)))
    _, out, _ = prompt("diff", digits(1), digits(2))
    assert "changed    tone" in out
    assert "template:clerk" not in out
    bare = [
        row(number, system_digest="x", digest_key=str(number), level="metadata")
        for number in (3, 4)
    ]
    save(data_dir, *((each, None) for each in bare))
    _, out, _ = prompt("diff", digits(3), digits(4))
    assert "unknown    whether prompts of equal size are the same" in out


def test_tools_messages_model_and_parameters_are_compared(prompt: Clew, data_dir: Path) -> None:
    """Not the prompt alone."""
    given = {"system_digest": "d", "digest_key": "k"}
    one = row(1, **given)
    two = row(2, **given, history_length=5, model="gpt-4o")
    old = ToolDefinition(name="old", chars=10)
    new = ToolDefinition(name="new", chars=20)
    grown = replace(record().tools[0], chars=99)
    more = [*(record().messages or []), {"role": "assistant", "parts": []}]
    save(
        data_dir,
        (one, record(one, tools=(old, record().tools[0]))),
        (two, record(two, tools=(grown, new), messages=more, parameters={"temperature": 1.0})),
    )
    _, out, _ = prompt("diff", digits(1), digits(2))
    assert {
        "removed    tool old  10 chars",
        "added      tool new  20 chars",
        "changed    tool lookup  83 → 99 chars",
        "changed    model  gpt-4o-mini → gpt-4o",
        "changed    parameter temperature  0.5 → 1.0",
        "changed    messages  1 → 2: 1 more behind 1 that are the same",
    } == set(out.splitlines())
    _, out, _ = prompt("diff", digits(1), digits(2), "--json")
    found = json.loads(out)
    assert (False, "identical") == (found["identical"], found["system"]["outcome"])
