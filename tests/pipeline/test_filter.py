"""The allow-list on finished spans: keys and values, of every library's spans alike."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry import trace
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.trace import Link, SpanContext, Status, StatusCode, TraceFlags, TraceState

from clew import _guard
from clew.allow_list import AllowList, Closed, Identifier, Number
from clew.pipeline.filter import Filter
from clew.rules import DROPPED, Each
from clew.semconv import RULES
from clew.testing import CaptureExporter

MARKER = "SECRET"


def filtered(allow_list: AllowList | None = None, **fields: Any) -> ReadableSpan:
    context = fields.pop("context", SpanContext(1, 2, is_remote=False))
    name = fields.pop("name", "span")
    span = ReadableSpan(name=name, context=context, **fields)
    return Filter(allow_list or AllowList.default(), {}).apply(span)


def test_an_empty_list_passes_nothing() -> None:
    """No key leaves, of spans or of resources."""
    found = filtered(AllowList(), attributes={"gen_ai.request.model": "gpt-4o", "clew.seq": 1})
    assert dict(found.attributes) == {}
    assert dict(found.resource.attributes) == {}


def test_only_keys_on_the_list_whose_values_obey_leave() -> None:
    """What breaks its rule is dropped and counted as a number."""
    found = filtered(
        attributes={
            "gen_ai.usage.input_tokens": 5,
            "gen_ai.usage.output_tokens": "SECRET",
            "gen_ai.request.model": "please tell SECRET",
            "gen_ai.response.model": "gpt-4o",
            "gen_ai.input.messages": "SECRET",
            "author": "alice",
            "session.id": "s-1",
            "session_token": "SECRET",
            "max_tokens": 7,
        }
    )
    assert dict(found.attributes) == {
        "gen_ai.usage.input_tokens": 5,
        "gen_ai.response.model": "gpt-4o",
        "author": "alice",
        "session.id": "s-1",
        "max_tokens": 7,
        "clew.privacy.dropped": 4,
    }


class Failing:
    """A rule of one's own that quotes what it looks at, and fails."""

    name = "failing"

    def apply(self, value: Any) -> Any:
        raise ValueError(f"not {value}")


def test_a_rule_that_fails_keeps_its_value_out(caplog: pytest.LogCaptureFixture) -> None:
    """Fail closed: the value is dropped and counted, everything else of the span leaves."""
    _guard.forget()
    attributes = {"note": f"{MARKER} 1", "notes": [f"{MARKER} 2"], "clew.seq": 1}
    listed = AllowList.default().extended({"note": Failing(), "notes": Each(Failing())})
    keeping = Filter(listed, {})
    span = ReadableSpan(
        name="chat",
        context=SpanContext(1, 2, is_remote=False),
        attributes=attributes,
        events=[Event("exception", {"note": MARKER, "exception.type": "ValueError"})],
        resource=Resource({"note": MARKER, "service.name": "desk"}),
    )
    found = keeping.apply(span)
    assert dict(found.attributes) == {"clew.seq": 1, "clew.privacy.dropped": 3}
    assert [dict(event.attributes) for event in found.events] == [{"exception.type": "ValueError"}]
    assert dict(found.resource.attributes) == {"service.name": "desk"}
    assert keeping.dropped["failing"] == 2
    assert keeping.dropped["each_failing"] == 1
    assert _guard.failures["apply a rule of the allow-list"] == 3
    assert len(caplog.records) == 1
    assert MARKER not in caplog.text
    _guard.forget()


def test_spans_of_other_libraries_obey_alike() -> None:
    """Statements, addresses, headers and nested values of a database's or client's own spans."""
    found = filtered(
        name=f"SELECT {MARKER}.orders",
        attributes={
            "db.system": "postgresql",
            "db.statement": f"name = '{MARKER}'",
            "db.query.text": MARKER,
            "http.url": f"https://u:{MARKER}@h/{MARKER}?key={MARKER}",
            "url.full": f"https://h/{MARKER}",
            "url.query": MARKER,
            "http.request.header.authorization": (f"Bearer {MARKER}",),
            "http.request.method": "GET",
            "http.response.status_code": 200,
            "server.port": 5432,
            "metadata": [{"customer": MARKER, "orders": [{"text": MARKER}]}],
            "messaging.message.body": MARKER,
            "rpc.method": f"call {MARKER}",
            "user.email": f"{MARKER}@h",
        },
    )
    assert MARKER not in str(dict(found.attributes)) + found.name
    assert dict(found.attributes) == {
        "db.system": "postgresql",
        "http.request.method": "GET",
        "http.response.status_code": 200,
        "server.port": 5432,
        "clew.privacy.dropped": 11,
    }


