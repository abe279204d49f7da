"""Gemini interactions: https://ai.google.dev/api/interactions-api.

Output came as `outputs` and `content.*` events first, and as `steps` and `step.*` events since.
"""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import Struct

from clew.dialects._dialect import Answer, WireDialect
from clew.dialects._errors import error_of
from clew.dialects._read import EMPTY, Count, decode, is_empty, number, text
from clew.dialects._sse import SseReader
from clew.dialects._stream import QUIET, TELLS
from clew.dialects._template import holes
from clew.facts import ErrorFacts, RequestFacts, ResponseFacts, ToolCall, Usage
from clew.typing import Route

_REASONS: Final = {
    "completed": "stop",
    "requires_action": "tool_call",
    "incomplete": "length",
    "budget_exceeded": "length",
    "failed": "error",
    "cancelled": "error",
}
"""An interaction has a status instead of a finish reason."""

_CLOSING: Final = frozenset(("interaction.completed", "interaction.complete"))


class _Tool(Struct, gc=False):
    type: str | None = None
    name: str | None = None


class _Config(Struct, gc=False):
    max_output_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    seed: int | None = None
    thinking_level: str | None = None


class _Request(Struct):
    model: str | None = None
    stream: bool | None = None
    input: msgspec.Raw = EMPTY
    tools: list[_Tool] | None = None
    generation_config: _Config | None = None
    response_mime_type: str | None = None
    previous_interaction_id: str | None = None
    service_tier: str | None = None


class _Item(Struct):
    type: str | None = None
    call_id: str | None = None
    content: msgspec.Raw = EMPTY


class _Step(Struct):
    type: str | None = None
    id: str | None = None
    name: str | None = None
    content: msgspec.Raw = EMPTY


class _Modality(Struct, gc=False):
    modality: str | None = None
    tokens: Count | None = None


class _Grounding(Struct, gc=False):
    type: str | None = None
    count: Count | None = None


class _Usage(Struct):
    total_tokens: Count | None = None
    total_input_tokens: Count | None = None
    total_output_tokens: Count | None = None
    total_thought_tokens: Count | None = None
    total_tool_use_tokens: Count | None = None
    total_cached_tokens: Count | None = None
    input_tokens_by_modality: list[_Modality] | None = None
    output_tokens_by_modality: list[_Modality] | None = None
    cached_tokens_by_modality: list[_Modality] | None = None
    grounding_tool_count: list[_Grounding] | None = None


class _Interaction(Struct):
    id: str | None = None
    model: str | None = None
    status: str | None = None
    usage: _Usage | None = None
    steps: list[_Step] | None = None
    outputs: list[_Step] | None = None
    service_tier: str | None = None
    error: msgspec.Raw = EMPTY


class _Delta(Struct):
    type: str | None = None
    id: str | None = None
    name: str | None = None
    text: msgspec.Raw = EMPTY
    data: msgspec.Raw = EMPTY
    content: msgspec.Raw = EMPTY
    arguments: msgspec.Raw = EMPTY

    def has_output(self) -> bool:
        return self.type == "function_call" or not (
            is_empty(self.text)
            and is_empty(self.data)
            and is_empty(self.content)
            and is_empty(self.arguments)
        )


class _Event(Struct):
    event_type: str | None = None
    type: str | None = None
    index: int | None = None
    interaction: _Interaction | None = None
    interaction_id: str | None = None
    status: str | None = None
    step: _Step | None = None
    content: _Step | None = None
    delta: _Delta | None = None
    error: msgspec.Raw = EMPTY


_REQUEST: Final = msgspec.json.Decoder(_Request)
_INPUT: Final = msgspec.json.Decoder(list[_Item])
_RESPONSE: Final = msgspec.json.Decoder(_Interaction)
_EVENT: Final = msgspec.json.Decoder(_Event)


def read_request(body: bytes, route: Route) -> RequestFacts:
    """Read a request; one to an agent names no model."""
    request = decode(_REQUEST, body)
    if request is None:
        return RequestFacts(stream=route.stream)
    config = request.generation_config or _Config()
    messages: int | None = None if is_empty(request.input) else 1
    results: list[str] = []
    if bytes(request.input)[:1] == b"[":  # pyright: ignore[reportArgumentType]
        items = decode(_INPUT, request.input) or []
        messages = len(items)
        results = [item.call_id for item in items if item.call_id and item.type == _RESULT]
    elif b"function_result" in bytes(request.input):  # pyright: ignore[reportArgumentType]
        only = decode(_ITEM, request.input)
        results = [only.call_id] if only is not None and only.call_id else []
    return RequestFacts(
        model=text(request.model),
        stream=bool(request.stream) or route.stream,
        max_tokens=config.max_output_tokens,
        temperature=number(config.temperature),
        top_p=number(config.top_p),
        seed=config.seed,
        reasoning_level=text(config.thinking_level),
        service_tier=text(request.service_tier),
        output_type="json" if request.response_mime_type == "application/json" else None,
        previous_response_id=text(request.previous_interaction_id),
        messages=messages,
        tools=tuple([name for tool in request.tools if (name := tool.name or tool.type)])
        if request.tools
        else None,
        tool_result_ids=tuple(results),
    )


_RESULT: Final = "function_result"
_ITEM: Final = msgspec.json.Decoder(_Item)


