"""The adapters behind gates: a denial is itself, and streams are looked at by window."""

# ruff: noqa: PT012 - what is called in a test may be sync or async

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import clew
from clew import _guard
from clew.errors import PolicyDenied
from clew.gates.guardrail import OutputGuardrail, redact
from clew.pipeline import runtime
from clew.providers import ChatRequest, Message
from clew.settings import Settings
from clew.testing import CaptureExporter, Reply
from clew.typing import Proposal, Verdict

SECRET = "SECRET-key-123"
ASK = ChatRequest(model="small", messages=(Message.user("SECRET question"),))
TOLD = ("once there was ", "a long tale of many words and ", SECRET[:8], SECRET[8:], " at the end")
Govern = Callable[..., CaptureExporter]


class Denying:
    name = "house"
    mode = "enforce"
    mandatory = True
    kinds = frozenset({"model_call"})

    def __init__(self) -> None:
        self.asked: list[Proposal] = []

    def check(self, proposal: Proposal) -> Verdict:
        self.asked.append(proposal)
        return Verdict(outcome="deny", reason="house_rule")


def no_keys(text: str) -> Verdict | None:
    return redact(text.replace(SECRET, "[gone]"), reason="found") if SECRET in text else None


def denies_keys(text: str) -> Verdict | None:
    return Verdict(outcome="deny", reason="found") if SECRET in text else None


@pytest.fixture
def govern() -> Iterator[Govern]:
    def configure(*gates: Any) -> CaptureExporter:
        exporter = CaptureExporter()
        settings = Settings.from_environment(gates=gates, export_delay_ms=20, seal_grace_s=0.02)
        clew.configure("tests", settings=settings, span_exporters=[exporter])
        clew.instrument()
        current = runtime.get()
        assert current is not None

        def flush() -> None:
            current.settle(everywhere=True)
            current.worker.flush(5)

        exporter.flush = flush
        return exporter

    yield configure
    clew.shutdown()
    assert set(_guard.failures) == set()


def the_decision(exported: CaptureExporter) -> dict[str, Any]:
    (span,) = exported.by_name("decide")
    return dict(span.attributes or {})


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_denial(govern: Govern, kit: Any, streamed: bool) -> None:
    """One evaluation, one decision, nothing sent, no round; not wrapped and not tried again."""
    gate = Denying()
    exported = govern(gate)
    with pytest.raises(PolicyDenied) as caught, clew.run("desk"):
        await (kit.events(ASK) if streamed else kit.chat(ASK))
    assert type(caught.value) is PolicyDenied
    assert (len(gate.asked), kit.server.requests) == (1, [])
    assert the_decision(exported)["clew.decision.id"] == caught.value.decision_id
    (run,) = exported.by_name("invoke_agent")
    assert (run.attributes or {})["clew.run.rounds"] == 0
    assert b"SECRET" not in exported.otlp_bytes()


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_redaction(govern: Govern, kit: Any, streamed: bool) -> None:
    """The adapter reads the changed answer, whole or streamed; the tokens are the provider's."""
    counts = []
    for gates in ((), (OutputGuardrail(no_keys, window=8, overlap=20),)):
        clew.shutdown()
        exported = govern(*gates)
        kit.server.add(Reply(text=TOLD))
        with clew.run("desk") as run:
            answer = await kit.answer(ASK, streamed=streamed)
            counts.append(run.totals.output_tokens)
    assert counts[0] == counts[1]
    assert answer.text == "".join(TOLD).replace(SECRET, "[gone]")
    found = the_decision(exported)
    assert (found["clew.decision.outcome"], found["clew.decision.executed"]) == ("redact", True)
    assert b"SECRET" not in exported.otlp_bytes()


async def test_a_denial_in_the_middle(govern: Govern, kit: Any) -> None:
    """It ends the stream as itself, without another attempt, after what had gone on."""
    exported = govern(OutputGuardrail(denies_keys, window=8, overlap=20))
    kit.server.add(Reply(text=TOLD), Reply(text="never"))
    came: list[str] = []
    with pytest.raises(PolicyDenied) as caught, clew.run("desk"):
        if kit.mode == "sync":
            came.extend(event.text for event in kit.provider.stream(ASK))
        else:
            async for event in kit.provider.astream(ASK):
                came.append(event.text)  # noqa: PERF401
    assert type(caught.value) is PolicyDenied
    assert len(kit.server.requests) == 1
    assert SECRET[:8] not in "".join(came)
    found = the_decision(exported)
    assert (found["clew.decision.outcome"], found["clew.decision.reason"]) == ("deny", "found")
    assert found["clew.decision.released_chars"] == len(TOLD[0])
