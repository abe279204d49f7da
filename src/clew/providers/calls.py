"""One logical call: its attempts, the waits between them, and the events of its stream."""

from __future__ import annotations

import email.utils
from collections.abc import AsyncGenerator, Generator, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from clew.attempts import LogicalCall
from clew.dialects._whole import is_json
from clew.exchange import content_type_of
from clew.pipeline import runtime as _runtime
from clew.providers import errors
from clew.providers.base import ChatRequest, ChatResponse, StreamEvent
from clew.providers.errors import ProviderError
from clew.providers.reading import Reading
from clew.rounds import Hops

if TYPE_CHECKING:
    from clew.providers.http import HttpProvider

MAX_DELAY_S: Final = 30.0


def governed() -> bool:
    """Tell whether gates look at what is sent; then they say what leaves."""
    runtime = _runtime.get()
    return runtime is not None and runtime.governor is not None


class Outgoing(NamedTuple):
    """One request as it is sent."""

    url: str
    headers: dict[str, str]
    content: bytes


def retry_delay(attempt: int) -> float:
    """Return the seconds to wait after the attempt with this number (0 is the first)."""
    return min(0.1 * 2**attempt, MAX_DELAY_S)


def retry_after(headers: Mapping[str, str], now: float) -> float | None:
    """Return the seconds that a provider asks to wait, in whichever form.

    https://www.rfc-editor.org/rfc/rfc9110#field.retry-after; `retry-after-ms` is OpenAI's.
    """
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        value = headers.get(name)
        if value is None:
            continue
        try:
            seconds = float(value) * unit
        except ValueError:
            try:
                seconds = email.utils.parsedate_to_datetime(value).timestamp() - now
            except (ValueError, OverflowError):
                continue
        if seconds < float("inf"):
            return max(seconds, 0.0)
    return None


class Call:
    """One logical call: its attempts are one round."""

    def __init__(
        self, provider: HttpProvider, request: ChatRequest, hops: Hops | None, *, stream: bool
    ) -> None:
        self._provider = provider
        self._request = request
        self._stream = stream
        self._outgoing = provider.outgoing(request, stream=stream)
        self._attempt = 0
        self._hop = (hops.index or 0) if hops is not None else 0
        self._watch = hops.watch if hops is not None else None
        self.error: BaseException | None = None
        self._call = LogicalCall(hops=hops or Hops(errors.of_ending))

    def request(self, client: Any) -> Any:
        """Return the request object of an attempt."""
        url, headers, content = self._outgoing
        watch, self._watch = self._watch, None
        if watch is not None and not governed():
            watch(content, self._hop)
        options: dict[str, Any] = {}
        if self._request.timeout is not None:
            options["timeout"] = self._request.timeout
        return client.build_request("POST", url, content=content, headers=headers, **options)

    def refuses(self, response: Any) -> bool:
        """Tell whether the status is none of success."""
        return not 200 <= response.status_code < 300

    def whole(self, response: Any) -> ChatResponse:
        """Read an answer whose body has been read."""
        if self.refuses(response):
            raise self._provider.refused(self._request, response)
        reading = Reading(self._provider, self._request, stream=False, hop=self._hop)
        return reading.whole(response.content, response.status_code, response.headers)

    def reading(self, response: Any) -> Reading:
        """Return what reads a streamed answer."""
        content_type = content_type_of(response.headers)
        return Reading(
            self._provider, self._request, content_type=content_type, stream=True, hop=self._hop
        )

    def next_delay(self, error: Exception) -> float:
        """Return the seconds before the next attempt, or raise when there is none."""
        known = error
        if not isinstance(error, ProviderError):
            known = self._provider.failed(self._request, error)
            if known is None:
                raise error
        assert isinstance(known, ProviderError)  # noqa: S101 - for the type checker
        wait = known.retry_after or 0.0
        last = self._attempt >= self._provider.retries
        # Sooner than the provider says would be refused again; much later is the caller's affair.
        if last or not (known.retryable and known.may_retry) or wait > MAX_DELAY_S:
            raise known from (None if known is error else error)
        self._attempt += 1
        return retry_delay(self._attempt - 1) if known.retry_after is None else wait

    def finish(self) -> None:
        """End the call."""
        self._call.finish(self.error)


def read_events(
    provider: HttpProvider, request: ChatRequest, reading: Reading, response: Any
) -> Generator[StreamEvent]:
    """Yield the events of a stream, and close its response."""
    try:
        if is_json(response.headers.get("content-type", "")):
            response.read()
            reading.whole(response.content, response.status_code, response.headers)
            yield from reading.events_of_whole()
            return
        for data in response.iter_bytes():
            yield from reading.feed(data)
        yield from reading.end()
    except ProviderError:
        raise
    except Exception as error:
        known = provider.failed(request, error)
        if known is None:
            raise
        raise known from error
    finally:
        response.close()


async def aread_events(
    provider: HttpProvider, request: ChatRequest, reading: Reading, response: Any
) -> AsyncGenerator[StreamEvent]:
    """Yield the events of a stream, and close its response."""
    try:
        if is_json(response.headers.get("content-type", "")):
            await response.aread()
            reading.whole(response.content, response.status_code, response.headers)
            for event in reading.events_of_whole():
                yield event
            return
        async for data in response.aiter_bytes():
            for event in reading.feed(data):
                yield event
        for event in reading.end():
            yield event
    except ProviderError:
        raise
    except Exception as error:
        known = provider.failed(request, error)
        if known is None:
            raise
        raise known from error
    finally:
        await response.aclose()
