"""Whether spans arrive: a test span is sent, and read back where a source is given."""

from __future__ import annotations

import logging
import os
import re
import socket
import ssl
import time
from collections.abc import Iterator, Mapping
from email.utils import parsedate_to_datetime
from typing import Any, Final, Self
from urllib.parse import urlsplit, urlunsplit

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, TraceFlags

from clew import ids, semconv
from clew.doctor import over_grpc
from clew.doctor.findings import Finding, note, ok, problem, warning
from clew.errors import ClewError
from clew.pipeline import exporters
from clew.pipeline.otlp_sending import Answer, Sending
from clew.settings import Settings
from clew.sources import RunNotFoundError, open_source
from clew.store.records import SpanRecord

TIMEOUT_S: Final = 5.0
"""Seconds that a receiver has to answer."""
_SKEW_S: Final = 3.0
_GREAT_SKEW_S: Final = 60.0
_GRPC_PORT: Final = 4317
_HTTP_PORT: Final = 4318
_NAME: Final = "clew_doctor"
_BUNDLES: Final = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
"""Variables that `requests` prefers to the exporter's own."""
_NO_HTTP: Final = frozenset(
    {"BadStatusLine", "ConnectionResetError", "ProtocolError", "RemoteDisconnected"}
)
_GRPC_STATUS: Final = re.compile(r"StatusCode\.([A-Z_]+)")


def span_to_send(service: str | None) -> ReadableSpan:
    """Return a span with attributes of Clew's and a trace id as runs have."""
    now = time.time_ns()
    return ReadableSpan(
        name=f"invoke_agent {_NAME}",
        context=SpanContext(
            ids.fresh_run_id().int, ids.random_64(), is_remote=False, trace_flags=TraceFlags(1)
        ),
        resource=Resource({"service.name": service or _NAME}),
        attributes={semconv.AGENT_NAME: _NAME, semconv.SEGMENT: 1, semconv.SEQ: 1},
        kind=SpanKind.INTERNAL,
        start_time=now - 1_000_000,
        end_time=now,
        instrumentation_scope=InstrumentationScope(f"{semconv.SCOPE}.doctor"),
    )


def examine(
    settings: Settings,
    environ: Mapping[str, str],
    chosen: list[SpanExporter] | None,
    source: str | None,
    wait_s: float,
) -> Iterator[Finding]:
    """Send a span through each exporter, and look for it in a source.

    Args:
        settings: those in force.
        environ: the environment.
        chosen: the exporters of the process; None: those that the environment names.
        source: where to read it back from, as `open_source` takes it.
        wait_s: seconds that it may take to get there.
    """
    own = chosen is None
    if chosen is None:
        try:
            stock = settings.otlp_encoder == "stock"
            chosen = exporters.from_environment(environ, stock_encoder=stock)
        except ClewError as error:
            yield problem("exporter", f"clew.configure() would fail: {error}")
            return
    span = span_to_send(settings.service_name)
    arrived = False
    for exporter in chosen:
        if isinstance(exporter, Sending):
            found = list(_asked(exporter, span))
        else:
            found = list(_through(exporter, span))
        yield from found
        arrived = arrived or any(each.check == "exporter" and each.level == "ok" for each in found)
        if own:
            exporter.shutdown()
    if source is None:
        yield note(
            "read back",
            "It was not looked whether the span can be read back",
            "Give --source: a file, store://, jaeger://HOST:PORT, ...",
        )
    elif arrived:
        yield from _read_back(span, source, wait_s)


def _asked(exporter: Sending, span: ReadableSpan) -> Iterator[Finding]:
    where = without_secrets(exporter.endpoint)
    before = time.time()
    answer = exporter.ask([span], TIMEOUT_S)
    middle = (before + time.time()) / 2
    if answer.taken and not exporter.rejected:
        took_ms = round((time.time() - before) * 1000)
        yield ok("exporter", f"{where} took a test span ({took_ms} ms)", endpoint=where)
    else:
        yield _refused(where, answer, rejected=bool(exporter.rejected))
    yield from _clock(where, answer.date, middle)


