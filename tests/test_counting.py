"""Answers, usage and cost are read by whoever looks first: the export thread, as a rule."""

from __future__ import annotations

import os
import weakref
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest
from opentelemetry import trace
from tests.support.either_way import settle

import clew
from clew.facts import Usage
from clew.pipeline import runtime as _runtime
from clew.pipeline.stamp import Segment
from clew.testing import CaptureExporter, Reply, ScriptedProvider, ScriptedToolCall

TOOLS = [{"type": "function", "function": {"name": "search", "parameters": {}}}]


class Program:
    """Sends chats through a client that waits for them, or one that does not."""

    def __init__(self, provider: ScriptedProvider, client: Any) -> None:
        self.provider = provider
        self.client = client

    async def say(self, *messages: dict[str, Any], text: str = "hi") -> dict[str, Any]:
        body = {
            "model": "gpt-4o",
            "messages": [{"role": "user", "content": text}, *messages],
            "tools": TOOLS,
        }
        url = f"{self.provider.openai_base_url}/chat/completions"
        return (await settle(self.client.post(url, json=body))).json()


@pytest.fixture(params=["sync", "async"])
async def program(
    request: pytest.FixtureRequest, exported: CaptureExporter
) -> AsyncIterator[Program]:
    clew.instrument()
    sync = request.param == "sync"
    client: Any = httpx2.Client() if sync else httpx2.AsyncClient()
    with ScriptedProvider() as provider:
        yield Program(provider, client)
    await settle(client.close() if sync else client.aclose())


def json_reply(body: bytes) -> Reply:
    return Reply(raw=(body,), content_type="application/json")


def waiting(run: clew.Run) -> int:
    """Return how much of a run waits to be counted."""
    assert run.agent is not None
    return len(run.agent.segment.uncounted)


async def test_totals_are_right_whenever_somebody_asks(
    exported: CaptureExporter, program: Program
) -> None:
    """Nothing is read while the answers come; whoever asks has all that came until then."""
    program.provider.add(
        Reply(text="a", usage=Usage(input_tokens=10, output_tokens=2)),
        Reply(text="b", usage=Usage(input_tokens=20, output_tokens=3)),
    )
    with clew.run("triage") as run:
        await program.say()
        assert waiting(run) == 1
        first = run.totals
        assert waiting(run) == 0
        await program.say()
        second = run.totals
    assert (first.rounds, first.input_tokens, first.output_tokens) == (1, 10, 2)
    assert (second.rounds, second.input_tokens, second.output_tokens) == (2, 30, 5)
    (root,) = exported.by_name("invoke_agent")
    assert root.attributes["clew.run.usage.input_tokens"] == 30
    assert root.attributes["clew.run.rounds_without_usage"] == 0


async def test_what_ends_between_two_looks_is_counted_in_order(program: Program) -> None:
    """The totals at a moment have what ended before it, however late they are read."""
    program.provider.add(
        *(Reply(text=f"{n}", usage=Usage(input_tokens=10**n, output_tokens=1)) for n in range(3))
    )
    from clew.sealing import TotalsAtEnd

    with clew.run("triage") as run:
        assert run.agent is not None
        runtime = _runtime.get()
        assert runtime is not None
        found: list[dict[str, Any]] = []
        moments: list[TotalsAtEnd] = []
        for _ in range(3):
            await program.say()
            moments.append(TotalsAtEnd(runtime, run.agent.segment, 0))
        for moment in reversed(moments):
            found.insert(0, {})
            moment.describe(found[0])
    keys = ("clew.run.rounds", "clew.run.usage.input_tokens", "clew.run.rounds_without_usage")
    assert [[one.get(key) for key in keys] for one in found] == [[1, 1, 0], [2, 11, 0], [3, 111, 0]]


async def test_an_answer_that_is_an_error_is_read_at_once(
    exported: CaptureExporter, program: Program
) -> None:
    """A gateway's error with status 200 fails its round; an `error` that is null does not."""
    program.provider.add(json_reply(b'{"error": {"type": "overloaded"}}'))
    program.provider.add(
        json_reply(b'{"id": "1", "error": null, "model": "gpt-4o", "choices": []}')
    )
    with clew.run("triage") as run:
        await program.say()
        assert run.agent is not None
        failed, fine = run.agent.segment.uncounted[0], None
        await program.say()
        fine = run.agent.segment.uncounted[1]
        assert (failed.unread, fine.unread is not None) == (None, True)  # type: ignore[attr-defined]
    first, second = exported.by_name("chat")
    assert first.attributes["error.type"] == "overloaded"
    assert not first.status.is_ok
    assert second.attributes["gen_ai.response.id"] == "1"
    assert second.status.is_unset


