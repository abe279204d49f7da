"""The list of runs, and searching in it."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from clew import semconv
from clew.sources import Source, forms
from clew.store.groups import LONGEST
from clew.store.records import Page, QueryError, RunFilter, RunSummary
from clew.web import access
from clew.web.views import Views, flag, json_response, wants_json, whole

LIMIT: Final = 50
"""Runs on a page, unless the address says otherwise."""
_TEXTS: Final = ("agent", "status", "model", "tool", "gate", "outcome")
_FLAGS: Final = ("denied", "failed", "everything")
_MORE: Final = ("model", "tool", "gate", "outcome", "since", "until", "cost_from", "cost_to")
"""What stands behind "More" in the form."""
_AMOUNT: Final = re.compile(r"\d{1,9}(\.\d{1,12})?")
_AGO: Final = re.compile(r"(\d{1,5})([mhdw])")
_SECONDS: Final = {"m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_DAY: Final = re.compile(r"\d{4}-\d{2}-\d{2}")
_LAST_NS: Final = 2**63 - 1


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
        return self._views.routes(("/", self._list), ("/api/runs", self._list))

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
            twin=f"/api/runs?{urlencode(asked.multi_items())}" if asked else "/api/runs",
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


def word(asked: Mapping[str, str], name: str) -> str | None:
    """Read a name; None where none is given.

    Raises:
        QueryError: it is too long to be one.
    """
    value = asked.get(name, "").strip()
    if len(value) > LONGEST:
        raise QueryError(f"{name} must have at most {LONGEST} characters")
    return value or None


def amount(asked: Mapping[str, str], name: str) -> float | None:
    """Read an amount in US dollars; None where none is given.

    Raises:
        QueryError: it is none.
    """
    value = asked.get(name, "").strip()
    if not value:
        return None
    if not _AMOUNT.fullmatch(value) or not value.isascii():
        raise QueryError(f"{name} must be an amount in US dollars, such as 0.25")
    return float(value)


def moment(asked: Mapping[str, str], name: str, *, end: bool = False) -> int | None:
    """Read a time in nanoseconds since 1970: `24h` (ago), `2026-12-01`, `2026-12-01T10:00`.

    A time without an offset is UTC. With `end`, a day means its end.

    Raises:
        QueryError: it is none, or outside of what can be stored.
    """
    value = asked.get(name, "").strip()
    if not value:
        return None
    if ago := _AGO.fullmatch(value):
        return max(0, time.time_ns() - int(ago[1]) * _SECONDS[ago[2]] * 10**9)
    wrong = f"{name} must be a time, such as 24h, 2026-12-01 or 2026-12-01T10:00"
    if not value.isascii() or len(value) > 40:
        raise QueryError(wrong)
    try:
        # A plus in an address is a space.
        found = datetime.fromisoformat(value.replace(" ", "+") if "T" in value else value)
        found = found if found.tzinfo else found.replace(tzinfo=UTC)
        if end and _DAY.fullmatch(value):
            found += timedelta(days=1)
        since = found - datetime(1970, 1, 1, tzinfo=UTC)
    except (ValueError, OverflowError):
        raise QueryError(wrong) from None
    found_ns = (since.days * 86_400 + since.seconds) * 10**9 + since.microseconds * 1000
    if not 0 <= found_ns <= _LAST_NS:
        raise QueryError(wrong)
    return found_ns


def _covers(scope: access.Scope, run: RunSummary) -> bool:
    return scope.covers(tenant=run.tenant, agent=run.agent, actor=run.actor)
