"""`clew policy`: the list, one value, a list file, and a file of spans."""

# ruff: noqa: SIM300 - expected == actual, in this order
from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from commands import Clew
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    SpanContext,
    StatusCode,
    TraceFlags,
    TraceState,
    set_span_in_context,
)

from clew.allow_list import AllowList
from clew.digests import Digests
from clew.pipeline import instruments
from clew.pipeline.filter import SCHEMAS, Filter
from clew.pipeline.labels import MEANINGS
from clew.testing import CaptureExporter


@pytest.fixture
def clew(clew: Clew, monkeypatch: pytest.MonkeyPatch) -> Clew:
    """The command line with a key for digests."""
    monkeypatch.setenv("CLEW_DIGEST_KEY", "a key of the tests")
    return clew


def test_show_prints_every_key_with_its_rule(clew: Clew) -> None:
    """Keys of spans, of resources and of metrics, in both forms; the JSON is a list again."""
    code, out, _ = clew("policy", "show")
    assert 0 == code
    lines = out.splitlines()
    default = AllowList.default()
    assert 1 + len(default.spans) + len(default.resource) + len(MEANINGS) == len(lines)
    data = json.loads(clew("policy", "show", "--json")[1])
    labels = data.pop("metric_labels")
    assert AllowList.from_data(data) == default
    assert {key for one in instruments.EVERY.values() for key in one.labels} == set(labels)


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("gen_ai.request.model", "gpt-4o", "keep  identifier"),
        ("gen_ai.request.model", "tell me a joke", "dropped  identifier"),
        ("clew.seq", "12", "keep  number_range"),
        ("clew.seq", "0", "dropped  number_range"),
        ("clew.run.root", "true", "keep  flag"),
        ("gen_ai.response.finish_reasons", '["stop", "odd"]', "keep  each_closed_set"),
        ("gen_ai.input.messages", "[]", "dropped  key"),
        ("gen_ai.response.id", "123", "keep  identifier"),
        ("user.id", "alice@example.com", "keep  keyed_digest"),
    ],
)
def test_explain_says_keep_or_dropped_and_the_rule(
    clew: Clew, key: str, value: str, expected: str
) -> None:
    """The verdict is what the filter would do with the same value."""
    code, out, _ = clew("policy", "explain", key, value)
    assert 0 == code
    assert out.startswith(expected)
    answer = json.loads(clew("policy", "explain", key, value, "--json")[1])
    assert tuple(expected.split("  ")) == (answer["verdict"], answer["rule"])


