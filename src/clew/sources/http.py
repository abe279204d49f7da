"""What the sources behind an HTTP API share: addresses, credentials, and clear errors.

An address is `HOST[:PORT][/PATH][?OPTION=VALUE&...]`, where every such source knows the options

- `timeout`: seconds to wait for an answer (default 15),
- `range`: how far back a list goes when no time is given, as in `12h` or `30d` (default 7 days),
- `ca`: a file with the certificate authority of a TLS server.

A user and password before an `@` are sent as basic authentication; the variable
CLEW_SOURCE_AUTHORIZATION is sent as the header `Authorization`, and wins.
"""

from __future__ import annotations

import os
import re
import ssl
import time
from collections.abc import Iterable, Mapping
from typing import Any, Final
from urllib.parse import parse_qsl, unquote, urlsplit

from clew.errors import ClewError

AUTHORIZATION: Final = "CLEW_SOURCE_AUTHORIZATION"
"""The variable with the header that is sent to the backend."""
LARGEST: Final = 512 * 1024 * 1024
"""Bytes of one answer that are read at the most."""

_COMMON: Final = ("timeout", "range", "ca")
_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_SPAN: Final = re.compile(r"([0-9]{1,9})([smhdw])")
_USUAL_RANGE_NS: Final = 7 * 86_400 * 10**9


class SourceError(ClewError):
    """A backend cannot be asked, or its answer cannot be understood."""


def span_ns(text: str) -> int | None:
    """Return the nanoseconds of a stretch of time like `90s`, `12h` or `7d`; None if it is none."""
    found = _SPAN.fullmatch(text.strip())
    return int(found[1]) * _UNITS[found[2]] * 10**9 if found else None


