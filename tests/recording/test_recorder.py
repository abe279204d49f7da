"""The recorder: what is recorded at which level, of which endings, and that it harms nobody."""

# ruff: noqa: SIM300 - expected == actual, in this order
from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import os
import sqlite3
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import prompt_rows
import pytest
from recorded import Start, Wire, post, send
from wires import ANSWER, CHAT_ANSWER, QUESTION, SHAPES

import clew
from clew import _guard
from clew.errors import StoreError
from clew.prompts import Prompt, registry
from clew.recording.recorder import Recorder
from clew.store.prompt_index import PromptReader
from clew.store.prompt_records import EVERYTHING, PromptFilter
from clew.store.records import Page
from clew.testing import Reply, ScriptedProvider, ScriptedToolCall

URL = "https://api.openai.com/v1/chat/completions"
MARK = "zebra-7f3a"
BODY = {
    "model": "gpt-4o-mini",
    "messages": [
        {"role": "system", "content": f"You are {MARK}."},
        {"role": "user", "content": f"Ask {MARK} at a@example.org"},
    ],
    "tools": [
        {"type": "function", "function": {"name": "lookup", "description": MARK, "parameters": {}}}
    ],
}


@pytest.fixture
def provider() -> Iterator[ScriptedProvider]:
    with ScriptedProvider(lambda _: Reply(text=("Hello ", "there"))) as running:
        yield running


def own_threads() -> set[threading.Thread]:
    """Return the threads of recording that there are."""
    names = {"clew-record", "clew-sweep"}
    return {each for each in threading.enumerate() if each.name in names}


def bytes_of(folder: Path) -> bytes:
    """Return everything in a folder."""
    return b"".join(each.read_bytes() for each in sorted(folder.rglob("*")) if each.is_file())


# --- levels ---------------------------------------------------------------------------------------


def test_nothing_is_recorded_unless_somebody_wants_it(start: Start) -> None:
    """By default there is no recorder, no thread, no file: not even the folder."""
    before = own_threads()
    session = start(prompt_capture=None)
    send(URL, Wire(CHAT_ANSWER), json=BODY)
    assert session.runtime.recorder is None
    assert [] == session.rows()
    assert not session.folder.exists()
    assert own_threads() - before == set()


def test_at_none_there_is_no_row(start: Start) -> None:
    """The level of a run or a block keeps its calls out; others are recorded."""
    session = start()
    with clew.run("a", capture="none"):
        send(URL, Wire(CHAT_ANSWER), json=BODY)
    with clew.capture("none"):
        send(URL, Wire(CHAT_ANSWER), json=BODY)
    send(URL, Wire(CHAT_ANSWER), json=BODY)
    assert [None] == [row.agent for row in session.rows()]


def test_at_metadata_there_are_sizes_and_tokens_and_no_content(start: Start) -> None:
    """A row with block map, sizes, tokens; no payload file; no word of the content anywhere."""
    session = start(capture="metadata")
    prompt = Prompt.of(identity=f"You are {MARK}.", tone="Grüße.")
    body = {**BODY, "messages": [{"role": "system", "content": str(prompt)}, BODY["messages"][1]]}
    wire = Wire(CHAT_ANSWER)
    with clew.run("triage", tenant="acme"):
        send(URL, wire, json=body)
    row, record = session.only()
    size = len(prompt.encode())
    assert ("metadata", None, 0) == (row.level, row.path, row.payload_bytes)
    assert (size, len(prompt), 1, 1) == (
        *(row.system_bytes, row.system_chars, row.history_length, row.tool_count),
    )
    assert [("identity", 0), ("tone", 19)] == [(each.id, each.start) for each in row.blocks]
    assert size == row.blocks[-1].end
    assert (100, 20, 64, 8) == (
        *(row.input_tokens, row.output_tokens, row.cache_read_tokens, row.reasoning_tokens),
    )
    assert row.cost_usd is not None
    assert len(wire.bodies[0]) == row.request_bytes
    assert (None, None, ()) == (record.system.text, record.messages, record.response.tool_calls)
    clew.shutdown()
    everything = bytes_of(session.folder)
    assert b"triage" in everything
    assert [] == [word for word in (MARK, "example.org", ANSWER[:9]) if word.encode() in everything]


