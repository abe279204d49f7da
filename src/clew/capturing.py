"""`clew.capture`: another capture level for a block, and who may raise one.

A level can be lowered by everybody. Above the level of the settings it is a raise: that needs the
settings' own switch (`capture_max`) and an actor with the right `capture:raise`, and it is itself
recorded as a decision of the gate `capture`, whether it is granted or not.
"""

from __future__ import annotations

from typing import NamedTuple, Self

from opentelemetry.context import Context

from clew import context, levels
from clew._guard import guard
from clew.actors import Actor, may
from clew.decisions import Decision
from clew.levels import LevelName
from clew.pipeline import runtime as _runtime
from clew.pipeline.runtime import Runtime

GATE = "capture"
RIGHT = "capture:raise"


class Ask(NamedTuple):
    """What was asked for, and what of it is granted."""

    level: int
    granted: int
    refusal: str | None
    """Why a raise is not granted: a code."""

    def is_raise(self, runtime: Runtime) -> bool:
        """Tell whether more is asked for than the settings give."""
        return self.level > runtime.capture_level


def ask(runtime: Runtime, level: int, actor: Actor | None) -> Ask:
    """Decide how much of a level is granted; from now on levels are looked at in this process."""
    runtime.capturing = True
    if level <= runtime.capture_level:
        return Ask(level, level, None)
    if level > runtime.capture_max:
        return Ask(level, runtime.capture_level, "above_maximum")
    if not may(actor, RIGHT):
        return Ask(level, runtime.capture_level, "actor_not_permitted")
    return Ask(level, level, None)


def around(runtime: Runtime, level: int | None, actor: Actor | None) -> tuple[Ask | None, Context]:
    """Return what is granted of a level that is asked for here, and a context in which it holds."""
    here = context.current()
    if level is None:
        return None, here
    asked = ask(runtime, level, actor)
    return asked, context.with_level(asked.granted, here)


def record(runtime: Runtime, asked: Ask, actor: Actor | None, within: Context) -> None:
    """Record a raise as a decision, under the node of a context; lowering is none."""
    if not asked.is_raise(runtime):
        return
    token = context.attach(within)
    try:
        _decide(asked, actor)
    finally:
        context.detach(token)


def _decide(asked: Ask, actor: Actor | None) -> None:
    with guard("record a raise of the capture level"):
        refused = asked.refusal is not None
        decision = Decision(
            GATE,
            "deny" if refused else "allow",
            {
                "reason": asked.refusal or "raised",
                "policy": "capture_max",
                "policy_version": None,
                "subject": levels.name_of(asked.level),
                "enforced": True,
                "executed": not refused,
                "by": "policy",
                "trust_zone": None,
                "data_class": None,
            },
        )
        if actor is not None and actor.id:
            decision.actor = actor.id
        decision.begin()
        decision.settle()


def _actor_here() -> Actor | None:
    node = context.current_node()
    return node.agent.run.terms.actor if node is not None and node.agent is not None else None


class Capture(context.Block):
    """A capture level for a block: a context manager, sync and async."""

    __slots__ = ("_actor", "_level", "_token")

    def __init__(self, level: int, actor: Actor | None) -> None:
        self._level = level
        self._actor = actor
        self._token: context.Token | None = None

    def __enter__(self) -> Self:
        runtime = _runtime.get()
        if runtime is not None:
            with guard("set a capture level"):
                actor = self._actor or _actor_here()
                asked, inner = around(runtime, self._level, actor)
                self._token = context.attach(inner)
                if asked is not None:
                    record(runtime, asked, actor, inner)
        return self


def capture(level: LevelName, *, actor: Actor | str | None = None) -> Capture:
    """Return a capture level for a block: `with clew.capture("none"): ...`.

    The strictest of all levels that apply wins: of runs and blocks around this one, and of the
    settings, unless these permit a raise.

    Args:
        level: `none`, `metadata`, `redacted` or `full`.
        actor: who asks for it, by default the current run's; a raise above the settings' level
            needs one who may `capture:raise` (see `clew.actors`).

    Raises:
        ConfigurationError: there is no such level.
    """
    return Capture(levels.number_of(level), Actor.of(actor))
