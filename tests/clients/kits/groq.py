"""groq."""

from __future__ import annotations

from typing import Any, ClassVar

import groq
import httpx
from either_way import settle

from clew.facts import Usage
from clew.testing import ScriptedProvider
from kits.base import API_KEY, CERTIFICATES, MARK, POOL_SECONDS, Kit, openai_messages, openai_tools


async def _raw(kit: Any, client: Any) -> Any:
    raw = client.chat.completions.with_raw_response
    response = await settle(raw.create(**kit.arguments()))
    parsed = await settle(response.parse())
    return response.status_code, response.http_response.content, parsed


async def _raw_stream(kit: Any, client: Any) -> Any:
    raw = client.chat.completions.with_raw_response
    response = await settle(raw.create(stream=True, **kit.arguments()))
    return await kit.gathered(await settle(response.parse()))


async def _streaming_response(kit: Any, client: Any) -> Any:
    manager = client.chat.completions.with_streaming_response.create(**kit.arguments())
    async with kit.entered(manager) as response:
        return b"".join([piece async for piece in kit.chunks(response.iter_bytes())])


async def _json_schema(kit: Any, client: Any) -> Any:
    schema = {"name": "answer", "schema": {"type": "object", "description": MARK}}
    wanted = {"type": "json_schema", "json_schema": schema}
    return await settle(client.chat.completions.create(response_format=wanted, **kit.arguments()))


class Groq(Kit):
    """`chat.completions.create` of groq."""

    sdk, http = "groq", "httpx"
    provider, api = "Groq", "chat completions"
    model = "llama-3.3-70b-versatile"
    can = frozenset(
        {"with", "retries", "stream retries", "bounded retries", "eager", "stream errors", "lists"}
    )
    plain_variants: ClassVar[Any] = {
        "raw response": _raw,
        "streaming response": _streaming_response,
        "structured output": _json_schema,
    }
    stream_variants: ClassVar[Any] = {"raw response": _raw_stream}
    usage = Usage(input_tokens=100, output_tokens=40, cache_read_tokens=30, reasoning_tokens=8)
    counted: ClassVar[Any] = {
        "input": 100,
        "output": 40,
        "cache_read.input": 30,
        "reasoning.output": 8,
    }
    errors: ClassVar[Any] = {
        400: "invalid_request_error",
        401: "invalid_request_error",
        404: "invalid_request_error",
        429: "requests",
        500: "server_error",
    }

    def client(self, server: ScriptedProvider, *, timeout: float = 10, retries: int = 0) -> Any:
        prefix = "DefaultAsync" if self.asynchronous else "Default"
        http = getattr(groq, f"{prefix}HttpxClient")(
            limits=httpx.Limits(max_connections=1, max_keepalive_connections=1),
            verify=CERTIFICATES,
            trust_env=False,
        )
        return (groq.AsyncGroq if self.asynchronous else groq.Groq)(
            api_key=API_KEY,
            base_url=server.base_url,
            http_client=http,
            timeout=httpx.Timeout(timeout, pool=POOL_SECONDS),
            max_retries=retries,
        )

    def arguments(self) -> dict[str, Any]:
        """Return a request with content everywhere."""
        return {
            "model": self.model,
            "messages": openai_messages(),
            "tools": openai_tools(),
            "extra_body": {"stream_options": {"include_usage": True}},
        }

    async def ask(self, client: Any, **more: Any) -> Any:
        return await settle(client.chat.completions.create(**self.arguments(), **more))

    async def stream(self, client: Any, **more: Any) -> Any:
        return await settle(client.chat.completions.create(stream=True, **self.arguments(), **more))
