"""Erasing keeps the proof; legal holds keep what is under them."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tampering import Exported

import clew
from clew import semconv
from clew.audit.keys import KeyRing
from clew.audit.verify import absent, verify
from clew.errors import ClewError
from clew.sources.otlp_json import OtlpJsonSource
from clew.store.erasure import (
    TOMBSTONES,
    BrokenTombstonesError,
    Wanted,
    erase,
    holds,
    set_hold,
    tombstones,
)
from clew.store.paths import store_path
from clew.store.reader import Reader
from clew.store.writer import Writer

FACTS = {"category": "all", "reason": "data_subject_request", "by": "ann"}
Stored = Callable[..., dict[str, str]]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The data folder."""
    return tmp_path / "folder"


@pytest.fixture
def stored(recorded: Exported, folder: Path, tmp_path: Path) -> Stored:
    """Return what stores three runs, and gives their ids by agent."""

    def store(**settings: Any) -> dict[str, str]:
        ids: dict[str, str] = {}

        def work(_: str) -> None:
            for agent, tenant, actor in (
                ("a", "acme", "ann"),
                ("b", "acme", "bob"),
                ("c", "x", "ann"),
            ):
                search = clew.tool("search", arguments={"q": "SECRET"}, effect="read_only")
                with clew.run(agent, tenant=tenant, actor=actor) as run, search:
                    pass
                ids[agent] = str(run.run_id)

        path = tmp_path / "runs.json"
        path.write_text(json.dumps(recorded(work, **settings)))
        writer = Writer(store_path(folder))
        with OtlpJsonSource(path) as source:
            for trace_id in source.find("", 9):
                writer.write(source.run(trace_id).spans)
        writer.close()
        return ids

    return store


def there(folder: Path, ids: dict[str, str]) -> list[str]:
    """Return the agents whose runs are still in the store."""
    reader = Reader(store_path(folder))
    found = [a for a, run in ids.items() if reader.run(run.replace("-", "")) is not None]
    reader.close()
    return found


def actor_of(folder: Path, run_id: str) -> str:
    """Return the keyed digest of a run's actor."""
    reader = Reader(store_path(folder))
    record = reader.run(run_id.replace("-", ""))
    reader.close()
    assert record is not None
    return next(
        span.attributes[semconv.ACTOR] for span in record.spans if semconv.ACTOR in span.attributes
    )


@pytest.mark.parametrize("what", ["run", "tenant", "actor", "age"])
def test_what_is_erased_is_gone_and_says_so(stored: Stored, folder: Path, what: str) -> None:
    """By run, by tenant, by person, by age; each run leaves its line."""
    ids = stored(digest_key="d")
    wanted = {
        "run": Wanted(run_id=ids["a"]),
        "tenant": Wanted(tenant="acme"),
        "actor": Wanted(actor=actor_of(folder, ids["a"])),
        "age": Wanted(before_ns=time.time_ns()),
    }[what]
    gone = {"run": "a", "tenant": "ab", "actor": "ac", "age": "abc"}[what]
    dry = erase(folder, wanted, dry_run=True, **FACTS)
    assert there(folder, ids) == ["a", "b", "c"]
    found = erase(folder, wanted, **FACTS)
    assert there(folder, ids) == [each for each in "abc" if each not in gone]
    assert [each.run_id for each in found.tombstones] == [ids[each] for each in gone]
    assert [each.spans for each in dry.tombstones] == [4] * len(gone)
    assert tombstones(folder) == tuple(found.tombstones)
    report = absent(
        ids["a"].replace("-", ""), erased={each.run_id: each for each in tombstones(folder)}
    )
    assert report.status == "UNKNOWN"
    assert "(data_subject_request)" in report.reason


def test_a_tombstone_has_the_digests_of_the_segments(stored: Stored, folder: Path) -> None:
    """So that a checkpoint kept elsewhere still says what there was."""
    ids = stored()
    reader = Reader(store_path(folder))
    record = reader.run(ids["a"].replace("-", ""))
    reader.close()
    assert record is not None
    seal = next(s for s in record.spans if semconv.SEGMENT_DIGEST in s.attributes)
    (line,) = erase(folder, Wanted(run_id=ids["a"]), **FACTS).tombstones
    assert line.segments == ((seal.segment_id, seal.attributes[semconv.SEGMENT_DIGEST]),)


