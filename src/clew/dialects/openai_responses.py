"""OpenAI Responses, and whoever else speaks their shape.

https://platform.openai.com/docs/api-reference/responses,
https://platform.openai.com/docs/api-reference/responses-streaming.
"""

from __future__ import annotations

from typing import Final

from clew.dialects._dialect import Answer, WireDialect
from clew.dialects._errors import error_in, error_of
from clew.dialects._openai_usage import usage_of
from clew.dialects._read import decode, is_empty, loads, number, text
from clew.dialects._responses_shape import (
    EVENT,
    INPUT,
    REQUEST,
    RESPONSE,
    OutputItem,
    ResponseObject,
    ResponsesEvent,
    ResponsesRequest,
    client_calls,
)
from clew.dialects._sse import TypedReader
from clew.dialects._stream import QUIET, TELLS
from clew.dialects._template import holes
from clew.facts import ErrorFacts, RequestFacts, ResponseFacts
from clew.typing import Route

_OUTPUT_TYPES: Final = {"text": "text", "json_object": "json", "json_schema": "json"}
_CLOSING: Final = frozenset(
    ("response.completed", "response.incomplete", "response.failed", "response.cancelled")
)
_CARRYING: Final = frozenset(("response.created", "response.queued", "response.in_progress"))
_QUIET_TYPES: Final = frozenset(
    f"response.{name}.delta".encode()
    for name in (
        *("output_text", "refusal", "reasoning_text", "reasoning_summary_text", "reasoning"),
        *("reasoning_summary", "function_call_arguments", "custom_tool_call_input"),
        *("mcp_call_arguments", "mcp_call.arguments", "code_interpreter_call_code"),
        *("code_interpreter_call.code", "audio", "audio.transcript", "output_audio"),
        *("output_audio_transcript", "shell_call_command", "apply_patch_call_operation_diff"),
        *("shell_call_output_content",),
    )
) | {b"response.image_generation_call.partial_image"}


def read_request(body: bytes, route: Route) -> RequestFacts:
    """Read a Responses request."""
    request = decode(REQUEST, body)
    if request is None:
        return RequestFacts(model=route.model, stream=route.stream)
    output = request.text.format if request.text is not None else None
    messages, result_ids = _input(request)
    return RequestFacts(
        model=text(request.model) or route.model,
        stream=bool(request.stream) or route.stream,
        max_tokens=request.max_output_tokens,
        temperature=number(request.temperature),
        top_p=number(request.top_p),
        frequency_penalty=number(request.frequency_penalty),
        presence_penalty=number(request.presence_penalty),
        seed=request.seed,
        reasoning_level=text(request.reasoning.effort) if request.reasoning is not None else None,
        service_tier=text(request.service_tier),
        output_type=_OUTPUT_TYPES.get(output.type or "") if output is not None else None,
        previous_response_id=text(request.previous_response_id),
        messages=messages,
        tools=_tool_names(request),
        tool_result_ids=result_ids,
    )


def _input(request: ResponsesRequest) -> tuple[int | None, tuple[str, ...]]:
    """How many input items there are (a bare string is one), and the ids of tool results."""
    if is_empty(request.input):
        return None, ()
    if bytes(request.input)[:1] != b"[":  # pyright: ignore[reportArgumentType]
        return 1, ()
    items = decode(INPUT, request.input) or []
    return len(items), tuple(
        [item.call_id for item in items if item.call_id and (item.type or "").endswith("_output")]
    )


def _tool_names(request: ResponsesRequest) -> tuple[str, ...] | None:
    if not request.tools:
        return None
    return tuple([name for tool in request.tools if (name := tool.name or tool.type)])


def read_response(answer: Answer) -> ResponseFacts:
    """Read a whole response."""
    if answer.route.operation == "count_tokens":  # its `input_tokens` is the answer, not a usage
        return ResponseFacts()
    response = decode(RESPONSE, answer.body)
    if response is None:
        return ResponseFacts()
    return _facts(response, response.output or [], answer.route.provider)


def _facts(
    response: ResponseObject,
    output: list[OutputItem],
    provider: str | None,
    error: ErrorFacts | None = None,
    *,
    complete: bool = True,
) -> ResponseFacts:
    calls = client_calls(output, provider)
    reason = _finish_reason(response, asks=bool(calls))
    return ResponseFacts(
        id=text(response.id),
        model=text(response.model),
        finish_reasons=() if reason is None else (reason,),
        tool_calls=calls,
        usage=usage_of(response.usage, provider),
        error=error or error_of(response.error),
        service_tier=text(response.service_tier),
        system_fingerprint=text(response.system_fingerprint),
        served_provider=text(response.provider),
        complete=complete,
    )


def _finish_reason(response: ResponseObject, *, asks: bool) -> str | None:
    """Derive the reason: this API has a status instead."""
    status = response.status
    if status == "completed":
        return "tool_call" if asks else "stop"
    if status == "incomplete":
        details = response.incomplete_details
        why = details.reason if details is not None else None
        if why == "content_filter":
            return "content_filter"
        return "length" if why in ("max_output_tokens", "max_tokens") else "_OTHER"
    return "error" if status == "failed" else None


class ResponsesReader(TypedReader):
    """Follows a streamed response: its closing event says nearly everything."""

    __slots__ = ("_closed", "_error", "_items", "_provider", "_response")
    quiet_types = _QUIET_TYPES
    holes = holes("delta", "obfuscation", "partial_image_b64")

    def __init__(self, route: Route) -> None:
        super().__init__()
        self._provider = route.provider
        self._response = ResponseObject()
        self._items: dict[int, OutputItem] = {}
        self._error: ErrorFacts | None = None
        self._closed = False

    def apply(self, payload: bytes) -> int:
        """Take one event."""
        event = decode(EVENT, payload)
        if event is None:
            return TELLS
        kind = event.type or ""
        if kind.endswith((".delta", ".partial_image")):
            if not is_empty(event.delta) or kind.endswith("image"):
                self.started = True
            return QUIET
        if kind == "response.output_item.added" or kind == "response.output_item.done":  # noqa: PLR1714
            self._item(event)
        elif event.response is not None and (kind in _CARRYING or kind in _CLOSING):
            self._take(event.response)
            self._closed = self._closed or kind in _CLOSING
        elif kind == "error" or not is_empty(event.error):
            self._error = error_of(event.error) or error_in(loads(payload))
        return TELLS

    def _item(self, event: ResponsesEvent) -> None:
        item = event.item
        if item is None:
            return
        index = event.output_index if event.output_index is not None else len(self._items)
        known = self._items.get(index)
        if known is not None:
            item.call_id = item.call_id or known.call_id
            item.name = item.name or known.name
        self._items[index] = item
        if item.type not in ("message", "reasoning"):
            self.started = True

    def _take(self, response: ResponseObject) -> None:
        """Let what a later event says of the response replace what an earlier one said."""
        known = self._response
        response.id = response.id or known.id
        response.model = response.model or known.model
        response.service_tier = response.service_tier or known.service_tier
        if response.usage is None:
            response.usage = known.usage
        self._response = response

    def facts(self) -> ResponseFacts:
        """Return the facts learnt so far."""
        output = self._response.output or [self._items[index] for index in sorted(self._items)]
        return _facts(self._response, output, self._provider, self._error, complete=self._closed)


openai_responses: Final = WireDialect(
    "openai_responses",
    read_request,
    read_response,
    ResponsesReader,
    names_errors=True,
    conversation="input",
)
