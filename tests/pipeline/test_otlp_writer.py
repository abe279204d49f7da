"""The OTLP writer: the stock encoder's message, for anything a span can be."""

from __future__ import annotations

import math
import os
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import (
    Link,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    TraceState,
)

from clew import _guard, semconv
from clew.pipeline import otlp_http, otlp_writer
from clew.pipeline.exporters import from_environment
from clew.pipeline.light import LightSpan
from clew.pipeline.otlp_http import FastOTLPSpanExporter
from clew.testing import LoopbackServer, OtlpSink, ReceivedRequest
from clew.testing.loopback import Connection

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
keys = st.one_of(st.sampled_from(sorted(semconv.RULES)), texts.filter(bool))
scalars = st.one_of(
    st.none(),
    st.booleans(),
    texts,
    st.text(st.characters(exclude_categories=["Cs"]), min_size=100, max_size=300),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False),
    st.binary(max_size=40),
)
values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=4).map(tuple),
        st.dictionaries(texts, inner, max_size=3),
    ),
    max_leaves=8,
)
attributes = st.dictionaries(keys, values, max_size=8)
ids = st.builds(
    SpanContext,
    st.integers(1, 2**128 - 1),
    st.integers(1, 2**64 - 1),
    st.booleans(),
    st.sampled_from([TraceFlags(0), TraceFlags(1)]),
    st.sampled_from([None, TraceState(), TraceState([("ot", "rv:0123"), ("v", "1")])]),
)
times = st.integers(0, 2**64 - 1)
events = st.builds(Event, texts, attributes, times)
links = st.builds(Link, ids, attributes)
schemas = st.sampled_from(["", "https://opentelemetry.io/schemas/1.30.0"])
resources = st.builds(Resource, st.dictionaries(keys, scalars, max_size=3), schemas)
scopes = st.one_of(
    st.none(),
    st.builds(InstrumentationScope, texts, st.one_of(st.none(), texts), schemas, attributes),
)


@st.composite
def some_spans(draw: st.DrawFn) -> list[ReadableSpan]:
    """Draw spans that share a few resources and scopes."""
    held = draw(st.lists(resources, min_size=1, max_size=2))
    made = draw(st.lists(scopes, min_size=1, max_size=3))
    return [
        ReadableSpan(
            name=draw(texts),
            context=draw(ids),
            parent=draw(st.one_of(st.none(), ids)),
            resource=draw(st.sampled_from(held)),
            attributes=draw(attributes),
            events=draw(st.lists(events, max_size=2)),
            links=draw(st.lists(links, max_size=2)),
            kind=draw(st.sampled_from(list(SpanKind))),
            status=draw(
                st.one_of(
                    st.sampled_from([Status(code) for code in StatusCode]),
                    texts.map(lambda text: Status(StatusCode.ERROR, text)),
                )
            ),
            start_time=draw(times),
            end_time=draw(times),
            instrumentation_scope=draw(st.sampled_from(made)),
        )
        for _ in range(draw(st.integers(1, 4)))
    ]


@hypothesis.given(some_spans())
@hypothesis.settings(max_examples=1000 if os.environ.get("CI") else 200)
def test_the_message_is_the_stock_encoders(spans: list[ReadableSpan]) -> None:
    """Every type of attribute, event, link, status, resource and scope, byte for byte alike."""
    expected = encode_spans(spans)
    written = otlp_writer.encode(spans)
    assert ExportTraceServiceRequest.FromString(written) == expected
    assert written == expected.SerializeToString()


class Maker:
    """What light spans of one provider share."""

    def __init__(self, resource: Resource, scope: InstrumentationScope) -> None:
        self.resource = resource
        self.scope = scope


MAKERS = [Maker(Resource({"service.name": name}), InstrumentationScope("clew")) for name in "xy"]


@st.composite
def some_light_spans(draw: st.DrawFn) -> list[LightSpan]:
    """Draw spans of ours, some with what few have."""
    made: list[LightSpan] = []
    for _ in range(draw(st.integers(1, 4))):
        maker: Any = draw(st.sampled_from(MAKERS))
        parent = draw(st.one_of(st.none(), ids))
        span = LightSpan(
            draw(texts),
            parent,
            draw(st.sampled_from(list(SpanKind))),
            draw(attributes),
            draw(times),
            maker,
        )
        if parent is None or draw(st.booleans()):
            span._made = draw(ids)
            span.span_id = span._made.span_id
        span._events = draw(st.lists(events, max_size=1))
        span._links = draw(st.lists(links, max_size=1))
        span._status = Status(draw(st.sampled_from(list(StatusCode))))
        span._end_time = draw(times)
        made.append(span)
    return made


@hypothesis.given(some_light_spans(), some_spans())
@hypothesis.settings(max_examples=1000 if os.environ.get("CI") else 200)
def test_spans_of_ours_are_written_like_all_others(
    light: list[LightSpan], others: list[ReadableSpan]
) -> None:
    """The shorter way of writing them says the same, also between spans of other libraries."""
    spans = [*light[:2], *others, *light[2:]]
    expected = encode_spans(spans)
    written = otlp_writer.encode(spans)
    assert ExportTraceServiceRequest.FromString(written) == expected


