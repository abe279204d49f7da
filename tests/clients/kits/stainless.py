"""The openai and anthropic clients, which share a generator and so most of their shape."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import anthropic
import httpx2
import openai
from either_way import settle

from clew.facts import Usage
from clew.testing import Reply, ScriptedProvider, ScriptedToolCall
from clew.testing.provider import FORMATS
from kits.base import API_KEY, CERTIFICATES, MARK, TOOL_PARAMETERS, Twin


@dataclass(frozen=True)
class Stainless(Twin):
    """One SDK, sync or async, behind names that both SDKs share here."""

    provider: str
    asynchronous: bool
    formats = FORMATS
    volatile = frozenset[str]()
    marks = ()
    operation = "chat"
    can = frozenset({"with", "retries", "stream retries", "bounded retries", "eager"})

    @property
    def sdk_name(self) -> str:
        """The package's name."""
        return self.provider

    @property
    def errors(self) -> dict[int, str]:
        """What the provider calls these statuses in its error bodies."""
        if self.provider == "openai":
            return {
                400: "invalid_request_error",
                401: "invalid_request_error",
                404: "invalid_request_error",
                429: "requests",
                500: "server_error",
            }
        return {
            400: "invalid_request_error",
            401: "authentication_error",
            404: "not_found_error",
            429: "rate_limit_error",
            500: "api_error",
            529: "overloaded_error",
        }

    @property
    def words(self) -> dict[str, str]:
        """The convention's words for the provider's reasons to finish."""
        if self.provider == "openai":
            return {"length": "length", "content_filter": "content_filter", "a_new_one": "_OTHER"}
        return {"max_tokens": "length", "refusal": "content_filter", "stop_sequence": "stop"}

    def __str__(self) -> str:
        return f"{self.provider}-{'async' if self.asynchronous else 'sync'}"

    @property
    def sdk(self) -> Any:
        return openai if self.provider == "openai" else anthropic

    @property
    def model(self) -> str:
        return "gpt-5-mini" if self.provider == "openai" else "claude-haiku-4-5"

    @property
    def reply(self) -> Reply:
        """An answer with text, a tool call, and every count that the provider reports."""
        return Reply(
            text=f"{MARK} completion, six words in all",
            tool_calls=(ScriptedToolCall(name="find", arguments={"place": f"{MARK} argument"}),),
            usage=Usage(
                input_tokens=100,
                output_tokens=40,
                cache_read_tokens=30,
                cache_write_tokens=None if self.provider == "openai" else 20,
                reasoning_tokens=8 if self.provider == "openai" else None,
            ),
            model=f"{self.model}-2026",
        )

    @property
    def response_model(self) -> dict[str, str]:
        """What a round says about the model that answered."""
        return {"gen_ai.response.model": f"{self.model}-2026"}

    @property
    def counts_early(self) -> bool:
        """Whether a stream reports the input's tokens at its beginning."""
        return self.provider == "anthropic"

    @property
    def http_error(self) -> str:
        """The tag with which this SDK's transport errors are exported."""
        return "httpx2"

    def client(self, server: ScriptedProvider, **options: Any) -> Any:
        """Return a client that can hold one connection, and waits one second for it."""
        kind = ("Async" if self.asynchronous else "") + self.sdk.__name__.capitalize()
        if self.provider == "openai":
            kind = kind.replace("Openai", "OpenAI")
        prefix = "DefaultAsync" if self.asynchronous else "Default"
        http = getattr(self.sdk, f"{prefix}HttpxClient")(
            limits=httpx2.Limits(max_connections=1, max_keepalive_connections=1),
            verify=CERTIFICATES,
            trust_env=False,
        )
        base_url = server.openai_base_url if self.provider == "openai" else server.base_url
        options = {"timeout": httpx2.Timeout(10, pool=1), "max_retries": 0} | options
        return getattr(self.sdk, kind)(
            base_url=base_url, api_key=API_KEY, http_client=http, **options
        )

    def resource(self, client: Any) -> Any:
        """Return what has `create`, `stream`, `parse`, `with_raw_response`, ..."""
        return client.chat.completions if self.provider == "openai" else client.messages

    def arguments(self, **more: Any) -> dict[str, Any]:
        """Return a request with content everywhere: prompt, history, tool, tool result."""
        if self.provider == "openai":
            call = {"name": "find", "arguments": f'{{"place": "{MARK}"}}'}
            messages: list[dict[str, Any]] = [
                {"role": "system", "content": f"{MARK} system"},
                {"role": "user", "content": f"{MARK} prompt"},
                {
                    "role": "assistant",
                    "tool_calls": [{"id": "call_1", "type": "function", "function": call}],
                },
                {"role": "tool", "tool_call_id": "call_1", "content": f"{MARK} result"},
            ]
            function = {"name": "find", "parameters": TOOL_PARAMETERS}
            tools: list[dict[str, Any]] = [{"type": "function", "function": function}]
            return {"model": self.model, "messages": messages, "tools": tools, **more}
        asked = {"type": "tool_use", "id": "toolu_1", "name": "find", "input": {"place": MARK}}
        result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": f"{MARK} result"}
        return {
            "model": self.model,
            "max_tokens": 64,
            "system": f"{MARK} system",
            "messages": [
                {"role": "user", "content": f"{MARK} prompt"},
                {"role": "assistant", "content": [asked]},
                {"role": "user", "content": [result]},
            ],
            "tools": [{"name": "find", "input_schema": TOOL_PARAMETERS}],
            **more,
        }

    def streaming(self, **more: Any) -> dict[str, Any]:
        """Return a request for a streamed answer, with usage in it."""
        wanted: dict[str, Any] = {"stream": True}
        if self.provider == "openai":
            wanted["stream_options"] = {"include_usage": True}
        return self.arguments(**wanted, **more)

    async def ask(self, client: Any, **more: Any) -> Any:
        """Make a plain call."""
        return await settle(self.resource(client).create(**self.arguments(**more)))

    async def stream(self, client: Any, **more: Any) -> Any:
        """Start a streamed call."""
        return await settle(self.resource(client).create(**self.streaming(**more)))

    async def close_stream(self, stream: Any) -> None:
        """Close a stream."""
        await settle(stream.close())

    def text(self, result: Any) -> str:
        """Return the text of a plain answer."""
        if self.provider == "openai":
            return result.choices[0].message.content
        return next(block.text for block in result.content if block.type == "text")

    async def close(self, client: Any) -> None:
        """Close a client."""
        await settle(client.close())


STAINLESS = [
    Stainless(provider, asynchronous=asynchronous)
    for provider in ("openai", "anthropic")
    for asynchronous in (False, True)
]
