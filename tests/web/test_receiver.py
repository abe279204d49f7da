"""The OTLP/HTTP receiver: what it takes, what it refuses, and that it never loses what it took."""

# ruff: noqa: SIM300 - expected == actual, in this order
from __future__ import annotations

import gzip
import json
import socket
import threading
import time
import zlib
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import sample_messages
import sample_runs
from google.rpc.status_pb2 import Status
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from posting import JSON, PROTOBUF, post, traces
from starlette.testclient import TestClient

from clew.sources.store import StoreSource
from clew.store.database import connect
from clew.store.writer import Writer
from clew.web.app import create_app
from clew.web.bodies import Limits
from clew.web.server import Running, start

SMALL = Limits(body_bytes=100_000, all_bytes=150_000, seconds=0.6, linger_seconds=0.5)


@pytest.fixture
def narrow(store_file: Path) -> Iterator[httpx.Client]:
    """A client of a server with small bounds."""
    with (
        start(port=0, store_path=store_file, limits=SMALL) as running,
        httpx.Client(base_url=running.address, timeout=20, trust_env=False) as client,
    ):
        yield client


@pytest.mark.parametrize("kind", [PROTOBUF, JSON])
@pytest.mark.parametrize("encoding", ["identity", "gzip", "deflate", "two gzip members"])
def test_a_message_is_stored_and_answered_in_its_encoding(
    http: httpx.Client, kind: str, encoding: str
) -> None:
    """Protobuf and JSON, plain and packed, are answered with their own empty response message."""
    run = sample_runs.triage()
    body = sample_messages.protobuf(run) if kind == PROTOBUF else sample_messages.otlp_json(run)
    match encoding:
        case "gzip":
            body = gzip.compress(body)
        case "deflate":
            body = zlib.compress(body)
        case "two gzip members":
            body = gzip.compress(body[:100]) + gzip.compress(body[100:])
        case _:
            pass
    answer = post(
        http, body, kind, content_encoding=encoding.split()[-2] if " " in encoding else encoding
    )
    assert (200, kind) == (answer.status_code, answer.headers["content-type"])
    if kind == PROTOBUF:
        assert ExportTraceServiceResponse() == ExportTraceServiceResponse.FromString(answer.content)
    else:
        assert {} == answer.json()
    stored = http.get(f"/api/runs/{run.run_id}").json()["spans"]
    assert [each.span_id for each in run.spans] == [each["span_id"] for each in stored]


def test_a_content_type_may_have_parameters(http: httpx.Client) -> None:
    """`application/json; charset=utf-8`, in any case of letters, is JSON."""
    answer = post(
        http, sample_messages.otlp_json(sample_runs.running()), "Application/JSON; charset=utf-8"
    )
    assert 200 == answer.status_code


@pytest.mark.parametrize(
    "compression", [Compression.NoCompression, Compression.Gzip, Compression.Deflate]
)
def test_the_stock_exporter_is_understood(
    server: Running, store_file: Path, compression: Compression
) -> None:
    """Spans of the OpenTelemetry SDK arrive through its own OTLP exporter."""
    exporter = OTLPSpanExporter(f"{server.address}/v1/traces", compression=compression)
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    with provider.get_tracer("library").start_as_current_span("work", attributes={"n": 1}) as span:
        trace_id = f"{span.get_span_context().trace_id:032x}"
    provider.shutdown()
    with StoreSource(store_file) as source:
        (stored,) = source.run(trace_id).spans
    assert ("work", "library", {"n": 1}) == (stored.name, stored.scope.name, stored.attributes)


@pytest.mark.parametrize("kind", [PROTOBUF, JSON])
def test_rejected_spans_are_told(http: httpx.Client, kind: str) -> None:
    """Spans without valid ids are named in `partial_success`; the others are stored."""
    good = sample_runs.running()
    bad = sample_runs.running()
    bad.trace_id = "0" * 32
    body = sample_messages.protobuf if kind == PROTOBUF else sample_messages.otlp_json
    answer = post(http, body(good, bad), kind)
    if kind == PROTOBUF:
        partial = ExportTraceServiceResponse.FromString(answer.content).partial_success
        told = (partial.rejected_spans, partial.error_message)
    else:
        partial = answer.json()["partialSuccess"]
        told = (int(partial["rejectedSpans"]), partial["errorMessage"])
    assert (200, 2) == (answer.status_code, told[0])
    assert "trace id" in told[1]
    assert [good.trace_id] == traces(http)


@pytest.mark.parametrize("path", ["/v1/metrics", "/v1/logs"])
@pytest.mark.parametrize(("kind", "expected"), [(PROTOBUF, b""), (JSON, b"{}")])
def test_metrics_and_logs_are_accepted_and_dropped(
    http: httpx.Client, path: str, kind: str, expected: bytes
) -> None:
    """Exporters of other signals are answered with success and an empty response message."""
    answer = post(http, b"\x0a\x00" * 1000, kind, path)
    assert (200, kind, expected) == (
        answer.status_code,
        answer.headers["content-type"],
        answer.content,
    )


