"""Real set-ups in processes of their own, and what the doctor says about each."""

from __future__ import annotations

import time
from email.utils import formatdate
from pathlib import Path
from typing import Any

import pytest

from clew.testing import LoopbackServer, OtlpSink, ReceivedRequest
from clew.testing.loopback import Connection
from clew.web.server import start

GOOD = "import clew\nclew.configure('shop')\nclew.instrument()\n"


def said(found: Any, check: str, level: str) -> list[str]:
    """Return the messages of a check at a level."""
    return [each["message"] for each in found.get(check, []) if each["level"] == level]


class Answering(LoopbackServer):
    """A receiver that answers as it is told."""

    def __init__(self, status: int, headers: dict[str, str] | None = None) -> None:
        super().__init__()
        self.status, self.headers = status, headers or {}

    def respond(self, request: ReceivedRequest, connection: Connection) -> None:
        connection.head(self.status, self.headers, 0)


def test_a_set_up_in_order(doctor: Any) -> None:
    """Provider, taps and exporter are named as in order; the test span has arrived; exit code 0."""
    with OtlpSink() as sink:
        code, found = doctor(
            program=GOOD,
            imports=True,
            OTEL_EXPORTER_OTLP_ENDPOINT=sink.base_url,
            CLEW_DIGEST_KEY="k",
            OPENAI_AGENTS_DISABLE_TRACING="1",
        )
        names = [span.name for span in sink.spans]
    assert code == 0, found
    assert names == ["invoke_agent clew_doctor"]
    assert said(found, "provider", "ok") == ["Clew has made the tracer provider"]
    assert len(said(found, "exporter", "ok")) == 1
    assert any("openai" in each and "tap found" in each for each in said(found, "taps", "ok"))
    assert not said(found, "taps", "warning")
    assert said(found, "content", "ok") == [
        "No other library has its recording of content switched on"
    ]


def test_a_test_span_is_read_back_and_is_no_run(doctor: Any, tmp_path: Path) -> None:
    """From the store of `clew serve`, whole; it does not appear among the runs."""
    from clew.sources.store import StoreSource
    from clew.store.records import Page, RunFilter

    path = tmp_path / "served" / "clew.db"
    with start(port=0, store_path=path) as server:
        code, found = doctor(
            "--source", f"store://{path}", OTEL_EXPORTER_OTLP_ENDPOINT=server.address
        )
        with StoreSource(path) as source:
            runs = source.runs(RunFilter(), Page()).runs
    assert code == 0
    assert len(said(found, "read back", "ok")) == 1
    assert len(said(found, "clock", "ok")) == 1
    assert runs == ()


def test_a_span_that_does_not_get_to_the_source(doctor: Any, tmp_path: Path) -> None:
    """The receiver takes it, the source never has it."""
    path = tmp_path / "served" / "clew.db"
    with start(port=0, store_path=path), OtlpSink() as sink:
        code, found = doctor(
            *("--source", f"store://{path}", "--wait", "0.3"),
            OTEL_EXPORTER_OTLP_ENDPOINT=sink.base_url,
        )
    assert code == 1
    assert said(found, "read back", "problem") == [
        "The test span did not get to the source within 0.3 s"
    ]


@pytest.mark.parametrize(
    ("status", "words"),
    [(401, "OTEL_EXPORTER_OTLP_HEADERS"), (404, "/v1/traces"), (503, "CLEW_SPOOL_DIR")],
)
def test_a_receiver_that_refuses(doctor: Any, status: int, words: str) -> None:
    """Its answer is named, with what to do."""
    with Answering(status) as server:
        code, found = doctor(OTEL_EXPORTER_OTLP_ENDPOINT=server.base_url)
    (finding,) = found["exporter"]
    assert (code, finding["level"]) == (1, "problem")
    assert finding["message"].endswith(f"/v1/traces answered {status}")
    assert words in finding["advice"]


@pytest.mark.parametrize(
    ("endpoint", "words"),
    [
        ("http://127.0.0.1:9", "nobody listens there"),
        ("http://nowhere.invalid:4318", "nobody knows the name nowhere.invalid (DNS)"),
    ],
)
def test_a_receiver_that_cannot_be_reached(doctor: Any, endpoint: str, words: str) -> None:
    """The cause is said in plain words."""
    code, found = doctor(OTEL_EXPORTER_OTLP_ENDPOINT=endpoint)
    assert code == 1
    assert said(found, "exporter", "problem") == [f"{endpoint}/v1/traces: {words}"]


