"""The index of records: what is written is found again, by whom it may."""

# ruff: noqa: SIM300 - expected == actual, in this order
from __future__ import annotations

import json

import pytest
from msgspec.structs import replace
from prompt_rows import START_NS, digits, ids, listed, record, row

from clew.store.database import connect
from clew.store.migrations import MIGRATIONS
from clew.store.prompt_index import PromptReader, RecordStore
from clew.store.prompt_records import (
    EVERYTHING,
    AmbiguousRecordError,
    PromptFilter,
    RecordNotFoundError,
    Scope,
)
from clew.store.records import Page, QueryError


def test_a_record_is_read_back_whole(store: RecordStore, prompt_reader: PromptReader) -> None:
    """Row and payload come back as they were written; the row knows the path and the size."""
    whole = record()
    size = store.save([(row(), whole)])
    found = prompt_reader.find_record(digits(1), EVERYTHING)
    assert replace(row(), path=f"prompts/2026-12-01/{digits(1)}.json", payload_bytes=size) == found
    assert whole == prompt_reader.record(found)
    path = prompt_reader.payload_path(found)
    assert path is not None
    assert size == path.stat().st_size


def test_a_row_without_payload_is_a_record_without_content(
    store: RecordStore, prompt_reader: PromptReader
) -> None:
    """At level `metadata` there is a row with sizes and tokens, and no file."""
    store.save([(row(level="metadata"), None)])
    found = prompt_reader.find_record(digits(1), EVERYTHING)
    assert (None, None) == (found.path, prompt_reader.payload_path(found))
    known = prompt_reader.record(found)
    assert (None, None, None) == (known.system.text, known.messages, known.response.text)
    assert (36, 34, 9) == (known.system.bytes, known.system.chars, known.system.tokens)
    assert known.usage is not None
    assert (1200, 0.00123) == (known.usage.input_tokens, known.usage.cost_usd)
    assert not (store.folder / "prompts").exists()


def test_unknown_usage_is_null_never_zero(store: RecordStore, prompt_reader: PromptReader) -> None:
    """A call without reported usage has none; a reported zero stays one."""
    unknown = {"input_tokens": None, "output_tokens": None, "cost_usd": None}
    store.save([(row(1, **unknown), None), (row(2, input_tokens=0, output_tokens=0), None)])
    first, second = (prompt_reader.find_record(digits(number), EVERYTHING) for number in (1, 2))
    assert prompt_reader.record(first).usage is None
    usage = prompt_reader.record(second).usage
    assert usage is not None
    assert 0 == usage.input_tokens


def test_an_id_or_what_only_one_begins_with(
    store: RecordStore, prompt_reader: PromptReader
) -> None:
    """Exact ids and unambiguous prefixes resolve; ambiguous and missing are different errors."""
    one, two = "ab" + "0" * 30, "ac" + "0" * 30
    store.save([(row(request_id=one), None), (row(request_id=two), None)])
    assert one == prompt_reader.find_record(one, EVERYTHING).request_id
    assert two == prompt_reader.find_record(" ac ", EVERYTHING).request_id
    with pytest.raises(AmbiguousRecordError, match=f"several .* 'a': {one}, {two}; give more"):
        prompt_reader.find_record("a", EVERYTHING)
    with pytest.raises(RecordNotFoundError, match="there is no record 'ad'"):
        prompt_reader.find_record("ad", EVERYTHING)


@pytest.mark.parametrize("prefix", ["%", "_", "\\", "a%", "a_", "%%", "a*", "a?", "' OR 1 --"])
def test_a_prefix_is_literal(store: RecordStore, prompt_reader: PromptReader, prefix: str) -> None:
    """Wildcards of any dialect match only themselves."""
    store.save([(row(request_id="ab" + "0" * 30), None)])
    with pytest.raises(RecordNotFoundError):
        prompt_reader.find_record(prefix, EVERYTHING)
    store.save([(row(request_id=f"{prefix}x"), None)])
    assert f"{prefix}x" == prompt_reader.find_record(prefix, EVERYTHING).request_id


def test_an_exact_id_wins(store: RecordStore, prompt_reader: PromptReader) -> None:
    """An id that another one begins with is still found."""
    store.save([(row(request_id="ab"), None), (row(request_id="abc"), None)])
    assert "ab" == prompt_reader.find_record("ab", EVERYTHING).request_id


@pytest.mark.parametrize("empty", ["", "  ", "\n"])
def test_an_empty_prefix_is_refused(prompt_reader: PromptReader, empty: str) -> None:
    """Nothing given names nothing, even where there is only one record."""
    with pytest.raises(QueryError, match="give the id of a record"):
        prompt_reader.find_record(empty, EVERYTHING)


