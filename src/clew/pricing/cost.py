"""What one call costs: rates times counts, and an honest word where something is missing."""

from __future__ import annotations

import math
from typing import Final, Literal

import msgspec
from msgspec import Struct

from clew.facts import Usage

CostStatus = Literal["priced", "provider_reported", "partial", "unpriced", "unknown"]
"""`priced`: complete. `provider_reported`: what the provider billed. `partial`: a lower bound,
`Cost.missing` names what it lacks. `unpriced`: no rate. `unknown`: no usage."""


class Rates(Struct, frozen=True, kw_only=True, gc=False):
    """US dollars for one token of each kind, and for one web search and one request.

    None means that the price table has no rate of that kind; zero means free.
    """

    input: float | None = None
    output: float | None = None
    cache_read: float | None = None
    cache_write: float | None = None
    cache_write_1h: float | None = None
    """Cache writes with a lifetime of one hour; `cache_write` is for all others."""
    input_audio: float | None = None
    output_audio: float | None = None
    cache_read_audio: float | None = None
    input_image: float | None = None
    output_image: float | None = None
    reasoning: float | None = None
    """Reasoning tokens, where they cost something else than the rest of the output."""
    web_search: float | None = None
    request: float | None = None


class Price(Struct, frozen=True, kw_only=True, gc=False):
    """The compiled price of one model at one provider.

    `tiers` are `(above, rates)` in ascending order: a call with more input tokens than `above`
    is billed wholly at those rates, not only for the excess.
    """

    provider: str
    """The provider's id in the price table."""
    model: str
    """The id of the row that matched."""
    source: str
    """`genai-prices`, or the name of the user's price file."""
    version: str
    """The version of that source."""
    rates: Rates
    tiers: tuple[tuple[int, Rates], ...] = ()
    unmeasured: tuple[str, ...] = ()
    """Kinds that the row bills and that no usage counts: the cost is a lower bound."""
    service_tier: str | None = None
    """The tier or the batch processing whose rates these are; None for the standard rates."""
    text_rates: tuple[float, float, float | None, float | None] | None = None
    """Derived: input, output, cache reads and cache writes, where text costs nothing else."""

    def __post_init__(self) -> None:
        rates = self.rates
        if (
            rates.input is not None
            and rates.output is not None
            and rates.reasoning is None
            and rates.request is None
            and not self.unmeasured
        ):
            found = (rates.input, rates.output, rates.cache_read, rates.cache_write)
            msgspec.structs.force_setattr(self, "text_rates", found)


class Cost(Struct, frozen=True, kw_only=True, gc=False):
    """What a call cost in US dollars. The parts sum to `usd`; a part not reported is None.

    `input_usd` is the input that neither came from nor went to a cache. `list_usd` is what the
    price table says where the provider's own figure is `usd`; then the parts are None, since
    nobody said how the billed amount divides.
    """

    status: CostStatus
    usd: float | None = None
    input_usd: float | None = None
    output_usd: float | None = None
    cache_read_usd: float | None = None
    cache_write_usd: float | None = None
    tools_usd: float | None = None
    list_usd: float | None = None
    missing: tuple[str, ...] = ()
    """What a lower bound lacks: `rate.*`, `usage.*` or `stream`."""
    tier: int | None = None
    """The threshold in input tokens whose rates applied; None for the base rates."""
    price: Price | None = None


NO_USAGE: Final = Cost(status="unknown")
NO_RATE: Final = Cost(status="unpriced")


