"""The capturing exporter, the OTLP receiver, and the deterministic ids and clock."""

from __future__ import annotations

import httpx
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.trace.v1.trace_pb2 import TracesData
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import (
    BatchSpanProcessor,
    SimpleSpanProcessor,
    SpanExporter,
    SpanExportResult,
)
from opentelemetry.trace import Link

from clew.testing import CaptureExporter, CountingIds, OtlpSink, SteppingClock


def traced(exporter: SpanExporter, *names: str) -> None:
    provider = TracerProvider(id_generator=CountingIds())
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracer = provider.get_tracer("test")
    for name in names:
        tracer.start_span(name).end()
    provider.shutdown()


def test_spans_are_kept_and_found_by_name():
    """Spans stay in order; a name finds whole names and first words."""
    exporter = CaptureExporter()
    traced(exporter, "chat small", "chat", "chatter", "execute_tool find")
    assert [span.name for span in exporter.by_name("chat")] == ["chat small", "chat"]
    assert [span.name for span in exporter.by_name("execute_tool find")] == ["execute_tool find"]
    assert exporter.by_name("find") == ()
    assert exporter.stopped
    exporter.clear()
    assert exporter.spans == ()


def test_reading_flushes_first():
    """Spans that wait in a batch are there when they are read."""
    provider = TracerProvider()
    exporter = CaptureExporter(flush=provider.force_flush)
    provider.add_span_processor(BatchSpanProcessor(exporter, schedule_delay_millis=60_000))
    tracer = provider.get_tracer("test")
    tracer.start_span("one").end()
    assert [span.name for span in exporter.spans] == ["one"]
    tracer.start_span("two").end()
    exporter.clear()
    assert exporter.spans == ()
    provider.shutdown()
    assert exporter.spans == ()


def test_the_wire_form_is_what_an_otlp_exporter_sends():
    """`otlp_bytes` has everything that is exported, also what no attribute shows."""
    exporter = CaptureExporter()
    provider = TracerProvider(id_generator=CountingIds())
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    with provider.get_tracer("scope-mark").start_as_current_span("name-mark") as span:
        span.set_attribute("key-mark", "value-mark")
        span.record_exception(ValueError("text-mark"))
    data = exporter.otlp_bytes()
    for mark in (b"scope-mark", b"name-mark", b"key-mark", b"value-mark", b"text-mark"):
        assert mark in data
    decoded = TracesData.FromString(data)
    (sent,) = decoded.resource_spans[0].scope_spans[0].spans
    assert (sent.trace_id, sent.span_id) == ((1).to_bytes(16), (1).to_bytes(8))


def test_the_json_form_has_hexadecimal_ids():
    """`otlp_json` is an OTLP JSON document: hexadecimal ids, numbers for enums."""
    exporter = CaptureExporter()
    provider = TracerProvider(id_generator=CountingIds())
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracer = provider.get_tracer("test")
    with tracer.start_as_current_span("outer") as outer:
        tracer.start_span("inner", links=[Link(outer.get_span_context())]).end()
    inner, _ = exporter.otlp_json()["resourceSpans"][0]["scopeSpans"][0]["spans"]
    assert (inner["traceId"], inner["spanId"]) == ("0" * 31 + "1", "0" * 15 + "2")
    assert inner["parentSpanId"] == "0" * 15 + "1"
    assert inner["kind"] == 1
    assert inner["links"][0]["traceId"] == "0" * 31 + "1"
    assert inner["links"][0]["spanId"] == "0" * 15 + "1"
    assert CaptureExporter().otlp_json() == {"resourceSpans": []}


def test_counting_ids_and_stepping_clock():
    """Ids count from 1; the clock moves with each reading and by hand."""
    ids = CountingIds()
    assert [ids.generate_trace_id(), ids.generate_trace_id()] == [1, 2]
    assert [ids.generate_span_id(), ids.generate_span_id()] == [1, 2]
    clock = SteppingClock(start=100, step=7)
    assert [clock(), clock()] == [100, 107]
    clock.advance(0.000_000_5)
    assert clock() == 614


def test_the_sink_keeps_what_an_exporter_sends():
    """A real OTLP exporter's message is decoded and kept, compressed or not."""
    with OtlpSink() as sink:
        traced(OTLPSpanExporter(sink.traces_endpoint), "plain")
        traced(OTLPSpanExporter(sink.traces_endpoint, compression=Compression.Gzip), "packed")
        assert [span.name for span in sink.spans] == ["plain", "packed"]
        assert b"packed" in sink.bodies[1]
        assert sink.requests[1].header("content-encoding") == "gzip"


def test_the_sink_can_refuse():
    """A refused message is dropped, or kept as if only the answer was lost; other paths are 404."""
    with OtlpSink() as sink, httpx.Client() as client:
        provider = TracerProvider()
        span = provider.get_tracer("test").start_span("once")
        span.end()
        exporter = OTLPSpanExporter(sink.traces_endpoint)
        sink.refuse(400)
        assert exporter.export([span]) is SpanExportResult.FAILURE
        assert sink.spans == ()
        sink.refuse(400, keep=True)
        assert exporter.export([span]) is SpanExportResult.FAILURE
        assert [each.name for each in sink.spans] == ["once"]
        assert exporter.export([span]) is SpanExportResult.SUCCESS
        assert [each.name for each in sink.spans] == ["once", "once"]
        assert client.post(f"{sink.base_url}/v1/other").status_code == 404
        assert client.post(f"{sink.base_url}/v1/metrics").status_code == 200
        assert client.post(f"{sink.base_url}/v1/logs").status_code == 200
        assert (len(sink.metrics), len(sink.logs), len(sink.bodies)) == (1, 1, 6)
        exporter.shutdown()