async def test_a_large_answer_is_not_kept(program: Program) -> None:
    """Answers of more than 128 KiB are read as they come."""
    program.provider.add(Reply(text="x" * 140_000, usage=Usage(input_tokens=10, output_tokens=2)))
    with clew.run("triage") as run:
        await program.say()
        assert run.agent is not None
        (round_,) = run.agent.segment.uncounted
        assert round_.unread is None  # type: ignore[attr-defined]
        assert run.totals.input_tokens == 10


async def test_a_tool_call_finds_its_round_later(
    exported: CaptureExporter, program: Program
) -> None:
    """The round that asked for it is read after the call was recorded; nothing is inferred."""
    program.provider.add(
        Reply(tool_calls=(ScriptedToolCall(id="c1", name="search"),)),
        Reply(text="a"),
        Reply(text="b"),
    )
    with clew.run("triage") as run:
        message = (await program.say())["choices"][0]["message"]
        await program.say(text="something else")
        with clew.tool("search", call_id="c1"):
            pass
        assert waiting(run) == 3
        await program.say(message, {"role": "tool", "tool_call_id": "c1", "content": "x"})
        assert waiting(run) == 4
    (tool,) = exported.by_name("execute_tool")
    assert tool.attributes["clew.round"] == 1
    assert "clew.tool.inferred" not in tool.attributes
    assert [span.attributes["clew.round"] for span in exported.by_name("chat")] == [1, 2, 3]


async def test_ids_that_begin_anew_with_each_answer_are_of_two_calls(
    exported: CaptureExporter, program: Program
) -> None:
    """Where a model gives each answer's calls the same ids, what nobody recorded is inferred."""
    asks = Reply(tool_calls=(ScriptedToolCall(id="call_0", name="search"),))
    program.provider.add(asks, asks, Reply(text="a"))
    result = {"role": "tool", "tool_call_id": "call_0", "content": "x"}
    with clew.run("triage"):
        first = (await program.say())["choices"][0]["message"]
        with clew.tool("search", call_id="call_0"):
            pass
        second = (await program.say(first, result))["choices"][0]["message"]
        await program.say(first, result, second, result)
    found = [
        (span.attributes["clew.round"], span.attributes.get("clew.tool.inferred"))
        for span in exported.by_name("execute_tool")
    ]
    assert found == [(1, None), (2, True)]


def test_a_tool_call_that_has_ended_keeps_nothing_of_the_hosts(exported: CaptureExporter) -> None:
    """Arguments and results may be large, and somebody may wait for their end."""

    class Thing:
        pass

    given, result = Thing(), Thing()
    seen = [weakref.ref(given), weakref.ref(result)]
    with clew.run("triage") as run:
        with clew.tool("search", call_id="c1", arguments=given) as call:
            call.result = result
        del given, result
        assert waiting(run) == 1
        assert [one() for one in seen] == [None, None]


def test_nothing_waits_for_a_span_that_records_nothing(
    exported: CaptureExporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tool calls whose spans the provider has dropped are counted as they begin."""
    runtime = _runtime.get()
    assert runtime is not None
    with clew.run("triage") as run:
        monkeypatch.setattr(runtime, "light", None)
        monkeypatch.setattr(runtime, "tracer", trace.NoOpTracer())
        with clew.tool("search", call_id="c1"):
            pass
        assert waiting(run) == 0


def test_nothing_waits_for_a_span_that_is_dropped(exported: CaptureExporter) -> None:
    """Where the export does not keep up, what is dropped is counted, and kept no longer."""
    runtime = _runtime.get()
    assert runtime is not None
    with clew.run("triage") as run:
        runtime.worker._queue_size, runtime.worker._batch_size = 0, 1
        for _ in range(100):
            with clew.tool("search", call_id="c1"):
                pass
        assert waiting(run) == 0
        assert run.totals.tool_calls == 100


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_child_does_not_wait_for_the_parents_count(exported: CaptureExporter) -> None:
    """A fork while another thread counts leaves no lock behind that nobody opens."""
    import threading

    counting, go_on = threading.Event(), threading.Event()

    class Slow:
        def count(self, totals: Any) -> None:
            counting.set()
            go_on.wait(10)

    with clew.run("triage") as run:
        assert run.agent is not None
        segment: Segment = run.agent.segment
        segment.uncounted.append(Slow())
        other = threading.Thread(target=segment.count_up)
        other.start()
        counting.wait(10)
        child = os.fork()
        if child == 0:
            os._exit(0 if run.totals.rounds == 0 else 1)
        go_on.set()
        other.join()
        assert os.waitpid(child, 0)[1] == 0
