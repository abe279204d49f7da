"""Writing and reading the local store."""

# ruff: noqa: SIM300 - expected == actual, in this order
from __future__ import annotations

import os
import random
import sqlite3
import stat
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import sample_runs
from msgspec.structs import replace

from clew import semconv
from clew.errors import StoreError
from clew.store import otlp_protobuf, paths
from clew.store.database import Claim, connect
from clew.store.migrations import MIGRATIONS
from clew.store.reader import Reader
from clew.store.records import MAX_PAGE, Page, QueryError, RunFilter, SpanRecord, span_order
from clew.store.summary import fold
from clew.store.writer import Writer, WriteResult


def spans_of(*runs: sample_runs.Sample) -> tuple[SpanRecord, ...]:
    return otlp_protobuf.decode(sample_runs.protobuf(*runs)).spans


def shuffled(spans: Sequence[SpanRecord]) -> list[SpanRecord]:
    return random.Random(4).sample(spans, len(spans))  # noqa: S311 - a fixed order


@pytest.fixture
def writer(store_file: Path) -> Iterator[Writer]:
    opened = Writer(store_file, busy_s=0.2)
    yield opened
    opened.close()


@pytest.fixture
def reader(writer: Writer) -> Iterator[Reader]:
    opened = Reader(writer.path)
    yield opened
    opened.close()


def test_a_run_is_read_back_as_it_was_sent(writer: Writer, reader: Reader) -> None:
    """Every span comes back with all it had, ordered by segment and sequence number."""
    run = sample_runs.suspended()
    spans = spans_of(run)
    result = writer.write(shuffled(spans))
    record = reader.run(run.trace_id)
    assert WriteResult(stored=len(spans)) == result
    assert record is not None
    assert tuple(sorted(spans, key=span_order)) == record.spans
    assert [each.span_id for each in run.spans] == [each.span_id for each in record.spans]


def test_an_identical_copy_changes_nothing_and_is_counted(writer: Writer, reader: Reader) -> None:
    """A retried export adds no span and no totals; only the count of copies grows."""
    run = sample_runs.running()
    spans = spans_of(run)
    writer.write(spans)
    before = reader.run(run.trace_id)
    result = writer.write((*spans, *spans))
    after = reader.run(run.trace_id)
    assert WriteResult(duplicates=2 * len(spans)) == result
    assert before is not None
    assert after is not None
    assert before.spans == after.spans
    assert replace(before.summary, duplicates=4) == after.summary


def test_copies_within_one_message_are_counted(writer: Writer) -> None:
    """Copies that arrive together are told apart too."""
    spans = spans_of(sample_runs.running())
    assert WriteResult(stored=2, duplicates=1) == writer.write((*spans, spans[0]))


@pytest.mark.parametrize("way", ["in one message", "in two messages"])
def test_other_content_under_the_same_id_is_kept_beside(
    writer: Writer, reader: Reader, way: str
) -> None:
    """The first version stays; another one is kept as a conflict, its copies are counted."""
    run = sample_runs.running()
    spans = spans_of(run)
    other = replace(spans[1], attributes={**spans[1].attributes, semconv.USAGE_INPUT: 1})
    if way == "in one message":
        writer.write((*spans, other))
    else:
        writer.write(spans)
        assert WriteResult(conflicts=1) == writer.write((other,))
    assert WriteResult(duplicates=1) == writer.write((other,))
    record = reader.run(run.trace_id)
    assert record is not None
    assert spans == record.spans
    assert (other,) == record.conflicts
    assert (1, 1, 1200) == (
        record.summary.conflicts,
        record.summary.duplicates,
        record.summary.input_tokens,
    )


