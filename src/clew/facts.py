"""What a model call is known by, without its content.

A dialect turns bytes into these; everything above reads only these. `None` always means
"the traffic does not say", zero means zero.
"""

from __future__ import annotations

from msgspec import Struct

ROUND_OPERATIONS = frozenset({"chat", "generate_content", "text_completion"})
"""Operations that are rounds of a run: numbered, counted."""

CALL_OPERATIONS = frozenset({"embeddings", "rerank", "image_generation", "transcription", "speech"})
"""Operations with usage and cost but without a round number."""


class Usage(Struct, frozen=True, kw_only=True, gc=False):
    """Token counts under the inclusive rule of the GenAI conventions.

    `input_tokens` includes cache reads and cache writes; `output_tokens` includes reasoning.
    The other counts are parts of these two, never additions to them.
    """

    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_tokens: int | None = None
    cache_write_tokens: int | None = None
    reasoning_tokens: int | None = None
    cache_write_1h_tokens: int | None = None
    """The part of `cache_write_tokens` that was written with a lifetime of one hour."""
    input_audio_tokens: int | None = None
    output_audio_tokens: int | None = None
    cache_read_audio_tokens: int | None = None
    input_image_tokens: int | None = None
    output_image_tokens: int | None = None
    web_searches: int | None = None
    """Requests to the provider's own web search, billed per request."""
    cost_usd: float | None = None
    """What the provider says it billed, in US dollars."""
    mismatch: bool = False
    """True when the provider gives a total that is not input + output."""


class ToolCall(Struct, frozen=True, gc=False):
    """A tool call that the model asked the client to carry out."""

    id: str | None = None
    name: str | None = None


class ErrorFacts(Struct, frozen=True, gc=False):
    """An error as the provider's body states it: its own type and code, never its message."""

    type: str | None = None
    code: str | int | None = None
    """As the body has it: some providers give a number."""


class RequestFacts(Struct, frozen=True, kw_only=True):
    """What a request says about itself. Counts are of entries, not of characters."""

    model: str | None = None
    operation: str | None = None
    """The operation, where the body tells what the path leaves open; wins over the route's."""
    stream: bool = False
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: float | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    seed: int | None = None
    choice_count: int | None = None
    reasoning_level: str | None = None
    service_tier: str | None = None
    output_type: str | None = None
    """`text`, `json`, `image` or `speech`, where the request asks for one."""
    previous_response_id: str | None = None
    dimensions: int | None = None
    encoding_formats: tuple[str, ...] = ()
    messages: int | None = None
    tools: tuple[str, ...] | None = None
    """Names of the tools offered, in order; None when the request offers none."""
    tool_result_ids: tuple[str, ...] = ()
    """Ids of the tool calls whose results this request carries, in order."""


class ResponseFacts(Struct, frozen=True, kw_only=True):
    """What a response, plain or streamed, says about itself."""

    id: str | None = None
    model: str | None = None
    finish_reasons: tuple[str | None, ...] = ()
    """One per choice, in the convention's words (see `clew.dialects.finish_reasons`)."""
    finish_reasons_raw: tuple[str | None, ...] = ()
    """One per choice, in the provider's words; None where it said none."""
    tool_calls: tuple[ToolCall, ...] = ()
    usage: Usage | None = None
    error: ErrorFacts | None = None
    service_tier: str | None = None
    system_fingerprint: str | None = None
    served_provider: str | None = None
    """The provider that a gateway says it used."""
    complete: bool = True
    """False when a stream ended before its closing event."""


NO_RESPONSE = ResponseFacts(complete=False)
"""The facts of a response of which nothing could be read."""
