"""The pages of one run: its timeline, one span of it, and what is asked for while it goes on."""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import urlencode

from msgspec.structs import replace
from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from clew import semconv
from clew.allow_list import AllowList
from clew.sources import (
    RunNotFoundError,
    Source,
    forms,
    prompt_forms,
    prompt_report,
    wording,
)
from clew.store.records import SPAN_TYPES, RunRecord, SpanRecord, text
from clew.web import prompt_words, run_prompts, shown, timeline
from clew.web.inspector import Inspector
from clew.web.parameters import flag, whole
from clew.web.views import Views, json_response, tag_of, unchanged, wants_json

MOST_ROWS: Final = 20_000
"""Most rows in one answer of the timeline's twin."""
_ROWS: Final = 1000
_GROUPS: Final = (
    ("Decision", ("clew.decision.",)),
    ("Tool", ("gen_ai.tool.", "clew.tool.")),
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


class RunPages:
    """The routes below `/runs/{run}`.

    Args:
        source: what is read.
        views: what renders.
        allow_list: what may be shown of a span's attributes.
        inspector: where recorded calls are shown, if they are.
    """

    def __init__(
        self,
        source: Source,
        views: Views,
        allow_list: AllowList,
        *,
        inspector: Inspector | None = None,
    ) -> None:
        self._inspector = inspector
        self._source = source
        self._views = views
        self._filter = shown.Filter(allow_list)
        self._recent = shown.Recent()

    def routes(self) -> list[Route]:
        """Return the routes of pages and twins."""
        return self._views.routes(
            ("/runs/{run}", self._run),
            ("/runs/{run}/head", self._head),
            ("/runs/{run}/timeline", self._rows),
            ("/runs/{run}/prompts", self._prompts),
            ("/runs/{run}/spans/{span}", self._span),
            ("/api/runs/{run}", self._run),
            ("/api/runs/{run}/prompts", self._prompts),
            ("/api/runs/{run}/timeline", self._rows),
            ("/api/runs/{run}/spans/{span}", self._span),
        )

    # --- views: each returns what to show, in either form -------------------------------------

    def _run(self, request: Request) -> Response:
        trace_id = trace_id_of(request)
        found = self._found(trace_id)
        if wants_json(request):
            return json_response(forms.record_form(found.record))
        asked = request.query_params
        run = found.record.summary
        selected = asked.get("span")
        found = shown.with_open_spans(found)
        wanted = row_filter(asked)
        laid_out = timeline.lay_out(
            found,
            first=whole(asked, "first", 0, least=0),
            selected=selected,
            wanted=wanted,
        )
        kept = [(key, value) for key, value in asked.multi_items() if key in _FILTERS and value]
        span = next((each for each in found.record.spans if each.span_id == selected), None)
        return self._views.page(
            "run.html",
            run=run,
            calls=self._inspector is not None,
            message=message_of(found.record),
            timeline=laid_out,
            at_once=timeline.ROWS_AT_ONCE,
            wanted=wanted,
            kept=urlencode([*kept, ("first", "")]),
            outcomes=timeline.OUTCOMES,
            live=shown.is_live(found.record),
            tag=self._tag(found),
            **self._details(request, found, span),
            twin=f"/api/runs/{run.run_id}",
        )

    def _head(self, request: Request) -> Response:
        """Answer the totals of a run that goes on, if they have changed."""
        trace_id = trace_id_of(request)
        version = self._source.version(trace_id)
        if version is not None and (same := unchanged(request, tag_of(version))):
            return same
        found = self._found(trace_id)
        tag = self._tag(found)
        if same := unchanged(request, tag):
            return same
        return self._views.page(
            "head.html",
            headers={"etag": tag},
            run=found.record.summary,
            timeline=timeline.lay_out(shown.with_open_spans(found), most=0),
            live=shown.is_live(found.record),
            calls=self._inspector is not None,
            message=message_of(found.record),
        )

    def _rows(self, request: Request) -> Response:
        """Answer rows of the timeline: always JSON."""
        trace_id = trace_id_of(request)
        asked = request.query_params
        after = whole(asked, "after", -1, least=-1)
        most = whole(asked, "limit", _ROWS, most=MOST_ROWS)
        wanted = row_filter(asked)
        found = self._found(trace_id)
        parts = (after, most, asked.get("q"), sorted(wanted.kinds), wanted.outcome)
        tag = tag_of(self._tag(found), *parts)
        if same := unchanged(request, tag):
            return same
        found = shown.with_open_spans(found)
        laid_out = timeline.lay_out(found, first=after + 1, most=most, wanted=wanted)
        return json_response(
            {
                "run_id": found.record.summary.run_id,
                "live": shown.is_live(found.record),
                **timeline.rows_form(laid_out),
            },
            headers={"etag": tag},
        )

    def _span(self, request: Request) -> Response:
        found = self._found(trace_id_of(request))
        asked = request.path_params["span"]
        span = next((each for each in found.record.spans if each.span_id == asked), None)
        if span is not None and wants_json(request):
            form = {"span": forms.span_form(span), "hidden": found.hidden.get(asked, 0)}
            return json_response(form)
        if span is None and not wants_json(request):
            found = shown.with_open_spans(found)
            span = next((each for each in found.record.spans if each.span_id == asked), None)
        if span is None:
            raise RunNotFoundError("there is no such span in this run")
        run = found.record.summary
        return self._views.page(
            "details.html" if flag(request.query_params, "fragment") else "span.html",
            run=run,
            **self._details(request, found, span),
            twin=f"/api/runs/{run.run_id}/spans/{span.span_id}",
        )

    def _prompts(self, request: Request) -> Response:
        found = self._found(trace_id_of(request))
        run = found.record.summary
        rows = () if self._inspector is None else self._inspector.of_run(request, run.run_id)
        agents = prompt_report.report(found.record, rows)
        if wants_json(request):
            return json_response(prompt_forms.report_form(agents))
        return self._views.page(
            "run_prompts.html",
            run=run,
            agents=[run_prompts.view_of(each) for each in agents],
            cost_of=run_prompts.cost_of,
            column=run_prompts.COLUMN,
            say=prompt_words,
            twin=f"/api/runs/{run.run_id}/prompts",
        )

    def _details(
        self, request: Request, found: shown.Shown, span: SpanRecord | None
    ) -> dict[str, Any]:
        call = None
        if self._inspector is not None and span is not None and span.type in {"round", "call"}:
            call = self._inspector.of_span(request, span.trace_id, span.span_id)
        return {
            "call": call,
            "selected": span,
            "groups": groups(span) if span else (),
            "hidden": found.hidden.get(span.span_id, 0) if span else 0,
            "still_open": bool(span and span.span_id in found.open),
            "conflicts": found.record.conflicts,
        }

    def _found(self, trace_id: str) -> shown.Shown:
        version = self._source.version(trace_id)
        found = self._recent.get(trace_id, version)
        if found is None:
            found = replace(self._filter.apply(self._source.run(trace_id)), version=version)
            self._recent.put(trace_id, found)
        return found

    def _tag(self, found: shown.Shown) -> str:
        return tag_of(found.version or repr(found.record.summary))


_FILTERS: Final = frozenset({"q", "kind", "outcome"})


def row_filter(asked: QueryParams) -> timeline.RowFilter:
    """Read which rows are wanted: `q`, `kind` (repeated) and `outcome`.

    Raises:
        QueryError: a value cannot be used.
    """
    kinds = [each for each in asked.getlist("kind") if each]
    return timeline.RowFilter(
        words=asked.get("q", "").strip(),
        kinds=frozenset(kinds or SPAN_TYPES),
        outcome=asked.get("outcome") or None,
    )


def trace_id_of(request: Request) -> str:
    """Return the run that an address names, by its uuid with or without dashes.

    Raises:
        RunNotFoundError: it is no uuid.
    """
    digits = request.path_params["run"].lower().replace("-", "")
    if len(digits) != 32 or not set(digits) <= set("0123456789abcdef"):
        raise RunNotFoundError("there is no such run")
    return digits


def message_of(record: RunRecord) -> str | None:
    """Return the message that made a run happen, as its outermost spans say."""
    found = (text(each.attributes, semconv.MESSAGE_ID) for each in record.spans)
    return next((each for each in found if each), None)


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