def test_what_a_collector_may_change_is_no_conflict(writer: Writer) -> None:
    """A copy with another resource, scope, flags or trace state is an identical copy."""
    span = spans_of(sample_runs.running())[0]
    writer.write((span,))
    copy = replace(
        span,
        resource=replace(span.resource, attributes={"service.name": "x", "added": "1"}),
        scope=replace(span.scope, version="2"),
        flags=3,
        trace_state="ot=th:8",
        attributes=dict(reversed(span.attributes.items())),
    )
    assert WriteResult(duplicates=1) == writer.write((copy,))


def test_totals_are_the_same_in_any_order_of_arrival(writer: Writer, reader: Reader) -> None:
    """However its spans are cut into messages, the run's summary is the same."""
    spans = list(spans_of(sample_runs.suspended("0a1b2c3d-0000-4000-8000-000000000001")))
    expected = fold(spans, spans[0].trace_id)
    for span in shuffled(spans):
        writer.write((span,))
    record = reader.run(spans[0].trace_id)
    assert record is not None
    assert expected == record.summary


def test_a_summary_states_the_run_s_own_totals(writer: Writer, reader: Reader) -> None:
    """Once the last segment has ended, its cumulative totals are the run's."""
    run = sample_runs.suspended()
    writer.write(spans_of(run))
    record = reader.run(run.trace_id)
    assert record is not None
    summary = record.summary
    assert ("completed", "completed", 2, 2) == (
        summary.status,
        summary.termination_reason,
        summary.segments,
        summary.sealed,
    )
    assert (2, 2000, 0.005, "partial") == (
        summary.rounds,
        summary.input_tokens,
        summary.cost_usd,
        summary.cost_status,
    )
    assert 3_603_100_000_000 == summary.duration_ns


def test_a_running_run_is_added_up_from_its_spans(writer: Writer, reader: Reader) -> None:
    """Before the end the totals are those of the spans so far, and the status is running."""
    run = sample_runs.running()
    writer.write(spans_of(run))
    record = reader.run(run.trace_id)
    assert record is not None
    summary = record.summary
    assert ("running", "triage", 1, 0) == (
        summary.status,
        summary.agent,
        summary.rounds,
        summary.denials,
    )
    assert (1200, 800, 64, 0.00123, "priced") == (
        summary.input_tokens,
        summary.cache_read_tokens,
        summary.reasoning_tokens,
        summary.cost_usd,
        summary.cost_status,
    )


def test_a_resumed_run_is_running_again(writer: Writer, reader: Reader) -> None:
    """A span of a later segment than the one that ended last makes the run running."""
    run = sample_runs.suspended()
    first = [each for each in spans_of(run) if each.segment == 1]
    second = [each for each in spans_of(run) if each.segment == 2 and each.type == "event"]
    writer.write(first)
    assert ["waiting_for_approval"] == statuses(reader)
    writer.write(second[:1])
    assert ["running"] == statuses(reader)


def statuses(reader: Reader) -> list[str | None]:
    return [each.status for each in reader.runs(RunFilter(), Page()).runs]


def test_usage_of_a_foreign_aggregate_is_not_counted_twice() -> None:
    """A foreign model span above a round of ours is marked and adds nothing."""
    run = sample_runs.running()
    run.add(
        "chat", 10, 20, None,
        {semconv.OPERATION: "chat", semconv.USAGE_INPUT: 1200, semconv.AGGREGATE: True},
        scope="anthropic",
    )  # fmt: skip
    run.add(
        "chat", 30, 40, None, {semconv.OPERATION: "chat", semconv.USAGE_INPUT: 7}, scope="other"
    )
    assert 1207 == fold(spans_of(run), run.trace_id).input_tokens


