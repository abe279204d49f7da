"""Raw and streaming responses: a body is read once, and only if the caller reads it."""

from __future__ import annotations

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

from clew.testing import captured

ASK = [{"role": "user", "content": "zqmark"}]
MESSAGE = {"role": "assistant", "content": "zqmark"}
CHAT = {
    "id": "c1",
    "object": "chat.completion",
    "created": 1,
    "model": "m-1",
    "choices": [{"index": 0, "finish_reason": "stop", "message": MESSAGE}],
    "usage": {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120},
}
MESSAGES = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "m-1",
    "content": [{"type": "text", "text": "zqmark"}],
    "stop_reason": "end_turn",
    "usage": {"input_tokens": 100, "output_tokens": 20},
}
EMBEDDINGS = {
    "object": "list",
    "model": "m-1",
    "data": [{"object": "embedding", "index": 0, "embedding": [0.5, 1.0]}],
    "usage": {"prompt_tokens": 100, "total_tokens": 100},
}
CALLS: dict[str, tuple[Any, Any, str, dict[str, Any], dict[str, Any]]] = {
    "openai chat": (openai, httpx2, "chat.completions", {"messages": ASK}, CHAT),
    "openai embeddings": (openai, httpx2, "embeddings", {"input": "zqmark"}, EMBEDDINGS),
    "anthropic messages": (
        anthropic,
        httpx2,
        "messages",
        {"messages": ASK, "max_tokens": 5},
        MESSAGES,
    ),
    "groq chat": (groq, httpx, "chat.completions", {"messages": ASK}, CHAT),
    "groq embeddings": (groq, httpx, "embeddings", {"input": "zqmark"}, EMBEDDINGS),
}
"""SDK, its HTTP client library, where the method stands, what it needs, what comes back."""


class Reads:
    """How often bodies were begun, and closed."""

    def __init__(self) -> None:
        self.begun = 0
        self.closed = 0


def transport_of(library: Any, answer: dict[str, Any], reads: Reads, asynchronous: bool) -> Any:
    """Return a transport that answers from memory in two pieces, and counts."""
    body = json.dumps(answer).encode()

    def pieces() -> Iterator[bytes]:
        reads.begun += 1
        yield body[:20]
        yield body[20:]

    def closed() -> None:
        reads.closed += 1

    headers = {"content-type": "application/json", "x-request-id": "req_1", "request-id": "req_1"}
    return memory.transport(library, headers, pieces, asynchronous=asynchronous, closed=closed)


async def raw(resource: Any, arguments: dict[str, Any]) -> Any:
    """`with_raw_response`: headers, and parsed twice."""
    response = await settle(resource.with_raw_response.create(**arguments))
    first, second = await settle(response.parse()), await settle(response.parse())
    return [
        response.headers["x-request-id"],
        first,
        first is second,
        response.http_response.content,
    ]


async def entered(resource: Any, arguments: dict[str, Any], use: Any) -> Any:
    manager = resource.with_streaming_response.create(**arguments)
    if hasattr(manager, "__aenter__"):
        async with manager as response:
            return [response.headers["x-request-id"], await settle(use(response))]
    with manager as response:
        return [response.headers["x-request-id"], await settle(use(response))]


async def streaming_parsed(resource: Any, arguments: dict[str, Any]) -> Any:
    """`with_streaming_response`, parsed."""
    return await entered(resource, arguments, lambda response: response.parse())


async def streaming_read(resource: Any, arguments: dict[str, Any]) -> Any:
    """`with_streaming_response`, read as bytes."""
    return await entered(resource, arguments, lambda response: response.read())


async def streaming_unread(resource: Any, arguments: dict[str, Any]) -> Any:
    """`with_streaming_response`, not read."""
    return await entered(resource, arguments, lambda response: response.status_code)


FORMS = [raw, streaming_parsed, streaming_read, streaming_unread]


def dumped(value: Any) -> Any:
    if isinstance(value, list):
        return [dumped(each) for each in value]
    return value.model_dump(mode="json") if hasattr(value, "model_dump") else value


async def made(call: str, form: Any, asynchronous: bool) -> tuple[Any, int, int]:
    """Make the call; return what the caller sees, and how often the body was begun and closed."""
    sdk, library, where, arguments, answer = CALLS[call]
    reads = Reads()
    transport = transport_of(library, answer, reads, asynchronous)
    name = {"openai": "OpenAI", "anthropic": "Anthropic", "groq": "Groq"}[sdk.__name__]
    http = (library.AsyncClient if asynchronous else library.Client)(transport=transport)
    kind = getattr(sdk, f"Async{name}" if asynchronous else name)
    client = kind(api_key="key", http_client=http, base_url="http://model.test/v1")
    resource = client
    for part in where.split("."):
        resource = getattr(resource, part)
    seen = await form(resource, {"model": "m", **arguments})
    await settle(client.close())
    return dumped(seen), reads.begun, reads.closed


@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.__name__)
@pytest.mark.parametrize("call", CALLS)
async def test_a_body_is_read_as_often_as_without_clew(call: str, form: Any, asynchronous: bool):
    """The caller sees the same, the body is begun and closed as often, usage is what was seen."""
    bare = await made(call, form, asynchronous)
    with captured() as exporter:
        seen = await made(call, form, asynchronous)
        (span,) = [each for each in exporter.spans if "clew.attempts" in each.attributes]
        assert b"zqmark" not in exporter.otlp_bytes()
    assert seen == bare
    assert seen[1] == (0 if form is streaming_unread else 1)
    told = span.attributes
    if form is streaming_unread:
        assert "gen_ai.usage.input_tokens" not in told
        assert told["clew.usage.source"] == "absent"
    else:
        assert told["gen_ai.usage.input_tokens"] == 100
        assert told.get("gen_ai.usage.output_tokens") in (20, None)
        assert told["clew.usage.source"] == "reported"
    assert "error.type" not in told
