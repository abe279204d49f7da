"""The tap on aiohttp: wraps `ClientSession._request`, which all its public methods call.

A response's body is listened to as its caller reads it, however that is done. Trace headers are
taken off where the request leaves (`ClientRequest.send`), below middlewares and tracing.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, cast
from urllib.parse import urlsplit

import wrapt

from clew import context, exchange
from clew._guard import guard, record_failure
from clew.endings import Ending
from clew.exchange import Exchange, Target
from clew.governance import passages
from clew.governance.passages import Passage
from clew.pipeline import runtime as _runtime
from clew.pipeline.runtime import Runtime
from clew.spans import is_cancellation
from clew.streams import StreamTap

if TYPE_CHECKING:
    from clew.governance.windows import Window

_Proxy: Any = wrapt.ObjectProxy


class Content(_Proxy):
    """A response's `content` (a `StreamReader`), listened to."""

    _self_tap: StreamTap
    _self_window: Window | None

    def __init__(self, wrapped: Any, tap: StreamTap) -> None:
        _Proxy.__init__(self, wrapped)
        self._self_tap = tap
        self._self_window = None

    def observe(self, window: Window) -> None:
        """Let gates that only observe look at what is read."""
        self._self_window = window

    def left(self) -> None:
        """Nobody reads on."""
        if self._self_window is not None:
            self._self_window.left()

    async def read(self, *args: Any, **kwargs: Any) -> bytes:
        """Read up to `n` bytes, by default all."""
        return await self._reading("read", args, kwargs)

    async def readany(self) -> bytes:
        """Read what is there."""
        return await self._reading("readany")

    async def readline(self, *args: Any, **kwargs: Any) -> bytes:
        """Read a line."""
        return await self._reading("readline", args, kwargs)

    async def readuntil(self, *args: Any, **kwargs: Any) -> bytes:
        """Read up to a separator."""
        return await self._reading("readuntil", args, kwargs)

    async def readexactly(self, *args: Any, **kwargs: Any) -> bytes:
        """Read so many bytes."""
        return await self._reading("readexactly", args, kwargs)

    async def readchunk(self) -> tuple[bytes, bool]:
        """Read a piece, and tell whether it ends a chunk of the transfer encoding."""
        return await self._reading("readchunk")

    def read_nowait(self, *args: Any, **kwargs: Any) -> bytes:
        """Read what is there, without waiting."""
        taken = self._took(self.__wrapped__.read_nowait(*args, **kwargs))
        window = self._self_window
        if window is not None and not window.over:
            passages.look(window, window.feed(taken))
            if self._self_tap.done:
                passages.look(window, window.end())
        return taken

    def iter_chunked(self, n: int) -> Any:
        """Iterate over pieces of at most `n` bytes."""
        return _class_of(self).iter_chunked(self, n)

    def iter_any(self) -> Any:
        """Iterate over pieces as they come."""
        return _class_of(self).iter_any(self)

    def iter_chunks(self) -> Any:
        """Iterate over the chunks of the transfer encoding."""
        return _class_of(self).iter_chunks(self)

    def __aiter__(self) -> AsyncIterator[bytes]:
        return _class_of(self).__aiter__(self)

    def __del__(self) -> None:
        with guard("drop a stream"):
            self._self_tap.dropped()
            if self._self_window is not None:
                self._self_window.dropped()

    async def _reading(
        self, name: str, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        try:
            taken = await getattr(self.__wrapped__, name)(*args, **(kwargs or {}))
        except GeneratorExit:
            raise  # whoever was reading is gone; closing or dropping the body says which way
        except BaseException as error:
            # `IncompleteReadError` hands over what there was.
            self._took(getattr(error, "partial", b""))
            self._self_tap.failed(error)
            self.left()
            raise
        self._took(taken)
        window = self._self_window
        if window is not None and not window.over:
            data: bytes = taken if isinstance(taken, bytes) else taken[0]
            await passages.alook(window, window.feed(data))
            if self._self_tap.done:
                await passages.alook(window, window.end())
        return taken

    def _took(self, taken: Any) -> Any:
        tap = self._self_tap
        data: bytes = taken if isinstance(taken, bytes) else taken[0]
        if data:
            tap.take(data)
        if not tap.done and self.__wrapped__.at_eof():
            tap.exhausted()
        return taken


def _class_of(proxy: Any) -> Any:
    """Return the class of what is wrapped: its iterators then read through the proxy."""
    return cast("Any", type(proxy.__wrapped__))


class _Request:
    """One request, for the exchange: what it is known by, and its headers."""

    __slots__ = ("headers",)

    def __init__(self, headers: Any) -> None:
        self.headers: Any = headers if hasattr(headers, "get") else {}


class _Looked(NamedTuple):
    method: str
    target: Target
    body: bytes | None


def _look(
    runtime: Runtime, session: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[_Looked | None, dict[str, Any]]:
    """Recognise a model call; return what it is and the arguments to send with."""
    try:
        method = args[0] if args else kwargs["method"]
        given = args[1] if len(args) > 1 else kwargs["str_or_url"]
        url = str(session._build_url(given)) if hasattr(session, "_build_url") else str(given)
        parts = urlsplit(url)
        target = exchange.target_of(
            runtime, method.upper(), parts.scheme, parts.hostname or "", parts.port, parts.path
        )
        if target is None:
            return None, kwargs
        outer = exchange.active_exchange()
        if outer is not None and outer.target == target:
            return None, kwargs  # this session carries the request of another client library
        body, kwargs = _body(session, kwargs)
        return _Looked(method.upper(), target, body), kwargs
    except Exception:
        record_failure("look at a request")
        return None, kwargs


def _begin(
    runtime: Runtime, looked: _Looked, kwargs: dict[str, Any], passage: Passage | None
) -> Exchange | None:
    """Begin an exchange for a model call."""
    facts = None if passage is None else passage.facts
    try:
        request = _Request(kwargs.get("headers"))
        return exchange.begin(runtime, request, looked.target, looked.body, facts=facts)
    except Exception:
        record_failure("look at a request")
        return None


def _body(session: Any, kwargs: dict[str, Any]) -> tuple[bytes | None, dict[str, Any]]:
    """Return the request's body, where it is in memory, and the arguments to send it with.

    What is given as `json` is serialised here, as the session would have done, and only once.
    """
    data, json = kwargs.get("data"), kwargs.get("json")
    if isinstance(data, (bytes, bytearray)):
        return bytes(data), kwargs
    if isinstance(data, str):
        return data.encode(), kwargs
    if data is None and json is not None and not getattr(session, "_json_serialize_bytes", None):
        from aiohttp.payload import JsonPayload

        try:
            text = session.json_serialize(json)
        except Exception:  # the session will say so to its caller
            return None, kwargs
        payload = JsonPayload(json, dumps=lambda _: text)
        return text.encode(), {**kwargs, "json": None, "data": payload}
    return None, kwargs


def _respond(begun: Exchange, session: Any, kwargs: Mapping[str, Any], response: Any) -> None:
    if begun.unread:
        return
    try:
        headers: Mapping[str, str] = response.headers
        content_type = exchange.content_type_of(headers)
        content = response.content
        if content.at_eof():
            begun.responded(response.status, content_type, b"", headers)
            return
        unpacked = kwargs.get("auto_decompress")
        if unpacked is None:
            unpacked = getattr(session, "auto_decompress", True)
        if unpacked and "content-encoding" in headers:
            headers = {name: value for name, value in headers.items() if name.lower() != _ENCODING}
        tap = StreamTap(begun, response.status, content_type, headers)
        response.content = Content(content, tap)
    except Exception:
        record_failure("look at a response")


_ENCODING = "content-encoding"


async def _request(
    wrapped: Any, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    runtime = _runtime.get()
    if runtime is None:
        return await wrapped(*args, **kwargs)
    looked, kwargs = _look(runtime, instance, args, kwargs)
    if looked is None:
        return await wrapped(*args, **kwargs)
    passage = None
    if runtime.governor is not None and passages.governs(looked.target, looked.method):
        passage = await passages.abefore_send(runtime, looked.target, looked.body)
    begun = _begin(runtime, looked, kwargs, passage)
    if passage is not None:
        passages.after_begin(runtime, passage, begun)
    if begun is None:  # of a fault of ours: the gates look at the answer all the same
        response = await wrapped(*args, **kwargs)
    else:
        token = context.attach(begun.context())
        try:
            response = await wrapped(*args, **kwargs)
        except BaseException as error:
            _raised(begun, error)
            raise
        finally:
            context.detach(token)
        _respond(begun, instance, kwargs, response)
    if passage is not None and response.status < 400:
        await _look_at(runtime, passage, begun, response)
    return response


async def _look_at(
    runtime: Runtime, passage: Passage, begun: Exchange | None, response: Any
) -> None:
    """Ask the gates about an answer: it is held back as a whole, and is not asked for again."""
    content_type = ""
    with guard("look at a response"):
        content_type = exchange.content_type_of(response.headers)
    window = passages.window_of(runtime, passage, begun, content_type)
    if window is not None and not window.holds:
        if type(response.content) is Content:
            response.content.observe(window)
        return
    if not passages.holds(runtime, passage):
        return
    try:
        body, error = await _read(response.content)
        if window is None:
            answer = await passages.aafter_answer(runtime, passage, body, retried=True)
            replacement = answer.replacement
        else:
            passed = await passages.alook(window, window.feed(body))
            replacement = passed + await passages.alook(window, window.end(complete=error is None))
    except BaseException:
        response.close()
        raise
    if error is not None:
        response.close()
    _put_back(response, body if replacement is None else replacement, error)


async def _read(content: Any) -> tuple[bytes, Exception | None]:
    """Read a body to its end; return what has come, and the error that has ended it."""
    pieces: list[bytes] = []
    try:
        while piece := await content.readany():
            pieces.append(piece)
    except Exception as error:
        return b"".join(pieces), error
    return b"".join(pieces), None


def _put_back(response: Any, body: bytes, error: Exception | None) -> None:
    """Let the caller read an answer that has been read; its error comes where it came before."""
    from aiohttp.base_protocol import BaseProtocol
    from aiohttp.streams import StreamReader
    from multidict import CIMultiDict, CIMultiDictProxy

    class Broken(StreamReader):
        """What has come, and then the error: this is called where nothing is left, and no end."""

        async def _wait(self, func_name: str) -> None:
            del func_name
            raise error or asyncio.IncompleteReadError(b"", None)

    loop = asyncio.get_running_loop()
    kind = StreamReader if error is None else Broken
    reader = kind(BaseProtocol(loop), len(body) + 1, loop=loop)
    reader.feed_data(body)
    if error is None:
        reader.feed_eof()
    response.content = reader
    if error is None and "content-length" in response.headers:
        length = str(len(body))
        headers = CIMultiDict(response.headers)
        headers["Content-Length"] = length
        response._headers = CIMultiDictProxy(headers)
        response._raw_headers = tuple(
            (name, length.encode() if name.lower() == b"content-length" else value)
            for name, value in response.raw_headers
        )
        for name in ("headers", "raw_headers"):
            response._cache.pop(name, None)


def _raised(begun: Exchange, error: BaseException) -> None:
    status = getattr(error, "status", None)
    if not isinstance(status, int) or status < 400 or is_cancellation(error):
        begun.raised(error)
        return
    with guard("record a failed request"):  # `raise_for_status`: there was an answer
        begun.end(Ending(error=error, status=status))


def _send(wrapped: Any, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Check a request's headers where it leaves."""
    begun = exchange.active_exchange()
    if begun is not None and not begun.target.propagates:
        with guard("check a request's headers"):
            for name in exchange.TRACE_HEADERS:
                instance.headers.popall(name, None)
    return wrapped(*args, **kwargs)


def _leave(wrapped: Any, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A response is closed or released."""
    content = instance.content
    if type(content) is Content:
        with guard("end a stream"):
            content._self_tap.closed()
            content.left()
    return wrapped(*args, **kwargs)


PATCHES: Mapping[str, tuple[tuple[str, str, Any], ...]] = {
    "aiohttp.client": (("ClientSession", "_request", _request),),
    "aiohttp.client_reqrep": (
        ("ClientRequest", "send", _send),
        ("ClientResponse", "close", _leave),
        ("ClientResponse", "release", _leave),
    ),
}
"""What is wrapped in which module: class, method, wrapper."""


def sender(client: Any) -> tuple[str, Any] | None:
    """Return the method of an HTTP session object that sends, and its wrapper."""
    for base in type(client).__mro__:
        if base.__module__.partition(".")[0] == "aiohttp" and base.__name__ == "ClientSession":
            return "_request", _request
    return None
