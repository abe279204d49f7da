"""A scenario made twice, once as if Clew were not there, and what must be equal between the two."""

from __future__ import annotations

import asyncio
import gc
import logging
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from either_way import settle
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import NonRecordingSpan, SpanContext, StatusCode, TraceFlags

from clew.testing import CaptureExporter, ReceivedRequest, Reply, ScriptedProvider, captured
from kits.base import MARK

TRACE_HEADERS = {"traceparent", "tracestate", "baggage"}
RELEASE_SECONDS = 1
AROUND = SpanContext(0xA1, 0xB2, is_remote=False, trace_flags=TraceFlags(1))


@dataclass
class Session:
    """One scenario's surroundings."""

    kit: Any
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


async def plain(session: Session) -> Any:
    """Ask for a whole answer."""
    return await session.kit.ask(session.client)


async def streamed(session: Session) -> Any:
    """Ask for a stream, and read it to its end."""
    return await session.read(await session.kit.stream(session.client))


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What one making of a scenario showed."""

    value: Any
    error: BaseException | None
    requests: list[tuple[Any, ...]]
    released: bool
    looks: set[int]
    said: list[str]
    """What was logged as a warning or worse: a failed detach, a generator that did not close."""
    spans: tuple[ReadableSpan, ...]
    otlp: bytes


@dataclass(frozen=True, kw_only=True)
class Compared:
    """A scenario that was the same for its caller with and without Clew."""

    value: Any
    error: BaseException | None
    requests: list[tuple[Any, ...]]
    released: bool
    rounds: list[ReadableSpan]
    spans: tuple[ReadableSpan, ...]

    @property
    def round(self) -> ReadableSpan:
        """The one round."""
        (only,) = self.rounds
        return only

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
    if isinstance(value, dict):
        return {key: normal(each) for key, each in value.items()}
    return value


def described(error: BaseException | None) -> Any:
    """Return what a caller can tell of an exception and of its causes."""
    if error is None:
        return None
    names = ("status_code", "body", "request_id", "code", "type")
    told = [repr(getattr(error, name, None)) for name in names]
    kind = f"{type(error).__module__}.{type(error).__qualname__}"
    # Two servers have two ports, and two objects two addresses.
    text = re.sub(
        r"127\.0\.0\.1:\d+|port=\d+|\('127\.0\.0\.1', \d+\)|\b(0x)?[0-9a-f]{8,16}\b",
        "*",
        str(error),
    )
    return kind, text, told, described(error.__cause__), described(error.__context__)


def on_the_wire(kit: Any, request: ReceivedRequest) -> tuple[Any, ...]:
    """Return a request as it was sent, without what may differ between two servers."""
    varying = {*TRACE_HEADERS, "host", *kit.volatile}
    headers = [pair for pair in request.headers if pair[0].lower() not in varying]
    return request.method, request.path, headers, request.body


def forget_frames(error: BaseException | None, depth: int = 9) -> None:
    """Drop the traces of an exception and of what led to it."""
    if error is not None and depth:
        error.__traceback__ = None
        forget_frames(error.__cause__, depth - 1)
        forget_frames(error.__context__, depth - 1)


async def let_go() -> None:
    """Let dropped objects be collected, async generators too."""
    gc.collect()
    for _ in range(12):
        # Generators within generators are closed one by one.
        await asyncio.sleep(0)
    gc.collect()
    await asyncio.sleep(0.01)


async def ended(exporter: CaptureExporter) -> None:
    """Wait for a round that is about to end in the loop."""
    for _ in range(50):
        if rounds_of(exporter.spans):
            return
        gc.collect()
        await asyncio.sleep(0.02)


class _Listener(logging.Handler):
    """Keeps what is logged."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if str(record.threadName).startswith(("clew-", "Otel")):
            return  # an exporter of a test before this one, whose receiver is gone
        # What carries an address or a port differs from time to time.
        self.said.append(f"{record.name}: {record.msg}")


@contextmanager
def listening() -> Iterator[list[str]]:
    """Give a list of what is logged meanwhile."""
    listener = _Listener()
    root = logging.getLogger()
    root.addHandler(listener)
    try:
        yield listener.said
    finally:
        root.removeHandler(listener)


async def make(
    kit: Any,
    script: Iterable[Reply],
    scenario: Scenario,
    exporter: CaptureExporter | None,
    options: dict[str, Any],
) -> Seen:
    """Make a scenario once."""
    value, error = None, None
    # What lives now is left out of the collections to come: they would take most of the time. What
    # is garbage by now goes first, or it would stay.
    gc.collect()
    gc.freeze()
    with ScriptedProvider(script, formats=kit.formats) as server, listening() as said:
        session = Session(kit, await settle(kit.client(server, **options)), server)
        with trace.use_span(NonRecordingSpan(AROUND)):
            session.look()
            try:
                value = normal(await scenario(session))
            except BaseException as raised:
                if isinstance(raised, (AssertionError, KeyboardInterrupt)):
                    raise
                error = raised
            session.look()
        requests = [on_the_wire(kit, request) for request in server.requests]
        # Traces of the exception hold the frames, and so the stream.
        forget_frames(error)
        await let_go()
        if exporter is not None:
            await ended(exporter)
        spans = exporter.spans if exporter is not None else ()
        otlp = exporter.otlp_bytes() if exporter is not None else b""
        released = await is_released(session)
        await kit.close(session.client)
    return Seen(
        value=value,
        error=error,
        requests=requests,
        released=released,
        looks=set(session.looks),
        said=said,
        spans=spans,
        otlp=otlp,
    )


async def is_released(session: Session) -> bool:
    """Tell whether the client's one connection can be used again."""
    session.server.replace(Reply(text="after"))
    try:
        async with asyncio.timeout(RELEASE_SECONDS):
            await session.kit.ask(session.client)
    except Exception as error:
        if "Timeout" not in type(error).__name__:
            raise
        return False
    return True


async def compared(
    kit: Any, scenario: Scenario, script: Iterable[Reply], settings: Any, options: dict[str, Any]
) -> Compared:
    """Make a scenario without and with Clew, and check what holds for every call."""
    bare = await make(kit, script, scenario, None, options)
    with captured(**(settings or {})) as exporter:
        seen = await make(kit, script, scenario, exporter, options)
    assert described(seen.error) == described(bare.error)
    assert seen.value == bare.value
    assert seen.requests == bare.requests
    assert seen.released == bare.released
    assert seen.said == bare.said
    assert seen.looks == bare.looks == {AROUND.span_id}
    assert MARK.encode() not in seen.otlp.lower()
    return Compared(
        value=seen.value,
        error=seen.error,
        requests=seen.requests,
        released=seen.released,
        rounds=rounds_of(seen.spans),
        spans=seen.spans,
    )
