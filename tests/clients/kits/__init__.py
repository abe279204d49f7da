"""The SDKs under test, one file for each; what they share is in `base`, `comparing` compares."""

from __future__ import annotations

from kits.bedrock import Converse, Invoke
from kits.cohere import Cohere
from kits.genai import Genai, GenaiOverAiohttp
from kits.groq import Groq
from kits.ollama import Ollama
from kits.speakeasy import Mistral, OpenRouter
from kits.stainless import STAINLESS, Stainless

SDKS = [
    kind(asynchronous=asynchronous)
    for kind in (
        Genai,
        GenaiOverAiohttp,
        Mistral,
        Groq,
        OpenRouter,
        Ollama,
        Cohere,
        Converse,
        Invoke,
    )
    for asynchronous in kind.both
]
"""Every SDK besides openai and anthropic, sync and async where it has both."""

__all__ = ["SDKS", "STAINLESS", "Stainless"]
