"""OTLP over gRPC: each answer is judged by the specification; what waits, waits on the disk."""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext

from clew import semconv
from clew.pipeline.exporters import SpoolOptions, from_environment

if os.environ.get("CI") != "true":
    pytest.importorskip("grpc")
sys.path.insert(0, str(Path(__file__).parents[1] / "reliability" / "support"))

from grpc_receivers import GrpcReceiver

from clew.pipeline import otlp_grpc, otlp_http, otlp_spool
from clew.pipeline.otlp_grpc import FastGrpcSpanExporter, SpoolingGrpcSpanExporter
from clew.pipeline.otlp_sending import stock_encode

GRPC = {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}


def made(number: int, **attributes: Any) -> ReadableSpan:
    return ReadableSpan(
        name=f"s{number}",
        context=SpanContext(1, number + 1, is_remote=False),
        resource=Resource({"service.name": "r"}),
        instrumentation_scope=InstrumentationScope("clew"),
        attributes=attributes,
        start_time=1,
        end_time=2,
    )


def names(server: GrpcReceiver) -> list[str]:
    return [each.name for each in server.records()]


def plain(server: GrpcReceiver, **more: Any) -> FastGrpcSpanExporter:
    return FastGrpcSpanExporter(endpoint=server.base_url, timeout=more.pop("timeout", 5), **more)


def spooling(server: GrpcReceiver, folder: Path, **more: Any) -> SpoolingGrpcSpanExporter:
    return SpoolingGrpcSpanExporter(folder, 1 << 20, endpoint=server.base_url, timeout=5, **more)


def test_it_is_what_configure_uses(tmp_path: Path) -> None:
    """With a spool and without, with either encoder, over either protocol."""
    spool = SpoolOptions(tmp_path, 1 << 20)
    over_http: dict[str, str] = {}
    found = {
        (protocol, stock, spooled): from_environment(
            environ, stock_encoder=stock, spool=spool if spooled else None
        )[0]
        for protocol, environ in (("http", over_http), ("grpc", GRPC))
        for stock in (False, True)
        for spooled in (False, True)
    }
    assert {key: type(each) for key, each in found.items()} == {
        ("http", False, False): otlp_http.FastOTLPSpanExporter,
        ("http", False, True): otlp_spool.SpoolingOTLPSpanExporter,
        ("http", True, False): otlp_http.stock.OTLPSpanExporter,
        ("http", True, True): otlp_spool.SpoolingOTLPSpanExporter,
        ("grpc", False, False): FastGrpcSpanExporter,
        ("grpc", False, True): SpoolingGrpcSpanExporter,
        ("grpc", True, False): otlp_grpc.stock.OTLPSpanExporter,
        ("grpc", True, True): SpoolingGrpcSpanExporter,
    }
    for (_, stock, spooled), each in found.items():
        if spooled:
            assert (each.encode is stock_encode) == stock  # type: ignore[attr-defined]
    folders = {
        each.spool.folder  # type: ignore[attr-defined]
        for (_, _, spooled), each in found.items()
        if spooled
    }
    assert len(folders) == 2  # one for each receiver, whichever encoder


@pytest.mark.parametrize("compression", [None, "gzip"])
def test_it_exports_like_the_stock_one(
    compression: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same message, with metadata and compression by the environment's variables."""
    if compression:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", compression)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-tenant=acme")
    with GrpcReceiver() as server:
        one = plain(server)
        assert one.export([made(1, k="v")]) is SpanExportResult.SUCCESS
        one.shutdown()
    (body,) = server.taken
    assert ExportTraceServiceRequest.FromString(body) == encode_spans([made(1, k="v")])
    assert server.metadata[0]["x-tenant"] == "acme"
    assert server.metadata[0]["user-agent"].startswith("OTel-OTLP-Exporter-Python")


@pytest.mark.parametrize(
    ("status", "retry_s", "asked", "sent"),
    [
        ("UNAVAILABLE", 0.05, 2, True),
        ("UNAVAILABLE", None, 2, True),
        ("RESOURCE_EXHAUSTED", 0.05, 2, True),
        ("RESOURCE_EXHAUSTED", None, 1, False),
        ("UNAVAILABLE", 60.0, 1, False),
        ("ABORTED", 0.05, 2, True),
        ("INVALID_ARGUMENT", None, 1, False),
        ("UNAUTHENTICATED", None, 1, False),
        ("INTERNAL", None, 1, False),
    ],
)
def test_who_is_asked_again(status: str, retry_s: float | None, asked: int, sent: bool) -> None:
    """Codes that may pass, after the time that the receiver names, if that is within the time-out."""
    with GrpcReceiver(retry_s=retry_s) as server:
        server.statuses = [status]
        one = plain(server)
        result = one.export([made(1)])
        one.shutdown()
        assert (result is SpanExportResult.SUCCESS, server.asked) == (sent, asked)
    assert one.lost == (0 if sent else 1)


