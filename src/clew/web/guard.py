"""Around everything: which Host names are answered, and what a browser may do with an answer.

A web page from elsewhere can make a browser ask a name of its own that resolves to 127.0.0.1 (DNS
rebinding) and then read the answer. The Host header still says that name, so it is checked.
"""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import ip_address
from typing import Any, Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from clew._guard import record_failure

CONTENT_SECURITY_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
HEADERS: Final = {
    "content-security-policy": CONTENT_SECURITY_POLICY,
    "x-content-type-options": "nosniff",
    # Nothing to elsewhere; without any, a browser hides the origin of our own forms too.
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "x-frame-options": "DENY",
}
_SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})


class Guard:
    """Refuses unknown Host names, adds the security headers, and answers where something fails.

    What fails is counted and logged by its kind and place: the text of an exception may quote what
    somebody has said to a model, and would go into the server's log.

    Args:
        app: what is inside.
        host: the address that the server is bound to; a wildcard also allows any IP address,
            which no name can be rebound to.
        names: more names that are answered.
    """

    def __init__(self, app: ASGIApp, *, host: str, names: Iterable[str] = ()) -> None:
        self._app = app
        self._names = _LOOPBACK | {host.lower()} | {each.lower() for each in names}
        self._any_address = host in {"", "0.0.0.0", "::"}  # noqa: S104 - a comparison

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun = False

        async def send_guarded(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = True
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
                headers.setdefault("cache-control", "no-store")
            await send(message)

        try:
            await self._pass_on(scope, receive, send_guarded)
        except Exception:
            receives = scope["path"].startswith("/v1/")
            record_failure(_what(scope), "Others are answered as before")
            if not begun:
                await _failed(receives)(scope, receive, send_guarded)

    async def _pass_on(self, scope: Scope, receive: Receive, send_guarded: Send) -> None:
        headers = Headers(scope=scope)
        if self.allows(headers.get("host", "")) and not is_foreign(scope["method"], headers):
            await self._app(scope, receive, send_guarded)
        elif self.allows(headers.get("host", "")):
            refusal = PlainTextResponse(
                "A page of another site sent this; it is not taken.\n", status_code=403
            )
            await refusal(scope, receive, send_guarded)
        else:
            refusal = PlainTextResponse(
                "This Host name is not served here. `clew serve --allow-host NAME` allows it.\n",
                status_code=400,
            )
            await refusal(scope, receive, send_guarded)

    def allows(self, host: str) -> bool:
        """Tell whether a Host header names this server; its port does not matter."""
        name = host_name(host)
        if name in self._names:
            return True
        return self._any_address and _is_address(name)


def _what(scope: Scope) -> str:
    """Return what could not be done, by the name of the page and not by its address."""
    endpoint: Any = scope.get("endpoint")
    name = getattr(endpoint, "__qualname__", None) or type(endpoint).__name__
    return f"answer a request ({name})"


def _failed(receives: bool) -> PlainTextResponse:
    """Return what is said of a fault of ours; exporters are to send once more."""
    if receives:
        return PlainTextResponse(
            "This could not be taken now.\n", status_code=503, headers={"retry-after": "5"}
        )
    return PlainTextResponse("This could not be shown.\n", status_code=500)


def is_foreign(method: str, headers: Headers) -> bool:
    """Tell whether a page of another origin made the browser send something that changes things.

    Browsers say where such a request comes from (https://www.w3.org/TR/fetch-metadata/ and the
    `Origin` header of https://fetch.spec.whatwg.org/#origin-header); programs say nothing.
    """
    if method in _SAFE:
        return False
    site = headers.get("sec-fetch-site")
    if site is not None:
        return site not in {"same-origin", "none"}
    origin = headers.get("origin")
    return origin is not None and origin.lower().partition("://")[2] != headers["host"].lower()


def host_name(host: str) -> str:
    """Return the name in a Host header, without port, brackets and the dot at its end."""
    host = host.strip().lower()
    if host.startswith("["):
        name, bracket, rest = host[1:].partition("]")
        return name if bracket and (not rest or rest.startswith(":")) else ""
    name, _, port = host.partition(":")
    if port and not port.isdigit():
        return ""
    return name.removesuffix(".")


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
