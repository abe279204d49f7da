"""The run trace: an opt-in recorder of what a run of the loop did, step by step.

    trace = Trace(on_step=lambda step: print(step.kind, step.round))
    loop.run("Where is parcel P-17?", trace=trace)

Without one nothing is recorded, and nothing that the loop sends or returns is different. A trace
holds content, whatever the capture level is: it stays in this process, and Clew exports nothing of
it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Final, Literal

import msgspec
from msgspec import Struct

from clew._guard import guard
from clew.errors import ClewError

StepKind = Literal["assembled", "dropped", "context", "request", "llm", "tool", "approval", "input"]

STEP_KINDS: Final = (
    "assembled",
    "dropped",
    "context",
    "request",
    "llm",
    "tool",
    "approval",
    "input",
)
"""`assembled` is the list of a dry run (round 0); `dropped` says once, before round 1, which
sources of the prompt were left out; `context` is the window fit of the request that follows;
`request` is recorded before the model is asked and `llm` when it has answered; `approval` and
`input` say what a person did while the run waited."""


class StepNotSavedError(ClewError):
    """The step of a tool that writes, or of an approval that releases one, could not be saved."""


class Step(Struct, frozen=True, kw_only=True, rename="camel"):
    """One step. What is None does not apply."""

    kind: StepKind
    round: int
    duration_ms: float = 0.0
    """Of the provider call or the tool call, by a monotonic clock, with two decimals."""
    messages_sent: tuple[dict[str, Any], ...] | None = None
    """The outgoing messages as they leave, after gates and window fit, in the shapes of the GenAI
    conventions, system prompts among them."""
    tool_specs: tuple[str, ...] | None = None
    """Names of the tools offered."""
    content: str | None = None
    thinking: str | None = None
    finish_reason: str | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    total_tokens: int | None = None
    estimated_cost: float | None = None
    """US dollars by the price list; None where there is no price, or the prices are not loaded."""
    requested_tool_calls: tuple[dict[str, Any], ...] | None = None
    """Id, name and arguments of each tool call that the model asked for."""
    raw: dict[str, Any] | None = None
    """The provider's decoded answer, where raw capture was permitted."""
    dropped_sources: tuple[str, ...] | None = None
    """Such as `snippet#tone gone`."""
    tool_name: str | None = None
    tool_arguments: dict[str, Any] | str | None = None
    """The arguments; the text, where the model wrote no JSON object."""
    tool_result: str | None = None
    tool_is_error: bool | None = None
    tool_artifacts: tuple[Any, ...] | None = None
    """What the tool gave for this trace alone: the provider never sees it."""
    context_budget: dict[str, Any] | None = None
    error_type: str | None = None
    """Class of the exception that a provider call ended with."""
    provider: str | None = None
    """The adapter that answered."""
    model: str | None = None
    """The model that answered, as the provider says."""
    hop: int | None = None
    """Place of that provider in its chain, where there is one and it is not the first."""
    approved: bool | None = None
    decided_by: str | None = None
    submitted_by: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return the step as JSON has it: names in camel case, nothing that is None."""
        return {key: value for key, value in msgspec.to_builtins(self).items() if value is not None}


def milliseconds(seconds: float) -> float:
    """Return a duration as steps have it."""
    return round(seconds * 1000, 2)


class Trace:
    """Records the steps of a run. Give each run one of its own; a resumed run may go on with it.

    Args:
        on_step: called with each step the moment it is recorded, in order, on the thread that
            recorded it. What it raises is swallowed.
        on_text: called with the round and each piece of text of a streamed answer, as it comes.
            What it raises is swallowed, too.
        save: called after `on_step`, to keep the step elsewhere. What it raises is swallowed too,
            except for the step of a tool that writes or an approval that releases one: then the
            run ends with `StepNotSavedError`.
    """

    def __init__(
        self,
        on_step: Callable[[Step], object] | None = None,
        *,
        on_text: Callable[[int, str], object] | None = None,
        save: Callable[[Step], object] | None = None,
    ) -> None:
        self._on_step = on_step
        self._on_text = on_text
        self._save = save
        self._steps: list[Step] = []
        self._lock = threading.RLock()

    @property
    def steps(self) -> tuple[Step, ...]:
        """The steps until now."""
        return tuple(self._steps)

    def as_list(self) -> list[dict[str, Any]]:
        """Return the steps as JSON has them."""
        return [step.as_dict() for step in self.steps]

    def hear(self, number: int, text: str) -> None:
        """Pass on a piece of a streamed answer; it is no step."""
        if self._on_text is not None:
            with guard("tell a listener of a piece of text"):
                self._on_text(number, text)

    def record(self, step: Step, *, must_save: bool = False) -> None:
        """Record a step.

        Args:
            step: the step.
            must_save: whether the run may not go on when it cannot be saved.

        Raises:
            StepNotSavedError: it could not, and must be.
        """
        with self._lock:
            self._steps.append(step)
            if self._on_step is not None:
                with guard("tell a listener of a step"):
                    self._on_step(step)
            if self._save is None:
                return
            if not must_save:
                with guard("save a step"):
                    self._save(step)
                return
            try:
                self._save(step)
            except Exception as error:
                raise StepNotSavedError(
                    f"a step of kind {step.kind!r} could not be saved: {type(error).__name__}"
                ) from None
