"""The state of a run that waits: what another process needs to go on with it.

It holds the conversation, so it is content: keep it where the conversation may be kept.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

import msgspec
from msgspec import Struct, field

from clew.errors import ClewError
from clew.loop.tools import declared, problems
from clew.loop.window import SEED, Parts
from clew.pipeline.totals import Totals
from clew.providers.base import Message, ToolRequest

VERSION: Final = "clew-loop1"

Waiting = Literal["approval", "input"]


class StateError(ClewError):
    """A state cannot be read, or what was submitted does not belong to it.

    Attributes:
        reason: `unreadable`, `other_configuration`, `digest_mismatch`, `not_waiting_for_input` or
            `invalid_input`.
        problems: of invalid input, what is wrong, without the values.
    """

    def __init__(self, reason: str, problems: Sequence[str] = ()) -> None:
        more = f": {'; '.join(problems)}" if problems else ""
        super().__init__(f"the run cannot be resumed with this ({reason}){more}")
        self.reason = reason
        self.problems = tuple(problems)


class State(Struct, frozen=True, kw_only=True):
    """What a run has come to."""

    version: str = VERSION
    configuration: str
    reference: str
    """What `clew.resume` continues the run with."""
    waiting: Waiting
    digest: str
    """Of the calls that wait, their tools and the schemas for input."""
    messages: tuple[Message, ...]
    """The whole transcript; its last message asks for the tools that wait, where tools do."""
    inputs: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    """What persons have given already, by the place of the call."""
    parts: Parts = Parts()
    rounds: int = 0
    totals: Totals = field(default_factory=Totals)
    calibration: float = SEED
    measured: bool = False
    sources: tuple[tuple[str, str], ...] = ()
    text: str = ""
    options: dict[str, Any] = field(default_factory=dict[str, Any])
    """Options of the requests, the directive for raw capture among them."""

    def encode(self) -> bytes:
        """Return the state as JSON."""
        return msgspec.json.encode(self)

    @classmethod
    def decode(cls, data: bytes | str) -> State:
        """Read a state.

        Raises:
            StateError: it is none, or of another version.
        """
        try:
            state = msgspec.json.decode(data, type=cls)
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise StateError("unreadable") from None
        if state.version != VERSION or not state.messages:
            raise StateError("unreadable")
        return state

    def accept(
        self,
        schemas: Mapping[str, Any],
        inputs: Mapping[str, Mapping[str, Any]] | None,
        digest: str | None,
    ) -> dict[str, dict[str, Any]]:
        """Check what a person has given against every call that waits for it.

        Args:
            schemas: the schema for input, by tool, as it is now.
            inputs: what was given, by the call's id, or `#` and its place.
            digest: of what that person has seen.

        Returns:
            What the schemas declare of it, by the place of the call.

        Raises:
            StateError: it does not belong to this state, or does not fit.
        """
        if self.waiting != "input":
            if inputs:
                raise StateError("not_waiting_for_input")
            return {}
        if digest is None or digest != digest_of(self.calls, schemas):
            raise StateError("digest_mismatch")
        given = dict(inputs or {})
        found: list[str] = []
        checked: dict[str, dict[str, Any]] = {}
        for place, call in enumerate(self.calls):
            schema = schemas.get(call.name)
            if schema is None or str(place) in self.inputs:
                continue
            key = call.id or f"#{place}"
            if key not in given:
                found.append(f"{key} is missing")
                continue
            values = given.pop(key)
            found += problems(values, schema, key)
            checked[str(place)] = declared(values, schema)
        found += [f"{key} is none of the calls that wait" for key in given]
        if found:
            raise StateError("invalid_input", found)
        return checked

    @property
    def calls(self) -> tuple[ToolRequest, ...]:
        """The calls of the turn that waits; none where a model call does."""
        return self.messages[-1].tool_calls


def digest_of(calls: Sequence[ToolRequest], schemas: Mapping[str, Any]) -> str:
    """Return what tells these calls, of these tools, from others.

    Args:
        calls: the calls of a turn.
        schemas: the schema for a person's input, by tool.
    """
    said = [(call.id, call.name, call.arguments_text, schemas.get(call.name)) for call in calls]
    return hashlib.sha256(msgspec.json.encode(said, order="sorted")).hexdigest()