def compute(price: Price | None, usage: Usage | None, *, complete: bool) -> Cost:
    """Return the cost of one call.

    Args:
        price: The compiled price, or None when no rate is known.
        usage: The token split of the response, or None when it reports none.
        complete: False when the stream ended before its closing event.
    """
    if price is not None and usage is not None and complete:
        # Text in and out, cached or not, at base rates: nearly every call. `_compute` gives the
        # same, in more steps.
        total_in, total_out, rates = usage.input_tokens, usage.output_tokens, price.text_rates
        if not (
            rates is None
            or total_in is None
            or total_out is None
            or total_out < 0
            or (price.tiers and total_in > price.tiers[0][0])
            or usage.cost_usd is not None
            or usage.web_searches is not None
            or usage.cache_write_1h_tokens
            or usage.input_audio_tokens
            or usage.output_audio_tokens
            or usage.input_image_tokens
            or usage.output_image_tokens
            or usage.cache_read_audio_tokens
        ):
            cost = _of_text(price, rates, total_in, total_out, usage)
            if cost is not None:
                return cost
    if usage is None:
        return NO_USAGE if price is None else Cost(status="unknown", price=price)
    billed = usage.cost_usd
    if billed is not None and 0 <= billed < math.inf:
        listed = None if price is None else _compute(price, usage, complete=complete).usd
        return Cost(status="provider_reported", usd=float(billed), list_usd=listed, price=price)
    if price is None:
        return NO_USAGE if _says_nothing(usage) else NO_RATE
    return _compute(price, usage, complete=complete)


def _of_text(
    price: Price,
    rates: tuple[float, float, float | None, float | None],
    total_in: int,
    total_out: int,
    usage: Usage,
) -> Cost | None:
    """Return the cost of a complete call that is text only; None where a rate is missing."""
    rate_in, rate_out, rate_read, rate_write = rates
    read, written = usage.cache_read_tokens, usage.cache_write_tokens
    read_usd = written_usd = None
    output_usd = total_out * rate_out
    if read is not None:
        if read < 0 or (read and rate_read is None):
            return None
        total_in -= read
        read_usd = read * (rate_read or 0.0)
    if written is not None:
        if written < 0 or (written and rate_write is None):
            return None
        total_in -= written
        written_usd = written * (rate_write or 0.0)
    if total_in < 0:
        return None
    input_usd = total_in * rate_in
    usd = input_usd + output_usd
    if read_usd is not None:
        usd += read_usd
    if written_usd is not None:
        usd += written_usd
    return Cost(
        status="priced",
        usd=usd,
        input_usd=input_usd,
        output_usd=output_usd,
        cache_read_usd=read_usd,
        cache_write_usd=written_usd,
        price=price,
    )


def _compute(price: Price, usage: Usage, *, complete: bool) -> Cost:
    total_in = usage.input_tokens
    if _says_nothing(usage):
        return Cost(status="unknown", price=price)
    rates = price.rates
    tier = None
    for above, tier_rates in price.tiers:
        if total_in is not None and total_in > above:
            rates, tier = tier_rates, above
    missing: list[str] = []
    cache_read_usd = _cache_read(rates, usage, missing)
    cache_write_usd = _cache_write(rates, usage, missing)
    cached = (usage.cache_read_tokens or 0) + (usage.cache_write_tokens or 0)
    input_usd = _input(rates, usage, cached, missing)
    output_usd = _output(rates, usage, missing)
    tools_usd = _tools(rates, usage, missing)
    if price.unmeasured:
        missing.extend(f"usage.{kind}" for kind in price.unmeasured)
    if not complete:
        missing.append("stream")
    usd = (
        (input_usd or 0.0)
        + (output_usd or 0.0)
        + (cache_read_usd or 0.0)
        + (cache_write_usd or 0.0)
        + (tools_usd or 0.0)
    )
    if missing and usd == 0.0:
        return _nothing_known(price, missing)
    return Cost(
        status="partial" if missing else "priced",
        usd=usd,
        input_usd=input_usd,
        output_usd=output_usd,
        cache_read_usd=cache_read_usd,
        cache_write_usd=cache_write_usd,
        tools_usd=tools_usd,
        missing=tuple(missing),
        tier=tier,
        price=price,
    )


def _nothing_known(price: Price, missing: list[str]) -> Cost:
    """Return a cost without an amount: a lower bound of zero would read as "free"."""
    unpriced = any(name.startswith("rate.") for name in missing)
    return Cost(status="unpriced" if unpriced else "unknown", missing=tuple(missing), price=price)


