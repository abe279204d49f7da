"""The terms of a run: who it acts for, under which gates, and what went into its prompts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from clew import semconv
from clew._guard import guard
from clew.actors import Actor
from clew.errors import ConfigurationError
from clew.pipeline import runtime as _runtime
from clew.typing import DATA_CLASSES, Gate

BEFORE = "earlier_segment"
"""The source that stands for what went into the prompts before the run was suspended."""
_MEMBERS = ("name", "mode", "mandatory", "kinds", "check")


def checked(gates: Iterable[Gate]) -> tuple[Gate, ...]:
    """Return gates that are whole.

    Raises:
        ConfigurationError: one of them is no gate.
    """
    found = tuple(gates)
    for gate in found:
        missing = [name for name in _MEMBERS if not hasattr(gate, name)]
        if missing:
            raise ConfigurationError(
                f"a {type(gate).__qualname__} is given as a gate and has no {', '.join(missing)}"
            )
    return found


class Terms:
    """What the gates may know about a run, and the gates that it adds.

    A nested agent has the terms of the outer one where it has none of its own; its gates come on
    top, so that nothing is dropped by nesting.
    """

    __slots__ = ("_actor", "_sources", "capture", "gates", "options", "outer")

    def __init__(
        self,
        *,
        actor: Actor | None = None,
        gates: tuple[Gate, ...] = (),
        options: Mapping[str, Any] | None = None,
        capture: int | None = None,
    ) -> None:
        self._actor = actor
        self.capture = capture
        """The capture level that is asked for; None: none is."""
        self._sources: dict[str, str] = {}
        self.gates = checked(gates)
        self.options = options or {}
        self.outer: Terms | None = None

    def copy(self) -> Terms:
        """Return the same terms for another run."""
        return Terms(
            actor=self._actor, gates=self.gates, options=self.options, capture=self.capture
        )

    def _chain(self) -> Iterator[Terms]:
        terms: Terms | None = self
        while terms is not None:
            yield terms
            terms = terms.outer

    @property
    def actor(self) -> Actor | None:
        """Who the run acts for; None when nobody said."""
        return next((terms._actor for terms in self._chain() if terms._actor is not None), None)

    def option(self, key: str) -> Any:
        """Return what was said about the run under an attribute's name."""
        found = (terms.options.get(key) for terms in self._chain())
        return next((value for value in found if value is not None), None)

    def added(self) -> list[Gate]:
        """Return the gates that this run and those around it add."""
        return [gate for terms in self._chain() for gate in terms.gates]

    def uses(self, source: str, data_class: str) -> None:
        """Note that a source of this class goes into the prompts.

        Raises:
            ConfigurationError: there is no such class.
        """
        if data_class not in DATA_CLASSES:
            known = ", ".join(DATA_CLASSES)
            raise ConfigurationError(f"data class {data_class!r} is unknown; give one of: {known}")
        for terms in self._chain():
            terms._sources[source] = data_class

    def strictest(self) -> tuple[str | None, str | None]:
        """Return the source of the strictest class that went into the prompts, and that class."""
        found: tuple[str | None, str | None] = (None, None)
        level = -1
        for terms in self._chain():
            for source, data_class in list(terms._sources.items()):
                if DATA_CLASSES.index(data_class) > level:
                    found, level = (source, data_class), DATA_CLASSES.index(data_class)
        return found


def identify(actor: Actor | str | None, options: dict[str, Any]) -> Actor | None:
    """Return the actor, and put the keyed digest of its id among the attributes of a run."""
    known = Actor.of(actor)
    runtime = _runtime.get()
    if known is not None and known.id and runtime is not None:
        with guard("make the digest of an actor"):
            digests = runtime.digests.get()
            options[semconv.ACTOR] = digests.of(known.id)
            options[semconv.DIGEST_KEY_ID] = digests.key_id
    return known
