"""Names of models: which forms find a row, and that nothing is guessed."""

from __future__ import annotations

import pytest
from genai_prices.data import providers as library_providers
from genai_prices.data_snapshot import get_snapshot
from genai_prices.types import ClauseContains, ClauseStartsWith
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from priced import ROWS

from clew.pricing import Price
from clew.pricing.names import RowMatcher


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
