"""Runs: one trace whose id is the run's uuid, with totals that are right on every ending."""

from __future__ import annotations

import asyncio
import threading
import uuid
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from opentelemetry import trace
from run_spans import attributes, root

import clew
from clew.audit.verify import verify
from clew.errors import ApprovalRequired, ClewError, PolicyDenied, RunIdError, RunReferenceError
from clew.sources.otlp_json import record_of
from clew.store import otlp_protobuf
from clew.testing import CaptureExporter

ENDINGS = [
    (None, "completed", "completed"),
    (ValueError("secret"), "failed", "error"),
    (asyncio.CancelledError(), "cancelled", "cancelled"),
    (KeyboardInterrupt(), "cancelled", "cancelled"),
    (SystemExit(0), "completed", "completed"),
    (SystemExit(3), "failed", "error"),
    (GeneratorExit(), "cancelled", "cancelled"),
]


def test_the_trace_id_is_the_run_id(exported: CaptureExporter) -> None:
    """The 128 bits of the uuid are the trace id of every span of the run."""
    run_id = uuid.uuid4()
    with clew.run("triage", run_id=run_id) as run, clew.tool("search"):
        clew.decide("budget", "allow")
    assert run.trace_id == run_id.hex
    clew.shutdown()
    assert {span.context.trace_id for span in exported.spans} == {run_id.int}
    assert {attributes(span)["clew.run.id"] for span in exported.spans} == {str(run_id)}
    (run_span,) = exported.by_name("invoke_agent triage")
    assert run_span.parent is None


FORMS: dict[str, Callable[[uuid.UUID], uuid.UUID | str]] = {
    "object": lambda run_id: run_id,
    "dashed": str,
    "upper case": lambda run_id: str(run_id).upper(),
    "32 digits": lambda run_id: run_id.hex,
}


@pytest.mark.parametrize("twin", ["sync", "async"])
@pytest.mark.parametrize("form", FORMS)
async def test_every_form_of_a_run_id_is_one_trace_id(
    exported: CaptureExporter, form: str, twin: str
) -> None:
    """As text or object; used again it is a second attempt, visibly, never one longer run."""
    run_id = uuid.uuid4()
    for _ in range(2):
        if twin == "sync":
            with clew.run("triage", run_id=FORMS[form](run_id)) as run, clew.tool("search"):
                pass
        else:
            async with clew.run("triage", run_id=FORMS[form](run_id)) as run, clew.tool("search"):
                pass
        assert run.trace_id == run_id.hex
    clew.shutdown()
    assert {span.context.trace_id for span in exported.spans} == {run_id.int}
    roots = [attributes(span) for span in exported.by_name("invoke_agent")]
    assert [each.get("clew.segment.restart") for each in roots] == [None, True]
    assert [each["clew.run.tool_calls"] for each in roots] == [1, 1]
    by_segment = Counter(attributes(span)["clew.segment.id"] for span in exported.spans)
    assert by_segment == {each["clew.segment.id"]: 4 for each in roots}
    spans = list(otlp_protobuf.decode(exported.otlp_bytes()).spans)
    assert verify(record_of(run_id.hex, spans)).status == "COMPLETE"


def test_an_empty_run_id_is_a_fresh_one(exported: CaptureExporter) -> None:
    """Another one for each run."""
    found: list[uuid.UUID] = []
    for value in ("", None):
        with clew.run("triage", run_id=value) as run:
            found.append(run.run_id)
    assert {each.version for each in found} == {4}
    roots = [span.context.trace_id for span in exported.by_name("invoke_agent")]
    assert roots == [each.int for each in found]
    assert len(set(roots)) == 2


@pytest.mark.parametrize("value", ["0" * 32, "order-42", uuid.UUID(int=0)])
def test_a_malformed_run_id_is_refused_before_anything_starts(
    exported: CaptureExporter, value: str | uuid.UUID
) -> None:
    """A nil or malformed run id raises, and no span is started."""
    with pytest.raises(RunIdError):
        clew.run("triage", run_id=value)
    assert exported.spans == ()


@pytest.mark.parametrize(("error", "status", "reason"), ENDINGS)
def test_totals_and_status_are_right_on_every_ending(
    exported: CaptureExporter, error: BaseException | None, status: str, reason: str
) -> None:
    """Whatever ends the run, its span says how, and counts what happened; the error passes on."""

    def work() -> None:
        with clew.run("triage"):
            with clew.tool("search"):
                pass
            clew.decide("tool", "deny", reason="disabled")
            if error is not None:
                raise error

    if error is None:
        work()
    else:
        with pytest.raises(type(error)) as caught:
            work()
        assert caught.value is error
    found = root(exported)
    assert found["clew.run.status"] == status
    assert found["clew.run.termination_reason"] == reason
    for prefix in ("clew.run.", "clew.segment."):
        assert found[prefix + "tool_calls"] == 1
        assert found[prefix + "decisions"] == 1
        assert found[prefix + "denials"] == 1
        assert found[prefix + "rounds"] == 0
    assert b"secret" not in exported.otlp_bytes()


DENIED = PolicyDenied("house", "house_rule")
WAITS = ApprovalRequired("approval", "needed")


