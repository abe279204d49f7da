"""Before every page: who sends this request. Signing in with a token, and signing out.

A token goes in a header. For a browser there is a form: it exchanges a token for a cookie with a
random name of the session, which script cannot read and other sites cannot send along. The token
stays in this process, and is checked again with every request.
"""

from __future__ import annotations

import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from ipaddress import ip_address
from typing import Any, Final
from urllib.parse import quote, urlsplit

from msgspec import Struct
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from clew.actors import may
from clew.errors import ClewError
from clew.store.access import AccessLog
from clew.web import access
from clew.web.access import Authenticator, Principal, Visit
from clew.web.bodies import REFUSED, Limits, RefusedError, read_form
from clew.web.views import Views, wants_json

COOKIE: Final = "clew_session"
_HOURS: Final = 12
_MOST_SESSIONS: Final = 1000
_LONGEST_TOKEN: Final = 16 * 1024
_FORM: Final = Limits(body_bytes=_LONGEST_TOKEN, all_bytes=_LONGEST_TOKEN, seconds=5.0)


class _Session(Struct, frozen=True):
    token: str
    until: float


class Sessions:
    """Who has signed in by the form; bounded, and gone with the process."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._found: OrderedDict[str, _Session] = OrderedDict()

    def begin(self, token: str) -> str:
        """Remember a token and return the name of its session."""
        name = secrets.token_urlsafe(32)
        self._found[name] = _Session(token, self._clock() + _HOURS * 3600)
        while len(self._found) > _MOST_SESSIONS:
            self._found.popitem(last=False)
        return name

    def token(self, name: str) -> str | None:
        """Return the token of a session, None if there is none, or it is over."""
        found = self._found.get(name)
        if found is not None and found.until < self._clock():
            self.end(name)
            return None
        return None if found is None else found.token

    def end(self, name: str) -> None:
        """Forget a session."""
        self._found.pop(name, None)


class AccessControl:
    """Finds out who asks, and lets nobody in who is not known.

    Args:
        app: what is inside.
        authenticator: who tells; None where whoever reaches this server may read.
        digest_of: the keyed digest of an actor's id.
        log: where readings of content are written.
        views: renders the form.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        authenticator: Authenticator | None,
        digest_of: Callable[[str], str],
        log: AccessLog | None,
        views: Views,
    ) -> None:
        self._app = app
        self._authenticator = authenticator
        self._digest_of = digest_of
        self._log = log
        self._views = views
        self._sessions = Sessions()
        self._local = access.local()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on with who sends it, or ask them to sign in."""
        if scope["type"] != "http":
            return
        request = Request(scope, receive)
        path = request.url.path
        state: dict[str, Any] = scope.setdefault("state", {})
        if path.startswith("/static/"):
            await self._app(scope, receive, send)
        elif path.startswith("/v1/"):
            self._judge_sender(state, request.headers)
            await self._app(scope, receive, send)
        elif self._authenticator is None:
            await self._let_in(self._local, scope, receive, send)
        elif path == "/login":
            await (await self._login(request))(scope, receive, send)
        elif path == "/logout" and request.method == "POST":
            self._sessions.end(request.cookies.get(COOKIE, ""))
            answer = RedirectResponse("/login", 303)
            answer.delete_cookie(COOKIE, httponly=True, samesite="strict")
            await answer(scope, receive, send)
        elif (found := self._who(request)) is not None:
            await self._let_in(found, scope, receive, send)
        else:
            await _unknown(request, self._views)(scope, receive, send)

    async def _let_in(self, who: Principal, scope: Scope, receive: Receive, send: Send) -> None:
        visit = Visit(principal=who, digest_of=self._digest_of, log=self._log)
        access.begin(scope["state"], visit)
        await self._app(scope, receive, send)

    def _judge_sender(self, state: dict[str, Any], headers: Headers) -> None:
        """Say to the receiver whether it may take a message."""
        if self._authenticator is None:
            return
        found = self._authenticator.of_headers(headers)
        if found is None:
            state[REFUSED] = 401
        elif not may(found.actor, access.INGEST):
            state[REFUSED] = 403

    def _who(self, request: Request) -> Principal | None:
        assert self._authenticator is not None  # noqa: S101 - asked only where there is one
        found = self._authenticator.of_headers(request.headers)
        if found is None and (name := request.cookies.get(COOKIE)):
            token = self._sessions.token(name)
            found = None if token is None else self._authenticator.of_token(token)
        return found

    async def _login(self, request: Request) -> Response:
        if request.method == "POST":
            return await self._sign_in(request)
        return self._form(request, request.query_params.get("next", ""), 200)

    async def _sign_in(self, request: Request) -> Response:
        assert self._authenticator is not None  # noqa: S101 - asked only where there is one
        try:
            fields = await read_form(request, _FORM)
        except RefusedError:
            return self._form(request, "", 400)
        except ClientDisconnect:
            return Response(status_code=400)
        token = fields.get("token", "").strip()
        onward = fields.get("next", "")
        if not token or self._authenticator.of_token(token) is None:
            return self._form(request, onward, 401)
        answer = RedirectResponse(own_path(onward), 303)
        answer.set_cookie(
            COOKIE,
            self._sessions.begin(token),
            httponly=True,
            samesite="strict",
            secure=request.url.scheme == "https",
        )
        return answer

    def _form(self, request: Request, onward: str, status: int) -> Response:
        return self._views.page(
            "login.html", code=status, onward=own_path(onward), refused=status, twin=None
        )


def check_exposure(host: str, authenticator: Authenticator | None) -> None:
    """Insist on an authenticator where others than this machine can reach the address.

    Raises:
        ClewError: they can, and there is none.
    """
    if authenticator is None and not is_loopback(host):
        raise ClewError(
            f"others can reach {host or 'every address'}, and nobody would ask who they are: give "
            "`--tokens FILE` or `--oidc FILE`, or stay on 127.0.0.1"
        )


def is_loopback(host: str) -> bool:
    """Tell whether only this machine can reach an address; a name other than localhost is none."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def own_path(given: str) -> str:
    """Return a path on this server to go on to; the list for anything else.

    Browsers read a backslash as a slash and leave tabs and line ends out, so that more than `//`
    leads to another server.
    """
    plain = given.isascii() and given.isprintable() and "\\" not in given
    if not plain or not given.startswith("/") or given.startswith("//"):
        return "/"
    parts = urlsplit(given)
    return given if not parts.scheme and not parts.netloc and parts.path != "/login" else "/"


def _unknown(request: Request, views: Views) -> Response:
    """Answer somebody who is not known: a browser gets the form, a program the status."""
    challenge = {"www-authenticate": 'Bearer realm="clew"'}
    if "text/html" in request.headers.get("accept", "") and not wants_json(request):
        query = f"?{request.url.query}" if request.url.query else ""
        onward = f"{request.url.path}{query}"
        if request.method == "GET" and own_path(onward) != "/":
            return RedirectResponse(f"/login?next={quote(onward, safe='')}", 303, challenge)
        return RedirectResponse("/login", 303, challenge)
    return views.refusal(request, 401, "Give a token: Authorization: Bearer ...", challenge)
