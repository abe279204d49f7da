"""Why a generation ended: providers' words and the convention's.

The convention knows `stop`, `length`, `content_filter`, `tool_call`, `compaction` and `error`.
A provider's word that is not in the table is `_OTHER`; the word itself stays in the raw list.
"""

from __future__ import annotations

import functools
from typing import Final

OTHER: Final = "_OTHER"

_WORDS: Final = {
    "stop": (
        "stop end_turn stop_sequence eos eos_token end_of_text endoftext complete completed "
        "finish finished stop_criteria_met pause_turn word"
    ),
    "length": (
        "length limit max_tokens maximum_tokens max_output_tokens token_limit model_length "
        "model_context_window_exceeded error_limit"
    ),
    "content_filter": (
        "content_filter content_filtered safety recitation refusal guardrail_intervened blocklist "
        "prohibited_content spii language model_armor image_safety image_prohibited_content "
        "image_recitation error_toxic sensitive"
    ),
    "tool_call": "tool_call tool_calls tool_use function_call",
    "compaction": "compaction",
    "error": (
        "error failed timeout network_error insufficient_system_resource malformed_function_call "
        "malformed_response malformed_tool_use malformed_model_output unexpected_tool_call "
        "too_many_tool_calls missing_thought_signature no_image"
    ),
}
"""Words of the providers' documentation: OpenAI, Anthropic, Gemini, Bedrock (Converse and Titan),
Cohere, Mistral, DeepSeek, Z.ai, Together, watsonx, Hugging Face, Aleph Alpha, AI21, llama.cpp."""

FINISH_REASONS: Final[dict[str, str]] = {
    word: reason for reason, words in _WORDS.items() for word in words.split()
}
"""A provider's word in lower case -> the convention's word."""


def finish_reason(word: str | None) -> str | None:
    """Return the convention's word for a provider's; None stays None."""
    if not word:
        return None
    known = FINISH_REASONS.get(word)
    if known is not None:
        return known
    return FINISH_REASONS.get(word.lower(), OTHER)


@functools.lru_cache(maxsize=256)
def finish_reasons(words: tuple[str | None, ...]) -> tuple[str | None, ...]:
    """Return the convention's words, one for each of the provider's."""
    return tuple([finish_reason(word) for word in words])