@pytest.mark.parametrize(
    ("errors", "expected"),
    [
        ([DENIED], ("failed", "policy_denied", "clew.errors.PolicyDenied")),
        ([BaseExceptionGroup("inner", [DENIED]), DENIED],
         ("failed", "policy_denied", "clew.errors.PolicyDenied")),
        ([PolicyDenied("budget", "run_tokens")],
         ("failed", "budget_exhausted", "clew.errors.PolicyDenied")),
        ([WAITS, WAITS], ("waiting_for_approval", None, None)),
        ([KeyboardInterrupt()], ("cancelled", "cancelled", None)),
        ([DENIED, ValueError("secret")], ("failed", "error", "ExceptionGroup")),
    ],
)  # fmt: skip
def test_a_task_groups_errors_end_the_run_as_themselves(
    exported: CaptureExporter,
    errors: list[BaseException],
    expected: tuple[str, str | None, str | None],
) -> None:
    """Of one kind, a group is that error; of several it is a group; it passes on as it was."""
    group = BaseExceptionGroup("tasks", errors)
    with pytest.raises(BaseExceptionGroup) as caught, clew.run("triage"):
        raise group
    assert caught.value is group
    found = root(exported)
    assert expected == (
        found["clew.run.status"],
        found.get("clew.run.termination_reason"),
        found.get("error.type"),
    )


async def test_an_async_run_that_is_cancelled_is_cancelled(exported: CaptureExporter) -> None:
    """`asyncio.wait_for` cancels the run: the span says so and the cancellation goes on."""

    async def work() -> None:
        async with clew.run("triage"):
            await asyncio.sleep(10)

    with pytest.raises(TimeoutError):
        await asyncio.wait_for(work(), 0.01)
    assert root(exported)["clew.run.status"] == "cancelled"


def test_a_run_is_started_and_sealed(exported: CaptureExporter) -> None:
    """`run_started` comes first, `run_sealed` last, with the number of spans before it."""
    with clew.run("triage"), clew.tool("search"):
        pass
    clew.shutdown()
    names = [span.name for span in exported.spans]
    assert names == [
        "run_started triage",
        "execute_tool search",
        "invoke_agent triage",
        "run_sealed triage",
    ]
    started, _, run, sealed = exported.spans
    assert started.start_time == started.end_time
    assert attributes(started)["clew.run.status"] == "running"
    assert sealed.parent.span_id == run.context.span_id
    assert attributes(sealed)["clew.seal.spans"] == 3
    assert attributes(sealed)["clew.seal.open_seqs"] == ()
    assert [attributes(span)["clew.seq"] for span in exported.spans] == [2, 3, 1, 4]


def test_run_started_is_exported_at_once(exported: CaptureExporter) -> None:
    """A run whose process dies is visible: its start does not wait for its end."""
    seen = threading.Event()
    export = exported.export

    def watch(spans: Any) -> Any:
        if any(span.name.startswith("run_started") for span in spans):
            seen.set()
        return export(spans)

    exported.export = watch  # type: ignore[method-assign]
    with clew.run("triage"):
        assert seen.wait(2)


def test_a_run_id_used_again_is_a_restart(exported: CaptureExporter) -> None:
    """The same id without a reference is a new segment of the same trace, marked so."""
    run_id = uuid.uuid4()
    with clew.run("triage", run_id=run_id):
        pass
    with clew.run("triage", run_id=str(run_id)):
        pass
    first, second = (attributes(span) for span in exported.by_name("invoke_agent"))
    assert (first["clew.segment"], second["clew.segment"]) == (1, 2)
    assert first["clew.segment.id"] != second["clew.segment.id"]
    assert "clew.segment.restart" not in first
    assert second["clew.segment.restart"] is True


def test_a_nested_run_is_an_agent_of_the_same_run(exported: CaptureExporter) -> None:
    """A run inside a run shares trace, run, segment and sequence; its agent id differs."""
    with clew.run("outer") as outer, clew.tool("delegate"), clew.run("inner") as inner:
        assert clew.current_run() is inner
        clew.decide("tool", "deny")
    assert inner.run_id == outer.run_id
    inner_span, outer_span = exported.by_name("invoke_agent")
    (delegate,) = exported.by_name("execute_tool delegate")
    mine, theirs = attributes(inner_span), attributes(outer_span)
    assert inner_span.parent.span_id == delegate.context.span_id
    assert mine["clew.segment.id"] == theirs["clew.segment.id"]
    assert mine["clew.agent.id"] != theirs["clew.agent.id"]
    assert theirs["clew.run.root"] is True
    assert "clew.run.root" not in mine
    assert theirs["clew.run.denials"] == 1
    assert not any(key.startswith("clew.segment.usage") for key in mine)


def test_a_nested_run_with_an_id_of_its_own_is_a_linked_trace(exported: CaptureExporter) -> None:
    """Its own run id makes it another trace, with a link and the id of the run around it."""
    with clew.run("outer") as outer, clew.run("inner", run_id=uuid.uuid4()) as inner:
        pass
    inner_span, outer_span = exported.by_name("invoke_agent")
    assert inner_span.context.trace_id == inner.run_id.int != outer.run_id.int
    assert inner_span.parent is None
    assert [link.context.span_id for link in inner_span.links] == [outer_span.context.span_id]
    assert attributes(inner_span)["clew.run.parent_id"] == str(outer.run_id)


