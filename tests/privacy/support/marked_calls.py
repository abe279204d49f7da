"""Model calls with marker words, and the ways in which they end."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
from typing import Any

import httpx
from marks import mark
from surroundings import Answers
from wire_format import Format

from clew import semconv

HEADERS = {
    "authorization": f"Bearer {mark('key')}",
    "x-title": mark("header"),
    "user-agent": mark("agent"),
    "baggage": f"user={mark('baggage')}",
    "tracestate": f"v={mark('state')}",
}
"""Headers of a request, with a marker in each."""


def url(server: Answers, path: str) -> str:
    """Return an address with markers in its credentials and its query."""
    host, port = server.address
    return f"http://{mark('user')}:{mark('password')}@{host}:{port}{path}?key={mark('query')}"


def request_of(one: Format, *, stream: bool) -> dict[str, Any]:
    """Return the body of a request, which asks for a stream where the path does not."""
    wanted = dict(one.request)
    if stream and one.stream_path is None:
        wanted["stream"] = True
    return wanted


def answer_with(server: Answers, one: Format, ending: str) -> None:
    """Let a server answer so that a call can have this ending."""
    server.hangs_after = None
    server.status, server.media_type = 200, "application/json"
    if ending == "error":
        server.status, server.pieces = 400, [json.dumps(one.error()).encode()]
    elif ending == "return" or not one.events:
        server.pieces = [json.dumps(one.answer).encode()]
    else:
        server.pieces, server.media_type = one.events, one.stream_type
        if ending in ("cancelled", "closed", "abandoned"):
            server.hangs_after = max(1, len(one.events) - 1)


def call(client: httpx.Client, server: Answers, one: Format, ending: str) -> None:
    """Make one call and let it end in one way."""
    answer_with(server, one, ending)
    stream = bool(one.events) and ending not in ("return", "error")
    path = (one.stream_path or one.path) if stream else one.path
    request = client.build_request(
        "POST", url(server, path), json=request_of(one, stream=stream), headers=HEADERS
    )
    response = client.send(request, stream=stream)
    if ending == "complete" or not stream:
        response.read()
        return
    pieces = response.iter_bytes()
    next(pieces)
    if ending == "abandoned":
        del pieces, response
        gc.collect()
        return
    response.close()


async def cancel(server: Answers, one: Format) -> None:
    """Make one call and cancel it while it streams, or before the answer has come."""
    answer_with(server, one, "cancelled")
    path = one.stream_path or one.path
    begun = asyncio.Event()

    async def work() -> None:
        async with httpx.AsyncClient() as client:
            body = request_of(one, stream=True)
            address = url(server, path)
            async with client.stream("POST", address, json=body, headers=HEADERS) as response:
                async for _ in response.aiter_bytes():
                    begun.set()

    task = asyncio.create_task(work())
    await asyncio.wait_for(begun.wait(), 10)
    task.cancel(mark("cancel-message"))
    with contextlib.suppress(asyncio.CancelledError):
        await task


def content_of(spans: Any) -> list[dict[str, Any]]:
    """Return the content of each model call, read as the JSON that it must be."""
    found: list[dict[str, Any]] = []
    for span in spans:
        held = {key: span.attributes[key] for key in semconv.CONTENT if key in span.attributes}
        if held:
            found.append({key: json.loads(value) for key, value in held.items()})
    return found