def _refused(where: str, answer: Answer, *, rejected: bool) -> Finding:
    facts: dict[str, Any] = {"endpoint": where, "status": answer.status or answer.code}
    if rejected:
        return problem(
            "exporter",
            f"{where} answered, but did not take the test span (partial success)",
            "Its log says why",
            **facts,
        )
    if answer.code is not None:
        reason, advice = over_grpc.reason_of(answer, where, TIMEOUT_S)
        return problem("exporter", f"{where}: {reason}", advice, **facts)
    if answer.status is None:
        reason, advice = reason_of(answer.error, where)
        return problem("exporter", f"{where}: {reason}", advice, **facts)
    advice = {
        401: "Give the credentials in OTEL_EXPORTER_OTLP_HEADERS",
        403: "Give the credentials in OTEL_EXPORTER_OTLP_HEADERS",
        404: "Nothing takes OTLP at this address: a base address in "
        "OTEL_EXPORTER_OTLP_ENDPOINT gets /v1/traces added, one in "
        "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT does not",
        405: "Nothing takes OTLP at this address",
        413: "The receiver's limit is very low: not even one span is small enough",
        415: "The receiver does not take OTLP as protobuf",
        429: "The receiver is overloaded: batches wait, and are lost if that lasts "
        "(CLEW_SPOOL_DIR keeps them on the disk)",
        503: "The receiver is not ready: batches wait, and are lost if that lasts "
        "(CLEW_SPOOL_DIR keeps them on the disk)",
    }.get(answer.status, "The receiver's log says why")
    if 300 <= answer.status < 400:
        advice = "Redirects are not followed: give the address that it points to"
    return problem("exporter", f"{where} answered {answer.status}", advice, **facts)


def reason_of(error: BaseException | None, where: str) -> tuple[str, str]:
    """Say in plain words why there was no answer, and what to do."""
    parts = urlsplit(where)
    if parts.scheme not in ("http", "https"):
        return "it is no address of HTTP", f"Write its scheme, too: http://{where}"
    for cause in _causes(error):
        if isinstance(cause, socket.gaierror) or type(cause).__name__ == "NameResolutionError":
            return f"nobody knows the name {parts.hostname} (DNS)", "Correct the host name"
        if isinstance(cause, ConnectionRefusedError):
            advice = "Start the collector, or correct the address and port"
            if parts.port == _GRPC_PORT:
                advice += f"; OTLP over HTTP is usually at port {_HTTP_PORT}"
            return "nobody listens there", advice
        if isinstance(cause, ssl.SSLCertVerificationError):
            advice = "Name the authority in OTEL_EXPORTER_OTLP_CERTIFICATE"
            set_ = [name for name in _BUNDLES if os.environ.get(name)]
            if set_:
                advice = f"{set_[0]} is set and wins: have that file include the authority"
            return f"its certificate is not trusted ({cause.verify_message})", advice
        if isinstance(cause, ssl.SSLError):
            return (
                f"TLS failed ({cause.reason or 'no reason given'})",
                "Does it speak TLS there? Try http:// in place of https://, or the reverse",
            )
    for cause in _causes(error):
        if isinstance(cause, TimeoutError) or "Timeout" in type(cause).__name__:
            advice = "Look for a firewall between, or for another protocol at that port"
            return f"no answer within {TIMEOUT_S:g} s", advice
    if parts.port == _GRPC_PORT:
        advice = f"Set OTEL_EXPORTER_OTLP_PROTOCOL=grpc, or use port {_HTTP_PORT}"
        return f"the answer is no HTTP, and port {_GRPC_PORT} is usually OTLP over gRPC", advice
    if any(type(cause).__name__ in _NO_HTTP for cause in _causes(error)):
        advice = "If it takes OTLP over gRPC, set OTEL_EXPORTER_OTLP_PROTOCOL=grpc"
        return (
            "it closes the connection, or its answer is no HTTP",
            f"{advice}; if it wants TLS, use https://",
        )
    name = type(error).__name__ if error is not None else "no reason given"
    return f"the request failed ({name})", "The receiver's log may say why"


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """Give an error and all that stands behind it."""
    waiting, seen = [error], set[int]()
    while waiting:
        one = waiting.pop(0)
        if not isinstance(one, BaseException) or id(one) in seen:
            continue
        seen.add(id(one))
        yield one
        waiting += [one.__cause__, one.__context__, getattr(one, "reason", None), *one.args]