def usage_of(raw: _Usage | None) -> Usage | None:
    """Return token counts: tool-use prompts are input, thoughts are output.

    Thoughts that only the total shows are output too.
    """
    if raw is None:
        return None
    prompt, tools = raw.total_input_tokens, raw.total_tool_use_tokens
    answer, thoughts = raw.total_output_tokens, raw.total_thought_tokens
    total = raw.total_tokens
    input_tokens = None if prompt is None else prompt + (tools or 0)
    output_tokens = None if answer is None else answer + (thoughts or 0)
    mismatch = False
    if total is not None and input_tokens is not None and output_tokens is not None:
        extra = total - input_tokens - output_tokens
        if extra > 0 and thoughts is None:
            output_tokens, thoughts = output_tokens + extra, extra
        else:
            mismatch = extra != 0
    if input_tokens is None and output_tokens is None:
        return None
    searches = [
        found
        for entry in raw.grounding_tool_count or ()
        if entry.type == "google_search" and (found := entry.count) is not None
    ]
    return Usage(
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        cache_read_tokens=raw.total_cached_tokens,
        reasoning_tokens=thoughts,
        input_audio_tokens=_of(raw.input_tokens_by_modality, "audio"),
        output_audio_tokens=_of(raw.output_tokens_by_modality, "audio"),
        cache_read_audio_tokens=_of(raw.cached_tokens_by_modality, "audio"),
        input_image_tokens=_of(raw.input_tokens_by_modality, "image"),
        output_image_tokens=_of(raw.output_tokens_by_modality, "image"),
        web_searches=sum(searches) if searches else None,
        mismatch=mismatch,
    )


def _of(details: list[_Modality] | None, modality: str) -> int | None:
    counts = [
        tokens
        for entry in details or ()
        if (entry.modality or "").lower() == modality and (tokens := entry.tokens) is not None
    ]
    return sum(counts) if counts else None


def read_response(answer: Answer) -> ResponseFacts:
    """Read a whole interaction."""
    interaction = decode(_RESPONSE, answer.body)
    if interaction is None:
        return ResponseFacts()
    steps = interaction.steps or interaction.outputs or []
    return _facts(interaction, _calls(steps), error_of(interaction.error), complete=True)


def _calls(steps: list[_Step]) -> tuple[ToolCall, ...]:
    """Return calls the client has to carry out: a call with its result is history.

    Steps of a finished interaction may include the calls that earlier turns have answered.
    """
    return tuple(
        [ToolCall(text(step.id), text(step.name)) for step in steps if step.type == "function_call"]
    )


def _facts(
    interaction: _Interaction,
    calls: tuple[ToolCall, ...],
    error: ErrorFacts | None,
    *,
    complete: bool,
) -> ResponseFacts:
    status = interaction.status or ""
    reason = _REASONS.get(status)
    if reason == "stop" and calls:
        reason = "tool_call"
    return ResponseFacts(
        id=text(interaction.id),
        model=text(interaction.model),
        finish_reasons=() if reason is None else (reason,),
        tool_calls=calls,
        usage=usage_of(interaction.usage),
        error=error,
        service_tier=text(interaction.service_tier),
        complete=complete,
    )


class InteractionReader(SseReader):
    """Follows a streamed interaction."""

    __slots__ = ("_closed", "_error", "_interaction", "_steps")
    holes = holes("text", "data", "signature", "arguments", "event_id")

    def __init__(self) -> None:
        super().__init__()
        self._interaction = _Interaction()
        self._steps: dict[int, _Step] = {}
        self._error: ErrorFacts | None = None
        self._closed = False

    def apply(self, payload: bytes) -> int:
        """Take one event."""
        event = decode(_EVENT, payload)
        if event is None:
            return TELLS
        kind = event.event_type or event.type or ""
        if kind.endswith(".delta"):
            return self._delta(event)
        if kind.endswith(".start") and (event.step or event.content):
            step = event.step or event.content or _Step()
            self._step(event.index, step)
            self.started = self.started or not is_empty(step.content)
        if event.interaction is not None:
            self._take(event.interaction)
        if event.status is not None:
            self._interaction.status = event.status
        self._closed = self._closed or kind in _CLOSING
        if not is_empty(event.error):
            self._error = error_of(event.error)
        return TELLS

    def _delta(self, event: _Event) -> int:
        delta = event.delta
        if delta is None:
            return TELLS
        self.started = self.started or delta.has_output()
        if delta.type != "function_call":
            return QUIET
        self._step(event.index, _Step(type=delta.type, id=delta.id, name=delta.name))
        return TELLS

    def _step(self, index: int | None, step: _Step) -> None:
        if step.type == "function_call":
            self.started = True
        position = index if index is not None else len(self._steps)
        known = self._steps.get(position)
        if known is not None:
            step.id, step.name = step.id or known.id, step.name or known.name
        self._steps[position] = step

    def _take(self, interaction: _Interaction) -> None:
        known = self._interaction
        interaction.id = interaction.id or known.id
        interaction.model = interaction.model or known.model
        interaction.status = interaction.status or known.status
        interaction.service_tier = interaction.service_tier or known.service_tier
        if interaction.usage is None:
            interaction.usage = known.usage
        self._interaction = interaction

    def facts(self) -> ResponseFacts:
        """Return the facts learnt so far."""
        interaction = self._interaction
        steps = interaction.steps or interaction.outputs
        if not steps:
            steps = [self._steps[index] for index in sorted(self._steps)]
        error = self._error or error_of(interaction.error)
        return _facts(interaction, _calls(steps), error, complete=self._closed)


gemini_interactions: Final = WireDialect(
    "gemini_interactions", read_request, read_response, lambda _: InteractionReader()
)
