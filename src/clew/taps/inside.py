"""Where SDK clients keep the HTTP clients that they send with."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

PATHS = (
    "",  # an HTTP client itself
    "_client",  # openai, anthropic, groq, together, cerebras, ollama
    "_api_client._httpx_client",  # google-genai
    "_api_client._async_httpx_client",
    "_api_client._http_options.aiohttp_client",
    "sdk_configuration.client",  # mistralai, openrouter
    "sdk_configuration.async_client",
    "_client_wrapper.httpx_client.httpx_client",  # cohere
    "_endpoint.http_session",  # boto3
)
"""Attribute paths, from an SDK client to an HTTP client."""

LATER = (
    ("_api_client", "_get_aiohttp_session"),  # google-genai
    ("_endpoint.http_session", "_get_session"),  # aiobotocore
)
"""Attribute paths to an object, and its coroutine method that makes an HTTP client when needed."""


def follow(client: Any, path: str) -> Any:
    """Return what is at a path of attributes, or None."""
    for name in path.split(".") if path else ():
        client = getattr(client, name, None)
    return client


def http_clients(client: Any) -> Iterator[Any]:
    """Give what may be the HTTP clients of an SDK client."""
    for path in PATHS:
        found = follow(client, path)
        if found is not None:
            yield found


def makers(client: Any) -> Iterator[tuple[Any, str]]:
    """Give the objects of an SDK client that make HTTP clients later, each with its method."""
    for path, method in LATER:
        found = follow(client, path)
        if found is not None and hasattr(found, method):
            yield found, method
