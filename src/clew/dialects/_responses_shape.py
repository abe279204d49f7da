"""The OpenAI Responses shape on the wire, as far as facts go."""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import Struct

from clew.dialects._openai_usage import RawUsage
from clew.dialects._read import EMPTY, text
from clew.facts import ToolCall

_CLIENT_CALLS: Final = frozenset(
    (
        "function_call",
        "custom_tool_call",
        "computer_call",
        "local_shell_call",
        "shell_call",
        "apply_patch_call",
    )
)
"""Output items that ask the client to do something; the others report what the provider did.

https://platform.openai.com/docs/api-reference/responses/object#responses/object-output
"""


class Named(Struct, gc=False):
    """A tool offered: a function or custom tool by name, the provider's own by type."""

    type: str | None = None
    name: str | None = None
    server_label: str | None = None


class Reasoning(Struct, gc=False):
    """How hard to think."""

    effort: str | None = None


class Format(Struct, gc=False):
    """What form the answer is asked to have."""

    type: str | None = None


class TextOptions(Struct):
    """Options of text output."""

    format: Format | None = None


class ResponsesRequest(Struct):
    """A request."""

    model: str | None = None
    stream: bool | None = None
    input: msgspec.Raw = EMPTY
    tools: list[Named] | None = None
    max_output_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    seed: int | None = None
    reasoning: Reasoning | None = None
    service_tier: str | None = None
    text: TextOptions | None = None
    previous_response_id: str | None = None


class InputItem(Struct, gc=False):
    """An item of the input; `call_id` with an `*_output` type is a tool's result."""

    type: str | None = None
    call_id: str | None = None


class Incomplete(Struct, gc=False):
    """Why a response is incomplete."""

    reason: str | None = None


class OutputItem(Struct, gc=False):
    """An item of the output."""

    type: str | None = None
    call_id: str | None = None
    id: str | None = None
    name: str | None = None
    execution: str | None = None


class ResponseObject(Struct):
    """A response, as a body or inside the events that carry it."""

    id: str | None = None
    model: str | None = None
    status: str | None = None
    output: list[OutputItem] | None = None
    usage: RawUsage | None = None
    error: msgspec.Raw = EMPTY
    incomplete_details: Incomplete | None = None
    service_tier: str | None = None
    system_fingerprint: str | None = None
    provider: str | None = None


class ResponsesEvent(Struct):
    """An event of a stream."""

    type: str | None = None
    response: ResponseObject | None = None
    item: OutputItem | None = None
    output_index: int | None = None
    delta: msgspec.Raw = EMPTY
    error: msgspec.Raw = EMPTY
    code: msgspec.Raw = EMPTY


REQUEST: Final = msgspec.json.Decoder(ResponsesRequest)
INPUT: Final = msgspec.json.Decoder(list[InputItem])
RESPONSE: Final = msgspec.json.Decoder(ResponseObject)
EVENT: Final = msgspec.json.Decoder(ResponsesEvent)


def client_calls(output: list[OutputItem], provider: str | None) -> tuple[ToolCall, ...]:
    """Return the calls among `output` that the client has to carry out, in order.

    A call whose output is there already was carried out by the provider (a hosted shell); xAI
    reports its own searches as custom tool calls (https://docs.x.ai/docs/guides/tools/overview).
    """
    done = {item.call_id for item in output if (item.type or "").endswith("_output")}
    return tuple(
        [
            ToolCall(text(item.call_id) or text(item.id), text(item.name) or _own_name(item))
            for item in output
            if _is_call(item, provider) and (item.call_id is None or item.call_id not in done)
        ]
    )


def _is_call(item: OutputItem, provider: str | None) -> bool:
    kind = item.type
    if kind == "tool_search_call":
        return item.execution == "client"
    if kind == "custom_tool_call" and provider == "x_ai":
        return False
    return kind in _CLIENT_CALLS


def _own_name(item: OutputItem) -> str | None:
    """A computer, shell or patch call has no name but its type."""
    kind = item.type or ""
    return None if kind in ("function_call", "custom_tool_call") else kind.removesuffix("_call")
