"""Prices and costs: the table's own arithmetic, matched by name and honest about gaps."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from datetime import UTC, datetime, time, timedelta
from decimal import Decimal

import pytest
from genai_prices import Usage as LibraryUsage
from genai_prices.data import providers as library_providers
from genai_prices.data_snapshot import get_snapshot
from genai_prices.types import (
    ClauseContains,
    ClauseStartsWith,
    ConditionalPrice,
    ModelInfo,
    ModelPrice,
    TimeOfDateConstraint,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from clew.errors import ConfigurationError
from clew.facts import Usage
from clew.pricing import PENDING, Cost, Price, Prices, Rates, compute
from clew.pricing import cost as cost_module
from clew.pricing.library import _next_change
from clew.pricing.names import RowMatcher

MILLION = 1_000_000


@pytest.fixture(scope="module")
def prices():
    book = Prices()
    assert book.wait(60)
    return book


@pytest.fixture
def price_file(tmp_path):
    """Write a price file and return a book over it and genai-prices."""

    def write(*rows, version="2026-11-01", currency="USD", aliases=None, name="prices.json"):
        path = tmp_path / name
        content = {"version": version, "currency": currency, "prices": list(rows)}
        path.write_text(json.dumps({k: v for k, v in content.items() if v is not None}))
        book = Prices(aliases, path)
        assert book.wait(60)
        return book

    return write


def price_of(**rates):
    return Price(provider="p", model="m", source="test", version="1", rates=Rates(**rates))


# --- the arithmetic -----------------------------------------------------------------------------


@st.composite
def usages(draw):
    """A usage that does not contradict itself, and what genai-prices calls its counts."""
    count = st.integers(0, 400_000)
    few = st.one_of(st.just(0), count)
    text, cached, cached_audio = draw(count), draw(few), draw(few)
    short, long, audio, image = draw(few), draw(few), draw(few), draw(few)
    out_text, out_audio, reasoning = draw(count), draw(few), draw(few)
    searches = draw(st.integers(0, 5))
    ours = Usage(
        input_tokens=text + cached + cached_audio + short + long + audio + image,
        output_tokens=out_text + out_audio + reasoning,
        cache_read_tokens=cached + cached_audio,
        cache_read_audio_tokens=cached_audio,
        cache_write_tokens=short + long,
        cache_write_1h_tokens=long,
        input_audio_tokens=audio + cached_audio,
        input_image_tokens=image,
        output_audio_tokens=out_audio,
        reasoning_tokens=reasoning,
        web_searches=searches,
    )
    theirs = LibraryUsage(
        input_tokens=ours.input_tokens,
        output_tokens=ours.output_tokens,
        cache_read_tokens=ours.cache_read_tokens,
        cache_audio_read_tokens=cached_audio,
        cache_write_tokens=ours.cache_write_tokens,
        cache_write_1h_tokens=long,
        input_audio_tokens=audio + cached_audio,
        input_image_tokens=image,
        cache_image_read_tokens=0,
        output_audio_tokens=out_audio,
        output_image_tokens=0,
        output_reasoning_tokens=reasoning,
        output_citation_tokens=0,
        web_searches=searches,
    )
    return ours, theirs


ROWS = [(provider.id, model.id) for provider in library_providers for model in provider.models]


@given(row=st.sampled_from(ROWS), usage=usages())
@settings(
    max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_a_complete_cost_is_what_genai_prices_computes(prices, row, usage):
    """A priced cost equals the library's own; a lower bound for want of a rate is never above it."""
    provider, model = row
    price = prices.find(provider, model)
    if price is None:
        return
    ours, theirs = usage
    cost = compute(price, ours, complete=True)
    expected = get_snapshot().calc(theirs, model, provider, None, None).total_price
    if cost.status == "priced":
        assert cost.usd == pytest.approx(float(expected), rel=1e-9, abs=1e-15)
    elif cost.usd is not None:
        assert cost.status == "partial"
        assert cost.missing
        assert cost.usd <= float(expected) * (1 + 1e-9) + 1e-15


