"""Callables of the user's own: what a mapping tells of each call, in every kind of callable."""

from __future__ import annotations

import asyncio
import enum
import gc
import inspect
import time
from collections.abc import AsyncIterator, Callable, Iterator
from types import SimpleNamespace
from typing import Any, Self

import anthropic
import cohere.v2.client as cohere_client
import groq
import httpx2
import openai
import openrouter.types as openrouter_types
import pytest
from mistralai.client import types as mistral_types
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import StatusCode

import clew
from clew import _guard, semconv
from clew.errors import ClewError
from clew.pipeline import runtime
from clew.settings import Settings
from clew.testing import CaptureExporter, Reply, ScriptedProvider

FACTS: dict[str, Any] = {
    "provider": "acme",
    "model": "model",
    "max_tokens": "limits.tokens",
    "messages": "messages",
    "tools": "tools",
    "response_model": "meta.model",
    "response_id": "meta.id",
    "finish_reason": "reason",
    "input_tokens": "usage.input",
    "output_tokens": "usage.output",
    "cache_read_tokens": "usage.cached",
    "tool_calls": "calls",
}


def answer(**more: Any) -> SimpleNamespace:
    return SimpleNamespace(
        text="SECRET",
        meta={"model": "acme-1-large", "id": "r1"},
        reason="end_turn",
        usage={"input": 100, "output": 20, "cached": 30},
        calls=[{"id": "t1", "name": "find", "arguments": "SECRET"}],
        **more,
    )


CHUNKS = [
    {"text": "SECRET"},
    {"text": " more", "calls": [("t1", "find")]},
    {"reason": "stop", "meta": {"model": "acme-1-large", "id": "r1"}},
    {"usage": {"input": 100, "output": 20, "cached": 30}},
]
TOLD = {
    "gen_ai.operation.name": "chat",
    "gen_ai.provider.name": "acme",
    "gen_ai.request.model": "acme-1",
    "gen_ai.request.max_tokens": 50,
    "clew.request.messages": 2,
    "clew.request.tools": 1,
    "gen_ai.response.model": "acme-1-large",
    "gen_ai.response.id": "r1",
    "gen_ai.response.finish_reasons": ("stop",),
    "gen_ai.usage.input_tokens": 100,
    "gen_ai.usage.output_tokens": 20,
    "gen_ai.usage.cache_read.input_tokens": 30,
    "clew.round": 1,
    "clew.attempts": 1,
}
ASK: dict[str, Any] = {
    "model": "acme-1",
    "messages": ["SECRET", "SECRET"],
    "tools": [{"type": "function", "function": {"name": "find"}}],
    "limits": {"tokens": 50},
}


def complete(model: str) -> Any:
    return answer()


def rounds(exported: CaptureExporter) -> list[dict[str, Any]]:
    return [dict(span.attributes or {}) for span in spans(exported)]


def spans(exported: CaptureExporter) -> list[ReadableSpan]:
    return [one for one in exported.spans if "clew.attempts" in (one.attributes or {})]


def told(found: dict[str, Any]) -> dict[str, Any]:
    return {key: found.get(key) for key in TOLD}


class Provider:
    """An in-house provider, with a method of every kind."""

    def __init__(self) -> None:
        self.model = "acme-1"
        self.seen: list[Any] = []
        self.finalised = 0

    def look(self) -> None:
        self.seen.append(trace.get_current_span().get_span_context().span_id)

    def complete(self, model: str, messages: list[str], tools: Any, limits: Any) -> Any:
        self.look()
        return answer()

    async def acomplete(self, model: str, messages: list[str], tools: Any, limits: Any) -> Any:
        self.look()
        await asyncio.sleep(0)
        self.look()
        return answer()

    def stream(self, model: str, messages: list[str], tools: Any, limits: Any) -> Iterator[Any]:
        try:
            for chunk in CHUNKS:
                self.look()
                yield chunk
        finally:
            self.finalised += 1

    async def astream(
        self, model: str, messages: list[str], tools: Any, limits: Any
    ) -> AsyncIterator[Any]:
        try:
            for chunk in CHUNKS:
                self.look()
                await asyncio.sleep(0)
                yield chunk
        finally:
            self.finalised += 1

    def open(self, model: str, messages: list[str], tools: Any, limits: Any) -> Any:
        self.look()
        return iter(CHUNKS)

    async def aopen(self, model: str, messages: list[str], tools: Any, limits: Any) -> Any:
        return self.astream(model, messages, tools, limits)


