"""Addresses of providers, and their answers read as a dialect reads them."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from typing import Any

from clew.dialects import recognise
from clew.facts import ResponseFacts
from clew.typing import Route, StreamReader

CHAT = ("api.openai.com", "/v1/chat/completions")
RESPONSES = ("api.openai.com", "/v1/responses")
MESSAGES = ("api.anthropic.com", "/v1/messages")
GEMINI_STREAM = ("generativelanguage.googleapis.com", "/v1beta/models/m:streamGenerateContent")
INTERACTIONS = ("generativelanguage.googleapis.com", "/v1beta/interactions")
OLLAMA = ("localhost:11434", "/api/chat")
COHERE = ("api.cohere.com", "/v2/chat")


def route_of(address: tuple[str, str]) -> Route:
    """Recognise a POST to an address."""
    route = recognise("POST", *address)
    assert route is not None
    return route


def facts_of(
    address: tuple[str, str], body: Any, headers: dict[str, str] | None = None
) -> ResponseFacts:
    """Read a whole response."""
    route = route_of(address)
    return route.dialect.response(json.dumps(body).encode(), 200, route, headers)


def reader_of(address: tuple[str, str], content_type: str = "text/event-stream") -> StreamReader:
    """Return a reader for an address."""
    route = route_of(address)
    return route.dialect.stream(route, content_type)


def stream_of(
    address: tuple[str, str], pieces: list[bytes], content_type: str = "text/event-stream"
) -> StreamReader:
    """Read a stream."""
    reader = reader_of(address, content_type)
    for piece in pieces:
        reader.feed(piece)
    return reader


def sse(*events: dict[str, Any] | str) -> list[bytes]:
    """Write events as server-sent events, named where they have a type."""
    written: list[bytes] = []
    for event in events:
        name = f"event: {event['type']}\n" if isinstance(event, dict) and "type" in event else ""
        text = event if isinstance(event, str) else json.dumps(event, separators=(",", ":"))
        written.append(f"{name}data: {text}\n\n".encode())
    return written


def nameless(*events: Any) -> list[bytes]:
    """Write events as server-sent events without names."""
    return [b"data: " + json.dumps(event).encode() + b"\n\n" for event in events]


def chunk(delta: dict[str, Any] | None = None, **rest: Any) -> dict[str, Any]:
    """A chat completions chunk with one choice."""
    choice = {"index": 0, "delta": delta or {}, "finish_reason": rest.pop("finish", None)}
    return {"id": "c1", "model": "m-1", "choices": [choice], **rest}


def random_pieces(
    body: bytes, cut: random.Random, sizes: Sequence[int] = (1, 2, 3, 40, 150, 400)
) -> list[bytes]:
    """Cut a body at random places."""
    pieces: list[bytes] = []
    while body:
        size = cut.choice(sizes)
        pieces.append(body[:size])
        body = body[size:]
    return pieces
