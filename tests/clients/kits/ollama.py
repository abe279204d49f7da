"""ollama."""

from __future__ import annotations

from typing import Any, ClassVar

import httpx
import ollama
from either_way import settle

from clew.testing import ScriptedProvider
from kits.base import API_KEY, CERTIFICATES, MARK, POOL_SECONDS, TOOL_PARAMETERS, Kit, openai_tools


async def _format(kit: Any, client: Any) -> Any:
    return await settle(client.chat(format=TOOL_PARAMETERS, **kit.arguments()))


async def _callable_tool(kit: Any, client: Any) -> Any:
    def find(place: str) -> str:
        return place

    arguments = kit.arguments()
    arguments["tools"] = [find]
    return await settle(client.chat(**arguments))


class Ollama(Kit):
    """`chat` of ollama."""

    sdk, http = "ollama", "httpx"
    provider, api = "Ollama", "/api/chat"
    model = "llama3.2"
    grouped = stream_grouped = False
    finish = "stop"
    plain_variants: ClassVar[Any] = {
        "structured output": _format,
        "functions as tools": _callable_tool,
    }
    errors: ClassVar[Any] = dict.fromkeys((400, 401, 404, 429, 500), "")
    can = frozenset({"stream errors", "lists"})

    def client(self, server: ScriptedProvider, *, timeout: float = 10, retries: int = 0) -> Any:
        return (ollama.AsyncClient if self.asynchronous else ollama.Client)(
            host=server.base_url,
            timeout=httpx.Timeout(timeout, pool=POOL_SECONDS),
            limits=httpx.Limits(max_connections=1, max_keepalive_connections=1),
            verify=CERTIFICATES,
            trust_env=False,
            headers={"authorization": f"Bearer {API_KEY}"},
        )

    async def close(self, client: Any) -> None:
        inner = client._client
        await settle(inner.aclose() if self.asynchronous else inner.close())

    def arguments(self) -> dict[str, Any]:
        """Return a request with content everywhere."""
        call = {"function": {"name": "find", "arguments": {"place": MARK}}}
        messages = [
            {"role": "system", "content": f"{MARK} system"},
            {"role": "user", "content": f"{MARK} prompt"},
            {"role": "assistant", "content": f"{MARK} said", "tool_calls": [call]},
            {"role": "tool", "tool_name": "find", "content": f"{MARK} result"},
        ]
        return {"model": self.model, "messages": messages, "tools": openai_tools()}

    async def ask(self, client: Any, **more: Any) -> Any:
        return await settle(client.chat(**self.arguments(), **more))

    async def stream(self, client: Any, **more: Any) -> Any:
        return await settle(client.chat(stream=True, **self.arguments(), **more))
