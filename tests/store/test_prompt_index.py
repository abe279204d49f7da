"""The index of records and their payload files: what is written is found again, by whom it may."""

# ruff: noqa: SIM300 - expected == actual, in this order
from __future__ import annotations

import json
import os
import sqlite3
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from prompt_rows import DAY, START_NS, digits, record, row

from clew.errors import StoreError
from clew.store import payloads
from clew.store.database import connect
from clew.store.migrations import MIGRATIONS
from clew.store.prompt_index import PromptReader, RecordStore, iso
from clew.store.prompt_records import (
    EVERYTHING,
    AmbiguousRecordError,
    PromptFilter,
    PromptRow,
    RecordNotFoundError,
    Scope,
)
from clew.store.records import Page, QueryError


@pytest.fixture
def reader(store: RecordStore) -> Iterator[PromptReader]:
    opened = PromptReader(store.folder)
    yield opened
    opened.close()


def ids(rows: tuple[PromptRow, ...]) -> list[int]:
    return [int(each.request_id, 16) for each in rows]


def listed(reader: PromptReader, scope: Scope = EVERYTHING, **wanted: Any) -> list[int]:
    return ids(reader.records(PromptFilter(**wanted), Page(), scope).records)


def test_a_record_is_read_back_whole(store: RecordStore, reader: PromptReader) -> None:
    """Row and payload come back as they were written; the row knows the path and the size."""
    whole = record()
    size = store.save([(row(), whole)])
    found = reader.find_record(digits(1), EVERYTHING)
    assert replace(row(), path=f"prompts/2026-12-01/{digits(1)}.json", payload_bytes=size) == found
    assert whole == reader.record(found)
    path = reader.payload_path(found)
    assert path is not None
    assert size == path.stat().st_size


def test_a_payload_is_plain_json_closed_to_others(store: RecordStore, folder: Path) -> None:
    """One file under the day of the start in UTC, mode 0600, indented, nothing left beside it."""
    late = row(start_ns=START_NS + 14 * 3600 * 10**9 - 1)  # 23:59:59.999999999
    store.save([(late, record(late))])
    day = folder / "prompts" / "2026-12-01"
    assert [f"{digits(1)}.json"] == [each.name for each in day.iterdir()]
    path = day / f"{digits(1)}.json"
    assert 0o600 == stat.S_IMODE(path.stat().st_mode)
    assert 0o700 == stat.S_IMODE(day.stat().st_mode)
    text = path.read_text()
    assert text.startswith('{\n  "version": 1,\n  "request_id": "00')
    assert "2026-12-01T23:59:59.999999Z" == json.loads(text)["started_at"]


def test_a_row_without_payload_is_a_record_without_content(
    store: RecordStore, reader: PromptReader
) -> None:
    """At level `metadata` there is a row with sizes and tokens, and no file."""
    store.save([(row(level="metadata"), None)])
    found = reader.find_record(digits(1), EVERYTHING)
    assert (None, None) == (found.path, reader.payload_path(found))
    known = reader.record(found)
    assert (None, None, None) == (known.system.text, known.messages, known.response.text)
    assert (36, 34, 9) == (known.system.bytes, known.system.chars, known.system.tokens)
    assert known.usage is not None
    assert (1200, 0.00123) == (known.usage.input_tokens, known.usage.cost_usd)
    assert not (store.folder / "prompts").exists()


def test_unknown_usage_is_null_never_zero(store: RecordStore, reader: PromptReader) -> None:
    """A call without reported usage has none; a reported zero stays one."""
    unknown = {"input_tokens": None, "output_tokens": None, "cost_usd": None}
    store.save([(row(1, **unknown), None), (row(2, input_tokens=0, output_tokens=0), None)])
    first, second = (reader.find_record(digits(number), EVERYTHING) for number in (1, 2))
    assert reader.record(first).usage is None
    usage = reader.record(second).usage
    assert usage is not None
    assert 0 == usage.input_tokens


