"""The user's own price file: what overrides, what is matched, what is refused."""

from __future__ import annotations

import pytest
from priced import MILLION

from clew.errors import ConfigurationError
from clew.facts import Usage
from clew.pricing import Prices, Rates, compute


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
