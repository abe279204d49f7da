"""The prompt inspector: what was sent to a model and what came back, one call at a time.

It opens over a run, a conversation, a message or everything; the newest call is chosen unless
another one is asked for. What a capture level kept out is not there: then sizes and the block map
are shown.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final
from urllib.parse import quote, urlencode

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from clew.prompts.blocks import LAYERS
from clew.recording import switch
from clew.sources.prompt_forms import record_form, row_form
from clew.store.prompt_index import PromptReader
from clew.store.prompt_records import (
    AmbiguousRecordError,
    PromptFilter,
    PromptPage,
    PromptRecord,
    PromptRow,
    RecordNotFoundError,
)
from clew.store.records import MAX_PAGE, Page
from clew.store.scopes import Scope
from clew.web import diff, parts, prompt_words
from clew.web.access import NO_CALL, may_read_content, open_content, scope_of
from clew.web.parameters import whole
from clew.web.views import AmbiguousError, NotFoundError, Views, json_response, wants_json

INDEX_LIMIT: Final = 200
"""Calls in the index column."""
_LIST_LIMIT: Final = 100
_SCOPES: Final = ("run", "conversation", "message", "agent", "model", "status")


class Over(Struct, frozen=True, kw_only=True):
    """What the inspector is opened over."""

    asked: dict[str, str]
    """The parameters that say it, for links."""
    filter: PromptFilter

    @property
    def query(self) -> str:
        """The parameters as a query, with its question mark; empty for everything."""
        return f"?{urlencode(self.asked)}" if self.asked else ""

    @property
    def words(self) -> str:
        """What it is opened over, in words."""
        named = [
            f"{name} {value[:8] if name == 'run' else value}" for name, value in self.asked.items()
        ]
        return ", ".join(named) or "all calls"


class Inspector:
    """The routes below `/prompts`.

    Args:
        reader: the index of records, and the payload files.
        views: what renders.
    """

    def __init__(self, reader: PromptReader, views: Views) -> None:
        self._reader = reader
        self._views = views

    def routes(self) -> list[Route]:
        """Return the routes of pages and twins."""
        return self._views.routes(
            ("/prompts", self._newest),
            ("/prompts/{request}", self._one),
            ("/prompts/{request}/diff/{other}", self._diff),
            ("/runs/{run}/spans/{span}/prompt", self._of_span),
            ("/api/prompts", self._list),
            ("/api/prompts/{request}", self._one),
            ("/api/prompts/{request}/diff/{other}", self._diff),
        )

    def of_span(self, request: Request, trace_id: str, span_id: str) -> PromptRow | None:
        """Return the record of a span of the timeline, if there is one to be opened."""
        row = self._reader.of_span(trace_id, span_id, scope_of(request))
        if row is not None and row.path is not None and not may_read_content(request, row):
            return None
        return row

    def of_run(self, request: Request, run_id: str) -> tuple[PromptRow, ...]:
        """Return the index rows of a run, oldest first."""
        return self._reader.of_run(run_id, scope_of(request))

    # --- views ----------------------------------------------------------------------------------

    def _newest(self, request: Request) -> Response:
        if wants_json(request):
            return self._list(request)
        over = over_of(request)
        if asked := request.query_params.get("request"):
            return RedirectResponse(f"/prompts/{quote(asked, safe='')}{over.query}", 303)
        after = request.query_params.get("after") or None
        found = self._index(over, scope_of(request), after=after)
        if found.records:
            return self._shown(request, found.records[0], over, found)
        return self._views.page(
            "prompts_none.html",
            over=over,
            capturing=self._capturing(),
            any=bool(self._index(_over({}), scope_of(request), 1).records),
            twin=f"/api/prompts{over.query}",
        )

    def _one(self, request: Request) -> Response:
        row = self._find(request, "request")
        over = over_of(request)
        if not over.asked and row.run_id is not None:
            over = _over({"run": row.run_id})
        return self._shown(request, row, over, None)

    def _shown(
        self, request: Request, row: PromptRow, over: Over, index: PromptPage | None
    ) -> Response:
        record = self._record(request, row)
        if wants_json(request):
            return json_response(record_form(row, record))
        index = index or self._index(over, scope_of(request))
        rows = index.records
        if all(each.request_id != row.request_id for each in rows):
            rows = (row, *rows)
        place = next(n for n, each in enumerate(rows) if each.request_id == row.request_id)
        short = self._reader.short_id(row)
        more = f"/prompts?{urlencode({**over.asked, 'after': index.next})}" if index.next else None
        return self._views.page(
            "inspector.html",
            row=row,
            record=record,
            parts=parts.parts_of(row, record),
            rows=rows,
            over=over,
            before=_before(rows, place),
            more=more,
            capturing=self._capturing(),
            short=short,
            command=f"clew prompt show {short}",
            path=_shown_path(self._reader.payload_path(row)),
            pretty=parts.pretty,
            say=prompt_words,
            twin=f"/api/prompts/{row.request_id}",
        )

    def _of_span(self, request: Request) -> Response:
        trace_id = request.path_params["run"].lower().replace("-", "")
        row = self._reader.of_span(trace_id, request.path_params["span"], scope_of(request))
        if row is None:
            raise NotFoundError("No call was recorded for this span.")
        run = row.run_id or trace_id
        return RedirectResponse(f"/prompts/{row.request_id}?run={run}", 303)

    def _diff(self, request: Request) -> Response:
        first, second = self._find(request, "request"), self._find(request, "other")
        before, after = (self._record(request, each, "diff") for each in (first, second))
        found = diff.between((first, before), (second, after))
        if wants_json(request):
            return json_response(diff.form(found))
        return self._views.page(
            "prompt_diff.html",
            before=first,
            after=second,
            diff=found,
            say=prompt_words,
            swapped=f"/prompts/{second.request_id}/diff/{first.request_id}",
            twin=f"/api/prompts/{first.request_id}/diff/{second.request_id}",
        )

    def _list(self, request: Request) -> Response:
        asked = request.query_params
        page = Page(
            limit=whole(asked, "limit", _LIST_LIMIT, most=MAX_PAGE),
            after=asked.get("after") or None,
        )
        found = self._reader.records(over_of(request).filter, page, scope_of(request))
        return json_response(
            {
                "capture_enabled": self._capturing(),
                "requests": [row_form(each) for each in found.records],
                "next": found.next,
            }
        )

    # --- reading --------------------------------------------------------------------------------

    def _index(
        self, over: Over, scope: Scope, limit: int = INDEX_LIMIT, after: str | None = None
    ) -> PromptPage:
        return self._reader.records(over.filter, Page(limit=limit, after=after), scope)

    def _find(self, request: Request, name: str) -> PromptRow:
        try:
            return self._reader.find_record(request.path_params[name], scope_of(request))
        except RecordNotFoundError:
            raise NotFoundError(NO_CALL) from None
        except AmbiguousRecordError as error:
            raise AmbiguousError(str(error)) from None

    def _record(self, request: Request, row: PromptRow, what: str = "prompt") -> PromptRecord:
        """Read a whole call: the one place where content is read, and written down."""
        open_content(request, row, what)
        try:
            return self._reader.record(row)
        except RecordNotFoundError:
            raise NotFoundError(
                "The payload of this call is gone: it was swept, or somebody took it away."
            ) from None

    def _capturing(self) -> bool:
        return switch.read(self._reader.folder).enabled


def over_of(request: Request) -> Over:
    """Read what the inspector is opened over: `run`, `conversation`, `message`, and filters.

    Nothing belongs to an empty conversation or message; an empty filter filters nothing.

    Raises:
        QueryError: a value cannot be used.
    """
    asked = {name: request.query_params.get(name, "").strip() for name in _SCOPES}
    named = {"run", "conversation", "message"} & request.query_params.keys()
    return _over({name: value for name, value in asked.items() if value or name in named})


def _over(asked: dict[str, str]) -> Over:
    return Over(
        asked=asked,
        filter=PromptFilter(
            run_id=asked.get("run"),
            conversation_id=asked.get("conversation"),
            message_id=asked.get("message"),
            agent=asked.get("agent"),
            model=asked.get("model"),
            status=asked.get("status"),
        ),
    )


def _before(rows: Sequence[PromptRow], place: int) -> PromptRow | None:
    """Return the call before this one by the same agent of the same run, else the one before."""
    here = rows[place]
    older = rows[place + 1 :]
    same = [each for each in older if each.run_id == here.run_id and each.agent_id == here.agent_id]
    return same[0] if same else older[0] if older else None


def _shown_path(path: Path | None) -> str | None:
    return None if path is None else str(path.absolute())


def legend() -> tuple[str, ...]:
    """Return the names of colours: the layers in their order, and the rest."""
    return (*LAYERS, "tools", "messages", "response", parts.OTHER_LAYER)