def test_an_id_or_what_only_one_begins_with(store: RecordStore, reader: PromptReader) -> None:
    """Exact ids and unambiguous prefixes resolve; ambiguous and missing are different errors."""
    one, two = "ab" + "0" * 30, "ac" + "0" * 30
    store.save([(row(request_id=one), None), (row(request_id=two), None)])
    assert one == reader.find_record(one, EVERYTHING).request_id
    assert two == reader.find_record(" ac ", EVERYTHING).request_id
    with pytest.raises(AmbiguousRecordError, match=f"several .* 'a': {one}, {two}; give more"):
        reader.find_record("a", EVERYTHING)
    with pytest.raises(RecordNotFoundError, match="there is no record 'ad'"):
        reader.find_record("ad", EVERYTHING)


@pytest.mark.parametrize("prefix", ["%", "_", "\\", "a%", "a_", "%%", "a*", "a?", "' OR 1 --"])
def test_a_prefix_is_literal(store: RecordStore, reader: PromptReader, prefix: str) -> None:
    """Wildcards of any dialect match only themselves."""
    store.save([(row(request_id="ab" + "0" * 30), None)])
    with pytest.raises(RecordNotFoundError):
        reader.find_record(prefix, EVERYTHING)
    store.save([(row(request_id=f"{prefix}x"), None)])
    assert f"{prefix}x" == reader.find_record(prefix, EVERYTHING).request_id


def test_an_exact_id_wins(store: RecordStore, reader: PromptReader) -> None:
    """An id that another one begins with is still found."""
    store.save([(row(request_id="ab"), None), (row(request_id="abc"), None)])
    assert "ab" == reader.find_record("ab", EVERYTHING).request_id


@pytest.mark.parametrize("empty", ["", "  ", "\n"])
def test_an_empty_prefix_is_refused(reader: PromptReader, empty: str) -> None:
    """Nothing given names nothing, even where there is only one record."""
    with pytest.raises(QueryError, match="give the id of a record"):
        reader.find_record(empty, EVERYTHING)


def test_a_swept_payload_is_missing(store: RecordStore, reader: PromptReader) -> None:
    """The row is there, the file is gone: missing, which is no failure of the store."""
    store.save([(row(), record())])
    found = reader.find_record(digits(1), EVERYTHING)
    path = reader.payload_path(found)
    assert path is not None
    path.unlink()
    with pytest.raises(RecordNotFoundError, match="is gone: it was swept"):
        reader.record(found)


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"\xff\xfe", b'{"request_id": 7}'])
def test_a_damaged_payload_is_a_failure_of_the_store(
    store: RecordStore, reader: PromptReader, data: bytes
) -> None:
    """What cannot be read is not reported as missing."""
    store.save([(row(), record())])
    found = reader.find_record(digits(1), EVERYTHING)
    path = reader.payload_path(found)
    assert path is not None
    path.write_bytes(data)
    with pytest.raises(StoreError, match="is damaged"):
        reader.record(found)


def test_a_payload_of_another_request_is_refused(store: RecordStore, reader: PromptReader) -> None:
    """A file that was copied over another one is not shown as that one."""
    store.save([(row(1), record(row(1))), (row(2), record(row(2)))])
    first, second = (reader.find_record(digits(number), EVERYTHING) for number in (1, 2))
    paths = reader.payload_path(first), reader.payload_path(second)
    assert paths[0] is not None
    assert paths[1] is not None
    paths[0].write_bytes(paths[1].read_bytes())
    with pytest.raises(StoreError, match="is of another request"):
        reader.record(first)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_an_unreadable_payload_is_a_failure_of_the_store(
    store: RecordStore, reader: PromptReader
) -> None:
    """Permissions are no absence."""
    store.save([(row(), record())])
    found = reader.find_record(digits(1), EVERYTHING)
    path = reader.payload_path(found)
    assert path is not None
    path.chmod(0)
    with pytest.raises(StoreError, match="cannot be read: Permission denied"):
        reader.record(found)


@pytest.mark.parametrize(
    "relative",
    [
        "../clew.db",
        "/etc/passwd",
        "prompts/2026-12-01/../../digest.key",
        f"prompts/2026-12-01/{'A' * 32}.json",
        f"elsewhere/2026-12-01/{'a' * 32}.json",
    ],
)
def test_a_path_in_the_index_stays_in_its_folder(
    store: RecordStore, reader: PromptReader, relative: str
) -> None:
    """A row that names another place is a failure; nothing there is opened."""
    store.save([(row(path=relative), None)])
    with pytest.raises(StoreError, match="outside its folder"):
        reader.record(reader.find_record(digits(1), EVERYTHING))


