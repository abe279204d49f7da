"""What a run of the loop comes to."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct, field

from clew.loop.window import Breakdown
from clew.pipeline.totals import Totals
from clew.providers.base import Message


class InputWanted(Struct, frozen=True, kw_only=True):
    """What a person has to give before a tool can be executed."""

    place: int
    """Which of the turn's calls it is, from 0."""
    call_id: str | None
    tool: str
    schema: dict[str, Any]

    @property
    def key(self) -> str:
        """By what the input is given to `Loop.resume`: the call's id, or `#` and its place."""
        return self.call_id or f"#{self.place}"


class Waiting(Struct, frozen=True, kw_only=True):
    """What a run waits for, and what resumes it."""

    kind: Literal["approval", "input"]
    state: bytes
    """Give it to `Loop.resume`, here or in another process. It holds the conversation."""
    reference: str
    """The reference of the run, without any content."""
    digest: str
    """Of the calls that wait; has to be given back with a person's input."""
    tools: tuple[str, ...]
    """Names of the tools of the turn; none where a model call waits."""
    inputs: tuple[InputWanted, ...] = ()
    approval_id: str | None = None

    def __repr__(self) -> str:
        return f"Waiting(kind={self.kind!r}, tools={self.tools!r})"


class LoopResult(Struct, frozen=True, kw_only=True):
    """What a run of the loop came to, on every ending but an interruption.

    A run that failed, was denied or cancelled has what it had until then.
    """

    run_id: str
    status: str
    """A status of runs: `completed`, `failed`, `cancelled`, `waiting_for_approval`, ..."""
    reason: str | None
    """A termination reason of runs; None while the run waits."""
    text: str
    """The answer, or the last thing that the model had said."""
    truncated: bool
    """Whether a bound cut the run short: the rounds, or the window."""
    rounds: int
    """Rounds of the whole run, the closing one and earlier segments included."""
    totals: Totals
    """Sums over those rounds."""
    messages: tuple[Message, ...]
    """The transcript, whole."""
    dropped: tuple[str, ...] = ()
    """Sources of the prompt that were left out."""
    waiting: Waiting | None = None
    error: Exception | None = None
    """What ended the run: a `PolicyDenied`, a `ProviderError`."""

    @property
    def ok(self) -> bool:
        """Whether the run was completed."""
        return self.status == "completed"


class DryRun(Struct, frozen=True, kw_only=True):
    """What round 1 would send; nothing was."""

    run_id: str
    messages: tuple[Message, ...]
    """As they were put together, after the window fit."""
    wire: bytes | None
    """The body of the request, byte for byte, after the gates; None where it would not be sent."""
    tools: tuple[str, ...]
    """Names of the tools that would be offered."""
    breakdown: Breakdown | None
    dropped: tuple[str, ...]
    reason: str | None = None
    """Why nothing would be sent: `policy_denied`, `budget_exhausted` or `context_truncated`."""
    gate: str | None = None
    """The gate that would stop it."""
    code: str | None = None
    """That gate's reason."""
    text: str = ""
    rounds: int = 0
    truncated: bool = False
    totals: Totals = field(default_factory=Totals)
