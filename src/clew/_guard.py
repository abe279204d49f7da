"""The one place that keeps a fault of ours away from the host.

`guard(kind)` is a context manager and `guarded(kind)` a decorator. Both swallow `Exception`,
count it, and log it once per kind. `BaseException` (cancellation, interrupt, exit) always passes:
code that must run on cancellation belongs in a `finally`, not here.
"""

from __future__ import annotations

import functools
import logging
import sys
import threading
from collections import Counter
from types import TracebackType
from typing import TYPE_CHECKING, ParamSpec, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

P = ParamSpec("P")
T = TypeVar("T")

logger = logging.getLogger("clew")

failures: Counter[str] = Counter()
"""How often each kind of internal fault was swallowed in this process."""

_logged: set[str] = set()
_lock = threading.Lock()


def record_failure(kind: str, effect: str = "The application is not affected") -> None:
    """Count the exception being handled under `kind` and log it the first time.

    Only type names and code positions are logged: an exception's text may quote a prompt.
    """
    error = sys.exc_info()[1]
    failures[kind] += 1
    if kind in _logged:
        return
    with _lock:
        if kind in _logged:
            return
        _logged.add(kind)
    try:
        logger.warning(
            "Clew could not %s: %s at %s. %s; further faults of this kind are counted, not logged.",
            kind,
            type(error).__name__,
            _position(error),
            effect,
        )
    except Exception:  # a broken logging handler is not the host's problem either
        failures["log"] += 1


def warn_once(kind: str, message: str, *args: object) -> None:
    """Log `message` as a warning, once in this process for each `kind`."""
    with _lock:
        if kind in _logged:
            return
        _logged.add(kind)
    logger.warning(message, *args)


def forget() -> None:
    """Forget what was counted and logged (for tests, and in a forked child)."""
    failures.clear()
    _logged.clear()


def _position(error: BaseException | None) -> str:
    trace = error.__traceback__ if error is not None else None
    place = "unknown place"
    while trace is not None:
        code = trace.tb_frame.f_code
        place = f"{code.co_filename.rsplit('/', 1)[-1]}:{trace.tb_lineno}"
        trace = trace.tb_next
    return place


class guard:  # noqa: N801 - reads as a statement: `with guard("read the request"):`
    """Swallow, count and log once any `Exception` raised inside the block."""

    __slots__ = ("kind",)

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def __enter__(self) -> None:
        return None

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        if exc is None or not isinstance(exc, Exception):
            return False
        record_failure(self.kind)
        return True


def guarded(kind: str) -> Callable[[Callable[P, T]], Callable[P, T | None]]:
    """Make a function return None instead of raising; for plain (not async) functions."""

    def decorate(function: Callable[P, T]) -> Callable[P, T | None]:
        @functools.wraps(function)
        def wrapper(*args: P.args, **kwargs: P.kwargs) -> T | None:
            try:
                return function(*args, **kwargs)
            except Exception:
                record_failure(kind)
                return None

        return wrapper

    return decorate
