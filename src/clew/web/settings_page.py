"""Settings: the switch of capture, how long records are kept, and the legend of layers."""

from __future__ import annotations

from typing import Any, Final

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from clew.errors import ClewError
from clew.recording import switch
from clew.store.prompt_index import PromptReader
from clew.store.records import QueryError
from clew.web.access import require_all_tenants, scope_of
from clew.web.bodies import Limits, RefusedError, read_form
from clew.web.csrf import ForgedError, Tokens
from clew.web.inspector import legend
from clew.web.views import Views, json_response, wants_json

RETENTION_CHOICES: Final = (1, 3, 7, 14, 30)
"""Days that the form offers."""
RIGHT: Final = "capture:raise"
"""What a reader needs to look at the settings of an installation, and to change them."""
_FORM: Final = Limits(body_bytes=16 * 1024, all_bytes=16 * 1024, seconds=5.0)
_MOST_DAYS: Final = 3650
_WORDS: Final = {"true": True, "on": True, "enable": True, "false": False, "off": False,
                 "disable": False}  # fmt: skip


class SettingsPage:
    """The route `/settings` and its twin.

    Args:
        reader: the records, for the data folder and how many there are.
        views: what renders.
        tokens: what makes sure that a form is ours.
    """

    def __init__(self, reader: PromptReader, views: Views, tokens: Tokens | None = None) -> None:
        self._reader = reader
        self._views = views
        self._tokens = tokens or Tokens()

    def routes(self) -> list[Route]:
        """Return the routes of page and twin."""
        return [
            *self._views.pair("/settings", "/api/settings", self._show),
            Route("/settings", self._save, methods=["POST"]),
        ]

    def _show(self, request: Request) -> Response:
        require_all_tenants(request, RIGHT)
        if wants_json(request):
            return json_response(self._form())
        return self._page(request, saved=request.query_params.get("saved") == "1")

    async def _save(self, request: Request) -> Response:
        try:
            sent = await _read(request)
        except ClewError as error:
            return self._views.failure(request, error)
        return await run_in_threadpool(self._views.answering(self._store(sent)), request)

    def _store(self, sent: dict[str, str]) -> Any:
        def store(request: Request) -> Response:
            require_all_tenants(request, RIGHT)
            try:
                self._tokens.check(request, sent.get("token", ""))
                enabled, days = _values(sent)
                switch.write(self._reader.folder, enabled=enabled, retention_days=days)
            except (ForgedError, QueryError, ClewError) as error:
                status = 403 if isinstance(error, ForgedError) else 400
                if not isinstance(error, (ForgedError, QueryError)):
                    status = 503
                if wants_json(request):
                    form = {"error": {"status": status, "message": str(error)}}
                    return json_response({**form, "settings": self._form()}, status)
                return self._page(request, error=str(error), status=status)
            if wants_json(request):
                return json_response(self._form())
            return RedirectResponse("/settings?saved=1", 303)

        return store

    def _page(
        self, request: Request, *, saved: bool = False, error: str = "", status: int = 200
    ) -> Response:
        now = switch.read(self._reader.folder)
        records, size = self._reader.size(scope_of(request))
        choices = sorted({*RETENTION_CHOICES, now.retention_days})
        response = self._views.page(
            "settings.html",
            now=now,
            choices=choices,
            records=records,
            size=size,
            folder=str(self._reader.folder),
            token=self._tokens.issue(),
            legend=legend(),
            saved=saved,
            error=error,
            twin="/api/settings",
        )
        response.status_code = status
        return response

    def _form(self) -> dict[str, Any]:
        now = switch.read(self._reader.folder)
        return {
            "capture_enabled": now.enabled,
            "retention_days": now.retention_days,
            "retention_choices": list(RETENTION_CHOICES),
        }


async def _read(request: Request) -> dict[str, str]:
    """Read a form within bounds."""
    try:
        return await read_form(request, _FORM)
    except RefusedError as error:
        raise QueryError(str(error)) from None


def _values(sent: dict[str, str]) -> tuple[bool, int | None]:
    enabled = _WORDS.get(sent.get("enabled", "").strip().lower())
    if enabled is None:
        raise QueryError("enabled must be on or off")
    days = sent.get("retention_days", "").strip()
    if not days:
        return enabled, None
    if not (days.isascii() and days.isdigit()) or not 0 < int(days[:9]) <= _MOST_DAYS:
        raise QueryError(f"retention_days must be between 1 and {_MOST_DAYS}")
    return enabled, int(days)
