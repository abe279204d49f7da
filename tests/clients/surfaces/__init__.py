"""The public methods of every SDK under test: which are listened to, and which are not."""

from __future__ import annotations

from surfaces.base import Surface
from surfaces.google import GENAI, VERTEX
from surfaces.others import (
    BEDROCK,
    BEDROCK_AGENTS,
    COHERE,
    COHERE_V1,
    OLLAMA,
    SAGEMAKER,
)
from surfaces.speakeasy import MISTRAL, OPENROUTER
from surfaces.stainless import ANTHROPIC, GROQ, OPENAI

SURFACES = (
    OPENAI,
    ANTHROPIC,
    GENAI,
    VERTEX,
    MISTRAL,
    GROQ,
    OPENROUTER,
    COHERE,
    COHERE_V1,
    OLLAMA,
    BEDROCK,
    SAGEMAKER,
    BEDROCK_AGENTS,
)

__all__ = ["SURFACES", "Surface"]