@given(row=st.sampled_from(ROWS), usage=usages(), complete=st.booleans())
@settings(
    max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_the_parts_sum_to_the_cost(prices, row, usage, complete):
    """Input, output, cache read, cache write and tools add up to the cost, and none is negative."""
    cost = compute(prices.find(*row), usage[0], complete=complete)
    parts = [
        part
        for part in (
            cost.input_usd,
            cost.output_usd,
            cost.cache_read_usd,
            cost.cache_write_usd,
            cost.tools_usd,
        )
        if part is not None
    ]
    assert all(part >= 0 for part in parts)
    if cost.usd is not None:
        assert cost.usd == pytest.approx(sum(parts), rel=1e-12)


counts = st.one_of(st.none(), st.integers(0, 10**7))


@given(
    usage=st.builds(
        Usage,
        input_tokens=counts,
        output_tokens=counts,
        cache_read_tokens=counts,
        cache_write_tokens=counts,
        cache_write_1h_tokens=counts,
        cache_read_audio_tokens=counts,
        input_audio_tokens=counts,
        output_audio_tokens=counts,
        input_image_tokens=counts,
        output_image_tokens=counts,
        reasoning_tokens=counts,
        web_searches=counts,
        cost_usd=st.one_of(st.none(), st.floats(), st.integers(-5, 5)),
    ),
    known=st.booleans(),
    complete=st.booleans(),
)
def test_any_usage_gives_an_honest_status(usage, known, complete):
    """Whatever the counts: no exception, no negative cost, and a cost only where one is known."""
    price = price_of(input=1e-6, output=2e-6, cache_read=1e-7) if known else None
    cost = compute(price, usage, complete=complete)
    assert (cost.usd is None) == (cost.status in {"unpriced", "unknown"})
    assert cost.usd is None or cost.usd >= 0
    assert (cost.status == "partial") <= bool(cost.missing)
    assert (cost.status in {"priced", "provider_reported"}) <= (not cost.missing)


few_counts = st.one_of(st.none(), st.just(0), st.integers(-10, 2000))
seldom = st.one_of(st.none(), st.none(), st.just(0), st.integers(0, 100))
some_rates = st.builds(
    Rates,
    input=st.sampled_from([None, 0.0, 1.3e-6, 0.1]),
    output=st.sampled_from([None, 0.0, 2.7e-6, 0.7]),
    cache_read=st.sampled_from([None, 0.0, 1.1e-7]),
    cache_write=st.sampled_from([None, 0.0, 3.3e-6]),
    reasoning=st.sampled_from([None, None, 9e-6]),
    request=st.sampled_from([None, None, 0.01]),
)
some_prices = st.builds(
    Price,
    provider=st.just("p"),
    model=st.just("m"),
    source=st.just("test"),
    version=st.just("1"),
    rates=some_rates,
    tiers=st.one_of(st.just(()), some_rates.map(lambda rates: ((1000, rates),))),
    unmeasured=st.sampled_from([(), (), ("video",)]),
)


@given(
    price=some_prices,
    usage=st.builds(
        Usage,
        input_tokens=few_counts,
        output_tokens=few_counts,
        cache_read_tokens=few_counts,
        cache_write_tokens=few_counts,
        reasoning_tokens=few_counts,
        cache_write_1h_tokens=seldom,
        cache_read_audio_tokens=seldom,
        input_audio_tokens=seldom,
        output_audio_tokens=seldom,
        input_image_tokens=seldom,
        output_image_tokens=seldom,
        web_searches=seldom,
    ),
)
@settings(max_examples=1500, deadline=None)
def test_the_short_way_for_text_gives_what_the_long_way_gives(price, usage):
    """Calls of the most frequent kind are computed apart, to the same last digit."""
    assert cost_module._compute(price, usage, complete=True) == compute(price, usage, complete=True)


def test_the_short_way_is_taken_for_text():
    """Else the test above would compare the long way with itself."""
    plain = Usage(input_tokens=100, output_tokens=5, cache_read_tokens=40, output_audio_tokens=0)
    price = price_of(input=1e-6, output=2e-6, cache_read=1e-7)
    assert price.text_rates == (1e-6, 2e-6, 1e-7, None)
    assert cost_module._of_text(price, price.text_rates, 100, 5, plain) is not None
    assert price_of(input=1e-6, output=2e-6, reasoning=1e-5).text_rates is None


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


# --- the status ---------------------------------------------------------------------------------

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
    assert (cost.status, cost.usd, cost.missing) == ("partial", cost.usd, missing)
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


# --- names --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("provider", "model", "row"),
    [
        ("openai", "gpt-4o", "gpt-4o"),
        ("openai", "gpt-4o-2024-08-06", "gpt-4o"),
        ("openai", "gpt-4o-2031-01-31", "gpt-4o"),
        ("openai", "openai/gpt-4o", "gpt-4o"),
        ("openai", "ft:gpt-4o-2024-08-06:an-organisation::8x7", "ft:gpt-4o"),
        ("anthropic", "claude-3-5-haiku-latest", "claude-3-5-haiku-latest"),
        ("anthropic", "claude-3-5-haiku-20241022", "claude-3-5-haiku-latest"),
        ("anthropic", "claude-sonnet-4-5-20250929", "claude-sonnet-4-5"),
        ("gcp.gemini", "models/gemini-2.5-flash", "gemini-2.5-flash"),
        ("gcp.gemini", "gemini-2.0-flash-001", "gemini-2.0-flash"),
        ("gcp.gemini", "gemini-2.5-pro-preview-05-06", "gemini-2.5-pro"),
        (
            "gcp.vertex_ai",
            "projects/p/locations/l/publishers/google/models/gemini-2.5-flash",
            "gemini-2.5-flash",
        ),
        (
            "aws.bedrock",
            "us.anthropic.claude-sonnet-4-5-20250929-v1:0",
            "regional.anthropic.claude-sonnet-4-5-20250929-v1:0",
        ),
        (
            "aws.bedrock",
            "global.anthropic.claude-sonnet-4-5-20250929-v1:0",
            "global.anthropic.claude-sonnet-4-5-20250929-v1:0",
        ),
        (
            "aws.bedrock",
            "arn:aws:bedrock:us-east-1:123456789012:inference-profile/us.anthropic.claude-sonnet-4-5-20250929-v1:0",
            "regional.anthropic.claude-sonnet-4-5-20250929-v1:0",
        ),
        ("openrouter", "openai/gpt-4o", "openai/gpt-4o"),
        ("azure.ai.openai", "gpt-4o-2024-08-06", "gpt-4o"),
        ("mistral_ai", "mistral-large-latest", "mistral-large"),
        ("x_ai", "grok-3", "grok-3"),
    ],
)
def test_a_known_form_of_a_name_finds_its_row(prices, provider, model, row):
    """Dates, moving names, places and prefixes resolve, and the row is recorded."""
    assert prices.find(provider, model).model == row


