"""Costs of any usage: those of genai-prices, the sum of their parts, honest about gaps."""

from __future__ import annotations

import pytest
from genai_prices import Usage as LibraryUsage
from genai_prices.data_snapshot import get_snapshot
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from priced import ROWS, price_of

from clew.facts import Usage
from clew.pricing import Price, Rates, compute
from clew.pricing import cost as cost_module


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
