"""The list of runs, and searching in it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from clew import semconv
from clew.sources import Source, forms
from clew.store.records import Page, RunFilter, RunSummary
from clew.web import access
from clew.web.parameters import amount, flag, moment, whole, word
from clew.web.views import Views, json_response, twin_of, wants_json

LIMIT: Final = 50
"""Runs on a page, unless the address says otherwise."""
_TWIN: Final = "/api/runs"
_TEXTS: Final = ("agent", "status", "model", "tool", "gate", "outcome")
_FLAGS: Final = ("denied", "failed", "everything")
_MORE: Final = ("model", "tool", "gate", "outcome", "since", "until", "cost_from", "cost_to")
"""What stands behind "More" in the form."""


class SearchPage:
    """The routes of the list and its twin.

    Args:
        source: what is read.
        views: what renders.
    """

    def __init__(self, source: Source, views: Views) -> None:
        self._source = source
        self._views = views

    def routes(self) -> list[Route]:
        """Return the routes of page and twin."""
        return self._views.pair("/", _TWIN, self._list)

    def _list(self, request: Request) -> Response:
        asked = request.query_params
        visit = access.visit_of(request)
        scope = visit.scope()
        wanted = filter_of(asked, visit)
        page = Page(limit=whole(asked, "limit", LIMIT), after=asked.get("after") or None)
        found = self._source.runs(wanted, page)
        if wants_json(request):
            runs = [
                {**forms.run_form(each), "readable": _covers(scope, each)} for each in found.runs
            ]
            return json_response({"runs": runs, "next": found.next})
        kept = {key: value for key, value in asked.items() if key != "after" and value}
        said = {key for key in kept if key != "limit"}
        return self._views.page(
            "runs.html",
            runs=[(each, _covers(scope, each)) for each in found.runs],
            older=f"/?{urlencode({**kept, 'after': found.next})}" if found.next else None,
            newest=f"/?{urlencode(kept)}" if page.after else None,
            wanted=wanted,
            asked={name: asked.get(name, "") for name in (*_TEXTS, *_MORE)},
            filtered=bool(said),
            more=bool(said & set(_MORE)),
            agents=self._source.agents(scope),
            names={kind: self._source.names(kind, scope) for kind in ("model", "tool", "gate")},
            outcomes=semconv.DECISION_OUTCOMES,
            twin=twin_of(request, _TWIN),
        )


def filter_of(asked: Mapping[str, str], visit: access.Visit) -> RunFilter:
    """Read what is searched for, within what this reader may read.

    Raises:
        QueryError: a value cannot be used.
    """
    given: dict[str, Any] = {
        **{name: word(asked, name) for name in _TEXTS},
        **{name: flag(asked, name) for name in _FLAGS},
    }
    return RunFilter(
        **given,
        since_ns=moment(asked, "since"),
        until_ns=moment(asked, "until", end=True),
        cost_from=amount(asked, "cost_from"),
        cost_to=amount(asked, "cost_to"),
        scope=visit.scope(),
        waiting_of=visit.approver(),
    )


def _covers(scope: access.Scope, run: RunSummary) -> bool:
    return scope.covers(tenant=run.tenant, agent=run.agent, actor=run.actor)