def test_a_large_batch_is_sent_in_halves(caplog: pytest.LogCaptureFixture) -> None:
    """And a span that is too large alone without its long texts; what is counted stays."""
    with GrpcReceiver(most=2000) as server:
        one = plain(server)
        spans = [made(each, k="x" * 300) for each in range(8)]
        large = made(8, **{semconv.USAGE_INPUT: 7, "k": "x" * 5000})
        assert one.export([*spans, large]) is SpanExportResult.SUCCESS
        one.shutdown()
    assert sorted(names(server)) == [f"s{each}" for each in range(9)]
    (found,) = (each for each in server.records() if each.name == "s8")
    assert dict(found.attributes) == {semconv.USAGE_INPUT: 7}
    assert (one.lost, one.cut) == (0, 1)
    assert caplog.text.count("too large for the OTLP receiver") == 1


def test_partial_success_is_counted(caplog: pytest.LogCaptureFixture) -> None:
    """What the receiver did not take is lost, and said once."""
    answer = ExportTraceServiceResponse()
    answer.partial_success.rejected_spans = 3
    with GrpcReceiver(answer=answer.SerializeToString()) as server:
        one = plain(server)
        assert one.export([made(each) for each in range(5)]) is SpanExportResult.SUCCESS
        assert one.export([made(each) for each in range(5)]) is SpanExportResult.SUCCESS
        one.shutdown()
    assert one.rejected == 6
    assert caplog.text.count("did not take 3 spans") == 1


@pytest.mark.parametrize("stock", [False, True], ids=["Clew's encoder", "the stock encoder"])
def test_new_spans_come_after_those_that_wait(stock: bool, tmp_path: Path) -> None:
    """The receiver is asked again after the time that it names; each span arrives once."""
    with GrpcReceiver(retry_s=0.0) as server:
        server.statuses = ["UNAVAILABLE"]
        one = spooling(server, tmp_path)
        if stock:
            one.encode = stock_encode
        assert one.export([made(1)]) is SpanExportResult.SUCCESS
        assert [each.spans for each in one.spool.files()] == [1]
        assert one.export([made(2)]) is SpanExportResult.SUCCESS
        one.shutdown()
        assert names(server) == ["s1", "s2"]
    assert (one.spans_lost, one.spool.files()) == (0, [])


def test_a_receiver_that_is_away_is_asked_no_more_often_than_it_wants(tmp_path: Path) -> None:
    """`RetryInfo` counts for the batches behind, too: they wait without a request."""
    with GrpcReceiver(status="RESOURCE_EXHAUSTED", retry_s=60.0) as server:
        one = spooling(server, tmp_path)
        for number in range(5):
            assert one.export([made(number)]) is SpanExportResult.SUCCESS
        one.shutdown()
        assert server.asked == 1
    assert sum(each.spans for each in one.spool.files()) == 5


def test_a_batch_that_will_never_be_taken_does_not_stop_the_others(tmp_path: Path) -> None:
    """It is counted as lost; what waits behind it is sent."""
    with GrpcReceiver(retry_s=0.0) as server:
        server.statuses = ["UNAVAILABLE", "INVALID_ARGUMENT"]
        one = spooling(server, tmp_path)
        one.export([made(1)])
        one.export([made(2)])
        one.shutdown()
        assert names(server) == ["s2"]
    assert (one.spans_lost, one.spool.files()) == (1, [])


def test_what_waits_is_sent_in_halves_where_it_is_too_large(tmp_path: Path) -> None:
    """By the limit that the receiver has when it is back."""
    with GrpcReceiver(status="UNAVAILABLE", retry_s=0.0) as away:
        one = spooling(away, tmp_path)
        one.export([made(each, k="x" * 300) for each in range(8)])
        port = away.port
    with GrpcReceiver(port=port, most=1000) as back:
        one.export([made(8)])
        for _ in range(10):  # each turn has a second
            one.replay()
        one.shutdown()
        assert names(back) == [f"s{each}" for each in range(9)]
    assert (one.spans_lost, one.spool.files()) == (0, [])


def test_shutdown_keeps_what_is_being_sent(tmp_path: Path) -> None:
    """A request in the middle is ended at once, and its spans wait for the next process."""
    with GrpcReceiver(status="NEVER") as server:
        one = spooling(server, tmp_path)
        thread = threading.Thread(target=one.export, args=([made(1), made(2)],))
        thread.start()
        while not server.asked:
            time.sleep(0.01)
        one.deadline = time.monotonic() + 1
        began = time.monotonic()
        one.shutdown()
        thread.join(5)
        assert not thread.is_alive()
        assert time.monotonic() - began < 1
    assert [each.spans for each in one.spool.files()] == [2]
    assert one.spans_lost == 0


def test_after_shutdown_spans_wait(tmp_path: Path) -> None:
    """For the next process; no connection is opened for them."""
    with GrpcReceiver() as server:
        one = spooling(server, tmp_path)
        one.shutdown()
        assert one.export([made(1)]) is SpanExportResult.SUCCESS
        assert server.asked == 0
    assert [each.spans for each in one.spool.files()] == [1]


def test_a_connection_is_opened_by_the_first_batch_and_not_kept_by_a_child(tmp_path: Path) -> None:
    """A forked child counts from zero and opens its own."""
    with GrpcReceiver() as server:
        one = spooling(server, tmp_path)
        assert one._channel is None
        one.export([made(1)])
        before = one._channel
        assert before is not None
        one.lost = 3
        one.forget()
        assert (one.lost, one._channel) == (0, None)
        assert one.export([made(2)]) is SpanExportResult.SUCCESS
        assert one._channel is not before
        one.shutdown()
        before.close()
        assert names(server) == ["s1", "s2"]
