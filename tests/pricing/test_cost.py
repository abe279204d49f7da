"""What a call costs: the arithmetic of each class of tokens, and what is said of gaps."""

from __future__ import annotations

import pytest
from genai_prices import Usage as LibraryUsage
from genai_prices.data_snapshot import get_snapshot
from priced import MILLION, price_of

from clew.facts import Usage
from clew.pricing import Cost, Price, Rates, compute


@pytest.mark.parametrize(
    ("provider", "model"), [("openai", "gpt-4o"), ("gcp.gemini", "gemini-2.5-flash")]
)
def test_cached_tokens_are_a_part_of_the_input(prices, provider, model):
    """1 000 in of which 800 cached: 200 at the full rate and 800 at the cache rate."""
    price = prices.find(provider, model)
    usage = Usage(input_tokens=1000, cache_read_tokens=800, output_tokens=50)
    cost = compute(price, usage, complete=True)
    rates = price.rates
    assert cost.input_usd == pytest.approx(200 * rates.input)
    assert cost.cache_read_usd == pytest.approx(800 * rates.cache_read)
    assert cost.output_usd == pytest.approx(50 * rates.output)
    assert cost.status == "priced"


def test_cache_reads_and_writes_have_their_own_rates(prices):
    """10 fresh, 800 read, 200 written: three rates; and a call served wholly from the cache costs."""
    price = prices.find("anthropic", "claude-sonnet-4-5")
    usage = Usage(
        input_tokens=1010, cache_read_tokens=800, cache_write_tokens=200, output_tokens=50
    )
    cost = compute(price, usage, complete=True)
    assert cost.usd == pytest.approx((10 * 3 + 800 * 0.3 + 200 * 3.75 + 50 * 15) / MILLION)
    assert cost.cache_write_usd == pytest.approx(200 * 3.75 / MILLION)
    whole = Usage(input_tokens=5000, cache_read_tokens=5000, output_tokens=0)
    cost = compute(price, whole, complete=True)
    assert cost.usd == pytest.approx(5000 * 0.3 / MILLION)
    assert cost.input_usd == 0.0


def test_cache_writes_of_one_hour_cost_their_own_rate(prices):
    """200 written of which 150 for an hour: 50 at the short rate and 150 at the long one."""
    price = prices.find("anthropic", "claude-sonnet-4-5")
    usage = Usage(
        input_tokens=200, cache_write_tokens=200, cache_write_1h_tokens=150, output_tokens=0
    )
    cost = compute(price, usage, complete=True)
    assert cost.usd == pytest.approx((50 * 3.75 + 150 * 6) / MILLION)


AUDIO = Usage(input_tokens=500, input_audio_tokens=400, output_tokens=230, output_audio_tokens=200)


def test_sound_has_its_own_rates():
    """100 text and 400 sound in, 30 text and 200 sound out: four rates."""
    price = price_of(input=1.0, input_audio=2.0, output=3.0, output_audio=4.0)
    cost = compute(price, AUDIO, complete=True)
    assert (cost.status, cost.input_usd, cost.output_usd) == ("priced", 900.0, 890.0)


def test_a_missing_sound_rate_makes_a_lower_bound():
    """Sound without a rate is neither priced as text nor forgotten: it is named."""
    price = price_of(input=1.0, output=3.0, output_audio=4.0)
    cost = compute(price, AUDIO, complete=True)
    assert (cost.status, cost.usd, cost.missing) == ("partial", 990.0, ("rate.input_audio",))


def test_a_missing_cache_rate_makes_a_lower_bound():
    """Tokens read from a cache whose rate is not in the table are named, not billed in full."""
    usage = Usage(input_tokens=100, cache_read_tokens=40, output_tokens=1)
    cost = compute(price_of(input=1.0, output=1.0), usage, complete=True)
    assert (cost.status, cost.usd, cost.missing) == ("partial", 61.0, ("rate.cache_read",))


def tiered():
    return Price(
        provider="p",
        model="m",
        source="test",
        version="1",
        rates=Rates(input=1.0, output=2.0, cache_read=0.5),
        tiers=((200_000, Rates(input=3.0, output=4.0, cache_read=1.5)),),
    )


@pytest.mark.parametrize(
    ("tokens", "expected", "tier"),
    [
        (50_000, 50_000 + 2_000, None),
        (200_000, 200_000 + 2_000, None),
        (200_001, 200_001 * 3 + 4_000, 200_000),
        (250_000, 250_000 * 3 + 4_000, 200_000),
    ],
)
def test_a_long_context_is_billed_wholly_at_its_tier(tokens, expected, tier):
    """Beyond the threshold every token has the higher rate, and the tier is recorded."""
    cost = compute(tiered(), Usage(input_tokens=tokens, output_tokens=1000), complete=True)
    assert (cost.usd, cost.tier) == (expected, tier)


