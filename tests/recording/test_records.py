"""What a record says: where the call belongs, of which provider it is, what it cost."""

# ruff: noqa: SIM300 - expected == actual, in this order
from __future__ import annotations

import uuid

import pytest
from recorded import Start, Wire, send
from recorder_kit import BODY, URL
from wires import CHAT_ANSWER, SHAPES

import clew
from clew.prompts import registry


def test_outside_a_run_a_call_is_of_unknown_kind(start: Start) -> None:
    """It is recorded all the same, without a map."""
    session = start()
    registry.forget()
    send(URL, Wire(CHAT_ANSWER), json=BODY)
    row, _ = session.only()
    assert ("unknown", None, None, None, ()) == (
        *(row.kind, row.run_id, row.agent, row.round, row.blocks),
    )


@pytest.mark.parametrize(
    "kind",
    [
        *("channel", "branch", "worker", "compactor", "cortex", "chronicle", "chronicle_rollup"),
        *("ingestion", "one_not_yet_written"),
    ],
)
def test_every_kind_of_process_is_recorded(start: Start, kind: str) -> None:
    """Recording is at the tap, so that no kind has to do anything for it."""
    session = start()
    with clew.run("a", kind=kind):
        send(URL, Wire(CHAT_ANSWER), json=BODY)
    row, record = session.only()
    assert (kind, kind) == (row.kind, record.run.kind)


def test_a_record_says_where_it_belongs(start: Start) -> None:
    """Run, agent, round, tenant, actor, message, trigger; the span of the timeline."""
    session = start()
    outer, inner = uuid.uuid4(), uuid.uuid4()
    with (
        clew.run("boss", run_id=outer, tenant="acme", actor="ann"),
        clew.run("helper", kind="branch", message_id="m-7", trigger="spawn_worker"),
    ):
        send(URL, Wire(CHAT_ANSWER), json=BODY)
        with clew.run(
            "other", run_id=inner, tenant="acme", conversation_id="c-1", configuration="v2"
        ):
            send(URL, Wire(CHAT_ANSWER), json=BODY)
    first, second = session.rows()
    (one, two) = session.exporter.by_name("chat")
    assert ("helper", "branch", "acme", "m-7", "spawn_worker", 1) == (
        *(first.agent, first.kind, first.tenant, first.message_id, first.trigger, first.round),
    )
    assert (str(outer), outer.hex, None) == (first.run_id, first.trace_id, first.parent)
    assert ("other", str(inner), str(outer)) == (second.agent, second.run_id, second.parent)
    assert ("c-1", "v2") == (second.conversation_id, second.configuration)
    assert one.context is not None
    assert two.context is not None
    assert {f"{one.context.span_id:016x}", f"{two.context.span_id:016x}"} == {
        *(first.span_id, second.span_id),
    }
    by_name = {span.name: dict(span.attributes or {}) for span in session.exporter.spans}
    assert by_name["invoke_agent boss"]["clew.actor"] == first.actor


def test_whose_tenant_is_no_identifier_is_nobodys(start: Start) -> None:
    """Two names that are both no identifiers are not one tenant."""
    session = start(capture="metadata")
    with clew.run("a", tenant="Acme & Sons"):
        send(URL, Wire(CHAT_ANSWER), json=BODY)
    (row,) = session.rows()
    assert row.tenant is None


def test_cost_that_comes_late_is_in_the_record(start: Start) -> None:
    """The price of a known model is part of the usage."""
    session = start()
    send(URL, Wire(CHAT_ANSWER), json=BODY)
    row, record = session.only()
    assert record.usage is not None
    assert ("priced", row.cost_usd) == (record.usage.cost_status, record.usage.cost_usd)
    (span,) = session.exporter.by_name("chat")
    assert (span.attributes or {})["clew.cost.usd"] == row.cost_usd


def test_shapes_are_all_recorded_under_their_provider(start: Start) -> None:
    """Each provider's API is recognised by its address, and named."""
    session = start()
    for shape in SHAPES:
        send(shape.url, Wire(shape.answer), json=shape.body(["Be brief."]))
    assert len(SHAPES) == len(session.rows())
    assert {
        *("openai", "anthropic", "gcp.gemini", "ollama", "cohere", "aws.bedrock"),
    } == {row.provider for row in session.rows()}