def test_at_redacted_secrets_are_masked_in_the_file_too(start: Start) -> None:
    """Content is there, without what looks like a secret, every text capped."""
    session = start(capture="redacted")
    long = "word " * 1000
    body = {**BODY, "messages": [*BODY["messages"], {"role": "user", "content": long}]}
    send(URL, Wire(CHAT_ANSWER), json=body)
    _, record = session.only()
    assert record.messages is not None
    asked = [message["parts"][0]["content"] for message in record.messages]
    assert f"Ask {MARK} at ***" == asked[0]
    assert f"{long[:2000]}…[cut: 5000 characters]" == asked[1]
    clew.shutdown()
    assert b"example.org" not in bytes_of(session.folder)


def test_a_secret_in_the_seam_of_two_blocks_is_masked(start: Start) -> None:
    """What is only seen in the whole prompt is masked there, and the map is given up."""
    session = start(capture="redacted")
    first, second = "The key: sk-abcdefgh", "ijklmnopqrstuvwxyz123456"
    prompt = Prompt.concat(first, second)
    message = {"role": "system", "content": str(prompt)}
    send(URL, Wire(CHAT_ANSWER), json={**BODY, "messages": [message]})
    row, record = session.only()
    assert ("The key: ***", ()) == (record.system.text, record.system.blocks)
    assert len(prompt.encode()) == row.system_bytes


def test_a_masked_prompt_keeps_its_blocks_in_place(start: Start) -> None:
    """The offsets in the file are into the text in the file; the row has those of the original."""
    session = start(capture="redacted")
    prompt = Prompt.of(contact="Write to a@example.org.", tone="Grüße.")
    message = {"role": "system", "content": str(prompt)}
    send(URL, Wire(CHAT_ANSWER), json={**BODY, "messages": [message]})
    row, record = session.only()
    assert record.system.text is not None
    data = record.system.text.encode()
    texts = [data[block.start : block.end].decode() for block in record.system.blocks]
    assert ["Write to ***.", "\n\nGrüße."] == texts
    whole = prompt.encode()
    assert ["Write to a@example.org.", "\n\nGrüße."] == [
        whole[block.start : block.end].decode() for block in row.blocks
    ]


def test_content_to_store_is_a_place_for_content(start: Start) -> None:
    """Naming the store switches recording on; nothing goes onto spans by it."""
    session = start(prompt_capture=None, content_to=frozenset({"store"}))
    with clew.run("a"):
        send(URL, Wire(CHAT_ANSWER), json=BODY)
    _, record = session.only()
    assert f"You are {MARK}." == record.system.text
    keys = {key for span in session.exporter.spans for key in span.attributes or {}}
    assert not {key for key in keys if key.startswith(("gen_ai.input", "gen_ai.system"))}


def test_off_wins_over_a_place(start: Start) -> None:
    """Forced off is off, whatever else is said."""
    session = start(prompt_capture=False, content_to=frozenset({"store", "spans"}))
    send(URL, Wire(CHAT_ANSWER), json=BODY)
    assert [] == session.rows()


def test_spans_and_store_at_once(start: Start) -> None:
    """Both places get the content of a call."""
    session = start(content_to=frozenset({"spans"}))
    with clew.run("a"):
        send(URL, Wire(CHAT_ANSWER), json=BODY)
    _, record = session.only()
    assert ANSWER == record.response.text
    (span,) = session.exporter.by_name("chat")
    assert ANSWER in str((span.attributes or {})["gen_ai.output.messages"])


# --- who called -------------------------------------------------------------------------------


