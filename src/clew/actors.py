"""Who acts: a person, a service, or nobody that is known; and who may do what.

`may` is the one place where rights are checked.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping
from typing import Any, Final, Literal, Self, cast

from msgspec import Struct

ActorKind = Literal["human", "service", "anonymous"]

SCOPES: Final = frozenset(
    {
        "agent:approve",
        "agent:cancel",
        "agent:read",
        "capture:raise",
        "capture:read",
        "configuration:use",
        "conversation:access",
        "ingest",
    }
)
"""The scopes that a service account may declare; none means that it may do nothing."""

GRANTS: Final[Mapping[str, str]] = {
    "agent_approve": "agent:approve",
    "agent_read": "agent:read",
    "capture_read": "capture:read",
}
"""Rights that people are given, each with the action that it covers."""


class Actor(Struct, frozen=True, kw_only=True):
    """Who a run acts for, or who decides about one.

    The id stays in the process and in the local store of approvals; it leaves as a keyed digest.
    """

    id: str
    kind: ActorKind = "human"
    admin: bool = False
    scopes: frozenset[str] = frozenset()
    """Of a service account: exactly what it may do."""
    grants: frozenset[str] = frozenset()
    """Of a person: rights beyond those over what is their own."""

    def __repr__(self) -> str:
        return f"Actor(kind={self.kind!r}, admin={self.admin})"

    @classmethod
    def of(cls, given: Any) -> Actor | None:
        """Return an actor for what was given: a plain id is a person without any grant.

        What is neither a text nor a number nor a uuid is the id of nobody: it is not asked what
        it is, for that may fail, take long, or say too much.
        """
        if given is None or isinstance(given, Actor):
            return given
        if isinstance(given, str):
            return cls(id=str.__str__(given))
        if isinstance(given, int):
            return cls(id=int.__repr__(given))
        return cls(id=str(given)) if type(given) is uuid.UUID else ANONYMOUS

    @classmethod
    def rehydrated(cls, stored: Mapping[str, Any]) -> Self:
        """Read an actor that was stored, with the least rights that the data supports.

        `admin` is never read back, a kind that is not known is anonymous, and scopes and grants
        that are not known are dropped.
        """
        kind = stored.get("kind")
        identity = stored.get("id")
        known = kind in ("human", "service") and isinstance(identity, str) and bool(identity)
        return cls(
            id=cast("str", identity) if known else "",
            kind=cast("ActorKind", kind) if known else "anonymous",
            scopes=_known(stored.get("scopes"), SCOPES) if kind == "service" else frozenset(),
            grants=_known(stored.get("grants"), GRANTS) if kind == "human" else frozenset(),
        )


ANONYMOUS: Final = Actor(id="", kind="anonymous")


def _known(given: Any, names: Collection[str]) -> frozenset[str]:
    if not isinstance(given, (list, tuple, set, frozenset)):
        return frozenset()
    listed = cast("Collection[Any]", given)
    return frozenset(name for name in listed if isinstance(name, str) and name in names)


def may(actor: Actor | None, action: str, *, owner: str | None = None) -> bool:
    """Tell whether an actor may do something to a run.

    An administrator may. A service account may if it declares exactly that scope. A person may if
    a grant covers the action, or if the run is their own. Nobody, and an id of no one (empty, or
    `0`), may nothing and owns nothing.

    Args:
        actor: who wants to.
        action: such as `agent:approve` or `agent:read` (see `SCOPES`).
        owner: id of the actor that the run acts for.
    """
    if actor is None or actor.kind == "anonymous" or actor.id in ("", "0"):
        return False
    if actor.admin:
        return True
    if actor.kind == "service":
        return action in actor.scopes
    if any(GRANTS.get(grant) == action for grant in actor.grants):
        return True
    return owner == actor.id
