"""What all pages share: templates, answers in either form, and errors.

A page is rendered whole before its first byte is sent.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from http import HTTPStatus
from pathlib import Path
from traceback import format_tb
from typing import Any, Final, cast
from urllib.parse import urlencode

import msgspec
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from clew import semconv
from clew._guard import record_failure, warn_once
from clew.errors import ClewError
from clew.sources import RunNotFoundError, forms, wording
from clew.store.records import QueryError
from clew.web.access import ForbiddenError, UnreadableError

View = Callable[[Request], Response]
"""Answers one request, in the form that was asked for."""

HERE: Final = Path(__file__).parent
_VARIES: Final = {"vary": "accept"}


class NotFoundError(ClewError, LookupError):
    """A page has nothing to show under this address; the message says what is not there."""


class AmbiguousError(ClewError, LookupError):
    """More than one thing is meant by an address; the message names some of them."""


def environment(**shown: Any) -> Environment:
    """Return the templates, with everything escaped that they print; `shown` is known to all."""
    env = Environment(
        loader=FileSystemLoader(HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    content = b"".join(
        each.read_bytes() for each in sorted((HERE / "static").rglob("*")) if each.is_file()
    )
    env.filters["iso"] = forms.time_text
    shared = {
        "wording": wording,
        "version": hashlib.sha256(content).hexdigest()[:12],
        "statuses": semconv.RUN_STATUSES,
        "place": "",
        "places": (),
        "signs_in": False,
        **shown,
    }
    cast("dict[str, Any]", env.globals).update(shared)
    return env


class Views:
    """Renders pages and turns errors into answers.

    Args:
        env: the templates.
        check: asked before every view; raises where this reader has nothing to see there.
    """

    def __init__(self, env: Environment, *, check: Callable[[Request], None] | None = None) -> None:
        self._env = env
        self._check = check

    def page(self, name: str, /, *, code: int = 200, headers: Mapping[str, str] | None = None,
             **values: Any) -> Response:  # fmt: skip
        """Return a rendered template."""
        text = self._env.get_template(name).render(values)
        # What was captured may hold half of a surrogate pair, which no page can.
        body = text.encode("utf-8", "replace")
        return HTMLResponse(body, code, headers={**_VARIES, **(headers or {})})

    def routes(self, *pages: tuple[str, View]) -> list[Route]:
        """Return routes that answer GET with these views."""
        return [Route(path, self.answering(view), methods=["GET"]) for path, view in pages]

    def pair(self, page: str, twin: str, view: View) -> list[Route]:
        """Return the routes of a page and of its JSON twin, which one view answers."""
        return self.routes((page, view), (twin, view))

    def answering(self, view: View) -> View:
        """Return a view whose errors are answers."""

        # A plain function: starlette runs it on a worker thread, where reading may block.
        def endpoint(request: Request) -> Response:
            try:
                if self._check is not None:
                    self._check(request)
                return view(request)
            except ClewError as error:
                return self.failure(request, error)
            except Exception as error:
                kind = f"show a page ({getattr(view, '__qualname__', 'of its own')})"
                record_failure(kind, "Other pages are shown as before")
                # Not the text of the exception: it may quote what somebody has said to a model.
                warn_once(f"{kind}: where", "%s", "".join(format_tb(error.__traceback__)))
                return self.failure(request, error)

        return endpoint

    def failure(self, request: Request, error: Exception) -> Response:
        """Answer an error in the form that was asked for, without any of its details."""
        status, message = _explain(error)
        headers = error.headers if isinstance(error, HTTPException) else None
        return self.refusal(request, status, message, headers)

    def refusal(
        self,
        request: Request,
        status: int,
        message: str,
        headers: Mapping[str, str] | None = None,
    ) -> Response:
        """Answer with a status and a sentence, in the form that was asked for."""
        if wants_json(request):
            form = {"error": {"status": status, "message": message}}
            return json_response(form, status, headers=headers)
        phrase = HTTPStatus(status).phrase
        page = self._env.get_template("error.html").render(
            status=status, phrase=phrase, message=message, twin=None
        )
        return HTMLResponse(page, status, headers={**_VARIES, **(headers or {})})


def wants_json(request: Request) -> bool:
    """Tell whether the JSON twin is asked for, by its address or by `Accept`."""
    if request.url.path.startswith("/api/"):
        return True
    accepted = request.headers.get("accept", "")
    return "application/json" in accepted and "text/html" not in accepted


def twin_of(request: Request, path: str) -> str:
    """Return the address of a page's twin at `path`, asked for the same."""
    asked = request.query_params.multi_items()
    return f"{path}?{urlencode(asked)}" if asked else path


def json_response(
    content: Any, status: int = 200, *, headers: Mapping[str, str] | None = None
) -> Response:
    """Return `content` as JSON."""
    body = msgspec.json.encode(content)
    found = {**_VARIES, **(headers or {})}
    return Response(body, status, media_type="application/json", headers=found)


def unchanged(request: Request, tag: str) -> Response | None:
    """Return 304 where the asker already has what this entity tag stands for."""
    known = request.headers.get("if-none-match", "")
    if tag in (each.strip() for each in known.split(",")):
        return Response(status_code=304, headers={**_VARIES, "etag": tag})
    return None


def tag_of(*parts: object) -> str:
    """Return a weak entity tag of some values."""
    text = "\x1f".join(map(str, parts))
    return f'W/"{hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:24]}"'


def _explain(error: Exception) -> tuple[int, str]:
    match error:
        case RunNotFoundError():
            return 404, "There is no such run or span."
        case NotFoundError():
            return 404, str(error)
        case AmbiguousError():
            return 409, str(error)
        case UnreadableError():
            return 404, str(error)
        case ForbiddenError():
            return 403, str(error)
        case QueryError():
            return 400, str(error)
        case ClewError():
            return 503, str(error)
        case HTTPException():
            return error.status_code, HTTPStatus(error.status_code).phrase
        case _:
            return 500, "The viewer has met a fault of its own; its log says more."