def test_the_trace_around_a_run_is_a_link_never_a_parent(exported: CaptureExporter) -> None:
    """An HTTP server's span around the run is linked to; it is current again afterwards."""
    tracer = trace.get_tracer("server")
    with tracer.start_as_current_span("GET") as server:
        with clew.run("triage"):
            pass
        assert trace.get_current_span() is server
    (span,) = exported.by_name("invoke_agent")
    assert span.parent is None
    assert [link.context.span_id for link in span.links] == [server.get_span_context().span_id]


def test_an_unsampled_caller_does_not_silence_the_run(exported: CaptureExporter) -> None:
    """A remote parent with the sampled flag off is linked to; the run is kept."""
    remote = trace.SpanContext(
        0xAB, 0xCD, is_remote=True, trace_flags=trace.TraceFlags(trace.TraceFlags.DEFAULT)
    )
    with (
        trace.use_span(trace.NonRecordingSpan(remote)),
        clew.run("triage"),
    ):
        clew.decide("tool", "deny")
    assert len(exported.by_name("decide tool")) == 1


def test_a_resumed_run_continues_the_trace(exported: CaptureExporter) -> None:
    """The next segment is a root in the same trace, linked to the last, with totals carried on."""
    with clew.run("triage") as run:
        clew.decide("approval", "require_approval")
        reference = run.suspend()
    with clew.resume(reference) as resumed:
        clew.decide("approval", "allow", by="second_person")
    assert resumed.run_id == run.run_id
    first_span, second_span = exported.by_name("invoke_agent")
    first, second = attributes(first_span), attributes(second_span)
    assert first["clew.run.status"] == "waiting_for_approval"
    assert "clew.run.termination_reason" not in first
    assert second["clew.run.status"] == "completed"
    assert second_span.parent is None
    assert second_span.context.trace_id == first_span.context.trace_id
    assert [link.context.span_id for link in second_span.links] == [first_span.context.span_id]
    assert (first["clew.segment"], second["clew.segment"]) == (1, 2)
    assert "clew.segment.restart" not in second
    assert (second["clew.segment.decisions"], second["clew.run.decisions"]) == (1, 2)


@pytest.mark.parametrize(
    "text",
    ["", "nonsense", "clew1~00-00-00-01~1~a~1~1~x", "clew1~" + "~" * 5, "clew2~a~b~c~d~e~f"],
)
def test_a_broken_reference_is_a_clear_error(text: str) -> None:
    """What is no reference is refused before anything starts."""
    with pytest.raises(RunReferenceError, match="not a run reference"):
        clew.resume(text)


def test_an_unknown_reason_or_status_is_a_clear_error(exported: CaptureExporter) -> None:
    """Only the contract's words are taken."""
    with clew.run("triage") as run:
        with pytest.raises(ClewError, match="max_rounds"):
            run.terminate("bored")
        with pytest.raises(ClewError, match="waiting_for_input"):
            run.suspend("sleeping")
        run.terminate("max_rounds")
    found = root(exported)
    assert (found["clew.run.status"], found["clew.run.termination_reason"]) == (
        "completed",
        "max_rounds",
    )


def test_a_run_object_is_used_once(exported: CaptureExporter) -> None:
    """Entering the same object again is an error that says what to do."""
    run = clew.run("triage")
    with run:
        pass
    with pytest.raises(ClewError, match=r"clew\.run"), run:
        pass


def test_without_configuration_everything_is_a_no_op() -> None:
    """Runs, tools and decisions do nothing, and a malformed run id is still refused."""
    with clew.run("triage") as run, clew.tool("search") as tool:
        decision = clew.decide("tool", "deny", reason="disabled")
        assert clew.current_run() is None
    assert (run.trace_id, tool.outcome, decision.outcome) == (run.run_id.hex, None, "deny")
    assert clew.resume(run.reference()).run_id == run.run_id
    with pytest.raises(RunIdError):
        clew.run("triage", run_id="order-42")


def test_identifiers_are_exported_and_prose_is_not(exported: CaptureExporter) -> None:
    """Agent names and run options obey value rules; the actor leaves as a digest only."""
    with clew.run(
        "Tell me a SECRET",
        actor="alice@example.org",
        tenant="acme",
        conversation_id="conv_1",
        trigger="user said SECRET",
        kind="worker",
        configuration="support-v2",
        message_id="m-1",
    ):
        pass
    found = root(exported)
    assert found["gen_ai.agent.name"] == "_OTHER"
    assert len(found["clew.actor"]) == 64
    assert found["clew.tenant"] == "acme"
    assert found["gen_ai.conversation.id"] == "conv_1"
    assert found["clew.configuration"] == "support-v2"
    assert "clew.trigger" not in found
    assert b"SECRET" not in exported.otlp_bytes()
    assert b"alice" not in exported.otlp_bytes()