def test_outside_a_run_a_call_is_of_unknown_kind(start: Start) -> None:
    """It is recorded all the same, without a map."""
    session = start()
    registry.forget()
    send(URL, Wire(CHAT_ANSWER), json=BODY)
    row, _ = session.only()
    assert ("unknown", None, None, None, ()) == (
        *(row.kind, row.run_id, row.agent, row.round, row.blocks),
    )


@pytest.mark.parametrize(
    "kind",
    [
        *("channel", "branch", "worker", "compactor", "cortex", "chronicle", "chronicle_rollup"),
        *("ingestion", "one_not_yet_written"),
    ],
)
def test_every_kind_of_process_is_recorded(start: Start, kind: str) -> None:
    """Recording is at the tap, so that no kind has to do anything for it."""
    session = start()
    with clew.run("a", kind=kind):
        send(URL, Wire(CHAT_ANSWER), json=BODY)
    row, record = session.only()
    assert (kind, kind) == (row.kind, record.run.kind)


def test_a_record_says_where_it_belongs(start: Start) -> None:
    """Run, agent, round, tenant, actor, message, trigger; the span of the timeline."""
    session = start()
    outer, inner = uuid.uuid4(), uuid.uuid4()
    with (
        clew.run("boss", run_id=outer, tenant="acme", actor="ann"),
        clew.run("helper", kind="branch", message_id="m-7", trigger="spawn_worker"),
    ):
        send(URL, Wire(CHAT_ANSWER), json=BODY)
        with clew.run(
            "other", run_id=inner, tenant="acme", conversation_id="c-1", configuration="v2"
        ):
            send(URL, Wire(CHAT_ANSWER), json=BODY)
    first, second = session.rows()
    (one, two) = session.exporter.by_name("chat")
    assert ("helper", "branch", "acme", "m-7", "spawn_worker", 1) == (
        *(first.agent, first.kind, first.tenant, first.message_id, first.trigger, first.round),
    )
    assert (str(outer), outer.hex, None) == (first.run_id, first.trace_id, first.parent)
    assert ("other", str(inner), str(outer)) == (second.agent, second.run_id, second.parent)
    assert ("c-1", "v2") == (second.conversation_id, second.configuration)
    assert one.context is not None
    assert two.context is not None
    assert {f"{one.context.span_id:016x}", f"{two.context.span_id:016x}"} == {
        *(first.span_id, second.span_id),
    }
    by_name = {span.name: dict(span.attributes or {}) for span in session.exporter.spans}
    assert by_name["invoke_agent boss"]["clew.actor"] == first.actor


def test_whose_tenant_is_no_identifier_is_nobodys(start: Start) -> None:
    """Two names that are both no identifiers are not one tenant."""
    session = start(capture="metadata")
    with clew.run("a", tenant="Acme & Sons"):
        send(URL, Wire(CHAT_ANSWER), json=BODY)
    (row,) = session.rows()
    assert row.tenant is None


# --- endings ----------------------------------------------------------------------------------


def chat(client: Any, **more: Any) -> Any:
    return client.chat.completions.create(
        model="gpt-4o-mini", messages=[{"role": "user", "content": QUESTION}], **more
    )


class Caller:
    """One client, synchronous or not, with the same calls."""

    def __init__(self, provider: ScriptedProvider, *, asynchronous: bool) -> None:
        self.asynchronous = asynchronous
        kind = openai.AsyncOpenAI if asynchronous else openai.OpenAI
        self.client: Any = kind(
            base_url=provider.openai_base_url, api_key="any", max_retries=1, timeout=5
        )

    async def ask(self, **more: Any) -> Any:
        result = chat(self.client, **more)
        return await result if self.asynchronous else result

    async def read(self, stream: Any, most: int | None = None) -> list[Any]:
        read: list[Any] = []
        if self.asynchronous:
            async for event in stream:
                read.append(event)
                if len(read) == most:
                    return read
        else:
            for event in stream:
                read.append(event)
                if len(read) == most:
                    return read
        return read

    async def close(self, what: Any) -> None:
        closing = what.close()
        if self.asynchronous:
            await closing


