"""Prices made by hand, and the rows of the price library."""

from __future__ import annotations

from genai_prices.data import providers as library_providers

from clew.pricing import Price, Rates

MILLION = 1_000_000
ROWS = [(provider.id, model.id) for provider in library_providers for model in provider.models]
"""Provider and model of each row of the price library."""


def price_of(**rates):
    """Return a price with these rates, in USD for one token."""
    return Price(provider="p", model="m", source="test", version="1", rates=Rates(**rates))