@pytest.mark.parametrize(
    ("provider", "model"),
    [
        ("openai", "gpt-4o-nonsense"),
        ("openai", "gpt-4o-realtime-nonsense"),
        ("openai", "gpt-4.5-preview-nonsense"),
        ("anthropic", "claude-3-5-haiku-mini"),
        ("anthropic", "claude-sonnet-4-50"),
        ("anthropic", "claude-opus-4-1x"),
        ("deepseek", "deepseek-r1-distill-llama-70b"),
        ("gcp.gemini", "gemini-2.5-pro-ultra"),
        ("gcp.gemini", "my-gemini-2.0-flash"),
        ("azure.ai.openai", "turbo-o4-mini"),
        (
            "aws.bedrock",
            "arn:aws:bedrock:us-east-1:123456789012:application-inference-profile/a1b2c3",
        ),
        ("ollama", "llama3.2"),
        ("openai", ""),
        ("openai", "/"),
        ("openai", "gpt-4o" + "-2024-08-06" * 1000),
        ("", "gpt-4o"),
        ("my-openai-proxy", "gpt-4o"),
        (None, "gpt-4o"),
        ("openai", None),
    ],
)
def test_a_name_that_merely_looks_alike_finds_nothing(prices, provider, model):
    """A sibling, an opaque name or an unknown provider has no price: nothing is guessed."""
    assert prices.find(provider, model) is None


def fuzzy_clauses():
    for provider in library_providers:
        for model in provider.models:
            for clause in RowMatcher(model.id, model.match).clauses:
                if isinstance(clause, ClauseStartsWith | ClauseContains):
                    yield model, clause