@pytest.fixture
def provider() -> Provider:
    return Provider()


def recorded(function: Callable[..., Any], **more: Any) -> Any:
    return clew.instrument(function, facts={**FACTS, **more})


def test_a_plain_call(exported: CaptureExporter, provider: Provider) -> None:
    """One round with what arguments and result say; the caller gets the very result."""
    complete = recorded(provider.complete)
    with clew.run("triage") as run:
        result = complete(**ASK)
        outer = trace.get_current_span().get_span_context().span_id
    assert outer == run.span.get_span_context().span_id
    assert result.text == "SECRET"
    (found,) = rounds(exported)
    assert told(found) == TOLD
    assert "clew.request.bytes" not in found
    assert "clew.stream.outcome" not in found
    (span,) = spans(exported)
    assert span.name == "chat acme-1"
    assert provider.seen == [span.context.span_id]
    assert b"SECRET" not in exported.otlp_bytes()


async def test_a_coroutine(exported: CaptureExporter, provider: Provider) -> None:
    """The same for a coroutine function, which stays one."""
    complete = recorded(provider.acomplete)
    assert inspect.iscoroutinefunction(complete)
    async with clew.run("triage"):
        result = await complete(**ASK)
    assert result.text == "SECRET"
    (found,) = rounds(exported)
    assert told(found) == TOLD
    (span,) = spans(exported)
    assert provider.seen == [span.context.span_id] * 2


@pytest.mark.parametrize("method", ["stream", "open"])
def test_a_stream(exported: CaptureExporter, provider: Provider, method: str) -> None:
    """A generator, or a function that returns an iterator; the last word on each fact counts."""
    stream = recorded(getattr(provider, method))
    with clew.run("triage") as run:
        own = run.span.get_span_context().span_id
        chunks = []
        for chunk in stream(**ASK):
            assert trace.get_current_span().get_span_context().span_id == own
            chunks.append(chunk)
    assert chunks == CHUNKS
    (found,) = rounds(exported)
    assert told(found) == TOLD
    assert found["clew.stream.outcome"] == "complete"
    assert found["clew.stream.chunks"] == 4
    assert 0 < found["gen_ai.response.time_to_first_chunk"] < 5
    (span,) = spans(exported)
    assert set(provider.seen) == {span.context.span_id}


@pytest.mark.parametrize("method", ["astream", "aopen"])
async def test_an_asynchronous_stream(
    exported: CaptureExporter, provider: Provider, method: str
) -> None:
    """An async generator, or a coroutine that returns one."""
    stream = recorded(getattr(provider, method))
    async with clew.run("triage") as run:
        own = run.span.get_span_context().span_id
        chunks = []
        opened = stream(**ASK)
        if inspect.isawaitable(opened):
            opened = await opened
        async for chunk in opened:
            assert trace.get_current_span().get_span_context().span_id == own
            chunks.append(chunk)
    assert chunks == CHUNKS
    (found,) = rounds(exported)
    assert told(found) == TOLD
    assert found["clew.stream.outcome"] == "complete"
    (span,) = spans(exported)
    assert set(provider.seen) == {span.context.span_id}


def test_a_stream_closed_early(exported: CaptureExporter, provider: Provider) -> None:
    """Closing is no error; the generator's own cleaning-up is done at once."""
    stream = recorded(provider.stream)(**ASK)
    next(stream)
    stream.close()
    assert provider.finalised == 1
    (found,) = rounds(exported)
    assert found["clew.stream.outcome"] == "closed"
    assert "gen_ai.usage.output_tokens" not in found
    (span,) = spans(exported)
    assert span.status.status_code is StatusCode.UNSET


async def test_an_asynchronous_stream_closed_early(
    exported: CaptureExporter, provider: Provider
) -> None:
    """The async twin."""
    stream = recorded(provider.astream)(**ASK)
    await anext(stream)
    await stream.aclose()
    assert provider.finalised == 1
    assert [found["clew.stream.outcome"] for found in rounds(exported)] == ["closed"]


