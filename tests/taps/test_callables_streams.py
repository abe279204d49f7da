"""Streams of the user's own callables: every kind of them, and every way in which they end."""

from __future__ import annotations

import gc
import inspect
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, Self

import pytest
from callable_kit import ASK, CHUNKS, TOLD, BrokenError, Provider, recorded, rounds, spans, told
from either_way import items, settle
from opentelemetry import trace
from opentelemetry.trace import StatusCode

import clew
from clew.pipeline import runtime
from clew.settings import Settings
from clew.testing import CaptureExporter


@pytest.mark.parametrize("method", ["stream", "open", "astream", "aopen"])
async def test_a_stream(exported: CaptureExporter, provider: Provider, method: str) -> None:
    """A generator, or a function that returns an iterator; the last word on each fact counts."""
    stream = recorded(getattr(provider, method))
    with clew.run("triage") as run:
        own = run.span.get_span_context().span_id
        chunks = []
        async for chunk in items(await settle(stream(**ASK))):
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


@pytest.mark.parametrize("method", ["stream", "astream"])
async def test_a_stream_closed_early(
    exported: CaptureExporter, provider: Provider, method: str
) -> None:
    """Closing is no error; the generator's own cleaning-up is done at once."""
    stream = recorded(getattr(provider, method))(**ASK)
    if method == "astream":
        await anext(stream)
        await stream.aclose()
    else:
        next(stream)
        stream.close()
    assert provider.finalised == 1
    (found,) = rounds(exported)
    assert found["clew.stream.outcome"] == "closed"
    assert "gen_ai.usage.output_tokens" not in found
    (span,) = spans(exported)
    assert span.status.status_code is StatusCode.UNSET


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