def span(**facts: Any) -> ReadableSpan:
    """Return a span with these facts."""
    return ReadableSpan(
        **{
            "name": "chat",
            "context": SpanContext(1, 2, is_remote=False),
            "resource": Resource({"service.name": "x"}),
            "instrumentation_scope": InstrumentationScope("clew"),
            "start_time": 1,
            "end_time": 2,
            **facts,
        }
    )


def sent(*spans: ReadableSpan) -> list[Any]:
    """Return the spans of what was written."""
    request = ExportTraceServiceRequest.FromString(otlp_writer.encode(spans))
    return [
        each
        for resource in request.resource_spans
        for scope in resource.scope_spans
        for each in scope.spans
    ]


class Odd:
    """Nothing that OTLP can say; its repr must never be asked."""

    def __repr__(self) -> str:
        raise AssertionError("asked for its repr")


@pytest.mark.parametrize(
    "value",
    [2**63, -(2**63) - 1, "half \ud83d", ["ok", "\ud83d"], Odd(), [Odd()], {"k": Odd()}, {1, 2}],
)
def test_a_bad_value_costs_itself_alone(value: Any) -> None:
    """The span, and its other attributes, leave."""
    (found,) = sent(span(attributes={"a": 1, "bad": value, "z": "last"}))
    assert [each.key for each in found.attributes] == ["a", "z"]


def test_odd_numbers_leave_as_they_are() -> None:
    """NaN and infinities have a form in OTLP."""
    (found,) = sent(span(attributes={"nan": math.nan, "inf": math.inf}))
    assert math.isnan(found.attributes[0].value.double_value)
    assert found.attributes[1].value.double_value == math.inf


def test_deep_and_endless_values_cost_themselves_alone() -> None:
    """A list that holds itself, and one of a hundred floors."""
    endless: list[Any] = []
    endless.append(endless)
    deep: Any = 1
    for _ in range(100):
        deep = [deep]
    (found,) = sent(span(attributes={"endless": endless, "deep": deep, "z": 1}))
    assert [each.key for each in found.attributes] == ["z"]


def test_a_span_that_cannot_be_written_costs_itself_alone() -> None:
    """The others of its batch leave; the fault is counted."""
    broken = span(name="\ud83d")
    assert [each.name for each in sent(span(), broken, span())] == ["chat", "chat"]
    assert dict(_guard.failures) == {"write a span": 1}


def test_equal_texts_under_other_keys_and_places_stay_apart() -> None:
    """What is remembered of an attribute on a span serves no other place wrongly."""
    attributes = {semconv.TOOL_NAME: "search", semconv.AGENT_NAME: "search"}
    event = Event("search", attributes, 1)
    for _ in range(2):
        spans = [span(attributes=attributes, events=[event], resource=Resource(attributes))]
        assert otlp_writer.encode(spans) == encode_spans(spans).SerializeToString()


def test_lists_that_are_equal_keep_their_types() -> None:
    """Under keys whose lists come again and again, too; what has no hash is written as well."""
    key = semconv.RESPONSE_FINISH_REASONS
    for value in [("stop",), (1,), (True,), (1.0,), ([1], "stop"), ("stop",), (), ("\u00e9" * 9,)]:
        spans = [span(attributes={key: value})]
        assert otlp_writer.encode(spans) == encode_spans(spans).SerializeToString()


def test_bools_ints_and_floats_that_are_equal_keep_their_types() -> None:
    """1, 1.0 and True are three values."""
    spans = [span(attributes={"a": 1, "b": 1.0, "c": True, "d": [1, 1.0, True]})]
    assert otlp_writer.encode(spans) == encode_spans(spans).SerializeToString()


def exporter(url: str, **more: Any) -> FastOTLPSpanExporter:
    """Return an exporter to a loopback address."""
    import requests

    session = requests.Session()
    session.trust_env = False
    return FastOTLPSpanExporter(endpoint=f"{url}/v1/traces", session=session, timeout=5, **more)


def test_it_is_what_configure_uses(monkeypatch: pytest.MonkeyPatch) -> None:
    """For OTLP over HTTP; the stock exporter by a setting, and for gRPC."""
    (found,) = from_environment({})
    assert type(found) is FastOTLPSpanExporter
    (found,) = from_environment({}, stock_encoder=True)
    assert type(found) is otlp_http.stock.OTLPSpanExporter
    (found,) = from_environment({"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"})
    assert not isinstance(found, otlp_http.stock.OTLPSpanExporter)