def test_tls_where_there_is_none(doctor: Any) -> None:
    """An https:// address of a plain server."""
    with OtlpSink() as sink:
        code, found = doctor(OTEL_EXPORTER_OTLP_ENDPOINT=sink.base_url.replace("http", "https"))
    assert code == 1
    (message,) = said(found, "exporter", "problem")
    assert "TLS failed" in message


def test_a_clock_that_is_wrong(doctor: Any) -> None:
    """By the receiver's header `Date`."""
    with Answering(200, {"date": formatdate(time.time() + 600, usegmt=True)}) as server:
        code, found = doctor(OTEL_EXPORTER_OTLP_ENDPOINT=server.base_url)
    (finding,) = found["clock"]
    assert (code, finding["level"]) == (1, "problem")
    assert "s behind that of" in finding["message"]
    assert abs(finding["facts"]["skew_s"] + 600) < 30


def test_a_password_in_an_address_is_not_shown(doctor: Any) -> None:
    """Neither are headers."""
    with Answering(503) as server:
        _, found = doctor(
            OTEL_EXPORTER_OTLP_ENDPOINT=server.base_url.replace("://", "://me:hunter2@"),
            OTEL_EXPORTER_OTLP_HEADERS="authorization=hunter2",
        )
    assert "hunter2" not in str(found)


def test_a_provider_that_was_there_before(doctor: Any) -> None:
    """Clew joins it: its sampler harms uuids, its processor is outside the allow-list."""
    program = """
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import TraceIdRatioBased
provider = TracerProvider(sampler=TraceIdRatioBased(0.5))
provider.add_span_processor(SimpleSpanProcessor(InMemorySpanExporter()))
trace.set_tracer_provider(provider)
import clew
clew.configure("shop")
"""
    program = program.replace(
        "SimpleSpanProcessor, InMemorySpanExporter",
        "SimpleSpanProcessor\nfrom opentelemetry.sdk.trace.export.in_memory_span_exporter "
        "import InMemorySpanExporter",
    )
    code, found = doctor("--no-send", program=program)
    assert code == 1
    assert "SimpleSpanProcessor" in said(found, "provider", "warning")[0]
    assert "fixed bits" in said(found, "sampler", "problem")[0]
    assert said(found, "taps", "warning") == ["Nothing is listened to: no round will be recorded"]


def test_a_processor_that_somebody_added(doctor: Any) -> None:
    """To Clew's own provider: what it exports is unguarded."""
    program = GOOD + (
        "from opentelemetry import trace\n"
        "from opentelemetry.sdk.trace.export import SimpleSpanProcessor, ConsoleSpanExporter\n"
        "one = SimpleSpanProcessor(ConsoleSpanExporter())\n"
        "trace.get_tracer_provider().add_span_processor(one)\n"
    )
    code, found = doctor("--no-send", program=program, CLEW_DIGEST_KEY="k")
    assert code == 0
    (message,) = said(found, "provider", "warning")
    assert "SimpleSpanProcessor" in message
    assert doctor("--no-send", "--strict", program=program)[0] == 1


def test_an_application_without_clew(doctor: Any) -> None:
    """It is told to configure."""
    code, found = doctor("--no-send", program="")
    assert code == 1
    assert said(found, "provider", "problem") == ["Clew is not configured in the application"]


def test_an_instrumentation_beside_clew(doctor: Any) -> None:
    """One that is switched on in the process is named."""
    program = GOOD + (
        "from clew.doctor import neighbours\n"
        "from opentelemetry.instrumentation.httpx import HTTPXClientInstrumentor\n"
        "HTTPXClientInstrumentor().instrument()\n"
        "neighbours._MODELS += ('httpx',)\n"  # as if it instrumented model calls
    )
    _, found = doctor("--no-send", program=program)
    assert said(found, "instrumentations", "warning") == [
        "Others instrument the same calls: opentelemetry-instrumentation-httpx"
    ]
