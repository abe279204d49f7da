"""The page about cost: what model calls cost by day, agent and model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, Final
from urllib.parse import urlencode

import msgspec
from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from clew.sources import Source
from clew.store.costs import CostFilter, CostRow, CostSum, CostTable, today
from clew.web import access
from clew.web.parameters import day, word
from clew.web.views import NotFoundError, Views, json_response, twin_of, wants_json

DAYS: Final = 30
"""Days that are summed, unless the address says which."""
_TWIN: Final = "/api/costs"
_RANGES: Final = (7, 30, 90)
_LEAST_BAR: Final = 0.6
"""Percent: what costs anything at all is seen."""


class Bar(Struct, frozen=True, kw_only=True):
    """One line of a table, with the length of its bar in percent of the dearest line."""

    row: CostRow
    length: float


class CostPage:
    """The routes of `/costs` and its twin.

    Args:
        source: what is read.
        views: what renders.
    """

    def __init__(self, source: Source, views: Views) -> None:
        self._source = source
        self._views = views

    def routes(self) -> list[Route]:
        """Return the routes of page and twin."""
        return self._views.pair("/costs", _TWIN, self._show)

    def _show(self, request: Request) -> Response:
        asked = request.query_params
        scope = access.scope_of(request)
        wanted = filter_of(asked, scope)
        found = self._source.costs(wanted)
        if found is None:
            raise NotFoundError("This source does not add up costs.")
        if wants_json(request):
            return json_response(form(wanted, found))
        kept = {name: asked[name] for name in ("agent", "model") if asked.get(name)}
        return self._views.page(
            "costs.html",
            wanted=wanted,
            table=found,
            days=bars(found.days),
            agents=bars(found.agents),
            models=bars(found.models),
            known_agents=self._source.agents(scope),
            known_models=self._source.names("model", scope),
            ranges=[(each, _range(each, kept)) for each in _RANGES],
            words=words,
            link=_linked(asked),
            filtered=bool(kept),
            twin=twin_of(request, _TWIN),
        )


def filter_of(asked: Mapping[str, str], scope: access.Scope) -> CostFilter:
    """Read which calls are summed: `first` and `last` day, `agent` and `model`.

    Raises:
        QueryError: a value cannot be used.
    """
    last = day(asked, "last") or max(today(), day(asked, "first") or today())
    first = day(asked, "first") or last - timedelta(days=DAYS - 1)
    return CostFilter(
        first=first,
        last=last,
        agent=word(asked, "agent"),
        model=word(asked, "model"),
        scope=scope,
    )


def bars(rows: tuple[CostRow, ...]) -> tuple[Bar, ...]:
    """Return the lines of a table with their bars; what has no known cost has none."""
    most = max((each.cost_usd or 0.0 for each in rows), default=0.0)
    return tuple(
        Bar(
            row=each,
            length=max(_LEAST_BAR, round(100 * each.cost_usd / most, 2)) if each.cost_usd else 0.0,
        )
        for each in rows
    )


def words(total: CostSum) -> tuple[str, ...]:
    """Say what is not in a sum."""
    said: list[str] = []
    for number, one, many in (
        (total.unpriced, "call without a price", "calls without a price"),
        (total.unknown, "call of unknown usage", "calls of unknown usage"),
        (total.partial, "call known in part", "calls known in part"),
    ):
        if number:
            said.append(f"{number:,} {one if number == 1 else many}".replace(",", "\u202f"))
    return tuple(said)


def form(wanted: CostFilter, table: CostTable) -> dict[str, Any]:
    """Return the sums as JSON has them."""
    return {
        "first": wanted.first.isoformat(),
        "last": wanted.last.isoformat(),
        "agent": wanted.agent,
        "model": wanted.model,
        "total": _sum(table.total),
        "days": [_line("day", each) for each in table.days],
        "agents": [_line("agent", each) for each in table.agents],
        "models": [_line("model", each) for each in table.models],
        "more_agents": table.more_agents,
        "more_models": table.more_models,
    }


def _sum(total: CostSum) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.to_builtins(total)
    found.pop("name", None)
    return {**found, "lower_bound": total.lower_bound}


def _line(label: str, row: CostRow) -> dict[str, Any]:
    return {label: row.name, **_sum(row)}


def _range(days: int, kept: Mapping[str, str]) -> str:
    first = today() - timedelta(days=days - 1)
    return f"/costs?{urlencode({**kept, 'first': first.isoformat()})}"


def _linked(asked: Mapping[str, str]) -> Callable[..., str]:
    """Return what makes the address of this page with one more condition."""
    kept = {name: asked[name] for name in ("first", "last", "agent", "model") if asked.get(name)}

    def link(**more: str) -> str:
        return f"/costs?{urlencode({**kept, **more})}"

    return link
