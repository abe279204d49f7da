"""Token counts in the OpenAI shape, with what its many speakers add to it.

`prompt_tokens` (Responses: `input_tokens`) includes cached tokens and `completion_tokens`
(`output_tokens`) includes reasoning:
https://platform.openai.com/docs/api-reference/chat/object#chat/object-usage
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
from msgspec import Struct

from clew.dialects._read import EMPTY, Count, is_empty, loads, number
from clew.facts import Usage

_TICKS_PER_USD: Final = 10**10
"""xAI bills in ticks: https://docs.x.ai/docs/guides/cost-tracking."""

_REASONING_IN_TOTAL_ONLY: Final = frozenset(("gcp.gemini", "gcp.vertex_ai"))
"""Providers whose OpenAI-compatible path shows thoughts in the total and nowhere else."""


class Details(Struct, gc=False):
    """The parts of a prompt or a completion."""

    cached_tokens: Count | None = None
    cache_write_tokens: Count | None = None
    cache_creation_tokens: Count | None = None
    reasoning_tokens: Count | None = None
    audio_tokens: Count | None = None
    image_tokens: Count | None = None


class ServerTools(Struct, gc=False):
    """Uses of the provider's own tools."""

    web_search_requests: Count | None = None


class RawUsage(Struct, gc=False):
    """A usage object as the wire has it."""

    prompt_tokens: Count | None = None
    completion_tokens: Count | None = None
    input_tokens: Count | None = None
    output_tokens: Count | None = None
    total_tokens: Count | None = None
    prompt_tokens_details: Details | None = None
    completion_tokens_details: Details | None = None
    input_tokens_details: Details | None = None
    output_tokens_details: Details | None = None
    input_token_details: Details | None = None
    output_token_details: Details | None = None
    prompt_token_details: Details | None = None
    completion_token_details: Details | None = None
    prompt_cache_hit_tokens: Count | None = None
    cached_tokens: Count | None = None
    num_cached_tokens: Count | None = None
    cache_read_input_tokens: Count | None = None
    cache_creation_input_tokens: Count | None = None
    reasoning_tokens: Count | None = None
    num_search_queries: Count | None = None
    server_tool_use: ServerTools | None = None
    server_tool_use_details: ServerTools | None = None
    cost: msgspec.Raw = EMPTY
    cost_in_usd_ticks: Count | None = None

    def is_empty(self) -> bool:
        """Tell whether no total of tokens is reported at all."""
        return (
            self.prompt_tokens is None
            and self.completion_tokens is None
            and self.input_tokens is None
            and self.output_tokens is None
            and self.total_tokens is None
        )


_NO_DETAILS: Final = Details()


def usage_of(raw: RawUsage | None, provider: str | None) -> Usage | None:
    """Return token counts under the inclusive rule; None when nothing was reported.

    Where prompt + completion + reasoning is the total, the provider leaves reasoning out of the
    completion (xAI, https://docs.x.ai/docs/guides/reasoning), so it is added to the output.
    """
    if raw is None:
        return None
    given = raw.prompt_tokens_details or _given(raw)
    made = raw.completion_tokens_details or _made(raw)
    input_tokens = raw.input_tokens if raw.prompt_tokens is None else raw.prompt_tokens
    output_tokens = raw.output_tokens if raw.completion_tokens is None else raw.completion_tokens
    total = raw.total_tokens
    if input_tokens is None and output_tokens is None and total is None:
        return None
    reasoning = made.reasoning_tokens
    if reasoning is None:
        reasoning = raw.reasoning_tokens
    mismatch = False
    if total is not None and input_tokens is not None and output_tokens is not None:
        extra = total - input_tokens - output_tokens
        if extra:
            if extra == reasoning:
                output_tokens += extra
            elif extra > 0 and not reasoning and provider in _REASONING_IN_TOTAL_ONLY:
                output_tokens, reasoning = output_tokens + extra, extra
            else:
                mismatch = True
    cached, written = given.cached_tokens, given.cache_write_tokens
    if written is None:
        written = given.cache_creation_tokens
        if written is None:
            written = raw.cache_creation_input_tokens
    searches = raw.num_search_queries
    tools = raw.server_tool_use or raw.server_tool_use_details
    if tools is not None and tools.web_search_requests is not None:
        searches = tools.web_search_requests
    return Usage(
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        cache_read_tokens=_cache_read(raw) if cached is None else cached,
        cache_write_tokens=written,
        reasoning_tokens=reasoning,
        input_audio_tokens=given.audio_tokens,
        output_audio_tokens=made.audio_tokens,
        input_image_tokens=given.image_tokens,
        output_image_tokens=made.image_tokens,
        web_searches=searches,
        cost_usd=None if raw.cost is EMPTY and raw.cost_in_usd_ticks is None else _cost(raw),
        mismatch=mismatch,
    )


def _given(raw: RawUsage) -> Details:
    return (
        raw.input_tokens_details or raw.input_token_details or raw.prompt_token_details
    ) or _NO_DETAILS


def _made(raw: RawUsage) -> Details:
    return (
        raw.output_tokens_details or raw.output_token_details or raw.completion_token_details
    ) or _NO_DETAILS


def _cache_read(raw: RawUsage) -> int | None:
    """Cached tokens where the details do not tell them."""
    if raw.prompt_cache_hit_tokens is not None:
        return raw.prompt_cache_hit_tokens
    if raw.cached_tokens is not None:
        return raw.cached_tokens
    if raw.num_cached_tokens is not None:
        return raw.num_cached_tokens
    return raw.cache_read_input_tokens


def _cost(raw: RawUsage) -> float | None:
    """What was billed: OpenRouter's number, Perplexity's object, xAI's ticks."""
    if raw.cost_in_usd_ticks is not None:
        return raw.cost_in_usd_ticks / _TICKS_PER_USD
    if is_empty(raw.cost):
        return None
    value: Any = loads(raw.cost)
    if isinstance(value, dict):
        value = value.get("total_cost") if value.get("currency", "USD") == "USD" else None  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    cost = number(value)
    return cost if cost is not None and cost >= 0 else None
