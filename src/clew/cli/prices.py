"""`clew prices`."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, Final, NamedTuple

import typer

from clew.cli.output import clean, print_json, print_table, say
from clew.errors import ClewError
from clew.pricing import Price, Prices, Rates
from clew.pricing.names import candidates, provider_id
from clew.pricing.table import PER_UNIT
from clew.settings import Settings

_PATIENCE_S: Final = 30.0
_SERVICE_TIERS: Final = ("batch", "flex", "priority", "fast")
_COLUMNS: Final = ("provider", "row", "input", "output", "cache read", "cache write", "above")


class Match(NamedTuple):
    """A row that a name stands for, and how it was found."""

    price: Price
    resolved: tuple[str, ...]
    """The steps from the name asked for to the row, `from -> to`."""
    service_tiers: tuple[Price, ...]
    until: float | None
    """When other rates take their place (seconds since the epoch), where that is known."""
    page: str | None
    """Where the provider publishes its prices."""


def prices(
    model: Annotated[
        str, typer.Argument(help="A model, a deployment or an alias.", metavar="MODEL")
    ],
    provider: Annotated[
        str | None,
        typer.Option(help="Only this provider, as in gen_ai.provider.name. [default: all]"),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show what a model costs, where the rates come from, and which row its name stands for."""
    book = _Book(Settings.from_environment())
    found = book.matches(provider, model)
    if not found:
        raise ClewError(_unknown(book, provider, model))
    if json:
        print_json({"model": model, "provider": provider, "matches": [_form(one) for one in found]})
    elif len(found) == 1:
        _print_one(found[0])
    else:
        _print_many(found)


class _Book:
    """The prices as a service with the same settings has them, and the names in them."""

    def __init__(self, settings: Settings) -> None:
        self.prices = Prices(settings.model_aliases, settings.prices_file)
        if not self.prices.wait(_PATIENCE_S) or self.prices._library is None:
            raise ClewError("the price library cannot be loaded: reinstall `genai-prices`")
        self._library = self.prices._library

    def providers(self) -> list[str]:
        """Return the ids of the table's providers, the user's own first."""
        own = [row.provider for row in self.prices.table or () if row.provider]
        return list(dict.fromkeys((*own, *self._library._providers)))

    def matches(self, provider: str | None, model: str) -> list[Match]:
        """Return the rows that a name stands for, at one provider or at all of them."""
        asked = [provider] if provider is not None else [None, *self.providers()]
        found: dict[tuple[str, str, str], Match] = {}
        for each in asked:
            price = self.prices.find(each, model)
            if isinstance(price, Price):
                key = (price.source, price.provider, price.model)
                found.setdefault(key, self._match(each, model, price))
        return list(found.values())

    def _match(self, provider: str | None, model: str, price: Price) -> Match:
        tiers = [self.prices.find(provider, model, tier) for tier in _SERVICE_TIERS]
        memo = self.prices._memo.get((provider, model, None))
        return Match(
            price,
            tuple(self._steps(provider, model, price)),
            tuple([tier for tier in tiers if isinstance(tier, Price)]),
            memo[1] if memo is not None else None,
            self._page(price.provider),
        )

    def _steps(self, provider: str | None, model: str, price: Price) -> Iterator[str]:
        alias = self.prices._alias(provider, model)
        if alias is not None:
            provider, name = alias
            yield f"alias {model} -> {name if provider is None else f'{provider}/{name}'}"
            model = name
        if provider is not None and provider_id(provider) != provider:
            yield f"provider {provider} -> {provider_id(provider)}"
        if model.strip().lower() != price.model.lower():
            yield f"name {model} -> {price.model}"

    def names(self, provider: str | None) -> list[str]:
        """Return every name of a row, at one provider or at all of them, and the aliases."""
        wanted = None if provider is None else provider_id(provider)
        own = [row.model for row in self.prices.table or () if wanted in (None, row.provider)]
        listed = [
            model.id
            for each in self._library._providers.values()
            if wanted in (None, each.id)
            for model in each.models
        ]
        return list(dict.fromkeys((*own, *listed, *self.prices._aliases)))

    def _page(self, provider: str) -> str | None:
        known = self._library._providers.get(provider)
        return None if known is None or not known.pricing_urls else known.pricing_urls[0]