class Http:
    """One backend: where it is, and how it is asked.

    Args:
        kind: what it is called in errors, `Jaeger` for example.
        rest: the address behind `scheme://`.
        port: its usual port.
        tls: whether it speaks HTTPS.
        options: options that this kind of source knows besides the common ones.

    Raises:
        SourceError: the address cannot be used.
    """

    def __init__(
        self, kind: str, rest: str, *, port: int, tls: bool, options: Iterable[str] = ()
    ) -> None:
        self.kind = kind
        try:
            parts = urlsplit(f"//{rest}")
            host, given_port = parts.hostname, parts.port
        except ValueError as error:
            raise SourceError(f"{kind}: {rest[:200]!r} is no address ({error})") from None
        if not host:
            raise SourceError(
                f"{kind}: write the address as HOST:PORT, for example localhost:{port}"
            )
        known = (*_COMMON, *options)
        self.options = dict(parse_qsl(parts.query, keep_blank_values=True))
        for name in self.options:
            if name not in known:
                raise SourceError(
                    f"{kind}: no option is called {name!r}; known: {', '.join(known)}"
                )
        shown = f"[{host}]" if ":" in host else host
        self.base = (
            f"http{'s' if tls else ''}://{shown}:{given_port or port}{parts.path.rstrip('/')}"
        )
        self.timeout_s = self._seconds(self.options.get("timeout", "15"))
        self.range_ns = self._range(self.options.get("range"))
        self._client = self._open(unquote(parts.username or ""), unquote(parts.password or ""), tls)

    def get(
        self,
        path: str,
        params: Mapping[str, str | int] | None = None,
        *,
        accept: str = "",
        headers: Mapping[str, str] | None = None,
    ) -> bytes | None:
        """Return the body of an answer; None where the backend says that there is no such thing.

        Raises:
            SourceError: it did not answer, refused, or answered with an error.
        """
        given = {"accept": accept or "application/json", **(headers or {})}
        return self._ask("GET", path, params or {}, given, None)

    def post(self, path: str, params: Mapping[str, str | int], body: str, **headers: str) -> bytes:
        """Return the body of the answer to a POST.

        Raises:
            SourceError: it did not answer, refused, or answered with an error.
        """
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        answer = self._ask("POST", path, params, given, body.encode())
        if answer is None:
            raise SourceError(f"{self._where()} has nothing at {path or '/'}: is it {self.kind}?")
        return answer

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _ask(
        self,
        method: str,
        path: str,
        params: Mapping[str, str | int],
        headers: Mapping[str, str],
        body: bytes | None,
    ) -> bytes | None:
        import httpx

        url = f"{self.base}{path}"
        deadline = time.monotonic() + self.timeout_s
        try:
            with self._client.stream(
                method, url, params=dict(params), headers=dict(headers), content=body
            ) as answer:
                content = self._read(answer, deadline)
        except httpx.TimeoutException:
            raise self._slow() from None
        except httpx.TransportError as error:
            raise SourceError(f"{self._where()} cannot be reached: {_reason(error)}") from None
        return self._checked(answer.status_code, content, answer.headers.get("location", ""))

    def _read(self, answer: Any, deadline: float) -> bytes:
        chunks: list[bytes] = []
        size = 0
        for chunk in answer.iter_bytes():
            chunks.append(chunk)
            size += len(chunk)
            if size > LARGEST:
                raise SourceError(f"{self._where()} answered with more than {LARGEST} bytes")
            # A timeout of the client is for one read: a server that trickles would pass it.
            if time.monotonic() > deadline:
                raise self._slow()
        return b"".join(chunks)

    def _checked(self, status: int, content: bytes, location: str) -> bytes | None:
        if status == 404:
            return None
        if status in (401, 403):
            raise SourceError(
                f"{self._where()} refused the question ({status}): set {AUTHORIZATION} to what it "
                "takes as the header Authorization"
            )
        if 300 <= status < 400:
            raise SourceError(f"{self._where()} sends elsewhere, to {location[:200]!r}: ask there")
        if status >= 400:
            said = " ".join(content[:300].decode("utf-8", "replace").split())
            raise SourceError(f"{self._where()} answered {status}: {said or 'no reason given'}")
        return content

    def _open(self, user: str, password: str, tls: bool) -> Any:
        import httpx

        authorization = os.environ.get(AUTHORIZATION, "").strip()
        headers = {"authorization": authorization} if authorization else {}
        basic = (user, password) if user and not authorization else None
        try:
            verify: Any = tls  # without TLS no authorities need to be loaded
            if tls and self.options.get("ca"):
                verify = ssl.create_default_context(cafile=self.options["ca"])
            return httpx.Client(
                headers=headers,
                auth=basic,
                timeout=self.timeout_s,
                verify=verify,
                trust_env=not _is_loopback(self.base),
            )
        except (OSError, ValueError) as error:
            raise SourceError(f"{self.kind}: {self.options.get('ca')!r}: {error}") from None

    def _seconds(self, text: str) -> float:
        try:
            seconds = float(text)
        except ValueError:
            seconds = -1
        if not 0 < seconds <= 3600:
            raise SourceError(f"{self.kind}: timeout={text!r}: give seconds, at most 3600")
        return seconds

    def _range(self, text: str | None) -> int:
        if text is None:
            return _USUAL_RANGE_NS
        found = span_ns(text)
        if not found:
            raise SourceError(f"{self.kind}: range={text!r}: write it like 12h or 30d")
        return found

    def _slow(self) -> SourceError:
        return SourceError(
            f"{self._where()} did not answer within {self.timeout_s:g} s "
            "(the option timeout=SECONDS waits longer)"
        )

    def _where(self) -> str:
        return f"{self.kind} at {self.base}"


def _is_loopback(base: str) -> bool:
    host = urlsplit(base).hostname or ""
    return host in {"localhost", "::1"} or host.startswith("127.")


def _reason(error: Exception) -> str:
    """Say what a transport error means; the client library's own words are vague at times."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return (
                f"its certificate is not trusted ({cause.verify_message}); "
                "the option ca=FILE names the authority"
            )
        if isinstance(cause, ssl.SSLError):
            return f"TLS failed ({cause.reason or 'no reason given'})"
        if isinstance(cause, ConnectionRefusedError):
            return "nobody listens there"
        cause = cause.__cause__ or cause.__context__
    return str(error) or type(error).__name__
