"""The recorder harms nobody: full queues, broken folders, forks, shutdown, several processes."""

# ruff: noqa: SIM300 - expected == actual, in this order
from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path

import openai
import prompt_rows
import pytest
from recorded import Start, Wire, post, send
from recorder_kit import BODY, URL, chat, own_threads
from wires import CHAT_ANSWER

import clew
from clew import _guard
from clew.errors import StoreError
from clew.recording.recorder import Recorder
from clew.store.prompt_index import PromptReader
from clew.store.prompt_records import EVERYTHING, PromptFilter
from clew.store.records import Page
from clew.testing import ScriptedProvider


def test_a_folder_that_cannot_be_written_costs_the_records_only(
    start: Start, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The call returns what it would have; the loss is counted and said once."""
    (tmp_path / "data").write_text("a file in the way")
    session = start()
    wire = Wire(CHAT_ANSWER)
    send(URL, wire, json=BODY)
    send(URL, wire, json=BODY)
    session.runtime.recording.flush(10)
    recorder: Recorder = session.runtime.recorder
    assert (0, 2) == (recorder.written, recorder.failed)
    assert _guard.failures["record model calls"] >= 1
    clew.shutdown()
    assert 1 == sum("lost 2 records" in message for message in caplog.messages)
    _guard.forget()


def test_a_full_queue_drops_and_counts_and_never_waits(start: Start) -> None:
    """While the store is locked by another program, calls go on; what does not fit is counted."""
    session = start()
    send(URL, Wire(CHAT_ANSWER), json=BODY)
    session.rows()
    recorder = Recorder(session.runtime, queue_size=3)
    session.runtime.recorder = recorder
    with recorder._saving:  # the writing thread stands still
        began = time.perf_counter()
        for _ in range(50):
            send(URL, Wire(CHAT_ANSWER), json=BODY)
        took = time.perf_counter() - began
    assert recorder.flush(10)
    assert took < 5
    assert 50 == recorder.written + recorder.dropped
    assert recorder.dropped >= 50 - 2 * 3  # one batch in the writer's hands, one waiting
    recorder.shutdown(time.monotonic() + 5)


def test_bodies_that_wait_are_bounded_in_bytes(start: Start) -> None:
    """Large bodies fill the queue long before its number of calls does."""
    session = start()
    recorder = Recorder(session.runtime, most_bytes=20_000)
    session.runtime.recorder = recorder
    with recorder._saving:
        for _ in range(20):
            send(URL, Wire(CHAT_ANSWER), json={**BODY, "user": "x" * 4000})
        assert recorder.dropped >= 10
    assert recorder.flush(10)
    assert 20 == recorder.written + recorder.dropped
    send(URL, Wire(CHAT_ANSWER), json=BODY)
    assert recorder.flush(10)
    assert 21 == recorder.written + recorder.dropped
    recorder.shutdown(time.monotonic() + 5)


def test_what_is_waiting_is_written_on_shutdown(start: Start) -> None:
    """Nothing is lost between the last call and the end of the process."""
    before = own_threads()
    session = start()
    for _ in range(20):
        send(URL, Wire(CHAT_ANSWER), json=BODY)
    clew.shutdown()
    reader = PromptReader(session.folder)
    assert 20 == len(reader.records(PromptFilter(), Page(), EVERYTHING).records)
    reader.close()
    assert own_threads() - before == set()


def test_a_stream_that_is_half_read_at_shutdown_is_written(
    start: Start, provider: ScriptedProvider
) -> None:
    """It is held, and partial."""
    session = start()
    client = openai.OpenAI(base_url=provider.openai_base_url, api_key="any")
    stream = chat(client, stream=True)
    next(iter(stream))
    clew.shutdown()
    reader = PromptReader(session.folder)
    (row,) = reader.records(PromptFilter(), Page(), EVERYTHING).records
    reader.close()
    assert ("held", True) == (row.outcome, row.partial)
    stream.close()
    client.close()


def test_a_record_that_cannot_be_made_costs_itself_alone(start: Start) -> None:
    """One call that the recorder cannot read is counted; those around it are written."""
    session = start()
    send(URL, Wire(CHAT_ANSWER), json=BODY)
    recorder: Recorder = session.runtime.recorder
    recorder.submit(Broken())  # type: ignore[arg-type]
    send(URL, Wire(CHAT_ANSWER), json=BODY)
    assert 2 == len(session.rows())
    assert 1 == recorder.failed
    assert 1 == _guard.failures["read a call that is to be recorded"]
    _guard.forget()


class Broken:
    """A call that has nothing to be recorded."""

    size = 0


def test_a_store_that_was_locked_is_tried_again(start: Start) -> None:
    """A writer of another program may hold the file for a while; nothing is lost by it."""
    session = start()
    send(URL, Wire(CHAT_ANSWER), json=BODY)
    session.rows()
    other = sqlite3.connect(session.folder / "clew.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    send(URL, Wire(CHAT_ANSWER), json=BODY)
    time.sleep(0.6)
    other.execute("COMMIT")
    other.close()
    assert 2 == len(session.rows())


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_child_records_for_itself(start: Start) -> None:
    """Parent and child write to one folder; neither writes what the other has queued."""
    session = start()
    send(URL, Wire(CHAT_ANSWER), json={**BODY, "user": "parent"})
    child = os.fork()
    if child == 0:
        try:
            send(URL, Wire(CHAT_ANSWER), json={**BODY, "user": "child"})
            clew.shutdown()
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    users = sorted(str((record.parameters or {})["user"]) for record in session.records())
    assert ["child", "parent"] == users


async def test_many_at_once(start: Start) -> None:
    """Threads and tasks together: every call has its own record."""
    session = start()
    wire = Wire(CHAT_ANSWER)

    def work(name: str) -> None:
        with clew.run(name):
            for _ in range(5):
                send(URL, wire, json=BODY)

    threads = [threading.Thread(target=work, args=(f"t{n}",)) for n in range(4)]
    for thread in threads:
        thread.start()
    await asyncio.gather(*(post(URL, BODY, wire, asynchronous=True) for _ in range(20)))
    for thread in threads:
        thread.join()
    rows = session.rows()
    assert 40 == len(rows) == len({row.request_id for row in rows})
    assert [1, 2, 3, 4, 5] == [row.round for row in rows if row.agent == "t0"]


def test_what_is_lost_is_measured(start: Start) -> None:
    """As items of the signal `records`; while nothing is recorded there is no such series."""
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader

    def of_records(reader: InMemoryMetricReader) -> dict[str, int]:
        found: dict[str, int] = {}
        data = reader.get_metrics_data()
        for resource in data.resource_metrics if data is not None else ():
            for scope in resource.scope_metrics:
                for metric in scope.metrics:
                    for point in metric.data.data_points:
                        if (point.attributes or {}).get("clew.pipeline.signal") == "records":
                            found[metric.name] = point.value  # type: ignore[union-attr]
        return found

    reader = InMemoryMetricReader()
    session = start(metric_readers=(reader,))
    recorder: Recorder = session.runtime.recorder
    send(URL, Wire(CHAT_ANSWER), json=BODY)
    recorder.submit(Broken())  # type: ignore[arg-type]
    session.rows()
    assert {"clew.pipeline.dropped": 0, "clew.pipeline.failed": 1} == of_records(reader)
    _guard.forget()
    clew.shutdown()
    quiet = InMemoryMetricReader()
    start(metric_readers=(quiet,), prompt_capture=False)
    assert {} == of_records(quiet)


def test_a_record_that_cannot_be_written_costs_itself_alone(start: Start) -> None:
    """Whatever it holds: those of the same batch are written."""
    session = start()
    send(URL, Wire(CHAT_ANSWER), json=BODY)
    session.rows()
    recorder: Recorder = session.runtime.recorder
    one, two = (prompt_rows.row(number) for number in (1, 2))
    broken = prompt_rows.record(two, body=object())
    recorder._save([(one, prompt_rows.record(one)), (two, broken)])
    assert prompt_rows.digits(1) in {each.request_id for each in session.rows()}
    assert (2, 1) == (recorder.written, recorder.failed)
    assert 1 == _guard.failures["write the record of a model call"]
    _guard.forget()


# --- several processes ----------------------------------------------------------------------------


PROGRAM = f"""
import sys, httpx, clew
clew.configure("p" + sys.argv[1], span_exporters=[])
clew.instrument()
answer = lambda request: httpx.Response(200, json={{"choices": []}})
client = httpx.Client(transport=httpx.MockTransport(answer))
for number in range(25):
    with clew.run("agent-" + sys.argv[1]):
        client.post({URL!r}, json={{"messages": [{{"role": "user", "content": str(number)}}]}})
clew.shutdown()
"""


def test_four_processes_record_into_one_folder(start: Start) -> None:
    """At the same time, with sweeps and readers beside them: nothing is lost or mixed up."""
    session = start()
    environment = {
        **os.environ,
        "CLEW_DATA_DIR": str(session.folder),
        "CLEW_CAPTURE": "full",
        "CLEW_PROMPT_CAPTURE": "on",
    }
    processes = [
        subprocess.Popen([sys.executable, "-c", PROGRAM, str(number)], env=environment)
        for number in range(4)
    ]
    while any(process.poll() is None for process in processes):
        with contextlib.suppress(StoreError):  # while the first of them makes the file
            session.rows()
        time.sleep(0.02)
    assert [0, 0, 0, 0] == [process.returncode for process in processes]
    rows = session.rows()
    counts = {f"agent-{number}": 25 for number in range(4)}
    assert counts == {name: sum(row.agent == name for row in rows) for name in counts}
    for row, record in zip(rows, session.records(), strict=True):
        assert (row.request_id, f"p{str(row.agent)[-1]}") == (record.request_id, row.service)