@pytest.fixture(params=[False, True], ids=["sync", "async"])
def caller(request: pytest.FixtureRequest, provider: ScriptedProvider) -> Caller:
    return Caller(provider, asynchronous=request.param)


async def test_a_stream_is_recorded_at_its_end(
    start: Start, caller: Caller, provider: ScriptedProvider
) -> None:
    """Text and tokens of the whole stream, its duration to the end, not only to its opening."""
    provider.replace(Reply(text=("Hello ", "there"), event_delay=(0, 0, 0.05)))
    session = start()
    stream = await caller.ask(stream=True, stream_options={"include_usage": True})
    assert [] == session.rows()
    await caller.read(stream)
    row, record = session.only()
    assert ("Hello there", "stop", "complete") == (
        *(record.response.text, record.response.finish_reason, record.response.outcome),
    )
    assert record.usage is not None
    assert (12, 7) == (record.usage.input_tokens, record.usage.output_tokens)
    assert (False, "ok") == (row.partial, row.status)
    assert record.duration_ms >= 50
    await caller.close(caller.client)


async def test_usage_of_a_stream_that_reports_none_is_null(start: Start, caller: Caller) -> None:
    """Unknown, not zero."""
    session = start()
    await caller.read(await caller.ask(stream=True))
    row, record = session.only()
    assert (None, None, None) == (record.usage, row.input_tokens, row.cost_usd)
    await caller.close(caller.client)


async def test_a_stream_that_the_caller_closes_is_partial(start: Start, caller: Caller) -> None:
    """What had come is kept, and marked."""
    session = start()
    stream = await caller.ask(stream=True)
    await caller.read(stream, 2)
    await caller.close(stream)
    row, record = session.only()
    assert (True, True, "closed", "ok") == (
        *(row.partial, record.partial, row.outcome, row.status),
    )
    assert record.response.text in ("Hello ", "Hello there")
    await caller.close(caller.client)


async def test_a_stream_that_is_dropped_is_partial(start: Start, caller: Caller) -> None:
    """Nobody closes it: collected, it is recorded."""
    session = start()
    stream = await caller.ask(stream=True)
    await caller.read(stream, 2)
    del stream
    for _ in range(50):
        gc.collect()
        await asyncio.sleep(0.02)
        if session.rows():
            break
    row, _ = session.only()
    assert (True, True) == (row.partial, row.outcome in ("abandoned", "closed"))
    await caller.close(caller.client)


async def test_a_stream_that_breaks_off_is_a_partial_failure(
    start: Start, caller: Caller, provider: ScriptedProvider
) -> None:
    """The connection is cut in the middle: an error, with what had come."""
    provider.replace(Reply(text=("Hello ", "there"), cut_after=2))
    session = start()
    stream = await caller.ask(stream=True)
    with pytest.raises((openai.APIError, httpx.HTTPError)):
        await caller.read(stream)
    row, record = session.only()
    assert ("error", True, "failed") == (row.status, row.partial, row.outcome)
    assert "Hello " == record.response.text
    assert record.response.error is not None
    assert record.response.error.type == row.error_type
    await caller.close(caller.client)


async def test_an_error_event_in_a_stream_is_an_error(
    start: Start, caller: Caller, provider: ScriptedProvider
) -> None:
    """Its type is kept, never its text."""
    provider.replace(Reply.failure(500, f"{MARK}!", type="server_error"))
    provider.replace(
        Reply(
            text=("Hello ", "there"),
            error=Reply.failure(500, f"{MARK}!", type="overloaded").error,
            error_after=2,
        )
    )
    session = start()
    stream = await caller.ask(stream=True)
    with pytest.raises(openai.APIError):
        await caller.read(stream)
    row, record = session.only()
    assert ("error", "overloaded", True) == (row.status, row.error_type, row.partial)
    assert MARK not in (session.folder / str(row.path)).read_text()
    assert record.response.error is not None
    await caller.close(caller.client)


