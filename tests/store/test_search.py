"""Searching for runs, and sums of cost: from indexes, and the same as from the spans."""

# ruff: noqa: SIM300 - expected == actual, in this order
from __future__ import annotations

import itertools
import sqlite3
import uuid
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import pytest
import sample_runs
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from sample_messages import spans_of

from clew import semconv
from clew.store import migrations, search
from clew.store.costs import CostFilter, CostRow, CostTable, cost_table
from clew.store.database import connect
from clew.store.reader import Reader
from clew.store.records import Page, QueryError, RunFilter
from clew.store.scopes import EVERYTHING, NOTHING, Scope
from clew.store.summary import fold
from clew.store.writer import Writer

SECOND = 10**9
AGENTS, MODELS, TOOLS, GATES = (tuple(f"{kind}{n}" for n in range(3)) for kind in "amtg")
TENANTS = (None, "acme", "evil")
ACTORS = (None, "d1", "d2")


def made(number: int) -> sample_runs.Sample:
    """A run whose parts follow from its number, in many combinations."""
    run = sample_runs.Sample(
        str(uuid.UUID(int=(number * 2654435761) % 2**64 + (number << 64))),
        base_ns=sample_runs.START_NS + (number % 7) * SECOND,
    )
    about: dict[str, Any] = {
        semconv.RUN_STATUS: semconv.RUN_STATUSES[number % len(semconv.RUN_STATUSES)],
        "clew.run.denials": number % 2,
    }
    if number % 5:
        about["clew.run.cost.usd"] = (number % 4) / 4
    if tenant := TENANTS[number % 3]:
        about[semconv.TENANT] = tenant
    if actor := ACTORS[(number // 3) % 3]:
        about[semconv.ACTOR] = actor
    root = run.root(AGENTS[number % 3], 0, 100, **about)
    for place in range(number % 3):
        run.model(place + 1, place, place + 1, root, model=MODELS[(number + place) % 3])
    if number % 4:
        run.tool(TOOLS[number % 3], 10, 20, root, "ok")
    for place in range((number // 2) % 3):
        outcome = semconv.DECISION_OUTCOMES[(number + place) % 3]
        run.decide(GATES[(number // 4 + place) % 3], outcome, 30 + place, root, "subject", "why")
    if number % 6 == 0:
        root.status = 2
    return run


RUNS = [spans_of(made(number)) for number in range(1, 121)]
PLANS = {
    "few": {},
    "many": {"_FEW": 5, "_LEAST": 1},
    "all different": {"_FEW": 5, "_MANY": 1, "_RECENT": 1},
}


@pytest.fixture(scope="module", params=["few", "many", "all different"])
def reader(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Reader]:
    """A store of all runs, searched by each plan.

    Everything is few; or many, and runs of a group are read one by one; or groups are so many that
    the newest runs are looked at first.
    """
    path = tmp_path_factory.mktemp("search") / "clew.db"
    writer = Writer(path)
    for run in RUNS:
        # Children first, as they are sent: the start of the run is known last.
        writer.write(run[1:])
        writer.write(run[:1])
    writer.close()
    with pytest.MonkeyPatch.context() as patch:
        for name, value in PLANS[request.param].items():
            patch.setattr(search, name, value)
        opened = Reader(path)
        yield opened
        opened.close()


def expected(wanted: RunFilter) -> list[str]:
    found = [
        summary
        for spans in RUNS
        if wanted.accepts(summary := fold(spans, spans[0].trace_id)) and wanted.accepts_spans(spans)
    ]
    found.sort(key=lambda each: (each.start_ns, each.trace_id), reverse=True)
    return [each.trace_id for each in found]


def paged(reader: Reader, wanted: RunFilter, limit: int) -> list[str]:
    found: list[str] = []
    after: str | None = None
    for _ in range(200):
        page = reader.runs(wanted, Page(limit=limit, after=after))
        found += [each.trace_id for each in page.runs]
        after = page.next
        if after is None:
            return found
    raise AssertionError("the pages do not end")


SCOPES = st.sampled_from(
    [
        EVERYTHING,
        NOTHING,
        Scope(tenant="acme"),
        Scope(no_tenant=True),
        Scope(actor="d1"),
        Scope(tenant="evil", actor="d2"),
    ]
)
STARTS = st.none() | st.integers(0, 7).map(lambda n: sample_runs.START_NS + n * SECOND)
COSTS = st.none() | st.sampled_from([0.0, 0.25, 0.5, 0.75, 2.0])


@settings(max_examples=150, deadline=None)
@given(data=st.data(), limit=st.sampled_from([1, 7, 1000]))
def test_a_search_finds_what_the_spans_say(reader: Reader, data: st.DataObject, limit: int) -> None:
    """Every combination of filters, paged, in both plans, gives what looking at all spans gives."""
    draw = data.draw
    since, until = draw(STARTS), draw(STARTS)
    low, high = draw(COSTS), draw(COSTS)
    if since is not None and until is not None and since >= until:
        until = None
    if low is not None and high is not None and low > high:
        high = None
    wanted = RunFilter(
        agent=draw(st.none() | st.sampled_from([*AGENTS, "nobody"])),
        status=draw(st.none() | st.sampled_from(semconv.RUN_STATUSES)),
        model=draw(st.none() | st.sampled_from([f"{each}-2026-08-07" for each in MODELS])),
        tool=draw(st.none() | st.sampled_from([*TOOLS, "none"])),
        gate=draw(st.none() | st.sampled_from(GATES)),
        outcome=draw(st.none() | st.sampled_from(semconv.DECISION_OUTCOMES)),
        since_ns=since,
        until_ns=until,
        cost_from=low,
        cost_to=high,
        denied=draw(st.booleans()),
        failed=draw(st.booleans()),
        everything=draw(st.booleans()),
        scope=draw(SCOPES),
        waiting_of=draw(SCOPES),
    )
    assert expected(wanted) == paged(reader, wanted, limit)


def test_gate_and_outcome_are_of_one_decision(reader: Reader) -> None:
    """A run with one gate's denial and another gate's approval is not found as a mixture."""
    for gate, outcome in itertools.product(GATES, semconv.DECISION_OUTCOMES):
        wanted = RunFilter(gate=gate, outcome=outcome)
        assert expected(wanted) == paged(reader, wanted, 1000)


def test_names_are_offered_once(reader: Reader) -> None:
    """Each model, tool and gate, in order."""
    models = [f"{each}-2026-08-07" for each in MODELS]
    assert [*models, *TOOLS, *GATES] == [
        *reader.names("model"),
        *reader.names("tool"),
        *reader.names("gate"),
    ]


@pytest.mark.parametrize(
    "scope",
    [EVERYTHING, Scope(tenant="acme"), Scope(no_tenant=True), Scope(actor="d1"), NOTHING],
)
def test_agents_are_those_of_the_scope(reader: Reader, scope: Scope) -> None:
    """No name of an agent of others is offered."""
    runs = [fold(spans, spans[0].trace_id) for spans in RUNS]
    names = {
        run.agent
        for run in runs
        if scope.covers(tenant=run.tenant, agent=run.agent, actor=run.actor)
    }
    assert tuple(sorted(name for name in names if name)) == reader.agents(scope)


@pytest.mark.parametrize(
    "wrong",
    [
        {"outcome": "fine"},
        {"status": "fine"},
        {"cost_from": -1.0},
        {"cost_to": float("inf")},
        {"cost_from": float("nan")},
        {"cost_from": 2.0, "cost_to": 1.0},
        {"since_ns": 2, "until_ns": 2},
    ],
)
def test_bad_bounds_are_refused(wrong: dict[str, Any]) -> None:
    """What cannot be meant is an error, not an empty list."""
    with pytest.raises(QueryError):
        RunFilter(**wrong)


def test_a_run_cannot_be_given_to_another_tenant(store_file: Path) -> None:
    """The first span that says whose a run is decides; a later one does not move it."""
    run = sample_runs.Sample()
    root = run.root("a", 0, 10, **{semconv.TENANT: "acme", semconv.ACTOR: "d1"})
    run.mark("started", "a", 0, root, **{semconv.TENANT: "acme", semconv.ACTOR: "d1"})
    mark, first = reversed(spans_of(run))
    stolen = replace(
        first,
        span_id="f" * 16,
        attributes={**first.attributes, semconv.TENANT: "evil", semconv.ACTOR: "d2"},
    )
    writer = Writer(store_file)
    for each in (mark, stolen, first):
        writer.write([each])
    reader = Reader(store_file)
    assert reader.covers(run.trace_id, Scope(tenant="acme", actor="d1"))
    assert not reader.covers(run.trace_id, Scope(tenant="evil"))
    assert not reader.covers(run.trace_id, Scope(actor="d2"))
    found = reader.runs(RunFilter(), Page()).runs[0]
    assert ("acme", "d1") == (found.tenant, found.actor)
    reader.close()
    writer.close()


# --- sums of cost -----------------------------------------------------------------------------

DAY = 86_400 * SECOND


def billed() -> list[sample_runs.Sample]:
    """Two days, two agents in one run, a call without a price and one without usage."""
    runs: list[sample_runs.Sample] = []
    for number in range(3):
        run = sample_runs.Sample(base_ns=sample_runs.START_NS + number // 2 * DAY)
        tenant = {semconv.TENANT: "acme" if number else "evil"}
        root = run.root("triage", 0, 100, **tenant)
        inner = run.add(
            "invoke_agent helper", 1, 90, root,
            {semconv.OPERATION: "invoke_agent", semconv.AGENT_NAME: "helper"}, agent="b" * 16,
        )  # fmt: skip
        run.model(1, 1, 2, root, model="m", cost=0.25, **{semconv.COST_STATUS: "priced"})
        run.model(1, 3, 4, inner, model="n", cost=0.5, agent="b" * 16,
                  **{semconv.COST_STATUS: "partial"})  # fmt: skip
        free = run.model(2, 5, 6, root, model="own", cost=None)
        free.attributes[semconv.COST_STATUS] = "unpriced"
        runs.append(run)
    silent = runs[0].model(3, 7, 8, runs[0].spans[0], model="m", cost=None)
    for key in (semconv.USAGE_INPUT, semconv.USAGE_OUTPUT):
        silent.attributes.pop(key, None)
    silent.attributes[semconv.COST_STATUS] = "unknown"
    outer = runs[1].model(9, 9, 10, runs[1].spans[0], model="m", cost=100.0)
    outer.attributes[semconv.AGGREGATE] = True
    runs[2].add("count_tokens m", 1, 2, runs[2].spans[0], {semconv.OPERATION: "count_tokens"})
    return runs


def table(path: Path, **more: Any) -> CostTable:
    reader = Reader(path)
    try:
        days = {"first": date(2026, 12, 1), "last": date(2026, 12, 3)}
        return reader.costs(CostFilter(**{**days, **more}))
    finally:
        reader.close()


def figures(rows: tuple[CostRow, ...]) -> list[tuple[Any, ...]]:
    return [
        (each.name, each.calls, each.cost_usd, each.unpriced, each.unknown, each.partial)
        for each in rows
    ]


@pytest.fixture(scope="module")
def paid(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("costs") / "clew.db"
    writer = Writer(path)
    for run in billed():
        for span in reversed(spans_of(run)):  # one by one, the names of agents last
            writer.write([span])
            writer.write([span])  # a copy counts once
    writer.close()
    return path


def test_costs_are_summed_by_day_agent_and_model(paid: Path) -> None:
    """Inner agents have their own cost; what has no cost is counted beside the sum, never as 0."""
    found = table(paid)
    assert [
        ("2026-12-01", 7, 1.5, 2, 1, 2),
        ("2026-12-02", 3, 0.75, 1, 0, 1),
        ("2026-12-03", 0, None, 0, 0, 0),
    ] == figures(found.days)
    assert [("helper", 3, 1.5, 0, 0, 3), ("triage", 7, 0.75, 3, 1, 0)] == figures(found.agents)
    assert [
        ("n-2026-08-07", 3, 1.5, 0, 0, 3),
        ("m-2026-08-07", 4, 0.75, 0, 1, 0),
        ("own-2026-08-07", 3, None, 3, 0, 0),
    ] == figures(found.models)
    total = found.total
    assert (10, 2.25, 3, 1, 3, True) == (
        total.calls, total.cost_usd, total.unpriced, total.unknown, total.partial,
        total.lower_bound,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("asked", "calls", "cost"),
    [
        ({"agent": "helper"}, 3, 1.5),
        ({"model": "own-2026-08-07"}, 3, None),
        ({"agent": "triage", "model": "m-2026-08-07"}, 4, 0.75),
        ({"agent": "nobody"}, 0, None),
        ({"first": date(2026, 12, 2)}, 3, 0.75),
        ({"scope": Scope(tenant="evil")}, 4, 0.75),
        ({"scope": Scope(tenant="acme")}, 6, 1.5),
        ({"scope": Scope(no_tenant=True)}, 0, None),
        ({"scope": NOTHING}, 0, None),
    ],
)
def test_costs_can_be_narrowed(paid: Path, asked: dict[str, Any], calls: int, cost: Any) -> None:
    """By agent, model, days and by what may be read."""
    total = table(paid, **asked).total
    assert (calls, cost) == (total.calls, total.cost_usd)


@pytest.mark.parametrize(
    ("first", "last"),
    [(date(2026, 12, 2), date(2026, 12, 1)), (date(2025, 1, 1), date(2026, 12, 1))],
)
def test_days_out_of_bounds_are_refused(first: date, last: date) -> None:
    """The wrong way round, or too many."""
    with pytest.raises(QueryError):
        CostFilter(first=first, last=last)


def test_costs_are_summed_in_the_order_of_an_index(paid: Path) -> None:
    """Neither looked up nor sorted: the index of the sums has everything."""
    wanted = CostFilter(first=date(2026, 12, 1), last=date(2026, 12, 3))
    asked: list[str] = []
    connection = connect(paid, read_only=True)
    connection.set_trace_callback(asked.append)
    cost_table(connection, wanted)
    connection.set_trace_callback(None)
    (sql,) = asked
    plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {sql}")]
    connection.close()
    assert ["SEARCH c USING COVERING INDEX run_costs_sums (day>? AND day<?)"] == plan


# --- a store from before ----------------------------------------------------------------------

KEPT = (
    "SELECT * FROM run_costs",
    "SELECT * FROM run_agents",
    "SELECT key, is_run, agent, status, tenant, denied, failed, tool FROM run_groups",
    "SELECT what, value, key FROM group_names JOIN run_groups ON group_id = id",
    "SELECT key, start_ns, trace_id, cost_usd, actor FROM group_runs JOIN run_groups ON group_id = id",
    "SELECT trace_id, actor FROM runs",
)


def test_an_older_store_is_searched_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is kept beside runs is made from the spans that are there, the same as for new ones."""
    new, old = tmp_path / "new.db", tmp_path / "old.db"
    writer = Writer(new)
    every = [*RUNS, *(spans_of(run) for run in billed())]
    for run in every:
        writer.write(run)
    writer.close()
    before = next(n for n, each in enumerate(migrations.MIGRATIONS) if "search" in each.name)
    with monkeypatch.context() as patch:
        patch.setattr(migrations, "MIGRATIONS", migrations.MIGRATIONS[:before])
        connection = sqlite3.connect(old, isolation_level=None)
        migrations.migrate(connection, old)
        connection.execute("ATTACH ? AS new", (str(new),))
        for name in ("resources", "scopes", "spans", "runs"):
            columns = [row[1] for row in connection.execute(f"PRAGMA table_info({name})")]
            listed = ", ".join(columns)
            connection.execute(f"INSERT INTO {name} SELECT {listed} FROM new.{name}")  # noqa: S608
        connection.close()
    Writer(old).close()
    contents: list[list[Any]] = []
    for path in (new, old):
        connection = connect(path, read_only=True)
        contents.append([sorted(connection.execute(sql).fetchall(), key=repr) for sql in KEPT])
        connection.close()
    assert contents[0] == contents[1]
    assert all(contents[0])
