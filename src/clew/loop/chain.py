"""Who is asked: a provider, or those of a chain in their order."""

from __future__ import annotations

from clew.providers.base import ChatRequest, Provider
from clew.providers.fallback import FallbackProvider
from clew.providers.http import HttpProvider


def choices_of(provider: Provider, request: ChatRequest) -> list[tuple[Provider, ChatRequest]]:
    """Return the provider, or those of its chain, each with what it would be asked."""
    if isinstance(provider, FallbackProvider):
        return [(hop.provider, hop.request) for hop in provider.choices(request)]
    return [(provider, request)]


def providers_of(provider: Provider) -> list[Provider]:
    """Return the provider, or those of its chain."""
    return [one for one, _ in choices_of(provider, ChatRequest(model="", messages=()))]


def http_providers(provider: Provider) -> list[HttpProvider]:
    """Return the adapters of ours among them."""
    return [one for one in providers_of(provider) if isinstance(one, HttpProvider)]
