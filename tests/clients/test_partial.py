"""Streams that end in the middle: what had come is kept, and marked as a part."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from typing import Any

import anthropic
import groq
import httpx
import httpx2
import openai
import pytest
from either_way import settle
from kits import memory
from kits.comparing import let_go

from clew.testing import ScriptedProvider, captured, sse

WORDS = tuple(f"word{number} " for number in range(12))
ENDS = {
    "left": ({}, {"closed", "abandoned"}),
    "cut": ({"cut_after": 7}, {"failed"}),
    "silent": ({"hang_after": 7}, {"timeout"}),
}
"""How the stream ends: what the provider does, and how the round may say so."""


async def read_until_it_ends(kit: Any, client: Any, how: str) -> Exception | None:
    stream = await kit.stream(client)
    read = 0
    try:
        async for _ in kit.chunks(stream):
            read += 1
            if how == "left" and read == 6:
                break
    except Exception as error:
        return error
    finally:
        await settle(kit.close_stream(stream))
    return None


def text_of(span: Any) -> str:
    """Return the text of the captured answer."""
    messages = json.loads(span.attributes["gen_ai.output.messages"])
    parts = [part for message in messages for part in message["parts"]]
    return "".join(part["content"] for part in parts if part["type"] == "text")


@pytest.mark.kits("all")
@pytest.mark.parametrize("how", ENDS)
async def test_what_had_come_is_kept(how: str, kit: Any):
    """Text, time to the first output, and counts where they came early; the cost is no whole."""
    scripted, outcomes = ENDS[how]
    reply = dataclasses.replace(kit.reply, text=WORDS, tool_calls=(), event_delay=0.005, **scripted)
    settings = {"capture": "full", "content_to": frozenset({"spans"})}
    with (
        ScriptedProvider([reply], formats=kit.formats) as server,
        captured(**settings) as exporter,
    ):
        client = await settle(kit.client(server, timeout=1))
        error = await read_until_it_ends(kit, client, how)
        await let_go()  # generators within generators are closed one by one
        await kit.close(client)
        (span,) = [each for each in exporter.spans if "clew.attempts" in each.attributes]
    told = span.attributes
    assert told["clew.stream.outcome"] in outcomes
    assert (error is None) == (how == "left") == ("error.type" not in told)
    text = text_of(span)
    assert text
    assert "".join(WORDS).startswith(text)
    assert len(text) < len("".join(WORDS))
    assert 0 < told["gen_ai.response.time_to_first_chunk"] < 5
    assert told["clew.stream.chunks"] > 1
    assert "gen_ai.response.finish_reasons" not in told
    if "gen_ai.usage.input_tokens" in told:
        assert told["gen_ai.usage.input_tokens"] == 100
        assert told["clew.cost.status"] in ("partial", "unpriced")
    else:
        assert told["clew.cost.status"] == "unknown"
    assert "clew.cost.usd" not in told or told["clew.cost.status"] == "partial"


# --- the exception itself -----------------------------------------------------------------------------

DELTA = {"index": 0, "delta": {"content": "zqmark"}, "finish_reason": None}
CHUNK = sse({"id": "c1", "object": "chat.completion.chunk", "choices": [DELTA], "model": "m"})
MESSAGE = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": []}
START = sse(
    {"type": "message_start", "message": MESSAGE | {"usage": {"input_tokens": 100}}},
    "message_start",
)
CLIENTS: dict[str, tuple[Any, bytes, Any, Any]] = {
    "openai": (httpx2, CHUNK, openai.OpenAI, openai.AsyncOpenAI),
    "anthropic": (httpx2, START, anthropic.Anthropic, anthropic.AsyncAnthropic),
    "groq": (httpx, CHUNK, groq.Groq, groq.AsyncGroq),
}


def breaking(library: Any, event: bytes, error: Exception, asynchronous: bool) -> Any:
    """Return a transport whose bodies break off with this very exception."""

    def pieces() -> Iterator[bytes]:
        yield from [event] * 3
        raise error

    headers = {"content-type": "text/event-stream"}
    return memory.transport(library, headers, pieces, asynchronous=asynchronous)


@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize("name", ["ReadError", "ReadTimeout", "RemoteProtocolError"])
@pytest.mark.parametrize("sdk", CLIENTS)
async def test_the_original_exception_reaches_the_caller(sdk: str, name: str, asynchronous: bool):
    """Not an equal one: the object that was raised, itself or as the cause of the SDK's own."""
    library, event, *kinds = CLIENTS[sdk]
    error = getattr(library, name)("zqmark")
    transport = breaking(library, event, error, asynchronous)
    http = (library.AsyncClient if asynchronous else library.Client)(transport=transport)
    client = kinds[asynchronous](api_key="key", http_client=http, base_url="http://model.test/v1")
    ask: dict[str, Any] = {"model": "m", "messages": [], "stream": True}
    resource = client.messages if sdk == "anthropic" else client.chat.completions
    if sdk == "anthropic":
        ask["max_tokens"] = 5
    with captured() as exporter:
        stream = await settle(resource.create(**ask))
        read = 0
        try:
            if asynchronous:
                async for _ in stream:
                    read += 1
            else:
                for _ in stream:
                    read += 1
        except Exception as raised:
            caught = raised
        await settle(client.close())
        (span,) = [each for each in exporter.spans if "clew.attempts" in each.attributes]
    assert read == 3
    assert error in (caught, caught.__cause__)
    told = span.attributes
    assert told["error.type"] == f"{library.__name__}.{name}"
    assert told["clew.stream.outcome"] == ("timeout" if "Timeout" in name else "failed")
    assert told.get("gen_ai.usage.input_tokens") == (100 if sdk == "anthropic" else None)
