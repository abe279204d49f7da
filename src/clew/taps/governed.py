"""Sending under gates, over httpx and httpx2: what `clew.taps.httpx` does where a governor is.

An answer that enforced output gates look at is held back as a whole, streamed or not: nothing of
it has been released when they decide. Gates that only observe hold nothing back, and say nothing
about a stream.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from clew import exchange, passages
from clew._guard import record_failure
from clew.context import attach, detach
from clew.exchange import Exchange, Target
from clew.passages import Passage
from clew.pipeline.runtime import Runtime
from clew.taps import reading

Begin = Callable[..., Exchange | None]
Respond = Callable[[Exchange, Any, dict[str, Any]], None]

_SIGNATURES = frozenset(
    {
        b"content-digest",
        b"content-encoding",
        b"content-md5",
        b"digest",
        b"signature",
        b"x-amz-content-sha256",
        b"x-amz-date",
    }
)
"""Headers that say something about the body that would no longer hold for another one."""


class _Asked(NamedTuple):
    request: Any
    target: Target
    body: bytes | None
    changeable: bool


def _look(runtime: Runtime, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Asked | None:
    """Return what the gates are asked about; None for anything but a model call of this tap."""
    try:
        request = args[0] if args else kwargs["request"]
        target = reading.target_of(runtime, request)
        if target is None or not passages.governs(target, request.method):
            return None
        outer = exchange.active_exchange()
        if outer is not None and outer.request is request:
            return None
        body: bytes | None = getattr(request, "_content", None)
        changeable = body is not None and not _is_signed(request)
        return _Asked(request, target, body, changeable)
    except Exception:
        record_failure("look at a request")
        return None


def _is_signed(request: Any) -> bool:
    if not _SIGNATURES.isdisjoint(reading.names_of(request.headers)):
        return True
    return str(request.headers.get("authorization", "")).startswith("AWS4-")


def _changed(
    asked: _Asked, passage: Passage, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments to send with: the request has the body that the gates made."""
    replacement = passage.result.replacement
    if replacement is None:
        return args, kwargs
    old = asked.request
    headers = old.headers.copy()
    del headers["content-length"]
    request = type(old)(
        old.method, old.url, headers=headers, content=replacement, extensions=old.extensions
    )
    if args:
        return (request, *args[1:]), kwargs
    return args, {**kwargs, "request": request}


def _holds(runtime: Runtime, passage: Passage, response: Any, kwargs: dict[str, Any]) -> bool:
    """Tell whether a stream is to be read before the caller sees it."""
    streams = bool(kwargs.get("stream")) and not hasattr(response, "_content")
    return streams and response.status_code < 400 and passages.holds(runtime, passage)


def _body(response: Any) -> bytes | None:
    return response.content if hasattr(response, "_content") else None


def _replace(response: Any, replacement: bytes | None) -> Any:
    """Put another body into an answer that has been read."""
    if replacement is not None:
        response._content = replacement
        response.__dict__.pop("_text", None)
        response.headers["content-length"] = str(len(replacement))
    return response


def send(
    runtime: Runtime,
    wrapped: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    begin: Begin,
    respond: Respond,
) -> Any:
    """Ask the gates, send, and ask them about the answer."""
    asked = _look(runtime, args, kwargs)
    retried = False
    while True:
        passage = None
        if asked is not None:
            passage = passages.before_send(
                runtime, asked.target, asked.body, redact=asked.changeable
            )
            args, kwargs = _changed(asked, passage, args, kwargs)
        facts = None if passage is None else passage.facts
        begun = begin(runtime, args, kwargs, facts)
        if passage is not None:
            passages.after_begin(runtime, passage, begun)
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
        respond(begun, response, kwargs)
        if passage is None or response.status_code >= 400:
            return response
        try:
            if _holds(runtime, passage, response, kwargs):
                response.read()
            answer = passages.after_answer(runtime, passage, _body(response), retried=retried)
        except BaseException:
            response.close()
            raise
        if not answer.again:
            return _replace(response, answer.replacement)
        response.close()
        retried = True


async def asend(
    runtime: Runtime,
    wrapped: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    begin: Begin,
    respond: Respond,
) -> Any:
    """Do what `send` does, over an asynchronous client."""
    asked = _look(runtime, args, kwargs)
    retried = False
    while True:
        passage = None
        if asked is not None:
            passage = await passages.abefore_send(
                runtime, asked.target, asked.body, redact=asked.changeable
            )
            args, kwargs = _changed(asked, passage, args, kwargs)
        facts = None if passage is None else passage.facts
        begun = begin(runtime, args, kwargs, facts)
        if passage is not None:
            passages.after_begin(runtime, passage, begun)
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
        respond(begun, response, kwargs)
        if passage is None or response.status_code >= 400:
            return response
        try:
            if _holds(runtime, passage, response, kwargs):
                await response.aread()
            answer = await passages.aafter_answer(
                runtime, passage, _body(response), retried=retried
            )
        except BaseException:
            await response.aclose()
            raise
        if not answer.again:
            return _replace(response, answer.replacement)
        await response.aclose()
        retried = True
