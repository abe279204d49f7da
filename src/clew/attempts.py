"""The attempts of one SDK call, which are one round: however often a request was sent again."""

from __future__ import annotations

import contextvars
import time
from typing import Any

import msgspec

from clew._guard import record_failure
from clew.endings import Ending, failure_of
from clew.rounds import Hops, Round
from clew.spans import is_cancellation

_call: contextvars.ContextVar[LogicalCall | None] = contextvars.ContextVar(
    "clew_logical_call", default=None
)


class LogicalCall:
    """One call of an SDK method that may send several requests: its attempts are one round."""

    __slots__ = (
        "_failed_at",
        "_token",
        "counted",
        "done",
        "failure",
        "hops",
        "owner",
        "passage",
        "round",
        "unread",
    )

    def __init__(self, owner: Any = None, *, hops: Hops | None = None) -> None:
        """Make the call current.

        Args:
            owner: the SDK object whose method was called.
            hops: given by an adapter of our own: then no answer ends the round before `finish`,
                for only the adapter can tell whether it was one.
        """
        self.hops = hops
        self.owner = owner
        """The SDK object whose method was called."""
        self.round: Round | None = None
        self.failure: Ending | None = None
        self.unread = False
        """True while an answer that is an error has come and its body has not been read."""
        self.counted = False
        """True once a round was counted for it that nobody reads."""
        self.done = False
        self.passage: Any = None
        """How the request has passed the gates, where there are any; attempts pass likewise."""
        self._failed_at = 0
        self._token = _call.set(self)

    def attempt_failed(self, ending: Ending) -> None:
        """Remember how an attempt failed; another may follow."""
        self.failure = ending
        if self.round is not None and self.round.content is not None:
            self.round.content.failed(ending.status, failure_of(ending))
        self._failed_at = time.perf_counter_ns()

    def may_try_again(self) -> bool:
        """Tell whether the last attempt failed, so that the next request is another one."""
        return self.failure is not None or self.unread

    def next_attempt(self) -> Round | None:
        """Return the round that another attempt belongs to, if the last one failed."""
        if self.round is None or not self.may_try_again():
            return None
        if self.failure is not None:
            self.round.wait_ns += time.perf_counter_ns() - self._failed_at
            self.round.failed_as = failure_of(self.failure)
        self.failure = None
        self.unread = False
        return self.round

    def finish(self, error: BaseException | None) -> None:
        """End the call: a failed last attempt is how the round ended."""
        self.done = True
        try:
            try:
                _call.reset(self._token)
            except ValueError:
                _call.set(None)
            if self.failure is not None and self.round is not None:
                last = self.failure
                if error is not None and is_cancellation(error):
                    last = Ending(status=last.status, error=error)
                elif error is not None and self.hops is not None and last.error is None:
                    last = msgspec.structs.replace(last, error=error)
                self.round.finish(last)
        except Exception:
            record_failure("finish a logical call")


def is_sent_again(owner: Any) -> bool:
    """Tell whether an SDK object whose method makes a call calls it anew, to try again."""
    call = _call.get()
    if call is None or call.done or call.owner is not owner:
        return False
    return call.counted or call.may_try_again()


def current_call() -> LogicalCall | None:
    """Return the logical call that is being made here; one that has returned is none."""
    call = _call.get()
    return None if call is None or call.done else call
