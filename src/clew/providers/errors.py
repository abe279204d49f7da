"""What can go wrong with a provider, in eight classes.

connection      nothing came back, or a stream broke off
rate_limit      429, or a quota that is used up
auth            401
configuration   no key, no usable address: nothing was sent
client_error    any other 4xx: the request itself is refused
server_error    5xx
circuit_open    not tried, because it failed too often just now
unknown         an answer that is none
"""

from __future__ import annotations

from typing import Any, Final

from clew import semconv
from clew.endings import Ending
from clew.errors import ClewError
from clew.facts import ErrorFacts
from clew.rules import DROPPED
from clew.spans import is_cancellation

RETRYABLE: Final = frozenset({"connection", "rate_limit", "server_error", "circuit_open"})
"""Classes after which another attempt, or another provider, may do better."""

TRIPPING: Final = frozenset({"connection", "rate_limit", "server_error"})
"""Classes that count towards opening a circuit."""

_STATUSES: Final = {401: "auth", 408: "connection", 429: "rate_limit"}

_WORDS: Final = {
    "rate_limit": (
        "rate_limit_error rate_limit_exceeded resource_exhausted insufficient_quota "
        "too_many_requests service_tier_capacity_exceeded rate_limited"
    ),
    "server_error": (
        "server_error api_error overloaded_error timeout_error internal unavailable "
        "deadline_exceeded internal_error internal_server_error service_unavailable "
        "overloaded provider_error"
    ),
    "auth": "authentication_error invalid_api_key unauthenticated unauthorized",
    "client_error": (
        "invalid_request_error invalid_argument not_found_error not_found permission_error "
        "permission_denied request_too_large failed_precondition out_of_range "
        "invalid_prompt context_length_exceeded content_filter"
    ),
}
_CLASS_OF_WORD: Final = {
    word: failure_class for failure_class, words in _WORDS.items() for word in words.split()
}
_MISCONFIGURED: Final = frozenset({"UnsupportedProtocol", "InvalidURL", "LocalProtocolError"})
_identifier: Final = semconv.RULES[semconv.ERROR_TYPE].apply


class ProviderError(ClewError):
    """A provider did not answer, or not with an answer.

    The text of the error names provider, status and the provider's own code; what the provider
    wrote about it may quote the prompt and is in `raw` only, when raw capture was asked for.

    Attributes:
        failure_class: one of the eight classes above.
        provider: name of the adapter.
        model: the model that was asked for.
        status: HTTP status, or None.
        type: the provider's own type of error, when it is an identifier.
        code: its own code, when it is an identifier or a number.
        retry_after: seconds to wait, where the provider says so.
        raw: the decoded body, only with `ChatRequest.capture_raw`.
    """

    def __init__(
        self,
        failure_class: str,
        reason: str,
        *,
        provider: str,
        model: str | None = None,
        status: int | None = None,
        facts: ErrorFacts | None = None,
        retry_after: float | None = None,
        raw: Any = None,
    ) -> None:
        self.failure_class = failure_class
        self.provider = provider
        self.model = model
        self.status = status
        self.type = _word(facts.type) if facts is not None else None
        self.code = _word(facts.code) if facts is not None else None
        self.retry_after = retry_after
        self.may_retry = failure_class in RETRYABLE
        """Whether another attempt at this provider may do better."""
        self.raw = raw
        word = self.type or self.code
        super().__init__(f"{provider} {reason}" + (f" ({word})" if word is not None else ""))

    @property
    def retryable(self) -> bool:
        """Whether the next provider of a chain may be tried."""
        return self.failure_class in RETRYABLE


def _word(value: str | int | None) -> Any:
    if type(value) is int:
        return value
    kept = _identifier(value)
    return None if kept is DROPPED else kept


def of_answer(status: int | None, facts: ErrorFacts | None) -> str:
    """Return the failure class of an answer by its status, else by the error that it tells."""
    if status is not None and status >= 400:
        return _STATUSES.get(status) or ("server_error" if status >= 500 else "client_error")
    if facts is not None:
        if facts.type is None and facts.code is None:
            return "server_error"  # the request was taken, and then something broke
        code = facts.code
        if type(code) is str and code.isdigit() and len(code) == 3:
            code = int(code)
        if type(code) is int and 400 <= code < 600:
            return of_answer(code, None)
        for word in (code, facts.type):
            known = _CLASS_OF_WORD.get(word.lower()) if type(word) is str else None
            if known is not None:
                return known
    return "unknown"


def of_exception(error: BaseException) -> str | None:
    """Return the failure class of an exception; None when the HTTP client did not raise it.

    Classes are told by name: `httpx` and `httpx2` have the same ones, and neither is imported.
    """
    kinds = {
        kind.__name__
        for kind in type(error).__mro__
        if kind.__module__.partition(".")[0] in ("httpx", "httpx2")
    }
    if kinds & _MISCONFIGURED:
        return "configuration"
    if "TransportError" in kinds or isinstance(error, OSError):
        return "connection"
    return "unknown" if kinds else None


def of_ending(ending: Ending) -> str | None:
    """Return the failure class of a failed round, as its span tells it."""
    error = ending.error
    if error is not None:
        if is_cancellation(error):
            return None
        if isinstance(error, ProviderError):
            return error.failure_class
    facts = ending.response.error
    if facts is not None or (ending.status or 0) >= 400:
        return of_answer(ending.status, facts)
    if error is not None:
        return of_exception(error) or "unknown"
    return "connection" if ending.outcome == "failed" else "unknown"
