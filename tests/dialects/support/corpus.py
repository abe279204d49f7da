"""The recorded exchanges, and what the dialects say of them."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from corpus_folder import CORPUS

from clew.dialects import recognise
from clew.facts import RequestFacts, ResponseFacts
from clew.typing import Route


class Recorded(NamedTuple):
    """One exchange and what is expected of it."""

    name: str
    provider: str
    api: str
    request: dict[str, Any]
    response: dict[str, Any]
    expected: dict[str, Any]


def recorded() -> Iterator[Recorded]:
    """Return all exchanges, in order."""
    for path in sorted(CORPUS.glob("*/*.json")):
        content = json.loads(path.read_text())
        pairs = zip(content["exchanges"], content["expected_each"], strict=True)
        for position, (exchange, expected) in enumerate(pairs):
            yield Recorded(
                f"{content['id']}[{position}]",
                content["provider"],
                content["api"],
                exchange["request"],
                exchange["response"],
                expected,
            )


def route_of(exchange: Recorded) -> Route:
    """Recognise the exchange's request."""
    address = urlsplit(exchange.request["url"])
    route = recognise(exchange.request["method"], address.netloc, address.path)
    assert route is not None
    return route


def is_streamed(exchange: Recorded) -> bool:
    """Tell whether the answer came as a stream."""
    if exchange.response["status"] >= 400:
        return False
    return "body" not in exchange.response or exchange.api == "stream_generate_content"


def wire_bytes(exchange: Recorded) -> bytes:
    """Return the response body as it came."""
    response = exchange.response
    if "base64" in response:
        return base64.b64decode(response["base64"])
    if "text" in response:
        return response["text"].encode()
    return json.dumps(response["body"], ensure_ascii=False).encode()


def headers_of(exchange: Recorded) -> dict[str, str]:
    """Return the response's headers by lower-case name."""
    return {name.lower(): value for name, value in exchange.response["headers"].items()}


def streamed(route: Route, exchange: Recorded, pieces: list[bytes]) -> tuple[Any, ...]:
    """Read a stream in pieces; return the facts, the count of events and whether it started."""
    reader = route.dialect.stream(route, headers_of(exchange).get("content-type", ""))
    for piece in pieces:
        reader.feed(piece)
    return reader.result(), reader.chunks, reader.started


def read(exchange: Recorded) -> tuple[Route, RequestFacts, ResponseFacts]:
    """Read an exchange with its dialect."""
    route = route_of(exchange)
    request = route.dialect.request(json.dumps(exchange.request["body"]).encode(), route)
    body = wire_bytes(exchange)
    if is_streamed(exchange):
        response = streamed(route, exchange, [body])[0]
    else:
        status = exchange.response["status"]
        response = route.dialect.response(body, status, route, headers_of(exchange))
    return route, request, response


def actual_facts(exchange: Recorded) -> dict[str, Any]:
    """Return what the dialect says of an exchange."""
    route, request, response = read(exchange)
    raw = list(response.finish_reasons_raw)
    error = response.error
    return {
        "operation": request.operation or route.operation,
        "provider": route.provider,
        "request_model": request.model,
        "stream": request.stream,
        "response_model": response.model,
        "response_id": response.id,
        "finish_reasons_raw": raw,
        "finish_reasons": list(response.finish_reasons),
        "tool_calls": [(call.id, call.name) for call in response.tool_calls],
        "error": None if error is None else (error.type, error.code),
        "usage": response.usage,
        "complete": response.complete,
    }
