"""The viewer: pages for people, each with a JSON twin under `/api` or by `Accept`."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any, Final

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from clew.allow_list import AllowList
from clew.sources import RunNotFoundError, Source
from clew.store.prompt_index import PromptReader
from clew.web import access, openapi
from clew.web.costs import CostPage
from clew.web.inspector import Inspector
from clew.web.run_pages import RunPages, trace_id_of
from clew.web.search import SearchPage
from clew.web.settings_page import SettingsPage
from clew.web.snippet_pages import SnippetPages
from clew.web.views import (
    HERE,
    Views,
    environment,
    json_response,
)

if TYPE_CHECKING:
    from clew.web.play import PlayPages

_LIST_LIMIT: Final = 50
_COSTS: Final = ("costs", "/costs")
_PLACES: Final = (("prompts", "/prompts"), ("snippets", "/snippets"), ("settings", "/settings"))
"""Pages beside the runs, for the header."""
_PLAY: Final = ("play", "/play")


class Pages:
    """The routes of the viewer over one source.

    Args:
        source: what is read.
        address: where it is served, for the instructions on an empty page.
        allow_list: what timelines may show of a span's attributes; by default the default list.
        prompts: recorded model calls; without it there are no pages about them.
        signs_in: True where readers sign in, and can sign out.
        play: makes the pages of the playground, where there is one.
    """

    def __init__(
        self,
        source: Source,
        *,
        address: str,
        allow_list: AllowList | None = None,
        prompts: PromptReader | None = None,
        signs_in: bool = False,
        play: Callable[[Views], PlayPages] | None = None,
    ) -> None:
        self._source = source
        self._signs_in = signs_in
        places = (_COSTS, *(_PLACES if prompts else ()), *((_PLAY,) if play is not None else ()))
        shared = environment(address=address, places=places, signs_in=signs_in)
        self.views = self._views = Views(shared, check=self._check)
        self._inspector = None if prompts is None else Inspector(prompts, self._views)
        self._more: list[Route] = [] if play is None else play(self._views).routes()
        if prompts is not None:
            self._more += SettingsPage(prompts, self._views).routes()
            self._more += SnippetPages(prompts.path, self._views).routes()
        self._runs = RunPages(
            source, self._views, allow_list or AllowList.default(), inspector=self._inspector
        )
        self.failure = self._views.failure

    def routes(self) -> list[BaseRoute]:
        """Return the routes of pages, twins and static files."""
        routes = self._all()
        described = openapi.description(
            openapi.paths_of(routes), version=_version(), authenticated=self._signs_in
        )
        answer = self._views.routes(("/openapi.json", lambda _: json_response(described)))
        return [*answer, *routes]

    def _all(self) -> list[BaseRoute]:
        return [
            *SearchPage(self._source, self._views).routes(),
            *CostPage(self._source, self._views).routes(),
            *self._runs.routes(),
            *(self._inspector.routes() if self._inspector is not None else ()),
            *self._more,
            Route("/runs", _to_list, methods=["GET"]),
            Mount("/static", _Files(directory=HERE / "static")),
        ]

    def _check(self, request: Request) -> None:
        """Find out whether a reader has anything to see at an address, before its page is asked."""
        scope = access.scope_of(request)
        if "run" not in request.path_params or scope.everything:
            return
        if not self._source.covers(trace_id_of(request), scope):
            raise RunNotFoundError("there is no such run")


def _version() -> str:
    try:
        return version("clew")
    except PackageNotFoundError:
        return "unknown"


class _Files(StaticFiles):
    """Files of the pages; under the address of their version they never change."""

    def file_response(self, *args: Any, **kwargs: Any) -> Response:
        """Return a file, kept by the browser where the address says its version."""
        response = super().file_response(*args, **kwargs)
        scope = kwargs.get("scope") or args[2]
        if scope["query_string"].startswith(b"v="):
            response.headers["cache-control"] = "public, max-age=31536000, immutable"
        return response


def _to_list(request: Request) -> Response:  # noqa: ARG001 - an endpoint
    return RedirectResponse("/", 308)
