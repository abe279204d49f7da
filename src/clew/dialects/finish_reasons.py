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
        "stop end_turn stop_sequence eos eos_token complete completed finish finished end "
        "pause_turn end_of_sequence end_of_text endoftext done user_cancel cancelled stop_str word "
        "max_turns natural"
    ),
    "length": (
        "length limit max_tokens max_token maximum_tokens max_length max_output_tokens "
        "model_context_window_exceeded max_context error_limit token_limit model_length "
        "max_new_tokens max_output_reached context_length context_window_exceeded"
    ),
    "content_filter": (
        "content_filter content_filtered safety recitation refusal guardrail_intervened blocklist "
        "prohibited_content spii image_safety image_prohibited_content image_recitation "
        "model_armor language error_toxic sensitive guardrails content_moderation blocked "
        "moderation"
    ),
    "tool_call": (
        "tool_call tool_calls tool_use function_call function_calls tool unexpected_tool_call "
        "requires_action"
    ),
    "compaction": "compaction compact",
    "error": (
        "error failed malformed_function_call malformed_tool_use malformed_model_output "
        "image_other network_error insufficient_system_resource no_image too_many_tool_calls "
        "missing_thought_signature malformed_response internal_server_error timeout unavailable"
    ),
}

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