@pytest.mark.parametrize("compression", ["none", "gzip", "deflate"])
def test_it_exports_like_the_stock_one(compression: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Headers and compression by the environment's variables."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", compression)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-tenant=acme")
    with Refusing([]) as server:
        result = exporter(server.base_url).export([span()])
    assert result is SpanExportResult.SUCCESS
    ((headers, body),) = server.received
    assert headers["x-tenant"] == "acme"
    assert headers.get("content-encoding", "none") == compression
    assert ExportTraceServiceRequest.FromString(body) == encode_spans([span()])


class Refusing(LoopbackServer):
    """An OTLP receiver that answers as it is told, and takes no more than so many bytes."""

    def __init__(self, statuses: list[int], most: int = 1 << 30, answer: bytes = b"") -> None:
        super().__init__()
        self.statuses = statuses
        self.most = most
        self.answer = answer
        self.received: list[tuple[dict[str, str], bytes]] = []
        self.asked = 0

    def respond(self, request: ReceivedRequest, connection: Connection) -> None:
        import zlib

        self.asked += 1
        headers = {name.lower(): value for name, value in request.headers}
        body = request.content()
        if headers.get("content-encoding") == "deflate":
            body = zlib.decompress(body)
        status = self.statuses.pop(0) if self.statuses else 200
        if len(body) > self.most:
            status = 413
        if status == 200:
            self.received.append((headers, body))
        answer = self.answer if status == 200 else b""
        more = {"content-type": "application/x-protobuf"}
        if status in (429, 503):
            more["retry-after"] = "0"
        connection.head(status, more, len(answer))
        connection.send(answer)

    def names(self) -> list[str]:
        """Return the names of the spans that were taken."""
        return [
            each.name
            for _, body in self.received
            for resource in ExportTraceServiceRequest.FromString(body).resource_spans
            for scope in resource.scope_spans
            for each in scope.spans
        ]


@pytest.mark.parametrize("status", [429, 503])
def test_a_receiver_that_is_busy_is_asked_again(status: int) -> None:
    """After the time that it asks for; each span arrives once."""
    with Refusing([status]) as server:
        assert exporter(server.base_url).export([span()]) is SpanExportResult.SUCCESS
    assert (server.asked, server.names()) == (2, ["chat"])


def test_one_large_span_costs_no_other(caplog: pytest.LogCaptureFixture) -> None:
    """199 arrive whole; the large one arrives with its tokens, its long text cut and counted."""
    large = span(
        name="large",
        attributes={semconv.INPUT_MESSAGES: "x" * 2_000_000, semconv.USAGE_INPUT: 7},
    )
    spans = [span(name=f"s{number}") for number in range(199)]
    with Refusing([], most=400_000) as server:
        one = exporter(server.base_url)
        result = one.export([*spans[:70], large, *spans[70:]])
    assert result is SpanExportResult.SUCCESS
    assert sorted(server.names()) == sorted(["large", *(each.name for each in spans)])
    assert one.cut == 1
    found = next(
        each
        for _, body in server.received
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans
        for scope in resource.scope_spans
        for each in scope.spans
        if each.name == "large"
    )
    assert [(each.key, each.value.int_value) for each in found.attributes] == [
        (semconv.USAGE_INPUT, 7)
    ]
    assert found.dropped_attributes_count == 1
    assert "xxx" not in caplog.text


def test_a_batch_above_the_own_limit_is_sent_in_halves() -> None:
    """The exporter's `max_request_size` loses nothing either."""
    spans = [span(name=f"s{number}", attributes={"k": "x" * 500}) for number in range(16)]
    with Refusing([]) as server:
        one = exporter(server.base_url, max_request_size=3_000)
        assert one.export(spans) is SpanExportResult.SUCCESS
    assert server.names() == [each.name for each in spans]
    assert all(len(body) <= 3_000 for _, body in server.received)


def test_partial_success_is_counted(caplog: pytest.LogCaptureFixture) -> None:
    """What the receiver did not take is lost, and said once."""
    answer = ExportTraceServiceResponse()
    answer.partial_success.rejected_spans = 3
    with Refusing([], answer=answer.SerializeToString()) as server:
        one = exporter(server.base_url)
        assert one.export([span()] * 5) is SpanExportResult.SUCCESS
        assert one.export([span()] * 5) is SpanExportResult.SUCCESS
    assert one.rejected == 6
    assert caplog.text.count("did not take 3 spans") == 1


def test_an_answer_that_is_no_message_harms_nothing() -> None:
    """The spans were taken."""
    with Refusing([], answer=b"\xff\xff") as server:
        assert exporter(server.base_url).export([span()]) is SpanExportResult.SUCCESS
    assert dict(_guard.failures) == {"read an OTLP answer": 1}


def test_a_stock_exporter_that_works_otherwise_is_left_alone() -> None:
    """Without the parts that are used the stock encoder does the work."""
    with OtlpSink() as sink:
        one = exporter(sink.base_url)
        one.usable = False
        assert one.export([span()]) is SpanExportResult.SUCCESS
        assert [each.name for each in sink.spans] == ["chat"]
    one.shutdown()
    assert one.export([span()]) is SpanExportResult.FAILURE