def test_erasing_content_leaves_the_proof_whole(
    stored: Stored, folder: Path, keys: KeyRing
) -> None:
    """Captured content goes; the run is still complete and signed."""
    ids = stored(capture="full", content_to=frozenset({"spans"}))
    assert b"SECRET" in store_path(folder).read_bytes()
    (line,) = erase(folder, Wanted(run_id=ids["a"]), **{**FACTS, "category": "content"}).tombstones
    erase(folder, Wanted(tenant="acme"), **{**FACTS, "category": "content"})
    erase(folder, Wanted(tenant="x"), **{**FACTS, "category": "content"})
    assert line.category == "content"
    reader = Reader(store_path(folder))
    record = reader.run(ids["a"].replace("-", ""))
    reader.close()
    assert record is not None
    assert all(set(semconv.CONTENT).isdisjoint(span.attributes) for span in record.spans)
    report = verify(record, keys)
    assert (report.status, report.integrity) == ("COMPLETE", "SIGNED")


def test_other_versions_of_a_span_lose_their_content_too(stored: Stored, folder: Path) -> None:
    """A second version that arrived keeps its facts, and nothing that was captured."""
    ids = stored(capture="full", content_to=frozenset({"spans"}))
    key = ids["a"].replace("-", "")
    reader = Reader(store_path(folder))
    record = reader.run(key)
    assert record is not None
    span = next(s for s in record.spans if semconv.TOOL_CALL_ARGUMENTS in s.attributes)
    facts = {**span.attributes, semconv.TOOL_CALL_ARGUMENTS: "ANOTHER-SECRET"}
    writer = Writer(store_path(folder))
    writer.write([msgspec.structs.replace(span, attributes=facts)])
    writer.close()
    erase(folder, Wanted(run_id=ids["a"]), **{**FACTS, "category": "content"})
    record = reader.run(key)
    reader.close()
    assert record is not None
    (other,) = record.conflicts
    assert other.span_id == span.span_id
    expected = {k: v for k, v in span.attributes.items() if k not in semconv.CONTENT}
    assert other.attributes == expected


def test_what_is_under_a_legal_hold_stays(stored: Stored, folder: Path) -> None:
    """A run, or all of a tenant, until it is released."""
    ids = stored()
    set_hold(folder, "hold", run_id=ids["a"], reason="case-7", by="ann")
    set_hold(folder, "hold", tenant="x", reason="case-8", by="ann")
    everything = Wanted(before_ns=time.time_ns())
    found = erase(folder, everything, **FACTS)
    assert there(folder, ids) == ["a", "c"]
    assert found.held == (ids["a"], ids["c"])
    set_hold(folder, "release", run_id=ids["a"], reason="case-7-closed", by="ann")
    assert holds(folder).runs == frozenset()
    erase(folder, everything, **FACTS)
    assert there(folder, ids) == ["c"]
    with pytest.raises(ClewError, match="one of the two"):
        set_hold(folder, "hold", reason="x", by="y")


def test_nothing_is_erased_where_the_holds_cannot_be_read(stored: Stored, folder: Path) -> None:
    """Nor where the tombstones are not whole, nor where nothing narrows it."""
    ids = stored()
    (folder / "holds.jsonl").write_text("{\n")
    with pytest.raises(ClewError, match=r"holds\.jsonl, line 1"):
        erase(folder, Wanted(run_id=ids["a"]), **FACTS)
    (folder / "holds.jsonl").unlink()
    with pytest.raises(ClewError, match="say what to erase"):
        erase(folder, Wanted(), **FACTS)
    erase(folder, Wanted(run_id=ids["a"]), **FACTS)
    file = folder / TOMBSTONES
    file.write_text(file.read_text().replace("data_subject_request", "data_subject_reques"))
    with pytest.raises(BrokenTombstonesError, match="line 1"):
        tombstones(folder)
    with pytest.raises(BrokenTombstonesError):
        erase(folder, Wanted(run_id=ids["b"]), **FACTS)
    assert there(folder, ids) == ["b", "c"]


def test_the_commands(stored: Stored, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hold, erase, verify, as their user runs them."""
    ids = stored()
    monkeypatch.setenv("CLEW_DATA_DIR", str(folder))

    def call(*more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [Path(sys.executable).with_name("clew"), *more],
            capture_output=True,
            text=True,
            check=False,
        )

    assert call("audit", "hold", "add", "--tenant", "x", "--reason", "case-7").returncode == 0
    assert "case" not in call("audit", "hold", "list").stdout
    assert call("audit", "hold", "list", "--json").stdout.count('"x"') == 1
    done = call("audit", "erase", "--reason", "retention", "--before", "2999-01-01", "--json")
    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)["tombstones"]) == 2
    done = call("verify", ids["a"])
    assert done.returncode == 3
    assert "were erased on" in done.stdout
    assert call("audit", "erase", "--reason", "retention").returncode == 1