def _unknown(book: _Book, provider: str | None, model: str) -> str:
    """Say that there is no price, and what the name may have been meant to be."""
    if provider is not None:
        known = book.providers()
        if provider_id(provider) not in known:
            near = difflib.get_close_matches(provider_id(provider), known, 3, 0.5)
            hint = f"nearest: {', '.join(near)}" if near else "leave --provider out to see all"
            return f"no prices of a provider {provider!r} are known; {hint}"
    names = book.names(provider)
    by_lower = {name.lower(): name for name in names}
    near: list[str] = []
    for form in candidates(provider or "", model):
        near += difflib.get_close_matches(form, by_lower, 5, 0.6)
    where = "" if provider is None else f" at {provider}"
    shown = ", ".join([by_lower[name] for name in dict.fromkeys(near)][:5])
    hint = f"nearest names: {shown}" if shown else "no name is like it"
    return (
        f"no price of {model!r} is known{where}; {hint}. "
        "A price file (CLEW_PRICES_FILE) or an alias (CLEW_MODEL_ALIASES) can name one"
    )


# --- as JSON --------------------------------------------------------------------------------------


def _form(match: Match) -> dict[str, Any]:
    price = match.price
    return {
        "provider": price.provider or None,
        "row": price.model,
        "source": price.source,
        "version": price.version,
        "until": _moment(match.until),
        "page": match.page,
        "resolved": match.resolved,
        **_rates_form(price),
        "service_tiers": {tier.service_tier: _rates_form(tier) for tier in match.service_tiers},
        "unmeasured": price.unmeasured,
    }


def _rates_form(price: Price) -> dict[str, Any]:
    return {
        "rates": _rates(price.rates),
        "tiers": [{"above": above, "rates": _rates(rates)} for above, rates in price.tiers],
    }


def _rates(rates: Rates) -> dict[str, float]:
    """Return the rates that are known: dollars for a million tokens, or for one of the others."""
    return {
        name: round(value if name in PER_UNIT else value * 1_000_000, 9)
        for name in Rates.__struct_fields__
        if (value := getattr(rates, name)) is not None
    }


def _moment(seconds: float | None) -> str | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC).isoformat()


# --- for people -----------------------------------------------------------------------------------


def _print_many(found: Sequence[Match]) -> None:
    rows: list[tuple[str, ...]] = []
    for match in found:
        price = match.price
        for above, rates in ((None, price.rates), *price.tiers):
            known = _rates(rates)
            rows.append(
                (
                    price.provider or "any",
                    price.model,
                    *[_figure(known.get(name)) for name in _FEW],
                    "" if above is None else f"{above}",
                )
            )
    print_table(_COLUMNS, rows, right=range(2, len(_COLUMNS)))
    sources = dict.fromkeys(f"{match.price.source} {match.price.version}" for match in found)
    say(f"US dollars for a million tokens, from {', '.join(sources)}; --provider shows the rest")


_FEW: Final = ("input", "output", "cache_read", "cache_write")


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.10g}"


def _print_one(match: Match) -> None:
    price = match.price
    columns = [("standard", price.rates)]
    columns += [(f"above {above}", rates) for above, rates in price.tiers]
    for tier in match.service_tiers:
        columns.append((str(tier.service_tier), tier.rates))
        columns += [(f"{tier.service_tier} above {above}", rates) for above, rates in tier.tiers]
    known = [_rates(rates) for _, rates in columns]
    rows = [
        (_unit(name), *[_figure(one.get(name)) for one in known])
        for name in Rates.__struct_fields__
        if any(name in one for one in known)
    ]
    print(clean(f"{price.model} ({price.provider or 'any provider'})"))
    names = [name for name, _ in columns]
    print_table(("US dollars", *names), rows, right=range(1, len(columns) + 1))
    for name, value in _facts(match):
        print(clean(f"{name:9} {value}"))


def _unit(name: str) -> str:
    words = name.replace("_", " ")
    return f"{words}, each" if name in PER_UNIT else f"{words}, per million"


def _facts(match: Match) -> Iterator[tuple[str, str]]:
    price = match.price
    yield "source", f"{price.source} {price.version}"
    if match.until is not None:
        yield "until", str(_moment(match.until))
    if match.page is not None:
        yield "see", match.page
    yield "row", price.model
    yield "resolved", "; ".join(match.resolved) or "by its own name"
    if price.unmeasured:
        yield "also", f"billed, but never counted: {', '.join(price.unmeasured)}"