def _says_nothing(usage: Usage) -> bool:
    return usage.input_tokens is None and usage.output_tokens is None and not usage.web_searches


def _cache_read(rates: Rates, usage: Usage, missing: list[str]) -> float | None:
    """Return dollars for tokens read from a cache."""
    text = usage.cache_read_tokens
    if text is None:
        return None
    audio = usage.cache_read_audio_tokens or 0
    if not audio:
        return _times(text, rates.cache_read, "rate.cache_read", missing)
    return _sum(
        _times(text - audio, rates.cache_read, "rate.cache_read", missing),
        _times(audio, rates.cache_read_audio, "rate.cache_read_audio", missing),
    )


def _cache_write(rates: Rates, usage: Usage, missing: list[str]) -> float | None:
    """Return dollars for tokens written to a cache, the two lifetimes each at its own rate."""
    short = usage.cache_write_tokens
    if short is None:
        return None
    long = usage.cache_write_1h_tokens or 0
    if not long:
        return _times(short, rates.cache_write, "rate.cache_write", missing)
    return _sum(
        _times(short - long, rates.cache_write, "rate.cache_write", missing),
        _times(long, rates.cache_write_1h, "rate.cache_write_1h", missing),
    )


def _input(rates: Rates, usage: Usage, cached: int, missing: list[str]) -> float | None:
    """Return dollars for input outside the caches, sound and images at their own rates."""
    text = usage.input_tokens
    if text is None:
        if rates.input != 0:
            missing.append("usage.input")
        return None
    text -= cached
    audio = usage.input_audio_tokens or 0
    if audio:
        audio -= usage.cache_read_audio_tokens or 0
        text -= audio
    image = usage.input_image_tokens or 0
    if image and rates.input_image is not None:
        text -= image
    else:
        # Without a rate of their own images are billed as text (Gemini: "text / image / video").
        image = 0
    if text < 0 or audio < 0:
        missing.append("usage.input")
    return _sum(
        _times(text, rates.input, "rate.input", missing),
        _times(audio, rates.input_audio, "rate.input_audio", missing),
        _times(image, rates.input_image, "rate.input_image", missing),
    )


def _output(rates: Rates, usage: Usage, missing: list[str]) -> float | None:
    """Return dollars for output, reasoning included."""
    text = usage.output_tokens
    if text is None:
        # Embeddings have no output and no rate for it.
        if rates.output:
            missing.append("usage.output")
        return None
    audio = usage.output_audio_tokens or 0
    image = usage.output_image_tokens or 0
    reasoning = (usage.reasoning_tokens or 0) if rates.reasoning is not None else 0
    text -= audio + image + reasoning
    if text < 0:
        missing.append("usage.output")
    return _sum(
        _times(text, rates.output, "rate.output", missing),
        _times(audio, rates.output_audio, "rate.output_audio", missing),
        _times(image, rates.output_image, "rate.output_image", missing),
        _times(reasoning, rates.reasoning, "rate.reasoning", missing),
    )


def _tools(rates: Rates, usage: Usage, missing: list[str]) -> float | None:
    """Return dollars for what is billed by the request, such as the provider's own search."""
    searches = usage.web_searches
    usd = None
    if searches is not None:
        usd = _times(searches, rates.web_search, "rate.web_search", missing)
    if rates.request is not None:
        usd = rates.request if usd is None else usd + rates.request
    return usd


def _times(count: int, rate: float | None, name: str, missing: list[str]) -> float | None:
    """Return dollars for `count`; None, and `name` on the list, when there is no rate.

    Nothing costs nothing, whatever its rate. A negative count comes from a usage that
    contradicts itself and counts as nothing.
    """
    if count <= 0:
        return 0.0
    if rate is None:
        missing.append(name)
        return None
    return count * rate


def _sum(*parts: float | None) -> float | None:
    """Add what is known; None when nothing that counts is known."""
    total = 0.0
    unknown = False
    for part in parts:
        if part is None:
            unknown = True
        else:
            total += part
    return None if unknown and total == 0.0 else total