def test_a_stream_that_is_dropped(exported: CaptureExporter, provider: Provider) -> None:
    """A stream that nobody reads on is abandoned, and cleans up as it would have."""
    stream = recorded(provider.stream)(**ASK)
    next(stream)
    del stream
    gc.collect()
    assert provider.finalised == 1
    for _ in range(100):
        if rounds(exported):
            break
        time.sleep(0.02)
    assert [found["clew.stream.outcome"] for found in rounds(exported)] == ["abandoned"]


def test_a_generator_that_nobody_starts_is_no_round(
    exported: CaptureExporter, provider: Provider
) -> None:
    """Its body has called no model."""
    recorded(provider.stream)(**ASK)
    gc.collect()
    assert rounds(exported) == []


def test_sending_into_and_throwing_into_a_generator(exported: CaptureExporter) -> None:
    """`send`, `throw` and the returned value pass through."""

    def talk(model: str) -> Any:
        got = yield 1
        try:
            yield got
        except KeyError:
            yield "caught"
        return "returned"

    stream = recorded(talk)("acme-1")
    assert inspect.isgenerator(stream)
    assert next(stream) == 1
    assert stream.send("sent") == "sent"
    assert stream.throw(KeyError()) == "caught"
    with pytest.raises(StopIteration) as stop:
        next(stream)
    assert stop.value.value == "returned"
    assert [found["clew.stream.outcome"] for found in rounds(exported)] == ["complete"]


class BrokenError(Exception):
    """What the provider raises."""


@pytest.mark.parametrize(
    ("error", "outcome"),
    [(BrokenError("SECRET"), "failed"), (TimeoutError("SECRET"), "timeout")],
)
def test_a_stream_that_fails(exported: CaptureExporter, error: Exception, outcome: str) -> None:
    """The caller's exception passes; what was learnt until then is kept."""

    def stream(model: str) -> Iterator[Any]:
        yield CHUNKS[3]
        raise error

    with pytest.raises(type(error)):
        list(recorded(stream)("acme-1"))
    (found,) = rounds(exported)
    assert found["clew.stream.outcome"] == outcome
    assert found["error.type"].endswith(type(error).__name__)
    assert found["gen_ai.usage.input_tokens"] == 100
    assert b"SECRET" not in exported.otlp_bytes()


def test_a_call_that_fails(exported: CaptureExporter) -> None:
    """The exception passes on; its type is recorded, not its text."""

    def complete(model: str) -> None:
        raise BrokenError("SECRET")

    with pytest.raises(BrokenError):
        recorded(complete)("acme-1")
    (found,) = rounds(exported)
    assert found["error.type"].endswith(".BrokenError")
    assert found["gen_ai.request.model"] == "acme-1"
    assert b"SECRET" not in exported.otlp_bytes()


async def test_a_coroutine_that_is_cancelled(exported: CaptureExporter) -> None:
    """Cancelling passes on and is told as such."""

    async def complete(model: str) -> None:
        await asyncio.sleep(60)

    task = asyncio.create_task(recorded(complete)("acme-1"))
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    (found,) = rounds(exported)
    assert found["clew.stream.outcome"] == "cancelled"


def test_a_stream_object_of_its_own(exported: CaptureExporter) -> None:
    """An iterable, and a context manager, with `stream` said; its attributes stay in reach."""

    class Stream:
        status = "open"

        def __enter__(self) -> Self:
            return self

        def __exit__(self, *_: object) -> None:
            self.status = "closed"

        def __iter__(self) -> Iterator[Any]:
            yield from CHUNKS

    made = Stream()

    def connect(model: str) -> Stream:
        return made

    stream = recorded(connect, stream=True)
    with stream("acme-1") as opened:
        assert opened.status == "open"
        assert list(opened) == CHUNKS
    assert made.status == "closed"
    (found,) = rounds(exported)
    assert found["clew.stream.outcome"] == "complete"
    assert found["gen_ai.usage.output_tokens"] == 20


