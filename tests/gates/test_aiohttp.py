"""Gates over a bare aiohttp session: what is denied, held back whole, or observed as it is read."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from saying import DENY, MARK, SECRET, Govern, Saying, decisions, no_keys, saying

import clew
from clew.errors import PolicyDenied
from clew.gates.guardrail import InputGuardrail, OutputGuardrail, redact
from clew.testing import Reply, ScriptedProvider

aiohttp = pytest.importorskip("aiohttp")

BODY = {"model": "gpt-5-mini", "messages": [{"role": "user", "content": MARK}]}


@pytest.fixture
def server() -> Iterator[ScriptedProvider]:
    with ScriptedProvider(
        lambda _: Reply(text=("the ", SECRET[:5], SECRET[5:], " end"))
    ) as running:
        yield running


@pytest.fixture
async def session() -> AsyncIterator[Any]:
    async with aiohttp.ClientSession() as made:
        yield made


async def whole(response: Any) -> bytes:
    return await response.read()


async def parts(response: Any) -> bytes:
    return b"".join([piece async for piece in response.content.iter_any()])


async def chunks(response: Any) -> bytes:
    return b"".join([piece async for piece, _ in response.content.iter_chunks()])


async def lines(response: Any) -> bytes:
    return b"".join([line async for line in response.content])


async def some(response: Any) -> bytes:
    read = b""
    while piece := await response.content.read(7):
        read += piece
    return read


READS = [whole, parts, chunks, lines, some]
each_read = pytest.mark.parametrize("read", READS, ids=lambda one: one.__name__)
each_form = pytest.mark.parametrize("stream", [False, True])


def asked(server: ScriptedProvider, *, stream: bool) -> tuple[str, dict[str, Any]]:
    more = {"stream": True, "stream_options": {"include_usage": True}} if stream else {}
    return f"{server.openai_base_url}/chat/completions", {**BODY, **more}


@each_form
async def test_a_denial(
    govern: Govern, server: ScriptedProvider, session: Any, stream: bool
) -> None:
    """One evaluation, one decision, nothing sent."""
    gate = Saying(DENY)
    exported = govern(gate)
    url, body = asked(server, stream=stream)
    with pytest.raises(PolicyDenied) as caught, clew.run("triage"):
        await session.post(url, json=body)
    assert (len(gate.asked), server.requests) == (1, [])
    (found,) = decisions(exported)
    assert found["id"] == caught.value.decision_id


async def test_a_request_cannot_be_changed(
    govern: Govern, server: ScriptedProvider, session: Any
) -> None:
    """What would be redacted in a request is denied."""
    govern(InputGuardrail(lambda text: redact("x") if MARK in text else None))
    url, body = asked(server, stream=False)
    with pytest.raises(PolicyDenied, match="redact_not_possible"):
        await session.post(url, json=body)
    assert server.requests == []


@each_read
@each_form
async def test_an_answer_is_redacted(
    govern: Govern, server: ScriptedProvider, session: Any, read: Any, stream: bool
) -> None:
    """Whole or streamed, and however it is read; the round has the provider's tokens."""
    exported = govern(OutputGuardrail(no_keys))
    url, body = asked(server, stream=stream)
    with clew.run("triage") as run:
        async with session.post(url, json=body) as response:
            got = await read(response)
            length = response.headers.get("content-length")
        assert run.totals.output_tokens == 7
    assert b"[gone]" in got
    assert SECRET[5:].encode() not in got
    assert length in (None, str(len(got)))
    (found,) = decisions(exported)
    assert (found["outcome"], found["executed"]) == ("redact", True)


@each_form
async def test_an_answer_is_denied(
    govern: Govern, server: ScriptedProvider, session: Any, stream: bool
) -> None:
    """Nothing of it is released, and the connection is closed."""
    exported = govern(OutputGuardrail(saying("deny")))
    url, body = asked(server, stream=stream)
    with pytest.raises(PolicyDenied, match="found"), clew.run("triage"):
        await session.post(url, json=body)
    (found,) = decisions(exported)
    assert (found["outcome"], found.get("released_chars", 0)) == ("deny", 0)
    (span,) = exported.by_name("chat")
    assert span.attributes["gen_ai.usage.output_tokens"] == 7


@each_read
@each_form
async def test_observing(
    govern: Govern, server: ScriptedProvider, session: Any, read: Any, stream: bool
) -> None:
    """The bytes are those that were sent; what was found is a decision all the same."""
    exported = govern(OutputGuardrail(saying("deny"), mode="observe", window=4, overlap=20))
    url, body = asked(server, stream=stream)
    with clew.run("triage"):
        async with session.post(url, json=body) as response:
            got = await read(response)
    assert SECRET[5:].encode() in got
    (found,) = decisions(exported)
    assert (found["outcome"], found["enforced"], found["executed"]) == ("deny", False, True)


async def test_observing_one_who_stops_reading(
    govern: Govern, server: ScriptedProvider, session: Any
) -> None:
    """There is a decision on what was read until then."""
    exported = govern(OutputGuardrail(saying("deny"), mode="observe", window=1, overlap=0))
    url, body = asked(server, stream=True)
    with clew.run("triage"):
        response = await session.post(url, json=body)
        while b"the " not in await response.content.readline():
            pass
        await response.content.readline()
        response.close()
    (found,) = decisions(exported)
    assert (found["outcome"], found["enforced"]) == ("allow", False)
    (span,) = exported.by_name("chat")
    assert span.attributes["clew.stream.outcome"] == "closed"
