"""The window fit: what is sent stays within what the model can take.

    budget = context length - reserved output - safety margin

The context length is the model's in the price data, or what the configuration says; of a chain of
providers the smallest. Tokens are estimated by size, times a calibration that only grows: it begins
at 1.15, and what a provider reports about a round of this run corrects it. Every run has its own.

Where the estimate exceeds the budget, the oldest whole turns are left out of what is sent: never
the head (system prompts and the first message of the user) and never the newest. What does not fit
even so is not sent at all.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import Struct

from clew import semconv
from clew.providers.base import Image, Message, ToolSpec

UNKNOWN_CONTEXT: Final = 8192
"""The context length of a model that nobody knows."""
SEED: Final = 1.15
"""The calibration that a run begins with."""

_PROSE: Final = 3.5
_DENSE: Final = 2.5
_PER_MESSAGE: Final = 8
_PER_CALL: Final = 12
_PER_IMAGE: Final = 1600
"""About what an image of 1.2 megapixels costs; providers scale larger ones down.
https://docs.anthropic.com/en/docs/build-with-claude/vision#evaluate-image-size"""
_LEAST_OUTPUT: Final = 1000


class Window(Struct, frozen=True, kw_only=True):
    """How the window fit is made."""

    context_length: int | None = None
    """Tokens that the model takes, input and output together; None: that of the price data."""
    reserved_output: int | None = None
    """Tokens kept free for the answer where the request sets no maximum; None: what the provider's
    adapter asks for, else two percent, at least 1000."""


class Breakdown(Struct, frozen=True, kw_only=True):
    """What the window fit of one round came to, in tokens. All but the first three are estimates.

    `budget` is `context_length - reserved_output - safety_margin`; `estimated_tokens` is the sum of
    the five lines above it; `remaining` is `budget - estimated_tokens`, and may be negative.
    """

    measured: bool
    """Whether a provider has reported the input of a round of this run, so that `calibration` is
    more than a guess."""
    context_length: int
    reserved_output: int
    safety_margin: int
    budget: int
    transcript_tokens: int
    """The messages, without what is counted in the next four lines."""
    tool_schema_tokens: int
    system_prompt_tokens: int
    snippet_tokens: int
    """Snippets in the system prompt, and forced ones."""
    skill_tokens: int
    system_prompt_in_transcript: bool
    """Whether the caller brought the system prompt, so that it is counted as transcript."""
    estimated_tokens: int
    remaining: int
    calibration: float
    dropped_turns: int
    """Turns that were left out of this round's request."""

    def attributes(self) -> dict[str, Any]:
        """Return the numbers as attributes of the round."""
        values = msgspec.structs.asdict(self)
        return {semconv.CONTEXT + name: values[name] for name in semconv.CONTEXT_LINES}

    def as_dict(self) -> dict[str, Any]:
        """Return the breakdown as JSON has it, with names in camel case."""
        return {_camel(name): value for name, value in msgspec.structs.asdict(self).items()}


def _camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(part.capitalize() for part in rest)


class Parts(Struct, frozen=True, kw_only=True):
    """Which messages are more than transcript, by their place, and how large the skills are."""

    system: int | None = 0
    """Place of the configuration's system prompt; None where there is none."""
    snippets: tuple[int, ...] = ()
    """Places of forced snippets."""
    snippet_bytes: int = 0
    """Bytes of the snippets in the system prompt."""
    skill_bytes: int = 0
    """Bytes of the skills in the first message of the user."""
    own_system: bool = False
    """Whether the caller brought a system prompt."""


class Fit(NamedTuple):
    """What is sent."""

    messages: tuple[Message, ...]
    breakdown: Breakdown
    fits: bool


