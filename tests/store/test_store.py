"""Writing and reading the local store."""

# ruff: noqa: SIM300 - expected == actual, in this order
from __future__ import annotations

import random
import uuid
from collections.abc import Sequence
from typing import Any

import httpx
import pytest
import sample_runs
from msgspec.structs import replace
from sample_messages import spans_of

import clew
from clew import semconv
from clew.facts import Usage
from clew.pipeline import runtime
from clew.settings import Settings
from clew.store import otlp_protobuf
from clew.store.database import connect
from clew.store.reader import Reader
from clew.store.records import MAX_PAGE, Page, QueryError, RunFilter, SpanRecord, span_order
from clew.store.summary import fold
from clew.store.writer import Writer, WriteResult
from clew.testing import CaptureExporter, Reply, ScriptedProvider


def shuffled(spans: Sequence[SpanRecord]) -> list[SpanRecord]:
    return random.Random(4).sample(spans, len(spans))  # noqa: S311 - a fixed order


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


def tried_again(how: str) -> tuple[SpanRecord, ...]:
    """Return the spans of a run that real code began, and went on with or began again."""
    exporter = CaptureExporter()
    chosen = Settings.from_environment(seal_grace_s=0, digest_key="k")
    clew.configure("tests", settings=chosen, span_exporters=[exporter])
    current = runtime.get()
    assert current is not None
    run_id = uuid.uuid4()
    body = {"model": "m", "messages": []}

    def attempt(number: int, **options: Any) -> str:
        again = clew.resume(options["reference"]) if options else clew.run("desk", run_id=run_id)
        with again as run:
            for _ in range(number):
                client.post(f"{server.base_url}/v1/chat/completions", json=body)
            return run.suspend("waiting_for_input") if number < 4 else run.reference()

    clew.instrument()
    with (
        ScriptedProvider(lambda _: Reply(usage=Usage(input_tokens=10, output_tokens=1))) as server,
        httpx.Client(trust_env=False) as client,
    ):
        reference = attempt(2)
        if how == "begun again":
            attempt(4)
        elif how == "begun again elsewhere":
            current.segments._open.clear()
            current.segments._used.clear()  # another process does not know of the first attempt
            attempt(4)
        elif how == "cut off and begun again":
            attempt(4)
        elif how == "gone on with":
            attempt(4, reference=reference)
        else:
            attempt(4, reference=reference)
            attempt(4, reference=reference)
    clew.uninstrument()
    clew.shutdown()
    spans = otlp_protobuf.decode(exporter.otlp_bytes()).spans
    if how == "cut off and begun again":
        first = next(each.segment_id for each in spans if each.segment == 1)
        ends = ("run", "event")
        spans = tuple(e for e in spans if not (e.segment_id == first and e.type in ends))
    return spans


@pytest.mark.parametrize(
    ("how", "rounds"),
    [
        ("begun again", 6),
        ("begun again elsewhere", 6),
        ("cut off and begun again", 6),
        ("gone on with", 6),
        ("gone on with twice", 10),
    ],
)
def test_the_totals_of_a_run_cover_each_attempt_once(
    writer: Writer, reader: Reader, how: str, rounds: int
) -> None:
    """Whatever order its spans come in: what its segments spent, added up once."""
    spans = tried_again(how)
    for span in shuffled(spans):
        writer.write((span,))
    record = reader.run(spans[0].trace_id)
    assert record is not None
    found = record.summary
    assert (rounds, rounds * 10, rounds) == (
        found.rounds,
        found.input_tokens,
        found.output_tokens,
    )
    assert fold(spans, spans[0].trace_id).rounds == rounds
    assert {"gone on with twice": 3}.get(how, 2) == found.segments


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
