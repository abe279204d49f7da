"""Faults of ours while gates are asked: a denial stays one, and mandatory gates let nothing pass."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import seams

import clew
from clew import _guard
from clew.errors import PolicyDenied
from clew.governance import governor, passages
from clew.settings import Settings
from clew.testing import CaptureExporter, Reply, ScriptedProvider
from clew.typing import Verdict

ASK = {"model": "gpt-5-mini", "messages": [{"role": "user", "content": "Hi"}]}
NAMES = {
    "clew.governance.governor.Governor._walk": governor,
    "clew.governance.governor.Governor._record": governor,
    "clew.governance.passages._prepare": passages,
    "clew.governance.passages._again": passages,
}
"""What is made to fail, before or after a gate has said something."""


class Gate:
    """Says what it is told to say."""

    name = "mine"
    rank = 1
    mode = "enforce"
    kinds = frozenset({"model_call"})

    def __init__(self, *, mandatory: bool, outcome: str) -> None:
        self.mandatory = mandatory
        self.outcome = outcome

    def check(self, proposal: Any) -> Verdict:
        return Verdict(outcome=self.outcome, reason="because")


@pytest.fixture(scope="module")
def provider() -> Iterator[ScriptedProvider]:
    with ScriptedProvider(lambda _: Reply(text="yes")) as running:
        yield running


def ask(url: str, twin: str) -> str:
    """Ask the model; return what came of it."""

    async def asynchronously() -> int:
        async with clew.run("desk"), httpx.AsyncClient(trust_env=False) as client:
            return (await client.post(url, json=ASK)).status_code

    try:
        if twin == "async":
            return str(asyncio.run(asynchronously()))
        with clew.run("desk"), httpx.Client(trust_env=False) as client:
            return str(client.post(url, json=ASK).status_code)
    except PolicyDenied as denied:
        return denied.reason


@pytest.mark.parametrize("twin", ["sync", "async"])
@pytest.mark.parametrize("outcome", ["allow", "deny"])
@pytest.mark.parametrize("mandatory", [True, False])
@pytest.mark.parametrize("name", NAMES)
def test_a_fault_while_gates_are_asked(
    name: str, mandatory: bool, outcome: str, twin: str, provider: ScriptedProvider
) -> None:
    """As if each gate had crashed, except where one had already denied; it is counted."""
    gate = Gate(mandatory=mandatory, outcome=outcome)
    settings = Settings(digest_key="k", gates=(gate,), seal_grace_s=0)
    clew.configure("tests", settings=settings, span_exporters=[CaptureExporter()])
    clew.instrument()
    before = len(provider.requests)
    with seams.failing(seams.functions(NAMES[name])[name], inside=True):
        came = ask(f"{provider.openai_base_url}/chat/completions", twin)
    failures = _guard.failures.total()
    _guard.forget()
    asked_first = name.endswith("_record")
    if outcome == "deny" and asked_first:
        expected = "because"
    else:
        expected = "gate_error" if mandatory else "200"
    assert came == expected
    assert len(provider.requests) - before == (1 if expected == "200" else 0)
    assert failures > 0
