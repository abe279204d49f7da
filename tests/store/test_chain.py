"""Chained lines: their digests stay what they were, and whatever is done to a file shows."""

# ruff: noqa: SIM300 - expected == actual, in this order
from __future__ import annotations

from pathlib import Path

import pytest

from clew.errors import StoreError
from clew.store.chain import Chained, append, chained, parsed
from clew.store.erasure import Tombstone


class Entry(Chained, frozen=True, kw_only=True):
    word: str


def broken(number: int, problem: str) -> ValueError:
    return ValueError(f"{number}: {problem}")


def lines_of(path: Path) -> list[bytes]:
    return path.read_bytes().splitlines()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Three lines, written in two turns."""
    path = tmp_path / "data" / "lines"
    first = chained([], [Entry(word=each, previous="") for each in ("one", "two")])
    append(path, first)
    append(path, chained(first, [Entry(word="three", previous="")]))
    return path


def test_what_was_written_is_read(file: Path) -> None:
    """Each line names the one before; the first names none."""
    found = parsed(lines_of(file), Entry, broken)
    assert ["one", "two", "three"] == [each.word for each in found]
    assert ["0" * 64, found[0].digest, found[1].digest] == [each.previous for each in found]


@pytest.mark.parametrize("number", range(3))
@pytest.mark.parametrize("what", ["changed", "taken out", "put in twice", "no JSON"])
def test_what_was_done_to_a_line_shows(file: Path, number: int, what: str) -> None:
    """The error names the line, or the one behind it."""
    lines = lines_of(file)
    match what:
        case "changed":
            lines[number] = lines[number].replace(b'"word":"', b'"word":"x')
        case "taken out":
            lines.pop(number)
        case "put in twice":
            lines.insert(number, lines[number])
        case _:
            lines[number] = b"{"
    if what == "taken out" and number == 2:
        # The end alone is not missed: that is what the last digest is kept elsewhere for.
        assert 2 == len(parsed(lines, Entry, broken))
        return
    at = number + 2 if what == "put in twice" else number + 1
    with pytest.raises(ValueError, match=f"^{at}: "):
        parsed(lines, Entry, broken)


def test_a_digest_is_over_the_sorted_line_without_it() -> None:
    """Files that were written before are read; members that are absent are not in the digest."""
    bare = Tombstone(
        time_ns=1, run_id="r", category="all", reason="retention", by="ann", spans=3, records=0,
        previous="0" * 64,
    )  # fmt: skip
    digest = "c1a61b028ce4f21ef63b35585da8d39cd933dca6ebf26e427606f3285b898358"
    assert digest == bare.computed()
    assert [digest] == [each.digest for each in chained([], [bare])]


def test_a_file_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    """With the path; nothing to write makes no file."""
    append(tmp_path / "none", [])
    assert not (tmp_path / "none").exists()
    with pytest.raises(StoreError, match="cannot be written"):
        append(tmp_path, [Entry(word="one", previous="")])
