"""However a call ends, there is a record of it, synchronous and asynchronous."""

# ruff: noqa: SIM300 - expected == actual, in this order
from __future__ import annotations

import asyncio
import gc
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import openai
import pytest
from recorded import Start, Wire, send
from recorder_kit import MARK, URL, chat
from wires import CHAT_ANSWER

from clew.attempts import LogicalCall
from clew.testing import Reply, ScriptedProvider, ScriptedToolCall


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
async def caller(
    request: pytest.FixtureRequest, provider: ScriptedProvider
) -> AsyncIterator[Caller]:
    caller = Caller(provider, asynchronous=request.param)
    yield caller
    await caller.close(caller.client)


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


async def test_usage_of_a_stream_that_reports_none_is_null(start: Start, caller: Caller) -> None:
    """Unknown, not zero."""
    session = start()
    await caller.read(await caller.ask(stream=True))
    row, record = session.only()
    assert (None, None, None) == (record.usage, row.input_tokens, row.cost_usd)


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


async def test_an_error_event_in_a_stream_is_an_error(
    start: Start, caller: Caller, provider: ScriptedProvider
) -> None:
    """Its type is kept, never its text."""
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


async def test_a_call_that_reaches_nobody(start: Start, caller: Caller) -> None:
    """A connection that is refused is a record, too."""
    session = start()
    caller.client = caller.client.with_options(base_url="http://127.0.0.1:9/v1", max_retries=0)
    with pytest.raises(openai.APIConnectionError):
        await caller.ask()
    row, record = session.only()
    assert ("error", "httpx.ConnectError", None) == (
        *(row.status, str(row.error_type).replace("httpx2", "httpx"), record.response.text),
    )
    assert record.usage is None


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
    session = start()
    bodies = [
        json.dumps({"model": "m", "messages": [{"role": "user", "content": text}]}).encode()
        for text in ("broken", "mended")
    ]
    wires = (Wire({"error": {"type": "invalid"}}, status=400), Wire(CHAT_ANSWER))
    call = LogicalCall(object())
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