def test_exception_events_leave_as_type_names(exported: CaptureExporter) -> None:
    """Message, stack trace and status description of any span stay behind."""
    tracer = trace.get_tracer("library")
    try:
        with tracer.start_as_current_span("work"):
            raise ValueError(MARKER)
    except ValueError:
        pass
    (span,) = exported.by_name("work")
    assert [(event.name, dict(event.attributes)) for event in span.events] == [
        ("exception", {"exception.type": "ValueError"})
    ]
    assert span.status.status_code is StatusCode.ERROR
    assert span.status.description is None
    assert MARKER.encode() not in exported.otlp_bytes()


def test_our_own_spans_obey_when_the_application_writes_on_them(exported: CaptureExporter) -> None:
    """What a careless application sets on a run's span does not leave."""
    import clew

    with clew.run("triage"):
        span = trace.get_current_span()
        span.set_attribute("prompt", MARKER)
        span.set_attributes({"gen_ai.request.model": f"{MARKER} {MARKER}"})
        span.add_event(f"{MARKER} said", {"text": MARKER})
        span.add_event("known", {"gen_ai.usage.input_tokens": 3})
        span.record_exception(ValueError(MARKER))
        span.set_status(Status(StatusCode.ERROR, MARKER))
        span.update_name(f"invoke_agent {MARKER}")
    (found,) = (s for s in exported.spans if s.attributes.get("clew.run.root"))
    assert found.name == "invoke_agent"
    assert [(event.name, dict(event.attributes)) for event in found.events] == [
        ("_OTHER", {}),
        ("known", {"gen_ai.usage.input_tokens": 3}),
        ("exception", {"exception.type": "ValueError"}),
    ]
    assert MARKER.encode() not in exported.otlp_bytes()


def test_names_keep_what_an_attribute_vouches_for() -> None:
    """The first word is an identifier; further words must be known or be a kept value."""
    names = {
        "chat gpt-4o": filtered(name="chat gpt-4o", attributes={"gen_ai.request.model": "gpt-4o"}),
        "chat": filtered(name=f"chat {MARKER}"),
        "GET": filtered(name=f"GET /users/{MARKER}"),
        "_OTHER": filtered(name="", attributes={}),
        "load_documents": filtered(name="load_documents"),
    }
    assert {name: span.name for name, span in names.items()} == {name: name for name in names}
    assert filtered(name="[prompt] x").name == "_OTHER"


def test_links_trace_state_and_scope() -> None:
    """Link attributes and foreign trace state entries are dropped; sampling's own is kept."""
    state = TraceState([("ot", "th:8"), ("vendor", MARKER)])
    context = SpanContext(1, 2, is_remote=False, trace_flags=TraceFlags(1), trace_state=state)
    found = filtered(context=context, links=[Link(context, {"why": MARKER, "clew.seq": 4})])
    assert dict(found.context.trace_state) == {"ot": "th:8"}
    (link,) = found.links
    assert dict(link.attributes) == {"clew.seq": 4}
    assert dict(link.context.trace_state) == {"ot": "th:8"}


def test_a_list_can_be_extended() -> None:
    """A user's key with a rule passes; the same key without it does not."""
    more = AllowList.default().extended({"acme.plan": Closed("free", "paid")})
    attributes = {"acme.plan": "paid"}
    assert dict(filtered(more, attributes=attributes).attributes) == attributes
    assert "acme.plan" not in filtered(attributes=attributes).attributes
    assert "acme.plan" not in filtered(more, attributes={"acme.plan": MARKER}).attributes


VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(),
    st.binary(),
    st.lists(st.one_of(st.text(), st.integers(), st.none())),
)


@given(st.dictionaries(st.one_of(st.sampled_from(sorted(RULES)), st.text()), VALUES, max_size=8))
def test_filtering_any_attributes_twice_changes_nothing_more(attributes: dict[str, Any]) -> None:
    """Whatever the values are, nothing raises, and what was kept obeys."""
    once = dict(filtered(attributes=attributes).attributes)
    once.pop("clew.privacy.dropped", None)
    assert dict(filtered(attributes=once).attributes) == once


@given(VALUES)
def test_rules_never_raise(value: Any) -> None:
    """Every rule answers for every value, with the value itself or a fixed word."""
    for rule in (*RULES.values(), Identifier(8), Number(0, 5), Each(Identifier(4))):
        result = rule.apply(value)
        if isinstance(result, tuple):
            assert all(entry == "_OTHER" or entry in value for entry in result)
        elif result is not DROPPED:
            assert result in (value, "_OTHER")
