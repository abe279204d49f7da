"""cohere, version 2 of its API."""

from __future__ import annotations

from typing import Any, ClassVar

import cohere
import httpx
from either_way import settle

from clew.facts import Usage
from clew.testing import ScriptedProvider
from kits.base import API_KEY, CERTIFICATES, MARK, POOL_SECONDS, TOOL_PARAMETERS, Kit, openai_tools


async def _raw(kit: Any, client: Any) -> Any:
    response = await settle(client.with_raw_response.chat(**kit.arguments()))
    return response.headers["x-trial-endpoint-call-remaining"], response.data


async def _raw_stream(kit: Any, client: Any) -> Any:
    async with kit.entered(client.with_raw_response.chat_stream(**kit.arguments())) as response:
        return await kit.gathered(response.data)


async def _json_object(kit: Any, client: Any) -> Any:
    wanted = {"type": "json_object", "schema": TOOL_PARAMETERS}
    return await settle(client.chat(response_format=wanted, **kit.arguments()))


class Cohere(Kit):
    """`chat` and `chat_stream` of `ClientV2`."""

    sdk, http = "cohere", "httpx"
    provider, api = "Cohere", "/v2/chat"
    model = "command-a-03-2025"
    names_model = False
    stream_grouped = False
    can = frozenset({"retries", "bounded retries", "lists"})
    plain_variants: ClassVar[Any] = {
        "raw response": _raw,
        "structured output": _json_object,
    }
    stream_variants: ClassVar[Any] = {"raw response": _raw_stream}
    usage = Usage(input_tokens=100, output_tokens=40, cache_read_tokens=30)
    counted: ClassVar[Any] = {"input": 100, "output": 40, "cache_read.input": 30}
    errors: ClassVar[Any] = dict.fromkeys((400, 401, 404, 429, 500), "")

    def __init__(self, *, asynchronous: bool) -> None:
        super().__init__(asynchronous=asynchronous)
        self._made: dict[int, Any] = {}

    def client(self, server: ScriptedProvider, *, timeout: float = 10, retries: int = 0) -> Any:
        made = (httpx.AsyncClient if self.asynchronous else httpx.Client)(
            limits=httpx.Limits(max_connections=1, max_keepalive_connections=1),
            timeout=httpx.Timeout(timeout, pool=POOL_SECONDS),
            verify=CERTIFICATES,
            trust_env=False,
        )
        client = (cohere.AsyncClientV2 if self.asynchronous else cohere.ClientV2)(
            API_KEY, base_url=server.base_url, httpx_client=made, max_retries=retries
        )
        self._made[id(client)] = made
        return client

    async def close(self, client: Any) -> None:
        made = self._made.pop(id(client))
        await settle(made.aclose() if self.asynchronous else made.close())

    def arguments(self) -> dict[str, Any]:
        """Return a request with content everywhere."""
        call = {"name": "find", "arguments": f'{{"place": "{MARK}"}}'}
        messages = [
            {"role": "system", "content": f"{MARK} system"},
            {"role": "user", "content": f"{MARK} prompt"},
            {
                "role": "assistant",
                "tool_plan": f"{MARK} plan",
                "tool_calls": [{"id": "find_1", "type": "function", "function": call}],
            },
            {"role": "tool", "tool_call_id": "find_1", "content": f"{MARK} result"},
        ]
        return {"model": self.model, "messages": messages, "tools": openai_tools()}

    async def ask(self, client: Any, **more: Any) -> Any:
        return await settle(client.chat(**self.arguments(), **more))

    async def stream(self, client: Any, **more: Any) -> Any:
        return client.chat_stream(**self.arguments(), **more)
