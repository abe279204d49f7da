"""What gates say reaches the caller of every SDK as itself, and streams are looked at by window."""

from __future__ import annotations

import dataclasses
import gc
from collections.abc import AsyncIterator
from typing import Any

import pytest
from either_way import settle
from kits.comparing import normal
from saying import DENY, MARK, SECRET, Govern, Saying, decisions, no_keys, saying

import clew
from clew.errors import PolicyDenied
from clew.gates.guardrail import OutputGuardrail
from clew.testing import ScriptedProvider

pytestmark = pytest.mark.kits("all")


@pytest.fixture
async def server(kit: Any) -> AsyncIterator[ScriptedProvider]:
    """The provider, with an answer in which a key is cut over several events."""
    words = ("once there was ", "a long tale of ", "many words and ", "more of them, ") * 3
    text = (*words, "then ", SECRET[:4], SECRET[4:9], SECRET[9:], " at the end")
    reply = dataclasses.replace(kit.reply, text=text, tool_calls=())
    with ScriptedProvider(lambda _: reply, formats=kit.formats) as running:
        yield running


@pytest.fixture
async def client(kit: Any, server: ScriptedProvider) -> AsyncIterator[Any]:
    made = await settle(kit.client(server))
    yield made
    await kit.close(made)


async def read(kit: Any, client: Any, into: list[Any]) -> None:
    """Read a stream as far as it can be read."""
    stream = await kit.stream(client)
    if kit.asynchronous:
        async for chunk in stream:
            into.append(normal(chunk))  # noqa: PERF401 - kept when it raises
    else:
        for chunk in stream:
            into.append(normal(chunk))  # noqa: PERF401 - kept when it raises


TEXTS = ("text", "content")


def said(chunks: Any) -> str:
    """Return the text in chunks, whatever they are made of."""
    if isinstance(chunks, dict):
        items = chunks.items()
        return "".join(v if k in TEXTS and isinstance(v, str) else said(v) for k, v in items)
    return "".join(map(said, chunks)) if isinstance(chunks, (list, tuple)) else ""


def by_window(kit: Any) -> bool:
    """Tell whether streams of an SDK go through a window; Amazon's frames are held back whole."""
    return kit.provider != "Amazon Bedrock"


@pytest.mark.parametrize("stream", [False, True])
async def test_a_denial(
    govern: Govern, kit: Any, server: ScriptedProvider, client: Any, stream: bool
) -> None:
    """One evaluation, one decision, nothing sent, no round, not wrapped and not retried."""
    gate = Saying(DENY)
    exported = govern(gate)
    with pytest.raises(PolicyDenied) as caught, clew.run("triage"):
        await (read(kit, client, []) if stream else kit.ask(client))
    assert type(caught.value) is PolicyDenied
    assert caught.value.__cause__ is None
    assert (len(gate.asked), server.requests) == (1, [])
    (found,) = decisions(exported)
    assert found["id"] == caught.value.decision_id
    assert (found["outcome"], found["executed"]) == ("deny", False)
    assert exported.by_name(kit.operation) == ()
    assert MARK.encode() not in exported.otlp_bytes()


async def test_a_stream_is_redacted(govern: Govern, kit: Any, client: Any) -> None:
    """What is found is replaced in events that have not gone on yet, also over their borders.

    Where a stream is held back as a whole it is denied.
    """
    exported = govern(OutputGuardrail(no_keys, window=20, overlap=40))
    chunks: list[Any] = []
    with clew.run("triage"):
        if by_window(kit):
            await read(kit, client, chunks)
        else:
            with pytest.raises(PolicyDenied, match="redact_not_possible"):
                await read(kit, client, chunks)
    (found,) = decisions(exported)
    (span,) = exported.by_name(kit.operation)
    attributes = span.attributes or {}
    assert attributes["clew.stream.outcome"] == "complete"
    assert attributes["gen_ai.usage.output_tokens"] == kit.reply.usage.output_tokens
    if by_window(kit):
        assert "then [gone] at the end" in said(chunks)
        assert SECRET not in said(chunks)
        assert (found["outcome"], found["executed"]) == ("redact", True)
    else:
        assert chunks == []
    assert MARK.encode() not in exported.otlp_bytes()