@pytest.mark.parametrize(
    ("kind", "content", "headers"),
    [
        (PROTOBUF, b"garbage", {}),
        (PROTOBUF, b"\xff" * 1000, {}),
        (JSON, b"{", {}),
        (JSON, b"", {}),
        (JSON, b'{"resourceSpans": 1}', {}),
        (PROTOBUF, b"not gzip", {"content_encoding": "gzip"}),
        (PROTOBUF, gzip.compress(b"x" * 1000, mtime=0)[:-10], {"content_encoding": "gzip"}),
        (PROTOBUF, gzip.compress(b"", mtime=0) + b"rest", {"content_encoding": "gzip"}),
        (PROTOBUF, b"", {"content_encoding": "gzip"}),
    ],
)
def test_garbage_is_400(
    http: httpx.Client, kind: str, content: bytes, headers: dict[str, str]
) -> None:
    """What cannot be read is refused with a `Status` message in the sender's encoding."""
    answer = post(http, content, kind, **headers)
    assert (400, kind) == (answer.status_code, answer.headers["content-type"])
    if kind == PROTOBUF:
        status = Status.FromString(answer.content)
        code, message = status.code, status.message
    else:
        code, message = answer.json()["code"], answer.json()["message"]
    assert 3 == code
    assert message
    assert [] == traces(http)


@pytest.mark.parametrize(
    ("kind", "encoding"),
    [
        ("text/plain", "identity"),
        ("", "identity"),
        ("application/x-www-form-urlencoded", "identity"),
        (PROTOBUF, "br"),
        (PROTOBUF, "gzip, gzip"),
    ],
)
def test_unknown_types_and_encodings_are_415(http: httpx.Client, kind: str, encoding: str) -> None:
    """Only protobuf and JSON, plain, gzip or deflate, are taken."""
    answer = post(http, b"x", kind, content_encoding=encoding)
    assert (415, JSON if kind != PROTOBUF else PROTOBUF) == (
        answer.status_code,
        answer.headers["content-type"],
    )


@pytest.mark.parametrize("path", ["/v1/traces", "/v1/metrics"])
def test_large_bodies_are_413_before_they_are_read(narrow: httpx.Client, path: str) -> None:
    """A body whose announced length is too large is refused."""
    assert 413 == post(narrow, b"\x00" * 100_001, path=path).status_code


@pytest.mark.parametrize("path", ["/v1/traces", "/v1/metrics"])
def test_large_bodies_without_a_length_are_413(narrow: httpx.Client, path: str) -> None:
    """A body that turns out too large while it arrives is refused."""
    answer = post(narrow, (b"\x00" * 10_000 for _ in range(20)), path=path)
    assert 413 == answer.status_code


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
def test_a_body_that_unpacks_too_large_is_413(narrow: httpx.Client, encoding: str) -> None:
    """A small body that unpacks to gigabytes is refused while it is unpacked."""
    compressor = zlib.compressobj(9, zlib.DEFLATED, 31 if encoding == "gzip" else 15)
    bomb = b"".join(compressor.compress(b"\x00" * 2**20) for _ in range(64)) + compressor.flush()
    assert len(bomb) < SMALL.body_bytes
    started = time.monotonic()
    assert 413 == post(narrow, bomb, content_encoding=encoding).status_code
    assert time.monotonic() - started < 5


def test_many_members_do_not_get_around_the_bound(narrow: httpx.Client) -> None:
    """Bodies of many small packed members count as a whole."""
    assert (
        413
        == post(narrow, gzip.compress(b"\x00" * 60_000) * 2, content_encoding="gzip").status_code
    )


def test_a_body_that_never_ends_is_cut_off(narrow: httpx.Client) -> None:
    """A sender that trickles is answered with 408 at the deadline, and its connection closed."""
    host, port = narrow.base_url.host, narrow.base_url.port
    with socket.create_connection((host, port), timeout=10) as sock:
        sock.sendall(
            b"POST /v1/traces HTTP/1.1\r\nHost: localhost\r\ntransfer-encoding: chunked\r\n"
            b"content-type: application/x-protobuf\r\n\r\n"
        )
        started = time.monotonic()
        answer = b""
        sock.settimeout(0.1)
        while time.monotonic() - started < 10:
            try:
                sock.sendall(b"1\r\n\x00\r\n")
                piece = sock.recv(4096)
            except TimeoutError:
                continue
            except OSError:
                break
            if not piece:
                break
            answer += piece
    assert b"HTTP/1.1 408" in answer
    assert time.monotonic() - started < 5
    assert 200 == post(narrow, sample_messages.protobuf(sample_runs.running())).status_code