@pytest.mark.parametrize("suffix", ["-mini", "-fast", "x", "-7b", "-flash-lite"])
def test_no_prefix_of_the_table_reaches_a_sibling(suffix):
    """Whatever prefix a row matches by, another word behind it is another model."""
    reached = [
        (model.id, clause)
        for model, clause in fuzzy_clauses()
        for text in [getattr(clause, "starts_with", None) or clause.contains]
        if not text.endswith(("-", "@"))
        and (text.lower() + suffix) not in RowMatcher(model.id, model.match).names
        and RowMatcher(model.id, model.match).matches(text.lower() + suffix)
    ]
    assert reached == []


def test_every_name_of_the_table_finds_the_row_the_library_finds(prices):
    """The guard changes no exact match: row ids resolve as in genai-prices."""
    different = []
    for provider, model in ROWS:
        try:
            expected = get_snapshot().find_provider_model(model, None, provider, None)[1].id
        except LookupError:
            continue
        price = prices.find(provider, model)
        if price is not None and price.model != expected:
            different.append((provider, model, price.model, expected))
    assert different == []


@given(
    model=st.text(max_size=60),
    provider=st.sampled_from(["openai", "aws.bedrock", "azure", "google"]),
)
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_name_gives_a_price_or_none(prices, provider, model):
    """No name raises."""
    found = prices.find(provider, model)
    assert found is None or isinstance(found, Price)


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


# --- the user's file ----------------------------------------------------------------------------


def test_the_users_file_overrides(price_file):
    """A row of the user's wins over the library's, with its own source and version."""
    book = price_file({"provider": "openai", "model": "gpt-4o", "input": 1, "output": 2})
    price = book.find("openai", "gpt-4o-2024-08-06")
    assert (price.source, price.version, price.model) == ("prices.json", "2026-11-01", "gpt-4o")
    assert price.rates == Rates(input=1e-6, output=2e-6)
    assert book.find("openai", "gpt-4o-mini").source == "genai-prices"


def test_a_row_without_a_provider_holds_everywhere(price_file):
    """A model of the house is priced wherever it is served, also on an unknown host."""
    book = price_file({"model": "our-own-model", "input": 0, "output": 0})
    assert book.find(None, "our-own-model").rates == Rates(input=0.0, output=0.0)
    assert book.find("ollama", "our-own-model") is not None


