"""The budget gate: requests, tokens and cost, within a run, a day or a month.

What a call may need is reserved before it is sent, under a lock, so that calls at the same time
cannot overshoot together; when it has ended the reservation gives way to what it really used.

    BudgetGate(
        Limit(per="run", requests=20, cost_usd=0.50),
        Limit(per="actor", period="day", tokens=200_000),
    )

A day and a month are those of UTC. The books are kept in this process, unless a ledger is given:
`clew.store.ledger.SqliteLedger` is shared by several processes and survives them.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import ClassVar, Literal

from msgspec import Struct

from clew.accounts import Amount, Entry, Ledger, Limit, Per
from clew.errors import ConfigurationError
from clew.gates.base import BaseGate, allow, deny
from clew.ids import hex_64
from clew.pipeline import runtime
from clew.typing import GateMode, Proposal, Settlement, Verdict

__all__ = ["Amount", "BudgetGate", "CountAs", "Entry", "Ledger", "Limit", "MemoryLedger"]

_OUTPUT_TOKENS = 1024
_ALL_RUNS_KEPT = 100_000


class CountAs(Struct, frozen=True):
    """A call whose price is not known counts as this much."""

    usd: float


class MemoryLedger:
    """Books in the memory of this process."""

    def __init__(self) -> None:
        self._accounts: dict[str, Amount] = {}
        self._lock = threading.Lock()

    def reserve(self, ticket: str, entries: Sequence[Entry], planned: Amount) -> str | None:
        """Book `planned` on all accounts, or on none: then return the reason code."""
        del ticket
        with self._lock:
            for entry in entries:
                found = entry.limit.exceeded(self._account(entry), planned)
                if found is not None:
                    return found
            for entry in {one.key: one for one in entries}.values():
                self._accounts[entry.key] = self._account(entry).plus(planned)
            while len(self._accounts) > _ALL_RUNS_KEPT:
                del self._accounts[next(iter(self._accounts))]
        return None

    def correct(self, ticket: str, entries: Sequence[Entry], planned: Amount, used: Amount) -> None:
        """Replace what was reserved by what was used."""
        del ticket
        with self._lock:
            for key in {entry.key for entry in entries}:
                if key in self._accounts:
                    self._accounts[key] = self._accounts[key].minus(planned).plus(used)

    def used(self, key: str) -> Amount:
        """Return what an account has used, reservations included."""
        with self._lock:
            return self._accounts.get(key, Amount())

    def _account(self, entry: Entry) -> Amount:
        return self._accounts.get(entry.key, entry.opening)


class _Booked(Struct, frozen=True):
    ticket: str
    entries: list[Entry]
    planned: Amount


class BudgetGate(BaseGate):
    """Denies a model call that would exceed a limit; the reason names the first one.

    Args:
        limits: all of them hold.
        price_unknown: what becomes of a call without a price where a limit is on cost: `deny`
            (`price_unknown`), `allow` (it counts as nothing), or `CountAs(usd)`.
        output_tokens: how many output tokens are planned for a request that sets no maximum.
        clock: returns the time in seconds since the epoch.
        ledger: the books, by default in memory; several gates may share them, each under its name.
        mode: see `BaseGate`.
        mandatory: see `BaseGate`.
        name: see `BaseGate`.
        policy_version: see `BaseGate`.
    """

    default_name: ClassVar[str] = "budget"
    kinds = frozenset({"model_call"})
    rank: ClassVar[int] = 60

    def __init__(
        self,
        *limits: Limit,
        price_unknown: Literal["deny", "allow"] | CountAs = "deny",
        output_tokens: int = _OUTPUT_TOKENS,
        clock: Callable[[], float] = time.time,
        ledger: Ledger | None = None,
        mode: GateMode = "enforce",
        mandatory: bool = True,
        name: str | None = None,
        policy_version: str | None = None,
    ) -> None:
        super().__init__(name=name, mode=mode, mandatory=mandatory, policy_version=policy_version)
        for limit in limits:
            if (limit.per == "run") != (limit.period == "run"):
                raise ConfigurationError(
                    f"a limit is per {limit.per!r} and period {limit.period!r}; `run` goes with "
                    "`run`, everything else with `day` or `month`"
                )
        self._limits = limits
        self._price_unknown = price_unknown
        self._output_tokens = output_tokens
        self._clock = clock
        self.ledger: Ledger = MemoryLedger() if ledger is None else ledger
        self._booked: dict[int, _Booked] = {}

    async def acheck(self, proposal: Proposal) -> Verdict | None:
        """Decide, without holding up the event loop where the ledger may wait for others."""
        if getattr(self.ledger, "waits", False):
            return await asyncio.to_thread(self.check, proposal)
        return self.check(proposal)

    def check(self, proposal: Proposal) -> Verdict | None:
        """Reserve what the call may need, or deny it."""
        entries = self._entries(proposal)
        if not entries:
            return allow("no_limit_applies")
        output = proposal.max_output_tokens
        output = self._output_tokens if output is None else output
        planned_input = proposal.planned_input_tokens or 0
        cost = 0.0
        if any(entry.limit.cost_usd is not None for entry in entries):
            known = None
            if proposal.planned_cost is not None:
                known = proposal.planned_cost(planned_input, output)
            if known is None:
                if self._price_unknown == "deny":
                    return deny("price_unknown")
                known = self._price_unknown.usd if isinstance(self._price_unknown, CountAs) else 0.0
            cost = max(0.0, known)
        planned = Amount(requests=1, tokens=planned_input + output, cost_usd=cost)
        ticket = hex_64()
        reason = self.ledger.reserve(ticket, entries, planned)
        if reason is not None and self.mode == "enforce":
            return deny(reason)
        entries = entries if reason is None else []
        self._booked[proposal.number] = _Booked(ticket, entries, planned)
        return allow("within_budget") if reason is None else deny(reason)

    def settle(self, proposal: Proposal, settlement: Settlement) -> None:
        """Replace the reservation by what was used; where nobody tells, the reservation stays."""
        booked = self._booked.pop(proposal.number, None)
        if booked is None:
            return
        usage, planned = settlement.usage, booked.planned
        if usage is None:
            failed = settlement.failed and not settlement.cancelled
            used = Amount(requests=1) if failed else planned
        else:
            known = settlement.cost_usd
            used = Amount(
                requests=1,
                tokens=(usage.input_tokens or 0) + (usage.output_tokens or 0),
                cost_usd=planned.cost_usd if known is None else known,
            )
        self.ledger.correct(booked.ticket, booked.entries, planned, used)
        self._measure(booked.entries)

    def release(self, proposal: Proposal) -> None:
        """Give the reservation back: nothing was sent."""
        booked = self._booked.pop(proposal.number, None)
        if booked is not None:
            self.ledger.correct(booked.ticket, booked.entries, booked.planned, Amount())

    def _measure(self, entries: list[Entry]) -> None:
        """Tell the metrics how full the budgets are that everybody shares.

        The accounts of single runs, actors and tenants are too many to be metrics.
        """
        started = runtime.get()
        if started is None or started.metrics is None:
            return
        for entry in entries:
            limit = entry.limit
            if limit.per != "everything":
                continue
            used, name = self.ledger.used(entry.key), f"{self.name}.{limit.period}"
            for unit, most, amount in (
                ("usd", limit.cost_usd, used.cost_usd),
                ("tokens", limit.tokens, used.tokens),
                ("rounds", limit.requests, used.requests),
            ):
                if most is not None:
                    started.metrics.budget(name, unit, limit=most, used=amount)

    def _entries(self, proposal: Proposal) -> list[Entry]:
        now = datetime.fromtimestamp(self._clock(), UTC)
        entries: list[Entry] = []
        for limit in self._limits:
            who = _who(limit.per, proposal)
            if who is None:
                continue
            when = {"day": f"{now:%Y-%m-%d}", "month": f"{now:%Y-%m}"}.get(limit.period, "")
            opening = Amount()
            if limit.per == "run":
                spent = proposal.spent
                opening = Amount(
                    requests=spent.rounds, tokens=spent.tokens, cost_usd=spent.cost_usd
                )
            key = f"{self.name} {limit.per} {who} {when}"
            entries.append(Entry(key=key, limit=limit, opening=opening))
        return entries


def _who(per: Per, proposal: Proposal) -> str | None:
    match per:
        case "run":
            return proposal.run_id
        case "actor":
            return proposal.actor.id if proposal.actor is not None else None
        case "configuration":
            return proposal.configuration
        case "tenant":
            return proposal.tenant
        case "everything":
            return ""
