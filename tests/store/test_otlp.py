"""Reading OTLP: protobuf and JSON mean the same, and nothing but OTLP is read."""

# ruff: noqa: SIM300 - expected == actual, in this order
from __future__ import annotations

import json
import math
from typing import Any

import pytest
import sample_messages
import sample_runs
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from clew.store import otlp_export, otlp_json, otlp_protobuf
from clew.store.otlp import OtlpError

SAMPLES = [
    sample_runs.triage,
    sample_runs.suspended,
    sample_runs.failed,
    sample_runs.running,
    sample_runs.foreign,
]

scalars = (
    st.text(st.characters(codec="utf-8"), max_size=20)
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.binary(max_size=12)
)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(st.characters(codec="utf-8"), max_size=5), inner, max_size=3)
    ),
    max_leaves=6,
)


def one_span(**changes: Any) -> dict[str, Any]:
    span = {
        "traceId": "5b8efff798038103d269b633813fc60c",
        "spanId": "eee19b7ec3c1b174",
        "name": "x",
        "startTimeUnixNano": "10",
        "endTimeUnixNano": "20",
        **changes,
    }
    return {"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}


@pytest.mark.parametrize("make", SAMPLES)
def test_both_encodings_give_the_same_records(make: Any) -> None:
    """A run sent as protobuf and as JSON is read as the same records."""
    run = make("0a1b2c3d-0000-4000-8000-000000000001")
    from_protobuf = otlp_protobuf.decode(sample_messages.protobuf(run))
    assert len(run.spans) == len(from_protobuf.spans)
    assert from_protobuf == otlp_json.decode(sample_messages.otlp_json(run))


@given(attributes=st.dictionaries(st.text(st.characters(codec="utf-8"), max_size=8), values))
def test_every_kind_of_attribute_survives_every_encoding(attributes: dict[str, Any]) -> None:
    """Attributes of any type mean the same in protobuf, in JSON and after being written again."""
    run = sample_runs.Sample("0a1b2c3d-0000-4000-8000-000000000001")
    run.add("x", 0, 1, None, attributes, identity=False)
    records = sample_messages.spans_of(run)
    assert records == otlp_json.decode(sample_messages.otlp_json(run)).spans
    assert records == otlp_json.decode(otlp_export.encode(records)).spans


@pytest.mark.parametrize("make", SAMPLES)
def test_a_written_document_reads_back_the_same(make: Any) -> None:
    """Export and import lose nothing: times, events, links, resource, scope and flags included."""
    spans = sample_messages.spans_of(make())
    again = otlp_json.decode(otlp_export.encode(spans)).spans
    assert {each.span_id: each for each in spans} == {each.span_id: each for each in again}


@pytest.mark.parametrize(
    ("sent", "stored"),
    [
        (math.nan, {"doubleValue": "NaN"}),
        (math.inf, {"doubleValue": "Infinity"}),
        (-math.inf, {"doubleValue": "-Infinity"}),
        (1.0, 1.0),
        (b"\x00\xff", {"bytesValue": "AP8="}),
        ({"a": 1}, {"kvlistValue": {"a": 1}}),
        (None, None),
    ],
)
def test_values_that_json_cannot_say_are_kept(sent: Any, stored: Any) -> None:
    """Non-finite doubles, bytes and maps become objects with one key; a double stays a double."""
    run = sample_runs.Sample()
    run.add("x", 0, 1, None, {"k": sent}, identity=False)
    (span,) = sample_messages.spans_of(run)
    assert (stored, type(stored)) == (span.attributes["k"], type(span.attributes["k"]))
    assert (span,) == otlp_json.decode(otlp_export.encode([span])).spans


@pytest.mark.parametrize(
    "types",
    [
        [
            ("invoke_agent triage", "run"),
            ("run_started triage", "event"),
            ("decide guardrail_input", "decision"),
            ("chat gpt-5-mini", "round"),
            ("POST", "foreign"),
            ("execute_tool search_orders", "tool"),
            ("invoke_agent researcher", "agent"),
            ("run_sealed triage", "event"),
        ]
    ],
)
def test_types_follow_from_the_attributes(types: list[tuple[str, str]]) -> None:
    """Each span of a run is recognised for what it stands for."""
    spans = sample_messages.spans_of(sample_runs.triage())
    found = {each.name: each.type for each in spans}
    assert types == [(name, found[name]) for name, _ in types]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"nonsense",
        b"[]",
        b"{}",
        b'{"resourceSpans": 3}',
        b'{"resourceSpans": [{"scopeSpans": [{"spans": [{"traceId": 5}]}]}]}',
        b'{"resourceSpans": []} trailing',
        b'\xff\xfe{"resourceSpans": []}',
        b'{"resourceSpans": [' + b"[" * 100_000,
        json.dumps(one_span(startTimeUnixNano="1_0")).encode(),
        json.dumps(one_span(startTimeUnixNano="ten")).encode(),
        json.dumps(one_span(attributes=[{"key": "a", "value": {"intValue": str(2**63)}}])).encode(),
        json.dumps(one_span(attributes=[{"key": "a", "value": {"bytesValue": "%"}}])).encode(),
        json.dumps(one_span(attributes=[{"key": "a", "value": {"otherValue": 1}}])).encode(),
        json.dumps(one_span(attributes=[{"key": "a", "value": {"doubleValue": "1/0"}}])).encode(),
        json.dumps(one_span(attributes=[{"key": "a", "value": {"arrayValue": [1]}}])).encode(),
    ],
)
def test_what_is_not_otlp_json_is_refused(body: bytes) -> None:
    """Anything but an OTLP document raises `OtlpError`, never another exception."""
    with pytest.raises(OtlpError, match="OTLP"):
        otlp_json.decode(body)


