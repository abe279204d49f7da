"""The rate gate: so many model calls in so many seconds, with bursts, from a token bucket."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import ClassVar, Literal

from clew.errors import ConfigurationError
from clew.gates.base import BaseGate, allow, deny
from clew.typing import GateMode, Proposal, Verdict

RatePer = Literal["everything", "actor", "tenant", "provider", "model"]
_BUCKETS_KEPT = 10_000


class RateGate(BaseGate):
    """Denies model calls that come too fast, with the reason `rate_exceeded`.

    A bucket holds `burst` tokens and gains `rate` a second; a call takes one. A call that another
    gate denies gives its token back.

    Args:
        rate: calls a second, on average.
        burst: calls at once.
        per: who has a bucket of their own.
        clock: returns a monotonic time in seconds.
        mode: see `BaseGate`.
        mandatory: see `BaseGate`.
        name: see `BaseGate`.
        policy_version: see `BaseGate`.
    """

    default_name: ClassVar[str] = "rate"
    kinds = frozenset({"model_call"})
    rank: ClassVar[int] = 40

    def __init__(
        self,
        rate: float,
        *,
        burst: int = 1,
        per: RatePer = "everything",
        clock: Callable[[], float] = time.monotonic,
        mode: GateMode = "enforce",
        mandatory: bool = False,
        name: str | None = None,
        policy_version: str | None = None,
    ) -> None:
        super().__init__(name=name, mode=mode, mandatory=mandatory, policy_version=policy_version)
        if rate <= 0 or burst < 1:
            raise ConfigurationError(
                f"rate is {rate!r} and burst {burst!r}; give a rate above 0 and a burst from 1"
            )
        self._rate = rate
        self._burst = burst
        self._per = per
        self._clock = clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()
        """Tokens, and when they were counted."""
        self._lock = threading.Lock()

    def check(self, proposal: Proposal) -> Verdict | None:
        """Take a token, or deny."""
        key = self._key(proposal)
        now = self._clock()
        with self._lock:
            tokens, counted = self._buckets.pop(key, (float(self._burst), now))
            tokens = min(self._burst, tokens + (now - counted) * self._rate)
            taken = tokens >= 1
            self._buckets[key] = (tokens - 1 if taken else tokens, now)
            if len(self._buckets) > _BUCKETS_KEPT:
                self._buckets.popitem(last=False)
        return allow("within_rate") if taken else deny("rate_exceeded")

    def release(self, proposal: Proposal) -> None:
        """Give the token back."""
        with self._lock:
            key = self._key(proposal)
            if key in self._buckets:
                tokens, counted = self._buckets[key]
                self._buckets[key] = (min(self._burst, tokens + 1), counted)

    def _key(self, proposal: Proposal) -> str:
        if self._per == "actor":
            return proposal.actor.id if proposal.actor is not None else ""
        if self._per == "everything":
            return ""
        found = {
            "tenant": proposal.tenant,
            "provider": proposal.provider,
            "model": proposal.model,
        }
        return found[self._per] or ""