@pytest.mark.skipif(not hasattr(os, "O_NOFOLLOW"), reason="this system has no O_NOFOLLOW")
def test_a_link_is_not_followed(store: RecordStore, reader: PromptReader, folder: Path) -> None:
    """A payload that is a link to another file is refused."""
    store.save([(row(), record())])
    found = reader.find_record(digits(1), EVERYTHING)
    path = reader.payload_path(found)
    assert path is not None
    (folder / "other").write_bytes(path.read_bytes())
    path.unlink()
    path.symlink_to(folder / "other")
    with pytest.raises(StoreError, match="cannot be read"):
        reader.record(found)


def test_newest_first_and_page_by_page(store: RecordStore, reader: PromptReader) -> None:
    """Pages follow each other without gap or repetition, equal start times included."""
    store.save([(row(number, start_ns=START_NS + number // 3), None) for number in range(1, 11)])
    first = reader.records(PromptFilter(), Page(limit=4), EVERYTHING)
    second = reader.records(PromptFilter(), Page(limit=4, after=first.next), EVERYTHING)
    third = reader.records(PromptFilter(), Page(limit=4, after=second.next), EVERYTHING)
    pages = (first, second, third)
    assert [[10, 9, 8, 7], [6, 5, 4, 3], [2, 1]] == [ids(each.records) for each in pages]
    assert third.next is None


@pytest.mark.parametrize("limit", [0, -1, 1001, 10_000_000])
def test_a_bad_limit_is_refused(limit: int) -> None:
    """A page has 1 to 1,000 records; others are the caller's mistake."""
    with pytest.raises(QueryError, match="limit must be between 1 and 1000"):
        Page(limit=limit)


@pytest.mark.parametrize("after", ["x", "-1", "", f"-{'0' * 32}", "zz-" + "0" * 32])
def test_a_cursor_that_no_list_gave_is_refused(reader: PromptReader, after: str) -> None:
    """A made-up cursor is the caller's mistake."""
    with pytest.raises(QueryError, match="is not one that a list gave"):
        reader.records(PromptFilter(), Page(after=after), EVERYTHING)


def test_filters(store: RecordStore, reader: PromptReader) -> None:
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
    assert [3, 2, 1] == listed(reader)
    assert [2, 1] == listed(reader, agent="a")
    assert [1] == listed(reader, conversation_id="c1")
    assert [1] == listed(reader, run_id=run)
    assert [1] == listed(reader, run_id=trace)
    assert [1] == listed(reader, trace_id=trace)
    assert [2] == listed(reader, model="gpt-4o")
    assert [2] == listed(reader, model="gpt-4o-2024-08-06")
    assert [3] == listed(reader, status="error")
    assert [3] == listed(reader, operation="embeddings")
    assert [2] == listed(reader, since_ns=row(2).start_ns, until_ns=row(3).start_ns)
    assert [] == listed(reader, agent="b", model="gpt-4o")
    with pytest.raises(QueryError, match="is no run"):
        listed(reader, run_id="nonsense")
    with pytest.raises(QueryError, match="status 'bad' is unknown"):
        PromptFilter(status="bad")


def test_one_message_has_several_records(store: RecordStore, reader: PromptReader) -> None:
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
    assert [1, 2] == ids(reader.of_message("m1", EVERYTHING))
    assert [2, 1] == listed(reader, message_id="m1", agent="a")
    assert [] == listed(reader, message_id="")


def test_a_span_of_the_timeline_has_its_record(store: RecordStore, reader: PromptReader) -> None:
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
    found = reader.of_span(trace, "b" * 16, EVERYTHING)
    assert found is not None
    assert digits(2) == found.request_id
    assert reader.of_span(trace, "c" * 16, EVERYTHING) is None
    assert [1, 2] == ids(reader.of_run(run, EVERYTHING))


def test_what_is_out_of_scope_does_not_exist(store: RecordStore, reader: PromptReader) -> None:
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
        assert [int(mine, 16)] == listed(reader, scope)
        assert mine == reader.find_record("a", scope).request_id
        with pytest.raises(RecordNotFoundError):
            reader.find_record(other, scope)
        assert [int(mine, 16)] == ids(reader.of_message("m", scope))
        assert [int(mine, 16)] == ids(reader.of_run(run, scope))
        assert reader.of_span(run.replace("-", ""), "b" * 16, scope) is None
        assert (1, 0) == reader.size(scope)


@pytest.mark.parametrize(
    "scope", [Scope(), Scope(tenant=""), Scope(tenant="ACME"), Scope(tenant="acme", agent="spy")]
)
def test_a_scope_that_names_nobody_covers_nothing(
    store: RecordStore, reader: PromptReader, scope: Scope
) -> None:
    """No scope is no right; names are compared exactly."""
    store.save([(row(1), None), (row(2, tenant=None, agent=None), None)])
    assert [] == listed(reader, scope)
    assert (0, 0) == reader.size(scope)


def test_words_of_a_newer_clew_are_read(store: RecordStore, reader: PromptReader) -> None:
    """Unknown layers, levels, statuses and fields are no reason to refuse a record."""
    new = row(level="twilight", status="odd", kind="dream")
    store.save([(new, record(new))])
    found = reader.find_record(digits(1), EVERYTHING)
    path = reader.payload_path(found)
    assert path is not None
    data = json.loads(path.read_text())
    data["version"], data["future"] = 99, {"a": 1}
    data["system"]["blocks"][0]["layer"] = "subconscious"
    path.write_text(json.dumps(data))
    assert "twilight" == found.level
    assert "subconscious" == reader.record(found).system.blocks[0].layer


def test_the_short_id_resolves(store: RecordStore, reader: PromptReader) -> None:
    """Eight digits, or as many more as it takes to mean one record."""
    alone, close, closer = "a" * 32, "b" * 32, "b" * 10 + "c" * 22
    store.save([(row(request_id=each), None) for each in (alone, close, closer)])
    shown = [reader.short_id(row(request_id=each)) for each in (alone, close, closer)]
    assert ["a" * 8, "b" * 11, "b" * 10 + "c"] == shown
    for short, whole in zip(shown, (alone, close, closer), strict=True):
        assert whole == reader.find_record(short, EVERYTHING).request_id


def test_a_record_saved_again_replaces_its_row(store: RecordStore, reader: PromptReader) -> None:
    """There is one row for one id."""
    store.save([(row(), None)])
    store.save([(row(agent="b"), None)])
    assert (1, 0) == reader.size()
    assert "b" == reader.find_record(digits(1), EVERYTHING).agent


def test_rows_that_cannot_be_written_leave_no_payload(store: RecordStore, folder: Path) -> None:
    """Payloads come first, so that no row is without its file; a failed row takes its file away."""
    connection = sqlite3.connect(folder / "clew.db")
    connection.execute("DROP TABLE prompt_requests")
    connection.commit()
    connection.close()
    with pytest.raises(StoreError):
        store.save([(row(), record())])
    assert [] == list((folder / "prompts" / "2026-12-01").iterdir())


def test_a_payload_that_cannot_be_written_leaves_no_row(
    store: RecordStore, reader: PromptReader, folder: Path
) -> None:
    """All of a batch or nothing."""
    tomorrow = row(2, start_ns=START_NS + DAY)
    (folder / "prompts").mkdir()
    (folder / "prompts" / "2026-12-02").write_text("in the way")
    with pytest.raises(StoreError, match="cannot be written"):
        store.save([(row(1), record(row(1))), (tomorrow, record(tomorrow))])
    assert [] == listed(reader)
    assert [] == list((folder / "prompts" / "2026-12-01").iterdir())


def test_the_migration_may_run_again(store: RecordStore, reader: PromptReader) -> None:
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
    assert [1] == listed(reader)


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


@given(st.integers(0, 4_102_444_799_999_999_999))
def test_day_and_time_are_of_the_same_moment(start_ns: int) -> None:
    """The folder's name is the beginning of the time that the record states."""
    assert payloads.day_of(start_ns).isoformat() == iso(start_ns)[:10]
