"""Whose runs and records may be read: the scope that every question of a reader names."""

from __future__ import annotations

from typing import Any, Final

from msgspec import Struct


class Scope(Struct, frozen=True, kw_only=True):
    """Whose records may be read. A scope that names nobody covers nothing; see `EVERYTHING`.

    What is given narrows: `Scope(tenant="acme", agent="triage")` covers that agent of that tenant.
    """

    tenant: str | None = None
    agent: str | None = None
    actor: str | None = None
    """Keyed digest of the actor that the run acts for, as in `clew.actor`."""
    no_tenant: bool = False
    """Only what names no tenant."""
    everything: bool = False
    """Every record, of whomever."""

    def covers(self, *, tenant: str | None, agent: str | None, actor: str | None) -> bool:
        """Tell whether something of this tenant, agent and actor may be read."""
        if self.no_tenant and tenant is not None:
            return False
        named = [
            (wanted, found)
            for wanted, found in (
                (self.tenant, tenant),
                (self.agent, agent),
                (self.actor, actor),
            )
            if wanted is not None
        ]
        if not named and not self.no_tenant:
            return self.everything
        return all(wanted == found for wanted, found in named)

    def conditions(self) -> tuple[list[str], list[Any]]:
        """Return SQL conditions on the columns `tenant`, `agent` and `actor`, and their values."""
        where: list[str] = []
        values: list[Any] = []
        for column in ("tenant", "agent", "actor"):
            value = getattr(self, column)
            if value is not None:
                where.append(f"{column} = ?")
                values.append(value)
        if self.no_tenant:
            where.append("tenant IS NULL")
        if not where:
            where.append("1" if self.everything else "0")
        return where, values


EVERYTHING: Final = Scope(everything=True)
"""The scope of an administrator, and of who can read the files anyway."""
NOTHING: Final = Scope()
