"""Sending under gates, over httpx and httpx2: what `clew.taps.httpx` does where a governor is.

A streamed answer that output gates look at goes through a window
(`clew.governance.windows`), which lets go what was looked at. Where a gate has to see the whole, or
the wire format is not known, the answer is held back until it is complete.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from clew import exchange
from clew._guard import record_failure
from clew.context import attach, detach
from clew.exchange import Exchange, Target
from clew.governance import passages
from clew.governance.passages import Passage
from clew.pipeline.runtime import Runtime
from clew.taps import reading
from clew.taps.windowed import AsyncWindowed, SyncWindowed, opened

Begin = Callable[..., Exchange | None]
Respond = Callable[[Exchange, Any, dict[str, Any]], None]

_SIGNATURES = frozenset(
    {
        b"content-digest",
        b"content-encoding",
        b"content-md5",
        b"digest",
        b"repr-digest",
        b"signature",
        b"signature-input",
        b"x-amz-content-sha256",
        b"x-amz-date",
        b"x-content-sha256",
        b"x-ms-content-sha256",
    }
)
"""Headers that say something about the body that would no longer hold for another one."""
_SIGNED = ("aws4-", "hmac", "signature ")
"""How an `Authorization` begins that is made over the request: of AWS, Azure, and RFC draft cavage
(which Oracle's cloud uses)."""


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
    return str(request.headers.get("authorization", "")).lower().startswith(_SIGNED)


def _changed(
    asked: _Asked, passage: Passage, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments to send with: the request has the body that the gates made."""
    old = asked.request
    try:
        headers = old.headers.copy()
        del headers["content-length"]
        content = passage.result.replacement
        request = type(old)(
            old.method, old.url, headers=headers, content=content, extensions=old.extensions
        )
    except Exception:
        passages.refuse_unredacted(passage)
    if args:
        return (request, *args[1:]), kwargs
    return args, {**kwargs, "request": request}


def _body(response: Any) -> bytes | None:
    return response.content if hasattr(response, "_content") else None


def _replace(passage: Passage, response: Any, replacement: bytes) -> None:
    """Put another body into an answer that has been read."""
    try:
        response._content = replacement
        response.__dict__.pop("_text", None)
        response.headers["content-length"] = str(len(replacement))
    except Exception:
        passages.refuse_unredacted(passage)


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
            if passage.result.replacement is not None:
                args, kwargs = _changed(asked, passage, args, kwargs)
        facts = None if passage is None else passage.facts
        begun = begin(runtime, args, kwargs, facts)
        if passage is not None:
            passages.after_begin(runtime, passage, begun)
        if begun is None:  # of a fault of ours: the gates look at the answer all the same
            response = wrapped(*args, **kwargs)
        else:
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
            window = opened(runtime, passage, begun, response, SyncWindowed)
            if window is not None:
                again = window.begin(retried=retried)
            else:
                if not hasattr(response, "_content") and passages.holds(runtime, passage):
                    response.read()
                answer = passages.after_answer(runtime, passage, _body(response), retried=retried)
                again = answer.again
                if answer.replacement is not None:
                    _replace(passage, response, answer.replacement)
        except BaseException:
            response.close()
            raise
        if not again:
            return response
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
            if passage.result.replacement is not None:
                args, kwargs = _changed(asked, passage, args, kwargs)
        facts = None if passage is None else passage.facts
        begun = begin(runtime, args, kwargs, facts)
        if passage is not None:
            passages.after_begin(runtime, passage, begun)
        if begun is None:  # of a fault of ours: the gates look at the answer all the same
            response = await wrapped(*args, **kwargs)
        else:
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
            window = opened(runtime, passage, begun, response, AsyncWindowed)
            if window is not None:
                again = await window.begin(retried=retried)
            else:
                if not hasattr(response, "_content") and passages.holds(runtime, passage):
                    await response.aread()
                answer = await passages.aafter_answer(
                    runtime, passage, _body(response), retried=retried
                )
                again = answer.again
                if answer.replacement is not None:
                    _replace(passage, response, answer.replacement)
        except BaseException:
            await response.aclose()
            raise
        if not again:
            return response
        await response.aclose()
        retried = True
