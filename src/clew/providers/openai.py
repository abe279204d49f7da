"""OpenAI's chat completions, and any server that speaks them (give its `base_url`).

https://platform.openai.com/docs/api-reference/chat/create
"""

from __future__ import annotations

import re
from typing import Any, Final

from clew.providers._openai_shape import ChatCompletions
from clew.providers.base import ChatRequest

_REASONS: Final = re.compile(r"(?:ft:)?(?:o\d|gpt-[5-9])(?!.*-chat)")
"""Models that refuse sampling parameters: https://platform.openai.com/docs/guides/reasoning."""


class OpenAIProvider(ChatCompletions):
    """The adapter `openai`."""

    name = "openai"
    semconv_name = "openai"
    key_variables = ("OPENAI_API_KEY",)
    default_base_url = "https://api.openai.com/v1"

    def limits(self, request: ChatRequest) -> dict[str, Any]:
        """Return the sampling fields; a reasoning model takes a limit of its own name alone."""
        limits = super().limits(request)
        if _REASONS.match(request.model):
            for name in ("temperature", "top_p"):
                limits.pop(name, None)
            if "max_tokens" in limits:
                limits["max_completion_tokens"] = limits.pop("max_tokens")
        return limits

    def stream_fields(self) -> dict[str, Any]:
        """Ask for usage too: a stream tells it only then."""
        return {"stream": True, "stream_options": {"include_usage": True}}
