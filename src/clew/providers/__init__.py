"""Providers of our own, over httpx: chat, tools, streams, sync and async, without an SDK.

    from clew.providers import ChatRequest, Message, provider

    with provider("anthropic") as claude:
        answer = claude.chat(
            ChatRequest(model="claude-sonnet-4-5", messages=(Message.user("Hello"),))
        )
    print(answer.text)

A new provider is one file with a subclass of `clew.providers.http.HttpProvider`, and one line
below, or an entry point of the group `clew.providers` in a distribution of its own.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from importlib.metadata import entry_points
from typing import Any, Final

from clew.errors import ConfigurationError
from clew.providers.base import (
    ChatRequest,
    ChatResponse,
    Image,
    Message,
    Provider,
    StreamEvent,
    Text,
    Thinking,
    ToolRequest,
    ToolSpec,
)
from clew.providers.errors import ProviderError
from clew.providers.fallback import Choice, Circuits, FallbackError, FallbackProvider
from clew.providers.streams import AsyncChatStream, ChatStream

__all__ = [
    "PROVIDERS",
    "AsyncChatStream",
    "ChatRequest",
    "ChatResponse",
    "ChatStream",
    "Choice",
    "Circuits",
    "FallbackError",
    "FallbackProvider",
    "Image",
    "Message",
    "Provider",
    "ProviderError",
    "StreamEvent",
    "Text",
    "Thinking",
    "ToolRequest",
    "ToolSpec",
    "provider",
]

PROVIDERS: Final[Mapping[str, str]] = {
    "openai": "clew.providers.openai:OpenAIProvider",
    "anthropic": "clew.providers.anthropic:AnthropicProvider",
    "gemini": "clew.providers.gemini:GeminiProvider",
    "openrouter": "clew.providers.openrouter:OpenRouterProvider",
    "mistral": "clew.providers.mistral:MistralProvider",
    "groq": "clew.providers.groq:GroqProvider",
    "ollama": "clew.providers.ollama:OllamaProvider",
}
"""The adapters by name."""

_GROUP: Final = "clew.providers"


def provider(
    name: str,
    *,
    api_key: str | None = None,
    base_url: str | None = None,
    http_client: Any = None,
    async_http_client: Any = None,
    **options: Any,
) -> Provider:
    """Return an adapter; nothing is sent, and no key is looked for, before it is asked.

    Args:
        name: one of `PROVIDERS`, or an entry point of the group `clew.providers`.
        api_key: the key; by default from the provider's own environment variable, but only for
            the provider's own address.
        base_url: another address that speaks the same API.
        http_client: an `httpx.Client` of your own.
        async_http_client: an `httpx.AsyncClient` of your own.
        options: `retries` (0 to 10, by default 3) and `headers`.

    Raises:
        ConfigurationError: the name is not known, or `base_url` is no address.
    """
    return _load(name)(
        api_key=api_key,
        base_url=base_url,
        http_client=http_client,
        async_http_client=async_http_client,
        **options,
    )


def _load(name: str) -> Any:
    target = PROVIDERS.get(name)
    if target is not None:
        module, _, attribute = target.partition(":")
        return getattr(importlib.import_module(module), attribute)
    for entry in entry_points(group=_GROUP, name=name):
        return entry.load()
    known = ", ".join(PROVIDERS)
    raise ConfigurationError(f"provider {name!r} is not known; give one of: {known}")
