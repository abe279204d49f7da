"""OpenRouter: the chat completions shape, with reasoning, cost and the provider served.

https://openrouter.ai/docs/api/reference/overview. Routes and fallbacks of its own are asked for
in `ChatRequest.extra` (`models`, `provider`).
"""

from __future__ import annotations

from typing import Any

from clew.facts import ResponseFacts
from clew.providers._openai_shape import ChatCompletions
from clew.providers.base import Message
from clew.providers.messages import present


class OpenRouterProvider(ChatCompletions):
    """The adapter `openrouter`."""

    name = "openrouter"
    semconv_name = "openrouter"
    key_variables = ("OPENROUTER_API_KEY",)
    default_base_url = "https://openrouter.ai/api/v1"

    def assistant(self, message: Message) -> dict[str, Any]:
        """Return a message with its reasoning as it came, which a model with tools needs.

        https://openrouter.ai/docs/use-cases/reasoning-tokens#preserving-reasoning-blocks
        """
        said = super().assistant(message)
        details = [
            block.native
            for block in message.thinking
            if block.provider == self.name and block.native is not None
        ]
        if details:
            said["reasoning_details"] = details
        return said

    def metadata(self, facts: ResponseFacts) -> dict[str, Any] | None:
        """Return which provider served the call, and what it cost."""
        cost = facts.usage.cost_usd if facts.usage is not None else None
        return present(served_provider=facts.served_provider, cost_usd=cost) or None
