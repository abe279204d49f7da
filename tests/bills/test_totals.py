"""What the totals of a run say its calls have cost."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from bill_answers import (
    CHAT,
    MESSAGES,
    Bill,
    chat,
)
from billing import PER, RATES, Answering, ask

import clew
from clew import semconv as s
from clew.pipeline import runtime
from clew.settings import Settings
from clew.testing import CaptureExporter


@pytest.mark.parametrize("twin", ["sync", "async"])
@pytest.mark.parametrize("path", [CHAT, MESSAGES])
async def test_a_run_with_a_model_that_has_no_price(
    path: str, twin: str, exporter: CaptureExporter, server: Answering
) -> None:
    """Its cost is the sum of the others: a lower bound, with the number of calls it is without."""
    usage = chat(1000, 1000) if path == CHAT else {"input_tokens": 1000, "output_tokens": 1000}
    with clew.run("desk"):
        for model in ("model-x", "model-x-mini", "model-x"):
            server.gives(Bill(path, usage, {}, None, model=model))
            await ask(server.base_url + path, {"model": model, "messages": []}, twin)
    clew.shutdown()
    (root,) = exporter.by_name("invoke_agent")
    stated = dict(root.attributes or {})
    assert stated["clew.run.cost.usd"] == pytest.approx(0.02)
    assert stated["clew.run.cost.status"] == "partial"
    assert stated["clew.run.rounds_unpriced"] == 1
    statuses = [(each.attributes or {})[s.COST_STATUS] for each in exporter.by_name("chat")]
    assert statuses == ["priced", "unpriced", "priced"]


@pytest.mark.parametrize("twin", ["sync", "async"])
@pytest.mark.parametrize("path", [CHAT, MESSAGES])
async def test_ten_calls_below_a_threshold_stay_below_it(
    path: str, twin: str, exporter: CaptureExporter, server: Answering
) -> None:
    """A tier is of one call, not of a run."""
    usage = chat(50_000, 100) if path == CHAT else {"input_tokens": 50_000, "output_tokens": 100}
    server.gives(Bill(path, usage, {}, None, model="model-t"))
    with clew.run("desk"):
        for _ in range(10):
            await ask(server.base_url + path, {"model": "model-t", "messages": []}, twin)
    clew.shutdown()
    (root,) = exporter.by_name("invoke_agent")
    expected = pytest.approx(10 * (50_000 * 2 + 100 * 8) * PER)
    assert (root.attributes or {})["clew.run.cost.usd"] == expected


BATCHED = {
    "openai": (
        [
            {"response": {"body": {
                "model": "model-x",
                "usage": chat(1000, 50, prompt_tokens_details={"cached_tokens": 800}),
            }}}
        ] * 3,
        {
            "model": lambda item: item["response"]["body"]["model"],
            "input_tokens": "response.body.usage.prompt_tokens",
            "output_tokens": "response.body.usage.completion_tokens",
            "cache_read_tokens": "response.body.usage.prompt_tokens_details.cached_tokens",
        },
    ),
    "anthropic": (
        [
            {"result": {"message": {
                "model": "model-x",
                "usage": {"input_tokens": 200, "cache_read_input_tokens": 800, "output_tokens": 50},
            }}}
        ] * 3,
        {
            "model": lambda item: item["result"]["message"]["model"],
            "input_tokens": lambda item: sum(
                item["result"]["message"]["usage"][key]
                for key in ("input_tokens", "cache_read_input_tokens")
            ),
            "output_tokens": "result.message.usage.output_tokens",
            "cache_read_tokens": "result.message.usage.cache_read_input_tokens",
        },
    ),
}  # fmt: skip


@pytest.mark.parametrize("twin", ["sync", "async"])
@pytest.mark.parametrize("row", [True, False], ids=["with batch rates", "without"])
@pytest.mark.parametrize("provider", BATCHED)
async def test_results_of_a_batch_belong_to_the_run_that_submitted_it(
    provider: str, row: bool, twin: str, tmp_path: Path
) -> None:
    """Fetched later, elsewhere: at the table's rates for batches, by class, or at no price.

    The totals of the run have them once.
    """
    rows: list[dict[str, Any]] = [RATES]
    if row:
        batch = {"service_tier": "batch", "input": 1, "output": 4, "cache_read": 0.4}
        rows.append({"model": "model-x", **batch})
    prices = tmp_path / "prices.json"
    prices.write_text(json.dumps({"version": "1", "currency": "USD", "prices": rows}))
    settings = Settings(digest_key="k", seal_grace_s=0, prices_file=prices)
    exporter = CaptureExporter()
    clew.configure("submits", settings=settings, span_exporters=[exporter])
    with clew.run("desk") as submitting:
        reference = submitting.suspend("waiting_for_input")
    clew.shutdown()

    clew.configure("fetches", settings=settings, span_exporters=[exporter])
    current = runtime.get()
    assert current is not None
    assert current.prices.wait(60)
    results, places = BATCHED[provider]
    facts = {**places, "response_model": places["model"], "service_tier": lambda _: "batch"}
    del facts["model"]

    def result(item: Any) -> Any:
        return item

    async def aresult(item: Any) -> Any:
        return item

    record, arecord = clew.instrument(result, facts=facts), clew.instrument(aresult, facts=facts)
    with clew.resume(reference) as resumed:
        for item in results:
            assert (await arecord(item) if twin == "async" else record(item)) is item
    clew.shutdown()
    assert resumed.run_id == submitting.run_id
    rounds = [dict(each.attributes or {}) for each in exporter.by_name("chat")]
    assert {each[s.RUN_ID] for each in rounds} == {str(submitting.run_id)}
    expected = pytest.approx((200 * 1 + 800 * 0.4 + 50 * 4) * PER) if row else None
    assert [each.get(s.COST_USD) for each in rounds] == [expected] * 3
    assert {each[s.COST_STATUS] for each in rounds} == {"priced" if row else "unpriced"}
    stated = dict(exporter.by_name("invoke_agent")[-1].attributes or {})
    assert (stated["clew.run.rounds"], stated["clew.run.usage.input_tokens"]) == (3, 3000)
    total = pytest.approx(3 * (200 * 1 + 800 * 0.4 + 50 * 4) * PER) if row else None
    assert stated.get("clew.run.cost.usd") == total
    assert stated["clew.run.rounds_unpriced"] == (0 if row else 3)