async def test_a_stream_is_stopped(govern: Govern, kit: Any, client: Any) -> None:
    """A denial ends the stream as itself; what had gone on before is counted."""
    exported = govern(OutputGuardrail(saying("deny"), window=20, overlap=40))
    chunks: list[Any] = []
    with pytest.raises(PolicyDenied) as caught, clew.run("triage"):
        await read(kit, client, chunks)
    assert type(caught.value) is PolicyDenied
    assert caught.value.__cause__ is None
    assert MARK not in said(chunks)
    (found,) = decisions(exported)
    assert found["id"] == caught.value.decision_id
    of_runs = [*exported.by_name("decide"), *exported.by_name("invoke_agent")]
    assert len({(each.attributes or {})["clew.run.id"] for each in of_runs}) == 1
    (span,) = exported.by_name(kit.operation)
    assert "error.type" not in (span.attributes or {})
    if not by_window(kit) or getattr(kit, "http", "") == "aiohttp":
        assert chunks == []
        assert found.get("released_chars", 0) == 0
    else:
        assert found["released_chars"] == len(said(chunks)) > 100
    assert MARK.encode() not in exported.otlp_bytes()


async def test_an_answer_is_redacted(govern: Govern, kit: Any, client: Any) -> None:
    """A whole answer reaches the caller changed, also where it is read in pieces.

    Its round has the provider's tokens.
    """
    exported = govern(OutputGuardrail(no_keys))
    with clew.run("triage"):
        answer = await kit.ask(client)
    assert "then [gone] at the end" in said(normal(answer))
    (found,) = decisions(exported)
    assert (found["outcome"], found["executed"]) == ("redact", True)
    (span,) = exported.by_name(kit.operation)
    attributes = span.attributes or {}
    assert attributes["gen_ai.usage.output_tokens"] == kit.reply.usage.output_tokens
    assert MARK.encode() not in exported.otlp_bytes()


async def test_observing_a_stream(govern: Govern, kit: Any, client: Any) -> None:
    """A guardrail that observes has its decision on a stream, and the caller all of it.

    Amazon's frames are looked at when they are all there.
    """
    exported = govern(OutputGuardrail(saying("deny"), mode="observe", window=20, overlap=40))
    chunks: list[Any] = []
    with clew.run("triage"):
        await read(kit, client, chunks)
    text = str(chunks)
    assert all(piece in text for piece in (SECRET[:4], SECRET[4:9], SECRET[9:]))
    (found,) = decisions(exported)
    assert (found["outcome"], found["enforced"]) == ("deny", False)
    assert "released_chars" not in found
    (span,) = exported.by_name(kit.operation)
    assert (span.attributes or {})["clew.stream.outcome"] == "complete"


# aiobotocore leaves a connection that broke to the collector, without Clew too.
@pytest.mark.filterwarnings(
    "ignore:.*Unclosed connection:ResourceWarning",
    "ignore:.*Connection.__del__:pytest.PytestUnraisableExceptionWarning",
)
@pytest.mark.parametrize("reset", [False, True])
async def test_a_stream_that_is_cut_off(govern: Govern, kit: Any, reset: bool) -> None:
    """The caller gets what it would have got without gates: the same text, and the same error."""
    reply = dataclasses.replace(kit.reply, cut_after=4, reset=reset)
    seen = []
    for gates in ((), (OutputGuardrail(saying("deny")),)):
        exported = govern(*gates)
        chunks: list[Any] = []
        error: BaseException | None = None
        with ScriptedProvider(lambda _: reply, formats=kit.formats) as server:
            client = await settle(kit.client(server))
            try:
                with clew.run("triage"):
                    await read(kit, client, chunks)
            except Exception as raised:
                error = raised
            await kit.close(client)
        seen.append((type(error), len(server.requests), said(chunks)))
        (span,) = exported.by_name(kit.operation)
        assert (span.attributes or {})["clew.stream.outcome"] == "failed"
        clew.shutdown()
        if getattr(kit, "http", "") == "aiohttp":
            gc.collect()
    assert seen[0] == seen[1]