@given(body=st.binary(max_size=200))
def test_any_bytes_give_records_or_an_otlp_error(body: bytes) -> None:
    """No bytes whatsoever raise anything but `OtlpError`."""
    for decode in (otlp_protobuf.decode, otlp_json.decode):
        try:
            decode(body)
        except OtlpError as error:
            assert "OTLP" in str(error)  # noqa: PT017 - both outcomes are right


def test_the_nesting_of_values_is_bounded() -> None:
    """A value nested beyond the bound is refused in both encodings, without deep recursion."""
    value: Any = 1
    for _ in range(40):
        value = [value]
    run = sample_runs.Sample()
    run.add("x", 0, 1, None, {"deep": value}, identity=False)
    with pytest.raises(OtlpError, match="nested"):
        otlp_protobuf.decode(sample_messages.protobuf(run))
    with pytest.raises(OtlpError, match="nested"):
        otlp_json.decode(sample_messages.otlp_json(run))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"traceId": "00" * 16}, "trace id"),
        ({"traceId": "zz" * 16}, "trace id"),
        ({"traceId": ""}, "trace id"),
        ({"spanId": "00" * 8}, "span id"),
        ({"spanId": "abc"}, "span id"),
        ({"parentSpanId": "abc"}, "parent id"),
        ({"startTimeUnixNano": str(2**64 - 1)}, "time"),
        ({"endTimeUnixNano": -1}, "time"),
    ],
)
def test_impossible_spans_are_rejected_alone(changes: dict[str, Any], reason: str) -> None:
    """A span without valid ids or times is counted as rejected; the message is still read."""
    batch = otlp_json.decode(json.dumps(one_span(**changes)))
    assert ((), 1) == (batch.spans, batch.rejected)
    assert reason in batch.reason


def test_protobuf_spans_without_ids_are_rejected() -> None:
    """The same rule holds for protobuf."""
    request = ExportTraceServiceRequest()
    request.resource_spans.add().scope_spans.add().spans.add(name="no ids")
    batch = otlp_protobuf.decode(request.SerializeToString())
    assert ((), 1) == (batch.spans, batch.rejected)


def test_metrics_and_logs_in_json_are_no_spans() -> None:
    """A line of metrics or logs, as a collector's file has them, is an empty batch."""
    assert () == otlp_json.decode('{"resourceMetrics": [{"resource": {}}]}').spans
    assert () == otlp_json.decode('{"resourceLogs": []}').spans


def test_numbers_and_names_are_read_too() -> None:
    """Senders that write integers as numbers and enums by name are understood."""
    batch = otlp_json.decode(
        json.dumps(
            one_span(
                startTimeUnixNano=10,
                kind="SPAN_KIND_CLIENT",
                status={"code": "STATUS_CODE_ERROR"},
                attributes=[{"key": "n", "value": {"intValue": 5}}],
                unknownKey={"x": []},
            )
        )
    )
    (span,) = batch.spans
    assert (10, 3, 2, {"n": 5}) == (span.start_ns, span.kind, span.status, span.attributes)


@pytest.mark.parametrize(
    ("sent", "read"),
    [
        (["allow", "deny"], ["allow", "deny"]),
        (["deny", "deny"], "deny"),
        ([1, "1", 1], [1, "1"]),
        ([True, 1], [True, 1]),
        ([None, "x"], [None, "x"]),
    ],
)
def test_a_key_that_stands_twice_has_all_its_values(sent: list[Any], read: Any) -> None:
    """Readers differ on which of two values counts: where they differ, neither does."""
    request = ExportTraceServiceRequest()
    span = (
        request.resource_spans.add()
        .scope_spans.add()
        .spans.add(
            trace_id=b"1" * 16, span_id=b"2" * 8, start_time_unix_nano=1, end_time_unix_nano=2
        )
    )
    pairs: list[dict[str, Any]] = []
    for each in sent:
        pair = span.attributes.add(key="k")
        value: dict[str, Any] = {}
        if isinstance(each, bool):
            pair.value.bool_value, value = each, {"boolValue": each}
        elif isinstance(each, int):
            pair.value.int_value, value = each, {"intValue": str(each)}
        elif each is not None:
            pair.value.string_value, value = each, {"stringValue": each}
        pairs.append({"key": "k", "value": value})
    (one,) = otlp_protobuf.decode(request.SerializeToString()).spans
    (other,) = otlp_json.decode(json.dumps(one_span(attributes=pairs))).spans
    assert {"k": read} == one.attributes == other.attributes
