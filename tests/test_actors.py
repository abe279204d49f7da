"""Actors and their rights: one function decides, and everything unknown has the least."""

from __future__ import annotations

import pytest

from clew.actors import ANONYMOUS, Actor, may

ANN = Actor(id="ann")
ADMIN = Actor(id="root", admin=True)
APPROVER = Actor(id="bob", grants=frozenset({"agent_approve"}))
SERVICE = Actor(id="svc", kind="service", scopes=frozenset({"agent:read"}))


@pytest.mark.parametrize(
    ("actor", "action", "owner", "permitted"),
    [
        (ADMIN, "agent:cancel", "ann", True),
        (ADMIN, "anything", None, True),
        (SERVICE, "agent:read", "ann", True),
        (SERVICE, "agent:approve", "ann", False),
        (SERVICE, "agent:approve", "svc", False),
        (Actor(id="svc", kind="service"), "agent:read", "svc", False),
        (APPROVER, "agent:approve", "ann", True),
        (APPROVER, "agent:read", "ann", False),
        (ANN, "agent:read", "ann", True),
        (ANN, "agent:approve", "ann", True),
        (ANN, "agent:read", "bob", False),
        (ANN, "agent:read", None, False),
        (ANONYMOUS, "agent:read", "", False),
        (Actor(id="", admin=True), "agent:read", None, False),
        (Actor(id="0"), "agent:read", "0", False),
        (Actor(id="x", kind="anonymous", admin=True), "agent:read", "x", False),
        (None, "agent:read", None, False),
    ],
)
def test_who_may_do_what(
    actor: Actor | None, action: str, owner: str | None, permitted: bool
) -> None:
    """Administrators may; services by exact scope; people by grant or as the owner; nobody else."""
    assert may(actor, action, owner=owner) is permitted


def test_a_plain_id_is_a_person_without_grants() -> None:
    """A string is a human actor; an actor stays what it is; nothing stays nothing."""
    assert Actor.of("ann") == ANN
    assert Actor.of(APPROVER) is APPROVER
    assert Actor.of(None) is None


@pytest.mark.parametrize(
    ("stored", "actor"),
    [
        ({"id": "root", "kind": "human", "admin": True}, Actor(id="root")),
        (
            {"id": "svc", "kind": "service", "scopes": ["agent:read", "agent:everything", 7]},
            SERVICE,
        ),
        ({"id": "bob", "kind": "human", "grants": ["agent_approve", "root"]}, APPROVER),
        ({"id": "bob", "kind": "human", "grants": "agent_approve"}, Actor(id="bob")),
        ({"id": "bob", "kind": "robot", "scopes": ["agent:read"]}, ANONYMOUS),
        ({"id": 7, "kind": "human"}, ANONYMOUS),
        ({}, ANONYMOUS),
    ],
)
def test_a_stored_actor_comes_back_with_the_least_rights(
    stored: dict[str, object], actor: Actor
) -> None:
    """No administrator is read back, and what is not known is dropped."""
    assert Actor.rehydrated(stored) == actor


def test_an_id_is_not_shown() -> None:
    """What is printed of an actor names nobody."""
    assert "ann" not in repr(ANN)
