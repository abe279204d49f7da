"""Recorded calls in a data folder, for the commands that read them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from prompt_rows import SYSTEM, block, record, row

from clew.store.prompt_index import RecordStore
from clew.store.prompt_records import PromptRecord, PromptRow

RUN = "6fa459ea-ee8a-4ca4-894e-db77e160355e"


def save(data_dir: Path, *pairs: tuple[PromptRow, PromptRecord | None]) -> None:
    """Put rows and records into a data folder, as the recorder does."""
    store = RecordStore(data_dir)
    store.save(pairs)
    store.close()


def whole(number: int = 1, **more: Any) -> tuple[PromptRow, PromptRecord]:
    """Return a row and the record that goes with it."""
    one = row(number, **more)
    return one, record(one)


def blocks_of() -> tuple[Any, ...]:
    """Return the two blocks of the prompt that a sample call has."""
    return (
        block("template:clerk", 0, 27, 25),
        block("tone", 27, len(SYSTEM.encode()), 9, layer="identity"),
    )


def mapped(number: int, *blocks: tuple[str, str], **more: Any) -> PromptRow:
    """Return a row with blocks of these names and digests, ten bytes each."""
    found = tuple(
        block(name, 10 * at, 10 * at + 10, 8, digest=digest)
        for at, (name, digest) in enumerate(blocks)
    )
    size = 10 * len(blocks)
    given = {"digest_key": "k", "system_digest": repr(blocks), "level": "metadata", **more}
    return row(number, blocks=found, system_bytes=size, system_chars=size, **given)
