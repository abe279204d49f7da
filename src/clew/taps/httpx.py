"""The tap on `httpx` and `httpx2`: wraps `Client.send` and `AsyncClient.send`.

Below `send`, the default transports are looked at too: an instrumentation that injects trace
headers there is told to stand aside, and what was injected all the same is taken off again.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any

import wrapt

from clew import exchange
from clew._guard import guard, record_failure
from clew.context import attach, detach
from clew.exchange import Exchange
from clew.facts import RequestFacts
from clew.pipeline import runtime as _runtime
from clew.pipeline.runtime import Runtime
from clew.streams import StreamTap, afollow, follow
from clew.taps import governed, reading

LIBRARIES = ("httpx", "httpx2")

_Proxy: Any = wrapt.ObjectProxy


class SyncBody(_Proxy):
    """A response's byte stream, listened to."""

    _self_tap: StreamTap

    def __init__(self, wrapped: Any, tap: StreamTap) -> None:
        _Proxy.__init__(self, wrapped)
        self._self_tap = tap

    def __iter__(self) -> Iterator[bytes]:
        return follow(self.__wrapped__, self._self_tap)

    def close(self) -> None:
        """Close the stream."""
        try:
            self._self_tap.closed()
        except Exception:
            record_failure("end a stream")
        self.__wrapped__.close()

    def __del__(self) -> None:
        try:
            self._self_tap.dropped()
        except Exception:
            record_failure("drop a stream")


class AsyncBody(_Proxy):
    """A response's asynchronous byte stream, listened to."""

    _self_tap: StreamTap

    def __init__(self, wrapped: Any, tap: StreamTap) -> None:
        _Proxy.__init__(self, wrapped)
        self._self_tap = tap

    def __aiter__(self) -> AsyncIterator[bytes]:
        return afollow(self.__wrapped__, self._self_tap)

    async def aclose(self) -> None:
        """Close the stream."""
        try:
            self._self_tap.closed()
        except Exception:
            record_failure("end a stream")
        await self.__wrapped__.aclose()

    def __del__(self) -> None:
        try:
            self._self_tap.dropped()
        except Exception:
            record_failure("drop a stream")


def _begin(
    runtime: Runtime,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    facts: RequestFacts | None = None,
) -> Exchange | None:
    try:
        request = args[0] if args else kwargs["request"]
        target = reading.target_of(runtime, request)
        if target is None:
            return None
        names = reading.names_of(request.headers)
        if not (target.propagates or _TRACE_HEADERS.isdisjoint(names)):
            _strip(request)
        # A body that is streamed is not in memory, and is left alone.
        body: bytes | None = getattr(request, "_content", None)
        first = _RETRIES not in names
        return exchange.begin(runtime, request, target, body, first=first, facts=facts)
    except Exception:
        record_failure("look at a request")
        return None


def _strip(request: Any) -> None:
    """Take trace headers off: the trace id is the run's id and stays in the house."""
    for name in _TRACE_HEADERS.intersection(reading.names_of(request.headers)):
        del request.headers[name.decode("ascii")]


_TRACE_HEADERS = frozenset(name.encode() for name in exchange.TRACE_HEADERS)
_RETRIES = b"x-stainless-retry-count"


def _respond(begun: Exchange, response: Any, body_type: type[Any], kwargs: dict[str, Any]) -> None:
    if begun.unread:
        return
    try:
        headers = response.headers
        names = reading.names_of(headers)
        content_type = reading.content_type_of(headers, names)
        if reading.from_cache(response, names):
            begun.round.from_cache = True
        if kwargs.get("stream") and not hasattr(response, "_content"):
            plain = b"content-encoding" not in names
            tap = StreamTap(begun, response.status_code, content_type, headers, plain=plain)
            reading.listen(response, body_type, tap)
        else:
            begun.responded(response.status_code, content_type, response.content, headers)
    except Exception:
        record_failure("look at a response")


def _respond_sync(begun: Exchange, response: Any, kwargs: dict[str, Any]) -> None:
    _respond(begun, response, SyncBody, kwargs)


def _respond_async(begun: Exchange, response: Any, kwargs: dict[str, Any]) -> None:
    _respond(begun, response, AsyncBody, kwargs)


def _send(wrapped: Any, _instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    runtime = _runtime.active
    if runtime is not None and runtime.governor is not None:
        return governed.send(runtime, wrapped, args, kwargs, _begin, _respond_sync)
    begun = None if runtime is None else _begin(runtime, args, kwargs)
    if begun is None:
        return wrapped(*args, **kwargs)
    token = attach(begun.context())
    try:
        response = wrapped(*args, **kwargs)
    except BaseException as error:
        begun.raised(error)
        raise
    finally:
        detach(token)
    _respond(begun, response, SyncBody, kwargs)
    return response


async def _asend(
    wrapped: Any, _instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    runtime = _runtime.active
    if runtime is not None and runtime.governor is not None:
        return await governed.asend(runtime, wrapped, args, kwargs, _begin, _respond_async)
    begun = None if runtime is None else _begin(runtime, args, kwargs)
    if begun is None:
        return await wrapped(*args, **kwargs)
    token = attach(begun.context())
    try:
        response = await wrapped(*args, **kwargs)
    except BaseException as error:
        begun.raised(error)
        raise
    finally:
        detach(token)
    _respond(begun, response, AsyncBody, kwargs)
    return response


def _transport(wrapped: Any, _instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Check a request once more where it leaves: see the module's docstring."""
    begun = exchange.active_exchange()
    if begun is not None:
        with guard("check a request's headers"):
            request = args[0] if args else kwargs["request"]
            if not begun.target.propagates:
                _strip(request)
    return wrapped(*args, **kwargs)


PATCHES: Mapping[str, tuple[tuple[str, str, Any], ...]] = dict.fromkeys(
    LIBRARIES,
    (
        ("Client", "send", _send),
        ("AsyncClient", "send", _asend),
        ("HTTPTransport", "handle_request", _transport),
        ("AsyncHTTPTransport", "handle_async_request", _transport),
    ),
)
"""What is wrapped in which module: class, method, wrapper."""


def listens(client: Any) -> bool:
    """Tell whether what a client object sends is listened to."""
    found: Any = getattr(client, "send", None)
    while found is not None:
        if getattr(found, "_self_wrapper", None) in (_send, _asend):
            return True
        found = getattr(found, "__wrapped__", None)
    return False


def sender(client: Any) -> tuple[str, Any] | None:
    """Return the method of a client object that sends, and its wrapper."""
    for base in type(client).__mro__:
        if base.__module__.partition(".")[0] in LIBRARIES:
            if base.__name__ == "AsyncClient":
                return "send", _asend
            if base.__name__ == "Client":
                return "send", _send
    return None
