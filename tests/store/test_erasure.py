"""Erasing records of model calls, also where the spans of their runs are kept elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prompt_rows import DAY, START_NS, record, row

from clew.store.erasure import Wanted, erase, set_hold, tombstones
from clew.store.prompt_index import PromptReader, RecordStore
from clew.store.prompt_records import EVERYTHING, PromptFilter
from clew.store.records import Page

RUNS = [f"0a1b2c3d-0000-4000-8000-00000000000{n}" for n in range(4)]
FACTS: dict[str, Any] = {"reason": "data_subject_request", "by": "ann"}


@pytest.fixture
def store(folder: Path) -> Iterator[RecordStore]:
    """Two records of each of four runs; no span of them is there."""
    opened = RecordStore(folder)
    for n, run_id in enumerate(RUNS):
        for k in range(2):
            one = row(
                10 * n + k + 1,
                start_ns=START_NS + n,
                run_id=run_id,
                tenant="acme" if n < 2 else "x",
                actor="d1" if n % 2 else "d2",
            )
            opened.save([(one, record(one))])
    yield opened
    opened.close()


def left(folder: Path) -> list[str]:
    """Return the runs of which there are records, with payloads or without."""
    reader = PromptReader(folder)
    rows = reader.records(PromptFilter(), Page(), EVERYTHING).records
    reader.close()
    return sorted({str(each.run_id) for each in rows})


@pytest.mark.parametrize(
    ("wanted", "gone"),
    [
        (Wanted(run_id=RUNS[2]), [2]),
        (Wanted(tenant="acme"), [0, 1]),
        (Wanted(actor="d1"), [1, 3]),
        (Wanted(tenant="x", actor="d1"), [3]),
        (Wanted(before_ns=START_NS + 1), [0]),
        (Wanted(tenant="nobody"), []),
    ],
)
def test_records_go_without_any_span(
    store: RecordStore, folder: Path, wanted: Wanted, gone: list[int]
) -> None:
    """Content of a run is here, and its spans elsewhere: it is erased, and leaves its line."""
    del store
    dry = erase(folder, wanted, category="all", dry_run=True, **FACTS)
    assert [each.run_id for each in dry.tombstones] == [RUNS[n] for n in gone]
    assert left(folder) == RUNS
    found = erase(folder, wanted, category="all", **FACTS)
    assert [(each.run_id, each.spans, each.records) for each in found.tombstones] == [
        (RUNS[n], 0, 2) for n in gone
    ]
    assert tombstones(folder) == found.tombstones
    assert left(folder) == [run for n, run in enumerate(RUNS) if n not in gone]
    files = list((folder / "prompts").glob("*/*.json"))
    assert len(files) == 2 * (len(RUNS) - len(gone))


def test_content_alone_goes_without_any_span(store: RecordStore, folder: Path) -> None:
    """The rows stay, the payloads go."""
    del store
    erase(folder, Wanted(tenant="acme"), category="content", **FACTS)
    assert left(folder) == RUNS
    assert len(list((folder / "prompts").glob("*/*.json"))) == 4


def test_records_under_a_legal_hold_stay(store: RecordStore, folder: Path) -> None:
    """Of a run, and of a tenant."""
    del store
    set_hold(folder, "hold", run_id=RUNS[0], reason="case-7", by="ann")
    set_hold(folder, "hold", tenant="x", reason="case-8", by="ann")
    found = erase(folder, Wanted(before_ns=START_NS + DAY), category="all", **FACTS)
    assert sorted(found.held) == [RUNS[0], RUNS[2], RUNS[3]]
    assert left(folder) == [RUNS[0], RUNS[2], RUNS[3]]