def test_an_iterable_whose_proxy_is_dropped_while_it_is_read(exported: CaptureExporter) -> None:
    """`for item in provider.stream()` keeps only the iterator: the round goes on."""

    class Stream:
        def __iter__(self) -> Iterator[Any]:
            for chunk in CHUNKS:
                gc.collect()
                yield chunk

    def connect(model: str) -> Stream:
        return Stream()

    stream = recorded(connect, stream=True)
    for _ in stream("acme-1"):
        time.sleep(0.01)
    (found,) = rounds(exported)
    assert found["clew.stream.outcome"] == "complete"


@pytest.mark.parametrize("keyed", [True, False])
def test_a_stream_inside_the_result(exported: CaptureExporter, keyed: bool) -> None:
    """`stream` may name the attribute or key of the result that is the stream."""
    meta = {"model": "acme-1-large", "id": "r1"}

    def converse(model: str) -> Any:
        if keyed:
            return {"meta": meta, "events": iter(CHUNKS)}
        return SimpleNamespace(meta=meta, events=iter(CHUNKS))

    result = recorded(converse, stream="events")("acme-1")
    events = result["events"] if keyed else result.events
    assert list(events) == CHUNKS
    (found,) = rounds(exported)
    assert found["gen_ai.response.model"] == "acme-1-large"
    assert found["gen_ai.usage.output_tokens"] == 20


def test_a_stream_that_stands_still_is_held(provider: Provider) -> None:
    """A half-read stream ends its round after the idle time; reading on still works."""
    exporter = CaptureExporter()
    settings = Settings.from_environment(export_delay_ms=20, stream_idle_s=0.2, seal_grace_s=0.05)
    clew.configure("x", settings=settings, span_exporters=[exporter])
    stream = recorded(provider.stream)(**ASK)
    next(stream)
    for _ in range(200):
        if rounds(exporter):
            break
        time.sleep(0.02)
    assert list(stream) == CHUNKS[1:]
    assert [found["clew.stream.outcome"] for found in rounds(exporter)] == ["held"]


def test_a_stream_that_the_end_of_the_process_cuts_is_cancelled(
    provider: Provider, exported: CaptureExporter
) -> None:
    """A half-read stream ends its round before the last spans leave, once."""
    stream = recorded(provider.stream)(**ASK)
    next(stream)
    current = runtime.get()
    assert current is not None
    current.interrupt_streams(KeyboardInterrupt())
    assert list(stream) == CHUNKS[1:]
    assert [found["clew.stream.outcome"] for found in rounds(exported)] == ["cancelled"]


def test_methods_of_a_class(exported: CaptureExporter) -> None:
    """A class is instrumented in place, method by method; `self` is among the arguments."""
    facts = {**FACTS, "model": "self.model"}

    class Mine(Provider):
        pass

    assert clew.instrument(Mine, facts={"complete": facts, "stream": facts}) is Mine
    clew.instrument(Mine, facts={"complete": facts})
    Mine().complete(**{**ASK, "model": "other"})
    list(Mine().stream(**ASK))
    assert [found["gen_ai.request.model"] for found in rounds(exported)] == ["acme-1", "acme-1"]
    clew.uninstrument(Mine)
    Mine().complete(**ASK)
    assert len(rounds(exported)) == 2
    assert "complete" not in vars(Mine)


def test_methods_of_one_object(exported: CaptureExporter, provider: Provider) -> None:
    """Only the object that was given is recorded, and it can be let go."""
    facts = {**FACTS, "model": "self.model"}
    assert clew.instrument(provider, facts={"complete": facts}) is provider
    provider.complete(**ASK)
    Provider().complete(**ASK)
    assert [found["gen_ai.request.model"] for found in rounds(exported)] == ["acme-1"]
    clew.uninstrument(provider)
    provider.complete(**ASK)
    assert len(rounds(exported)) == 1


def test_a_class_whose_objects_are_called(exported: CaptureExporter) -> None:
    """Facts without method names mean calls of the objects, not their making."""

    class Model:
        def __init__(self) -> None:
            self.name = "acme-1"

        def __call__(self, prompt: str) -> Any:
            return answer()

    clew.instrument(Model, facts={**FACTS, "model": "self.name"})
    assert Model()("SECRET").reason == "end_turn"
    assert [found["gen_ai.request.model"] for found in rounds(exported)] == ["acme-1"]
    clew.uninstrument()


