"""genai-prices, compiled. Imported by the loader thread alone: it takes a third of a second.

Only the rates shipped inside the package are used; its updater, which fetches newer ones over
the network, is never started.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from datetime import UTC, datetime, time, timedelta
from decimal import Decimal
from importlib.metadata import version
from typing import Any, Final

from genai_prices import types
from genai_prices.data import providers as bundled

from clew.pricing.cost import Price, Rates
from clew.pricing.names import RowMatcher, candidates

SOURCE: Final = "genai-prices"

_KEYS: Final = {
    "input_mtok": "input",
    "output_mtok": "output",
    "cache_read_mtok": "cache_read",
    "cache_write_mtok": "cache_write",
    "cache_write_1h_mtok": "cache_write_1h",
    "input_audio_mtok": "input_audio",
    "output_audio_mtok": "output_audio",
    "cache_audio_read_mtok": "cache_read_audio",
    "input_image_mtok": "input_image",
    "output_image_mtok": "output_image",
    "output_reasoning_mtok": "reasoning",
    "web_searches_kcount": "web_search",
    "requests_kcount": "request",
}
_PER_THOUSAND: Final = frozenset({"web_searches_kcount", "requests_kcount"})
_UNMEASURED: Final = {
    "output_citation_mtok": "citation",
    "audio_hours": "audio_seconds",
    "input_audio_hours": "audio_seconds",
    "output_audio_hours": "audio_seconds",
    "input_mchars": "characters",
    "input_document_kpages": "document_pages",
    "input_annotated_document_kpages": "document_pages",
    "input_text_messages_kcount": "messages",
    "rerank_searches_kcount": "rerank_searches",
}
"""Rates for what every such call uses and no usage of ours counts. Video, file search and code
execution are not here: a call need not use them."""

_FREE: Final = dict.fromkeys(
    ("input", "output", "cache_read", "cache_write", "cache_write_1h"), 0.0
)


class Library:
    """The rows of genai-prices, matched by guarded names and compiled to floats."""

    def __init__(self) -> None:
        self.version = version("genai-prices")
        self._providers = {provider.id: provider for provider in bundled}
        self._matchers: dict[str, list[tuple[RowMatcher, types.ModelInfo]]] = {}

    def knows(self, provider: str) -> bool:
        """Tell whether `provider` is an id of the table."""
        return provider in self._providers

    def find(
        self, provider: str, model: str, service_tier: str | None
    ) -> tuple[Price | None, float | None]:
        """Return the price at this moment and until when it holds (None: for good)."""
        found = self._match(provider, model)
        if found is None:
            return None, None
        served_by, owner, row = found
        return self._compile(served_by, row, service_tier, own=owner == served_by)

    def context_length(self, provider: str, model: str) -> int | None:
        """Return how many tokens a model takes, input and output together; None: nobody says."""
        found = self._match(provider, model)
        return None if found is None else found[2].context_window

    def _match(self, provider: str, model: str) -> tuple[str, str, types.ModelInfo] | None:
        """Return the provider's id, the id of whose row it is, and the row."""
        served_by = self._providers.get(provider) or self._providers.get(provider.replace("_", "-"))
        if served_by is None:
            return None
        for name in candidates(served_by.id, model):
            for owner in (served_by.id, *(served_by.fallback_model_providers or ())):
                for matcher, row in self._rows(owner):
                    if matcher.matches(name):
                        return served_by.id, owner, row
        return None

    def _rows(self, provider: str) -> list[tuple[RowMatcher, types.ModelInfo]]:
        rows = self._matchers.get(provider)
        if rows is None:
            found = self._providers.get(provider)
            models = [] if found is None else found.models
            rows = [(RowMatcher(model.id, model.match), model) for model in models]
            self._matchers[provider] = rows
        return rows

    def _compile(
        self, provider: str, row: types.ModelInfo, service_tier: str | None, *, own: bool
    ) -> tuple[Price | None, float | None]:
        now = datetime.now(tz=UTC)
        until = _next_change(row, now)
        context = None if service_tier is None else _context(service_tier)
        if context is not None and not (own and _has_variant(row, context, now)):
            # Another tier's rates are no stand-in: half price for a batch would be a guess.
            return None, until
        prices = row.get_prices(now, context)
        given = {key: value for key, value in vars(prices).items() if value is not None}
        base = _rates(given, None)
        if not base:
            if not _is_free(row):
                return None, until
            base = _FREE
        starts = sorted(
            {
                tier.start
                for value in given.values()
                if isinstance(value, types.TieredPrices)
                for tier in value.tiers
            }
        )
        price = Price(
            provider=provider,
            model=row.id,
            source=SOURCE,
            version=self.version,
            rates=Rates(**base),
            tiers=tuple((start, Rates(**_rates(given, start))) for start in starts),
            unmeasured=tuple(
                dict.fromkeys(_UNMEASURED[key] for key in given if key in _UNMEASURED)
            ),
            service_tier=service_tier,
        )
        return price, until


def _rates(given: Mapping[str, Any], start: int | None) -> dict[str, float]:
    """Convert to dollars for one; `start` names the tier, None the base."""
    rates: dict[str, float] = {}
    for key, name in _KEYS.items():
        value = given.get(key)
        if isinstance(value, types.TieredPrices):
            rate = value.base
            if start is not None:
                for tier in value.tiers:
                    if tier.start <= start:
                        rate = tier.price
            value = rate
        if isinstance(value, Decimal) and value.is_finite() and value >= 0:
            rates[name] = float(value / (1_000 if key in _PER_THOUSAND else 1_000_000))
    return rates


def _is_free(row: types.ModelInfo) -> bool:
    """Tell a free model from one whose rates are not known; both rows are empty."""
    return row.id.endswith(":free") or "free of charge" in (row.price_comments or "").lower()


def _context(service_tier: str) -> dict[str, str]:
    if service_tier == "batch":
        return {"processing": "batch"}
    return {"service_tier": service_tier}


def _has_variant(row: types.ModelInfo, context: Mapping[str, str], now: datetime) -> bool:
    return any(
        variant.when == context and (variant.constraint is None or variant.constraint.active(now))
        for variant in row.price_variants or ()
    )


def _next_change(row: types.ModelInfo, now: datetime) -> float | None:
    """Return when another of the row's conditional prices may take over, in epoch seconds."""
    conditions: list[Any] = [variant.constraint for variant in row.price_variants or ()]
    if isinstance(row.prices, list):
        conditions.extend(price.constraint for price in row.prices)
    changes: list[datetime] = []
    for condition in conditions:
        if isinstance(condition, types.StartDateConstraint):
            changes.append(datetime.combine(condition.start_date, time(), tzinfo=UTC))
        elif isinstance(condition, types.TimeOfDateConstraint):
            for moment in (condition.start_time, condition.end_time):
                aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
                today = datetime.combine(now.astimezone(aware.tzinfo).date(), aware)
                changes.extend(today + timedelta(days=day) for day in (0, 1))
    return min((change.timestamp() for change in changes if change > now), default=None)


@functools.cache
def library() -> Library:
    """Return the process's one compiled library."""
    return Library()
