"""The viewer: pages for people, each with a JSON twin under `/api` or by `Accept`.

A page is rendered whole before its first byte is sent.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final, cast
from urllib.parse import urlencode

import msgspec
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from clew import semconv
from clew.errors import ClewError
from clew.sources import RunNotFoundError, Source, forms, wording
from clew.store.records import Page, QueryError, RunFilter, RunRecord, SpanRecord
from clew.web import timeline

_logger: Final = logging.getLogger("clew.web")
_HERE: Final = Path(__file__).parent
_LIST_LIMIT: Final = 50
_FLAGS: Final = {"1": True, "true": True, "on": True, "0": False, "false": False, "": False}
_GROUPS: Final = (
    ("Decision", ("clew.decision.",)),
    ("Usage and cost", ("gen_ai.usage.", "clew.usage.", "clew.cost.", "clew.price.")),
    ("Totals of the run", ("clew.run.usage.", "clew.run.cost.")),
    ("Totals of the segment", ("clew.segment.",)),
    ("Identity", ("clew.run.id", "clew.seq", "clew.agent.id", "clew.round")),
    ("Model call", ("gen_ai.", "openai.", "clew.request.", "clew.response.", "clew.stream.")),
    ("Clew", ("clew.",)),
)
_IDENTITY: Final = frozenset(
    {semconv.RUN_ID, semconv.SEGMENT_ID, semconv.SEGMENT, semconv.SEQ, semconv.AGENT_ID}
)


def environment(**shown: Any) -> Environment:
    """Return the templates, with everything escaped that they print; `shown` is known to all."""
    env = Environment(
        loader=FileSystemLoader(_HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    content = b"".join(
        each.read_bytes() for each in sorted((_HERE / "static").iterdir()) if each.is_file()
    )
    env.filters["iso"] = forms.time_text
    shared = {
        "wording": wording,
        "version": hashlib.sha256(content).hexdigest()[:12],
        "statuses": semconv.RUN_STATUSES,
        **shown,
    }
    cast("dict[str, Any]", env.globals).update(shared)
    return env


class Pages:
    """The routes of the viewer over one source."""

    def __init__(self, source: Source, *, address: str) -> None:
        self._source = source
        self._env = environment(address=address)

    def routes(self) -> list[Route | Mount]:
        """Return the routes of pages, twins and static files."""
        pages = (
            ("/", self._runs),
            ("/runs/{run}", self._run),
            ("/runs/{run}/spans/{span}", self._span),
        )
        twins = (
            ("/api/runs", self._runs),
            ("/api/runs/{run}", self._run),
            ("/api/runs/{run}/spans/{span}", self._span),
        )
        return [
            *(
                Route(path, self._answering(view), methods=["GET"])
                for path, view in (*pages, *twins)
            ),
            Route("/runs", _to_list, methods=["GET"]),
            Mount("/static", StaticFiles(directory=_HERE / "static")),
        ]

    # --- views: each returns what to show, in either form -------------------------------------

    def _runs(self, request: Request) -> Response:
        asked = request.query_params
        wanted = RunFilter(
            agent=asked.get("agent") or None,
            status=asked.get("status") or None,
            denied=_flag(asked, "denied"),
            failed=_flag(asked, "failed"),
            everything=_flag(asked, "everything"),
        )
        page = Page(limit=_whole(asked, "limit", _LIST_LIMIT), after=asked.get("after") or None)
        found = self._source.runs(wanted, page)
        if wants_json(request):
            return json_response(forms.list_form(found))
        kept = {key: value for key, value in asked.items() if key != "after" and value}
        return self._page(
            "runs.html",
            runs=found.runs,
            older=f"/?{urlencode({**kept, 'after': found.next})}" if found.next else None,
            newest=f"/?{urlencode(kept)}" if page.after else None,
            wanted=wanted,
            filtered=wanted != RunFilter(),
            agents=self._source.agents(),
            twin=f"/api/runs?{urlencode(asked)}" if asked else "/api/runs",
        )

    def _run(self, request: Request) -> Response:
        record = self._record(request)
        if wants_json(request):
            return json_response(forms.record_form(record))
        selected = request.query_params.get("span")
        first = _whole(request.query_params, "first", 0, least=0)
        laid_out = timeline.lay_out(record, first=first, selected=selected)
        span = next((each for each in record.spans if each.span_id == selected), None)
        return self._page(
            "run.html",
            run=record.summary,
            timeline=laid_out,
            at_once=timeline.ROWS_AT_ONCE,
            selected=span,
            groups=groups(span) if span else (),
            conflicts=record.conflicts,
            twin=f"/api/runs/{record.summary.run_id}",
        )

    def _span(self, request: Request) -> Response:
        record = self._record(request)
        asked = request.path_params["span"]
        span = next((each for each in record.spans if each.span_id == asked), None)
        if span is None:
            raise RunNotFoundError("there is no such span in this run")
        if wants_json(request):
            return json_response({"span": forms.span_form(span)})
        fragment = _flag(request.query_params, "fragment")
        return self._page(
            "details.html" if fragment else "span.html",
            run=record.summary,
            selected=span,
            groups=groups(span),
            conflicts=record.conflicts,
            twin=f"/api/runs/{record.summary.run_id}/spans/{span.span_id}",
        )

    def _record(self, request: Request) -> RunRecord:
        digits = request.path_params["run"].lower().replace("-", "")
        if len(digits) != 32 or not set(digits) <= set("0123456789abcdef"):
            raise RunNotFoundError("there is no such run")
        return self._source.run(digits)

    def _page(self, name: str, **values: Any) -> Response:
        return HTMLResponse(self._env.get_template(name).render(values), headers=_VARIES)

    # --- errors ---------------------------------------------------------------------------------

    def _answering(self, view: Callable[[Request], Response]) -> Callable[[Request], Response]:
        # A plain function: starlette runs it on a worker thread, where reading may block.
        def endpoint(request: Request) -> Response:
            try:
                return view(request)
            except ClewError as error:
                return self.failure(request, error)
            except Exception as error:
                _logger.exception("Clew could not answer %s", request.url.path)
                return self.failure(request, error)

        return endpoint

    def failure(self, request: Request, error: Exception) -> Response:
        """Answer an error in the form that was asked for, without any of its details."""
        status, message = _explain(error)
        if wants_json(request):
            return json_response({"error": {"status": status, "message": message}}, status)
        phrase = HTTPStatus(status).phrase
        page = self._env.get_template("error.html").render(
            status=status, phrase=phrase, message=message, twin=None
        )
        return HTMLResponse(page, status, headers=_VARIES)


_VARIES: Final = {"vary": "accept"}


def groups(span: SpanRecord) -> tuple[tuple[str, tuple[tuple[str, str], ...]], ...]:
    """Return the attributes of a span under headings, identity last."""
    found: dict[str, list[tuple[str, str]]] = {}
    for key, value in sorted(span.attributes.items()):
        heading = "Other"
        if key in _IDENTITY:
            heading = "Identity"
        else:
            for name, prefixes in _GROUPS:
                if key.startswith(prefixes):
                    heading = name
                    break
        found.setdefault(heading, []).append((key, wording.value_text(value)))
    order = [name for name, _ in _GROUPS if name != "Identity"] + ["Other", "Identity"]
    return tuple((name, tuple(found[name])) for name in order if name in found)


def wants_json(request: Request) -> bool:
    """Tell whether the JSON twin is asked for, by its address or by `Accept`."""
    if request.url.path.startswith("/api/"):
        return True
    accepted = request.headers.get("accept", "")
    return "application/json" in accepted and "text/html" not in accepted


def json_response(content: Any, status: int = 200) -> Response:
    """Return `content` as JSON."""
    body = msgspec.json.encode(content)
    return Response(body, status, media_type="application/json", headers=_VARIES)


def _to_list(request: Request) -> Response:  # noqa: ARG001 - an endpoint
    return RedirectResponse("/", 308)


def _explain(error: Exception) -> tuple[int, str]:
    match error:
        case RunNotFoundError():
            return 404, "There is no such run or span."
        case QueryError():
            return 400, str(error)
        case ClewError():
            return 503, str(error)
        case HTTPException():
            return error.status_code, HTTPStatus(error.status_code).phrase
        case _:
            return 500, "The viewer has met a fault of its own; its log says more."


def _flag(asked: Mapping[str, str], name: str) -> bool:
    value = asked.get(name, "").lower()
    if value not in _FLAGS:
        raise QueryError(f"{name} must be true or false")
    return _FLAGS[value]


def _whole(asked: Mapping[str, str], name: str, default: int, *, least: int = 1) -> int:
    value = asked.get(name, "")
    if not value:
        return default
    if not (value.isascii() and value.isdigit()) or len(value) > 9 or int(value) < least:
        raise QueryError(f"{name} must be a whole number of at least {least}")
    return int(value)