def budget_of(
    context_length: int | None, *, max_tokens: int | None, default_output: int | None
) -> tuple[int, int, int, int]:
    """Return context length, reserved output, safety margin and budget.

    Args:
        context_length: None where nobody knows it.
        max_tokens: what the request sets.
        default_output: what is reserved where it sets nothing; None: two percent, at least 1000.
    """
    length = UNKNOWN_CONTEXT if context_length is None else context_length
    reserved = max_tokens
    if reserved is None:
        reserved = default_output
    if reserved is None:
        reserved = max(_LEAST_OUTPUT, -(-length * 2 // 100))
    margin = -(-length * 3 // 100)
    return length, reserved, margin, length - reserved - margin


def raw_message(message: Message) -> float:
    """Return the estimate of one message in tokens, not calibrated."""
    dense = message.role == "tool"
    tokens = _PER_MESSAGE + _size(message.text) / (_DENSE if dense else _PROSE)
    if not isinstance(message.content, str):
        tokens += _PER_IMAGE * sum(isinstance(part, Image) for part in message.content)
    for call in message.tool_calls:
        tokens += _PER_CALL + (_size(call.name) + _size(call.arguments_text)) / _DENSE
    for block in message.thinking:
        tokens += _size(block.text) / _PROSE
        if block.native is not None:
            signature = block.native.get("signature") or block.native.get("data")
            tokens += _size(signature) / _DENSE if isinstance(signature, str) else 0
    return tokens


def raw_tools(tools: Sequence[ToolSpec]) -> float:
    """Return the estimate of what the offered tools take in tokens, not calibrated."""
    return sum(
        _PER_CALL
        + (_size(tool.name) + _size(tool.description) + len(msgspec.json.encode(tool.parameters)))
        / _DENSE
        for tool in tools
    )


def _size(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))


class Fitting:
    """The window fit of one run: its budget, and the calibration that it has learnt."""

    def __init__(
        self,
        window: Window,
        *,
        context_length: int | None,
        default_output: int | None = None,
        calibration: float = SEED,
        measured: bool = False,
    ) -> None:
        known = window.context_length
        self._length = context_length if known is None else known
        given = window.reserved_output
        self._default_output = default_output if given is None else given
        self.calibration = calibration
        self.measured = measured
        self._last = 0.0

    def fit(
        self,
        messages: Sequence[Message],
        tools: Sequence[ToolSpec],
        parts: Parts,
        *,
        max_tokens: int | None,
    ) -> Fit:
        """Return what is sent of a transcript, and how it was reckoned."""
        plan = budget_of(self._length, max_tokens=max_tokens, default_output=self._default_output)
        units = turns(messages)
        sizes = [raw_message(message) for message in messages]
        schema = raw_tools(tools)
        kept = list(range(len(units)))
        breakdown = self._reckon(plan, units, kept, sizes, schema, parts)
        for place, unit in enumerate(units):
            if breakdown.remaining >= 0:
                break
            if unit.droppable:
                kept.remove(place)
                breakdown = self._reckon(plan, units, kept, sizes, schema, parts)
        sent = [messages[at] for place in kept for at in units[place].places]
        self._last = schema + sum(sizes[at] for place in kept for at in units[place].places)
        return Fit(tuple(sent), breakdown, breakdown.remaining >= 0)

    def learn(self, input_tokens: int | None) -> None:
        """Take note of what a provider says that the last request took."""
        if input_tokens and self._last > 0:
            self.measured = True
            self.calibration = max(self.calibration, input_tokens / self._last)

    def _reckon(
        self,
        plan: tuple[int, int, int, int],
        units: Sequence[Turn],
        kept: Sequence[int],
        sizes: Sequence[float],
        schema: float,
        parts: Parts,
    ) -> Breakdown:
        length, reserved, margin, budget = plan
        places = [at for place in kept for at in units[place].places]
        chosen = parts.snippet_bytes / _PROSE
        system = 0.0 if parts.system is None else sizes[parts.system] - chosen
        snippets = chosen + sum(sizes[at] for at in parts.snippets)
        skills = parts.skill_bytes / _PROSE
        transcript = max(0.0, sum(sizes[at] for at in places) - system - snippets - skills)
        lines = [
            math.ceil(line * self.calibration)
            for line in (transcript, schema, system, snippets, skills)
        ]
        estimated = sum(lines)
        return Breakdown(
            measured=self.measured,
            context_length=length,
            reserved_output=reserved,
            safety_margin=margin,
            budget=budget,
            transcript_tokens=lines[0],
            tool_schema_tokens=lines[1],
            system_prompt_tokens=lines[2],
            snippet_tokens=lines[3],
            skill_tokens=lines[4],
            system_prompt_in_transcript=parts.own_system,
            estimated_tokens=estimated,
            remaining=budget - estimated,
            calibration=self.calibration,
            dropped_turns=len(units) - len(kept),
        )


class Turn(NamedTuple):
    """Messages that are sent or left out together."""

    places: tuple[int, ...]
    droppable: bool


def turns(messages: Sequence[Message]) -> list[Turn]:
    """Split a transcript into what is kept or dropped as a whole, in order.

    The head is never dropped: system prompts in front, and the first message of the user. Behind it
    a turn is a message of the user with all that follows until the next one. The newest turn falls
    into its exchanges (an answer of the model, with the results of the tools that it asked for);
    its message of the user and its newest exchange are never dropped.
    """
    head = 0
    while head < len(messages) and messages[head].role == "system":
        head += 1
    if head < len(messages) and messages[head].role == "user":
        head += 1
    found = [Turn(tuple(range(head)), droppable=False)] if head else []
    starts = [at for at in range(head, len(messages)) if messages[at].role == "user"]
    newest = starts[-1] if starts else head
    older = sorted({head, *starts} - {newest})
    for start, end in pairwise([*older, newest]):
        if start < end:
            found.append(Turn(tuple(range(start, end)), droppable=True))
    at = newest
    if starts:
        found.append(Turn((newest,), droppable=False))
        at += 1
    exchanges = [n for n in range(at, len(messages)) if messages[n].role != "tool" or n == at]
    for start, end in pairwise([*exchanges, len(messages)]):
        found.append(Turn(tuple(range(start, end)), droppable=end < len(messages)))
    return found