def test_a_tier_of_the_table_counts_cached_tokens(prices):
    """The threshold is on all input tokens, those from the cache included."""
    price = prices.find("gcp.gemini", "gemini-2.5-pro")
    usage = Usage(input_tokens=250_000, cache_read_tokens=100_000, output_tokens=1000)
    theirs = LibraryUsage(
        input_tokens=250_000,
        cache_read_tokens=100_000,
        output_tokens=1000,
        input_audio_tokens=0,
        cache_audio_read_tokens=0,
    )
    expected = get_snapshot().calc(theirs, "gemini-2.5-pro", "google", None, None)
    cost = compute(price, usage, complete=True)
    assert cost.usd == pytest.approx(float(expected.total_price))
    assert cost.tier == 200_000


def test_searches_of_the_provider_are_a_part_of_their_own(prices):
    """Three web searches at a cent each are 0.03 of tools, and inside the total."""
    price = prices.find("anthropic", "claude-sonnet-4-5")
    usage = Usage(input_tokens=1000, output_tokens=100, web_searches=3)
    cost = compute(price, usage, complete=True)
    assert cost.tools_usd == pytest.approx(0.03)
    assert cost.usd == pytest.approx(0.03 + (1000 * 3 + 100 * 15) / MILLION)
    cost = compute(price_of(input=1.0, output=1.0), usage, complete=True)
    assert (cost.status, cost.missing) == ("partial", ("rate.web_search",))


# --- the status -----------------------------------------------------------------------------------

CHAT = Usage(input_tokens=100, output_tokens=10)


def test_no_usage_is_unknown():
    """A response without usage has no cost, with or without a price."""
    price = price_of(input=1.0, output=1.0)
    assert compute(None, None, complete=True) == Cost(status="unknown")
    assert compute(price, None, complete=True) == Cost(status="unknown", price=price)
    assert compute(price, Usage(), complete=True) == Cost(status="unknown", price=price)
    assert compute(None, Usage(), complete=True) == Cost(status="unknown")


def test_no_rate_is_unpriced():
    """A model without a rate has no cost, and never zero."""
    assert compute(None, CHAT, complete=True) == Cost(status="unpriced")


def test_a_free_model_costs_zero():
    """Rates of zero are a price."""
    cost = compute(price_of(input=0.0, output=0.0), CHAT, complete=True)
    assert (cost.status, cost.usd) == ("priced", 0.0)


def test_what_the_provider_billed_wins():
    """The reported cost is the cost; the table's is kept beside it."""
    usage = Usage(input_tokens=100, output_tokens=10, cost_usd=0.00042)
    cost = compute(price_of(input=0.000005, output=0.00001), usage, complete=True)
    assert (cost.status, cost.usd) == ("provider_reported", 0.00042)
    assert cost.list_usd == pytest.approx(0.0006)
    assert compute(None, usage, complete=False) == Cost(status="provider_reported", usd=0.00042)


@pytest.mark.parametrize("reported", [-1.0, float("nan"), float("inf")])
def test_an_impossible_reported_cost_is_ignored(reported):
    """A negative or endless amount is no bill: the table's price stands."""
    usage = Usage(input_tokens=100, output_tokens=10, cost_usd=reported)
    cost = compute(price_of(input=1.0, output=1.0), usage, complete=True)
    assert (cost.status, cost.usd) == ("priced", 110.0)


@pytest.mark.parametrize(
    ("usage", "complete", "usd", "missing"),
    [
        (Usage(input_tokens=100), True, 100.0, ("usage.output",)),
        (Usage(output_tokens=10), True, 20.0, ("usage.input",)),
        (CHAT, False, 120.0, ("stream",)),
        (Usage(input_tokens=100), False, 100.0, ("usage.output", "stream")),
        (
            Usage(input_tokens=50, cache_read_tokens=80, output_tokens=1),
            True,
            10.0,
            ("usage.input",),
        ),
    ],
)
def test_what_is_missing_makes_a_lower_bound_and_is_named(usage, complete, usd, missing):
    """A count that is absent or contradicts itself, or a stream cut short, is named."""
    price = price_of(input=1.0, output=2.0, cache_read=0.1)
    cost = compute(price, usage, complete=complete)
    assert (cost.status, cost.missing) == ("partial", missing)
    assert cost.usd == pytest.approx(usd)


def test_an_embedding_needs_no_output(prices):
    """A model without an output rate is priced by its input alone."""
    cost = compute(
        prices.find("openai", "text-embedding-3-small"), Usage(input_tokens=1000), complete=True
    )
    assert (cost.status, cost.usd) == ("priced", pytest.approx(1000 * 0.02 / MILLION))


def test_a_lower_bound_of_nothing_is_no_cost():
    """When none of what was used has a rate, there is no cost instead of zero."""
    cost = compute(price_of(web_search=1.0), CHAT, complete=True)
    assert (cost.status, cost.usd) == ("unpriced", None)
    assert cost.missing == ("rate.input", "rate.output")