def test_content_is_on_the_list_only_where_the_settings_capture_it(
    clew: Clew, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The list that is shown is the one in force; its rule lets no text of yours pass."""
    assert "gen_ai.input.messages" not in clew("policy", "show")[1]
    monkeypatch.setenv("CLEW_CAPTURE", "redacted")
    assert "gen_ai.input.messages" not in clew("policy", "show")[1]
    monkeypatch.setenv("CLEW_CONTENT_TO", "spans")
    assert (
        "captured"
        == json.loads(clew("policy", "show", "--json")[1])["spans"]["gen_ai.input.messages"]["rule"]
    )
    assert clew("policy", "explain", "gen_ai.input.messages", "[]")[1].startswith(
        "dropped  captured"
    )


def test_explain_shows_what_a_value_leaves_as(clew: Clew) -> None:
    """A digest, or the catch-all, is shown in place of the value."""
    out = clew("policy", "explain", "user.id", "alice@example.com")[1]
    assert "leaves as" in out
    assert "alice" not in out


def test_explain_knows_the_rules_for_resources(clew: Clew) -> None:
    """A key may leave on a resource and not on a span."""
    assert clew("policy", "explain", "service.name", "bot")[1].startswith("dropped")
    assert clew("policy", "explain", "--resource", "service.name", "bot")[1].startswith("keep")


def test_check_names_the_mistake_and_the_replaced_rule(clew: Clew, tmp_path: Path) -> None:
    """A list file is read as `configure` would read it; replacing a default rule is said."""
    path = tmp_path / "list.json"
    path.write_text('{"spans": {"acme.plan": "flags"}}')
    code, _, err = clew("policy", "check", str(path))
    assert 1 == code
    assert "'acme.plan'" in err
    path.write_text('{"spans": {"acme.plan": "flag", "gen_ai.request.model": "identifier"}}')
    code, _, err = clew("policy", "check", str(path))
    assert 0 == code
    assert "'gen_ai.request.model' gets another rule" in err
    assert "2 keys of spans" in err


def test_check_of_the_environment(
    clew: Clew, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a file it is the configured one that is checked, and the settings."""
    assert 0 == clew("policy", "check")[0]
    monkeypatch.setenv("CLEW_ALLOW_LIST", str(tmp_path / "missing.yaml"))
    assert 1 == clew("policy", "check")[0]


def value(content: Any) -> dict[str, Any]:
    return {"intValue": str(content)} if isinstance(content, int) else {"stringValue": content}


def pairs(**attributes: Any) -> list[dict[str, Any]]:
    return [{"key": k.replace("__", "."), "value": value(v)} for k, v in attributes.items()]


def test_test_counts_what_would_leave(clew: Clew, tmp_path: Path) -> None:
    """Each place of a span is tried with the rules in force; no value is ever printed."""
    span = {
        "traceId": "11" * 16,
        "spanId": "22" * 8,
        "name": "GET /users/MARKER",
        "startTimeUnixNano": "1",
        "endTimeUnixNano": "2",
        "status": {"code": 2, "message": "MARKER"},
        "attributes": pairs(http__request__method="GET", url__full="https://a/MARKER"),
        "events": [
            {
                "name": "exception",
                "timeUnixNano": "1",
                "attributes": pairs(exception__type="ValueError", exception__message="MARKER"),
            }
        ],
        "links": [{"traceId": "33" * 16, "spanId": "44" * 8, "attributes": pairs(note="MARKER")}],
    }
    document = {
        "resourceSpans": [
            {
                "resource": {"attributes": pairs(service__name="bot", owner="MARKER")},
                "scopeSpans": [{"scope": {"name": "acme"}, "spans": [span]}],
            }
        ]
    }
    path = tmp_path / "spans.json"
    path.write_text(json.dumps(document))
    code, out, err = clew("policy", "test", str(path))
    assert 0 == code
    assert "MARKER" not in out + err
    answer = json.loads(clew("policy", "test", str(path), "--json")[1])
    dropped = {(each["place"], each["key"]): each["rule"] for each in answer["dropped"]}
    expected = {
        ("span", "(name)"): "name",
        ("span", "(status description)"): "status_description",
        ("span", "url.full"): "key",
        ("event", "exception.message"): "key",
        ("link", "note"): "key",
        ("resource", "owner"): "key",
    }
    assert expected == dropped
    kept = {(each["place"], each["key"]) for each in answer["kept"]}
    assert {("span", "http.request.method"), ("event", "exception.type")} < kept
    assert ("resource", "service.name") in kept


def test_test_of_a_file_without_spans_is_an_error(clew: Clew, tmp_path: Path) -> None:
    """An empty answer would look like a good one."""
    path = tmp_path / "spans.json"
    path.write_text('{"resourceSpans": []}')
    assert 1 == clew("policy", "test", str(path))[0]


def test_test_says_what_the_filter_does(clew: Clew, tmp_path: Path) -> None:
    """For awkward spans, of every place, at both sides of the level `none`."""
    exporter = CaptureExporter()
    resource = Resource({"service.name": "bot", "owner": "o"}, "https://acme.example/schema")
    provider = TracerProvider(resource=resource)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    state = TraceState([("ot", "rv:1"), ("acme", "secret")])
    elsewhere = SpanContext(1, 2, is_remote=True, trace_flags=TraceFlags(1), trace_state=state)
    for level in ("none", "metadata"):
        tracer = provider.get_tracer(
            "other lib" if level == "none" else "lib", "1.0", f"{SCHEMAS}1.30.0", {"x": 1}
        )
        span = tracer.start_span(
            "GET /users/7",
            context=set_span_in_context(NonRecordingSpan(elsewhere)),
            links=[Link(elsewhere, {"gen_ai.request.model": "m", "note": "n"})],
            attributes={
                "user.id": "ann", "gen_ai.request.model": "tell me a joke", "clew.capture.level": level,
                "gen_ai.response.finish_reasons": ("stop", "odd"), "gen_ai.usage.input_tokens": -1,
            },
        )  # fmt: skip
        span.add_event("an event", {"exception.type": "ValueError", "exception.message": "m"})
        span.set_status(StatusCode.ERROR, "why")
        span.end()
    path = tmp_path / "spans.json"
    path.write_text(json.dumps(exporter.otlp_json()))
    code, out, err = clew("policy", "test", str(path), "--json")
    assert (0, "") == (code, err)
    answer = json.loads(out)
    kept = {(one["place"], one["key"]): one["count"] for one in answer["kept"]}
    leaving = Filter(AllowList.default().bound(Digests(b"a key of the tests").of), {})
    expected: Counter[tuple[str, str]] = Counter()
    for span in exporter.spans:
        left = leaving.apply(span)
        found = [("span", key) for key in left.attributes or () if key != "clew.privacy.dropped"]
        found += [("event", key) for event in left.events for key in event.attributes or ()]
        found += [("link", key) for link in left.links for key in link.attributes or ()]
        found += [("resource", key) for key in left.resource.attributes]
        found += [("scope", key) for key in (left.instrumentation_scope.attributes or ())]
        found += [("span", "(name)")] * (left.name == span.name)
        found += [("scope", "(name)")] * (left.instrumentation_scope.name == "lib")
        found += [("scope", "(version)")] * (left.instrumentation_scope.version == "1.0")
        found += [("scope", "(schema)")] * bool(left.instrumentation_scope.schema_url)
        found += [("resource", "(schema)")] * bool(left.resource.schema_url)
        found += [("span", "(trace state)")] * len(left.context.trace_state)
        found += [("event", "(name)")] * (left.events[0].name == "an event")
        expected.update(found)
    assert dict(expected) == kept
    rules = {(one["place"], one["key"], one["rule"], one["count"]) for one in answer["dropped"]}
    assert {
        ("span", "user.id", "keyed_digest", 1),
        ("span", "(trace state)", "trace_state", 2),
        ("resource", "(schema)", "schema", 2),
        ("scope", "(name)", "name", 1),
    } < rules