def test_a_client_that_goes_away_leaves_nothing(http: httpx.Client) -> None:
    """Half a message is no message: nothing is stored, and the server goes on."""
    body = sample_messages.protobuf(sample_runs.triage())
    with socket.create_connection((http.base_url.host, http.base_url.port), timeout=10) as sock:
        sock.sendall(
            b"POST /v1/traces HTTP/1.1\r\nHost: localhost\r\n"
            b"content-type: application/x-protobuf\r\n"
            b"content-length: %d\r\n\r\n" % len(body) + body[: len(body) // 2]
        )
    assert [] == traces(http)
    assert 200 == post(http, body).status_code


def test_too_much_at_once_is_503_and_may_be_tried_again(narrow: httpx.Client) -> None:
    """Bodies in flight are bounded together; the next message finds room again."""
    host, port = narrow.base_url.host, narrow.base_url.port
    with socket.create_connection((host, port), timeout=10) as sock:
        sock.sendall(
            b"POST /v1/traces HTTP/1.1\r\nHost: localhost\r\n"
            b"content-type: application/x-protobuf\r\ncontent-length: 90000\r\n\r\n"
            + b"\x00"
            * 80_000
        )
        time.sleep(0.2)
        answer = post(narrow, b"\x0a\x00" * 45_000)
        assert 503 == answer.status_code
        assert int(answer.headers["retry-after"]) > 0
    time.sleep(0.2)
    assert 200 == post(narrow, sample_messages.protobuf(sample_runs.running())).status_code


def test_a_store_that_cannot_take_it_is_503(
    server: Running, http: httpx.Client, store_file: Path
) -> None:
    """While the store is locked for longer than it waits, exporters are asked to try again."""
    run = sample_runs.running()
    before = sample_runs.triage()
    assert 200 == post(http, sample_messages.protobuf(before)).status_code
    other = connect(store_file)
    other.execute("BEGIN IMMEDIATE")
    answer = post(http, sample_messages.protobuf(run))
    other.execute("ROLLBACK")
    other.close()
    assert (503, "2") == (answer.status_code, answer.headers["retry-after"])
    status = Status.FromString(answer.content)
    assert 14 == status.code
    assert "is locked" in status.message
    assert 200 == post(http, sample_messages.protobuf(run)).status_code
    assert {before.trace_id, run.trace_id} == set(traces(http))


def test_a_full_store_is_503_and_keeps_what_it_has(store_file: Path) -> None:
    """When there is no room left, messages are refused whole, and what is stored stays readable."""
    writer = Writer(store_file, max_bytes=200_000)
    source = StoreSource(store_file)
    client = TestClient(create_app(writer, source, address="", names=["testserver"]))
    stored: list[str] = []
    for _ in range(100):
        run = sample_runs.triage()
        answer = post(client, sample_messages.protobuf(run))
        if answer.status_code != 200:
            break
        stored.append(run.trace_id)
    assert 503 == answer.status_code
    assert "is full" in Status.FromString(answer.content).message
    assert sorted(stored) == sorted(traces(client))
    assert 200 == client.get(f"/runs/{stored[0]}").status_code
    source.close()
    writer.close()


def test_other_methods_are_refused(http: httpx.Client) -> None:
    """Only POST sends."""
    assert 405 == http.get("/v1/traces").status_code
    assert 404 == post(http, b"", path="/v1/profiles").status_code


def test_concurrent_exporters_lose_nothing(http: httpx.Client, server: Running) -> None:
    """Messages that arrive at the same time are all stored, each run whole."""
    runs = [sample_runs.triage() for _ in range(40)]
    statuses: list[int] = []

    def send(some: list[sample_runs.Sample]) -> None:
        with httpx.Client(base_url=server.address, timeout=30, trust_env=False) as client:
            for run in some:
                message = ExportTraceServiceRequest.FromString(sample_messages.protobuf(run))
                for part in message.resource_spans[0].scope_spans:
                    half = ExportTraceServiceRequest()
                    resource_spans = half.resource_spans.add()
                    resource_spans.resource.CopyFrom(message.resource_spans[0].resource)
                    resource_spans.scope_spans.add().CopyFrom(part)
                    statuses.append(post(client, half.SerializeToString()).status_code)

    threads = [threading.Thread(target=send, args=(runs[first::4],)) for first in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {200} == set(statuses)
    listed = http.get("/api/runs", params={"limit": 1000}).json()["runs"]
    assert {(run.trace_id, len(run.spans)) for run in runs} == {
        (each["trace_id"], each["spans"]) for each in listed
    }


def test_json_bodies_with_unknown_keys_are_taken(http: httpx.Client) -> None:
    """Fields of later OTLP versions are skipped."""
    document = sample_messages.document(sample_runs.running())
    document["entityRefs"] = [{"x": 1}]
    document["resourceSpans"][0]["resource"]["entityRefs"] = []
    assert 200 == post(http, json.dumps(document).encode(), JSON).status_code
