"""Who may send a form: only a page of this server, in the browser that was given it.

A form carries a token that only a page of ours can have been given: pages elsewhere cannot read
one. Beside it, what the browser itself says about where a request comes from has to agree.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections.abc import Callable
from typing import Final
from urllib.parse import urlsplit

from starlette.requests import Request

from clew.errors import ClewError

_VALID_S: Final = 12 * 3600


class ForgedError(ClewError):
    """A form did not come from a page of this server, or the page was too old."""


class Tokens:
    """Makes and checks tokens, with a key that ends with the process.

    Args:
        clock: seconds, monotonic.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._key = secrets.token_bytes(32)
        self._clock = clock

    def issue(self) -> str:
        """Return a token for a form that is being shown."""
        made = f"{int(self._clock())}.{secrets.token_hex(8)}"
        return f"{made}.{self._sign(made)}"

    def check(self, request: Request, token: str) -> None:
        """Refuse a form that is not ours.

        Raises:
            ForgedError: the token is missing, wrong or old, or the browser says that the request
                was made by a page of another origin.
        """
        self._check_origin(request)
        made, _, signature = token.rpartition(".")
        if not hmac.compare_digest(signature.encode(), self._sign(made).encode()):
            raise ForgedError("this form is not one of this server: reload the page, send it again")
        moment = int(made.partition(".")[0])
        if self._clock() - moment > _VALID_S:
            raise ForgedError("this form is too old: reload the page, send it again")

    def _check_origin(self, request: Request) -> None:
        site = request.headers.get("sec-fetch-site")
        if site is not None and site != "same-origin":
            raise ForgedError("this form was sent by another page")
        origin = request.headers.get("origin")
        if (
            origin is not None
            and urlsplit(origin).netloc.lower() != request.headers.get("host", "").strip().lower()
        ):
            raise ForgedError("this form was sent by another page")

    def _sign(self, made: str) -> str:
        return hmac.new(self._key, made.encode(), hashlib.sha256).hexdigest()
