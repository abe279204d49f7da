"""The payload files of records: whole, closed to others, in their folder, or said to be missing."""

# ruff: noqa: SIM300 - expected == actual, in this order
from __future__ import annotations

import json
import os
import sqlite3
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prompt_rows import DAY, START_NS, digits, listed, record, row

from clew.errors import StoreError
from clew.store import payloads
from clew.store.prompt_index import PromptReader, RecordStore, iso
from clew.store.prompt_records import EVERYTHING, RecordNotFoundError


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


def test_a_swept_payload_is_missing(store: RecordStore, prompt_reader: PromptReader) -> None:
    """The row is there, the file is gone: missing, which is no failure of the store."""
    store.save([(row(), record())])
    found = prompt_reader.find_record(digits(1), EVERYTHING)
    path = prompt_reader.payload_path(found)
    assert path is not None
    path.unlink()
    with pytest.raises(RecordNotFoundError, match="is gone: it was swept"):
        prompt_reader.record(found)


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"\xff\xfe", b'{"request_id": 7}'])
def test_a_damaged_payload_is_a_failure_of_the_store(
    store: RecordStore, prompt_reader: PromptReader, data: bytes
) -> None:
    """What cannot be read is not reported as missing."""
    store.save([(row(), record())])
    found = prompt_reader.find_record(digits(1), EVERYTHING)
    path = prompt_reader.payload_path(found)
    assert path is not None
    path.write_bytes(data)
    with pytest.raises(StoreError, match="is damaged"):
        prompt_reader.record(found)


def test_a_payload_of_another_request_is_refused(
    store: RecordStore, prompt_reader: PromptReader
) -> None:
    """A file that was copied over another one is not shown as that one."""
    store.save([(row(1), record(row(1))), (row(2), record(row(2)))])
    first, second = (prompt_reader.find_record(digits(number), EVERYTHING) for number in (1, 2))
    paths = prompt_reader.payload_path(first), prompt_reader.payload_path(second)
    assert paths[0] is not None
    assert paths[1] is not None
    paths[0].write_bytes(paths[1].read_bytes())
    with pytest.raises(StoreError, match="is of another request"):
        prompt_reader.record(first)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_an_unreadable_payload_is_a_failure_of_the_store(
    store: RecordStore, prompt_reader: PromptReader
) -> None:
    """Permissions are no absence."""
    store.save([(row(), record())])
    found = prompt_reader.find_record(digits(1), EVERYTHING)
    path = prompt_reader.payload_path(found)
    assert path is not None
    path.chmod(0)
    with pytest.raises(StoreError, match="cannot be read: Permission denied"):
        prompt_reader.record(found)


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
    store: RecordStore, prompt_reader: PromptReader, relative: str
) -> None:
    """A row that names another place is a failure; nothing there is opened."""
    store.save([(row(path=relative), None)])
    with pytest.raises(StoreError, match="outside its folder"):
        prompt_reader.record(prompt_reader.find_record(digits(1), EVERYTHING))


@pytest.mark.skipif(not hasattr(os, "O_NOFOLLOW"), reason="this system has no O_NOFOLLOW")
def test_a_link_is_not_followed(
    store: RecordStore, prompt_reader: PromptReader, folder: Path
) -> None:
    """A payload that is a link to another file is refused."""
    store.save([(row(), record())])
    found = prompt_reader.find_record(digits(1), EVERYTHING)
    path = prompt_reader.payload_path(found)
    assert path is not None
    (folder / "other").write_bytes(path.read_bytes())
    path.unlink()
    path.symlink_to(folder / "other")
    with pytest.raises(StoreError, match="cannot be read"):
        prompt_reader.record(found)


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
    store: RecordStore, prompt_reader: PromptReader, folder: Path
) -> None:
    """All of a batch or nothing."""
    tomorrow = row(2, start_ns=START_NS + DAY)
    (folder / "prompts").mkdir()
    (folder / "prompts" / "2026-12-02").write_text("in the way")
    with pytest.raises(StoreError, match="cannot be written"):
        store.save([(row(1), record(row(1))), (tomorrow, record(tomorrow))])
    assert [] == listed(prompt_reader)
    assert [] == list((folder / "prompts" / "2026-12-01").iterdir())


@given(st.integers(0, 4_102_444_799_999_999_999))
def test_day_and_time_are_of_the_same_moment(start_ns: int) -> None:
    """The folder's name is the beginning of the time that the record states."""
    assert payloads.day_of(start_ns).isoformat() == iso(start_ns)[:10]
