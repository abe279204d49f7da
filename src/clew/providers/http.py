"""Sending requests and reading answers over httpx; what the adapters share.

An adapter says where to send, with which headers, what the body is and how an answer is put
together. Retries, classified errors, streams and the one round for all attempts are here.
"""

from __future__ import annotations

import asyncio
import json
import os
import threading
import time
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, Final

from clew.dialects._read import loads
from clew.errors import ConfigurationError
from clew.facts import ErrorFacts, ResponseFacts
from clew.providers import errors, raw
from clew.providers.base import ChatRequest, ChatResponse, Provider
from clew.providers.calls import Call, Outgoing, aread_events, read_events, retry_after
from clew.providers.errors import ProviderError
from clew.providers.gather import Gatherer
from clew.providers.messages import merged
from clew.providers.reading import LinePayloads, SsePayloads
from clew.providers.streams import AsyncChatStream, AsyncOpened, ChatStream, Opened
from clew.rounds import Hops
from clew.typing import Dialect, Route

RETRIES: Final = 3
MAX_RETRIES: Final = 10
TIMEOUT_S: Final = 600.0
CONNECT_S: Final = 10.0


class HttpProvider(Provider):
    """A provider that is spoken to over HTTP.

    Args:
        api_key: the key; from the environment when it is None and `base_url` is the provider's
            own (a key in the environment is never sent anywhere else).
        base_url: where the API is; the provider's own when it is None.
        http_client: an `httpx.Client` (or `httpx2.Client`) of your own, for `chat` and `stream`.
        async_http_client: an `AsyncClient` of your own, for `achat` and `astream`.
        retries: how often a failed attempt is repeated, 0 to 10.
        headers: further headers.

    Raises:
        ConfigurationError: `base_url` is no HTTP address.
    """

    key_variables: tuple[str, ...] = ()
    """Environment variables that may hold the key."""
    default_base_url: str
    needs_key = True
    dialect: Dialect
    operation = "chat"
    frames: type[SsePayloads | LinePayloads] = SsePayloads

    def __init__(
        self,
        *,
        api_key: str | None = None,
        base_url: str | None = None,
        http_client: Any = None,
        async_http_client: Any = None,
        retries: int = RETRIES,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self._own = base_url is None
        self.base_url = (base_url or self.default_base_url).rstrip("/")
        if not self.base_url.startswith(("http://", "https://")):
            raise ConfigurationError(
                f"base_url {base_url!r} is no address: give one that begins with https://"
            )
        self.retries = min(max(retries, 0), MAX_RETRIES)
        self._api_key = api_key
        self._headers = dict(headers or {})
        self._client = http_client
        self._async_client = async_http_client
        self._made: Any = None
        self._made_async: dict[asyncio.AbstractEventLoop, Any] = {}
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"{type(self).__name__}(base_url={self.base_url!r})"

    @property
    def identity(self) -> str:
        """The adapter's name and where it sends."""
        return f"{self.name}@{self.base_url}"

    # --- what an adapter adds -------------------------------------------------------------------

    @abstractmethod
    def path(self, request: ChatRequest, *, stream: bool) -> str:
        """Return the path below `base_url`, with its query."""

    @abstractmethod
    def auth(self, key: str) -> dict[str, str]:
        """Return the headers that carry the key."""

    @abstractmethod
    def body(self, request: ChatRequest, *, stream: bool) -> dict[str, Any]:
        """Return the body, without `ChatRequest.extra`."""

    @abstractmethod
    def gatherer(self) -> Gatherer:
        """Return what puts an answer's content together."""

    def fixed_headers(self) -> dict[str, str]:
        """Return headers that every request has."""
        return {}

    def metadata(self, facts: ResponseFacts) -> dict[str, Any] | None:
        """Return what the provider says besides; None when it is nothing."""
        return None

    # --- what is sent ----------------------------------------------------------------------------

    def route(self, request: ChatRequest, *, stream: bool) -> Route:
        """Return the endpoint, for the dialect."""
        return Route(self.dialect, self.operation, self.semconv_name, request.model, stream)

    def wire_body(self, request: ChatRequest, *, stream: bool = False) -> bytes:
        """Return the bytes of the body that would be sent.

        Raises:
            ProviderError: the request holds something that JSON cannot say.
        """
        body = merged(self.body(request, stream=stream), request.extra)
        try:
            text = json.dumps(body, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        except (ValueError, TypeError, RecursionError) as error:
            reason = f"cannot be asked: the request is no JSON ({type(error).__name__})"
            raise self.error("configuration", reason, request) from None
        # Lone surrogates can stand in strings only, where the escape is JSON's own.
        return text.encode("utf-8", "backslashreplace")

    def outgoing(self, request: ChatRequest, *, stream: bool) -> Outgoing:
        """Return the whole request.

        Raises:
            ProviderError: there is no key, or the request is no JSON.
        """
        key = self._key()
        if key is None and self.needs_key and self._own:
            names = " or ".join(self.key_variables)
            reason = f"needs a key: pass api_key, or set {names}"
            raise self.error("configuration", reason, request)
        headers = {
            "content-type": "application/json",
            **self.fixed_headers(),
            **({} if key is None else self.auth(key)),
            **self._headers,
        }
        url = self.base_url + self.path(request, stream=stream)
        return Outgoing(url, headers, self.wire_body(request, stream=stream))

    def _key(self) -> str | None:
        key = self._api_key
        if key is None and self._own:
            key = next(
                (found for name in self.key_variables if (found := os.environ.get(name))), None
            )
        return key.strip() or None if key is not None else None

    # --- what can go wrong -----------------------------------------------------------------------

    def error(
        self,
        failure_class: str,
        reason: str,
        request: ChatRequest,
        *,
        status: int | None = None,
        facts: ErrorFacts | None = None,
        wait: float | None = None,
        raw: Any = None,
    ) -> ProviderError:
        """Return an error of this provider; `raw` is kept only where raw capture was asked for."""
        return ProviderError(
            failure_class,
            reason,
            provider=self.name,
            model=request.model,
            status=status,
            facts=facts,
            retry_after=wait,
            raw=raw if request.capture_raw is True else None,
        )

    def refused(self, request: ChatRequest, response: Any) -> ProviderError:
        """Return the error of an answer whose status is none of success; its body has been read."""
        status, headers, body = response.status_code, response.headers, response.content
        facts = None
        if status >= 400:
            route = self.route(request, stream=False)
            facts = route.dialect.response(body, status, route, headers).error
        error = self.error(
            errors.of_answer(status, facts),
            f"answered {status}",
            request,
            status=status,
            facts=facts,
            wait=retry_after(headers, time.time()),
            raw=loads(body),
        )
        if headers.get("x-should-retry") == "false":
            error.may_retry = False
        return error

    def failed(self, request: ChatRequest, error: Exception) -> ProviderError | None:
        """Return the error that an exception of the HTTP client stands for; None if it is none."""
        failure_class = errors.of_exception(error)
        if failure_class is None:
            return None
        kind = type(error).__name__
        return self.error(failure_class, f"was not reached ({kind})", request)

    # --- the clients -----------------------------------------------------------------------------

    def client(self) -> Any:
        """Return the HTTP client, made when it is first needed."""
        if self._client is not None:
            return self._client
        with self._lock:
            if self._made is None:
                import httpx

                self._made = httpx.Client(timeout=httpx.Timeout(TIMEOUT_S, connect=CONNECT_S))
            return self._made

    def async_client(self) -> Any:
        """Return the asynchronous HTTP client of the running loop: connections belong to one."""
        if self._async_client is not None:
            return self._async_client
        loop = asyncio.get_running_loop()
        with self._lock:
            made = self._made_async.get(loop)
            if made is None:
                import httpx

                for ended in [one for one in self._made_async if one.is_closed()]:
                    del self._made_async[ended]
                made = httpx.AsyncClient(timeout=httpx.Timeout(TIMEOUT_S, connect=CONNECT_S))
                self._made_async[loop] = made
            return made

    def close(self) -> None:
        """Close the connections of `chat` and `stream`; a client of your own stays open."""
        with self._lock:
            made, self._made = self._made, None
        if made is not None:
            made.close()

    async def aclose(self) -> None:
        """Close the connections of `achat` and `astream` on the running loop."""
        made = self._made_async.pop(asyncio.get_running_loop(), None)
        if made is not None:
            await made.aclose()

    # --- asking ----------------------------------------------------------------------------------

    def chat(self, request: ChatRequest, *, hops: Hops | None = None) -> ChatResponse:
        """Ask, and wait for the whole answer."""
        request = raw.gated(request)
        call = Call(self, request, hops, stream=False)
        try:
            while True:
                try:
                    response = self.client().send(call.request(self.client()))
                    return call.whole(response)
                except Exception as error:
                    delay = call.next_delay(error)
                time.sleep(delay)
        except BaseException as error:
            call.error = error
            raise
        finally:
            call.finish()

    async def achat(self, request: ChatRequest, *, hops: Hops | None = None) -> ChatResponse:
        """Ask, and wait for the whole answer."""
        request = raw.gated(request)
        call = Call(self, request, hops, stream=False)
        try:
            while True:
                try:
                    client = self.async_client()
                    return call.whole(await client.send(call.request(client)))
                except Exception as error:
                    delay = call.next_delay(error)
                await asyncio.sleep(delay)
        except BaseException as error:
            call.error = error
            raise
        finally:
            call.finish()

    def stream(self, request: ChatRequest, *, hops: Hops | None = None) -> ChatStream:
        """Return the answer as a stream."""
        return ChatStream(lambda: self._open(request, hops))

    def astream(self, request: ChatRequest, *, hops: Hops | None = None) -> AsyncChatStream:
        """Return the answer as a stream."""
        return AsyncChatStream(lambda: self._aopen(request, hops))

    def _open(self, request: ChatRequest, hops: Hops | None) -> Opened:
        request = raw.gated(request)
        call = Call(self, request, hops, stream=True)
        try:
            while True:
                try:
                    response = self.client().send(call.request(self.client()), stream=True)
                    if call.refuses(response):
                        response.read()
                        raise self.refused(request, response)
                    reading = call.reading(response)
                    events = read_events(self, request, reading, response)
                    return Opened(next(events), events, response, reading.response)
                except Exception as error:
                    delay = call.next_delay(error)
                time.sleep(delay)
        except BaseException as error:
            call.error = error
            raise
        finally:
            call.finish()

    async def _aopen(self, request: ChatRequest, hops: Hops | None) -> AsyncOpened:
        request = raw.gated(request)
        call = Call(self, request, hops, stream=True)
        try:
            while True:
                try:
                    client = self.async_client()
                    response = await client.send(call.request(client), stream=True)
                    if call.refuses(response):
                        await response.aread()
                        raise self.refused(request, response)
                    reading = call.reading(response)
                    events = aread_events(self, request, reading, response)
                    return AsyncOpened(await anext(events), events, response, reading.response)
                except Exception as error:
                    delay = call.next_delay(error)
                await asyncio.sleep(delay)
        except BaseException as error:
            call.error = error
            raise
        finally:
            call.finish()
