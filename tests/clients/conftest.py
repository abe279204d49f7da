"""What the contract tests share: both SDKs, sync and async, each call made without and with Clew.

`compare` runs a scenario twice against equal scripted providers, once as if Clew were not there, and
checks what must hold for every call: the caller gets equal objects and exceptions, the requests are
equal, the connection is given back as without Clew, the current span does not move, exactly one
round is exported, and no content with it.
"""

from __future__ import annotations

import asyncio
import gc
import inspect
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import anthropic
import httpx2
import openai
import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import NonRecordingSpan, SpanContext, StatusCode, TraceFlags

from clew.facts import Usage
from clew.testing import (
    CaptureExporter,
    ReceivedRequest,
    Reply,
    ScriptedProvider,
    ScriptedToolCall,
    captured,
)

MARK = "zqmark"
"""Stands in every prompt, completion, tool argument, error text and foreign attribute."""
TRACE_HEADERS = {"traceparent", "tracestate", "baggage"}

TOOL_PARAMETERS = {
    "type": "object",
    "properties": {"place": {"type": "string", "description": f"{MARK} description"}},
}
CERTIFICATES = httpx2.create_ssl_context()
"""Loaded once; nothing here is encrypted."""
AROUND = SpanContext(0xA1, 0xB2, is_remote=False, trace_flags=TraceFlags(1))


@dataclass(frozen=True)
class Kit:
    """One SDK, sync or async, behind names that both SDKs share here."""

    provider: str
    asynchronous: bool

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
            base_url=base_url, api_key="key", http_client=http, **options
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

    def text(self, result: Any) -> str:
        """Return the text of a plain answer."""
        if self.provider == "openai":
            return result.choices[0].message.content
        return next(block.text for block in result.content if block.type == "text")


async def settle(value: Any) -> Any:
    """Await what is awaitable."""
    return await value if inspect.isawaitable(value) else value


@dataclass
class Session:
    """One scenario's surroundings."""

    kit: Kit
    client: Any
    server: ScriptedProvider
    looks: list[int] = field(default_factory=list)

    def look(self) -> None:
        """Note which span is current."""
        self.looks.append(trace.get_current_span().get_span_context().span_id)

    async def read(self, stream: Any, limit: int | None = None) -> list[Any]:
        """Read a stream in the plain way, looking at the current span between chunks."""
        read: list[Any] = []
        if self.kit.asynchronous:
            async for chunk in stream:
                self.look()
                read.append(chunk)
                if len(read) == limit:
                    break
        else:
            for chunk in stream:
                self.look()
                read.append(chunk)
                if len(read) == limit:
                    break
        return read