def _clock(where: str, date: str | None, middle: float) -> Iterator[Finding]:
    if date is None:
        return
    try:
        theirs = parsedate_to_datetime(date).timestamp() + 0.5  # whole seconds, cut off
    except (ValueError, TypeError):
        return
    skew = middle - theirs
    facts = {"skew_s": round(skew, 1)}
    if abs(skew) <= _SKEW_S:
        yield ok("clock", f"The clock agrees with that of {where}, as far as it tells", **facts)
        return
    found = problem if abs(skew) >= _GREAT_SKEW_S else warning
    side = "ahead of" if skew > 0 else "behind"
    yield found(
        "clock",
        f"The clock is {abs(skew):.0f} s {side} that of {where}",
        "Runs appear at wrong times, and not at all where a list looks back from now: "
        "synchronise both clocks (NTP)",
        **facts,
    )


def _through(exporter: SpanExporter, span: ReadableSpan) -> Iterator[Finding]:
    """Send a span through an exporter of which only the result is known."""
    kind = type(exporter).__name__
    with _Heard() as heard:
        try:
            result: Any = exporter.export([span])
            sent = getattr(result, "value", 0) == 0
        except Exception as error:
            yield problem("exporter", f"{kind} raises {type(error).__name__}")
            return
    if sent:
        yield ok("exporter", f"{kind} took a test span", exporter=kind)
        return
    status = _GRPC_STATUS.search(heard.text())
    advice = "Its log says why"
    if status is not None and status[1] == "UNAVAILABLE":
        advice = "Start the collector, or correct the address: OTLP over gRPC is at port 4317"
    yield problem(
        "exporter",
        f"{kind} could not deliver a test span ({status[1] if status else 'no reason given'})",
        advice,
        exporter=kind,
    )


class _Heard(logging.Handler):
    """Listens to what exporters log, which is all that some say."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self._lines: list[str] = []
        self._logger = logging.getLogger("opentelemetry.exporter")

    def emit(self, record: logging.LogRecord) -> None:
        self._lines.append(record.getMessage())

    def text(self) -> str:
        return "\n".join(self._lines)

    def __enter__(self) -> Self:
        self._logger.addHandler(self)
        return self

    def __exit__(self, *_: object) -> None:
        self._logger.removeHandler(self)


def _read_back(span: ReadableSpan, source: str, wait_s: float) -> Iterator[Finding]:
    trace_id = f"{span.get_span_context().trace_id:032x}"  # type: ignore[union-attr]
    began = time.monotonic()
    failure: str | None = None
    while True:
        try:
            with open_source(source) as opened:
                record = opened.run(trace_id)
            break
        except RunNotFoundError:
            failure = None
        except ClewError as error:
            failure = str(error)
        if time.monotonic() - began >= wait_s:
            if failure is not None:
                yield problem("read back", failure, "Correct --source")
            else:
                yield problem(
                    "read back",
                    f"The test span did not get to the source within {wait_s:g} s",
                    "Something between drops it: a sampler or a filter in the collector, another "
                    "backend than the one that is read, or a long batch (--wait)",
                )
            return
        time.sleep(0.2)
    yield _compared(span, record.spans[0], time.monotonic() - began)


def _compared(sent: ReadableSpan, found: SpanRecord, seconds: float) -> Finding:
    lost = sorted(key for key in (sent.attributes or {}) if key not in found.attributes)
    if lost:
        return problem(
            "read back",
            f"The test span came back without {', '.join(lost)}",
            "A processor in the collector drops these attributes: use the allow-list that "
            "`clew collector-config` writes",
            lost=lost,
        )
    if sent.start_time is not None and abs(found.start_ns - sent.start_time) >= 1000:
        return warning("read back", "The test span came back with another time")
    return ok("read back", f"The test span was read back whole after {seconds:.1f} s")


def without_secrets(url: str) -> str:
    """Return an address without a user, a password or a query."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))