async def test_an_error_while_a_stream_opens_is_kept(
    start: Start, caller: Caller, provider: ScriptedProvider
) -> None:
    """The request is recorded, with how it failed."""
    provider.replace(Reply.failure(401, MARK, type="invalid_request_error", code="bad_key"))
    session = start()
    with pytest.raises(openai.AuthenticationError):
        await caller.ask(stream=True)
    row, record = session.only()
    assert ("error", False, None) == (row.status, row.partial, record.response.text)
    error = record.response.error
    assert error is not None
    assert ("invalid_request_error", "bad_key", 401) == (error.type, error.code, error.status)
    assert record.messages is not None
    assert MARK not in (session.folder / str(row.path)).read_text()
    await caller.close(caller.client)


async def test_every_attempt_is_recorded(
    start: Start, caller: Caller, provider: ScriptedProvider
) -> None:
    """Both are in one record: when, how long, how it ended; the clock starts before the first."""
    provider.replace(Reply.failure(503, retry_after_ms=30), Reply(text="at last", delay=0.02))
    session = start()
    await caller.ask()
    row, record = session.only()
    first, second = record.attempts
    assert (1, 0.0, 503, True) == (first.number, first.start_ms, first.status, bool(first.error))
    assert (2, 200, None) == (second.number, second.status, second.error)
    assert second.start_ms >= 30
    assert second.duration_ms is not None
    assert second.duration_ms >= 20
    assert record.duration_ms >= 50
    assert (2, "ok", "at last") == (row.attempts, row.status, record.response.text)
    await caller.close(caller.client)


async def test_attempts_that_all_fail(
    start: Start, caller: Caller, provider: ScriptedProvider
) -> None:
    """The last is how the call ended."""
    provider.replace(*(Reply.failure(503, retry_after_ms=1) for _ in range(2)))
    session = start()
    with pytest.raises(openai.InternalServerError):
        await caller.ask()
    row, record = session.only()
    assert [(1, 503), (2, 503)] == [(each.number, each.status) for each in record.attempts]
    assert ("error", 2) == (row.status, row.attempts)
    await caller.close(caller.client)


async def test_a_call_that_reaches_nobody(start: Start) -> None:
    """A connection that is refused is a record, too."""
    session = start()
    client = openai.OpenAI(base_url="http://127.0.0.1:9/v1", api_key="any", max_retries=0)
    with pytest.raises(openai.APIConnectionError):
        chat(client)
    row, record = session.only()
    assert ("error", "httpx.ConnectError", None) == (
        *(row.status, str(row.error_type).replace("httpx2", "httpx"), record.response.text),
    )
    assert record.usage is None
    client.close()


async def test_a_call_that_is_cancelled(start: Start, provider: ScriptedProvider) -> None:
    """Cancellation passes through, and is what the record says."""
    provider.replace(Reply.silence())
    session = start()
    async with openai.AsyncOpenAI(base_url=provider.openai_base_url, api_key="any") as client:
        task = asyncio.ensure_future(chat(client))
        for _ in range(200):
            await asyncio.sleep(0.01)
            if provider.requests:
                break
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    row, record = session.only()
    assert ("error", "asyncio.exceptions.CancelledError", False) == (
        *(row.status, row.error_type, row.partial),
    )
    assert record.messages is not None


async def test_the_request_that_was_answered_is_the_one_recorded(start: Start) -> None:
    """An SDK may send another body the second time: that is the one that the answer belongs to."""
    from clew import exchange

    session = start()
    bodies = [
        json.dumps({"model": "m", "messages": [{"role": "user", "content": text}]}).encode()
        for text in ("broken", "mended")
    ]
    wires = (Wire({"error": {"type": "invalid"}}, status=400), Wire(CHAT_ANSWER))
    call = exchange.LogicalCall(object())
    for body, wire in zip(bodies, wires, strict=True):
        send(URL, wire, content=body)
    call.finish(None)
    row, record = session.only()
    assert record.messages is not None
    assert "mended" == record.messages[0]["parts"][0]["content"]
    assert [len(body) for body in bodies] == [each.request_bytes for each in record.attempts]
    assert (2, "ok") == (row.attempts, row.status)


