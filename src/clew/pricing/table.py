"""The user's own price file.

    {
      "version": "2026-11-01",
      "currency": "USD",
      "prices": [
        {"provider": "openai", "model": "model-x", "input": 2.5, "output": 10, "cache_read": 0.25,
         "tiers": [{"above": 200000, "input": 5, "output": 15}]},
        {"provider": "openai", "model": "model-x", "service_tier": "batch", "input": 1.25},
        {"model": "our-own-model", "input": 0, "output": 0}
      ]
    }

Token rates are US dollars for a million tokens, `web_search` and `request` for one. A row
without `provider` holds wherever the model is served. A row with a `service_tier` gives the
rates of that tier (`batch` for batch processing); rates that it leaves out are unknown there.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import msgspec
from msgspec import Struct

from clew.errors import ConfigurationError
from clew.pricing.cost import Price, Rates
from clew.pricing.names import candidates, provider_id

PER_UNIT = ("web_search", "request")
"""Rates for one, not for a million."""

_SUSPICIOUS = 1000


class _Rates(Struct, kw_only=True, forbid_unknown_fields=True):
    input: float | None = None
    output: float | None = None
    cache_read: float | None = None
    cache_write: float | None = None
    cache_write_1h: float | None = None
    input_audio: float | None = None
    output_audio: float | None = None
    cache_read_audio: float | None = None
    input_image: float | None = None
    output_image: float | None = None
    reasoning: float | None = None
    web_search: float | None = None
    request: float | None = None


class _Tier(_Rates, kw_only=True, forbid_unknown_fields=True):
    above: int


class _Row(_Rates, kw_only=True, forbid_unknown_fields=True):
    model: str
    provider: str | None = None
    service_tier: str | None = None
    tiers: list[_Tier] = []


class _File(Struct, kw_only=True, forbid_unknown_fields=True):
    currency: str
    prices: list[_Row]
    version: str | None = None


_RATES = Rates.__struct_fields__
_Key = tuple[str | None, str, str | None]


class PriceTable:
    """The rows of one price file, compiled. A row here beats the row of genai-prices."""

    __slots__ = ("_rows", "source", "version")

    def __init__(self, rows: dict[_Key, Price], source: str, version: str) -> None:
        self._rows = rows
        self.source = source
        self.version = version

    def find(self, provider: str | None, model: str, service_tier: str | None) -> Price | None:
        """Return the row for a model at a provider (a price-table id, or None when unknown)."""
        for name in candidates(provider or "", model):
            for served_by in (provider, None):
                price = self._rows.get((served_by, name, service_tier))
                if price is not None:
                    return price
        return None

    def __iter__(self) -> Iterator[Price]:
        """Iterate over the compiled rows, in the order of the file."""
        return iter(self._rows.values())


def read(path: Path) -> PriceTable:
    """Read and check a price file.

    Raises:
        ConfigurationError: The file cannot be read, is not of the shape above, or holds a row
            that cannot be right: a negative rate, a rate a thousand times its neighbours, a row
            given twice, a currency other than USD.
    """
    try:
        raw = path.read_bytes()
        content = msgspec.json.decode(raw, type=_File)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"price file {path.name!r} cannot be read: {error}") from None
    if content.currency != "USD":
        raise ConfigurationError(
            f"price file {path.name!r} is in {content.currency!r}: convert its rates to 'USD'"
        )
    source = re.sub(r"[^A-Za-z0-9_.-]", "_", path.name)
    version = content.version or hashlib.sha256(raw).hexdigest()[:12]
    rows: dict[_Key, Price] = {}
    for number, row in enumerate(content.prices, 1):
        where = f"price file {path.name!r}, row {number} ({row.model!r})"
        _check(row, content.prices, where)
        provider = None if row.provider is None else provider_id(row.provider)
        tier = None if row.service_tier is None else row.service_tier.lower()
        key = (provider, row.model.strip().lower(), tier)
        if key in rows:
            raise ConfigurationError(f"{where} is given twice: remove one of them")
        rows[key] = Price(
            provider=provider or "",
            model=row.model,
            source=source,
            version=version,
            rates=_per_token(row),
            tiers=tuple(
                (tier_row.above, _per_token(tier_row, row))
                for tier_row in sorted(row.tiers, key=lambda one: one.above)
            ),
            service_tier=tier,
        )
    return PriceTable(rows, source, version)


def _per_token(row: _Rates, base: _Rates | None = None) -> Rates:
    """Convert to dollars for one token; what a tier leaves out is as in `base`."""
    rates: dict[str, float] = {}
    for name in _RATES:
        value = getattr(row, name)
        if value is None and base is not None:
            value = getattr(base, name)
        if value is not None:
            rates[name] = value if name in PER_UNIT else value / 1_000_000
    return Rates(**rates)


def _check(row: _Row, rows: list[_Row], where: str) -> None:
    for part in (row, *row.tiers):
        given = {name: rate for name in _RATES if (rate := getattr(part, name)) is not None}
        if not given:
            raise ConfigurationError(f"{where} has no rate: give at least 'input'")
        for name, rate in given.items():
            if rate < 0:
                raise ConfigurationError(f"{where} has a negative {name!r} rate: {rate}")
        for name in given.keys() - PER_UNIT:
            others = [
                *(rate for other, rate in given.items() if other not in (name, *PER_UNIT)),
                *(rate for other in rows if other is not row and (rate := getattr(other, name))),
            ]
            usual = median(others) if others else 0
            if usual and given[name] >= _SUSPICIOUS * usual:
                raise ConfigurationError(
                    f"{where} has a {name!r} rate of {given[name]}, {_SUSPICIOUS} times its "
                    "neighbours or more: rates are US dollars for a million tokens"
                )
