"""How a model call ended, and what is told of one that has."""

from __future__ import annotations

from msgspec import Struct, structs

from clew import semconv
from clew.facts import NO_RESPONSE, RequestFacts, ResponseFacts, Usage
from clew.pricing import Cost
from clew.rules import OTHER
from clew.spans import error_type, is_cancellation
from clew.typing import Route

_ERROR = semconv.RULES[semconv.ERROR_TYPE].apply
_NO_TOKENS = Usage(input_tokens=0, output_tokens=0)


class Ending(Struct, frozen=True, kw_only=True):
    """How a round ended, as the tap saw it."""

    response: ResponseFacts = NO_RESPONSE
    status: int | None = None
    """HTTP status of the last attempt."""
    error: BaseException | None = None
    """The exception that reached the caller."""
    outcome: str | None = None
    """Outcome of the stream; None for a plain response."""
    chunks: int | None = None
    response_bytes: int | None = None
    first_chunk_s: float | None = None
    end_ns: int | None = None
    """When it ended, where that was before it could be told (ns since the epoch)."""


def not_billed(ending: Ending) -> Ending:
    """Return an ending without the tokens that were billed for the answer when it was new."""
    response = structs.replace(ending.response, usage=_NO_TOKENS)
    return structs.replace(ending, response=response)


class RoundRecord(Struct, frozen=True, kw_only=True):
    """A finished round or call, for observers on this process' own side of the walls."""

    route: Route
    request: RequestFacts
    ending: Ending
    cost: Cost
    error_type: str | None
    attempts: int
    trace_id: int
    span_id: int
    duration_s: float


def failure_of(ending: Ending) -> str | None:
    """Return `error.type`: the provider's own type or code, an exception's class, or a status."""
    if ending.outcome in ("closed", "abandoned", "held"):
        return None
    if ending.error is not None and is_cancellation(ending.error):
        return error_type(ending.error)
    error = ending.response.error
    if error is not None:
        code = str(error.code) if isinstance(error.code, int) else error.code
        for value in (error.type, code):
            if value and _ERROR(value) is value:
                return value
    if ending.status is not None and ending.status >= 400:
        return str(ending.status)
    if ending.error is not None:
        return error_type(ending.error)
    if error is not None:
        return OTHER
    return "stream_cut_off" if ending.outcome == "failed" else None
