"""A cost that the provider states."""

from __future__ import annotations

import pytest
from bill_answers import (
    CHAT,
    Bill,
    chat,
)
from billing import Answering, ask, change

import clew
from clew import semconv as s
from clew.testing import CaptureExporter

BILLED = {
    "OpenRouter": ("openrouter", {"cost": 0.00042}),
    "Perplexity": ("perplexity", {"cost": {"total_cost": 0.00042}}),
    "xAI": ("x_ai", {"cost_in_usd_ticks": 4_200_000}),
}


@pytest.mark.parametrize("twin", ["sync", "async"])
@pytest.mark.parametrize("how", ["plain", "streamed"])
@pytest.mark.parametrize("name", BILLED)
async def test_what_a_provider_says_it_has_billed(
    name: str, how: str, twin: str, exporter: CaptureExporter, server: Answering
) -> None:
    """That is the cost, and the totals'; what the table says is beside it."""
    provider, billed = BILLED[name]
    usage = {**chat(100, 50), **billed}
    bill = Bill(CHAT, usage, {"input": 100, "output": 50}, 0.00042)
    path = server.gives(bill, how)
    change(exporter, provider_hosts={"127.0.0.1": provider})
    with clew.run("desk"):
        await ask(server.base_url + path, {"model": "model-x", "stream": how != "plain"}, twin)
    clew.shutdown()
    (round_,) = exporter.by_name("chat")
    (root,) = exporter.by_name("invoke_agent")
    found = dict(round_.attributes or {})
    assert found["gen_ai.provider.name"] == provider
    assert found[s.COST_STATUS] == "provider_reported"
    assert found[s.COST_USD] == pytest.approx(0.00042)
    assert found[s.COST_LIST_USD] == pytest.approx(0.0006)
    assert (root.attributes or {})["clew.run.cost.usd"] == pytest.approx(0.00042)