def test_wrapping_twice_records_once(exported: CaptureExporter, provider: Provider) -> None:
    """A callable that is wrapped again is the same callable."""
    once = recorded(provider.complete)
    twice = recorded(once)
    assert twice is once
    twice(**ASK)
    assert len(rounds(exported)) == 1


def test_letting_go(exported: CaptureExporter, provider: Provider) -> None:
    """After `uninstrument` the callable only calls; instrumented again, it records again."""
    complete = recorded(provider.complete)
    clew.uninstrument(complete)
    complete(**ASK)
    assert rounds(exported) == []
    recorded(complete)(**ASK)
    clew.uninstrument()
    complete(**ASK)
    assert len(rounds(exported)) == 1


def test_arguments_by_position_and_by_default(exported: CaptureExporter) -> None:
    """Arguments are found however they are given."""

    def complete(messages: Any, model: str = "acme-1", *, temperature: float = 0.5) -> Any:
        return answer()

    wrapped = clew.instrument(
        complete, facts={"model": "model", "messages": "messages", "temperature": "temperature"}
    )
    wrapped(["a"])
    wrapped(["a"], "acme-2", temperature=1)
    first, second = rounds(exported)
    assert (first["gen_ai.request.model"], first["gen_ai.request.temperature"]) == ("acme-1", 0.5)
    assert (second["gen_ai.request.model"], second["gen_ai.request.temperature"]) == ("acme-2", 1)


NO_VALUES = [
    openai.NOT_GIVEN,
    openai.omit,
    anthropic.NOT_GIVEN,
    groq.omit,
    mistral_types.UNSET,
    openrouter_types.UNSET,
    cohere_client.OMIT,
    None,
]