async def test_a_tool_call_is_recorded_with_its_arguments(
    start: Start, caller: Caller, provider: ScriptedProvider
) -> None:
    """Of a plain answer and of a stream alike."""
    asked = ScriptedToolCall(name="lookup", arguments={"id": 7, "why": MARK})
    provider.replace(Reply(tool_calls=(asked,)), Reply(tool_calls=(asked,)))
    session = start()
    await caller.ask()
    await caller.read(await caller.ask(stream=True))
    for record in session.records():
        (call,) = record.response.tool_calls
        assert ("lookup", {"id": 7, "why": MARK}) == (call.name, call.arguments)
        assert "tool_call" == record.response.finish_reason
    await caller.close(caller.client)


# --- other taps -----------------------------------------------------------------------------------


class Client:
    """What an in-house client may be given: nothing that JSON could say."""


FACTS = {
    "model": "model",
    "input_tokens": "used.in",
    "output_tokens": "used.out",
    "system": "prompt",
}


def complete(model: str, prompt: str, messages: list[Any], client: Any = None) -> dict[str, Any]:
    messages.append("changed later")
    return {"model": model, "used": {"in": 3, "out": 4}, "text": f"{MARK} yes", "client": client}


async def acomplete(**given: Any) -> dict[str, Any]:
    return complete(**given)


@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
async def test_an_adapter_of_ones_own_is_recorded(start: Start, asynchronous: bool) -> None:
    """A callable that speaks no HTTP: what it was given, what it returned, its prompt by block."""
    session = start()
    prompt = Prompt.of(identity="You are kind.", tone="Be brief.")
    given = {"model": "house-1", "prompt": prompt, "messages": ["hello"], "client": Client()}
    with clew.run("a"):
        if asynchronous:
            await clew.instrument(acomplete, facts=FACTS)(**given)
        else:
            clew.instrument(complete, facts=FACTS)(**given)
    row, record = session.only()
    assert ("house-1", 3, 4, "ok", "a") == (
        *(row.model, row.input_tokens, row.output_tokens, row.status, row.agent),
    )
    assert (str(prompt), ["identity", "tone"]) == (
        record.system.text,
        [block.id for block in record.system.blocks],
    )
    assert {
        "model": "house-1",
        "prompt": str(prompt),
        "messages": ["hello"],
        "client": "[Client]",
    } == record.body
    assert f"{MARK} yes" == record.response.body["text"]


def test_an_adapter_of_ones_own_without_content(start: Start) -> None:
    """At `metadata` its prompt is measured, and nothing of it is on the disk."""
    session = start(capture="metadata")
    clew.instrument(complete, facts=FACTS)("house-1", f"You are {MARK}.", [MARK])
    (row,) = session.rows()
    assert (19, 3) == (row.system_bytes, row.input_tokens)
    clew.shutdown()
    assert MARK.encode() not in bytes_of(session.folder)


# --- harms nobody ---------------------------------------------------------------------------------


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


def test_cost_that_comes_late_is_in_the_record(start: Start) -> None:
    """The price of a known model is part of the usage."""
    session = start()
    send(URL, Wire(CHAT_ANSWER), json=BODY)
    row, record = session.only()
    assert record.usage is not None
    assert ("priced", row.cost_usd) == (record.usage.cost_status, record.usage.cost_usd)
    (span,) = session.exporter.by_name("chat")
    assert (span.attributes or {})["clew.cost.usd"] == row.cost_usd


def test_shapes_are_all_recorded_under_their_provider(start: Start) -> None:
    """Each provider's API is recognised by its address, and named."""
    session = start()
    for shape in SHAPES:
        send(shape.url, Wire(shape.answer), json=shape.body(["Be brief."]))
    assert len(SHAPES) == len(session.rows())
    assert {
        *("openai", "anthropic", "gcp.gemini", "ollama", "cohere", "aws.bedrock"),
    } == {row.provider for row in session.rows()}


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
