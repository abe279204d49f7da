"""Groq: the chat completions shape (https://console.groq.com/docs/api-reference#chat).

Usage of a stream comes in `x_groq` without being asked for. A model's reasoning comes in
`reasoning` with `extra={"reasoning_format": "parsed"}`, else in tags in front of the text.
"""

from __future__ import annotations

from clew.providers._openai_shape import ChatCompletions


class GroqProvider(ChatCompletions):
    """The adapter `groq`."""

    name = "groq"
    semconv_name = "groq"
    key_variables = ("GROQ_API_KEY",)
    default_base_url = "https://api.groq.com/openai/v1"
