"""Who asks, and what they may read: every page asks here, and nowhere else.

`AccessControl` (`clew.web.gate`) finds out who sends a request before any page is asked. A page
then uses:

- `scope_of(request)`: whose runs and rows of records may be read; every question of a reader takes
  it. For an address with `{run}` in it `Views` has already checked that run.
- `open_content(request, row, what)`: before captured content is shown. It checks `capture:read`,
  writes the log of accesses, and raises when the content may not be shown.
- `may_read_content(request, row)`: the same question without reading, for links.
- `require(request, right)`: for what is not about one run, such as settings.

What may not be read does not exist: the same answer as for an unknown id.
"""

from __future__ import annotations

import getpass
from collections.abc import Callable
from typing import Any, Final, Protocol

from msgspec import Struct
from starlette.datastructures import Headers
from starlette.requests import Request

from clew.actors import GRANTS, SCOPES, Actor, may
from clew.errors import ClewError
from clew.store.access import AccessLog
from clew.store.prompt_records import PromptRow
from clew.store.scopes import EVERYTHING, NOTHING, Scope

READ: Final = "agent:read"
APPROVE: Final = "agent:approve"
CONTENT: Final = "capture:read"
INGEST: Final = "ingest"
ANY_TENANT: Final = "*"
_STATE: Final = "clew_visit"
_GRANT_OF: Final = {right: grant for grant, right in GRANTS.items()}


class UnreadableError(ClewError, LookupError):
    """What was asked for may not be read, or is not there: nobody is told which."""


class ForbiddenError(ClewError, PermissionError):
    """The reader is known and lacks a right."""


class Principal(Struct, frozen=True, kw_only=True):
    """Who sends a request, as an authenticator found out."""

    actor: Actor
    tenant: str | None = None
    """Whose runs there are for them: those of this tenant, all with `*`, and with None those that
    name no tenant (for an administrator: all)."""
    expires: float | None = None
    """When this ends, in seconds since 1970."""


class Authenticator(Protocol):
    """Tells who sends a request. Any object with these two methods will do."""

    def of_headers(self, headers: Headers) -> Principal | None:
        """Return who these headers prove, None for nobody."""
        ...

    def of_token(self, token: str) -> Principal | None:
        """Return who a token that was typed into the sign-in form proves, None for nobody."""
        ...


def local() -> Principal:
    """Return who asks where no authenticator is needed: whoever is on this machine."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = "unknown"
    return Principal(actor=Actor(id=f"local:{user}", admin=True), tenant=ANY_TENANT)


def principal(
    identity: str,
    *,
    kind: str = "human",
    rights: frozenset[str] = frozenset(),
    admin: bool = False,
    tenant: str | None = None,
    expires: float | None = None,
) -> Principal:
    """Return who an authenticator has found; rights that are not known are dropped.

    A service has its rights as scopes, a person as grants beside what is their own. A person
    cannot send telemetry: `ingest` is for services.
    """
    if kind == "service":
        actor = Actor(id=identity, kind="service", admin=admin, scopes=rights & SCOPES)
    else:
        grants = frozenset(_GRANT_OF[right] for right in rights if right in _GRANT_OF)
        actor = Actor(id=identity, admin=admin, grants=grants)
    return Principal(actor=actor, tenant=tenant, expires=expires)


class Visit(Struct, frozen=True, kw_only=True):
    """One request of one reader."""

    principal: Principal
    digest_of: Callable[[str], str]
    """The keyed digest of an actor's id, as runs have it in `clew.actor`."""
    log: AccessLog | None
    """None where nothing is recorded, hence nothing is to be read."""

    def scope(self, right: str = READ) -> Scope:
        """Return what this reader has a right to."""
        actor = self.principal.actor
        if may(actor, right):
            owner = None
        elif may(actor, right, owner=actor.id):
            owner = self.digest_of(actor.id)
        else:
            return NOTHING
        tenant = self.principal.tenant
        if tenant == ANY_TENANT or (tenant is None and actor.admin):
            return EVERYTHING if owner is None else Scope(actor=owner)
        return Scope(tenant=tenant, no_tenant=tenant is None, actor=owner)

    def approver(self) -> Scope:
        """Return whose runs are listed while they wait for an approval; the right reads nothing."""
        if not may(self.principal.actor, APPROVE):
            return NOTHING
        tenant = self.principal.tenant
        if tenant == ANY_TENANT or (tenant is None and self.principal.actor.admin):
            return EVERYTHING
        return Scope(tenant=tenant, no_tenant=tenant is None)


def begin(state: dict[str, Any], visit: Visit) -> None:
    """Remember who sends a request, in its state."""
    state[_STATE] = visit


def visit_of(request: Request) -> Visit:
    """Return who asks.

    Raises:
        UnreadableError: nobody found out: then there is nothing to be read.
    """
    found = request.scope.get("state", {}).get(_STATE)
    if not isinstance(found, Visit):
        raise UnreadableError("There is nothing here.")
    return found


def scope_of(request: Request, right: str = READ) -> Scope:
    """Return whose runs and records this request may read."""
    return visit_of(request).scope(right)


def may_read_content(request: Request, row: PromptRow) -> bool:
    """Tell whether this reader may read the content of a recorded call, without reading it."""
    return visit_of(request).scope(CONTENT).covers(
        tenant=row.tenant, agent=row.agent, actor=row.actor
    )  # fmt: skip


def open_content(request: Request, row: PromptRow, what: str = "prompt") -> None:
    """Permit one reading of a recorded call's content, and write it down before it happens.

    A call that was recorded without content needs no right beyond that to see its row.

    Args:
        request: who asks.
        row: the call.
        what: `prompt`, `response`, `diff` or `export`, for the log.

    Raises:
        UnreadableError: this reader may not, with the words for a call that is not there.
        StoreError: the log cannot be written; then nothing may be shown.
    """
    if row.path is None:
        return
    visit = visit_of(request)
    if visit.log is None or not may_read_content(request, row):
        raise UnreadableError(NO_CALL)
    visit.log.write(
        visit.principal.actor.id,
        what,
        run_id=row.run_id,
        record_id=row.request_id,
        tenant=row.tenant,
    )


NO_CALL: Final = "There is no such call."


def require(request: Request, right: str) -> None:
    """Insist on a right that is not about one run, such as `capture:read` or `capture:raise`.

    Raises:
        ForbiddenError: this reader does not have it.
    """
    if not may(visit_of(request).principal.actor, right):
        raise ForbiddenError(f"This needs the right {right}.")


def require_all_tenants(request: Request, right: str) -> None:
    """Insist on a right to what belongs to no tenant, such as the settings of the installation.

    Raises:
        ForbiddenError: this reader does not have the right, or only within one tenant.
    """
    require(request, right)
    given = visit_of(request).principal
    if given.tenant not in (None, ANY_TENANT):
        raise ForbiddenError("This belongs to the installation, not to one tenant.")