def test_lists_are_paged_without_gaps_or_repeats(writer: Writer, reader: Reader) -> None:
    """Pages follow each other, newest first, also where runs start at the same nanosecond."""
    for number in range(7):
        run = sample_runs.running(base_ns=sample_runs.START_NS + number // 3 * 10**9)
        writer.write(spans_of(run))
    seen, after = [], None
    for _ in range(10):
        page = reader.runs(RunFilter(), Page(limit=2, after=after))
        seen += page.runs
        after = page.next
        if after is None:
            break
    assert reader.runs(RunFilter(), Page()).runs == tuple(seen)
    assert 7 == len({each.trace_id for each in seen})
    assert sorted((each.start_ns for each in seen), reverse=True) == [e.start_ns for e in seen]


@pytest.mark.parametrize(
    ("wanted", "agents"),
    [
        (RunFilter(), {"triage", "refunds", "nightly-report"}),
        (RunFilter(agent="refunds"), {"refunds"}),
        (RunFilter(agent="nobody"), set()),
        (RunFilter(status="failed"), {"nightly-report"}),
        (RunFilter(denied=True), {"triage"}),
        (RunFilter(failed=True), {"triage", "nightly-report"}),
        (RunFilter(since_ns=sample_runs.START_NS + 1), {"refunds", "nightly-report"}),
        (RunFilter(until_ns=sample_runs.START_NS + 10**9), {"triage"}),
        (RunFilter(everything=True), {"triage", "refunds", "nightly-report", None}),
        (RunFilter(agent="refunds", status="failed"), set()),
    ],
)
def test_lists_are_filtered(
    writer: Writer, reader: Reader, wanted: RunFilter, agents: set[str | None]
) -> None:
    """Each filter shows exactly the runs that it accepts, in the store as in memory."""
    start = sample_runs.START_NS
    runs = (
        sample_runs.triage(base_ns=start),
        sample_runs.suspended(base_ns=start + 10**9),
        sample_runs.failed(base_ns=start + 2 * 10**9),
        sample_runs.foreign(base_ns=start + 3 * 10**9),
    )
    writer.write(spans_of(*runs))
    listed = reader.runs(wanted, Page()).runs
    everything = reader.runs(RunFilter(everything=True), Page()).runs
    assert agents == {each.agent for each in listed}
    assert listed == tuple(each for each in everything if wanted.accepts(each))


@pytest.mark.parametrize("limit", [0, -1, MAX_PAGE + 1])
def test_limits_out_of_bounds_are_refused(limit: int) -> None:
    """A page has between 1 and 1000 runs."""
    with pytest.raises(QueryError, match="limit"):
        Page(limit=limit)


@pytest.mark.parametrize("after", ["", "x", "1-2", "-1-" + "0" * 32, "f" * 20 + "-" + "0" * 32])
def test_cursors_that_no_list_gave_are_refused(reader: Reader, after: str) -> None:
    """A made-up cursor is an error, not an empty page."""
    with pytest.raises(QueryError, match="cursor"):
        reader.runs(RunFilter(), Page(after=after))


def test_names_of_agents_are_listed_once(writer: Writer, reader: Reader) -> None:
    """The filter of the list offers each agent once, in order."""
    assert () == reader.agents()
    writer.write(spans_of(sample_runs.triage(), sample_runs.suspended(), sample_runs.triage()))
    assert ("refunds", "triage") == reader.agents()


def test_ids_are_found_by_their_first_digits(writer: Writer, reader: Reader) -> None:
    """Any number of leading hex digits finds the run, odd numbers too."""
    one = sample_runs.running("aabbc000-0000-4000-8000-000000000001")
    two = sample_runs.running("aabbd000-0000-4000-8000-000000000001")
    writer.write(spans_of(one, two))
    assert (one.trace_id, two.trace_id) == reader.find("aab", 5)
    assert (one.trace_id,) == reader.find("aab", 1)
    assert (two.trace_id,) == reader.find("aabbd", 5)
    assert (two.trace_id,) == reader.find(two.trace_id, 5)
    assert () == reader.find("b", 5)


def test_columns_repeat_what_questions_ask_for(writer: Writer) -> None:
    """Denials can be asked for in SQL, by gate, subject and reason."""
    writer.write(spans_of(sample_runs.triage()))
    connection = connect(writer.path, read_only=True)
    rows = connection.execute(
        "SELECT gate, subject, reason, policy, policy_version, decided_by, enforced, executed"
        " FROM spans WHERE type = 'decision' AND outcome = 'deny'"
    ).fetchall()
    connection.close()
    expected = ("tool", "refund_payment", "trust_zone", "support-policy", "7", "policy", 1, 0)
    assert [expected] == rows


def test_attributes_of_the_wrong_type_leave_their_column_empty(
    writer: Writer, reader: Reader
) -> None:
    """Whatever a sender puts under a known key is kept, and breaks no list."""
    run = sample_runs.Sample()
    attributes: dict[str, Any] = {
        semconv.SEQ: "first",
        semconv.SEGMENT: 1.5,
        semconv.SEGMENT_ID: 7,
        semconv.USAGE_INPUT: "many",
        semconv.COST_USD: [1],
        semconv.RUN_ROOT: True,
        semconv.RUN_STATUS: 5,
        semconv.OPERATION: "chat",
        semconv.DECISION_ENFORCED: "yes",
        semconv.AGENT_NAME: True,
    }
    run.add("x", 0, 1, None, attributes, identity=False)
    writer.write(spans_of(run))
    record = reader.run(run.trace_id)
    assert record is not None
    assert attributes == record.spans[0].attributes
    assert (None, None, None) == (
        record.summary.status,
        record.summary.agent,
        record.summary.input_tokens,
    )


# --- the file -------------------------------------------------------------------------------------


def test_the_file_is_closed_to_others(writer: Writer) -> None:
    """The folder is made with 0700; the database and its side files have 0600."""
    writer.write(spans_of(sample_runs.running()))
    assert 0o700 == stat.S_IMODE(writer.path.parent.stat().st_mode)
    modes = {each.name: stat.S_IMODE(each.stat().st_mode) for each in writer.path.parent.iterdir()}
    assert {"clew.db": 0o600, "clew.db-wal": 0o600, "clew.db-shm": 0o600} == modes


def test_the_data_folder_follows_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """`CLEW_DATA_DIR` wins over `XDG_DATA_HOME`, which wins over the home folder."""
    monkeypatch.setenv("HOME", "/home/someone")
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    monkeypatch.delenv("CLEW_DATA_DIR", raising=False)
    assert Path("/home/someone/.local/share/clew/clew.db") == paths.store_path()
    monkeypatch.setenv("XDG_DATA_HOME", "/data")
    assert Path("/data/clew/clew.db") == paths.store_path()
    monkeypatch.setenv("CLEW_DATA_DIR", "/elsewhere")
    assert Path("/elsewhere/clew.db") == paths.store_path()


def test_a_new_file_has_every_migration_recorded(writer: Writer) -> None:
    """The list in the code and the table in the file agree; opening again adds nothing."""
    Writer(writer.path).close()
    connection = connect(writer.path, read_only=True)
    rows = connection.execute("SELECT number, name FROM migrations ORDER BY number").fetchall()
    connection.close()
    assert [(number, each.name) for number, each in enumerate(MIGRATIONS, 1)] == rows


def test_a_migration_that_fails_leaves_nothing_behind(
    store_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step and its record are one transaction: half a step is never in the file."""
    broken = (MIGRATIONS[0]._replace(statements=(*MIGRATIONS[0].statements, "NONSENSE")),)
    monkeypatch.setattr("clew.store.migrations.MIGRATIONS", broken)
    with pytest.raises(StoreError):
        Writer(store_file)
    connection = connect(store_file, read_only=True)
    assert [] == connection.execute("SELECT name FROM sqlite_schema").fetchall()
    connection.close()
    monkeypatch.undo()
    Writer(store_file).close()


def test_a_later_migration_runs_on_an_old_file(
    store_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file of today is brought up to date by a program that knows one step more."""
    first = Writer(store_file)
    run = sample_runs.running()
    first.write(spans_of(run))
    first.close()
    step = MIGRATIONS[0]._replace(name="more", statements=("ALTER TABLE runs ADD COLUMN more",))
    monkeypatch.setattr("clew.store.migrations.MIGRATIONS", (*MIGRATIONS, step))
    with pytest.raises(StoreError, match="older Clew"):
        Reader(store_file)
    Writer(store_file).close()
    reader = Reader(store_file)
    assert reader.run(run.trace_id) is not None
    reader.close()


def test_a_newer_store_is_refused(writer: Writer) -> None:
    """A file with an unknown migration is neither read nor written."""
    connection = connect(writer.path)
    connection.execute("INSERT INTO migrations VALUES (999, 'future', 0)")
    connection.close()
    for opening in (Reader, Writer):
        with pytest.raises(StoreError, match="newer Clew"):
            opening(writer.path)


def test_somebody_else_s_database_is_left_alone(store_file: Path) -> None:
    """An SQLite file of another program is refused, not changed."""
    store_file.parent.mkdir()
    connection = sqlite3.connect(store_file)
    connection.execute("CREATE TABLE accounts (id)")
    connection.close()
    for opening in (Reader, Writer):
        with pytest.raises(StoreError, match="another program"):
            opening(store_file)


def test_a_file_that_is_no_database_is_refused(store_file: Path) -> None:
    """Arbitrary bytes are a clear error and stay as they are."""
    store_file.parent.mkdir()
    store_file.write_bytes(b"hello " * 1000)
    for opening in (Reader, Writer):
        with pytest.raises(StoreError, match="not a database"):
            opening(store_file)
    assert b"hello " * 1000 == store_file.read_bytes()


def test_a_damaged_file_is_a_clear_error(store_file: Path) -> None:
    """Pages overwritten with garbage are noticed and named as damage."""
    writer = Writer(store_file)
    for _ in range(40):
        writer.write(spans_of(sample_runs.triage()))
    trace_id = spans_of(sample_runs.triage())[0].trace_id
    writer.close()
    content = bytearray(store_file.read_bytes())
    # The schema is in the first page: opening works, reading and writing find the damage.
    content[4096:] = b"\xa5" * (len(content) - 4096)
    store_file.write_bytes(content)
    with pytest.raises(StoreError, match="damaged"):
        Reader(store_file).run(trace_id)
    with pytest.raises(StoreError, match="damaged"):
        Writer(store_file).write(spans_of(sample_runs.triage()))


def test_a_missing_store_says_how_to_make_one(store_file: Path) -> None:
    """Reading where nothing is stored names the commands that store something."""
    with pytest.raises(StoreError, match="clew serve"):
        Reader(store_file)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_may_not_be_written_is_a_clear_error(tmp_path: Path) -> None:
    """Missing permissions are named as such."""
    tmp_path.chmod(0o500)
    with pytest.raises(StoreError, match="cannot be written"):
        Writer(tmp_path / "data" / "clew.db")
    tmp_path.chmod(0o700)


def test_a_folder_that_is_a_file_is_a_clear_error(tmp_path: Path) -> None:
    """A path that cannot be a folder is named as such."""
    (tmp_path / "data").write_text("")
    with pytest.raises(StoreError, match="cannot be written"):
        Writer(tmp_path / "data" / "clew.db")


def test_a_full_store_refuses_and_keeps_what_it_has(store_file: Path) -> None:
    """When there is no room left, a message is refused whole and the rest stays readable."""
    writer = Writer(store_file, max_bytes=200_000)
    stored = []
    with pytest.raises(StoreError, match="is full"):  # noqa: PT012 - at some point
        for _ in range(100):
            run = sample_runs.triage()
            writer.write(spans_of(run))
            stored.append(run.trace_id)
    reader = Reader(store_file)
    assert stored
    for trace_id in stored:
        record = reader.run(trace_id)
        assert record is not None
        assert len(sample_runs.triage().spans) == len(record.spans)
    assert len(stored) == len(reader.runs(RunFilter(), Page(limit=1000)).runs)
    reader.close()
    writer.close()


def test_a_locked_store_refuses_and_recovers(writer: Writer, reader: Reader) -> None:
    """While another program writes, a message is refused in time; afterwards it is stored."""
    run = sample_runs.running()
    other = connect(writer.path)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreError, match="is locked"):
        writer.write(spans_of(run))
    assert reader.run(run.trace_id) is None
    other.execute("ROLLBACK")
    other.close()
    assert WriteResult(stored=2) == writer.write(spans_of(run))


def test_one_bad_message_does_not_take_others_with_it(writer: Writer, reader: Reader) -> None:
    """Messages that are written together fail or succeed each for itself."""
    good = sample_runs.running()
    bad = replace(spans_of(sample_runs.running())[0], kind=2**70)
    blocker = connect(writer.path)
    blocker.execute("BEGIN IMMEDIATE")
    futures = [
        writer.submit(each) for each in (spans_of(sample_runs.running()), (bad,), spans_of(good))
    ]
    blocker.execute("ROLLBACK")
    blocker.close()
    assert [False, True, False] == [each.exception(10) is not None for each in futures]
    assert reader.run(good.trace_id) is not None


def test_a_queue_that_is_full_refuses(store_file: Path) -> None:
    """A writer that cannot keep up says so at once instead of holding everything in memory."""
    writer = Writer(store_file, waiting=1, busy_s=5)
    blocker = connect(store_file)
    blocker.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreError, match="cannot keep up"):  # noqa: PT012 - at some point
        for _ in range(5):
            writer.submit(spans_of(sample_runs.running()))
    blocker.execute("ROLLBACK")
    blocker.close()
    writer.close()


