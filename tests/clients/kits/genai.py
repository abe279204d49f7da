"""google-genai, over httpx2 and over aiohttp."""

from __future__ import annotations

from typing import Any, ClassVar

import httpx2
from either_way import settle
from google import genai
from google.genai import types

from clew.facts import Usage
from clew.testing import ScriptedProvider
from kits.base import API_KEY, CERTIFICATES, MARK, TOOL_PARAMETERS, Kit


def _config(**more: Any) -> types.GenerateContentConfig:
    find = types.FunctionDeclaration(
        name="find", description=f"{MARK} tool", parameters_json_schema=TOOL_PARAMETERS
    )
    return types.GenerateContentConfig(
        system_instruction=f"{MARK} system",
        tools=[types.Tool(function_declarations=[find])],
        **more,
    )


def _contents() -> list[Any]:
    return [
        types.UserContent(f"{MARK} prompt"),
        types.ModelContent(types.Part.from_function_call(name="find", args={"place": MARK})),
        types.UserContent(
            types.Part.from_function_response(name="find", response={"result": f"{MARK} result"})
        ),
    ]


async def _chat(kit: Kit, client: Any) -> Any:
    chats = client.aio.chats if kit.asynchronous else client.chats
    chat = chats.create(model=kit.model, config=_config(), history=_contents())
    return await settle(chat.send_message(f"{MARK} more"))


async def _chat_stream(kit: Kit, client: Any) -> Any:
    chats = client.aio.chats if kit.asynchronous else client.chats
    chat = chats.create(model=kit.model, config=_config(), history=_contents())
    return await kit.gathered(await settle(chat.send_message_stream(f"{MARK} more")))


async def _request_options(kit: Kit, client: Any) -> Any:
    models = client.aio.models if kit.asynchronous else client.models
    config = _config()
    config.http_options = types.HttpOptions(headers={"x-mine": "1"})
    answer = await settle(
        models.generate_content(model=kit.model, contents=_contents(), config=config)
    )
    return answer, "server-timing" in map(str.lower, answer.sdk_http_response.headers)


class Genai(Kit):
    """`models.generate_content` of the Gemini API."""

    sdk, http = "google-genai", "httpx2"
    provider, api = "Google Gemini", "generateContent"
    model = "gemini-2.5-flash"
    operation = "generate_content"
    can = frozenset({"retries", "stream retries", "bounded retries", "stream errors"})
    plain_variants: ClassVar[Any] = {"chat session": _chat, "request options": _request_options}
    stream_variants: ClassVar[Any] = {"chat session": _chat_stream}
    usage = Usage(input_tokens=100, output_tokens=40, cache_read_tokens=30, reasoning_tokens=8)
    counted: ClassVar[Any] = {
        "input": 100,
        "output": 40,
        "cache_read.input": 30,
        "reasoning.output": 8,
    }
    finish = "stop"
    counts_early = True
    errors: ClassVar[Any] = {
        400: "INVALID_ARGUMENT",
        401: "UNAUTHENTICATED",
        404: "NOT_FOUND",
        429: "RESOURCE_EXHAUSTED",
        503: "UNAVAILABLE",
    }

    @property
    def name(self) -> str:
        return f"{self.sdk} {self.http}"

    def _transport(self, limits: httpx2.Limits) -> dict[str, Any]:
        options = {"limits": limits, "verify": CERTIFICATES, "trust_env": False}
        return {
            "client_args": options,
            # The SDK takes aiohttp, where it is installed, unless a transport is given.
            "async_client_args": {
                "transport": httpx2.AsyncHTTPTransport(limits=limits, verify=CERTIFICATES)
            },
        }

    def client(self, server: ScriptedProvider, *, timeout: float = 10, retries: int = 0) -> Any:
        retry = types.HttpRetryOptions(attempts=retries + 1, initial_delay=0.01, max_delay=0.02)
        options = types.HttpOptions(
            base_url=server.base_url,
            timeout=int(timeout * 1000),
            retry_options=retry if retries else None,
            **self._transport(httpx2.Limits(max_connections=1, max_keepalive_connections=1)),
        )
        return genai.Client(api_key=API_KEY, http_options=options)

    async def close(self, client: Any) -> None:
        await client.aio.aclose()
        client.close()

    async def ask(self, client: Any, **more: Any) -> Any:
        models = client.aio.models if self.asynchronous else client.models
        return await settle(
            models.generate_content(model=self.model, contents=_contents(), config=_config(**more))
        )

    async def stream(self, client: Any, **more: Any) -> Any:
        models = client.aio.models if self.asynchronous else client.models
        return await settle(
            models.generate_content_stream(
                model=self.model, contents=_contents(), config=_config(**more)
            )
        )


class GenaiOverAiohttp(Genai):
    """The same over aiohttp, which the SDK prefers where it is installed."""

    http = "aiohttp"
    both = (True,)

    def _transport(self, limits: httpx2.Limits) -> dict[str, Any]:
        import aiohttp

        connector = aiohttp.TCPConnector(limit=1)
        return {"aiohttp_client": aiohttp.ClientSession(connector=connector)}

    async def close(self, client: Any) -> None:
        await client._api_client._http_options.aiohttp_client.close()
        await super().close(client)
