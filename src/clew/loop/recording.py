"""Recording the steps of a run, where somebody wants a trace of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import msgspec

from clew import content
from clew.loop.calls import Done
from clew.loop.chain import choices_of
from clew.loop.trace import Step, Trace, milliseconds
from clew.loop.window import Breakdown
from clew.providers.base import ChatRequest, ChatResponse, Message, Provider, ToolRequest
from clew.providers.http import HttpProvider
from clew.spans import error_type


class Recorder:
    """Turns what happens into steps; without a trace it does nothing.

    Args:
        trace: where the steps go.
    """

    def __init__(self, trace: Trace | None) -> None:
        self._trace = trace

    def _record(self, step: Step, *, must_save: bool = False) -> None:
        if self._trace is not None:
            self._trace.record(step, must_save=must_save)

    def dropped(self, sources: Sequence[str]) -> None:
        """Record which sources were left out, if any were."""
        if sources:
            self._record(Step(kind="dropped", round=0, dropped_sources=tuple(sources)))

    def assembled(self, sent: Sequence[dict[str, Any]], tools: Sequence[str]) -> None:
        """Record the list of a dry run."""
        self._record(
            Step(kind="assembled", round=0, messages_sent=tuple(sent), tool_specs=tuple(tools))
        )

    def context(self, number: int, breakdown: Breakdown) -> None:
        """Record the window fit of the request that follows."""
        if self._trace is not None:
            self._record(Step(kind="context", round=number, context_budget=breakdown.as_dict()))

    def watch(
        self, number: int, provider: Provider, request: ChatRequest
    ) -> Callable[[bytes, int], None] | None:
        """Return what records a request when it leaves; None where nobody wants to know.

        Only our own adapters say what leaves, after the gates. What others are asked is recorded
        here and now.
        """
        if self._trace is None:
            return None
        tools = tuple(tool.name for tool in request.tools)
        tried = choices_of(provider, request)
        if not all(isinstance(one, HttpProvider) for one, _ in tried):
            sent = tuple(plain(request.messages))
            self._record(Step(kind="request", round=number, messages_sent=sent, tool_specs=tools))
            return None

        def leaves(body: bytes, hop: int) -> None:
            by = tried[hop][0]
            read = read_wire(by.dialect.name, body) if isinstance(by, HttpProvider) else None
            self._record(
                Step(
                    kind="request",
                    round=number,
                    messages_sent=tuple(plain(request.messages) if read is None else read),
                    tool_specs=tools,
                    hop=hop or None,
                )
            )

        return leaves

    def answered(
        self, number: int, answer: ChatResponse, seconds: float, cost: float | None
    ) -> None:
        """Record what the model said."""
        if self._trace is None:
            return
        usage = answer.usage
        read = None if usage is None else usage.input_tokens
        written = None if usage is None else usage.output_tokens
        raw = (answer.metadata or {}).get("_raw")
        self._record(
            Step(
                kind="llm",
                round=number,
                duration_ms=milliseconds(seconds),
                content=answer.text,
                thinking=answer.thinking,
                finish_reason=answer.finish_reason,
                prompt_tokens=read,
                completion_tokens=written,
                total_tokens=None if read is None or written is None else read + written,
                estimated_cost=cost,
                requested_tool_calls=tuple(map(_asked, answer.tool_calls)) or None,
                raw=cast("dict[str, Any]", raw) if isinstance(raw, dict) else None,
                provider=answer.provider,
                model=answer.model,
                hop=answer.hop or None,
            )
        )

    def heard(self, number: int, text: str) -> None:
        """Tell of a piece of a streamed answer."""
        if self._trace is not None:
            self._trace.hear(number, text)

    def failed(self, number: int, error: BaseException, seconds: float) -> None:
        """Record that the model did not answer."""
        if self._trace is not None:
            self._record(
                Step(
                    kind="llm",
                    round=number,
                    duration_ms=milliseconds(seconds),
                    error_type=error_type(error),
                )
            )

    def tool(self, done: Done) -> None:
        """Record what became of a tool call."""
        if self._trace is None:
            return
        request = done.planned.request
        arguments = done.planned.arguments
        if arguments is None:
            arguments = request.arguments
        self._record(
            Step(
                kind="tool",
                round=done.planned.round,
                duration_ms=milliseconds(done.seconds),
                tool_name=request.name,
                tool_arguments=request.arguments_text if arguments is None else arguments,
                tool_result=None if done.cancelled else done.output.text,
                tool_is_error=done.output.is_error,
                tool_artifacts=done.output.artifacts or None,
            ),
            must_save=done.wrote,
        )

    def approval(
        self, number: int, approved: bool, decided_by: str | None, *, must_save: bool
    ) -> None:
        """Record what was decided about the calls that waited."""
        self._record(
            Step(kind="approval", round=number, approved=approved, decided_by=decided_by),
            must_save=must_save,
        )

    def given(self, number: int, submitted_by: str | None) -> None:
        """Record that a person has given what was waited for."""
        self._record(Step(kind="input", round=number, submitted_by=submitted_by))


def _asked(call: ToolRequest) -> dict[str, Any]:
    arguments = call.arguments_text if call.arguments is None else call.arguments
    return {"id": call.id, "name": call.name, "arguments": arguments}


def read_wire(dialect: str, body: bytes) -> list[dict[str, Any]] | None:
    """Return the messages of a request's body, system prompts among them."""
    found = content.of_request(dialect, body)
    if found.input_messages is None:
        return None
    system = found.system_instructions
    front = [] if not system else [{"role": "system", "parts": list(system)}]
    return [*front, *found.input_messages]


def plain(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Return messages as plain data, for providers whose format is not known."""
    return [
        {
            key: value
            for key, value in cast("dict[str, Any]", msgspec.to_builtins(message)).items()
            if value not in (None, [], (), False)
        }
        for message in messages
    ]