def test_newest_first_and_page_by_page(store: RecordStore, prompt_reader: PromptReader) -> None:
    """Pages follow each other without gap or repetition, equal start times included."""
    store.save([(row(number, start_ns=START_NS + number // 3), None) for number in range(1, 11)])
    first = prompt_reader.records(PromptFilter(), Page(limit=4), EVERYTHING)
    second = prompt_reader.records(PromptFilter(), Page(limit=4, after=first.next), EVERYTHING)
    third = prompt_reader.records(PromptFilter(), Page(limit=4, after=second.next), EVERYTHING)
    pages = (first, second, third)
    assert [[10, 9, 8, 7], [6, 5, 4, 3], [2, 1]] == [ids(each.records) for each in pages]
    assert third.next is None


@pytest.mark.parametrize("limit", [0, -1, 1001, 10_000_000])
def test_a_bad_limit_is_refused(limit: int) -> None:
    """A page has 1 to 1,000 records; others are the caller's mistake."""
    with pytest.raises(QueryError, match="limit must be between 1 and 1000"):
        Page(limit=limit)


@pytest.mark.parametrize("after", ["x", "-1", "", f"-{'0' * 32}", "zz-" + "0" * 32])
def test_a_cursor_that_no_list_gave_is_refused(prompt_reader: PromptReader, after: str) -> None:
    """A made-up cursor is the caller's mistake."""
    with pytest.raises(QueryError, match="is not one that a list gave"):
        prompt_reader.records(PromptFilter(), Page(after=after), EVERYTHING)


def test_filters(store: RecordStore, prompt_reader: PromptReader) -> None:
    """Each filter keeps what it names; together they all hold."""
    run = "6fa459ea-ee8a-4ca4-894e-db77e160355e"
    trace = run.replace("-", "")
    store.save(
        [
            (row(1, agent="a", conversation_id="c1", run_id=run, trace_id=trace), None),
            (row(2, agent="a", model="gpt-4o", answered="gpt-4o-2024-08-06"), None),
            (row(3, agent="b", status="error", operation="embeddings"), None),
        ]
    )
    assert [3, 2, 1] == listed(prompt_reader)
    assert [2, 1] == listed(prompt_reader, agent="a")
    assert [1] == listed(prompt_reader, conversation_id="c1")
    assert [1] == listed(prompt_reader, run_id=run)
    assert [1] == listed(prompt_reader, run_id=trace)
    assert [1] == listed(prompt_reader, trace_id=trace)
    assert [2] == listed(prompt_reader, model="gpt-4o")
    assert [2] == listed(prompt_reader, model="gpt-4o-2024-08-06")
    assert [3] == listed(prompt_reader, status="error")
    assert [3] == listed(prompt_reader, operation="embeddings")
    assert [2] == listed(prompt_reader, since_ns=row(2).start_ns, until_ns=row(3).start_ns)
    assert [] == listed(prompt_reader, agent="b", model="gpt-4o")
    with pytest.raises(QueryError, match="is no run"):
        listed(prompt_reader, run_id="nonsense")
    with pytest.raises(QueryError, match="status 'bad' is unknown"):
        PromptFilter(status="bad")


def test_one_message_has_several_records(store: RecordStore, prompt_reader: PromptReader) -> None:
    """All of them are found, oldest first; in a list the message wins over other filters."""
    store.save(
        [
            (row(1, message_id="m1", agent="a"), None),
            (row(2, message_id="m1", agent="b"), None),
            (row(3, message_id="m2", agent="a"), None),
            (row(4, message_id=""), None),
            (row(5), None),
        ]
    )
    assert [1, 2] == ids(prompt_reader.of_message("m1", EVERYTHING))
    assert [2, 1] == listed(prompt_reader, message_id="m1", agent="a")
    assert [] == listed(prompt_reader, message_id="")


def test_a_span_of_the_timeline_has_its_record(
    store: RecordStore, prompt_reader: PromptReader
) -> None:
    """Trace and span id name one record; those of a run are given oldest first."""
    run = "6fa459ea-ee8a-4ca4-894e-db77e160355e"
    trace = run.replace("-", "")
    given = {"run_id": run, "trace_id": trace}
    store.save(
        [
            (row(2, span_id="b" * 16, **given), None),
            (row(1, span_id="a" * 16, **given), None),
        ]
    )
    found = prompt_reader.of_span(trace, "b" * 16, EVERYTHING)
    assert found is not None
    assert digits(2) == found.request_id
    assert prompt_reader.of_span(trace, "c" * 16, EVERYTHING) is None
    assert [1, 2] == ids(prompt_reader.of_run(run, EVERYTHING))


def test_what_is_out_of_scope_does_not_exist(
    store: RecordStore, prompt_reader: PromptReader
) -> None:
    """Every read is scoped; unreadable equals unknown, and does not make an id ambiguous."""
    run = "6fa459ea-ee8a-4ca4-894e-db77e160355e"
    given = {"run_id": run, "trace_id": run.replace("-", ""), "message_id": "m"}
    mine, other = "ab" + "0" * 30, "ac" + "0" * 30
    theirs = {"tenant": "other", "agent": "spy", "actor": "e" * 64}
    store.save(
        [
            (row(1, request_id=mine, span_id="a" * 16, actor="d" * 64, **given), None),
            (row(2, request_id=other, span_id="b" * 16, **{**theirs, **given}), None),
        ]
    )
    for scope in (
        Scope(tenant="acme"),
        Scope(agent="triage"),
        Scope(actor="d" * 64),
        Scope(tenant="acme", agent="triage"),
        Scope(tenant="acme", everything=True),
    ):
        assert [int(mine, 16)] == listed(prompt_reader, scope)
        assert mine == prompt_reader.find_record("a", scope).request_id
        with pytest.raises(RecordNotFoundError):
            prompt_reader.find_record(other, scope)
        assert [int(mine, 16)] == ids(prompt_reader.of_message("m", scope))
        assert [int(mine, 16)] == ids(prompt_reader.of_run(run, scope))
        assert prompt_reader.of_span(run.replace("-", ""), "b" * 16, scope) is None
        assert (1, 0) == prompt_reader.size(scope)


@pytest.mark.parametrize(
    "scope", [Scope(), Scope(tenant=""), Scope(tenant="ACME"), Scope(tenant="acme", agent="spy")]
)
def test_a_scope_that_names_nobody_covers_nothing(
    store: RecordStore, prompt_reader: PromptReader, scope: Scope
) -> None:
    """No scope is no right; names are compared exactly."""
    store.save([(row(1), None), (row(2, tenant=None, agent=None), None)])
    assert [] == listed(prompt_reader, scope)
    assert (0, 0) == prompt_reader.size(scope)


def test_words_of_a_newer_clew_are_read(store: RecordStore, prompt_reader: PromptReader) -> None:
    """Unknown layers, levels, statuses and fields are no reason to refuse a record."""
    new = row(level="twilight", status="odd", kind="dream")
    store.save([(new, record(new))])
    found = prompt_reader.find_record(digits(1), EVERYTHING)
    path = prompt_reader.payload_path(found)
    assert path is not None
    data = json.loads(path.read_text())
    data["version"], data["future"] = 99, {"a": 1}
    data["system"]["blocks"][0]["layer"] = "subconscious"
    path.write_text(json.dumps(data))
    assert "twilight" == found.level
    assert "subconscious" == prompt_reader.record(found).system.blocks[0].layer


def test_the_short_id_resolves(store: RecordStore, prompt_reader: PromptReader) -> None:
    """Eight digits, or as many more as it takes to mean one record."""
    alone, close, closer = "a" * 32, "b" * 32, "b" * 10 + "c" * 22
    store.save([(row(request_id=each), None) for each in (alone, close, closer)])
    shown = [prompt_reader.short_id(row(request_id=each)) for each in (alone, close, closer)]
    assert ["a" * 8, "b" * 11, "b" * 10 + "c"] == shown
    for short, whole in zip(shown, (alone, close, closer), strict=True):
        assert whole == prompt_reader.find_record(short, EVERYTHING).request_id


def test_a_record_saved_again_replaces_its_row(
    store: RecordStore, prompt_reader: PromptReader
) -> None:
    """There is one row for one id."""
    store.save([(row(), None)])
    store.save([(row(agent="b"), None)])
    assert (1, 0) == prompt_reader.size()
    assert "b" == prompt_reader.find_record(digits(1), EVERYTHING).agent


def test_the_migration_may_run_again(store: RecordStore, prompt_reader: PromptReader) -> None:
    """Table and indexes: a second run over the result changes nothing and loses nothing."""
    store.save([(row(), None)])
    step = next(each for each in MIGRATIONS if each.name == "records of model calls")
    connection = connect(store.path)
    before = connection.execute("SELECT name, sql FROM sqlite_schema ORDER BY name").fetchall()
    for statement in step.statements:
        connection.execute(statement)
    after = connection.execute("SELECT name, sql FROM sqlite_schema ORDER BY name").fetchall()
    connection.close()
    assert before == after
    assert [1] == listed(prompt_reader)


def test_scoped_lists_use_an_index(store: RecordStore) -> None:
    """A list of one agent, tenant, conversation, run or message reads no other rows."""
    connection = connect(store.path)
    plans = [
        connection.execute(
            f"EXPLAIN QUERY PLAN SELECT * FROM prompt_requests WHERE {column} = 'x' "  # noqa: S608
            "ORDER BY start_ns DESC, request_id DESC LIMIT 20"
        ).fetchone()[3]
        for column in ("agent", "tenant", "conversation_id", "run_id", "message_id")
    ]
    connection.close()
    assert [] == [plan for plan in plans if not plan.startswith("SEARCH")]
