"""mistralai and openrouter, whose clients come from one generator."""

from __future__ import annotations

import importlib
from typing import Any, ClassVar

import httpx
import httpx2
import pydantic
from either_way import settle

from clew.facts import Usage
from clew.testing import MistralChatCompletions, ScriptedError, ScriptedProvider
from clew.testing.openai_format import OpenAIChatCompletions
from kits.base import API_KEY, CERTIFICATES, MARK, Kit, openai_messages, openai_tools


class Answer(pydantic.BaseModel):
    """A format that an answer is asked for in."""

    text: str


class Speakeasy(Kit):
    """What both share."""

    library: ClassVar[Any]
    utilities: ClassVar[str]
    can = frozenset({"with", "retries", "stream retries", "eager", "lists"})

    def __init__(self, *, asynchronous: bool) -> None:
        super().__init__(asynchronous=asynchronous)
        self._made: dict[int, Any] = {}

    def make(self, **options: Any) -> Any:
        """Return the SDK's client."""
        raise NotImplementedError

    def client(self, server: ScriptedProvider, *, timeout: float = 10, retries: int = 0) -> Any:
        library = self.library
        http = {
            "limits": library.Limits(max_connections=1, max_keepalive_connections=1),
            "verify": CERTIFICATES,
            "trust_env": False,
        }
        name = "AsyncClient" if self.asynchronous else "Client"
        chosen = "async_client" if self.asynchronous else "client"
        made = getattr(library, name)(**http)
        utilities = importlib.import_module(self.utilities)
        backoff = utilities.BackoffStrategy(10, 20, 1.1, 5000)
        strategy = "backoff" if retries else "none"
        retry = utilities.RetryConfig(strategy, backoff, bool(retries))
        client = self.make(
            api_key=API_KEY,
            server_url=server.base_url,
            retry_config=retry,
            timeout_ms=int(timeout * 1000),
            **{chosen: made},
        )
        self._made[id(client)] = made
        return client

    async def close(self, client: Any) -> None:
        made = self._made.pop(id(client))
        await settle(made.aclose() if self.asynchronous else made.close())

    def method(self, owner: Any, name: str) -> Any:
        """Return a method or its asynchronous twin."""
        return getattr(owner, f"{name}_async" if self.asynchronous else name)


async def _parse(kit: Any, client: Any) -> Any:
    call = kit.method(client.chat, "parse")
    return await settle(call(response_format=Answer, **kit.arguments()))


async def _parse_stream(kit: Any, client: Any) -> Any:
    call = kit.method(client.chat, "parse_stream")
    return await kit.gathered(await settle(call(response_format=Answer, **kit.arguments())))


class Mistral(Speakeasy):
    """`chat.complete` and `chat.stream` of mistralai."""

    sdk, http, library = "mistralai", "httpx2", httpx2
    provider, api = "Mistral", "chat completions"
    utilities = "mistralai.client.utils"
    formats = (MistralChatCompletions(),)
    model = "mistral-small-latest"
    plain_variants: ClassVar[Any] = {"parse": _parse}
    stream_variants: ClassVar[Any] = {"parse": _parse_stream}
    errors: ClassVar[Any] = {
        400: "invalid_request_invalid_args",
        401: "unauthorized",
        404: "invalid_model",
        429: "service_tier_capacity_exceeded",
        500: "internal_server_error",
    }

    def make(self, **options: Any) -> Any:
        from mistralai.client import Mistral as Client

        return Client(**options)

    def arguments(self) -> dict[str, Any]:
        """Return a request with content everywhere."""
        return {"model": self.model, "messages": openai_messages(), "tools": openai_tools()}

    async def ask(self, client: Any, **more: Any) -> Any:
        return await settle(self.method(client.chat, "complete")(**self.arguments(), **more))

    async def stream(self, client: Any, **more: Any) -> Any:
        return await settle(self.method(client.chat, "stream")(**self.arguments(), **more))


async def _json_schema(kit: Any, client: Any) -> Any:
    schema = {"name": "answer", "schema": {"type": "object", "description": MARK}}
    wanted = {"type": "json_schema", "json_schema": schema}
    return await settle(kit.method(client.chat, "send")(response_format=wanted, **kit.arguments()))


class OpenRouterFormat(OpenAIChatCompletions):
    """https://openrouter.ai/docs/api/reference/errors-and-debugging."""

    def error_body(self, error: ScriptedError, status: int, number: int) -> dict[str, Any]:
        return {"error": {"code": status, "message": error.message}, "user_id": "user_1"}


class OpenRouter(Speakeasy):
    """`chat.send` of openrouter."""

    sdk, http, library = "openrouter", "httpx", httpx
    provider, api = "OpenRouter", "chat completions"
    utilities = "openrouter.utils"
    model = "mistralai/mistral-small"
    plain_variants: ClassVar[Any] = {"structured output": _json_schema}
    usage = Usage(input_tokens=100, output_tokens=40, cache_read_tokens=30, reasoning_tokens=8)
    counted: ClassVar[Any] = {
        "input": 100,
        "output": 40,
        "cache_read.input": 30,
        "reasoning.output": 8,
    }
    formats = (OpenRouterFormat(),)
    retried = 503
    # A refused stream keeps its connection, with and without Clew, so that the next attempt finds
    # none in a pool of one.
    can = Speakeasy.can - {"stream retries"}
    errors: ClassVar[Any] = dict.fromkeys((400, 401, 404, 429, 500), "")

    def make(self, **options: Any) -> Any:
        from openrouter import OpenRouter as Client

        options["server_url"] += "/api/v1"
        return Client(**options)

    def arguments(self) -> dict[str, Any]:
        """Return a request with content everywhere."""
        return {"model": self.model, "messages": openai_messages(), "tools": openai_tools()}

    async def ask(self, client: Any, **more: Any) -> Any:
        return await settle(self.method(client.chat, "send")(**self.arguments(), **more))

    async def stream(self, client: Any, **more: Any) -> Any:
        call = self.method(client.chat, "send")
        return await settle(
            call(stream=True, stream_options={"include_usage": True}, **self.arguments(), **more)
        )
