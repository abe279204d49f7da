"""Groups of runs: where a run belongs, what becomes of a group that nobody is in any more."""

# ruff: noqa: SIM300 - expected == actual, in this order
from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import sample_messages
import sample_runs
from msgspec.structs import replace

from clew import semconv
from clew.store.database import connect
from clew.store.erasure import Wanted, erase
from clew.store.reader import Reader
from clew.store.records import Page, RunFilter, SpanRecord
from clew.store.scopes import Scope
from clew.store.writer import Writer


def run_of(agent: str, tools: tuple[str, ...], **about: Any) -> tuple[SpanRecord, ...]:
    """A run with one model call and a call of each tool; its root comes last."""
    run = sample_runs.Sample()
    status = {semconv.RUN_STATUS: "completed"}
    root = run.root(agent, 0, 100, **{**status, **about})
    run.model(1, 1, 2, root, model="m")
    for tool in tools:
        run.tool(tool, 3, 4, root, "ok")
    spans = sample_messages.spans_of(run)
    return (*spans[1:], spans[0])


def groups(path: Path, at_least: int = 0) -> list[tuple[Any, ...]]:
    connection = connect(path, read_only=True)
    sql = (
        "SELECT agent, status, tenant, tool, count(trace_id) FROM run_groups "
        "LEFT JOIN group_runs ON group_id = id GROUP BY id HAVING count(trace_id) >= ? "
        "ORDER BY 1, 2, 3, 4"
    )
    try:
        return connection.execute(sql, (at_least,)).fetchall()
    finally:
        connection.close()


def names(path: Path) -> list[tuple[Any, ...]]:
    connection = connect(path, read_only=True)
    try:
        return connection.execute(
            "SELECT what, value, count(*) FROM group_names GROUP BY 1, 2"
        ).fetchall()
    finally:
        connection.close()


def test_runs_that_are_alike_share_groups(writer: Writer) -> None:
    """One group for each tool, and one that says nothing of tools, however many runs there are."""
    for _ in range(3):
        writer.write(run_of("a", ("t1", "t2")))
    writer.write(run_of("a", ("t2",)))
    assert [
        ("a", "completed", None, None, 4),
        ("a", "completed", None, "t1", 3),
        ("a", "completed", None, "t2", 4),
    ] == groups(writer.path)
    model = ("model", "m-2026-08-07", 3)
    assert [model, ("tool", "t1", 1), ("tool", "t2", 1)] == names(writer.path)


def test_a_run_moves_as_its_spans_arrive(store_file: Path) -> None:
    """It is in the groups of what is known of it; those that it passed through go at the end."""
    spans = run_of("a", ("t1", "t2"))
    writer = Writer(store_file)
    for count, span in enumerate(spans, 1):
        writer.write([span])
        tools = {str(each.attributes.get(semconv.TOOL_NAME)) for each in spans[:count]}
        found = groups(store_file, 1)
        assert [None, *sorted({"t1", "t2"} & tools)] == [each[3] for each in found]
    writer.close()
    assert [("a", "completed", None, tool, 1) for tool in (None, "t1", "t2")] == groups(store_file)


def test_groups_that_were_left_are_looked_through_now_and_then(
    store_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many groups runs pass through, few that are empty are there at any time."""
    monkeypatch.setattr("clew.store.groups._MOST_LEFT", 3)
    writer = Writer(store_file)
    for number in range(10):
        for span in run_of(f"agent{number}", ("t1", "t2")):
            writer.write([span])
        assert [each for each in groups(store_file) if each[4] == 0][4:] == []
    writer.close()
    assert 30 == len(groups(store_file))


def test_copies_of_spans_move_nothing(writer: Writer) -> None:
    """Neither identical ones nor others under the same ids."""
    spans = run_of("a", ("t1",))
    writer.write(spans)
    before = groups(writer.path), names(writer.path)
    writer.write(spans)
    root = spans[-1]
    writer.write([replace(root, attributes={**root.attributes, semconv.RUN_STATUS: "failed"})])
    assert before == (groups(writer.path), names(writer.path))


def test_what_is_erased_is_offered_no_more(writer: Writer) -> None:
    """Names and groups of the last run that had them go with it; others' stay."""
    gone = run_of("gone", ("t1", "t2"), **{semconv.TENANT: "acme"})
    writer.write(gone)
    writer.write(run_of("stays", ("t2",)))
    erase(writer.path.parent, Wanted(tenant="acme"), category="all", reason="retention", by="ann")
    reader = Reader(writer.path)
    assert (("stays",), ("t2",)) == (reader.agents(), reader.names("tool"))
    assert () == reader.agents(Scope(tenant="acme"))
    assert () == reader.runs(RunFilter(tool="t1"), Page()).runs
    assert 1 == len(reader.runs(RunFilter(tool="t2"), Page()).runs)
    reader.close()
    assert {"stays"} == {each[0] for each in groups(writer.path)}
    # The run may come again: its groups are made anew.
    writer.write(gone)
    assert {"gone", "stays"} == {each[0] for each in groups(writer.path)}
