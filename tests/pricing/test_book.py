"""The book of prices: which name of a call counts, tiers of service, context lengths."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, time, timedelta
from decimal import Decimal

import pytest
from genai_prices import Usage as LibraryUsage
from genai_prices.data_snapshot import get_snapshot
from genai_prices.types import (
    ClauseStartsWith,
    ConditionalPrice,
    ModelInfo,
    ModelPrice,
    TimeOfDateConstraint,
)

from clew.facts import Usage
from clew.pricing import Prices, compute
from clew.pricing.library import _next_change

# --- which name counts --------------------------------------------------------------------------


def test_the_model_that_answered_counts_first(prices):
    """The response's model decides, and the request's stands in when that has no price."""
    assert prices.find_for("openai", "gpt-4o-mini-2024-07-18", "gpt-4o").model == "gpt-4o-mini"
    assert prices.find_for("openai", None, "gpt-4o").model == "gpt-4o"
    assert prices.find_for("openai", "no-such-model", "gpt-4o").model == "gpt-4o"
    assert prices.find_for("openai", None, None) is None


def test_an_azure_deployment_is_no_model(prices):
    """A deployment called `gpt-4` has no price; the model in the response has, and so has an alias."""
    assert prices.find_for("azure.ai.openai", None, "gpt-4") is None
    assert prices.find_for("azure.ai.openai", "gpt-4o-mini", "gpt-4").model == "gpt-4o-mini"
    mapped = Prices({"azure.ai.openai/GPT-4": "gpt-4o-mini"})
    assert mapped.wait(60)
    assert mapped.find_for("azure.ai.openai", None, "gpt-4").model == "gpt-4o-mini"


def test_bedrock_bills_by_the_requested_region_class(prices):
    """The response repeats the model without its region class: the request decides."""
    model = "claude-sonnet-4-5-20250929"
    price = prices.find_for("aws.bedrock", model, f"global.anthropic.{model}-v1:0")
    assert price.model == f"global.anthropic.{model}-v1:0"


def test_an_alias_names_a_provider_for_an_unknown_host():
    """`provider/model` in the alias table prices a gateway's name; other names stay unpriced."""
    book = Prices({"house-model": "openai/gpt-4o", "vendor/gpt-x": "openrouter/openai/gpt-4o"})
    assert book.wait(60)
    assert book.find(None, "house-model").provider == "openai"
    assert book.find_for(None, "gpt-4o", "House-Model").model == "gpt-4o"
    assert book.find("anything", "vendor/gpt-x").provider == "openrouter"
    assert book.find(None, "gpt-4o") is None


# --- service tiers ------------------------------------------------------------------------------


def test_a_tier_of_service_has_the_table_rates(prices):
    """Batch and priority cost what the table's variants say; standard tiers the plain rates."""
    model = "gpt-5"
    standard = prices.find("openai", model)
    for tier in ("default", "auto", "standard"):
        assert prices.find("openai", model, tier).rates == standard.rates
    for tier, context in (
        ("batch", {"processing": "batch"}),
        ("priority", {"service_tier": "priority"}),
    ):
        theirs = LibraryUsage(input_tokens=1000, output_tokens=100)
        expected = get_snapshot().calc(theirs, model, "openai", None, None, context).total_price
        price = prices.find("openai", model, tier)
        cost = compute(price, Usage(input_tokens=1000, output_tokens=100), complete=True)
        assert cost.usd == pytest.approx(float(expected))
        assert price.service_tier == tier
        assert price.rates != standard.rates


def test_a_tier_without_rates_is_unpriced(prices):
    """No row for the batch or the tier: no price, not a guessed half."""
    assert prices.find("deepseek", "deepseek-chat") is not None
    assert prices.find("deepseek", "deepseek-chat", "batch") is None
    assert prices.find("openai", "gpt-5", "no-such-tier") is None


# --- what is remembered ---------------------------------------------------------------------------


def test_an_answer_is_remembered_unless_its_price_will_change(prices):
    """Models asked for together are looked up once; a price with hours is asked for each time."""
    for _ in range(2):
        assert prices.find_for("openai", "gpt-4o-2024-08-06", "gpt-4o").model == "gpt-4o"
        assert prices.find_for("openai", "gpt-4o", "no-such-model").model == "gpt-4o"
        assert prices.find_for("openai", "no-such-model", None) is None
        assert prices.find_for("openai", "x" * 600, None) is None
    assert prices.find_for("deepseek", "deepseek-chat", "no-such-model") is not None
    answers = set(prices._answers)
    assert ("openai", "gpt-4o-2024-08-06", "gpt-4o", None) in answers
    assert ("openai", "no-such-model", None, None) in answers
    assert not {key for key in answers if any(name and len(name) > 512 for name in key)}
    changing = prices._memo[("deepseek", "deepseek-chat", None)][1] is not None
    assert changing is not (("deepseek", "deepseek-chat", "no-such-model", None) in answers)


# --- time ---------------------------------------------------------------------------------------


def test_a_price_that_changes_with_the_hour_is_asked_for_again():
    """The moment at which the next of a row's prices begins is known in advance."""
    prices = ModelPrice(input_mtok=Decimal(1))
    row = ModelInfo(
        id="m",
        match=ClauseStartsWith(starts_with="m"),
        prices=[
            ConditionalPrice(prices=prices),
            ConditionalPrice(
                constraint=TimeOfDateConstraint(start_time=time(16, 30), end_time=time(0, 30)),
                prices=prices,
            ),
        ],
    )
    noon = datetime(2026, 5, 1, 12, tzinfo=UTC)
    assert _next_change(row, noon) == (noon + timedelta(hours=4.5)).timestamp()
    assert (
        _next_change(row, noon + timedelta(hours=6)) == (noon + timedelta(hours=12.5)).timestamp()
    )
    assert _next_change(ModelInfo(id="m", match=row.match, prices=prices), noon) is None


# --- context lengths ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("provider", "model", "length"),
    [
        ("openai", "gpt-4o", 128_000),
        ("anthropic", "claude-sonnet-4-5-20250929", 200_000),
        ("openrouter", "openai/gpt-4o", 128_000),
        ("openai", "nobody-knows", None),
        ("nobody", "gpt-4o", None),
        (None, "gpt-4o", None),
        ("openai", "x" * 600, None),
    ],
)
def test_context_lengths(prices, provider, model, length):
    """How much a model takes, by the same names as its price; unknown is None, not a guess."""
    assert prices.context_length(provider, model) == length


def test_an_alias_has_the_context_length_of_its_model():
    """As it has its price; the look-up waits until the library is loaded."""
    book = Prices({"my-deployment": "openai/gpt-4o"})
    assert book.loaded is False
    assert book.context_length("azure.ai.openai", "my-deployment") == 128_000
    assert book.loaded is True


def test_without_patience_nobody_knows_a_context_length():
    """A library that is not loaded in time gives none."""
    book = Prices()
    book._thread = threading.current_thread()  # it is never loaded
    assert book.context_length("openai", "gpt-4o", patience_s=0.01) is None