@pytest.mark.parametrize("nothing", NO_VALUES, ids=lambda value: type(value).__module__)
async def test_what_is_not_given_is_absent(
    exported: CaptureExporter, nothing: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """What an SDK has for "not given" is no value; a zero and an empty list are values."""
    names = ("model", "max_tokens", "temperature", "top_p", "seed", "choice_count", "tools")
    places = {name: name for name in (*names, "messages")}

    def complete(**given: Any) -> Any:
        return answer()

    async def acomplete(**given: Any) -> Any:
        return answer()

    clew.instrument(complete, facts=places)(**dict.fromkeys(places, nothing))
    await clew.instrument(acomplete, facts=places)(**dict.fromkeys(places, nothing))
    zeros = {"temperature": 0, "max_tokens": 0, "seed": 0, "tools": [], "messages": ()}
    clew.instrument(complete, facts=places)(**zeros)
    keys = {each for each in semconv.RULES if ".request." in each}
    *without, with_zeros = (
        {key: one[key] for key in keys & one.keys()} for one in rounds(exported)
    )
    assert without == [{}, {}]
    assert with_zeros == {
        "gen_ai.request.temperature": 0,
        "gen_ai.request.max_tokens": 0,
        "gen_ai.request.seed": 0,
        "clew.request.tools": 0,
        "clew.request.messages": 0,
    }
    assert not caplog.records


def test_what_can_be_read_once_is_left_to_the_callable(exported: CaptureExporter) -> None:
    """Tools and messages that come one by one are not read by Clew."""

    def complete(messages: Any, tools: Any) -> Any:
        assert (list(messages), list(tools)) == (["hello"], ["find"])
        return answer()

    wrapped = clew.instrument(complete, facts={"messages": "messages", "tools": "tools"})
    wrapped(iter(["hello"]), (name for name in ["find"]))
    (found,) = rounds(exported)
    assert not {"clew.request.messages", "clew.request.tools"} & found.keys()


class Reason(enum.Enum):
    DONE = "max_tokens"


ODD = [
    ({"finish_reason": lambda _: Reason.DONE}, "finish_reasons", ("length",)),
    ({"finish_reason": lambda _: ["stop", None]}, "finish_reasons", ("stop", "_OTHER")),
    ({"input_tokens": lambda _: "many"}, "input_tokens", None),
    ({"input_tokens": lambda _: -1}, "input_tokens", None),
    ({"input_tokens": lambda _: True}, "input_tokens", None),
    ({"input_tokens": lambda _: 0}, "input_tokens", 0),
    ({"input_tokens": "usage.0.deep"}, "input_tokens", None),
    ({"model": lambda _: 7}, "request.model", None),
]


@pytest.mark.parametrize(("facts", "key", "value"), ODD)
def test_values_of_any_kind(
    exported: CaptureExporter, facts: dict[str, Any], key: str, value: Any
) -> None:
    """A value that is none of the fact's kind is unknown, and nothing breaks."""
    clew.instrument(complete, facts={**facts, "output_tokens": "usage.output"})("m")
    (found,) = rounds(exported)
    names = {
        "finish_reasons": "gen_ai.response.finish_reasons",
        "input_tokens": "gen_ai.usage.input_tokens",
        "request.model": "gen_ai.request.model",
    }
    assert found.get(names[key]) == value
    assert found["gen_ai.usage.output_tokens"] == 20


def test_a_place_that_raises(exported: CaptureExporter, caplog: pytest.LogCaptureFixture) -> None:
    """The fact is unknown, the call goes on, and the user is told once, without content."""
    _guard.forget()
    wrapped = clew.instrument(
        complete,
        facts={"model": "model", "input_tokens": lambda result: result["SECRET"]},
    )
    for _ in range(2):
        assert wrapped("acme-1").text == "SECRET"
    assert [found["gen_ai.request.model"] for found in rounds(exported)] == ["acme-1"] * 2
    messages = [record.getMessage() for record in caplog.records]
    assert len(messages) == 1
    assert "'input_tokens'" in messages[0]
    assert "SECRET" not in messages[0]


BAD: list[tuple[Any, Any, str]] = [
    (lambda: 0, {"modell": "model"}, "'modell' is no fact"),
    (lambda: 0, {"model": 7}, "'model' is 7"),
    (lambda: 0, {"model": ""}, "'model' is ''"),
    (7, {"model": "model"}, "int"),
    (Provider, {"model": "model"}, "Provider has no method '__call__'"),
    (Provider, {"gone": {"model": "model"}}, "Provider has no method 'gone'"),
]


@pytest.mark.parametrize(("target", "facts", "message"), BAD)
def test_what_is_not_understood_is_a_clear_error(target: Any, facts: Any, message: str) -> None:
    """A mistake in the mapping is named where it is made."""
    with pytest.raises(ClewError, match=message):
        clew.instrument(target, facts=facts)


def test_without_configuration_nothing_happens(provider: Provider) -> None:
    """A wrapped callable of a process that does not configure Clew just works."""
    assert recorded(provider.complete)(**ASK).text == "SECRET"
    assert list(recorded(provider.stream)(**ASK)) == CHUNKS


def test_requests_below_a_recorded_callable_are_part_of_it(exported: CaptureExporter) -> None:
    """One model call is one round, though its request is seen too; its trace headers stay in."""
    clew.instrument()
    body = {"model": "gpt-4o", "messages": []}
    with ScriptedProvider([Reply(text="x")] * 2) as server:
        url = f"{server.openai_base_url}/chat/completions"

        def complete(model: str) -> Any:
            headers = {"traceparent": "00-" + "1" * 32 + "-" + "2" * 16 + "-01"}
            httpx2.post(url, json=body, headers=headers)
            return answer()

        with clew.run("triage"):
            recorded(complete)("acme-1")
            httpx2.post(url, json=body)
        sent = {name.lower() for name, _ in server.requests[0].headers}
    assert "traceparent" not in sent
    first, second = rounds(exported)
    assert (first["gen_ai.request.model"], first["clew.round"]) == ("acme-1", 1)
    assert (second["gen_ai.request.model"], second["clew.round"]) == ("gpt-4o", 2)


def test_a_tool_inside_a_recorded_callable_has_rounds_of_its_own(
    exported: CaptureExporter,
) -> None:
    """A model that a tool asks while the callable runs is another round."""
    clew.instrument()
    with ScriptedProvider([Reply(text="x")]) as server:
        url = f"{server.openai_base_url}/chat/completions"

        def complete(model: str) -> Any:
            with clew.tool("ask_an_expert"):
                httpx2.post(url, json={"model": "gpt-4o", "messages": []})
            return answer()

        with clew.run("triage"):
            recorded(complete)("acme-1")
    models = [found["gen_ai.request.model"] for found in rounds(exported)]
    assert models == ["gpt-4o", "acme-1"]