def test_batch_rates_of_the_users_file(price_file):
    """Each class has the batch rate that its row gives; a model without such a row has none."""
    book = price_file(
        {"provider": "openai", "model": "model-x", "input": 2, "output": 8, "cache_read": 1},
        {
            "provider": "openai",
            "model": "model-x",
            "service_tier": "batch",
            "input": 1,
            "output": 4,
            "cache_read": 0.9,
        },
        {"provider": "openai", "model": "model-y", "input": 2, "output": 8},
    )
    usage = Usage(input_tokens=MILLION, cache_read_tokens=MILLION // 2, output_tokens=MILLION)
    cost = compute(book.find("openai", "model-x", "batch"), usage, complete=True)
    assert cost.usd == pytest.approx(0.5 + 0.45 + 4)
    assert book.find("openai", "model-y", "batch") is None


def test_only_known_forms_of_a_name_reach_a_row(price_file):
    """A dated or moving name finds the plain row; a sibling, or another date's row, does not."""
    book = price_file(
        {"provider": "openai", "model": "model-x", "input": 2, "output": 8},
        {"provider": "openai", "model": "model-z-2026-01-01", "input": 2, "output": 8},
    )
    for known in (
        "model-x",
        "model-x-2026-08-07",
        "model-x-20260807",
        "model-x-latest",
        "openai/model-x",
    ):
        assert book.find("openai", known).model == "model-x"
    for unknown in ("model-x-mini", "model-xl", "model", "model-z-2026-08-07", "model-z"):
        assert book.find("openai", unknown) is None


def test_tiers_of_the_users_file(price_file):
    """What a tier leaves out is as in its row."""
    book = price_file(
        {
            "provider": "openai",
            "model": "model-x",
            "input": 2,
            "output": 8,
            "tiers": [{"above": 200_000, "input": 4}],
        }
    )
    usage = Usage(input_tokens=MILLION, output_tokens=MILLION)
    assert compute(book.find("openai", "model-x"), usage, complete=True).usd == pytest.approx(12)


@pytest.mark.parametrize(
    ("rows", "options", "word"),
    [
        ([{"model": "m", "input": -1}], {}, "negative"),
        ([{"model": "m", "input": 1, "output": 2000}], {}, "neighbours"),
        (
            [{"model": f"m{n}", "input": 2} for n in range(4)] + [{"model": "m", "input": 3000}],
            {},
            "neighbours",
        ),
        ([{"model": "m", "input": 1}, {"model": "M", "input": 1}], {}, "twice"),
        ([{"model": "m", "input": 1}], {"currency": None}, "currency"),
        ([{"model": "m", "input": 1}], {"currency": "EUR"}, "'EUR'"),
        ([{"model": "m", "inptu": 1}], {}, "inptu"),
        ([{"model": "m"}], {}, "no rate"),
        ([{"input": 1}], {}, "model"),
    ],
)
def test_a_wrong_row_is_refused(price_file, rows, options, word):
    """A table that cannot be right is refused before anything starts, with the reason."""
    with pytest.raises(ConfigurationError, match=word):
        price_file(*rows, **options)


def test_a_file_that_is_no_price_file_is_refused(tmp_path):
    """A missing or malformed file is a configuration error."""
    with pytest.raises(ConfigurationError, match=r"nothing\.json"):
        Prices(None, tmp_path / "nothing.json")
    bad = tmp_path / "bad.json"
    bad.write_bytes(b"\xff{")
    with pytest.raises(ConfigurationError, match=r"bad\.json"):
        Prices(None, bad)


def test_a_file_without_a_version_is_known_by_its_content(price_file):
    """The version on a span tells two tables apart even when they do not say which they are."""
    one = price_file({"model": "m", "input": 1}, version=None).find(None, "m")
    two = price_file({"model": "m", "input": 2}, version=None).find(None, "m")
    assert len(one.version) == len(two.version) == 12
    assert one.version != two.version


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


# --- loading ------------------------------------------------------------------------------------


def run(script: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_nothing_is_loaded_before_it_is_wanted():
    """Importing the module loads no price table; the first question starts the loading thread."""
    script = (
        "import sys, threading\n"
        "from clew.pricing import Prices, PENDING\n"
        "assert 'genai_prices' not in sys.modules and 'pydantic' not in sys.modules\n"
        "book = Prices()\n"
        "assert book.find('openai', 'gpt-4o') is PENDING\n"
        "assert [(t.name, t.daemon) for t in threading.enumerate()][1:] == [('clew-prices', True)]\n"
        "assert book.wait(60)\n"
        "print(book.find('openai', 'gpt-4o').model)"
    )
    assert run(script) == "gpt-4o"


def test_the_network_is_never_used():
    """Loading and looking up open no socket and start no updater."""
    script = (
        "import socket, sys, threading\n"
        "def refuse(event, args):\n"
        "    if event in ('socket.connect', 'socket.getaddrinfo', 'socket.bind'):\n"
        "        print(event)\n"
        "sys.addaudithook(refuse)\n"
        "from clew.pricing import Prices\n"
        "book = Prices()\n"
        "assert book.wait(60)\n"
        "assert book.find('openai', 'gpt-4o') and not book.find('openai', 'nothing')\n"
        "threading.enumerate()[-1].join(5) if threading.active_count() > 1 else None\n"
        "print(threading.active_count())"
    )
    assert run(script) == "1"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
def test_a_forked_child_has_prices():
    """A child forked while the parent loads, or after, answers like the parent."""
    script = (
        "import os, sys, warnings\n"
        "warnings.simplefilter('ignore')\n"
        "from clew.pricing import Prices\n"
        "early, late = Prices(), Prices()\n"
        "early.load_in_background()\n"
        "for book in (early, late):\n"
        "    child = os.fork()\n"
        "    if child == 0:\n"
        "        fine = book.wait(30) and book.find('openai', 'gpt-4o').model == 'gpt-4o'\n"
        "        os._exit(0 if fine else 1)\n"
        "    assert os.waitpid(child, 0)[1] == 0\n"
        "print('both')"
    )
    assert run(script) == "both"


def test_many_threads_get_the_same_answer():
    """Look-ups from several threads at once, during the load too, end in one and the same price."""
    book = Prices()
    answers = []

    def ask():
        book.wait(60)
        answers.append(book.find("openai", "gpt-4o"))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert set(answers) == {book.find("openai", "gpt-4o")}
    assert PENDING not in answers


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