Scenario = Callable[[Session], Awaitable[Any]]


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What one making of a scenario showed."""

    value: Any
    error: BaseException | None
    requests: list[tuple[Any, ...]]
    released: bool
    looks: set[int]
    spans: tuple[ReadableSpan, ...]
    otlp: bytes


@dataclass(frozen=True, kw_only=True)
class Compared:
    """A scenario that was the same for its caller with and without Clew."""

    value: Any
    error: BaseException | None
    requests: list[tuple[Any, ...]]
    released: bool
    round: ReadableSpan
    spans: tuple[ReadableSpan, ...]

    def told(self, *keys: str) -> dict[str, Any]:
        """Return these attributes of the round; those that it does not have are left out."""
        attributes = self.round.attributes or {}
        return {key: attributes[key] for key in keys if key in attributes}

    @property
    def failed(self) -> bool:
        return self.round.status.status_code is StatusCode.ERROR

    @property
    def usage(self) -> dict[str, int]:
        """The counts on the round, by the last parts of their names."""
        attributes = self.round.attributes or {}
        prefix = "gen_ai.usage."
        return {
            key.removeprefix(prefix).removesuffix("_tokens"): value
            for key, value in attributes.items()
            if key.startswith(prefix) and isinstance(value, int)
        }


def rounds_of(spans: Iterable[ReadableSpan]) -> list[ReadableSpan]:
    """Return the rounds among spans."""
    return [span for span in spans if span.attributes and "clew.attempts" in span.attributes]


def normal(value: Any) -> Any:
    """Return a result in a form in which two equal ones are equal."""
    if hasattr(value, "model_dump"):
        return type(value).__name__, value.model_dump(mode="json", warnings=False)
    if isinstance(value, (list, tuple)):
        return [normal(each) for each in value]
    return value


def described(error: BaseException | None) -> Any:
    """Return what a caller can tell of an exception and of its causes."""
    if error is None:
        return None
    names = ("status_code", "body", "request_id", "code", "type")
    told = [repr(getattr(error, name, None)) for name in names]
    kind = f"{type(error).__module__}.{type(error).__qualname__}"
    # Two servers have two ports, and two objects two addresses.
    text = re.sub(r"127\.0\.0\.1:\d+|\b(0x)?[0-9a-f]{8,16}\b", "*", str(error))
    return kind, text, told, described(error.__cause__), described(error.__context__)


def on_the_wire(request: ReceivedRequest) -> tuple[Any, ...]:
    """Return a request as it was sent, without what may differ between two servers."""
    headers = [pair for pair in request.headers if pair[0].lower() not in {*TRACE_HEADERS, "host"}]
    return request.method, request.path, headers, request.body


@pytest.fixture(scope="package", autouse=True)
def _thaw() -> Iterator[None]:
    """Undo the freezing of `make`."""
    yield
    gc.unfreeze()


async def let_go() -> None:
    """Let dropped objects be collected, async generators too."""
    gc.collect()
    for _ in range(3):
        await asyncio.sleep(0)
    gc.collect()
    await asyncio.sleep(0.01)


async def make(
    kit: Kit,
    script: Iterable[Reply],
    scenario: Scenario,
    exporter: CaptureExporter | None,
    options: dict[str, Any],
) -> Seen:
    """Make a scenario once."""
    value, error = None, None
    # What lives now is left out of the collections to come: they would take most of the time.
    gc.freeze()
    with ScriptedProvider(script) as server:
        session = Session(kit, kit.client(server, **options), server)
        with trace.use_span(NonRecordingSpan(AROUND)):
            session.look()
            try:
                value = normal(await scenario(session))
            except BaseException as raised:
                if isinstance(raised, (AssertionError, KeyboardInterrupt)):
                    raise
                error = raised
            session.look()
        requests = [on_the_wire(request) for request in server.requests]
        # Traces of the exception hold the frames, and so the stream.
        for each in (error, error and error.__cause__, error and error.__context__):
            if each is not None:
                each.__traceback__ = None
        await let_go()
        spans = exporter.spans if exporter is not None else ()
        otlp = exporter.otlp_bytes() if exporter is not None else b""
        released = await is_released(session)
        await settle(session.client.close())
    return Seen(
        value=value,
        error=error,
        requests=requests,
        released=released,
        looks=set(session.looks),
        spans=spans,
        otlp=otlp,
    )


async def is_released(session: Session) -> bool:
    """Tell whether the client's one connection can be used again."""
    session.server.replace(Reply(text="after"))
    try:
        await session.kit.ask(session.client)
    except session.kit.sdk.APITimeoutError:
        return False
    return True


@pytest.fixture(
    params=[
        Kit("openai", asynchronous=False),
        Kit("openai", asynchronous=True),
        Kit("anthropic", asynchronous=False),
        Kit("anthropic", asynchronous=True),
    ],
    ids=str,
)
def kit(request: pytest.FixtureRequest) -> Kit:
    """Each SDK, sync and async."""
    return request.param


Compare = Callable[..., Awaitable[Compared]]


@pytest.fixture
def compare(kit: Kit) -> Compare:
    """Return a function that makes a scenario without and with Clew and compares the two."""

    async def compare(
        scenario: Scenario, *script: Reply, settings: dict[str, Any] | None = None, **options: Any
    ) -> Compared:
        script = script or (kit.reply,)
        bare = await make(kit, script, scenario, None, options)
        with captured(**(settings or {})) as exporter:
            seen = await make(kit, script, scenario, exporter, options)
        assert seen.value == bare.value
        assert described(seen.error) == described(bare.error)
        assert seen.requests == bare.requests
        assert seen.released == bare.released
        assert seen.looks == bare.looks == {AROUND.span_id}
        assert MARK.encode() not in seen.otlp.lower()
        (round_,) = rounds_of(seen.spans)
        return Compared(
            value=seen.value,
            error=seen.error,
            requests=seen.requests,
            released=seen.released,
            round=round_,
            spans=seen.spans,
        )

    return compare
