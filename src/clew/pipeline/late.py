"""Costs of rounds that ended before the prices were loaded, filled in on the export thread."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from clew import semconv
from clew.facts import Usage
from clew.pricing import PENDING, Cost, Prices, compute
from clew.semconv import (
    COST_CACHE_READ_USD,
    COST_CACHE_WRITE_USD,
    COST_INPUT_USD,
    COST_OUTPUT_USD,
    COST_STATUS,
    COST_USD,
    PRICE_MODEL,
    PRICE_SOURCE,
    PRICE_VERSION,
)

if TYPE_CHECKING:
    from clew.pipeline.stamp import Segment
    from clew.pipeline.totals import Totals

_PATIENCE_S = 5.0
_KEPT = 10_000


class Pending:
    """A round whose price is not known yet."""

    __slots__ = ("complete", "cost", "models", "provider", "segment", "tier", "usage")

    def __init__(
        self,
        *,
        provider: str | None,
        models: tuple[str | None, str | None],
        tier: str | None,
        usage: Usage,
        complete: bool,
        segment: Segment | None,
    ) -> None:
        self.provider = provider
        self.models = models
        self.tier = tier
        self.usage = usage
        self.complete = complete
        self.segment = segment
        self.cost: Cost | None = None


class LateCosts:
    """Rounds without a price yet, and run spans whose totals wait for them, by span id."""

    def __init__(self, prices: Prices) -> None:
        self._prices = prices
        self._rounds: dict[int, Pending] = {}
        self._runs: dict[int, Segment] = {}
        self._lock = threading.Lock()
        self.waiting = False
        """True once anything had to wait."""

    def add_round(self, span_id: int, pending: Pending) -> None:
        """Remember a round that ended while the prices were still loading."""
        self.waiting = True
        if len(self._rounds) < _KEPT:
            self._rounds[span_id] = pending

    def add_run(self, span_id: int, segment: Segment) -> None:
        """Remember a run span that ended with rounds unpriced because of loading."""
        if len(self._runs) < _KEPT:
            self._runs[span_id] = segment

    def settle(self, pending: Pending) -> bool:
        """Price a round if the prices are loaded by now, and add it to the totals once."""
        with self._lock:
            if pending.cost is not None:
                return True
            price = self._prices.find_for(pending.provider, *pending.models, pending.tier)
            if price is PENDING:
                return False
            pending.cost = cost = compute(price, pending.usage, complete=pending.complete)
        if pending.segment is not None:
            with pending.segment.lock:
                pending.segment.totals.add_cost_of(cost)
        return True

    def attributes(self, span_id: int) -> Mapping[str, Any]:
        """Return what is to be added to a span on export. Waits for the prices, boundedly."""
        if span_id not in self._rounds and span_id not in self._runs:
            return {}
        self._prices.wait(_PATIENCE_S)
        pending = self._rounds.pop(span_id, None)
        if pending is not None:
            self.settle(pending)
            found: dict[str, Any] = {}
            if pending.cost is not None:
                add_cost(found, pending.cost)
            return found
        segment = self._runs.pop(span_id)
        for waiting in segment.pending:
            self.settle(waiting)
        return totals_attributes(segment, segment.sums())


def totals_attributes(segment: Segment, totals: Totals) -> dict[str, Any]:
    """Return the totals of a segment, and with those of the segments before it, as attributes."""
    if segment.carried is None:
        return totals.attributes("clew.segment.", "clew.run.")
    return {
        **totals.attributes("clew.segment."),
        **segment.carried.plus(totals).attributes("clew.run."),
    }


def add_cost(attributes: dict[str, Any], cost: Cost) -> None:
    """Add a cost as attributes; what is unknown has none."""
    attributes[COST_STATUS] = cost.status
    if cost.usd is not None:
        attributes[COST_USD] = cost.usd
    if cost.input_usd is not None:
        attributes[COST_INPUT_USD] = cost.input_usd
    if cost.output_usd is not None:
        attributes[COST_OUTPUT_USD] = cost.output_usd
    if cost.cache_read_usd is not None:
        attributes[COST_CACHE_READ_USD] = cost.cache_read_usd
    if cost.cache_write_usd is not None:
        attributes[COST_CACHE_WRITE_USD] = cost.cache_write_usd
    if cost.tools_usd is not None:
        attributes[semconv.COST_TOOLS_USD] = cost.tools_usd
    if cost.list_usd is not None:
        attributes[semconv.COST_LIST_USD] = cost.list_usd
    if cost.missing:
        attributes[semconv.COST_MISSING] = cost.missing
    price = cost.price
    if price is not None:
        attributes[PRICE_SOURCE] = price.source
        attributes[PRICE_VERSION] = price.version
        attributes[PRICE_MODEL] = price.model
