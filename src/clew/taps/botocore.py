"""The tap on botocore (boto3): wraps `URLLib3Session.send`, below its retries.

Of all requests to AWS only those to a model are looked at. Signing is looked at too: what is
signed cannot be taken off afterwards, so trace headers go before. `aiobotocore` sends with aiohttp
or httpx, whose taps see its requests.
"""

from __future__ import annotations

import http.client
import io
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

import wrapt

from clew import context, exchange
from clew._guard import guard, record_failure
from clew.exchange import Exchange, Target
from clew.governance import passages
from clew.governance.passages import Passage
from clew.pipeline import runtime as _runtime
from clew.pipeline.runtime import Runtime
from clew.streams import StreamTap

if TYPE_CHECKING:
    from clew.governance.windows import Window

_MARKS = ("/model/", "/invocations", "bedrock")
"""One of these is in every URL that leads to a model; other services' are not looked at."""

_Proxy: Any = wrapt.ObjectProxy


class RawBody(_Proxy):
    """A response's raw body (urllib3's), listened to as it is read."""

    _self_tap: StreamTap
    _self_length: int | None
    _self_window: Window | None

    def __init__(self, wrapped: Any, tap: StreamTap, length: int | None) -> None:
        _Proxy.__init__(self, wrapped)
        self._self_tap = tap
        self._self_length = length
        self._self_window = None

    def observe(self, window: Window) -> None:
        """Let gates that only observe look at what is read."""
        self._self_window = window

    def read(self, *args: Any, **kwargs: Any) -> bytes:
        """Read and return up to `amt` bytes, by default all."""
        amount = args[0] if args else kwargs.get("amt")
        everything = amount is None or amount < 0
        return self._took(self._reading("read", args, kwargs), None if everything else amount)

    def read1(self, *args: Any, **kwargs: Any) -> bytes:
        """Read with at most one call below."""
        amount = args[0] if args else kwargs.get("amt")
        return self._took(self._reading("read1", args, kwargs), amount or -1)

    def readinto(self, buffer: Any) -> int:
        """Read into a buffer; return how many bytes were read."""
        count: int = self._reading("readinto", (buffer,), {})
        self._took(bytes(memoryview(buffer).cast("B")[:count]), len(buffer))
        return count

    def readline(self, *args: Any, **kwargs: Any) -> bytes:
        """Read a line."""
        return self._took(self._reading("readline", args, kwargs), -1)

    def readlines(self, *args: Any, **kwargs: Any) -> list[bytes]:
        """Read all lines."""
        lines: list[bytes] = self._reading("readlines", args, kwargs)
        self._took(b"".join(lines), None)
        return lines

    def stream(self, *args: Any, **kwargs: Any) -> Iterator[bytes]:
        """Read in pieces."""
        tap = self._self_tap
        try:
            for chunk in self.__wrapped__.stream(*args, **kwargs):
                tap.take(chunk)
                self._look(chunk)
                yield chunk
        except GeneratorExit:
            raise  # the caller stopped reading; closing or dropping the body says which way
        except BaseException as error:
            tap.failed(error)
            raise
        else:
            self._ended()

    def __iter__(self) -> Iterator[bytes]:
        return cast("Any", type(self.__wrapped__)).__iter__(self)

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the body."""
        self._left()
        self.__wrapped__.close()

    def release_conn(self) -> None:
        """Give the connection back."""
        self._left()
        self.__wrapped__.release_conn()

    def __del__(self) -> None:
        with guard("drop a stream"):
            self._self_tap.dropped()
            if self._self_window is not None:
                self._self_window.dropped()

    def _left(self) -> None:
        with guard("end a stream"):
            self._self_tap.closed()
            if self._self_window is not None:
                self._self_window.left()

    def _look(self, data: bytes, *, last: bool = False) -> None:
        window = self._self_window
        if window is not None and not window.over:
            passages.look(window, window.end() if last else window.feed(data))

    def _reading(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        try:
            return getattr(self.__wrapped__, name)(*args, **kwargs)
        except BaseException as error:
            self._self_tap.failed(error)
            raise

    def _took(self, data: bytes, amount: int | None) -> bytes:
        """Take note of what was read; `amount` is how much was asked for, None for all."""
        tap = self._self_tap
        if data:
            tap.take(data)
            self._look(data)
        length = self._self_length
        if amount is None or (not data and amount) or (length is not None and tap.size == length):
            self._ended()
        return data

    def _ended(self) -> None:
        missing = (self._self_length or 0) - self._self_tap.size
        if missing > 0:
            # urllib3 is told not to look; botocore raises an error of its own, one floor up.
            self._self_tap.failed(http.client.IncompleteRead(b"", missing))
        else:
            self._self_tap.exhausted()
            self._look(b"", last=True)


def _target(runtime: Runtime, method: str, url: str) -> Target | None:
    if not any(mark in url for mark in _MARKS):
        return None
    parts = urlsplit(url)
    return exchange.target_of(
        runtime, method, parts.scheme, parts.hostname or "", parts.port, parts.path
    )


def _begin(request: Any) -> Exchange | None:
    runtime = _runtime.get()
    if runtime is None:
        return None
    try:
        target = _target(runtime, request.method, request.url)
        if target is None:
            return None
        if not target.propagates:
            _strip(request.headers)
        body = request.body
        known = bytes(body) if isinstance(body, (bytes, bytearray)) else None
        return exchange.begin(runtime, request, target, known)
    except Exception:
        record_failure("look at a request")
        return None


def _strip(headers: Any) -> None:
    for name in exchange.TRACE_HEADERS:
        if name in headers:
            del headers[name]


def _respond(begun: Exchange, request: Any, response: Any) -> None:
    if begun.unread:
        return
    try:
        headers: Mapping[str, str] = response.headers
        content_type = exchange.content_type_of(headers)
        if request.stream_output:
            tap = StreamTap(begun, response.status_code, content_type, headers)
            length = headers.get("content-length", "")
            known = int(length) if length.isdigit() else None
            response.raw = RawBody(response.raw, tap, known)
        else:
            begun.responded(response.status_code, content_type, response.content, headers)
    except Exception:
        record_failure("look at a response")


def _send(wrapped: Any, _instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    request = args[0] if args else kwargs.get("request")
    runtime = _runtime.get()
    passage = None
    if runtime is not None and runtime.governor is not None:
        passage = _ask(runtime, request)
    begun = _begin(request)
    if runtime is not None and passage is not None:
        passages.after_begin(runtime, passage, begun)
    if begun is None:  # of a fault of ours: the gates look at the answer all the same
        response = wrapped(*args, **kwargs)
    else:
        token = context.attach(begun.context())
        try:
            response = wrapped(*args, **kwargs)
        except BaseException as error:
            begun.raised(error)
            raise
        finally:
            context.detach(token)
        _respond(begun, request, response)
    if runtime is not None and passage is not None and response.status_code < 400:
        _look_at(runtime, passage, begun, response)
    return response


def _ask(runtime: Runtime, request: Any) -> Passage | None:
    """Ask the gates about a model call; it is signed, so nothing can be redacted."""
    target = body = None
    with guard("look at a request"):
        target = _target(runtime, request.method, request.url)
        body = request.body
    if target is None or not passages.governs(target, request.method):
        return None
    known = bytes(body) if isinstance(body, (bytes, bytearray)) else None
    return passages.before_send(runtime, target, known)


def _look_at(runtime: Runtime, passage: Passage, begun: Exchange | None, response: Any) -> None:
    """Ask the gates about an answer: it is held back as a whole, and is not asked for again."""
    raw = response.raw
    if type(raw) is not RawBody and response._content is not None:
        answer = passages.after_answer(runtime, passage, response.content, retried=True)
        if answer.replacement is not None:
            response._content = answer.replacement
        return
    content_type = exchange.content_type_of(response.headers)
    window = passages.window_of(runtime, passage, begun, content_type)
    if window is not None and not window.holds:
        raw.observe(window)
    elif passages.holds(runtime, passage):
        try:
            body, error = _read(raw)
            answer = passages.after_answer(runtime, passage, body, retried=True)
        finally:
            raw.close()
        _put_back(response, body if answer.replacement is None else answer.replacement, error)


def _read(raw: Any) -> tuple[bytes, Exception | None]:
    """Read a body to its end; return what has come, and the error that has ended it."""
    pieces: list[bytes] = []
    try:
        pieces.extend(raw.stream(65536))
    except Exception as error:
        return b"".join(pieces), error
    return b"".join(pieces), None


class _Broken(_Proxy):
    """A body that has been read until an error; the error comes where it came before."""

    _self_error: Exception

    def __init__(self, wrapped: Any, error: Exception) -> None:
        _Proxy.__init__(self, wrapped)
        self._self_error = error

    def read(self, *args: Any, **kwargs: Any) -> bytes:
        """Read on: all of it fails."""
        amount = args[0] if args else kwargs.get("amt")
        data: bytes = self.__wrapped__.read(*args, **kwargs)
        if not data or amount is None or amount < 0:
            raise self._self_error
        return data

    def stream(self, *args: Any, **kwargs: Any) -> Iterator[bytes]:
        """Read in pieces."""
        yield from self.__wrapped__.stream(*args, **kwargs)
        raise self._self_error


def _put_back(response: Any, body: bytes, error: Exception | None) -> None:
    """Let the caller read an answer that has been read."""
    from urllib3.response import HTTPResponse

    raw = HTTPResponse(io.BytesIO(body), status=response.status_code, preload_content=False)
    response.raw = raw if error is None else _Broken(raw, error)
    if error is None and "content-length" in response.headers:
        response.headers["content-length"] = str(len(body))


def _add_auth(wrapped: Any, _instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Take trace headers off a model call before it is signed."""
    runtime = _runtime.get()
    if runtime is not None:
        with guard("look at a request before it is signed"):
            request = args[0] if args else kwargs["request"]
            target = _target(runtime, request.method, request.url)
            if target is not None and not target.propagates:
                _strip(request.headers)
    return wrapped(*args, **kwargs)


PATCHES: Mapping[str, tuple[tuple[str, str, Any], ...]] = {
    "botocore.httpsession": (("URLLib3Session", "send", _send),),
    "botocore.auth": (("SigV4Auth", "add_auth", _add_auth),),
    "botocore.crt.auth": (
        ("CrtSigV4Auth", "add_auth", _add_auth),
        ("CrtSigV4AsymAuth", "add_auth", _add_auth),
    ),
}
"""What is wrapped in which module: class, method, wrapper."""


def sender(client: Any) -> tuple[str, Any] | None:
    """Return the method of an HTTP session object that sends, and its wrapper."""
    for base in type(client).__mro__:
        if base.__module__ == "botocore.httpsession" and base.__name__ == "URLLib3Session":
            return "send", _send
    return None
