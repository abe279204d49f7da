"""What a kit is: one SDK, sync or async, behind names that all SDKs share in these tests."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, ClassVar

import httpx2
import pytest
from either_way import settle

from clew.facts import Usage
from clew.testing import Reply, ScriptedProvider, ScriptedToolCall, WireFormat
from clew.testing.provider import FORMATS

MARK = "zqmark"
"""Stands in every prompt, completion, tool argument, error text and foreign attribute."""
API_KEY = f"{MARK}-api-key"
"""What every client is given to sign in with."""
TOOL_PARAMETERS = {
    "type": "object",
    "properties": {"place": {"type": "string", "description": f"{MARK} description"}},
}
CERTIFICATES = httpx2.create_ssl_context()
"""Loaded once; nothing here is encrypted."""
POOL_SECONDS = 0.5
"""How long a client waits for its one connection, where it can be told."""


Variant = Callable[["Kit", Any], Awaitable[Any]]
"""A further way to make a call: what it is given is the kit and a client."""


class Gone:
    """A server that is not there, under an address with credentials in it if it may have them."""

    def __init__(self, port: int, *, signed_in: bool = True) -> None:
        credentials = f"{MARK}-user:{MARK}-password@" if signed_in else ""
        self.base_url = f"http://{credentials}127.0.0.1:{port}"
        self.openai_base_url = f"{self.base_url}/v1"


class Twin:
    """What is sync or async, and read accordingly."""

    asynchronous: bool

    async def chunks(self, stream: Any) -> AsyncIterator[Any]:
        """Give the chunks of a stream, whichever way it is read."""
        if self.asynchronous:
            async for chunk in stream:
                yield chunk
        else:
            for chunk in stream:
                yield chunk

    @asynccontextmanager
    async def entered(self, manager: Any) -> AsyncIterator[Any]:
        """Enter an SDK object that is a context manager of either kind."""
        if self.asynchronous:
            async with manager as entered:
                yield entered
        else:
            with manager as entered:
                yield entered

    async def gathered(self, stream: Any) -> list[Any]:
        """Read a stream to its end."""
        return [chunk async for chunk in self.chunks(stream)]


class Kit(Twin):
    """One SDK over one HTTP client library."""

    sdk: ClassVar[str]
    """The package's name."""
    http: ClassVar[str]
    """The HTTP client library below it."""
    provider: ClassVar[str]
    api: ClassVar[str]
    both: ClassVar[tuple[bool, ...]] = (False, True)
    """Whether there is a blocking client (False), and an asynchronous one (True)."""
    can: ClassVar[frozenset[str]] = frozenset()
    """What the SDK has: `with` (streams are context managers), `retries`, `stream retries`,
    `bounded retries`, `eager` (a stream is requested before it is read), `stream errors`, `lists`
    (messages are a list that the caller keeps)."""
    plain_variants: ClassVar[dict[str, Variant]] = {}
    stream_variants: ClassVar[dict[str, Variant]] = {}
    formats: ClassVar[tuple[WireFormat, ...]] = FORMATS
    volatile: ClassVar[frozenset[str]] = frozenset()
    """Request headers, in lower case, that differ from call to call."""
    grouped: ClassVar[bool] = True
    """Whether all attempts of a call are known to be one."""
    stream_grouped: ClassVar[bool] = True

    model: ClassVar[str]
    operation: ClassVar[str] = "chat"
    usage: ClassVar[Usage] = Usage(input_tokens=100, output_tokens=40)
    """What the provider reports, as far as its format can tell."""
    counted: ClassVar[dict[str, int]] = {"input": 100, "output": 40}
    finish: ClassVar[str] = "tool_call"
    names_model: ClassVar[bool] = True
    """Whether answers name the model."""
    counts_early: ClassVar[bool] = False
    """Whether a stream reports the input's tokens at its beginning."""
    errors: ClassVar[dict[int, str]]
    """How the round names the provider's errors, by status."""
    retried: ClassVar[int] = 429
    """A status after which the SDK tries again."""

    def __init__(self, *, asynchronous: bool) -> None:
        self.asynchronous = asynchronous

    def __str__(self) -> str:
        kind = "async" if self.asynchronous else "sync"
        return f"{self.name}-{kind}".replace(" ", "-")

    @property
    def name(self) -> str:
        """What tells this kit from the others."""
        return self.sdk

    @property
    def marks(self) -> tuple[pytest.MarkDecorator, ...]:
        """Marks of every test with this kit."""
        return ()

    @property
    def takes_credentials(self) -> bool:
        """Whether an address may have credentials in it."""
        return True

    @property
    def notices_cuts(self) -> bool:
        """Whether the SDK raises for a plain body that is shorter than it should be."""
        return True

    @property
    def reply(self) -> Reply:
        """An answer with text, a tool call, and every count that the provider reports."""
        return Reply(
            text=f"{MARK} completion, six words in all",
            tool_calls=(ScriptedToolCall(name="find", arguments={"place": f"{MARK} argument"}),),
            usage=self.usage,
            model=f"{self.model}-2026",
        )

    @property
    def response_model(self) -> dict[str, str]:
        """What a round says about the model that answered."""
        return {"gen_ai.response.model": f"{self.model}-2026"} if self.names_model else {}

    def client(self, server: ScriptedProvider, *, timeout: float = 10, retries: int = 0) -> Any:
        """Return a client (or what gives one when awaited) that can hold one connection."""
        raise NotImplementedError

    async def close(self, client: Any) -> None:
        """Close a client and what was made for it."""
        await settle(client.close())

    async def ask(self, client: Any, **more: Any) -> Any:
        """Make a plain call with content everywhere: prompt, history, tool, tool result.

        `more` are further arguments, in the SDK's words.
        """
        raise NotImplementedError

    async def stream(self, client: Any, **more: Any) -> Any:
        """Start the same call, streamed; return what its pieces are read from."""
        raise NotImplementedError

    async def close_stream(self, stream: Any) -> None:
        """Close a stream."""
        close = getattr(stream, "aclose", None) or stream.close
        await settle(close())


def openai_messages() -> list[dict[str, Any]]:
    """Return a conversation in OpenAI's shape, with content everywhere."""
    call = {"name": "find", "arguments": f'{{"place": "{MARK}"}}'}
    return [
        {"role": "system", "content": f"{MARK} system"},
        {"role": "user", "content": f"{MARK} prompt"},
        {
            "role": "assistant",
            "content": f"{MARK} said",
            "tool_calls": [{"id": "callabc01", "type": "function", "function": call}],
        },
        {"role": "tool", "tool_call_id": "callabc01", "content": f"{MARK} result"},
    ]


def openai_tools() -> list[dict[str, Any]]:
    """Return a tool in OpenAI's shape."""
    function = {"name": "find", "description": f"{MARK} tool", "parameters": TOOL_PARAMETERS}
    return [{"type": "function", "function": function}]