def test_closing_stores_what_is_waiting(store_file: Path) -> None:
    """A message that was accepted is on disk once the writer is closed; later ones are refused."""
    writer = Writer(store_file)
    runs = [sample_runs.running() for _ in range(20)]
    futures = [writer.submit(spans_of(run)) for run in runs]
    writer.close()
    writer.close()
    assert [WriteResult(stored=2)] * 20 == [each.result(0) for each in futures]
    with pytest.raises(StoreError, match="is closed"):
        writer.submit(())


def test_many_threads_read_while_one_writes(writer: Writer, reader: Reader) -> None:
    """Readers see whole messages only, whatever is written meanwhile."""
    run = sample_runs.triage()
    sizes: set[int] = set()
    faults: list[BaseException] = []

    def read() -> None:
        try:
            for _ in range(30):
                record = reader.run(run.trace_id)
                sizes.add(len(record.spans) if record else 0)
                assert record is None or record.summary.spans == len(record.spans)
        except BaseException as error:
            faults.append(error)

    threads = [threading.Thread(target=read) for _ in range(12)]
    for thread in threads:
        thread.start()
    spans = spans_of(run)
    writer.write(spans[:10])
    writer.write(spans[10:])
    for thread in threads:
        thread.join()
    assert [] == faults
    assert sizes <= {0, 10, len(spans)}


def test_two_writers_share_one_file(writer: Writer, reader: Reader) -> None:
    """Two programs that store spans of one run lose nothing and count right."""
    run = sample_runs.triage()
    spans = spans_of(run)
    other = Writer(writer.path)
    for number, span in enumerate(spans):
        (writer if number % 2 else other).write((span,))
    other.close()
    record = reader.run(run.trace_id)
    assert record is not None
    assert fold(spans, run.trace_id) == record.summary


def test_a_store_is_served_once(writer: Writer) -> None:
    """The right to serve a store is given once at a time, and can be given back."""
    claim = Claim(writer.path)
    with pytest.raises(StoreError, match="already served"):
        Claim(writer.path)
    claim.release()
    Claim(writer.path).release()
