"""Accounts of budgets: limits, amounts, and the books that keep them.

Words that the budget gate and every ledger share; a ledger is where what was used is kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, Protocol

from msgspec import Struct

Per = Literal["run", "actor", "configuration", "tenant", "everything"]
Period = Literal["run", "day", "month"]
_WORDS: Mapping[str, str] = {"day": "daily", "month": "monthly"}
_HAIR = 1e-9
"""US dollars: what the sum of fractions may be off."""


class Amount(Struct, frozen=True, kw_only=True):
    """Requests, tokens and US dollars."""

    requests: int = 0
    tokens: int = 0
    cost_usd: float = 0.0

    def plus(self, other: Amount) -> Amount:
        """Return the sum."""
        return Amount(
            requests=self.requests + other.requests,
            tokens=self.tokens + other.tokens,
            cost_usd=self.cost_usd + other.cost_usd,
        )

    def minus(self, other: Amount) -> Amount:
        """Return the difference."""
        return Amount(
            requests=self.requests - other.requests,
            tokens=self.tokens - other.tokens,
            cost_usd=self.cost_usd - other.cost_usd,
        )


class Limit(Struct, frozen=True, kw_only=True):
    """How much may be used, by whom, in which time; what is None has no limit."""

    per: Per = "run"
    period: Period = "run"
    requests: int | None = None
    tokens: int | None = None
    """Input and output tokens together."""
    cost_usd: float | None = None

    def reason(self, what: str) -> str:
        """Return the reason code of a denial by this limit, such as `actor_daily_tokens`."""
        word = _WORDS.get(self.period)
        return f"{self.per}_{what}" if word is None else f"{self.per}_{word}_{what}"

    def exceeded(self, booked: Amount, planned: Amount) -> str | None:
        """Return the reason code where what is booked and planned together is too much."""
        after = booked.plus(planned)
        if self.requests is not None and after.requests > self.requests:
            return self.reason("requests")
        if self.tokens is not None and after.tokens > self.tokens:
            return self.reason("tokens")
        if self.cost_usd is not None and after.cost_usd > self.cost_usd + _HAIR:
            return self.reason("cost")
        return None


class Entry(Struct, frozen=True, kw_only=True):
    """One account that a call is booked on, and a limit of it."""

    key: str
    limit: Limit
    opening: Amount = Amount()
    """What a new account begins with: a run that was resumed here has used something before."""


class Ledger(Protocol):
    """The books of a budget. Each method is one step that nothing can come between.

    A ledger whose methods wait for something (a file, a server) has `waits = True`: then
    asynchronous code asks it in a thread.
    """

    def reserve(self, ticket: str, entries: Sequence[Entry], planned: Amount) -> str | None:
        """Book `planned` on all accounts, or on none: then return the reason code.

        Several entries may name one account; it is booked on once.
        """
        ...

    def correct(self, ticket: str, entries: Sequence[Entry], planned: Amount, used: Amount) -> None:
        """Replace what was reserved with this ticket by what was used."""
        ...

    def used(self, key: str) -> Amount:
        """Return what an account has used, reservations included."""
        ...
