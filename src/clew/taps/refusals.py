"""What gates have said, found again in the errors that frameworks make of it."""

from __future__ import annotations

from clew.errors import ClewError
from clew.governance.passages import Refusal

_DEEP = 8


def refusal_in(error: BaseException | None) -> ClewError | None:
    """Return what a gate has said, if it is what led to an error."""
    cause = error
    for _ in range(_DEEP):
        if cause is None or isinstance(cause, ClewError):
            return cause
        if isinstance(cause, Refusal):
            return cause.error
        cause = cause.__cause__ or cause.__context__
    return None
