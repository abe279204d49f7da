"""The content of model calls in the shapes of the GenAI conventions: bytes in, plain data out.

https://github.com/open-telemetry/semantic-conventions-genai, the JSON schemas of
`gen_ai.input.messages`, `gen_ai.output.messages`, `gen_ai.system_instructions` and
`gen_ai.tool.definitions`. Only read where the capture level lets content through: nothing here runs
otherwise. Formats that are not in `READERS` have no content, which is never an error.
"""

from __future__ import annotations

from typing import Any, Final, cast

from clew.content import (
    amazon,
    anthropic,
    cohere_v1,
    framing,
    gemini,
    gemini_interactions,
    listing,
    openai,
    openai_responses,
    others,
    texts_only,
)
from clew.content.shapes import Content, Reader, loads
from clew.typing import Beginning

READERS: Final[dict[str, Reader]] = {
    "openai_chat": openai.CHAT,
    "openai_completions": openai.COMPLETIONS,
    "openai_responses": openai_responses.RESPONSES,
    "anthropic_messages": anthropic.MESSAGES,
    "gemini_content": gemini.GEMINI,
    "gemini_interactions": gemini_interactions.INTERACTIONS,
    "ollama": others.OLLAMA,
    "cohere_chat": others.COHERE,
    "cohere_chat_v1": cohere_v1.COHERE_V1,
    "bedrock_converse": others.CONVERSE,
    "bedrock_invoke": amazon.INVOKE,
    "sagemaker": amazon.SAGEMAKER,
    "text_generation_inference": texts_only.TEXTS,
}
"""What reads the content of which dialect."""

_DECODERS: Final = {
    name: listing.decoder(reader.fields) for name, reader in READERS.items() if reader.fields
}
_EVENT_DECODERS: Final = {
    name: framing.decoder(reader.told) for name, reader in READERS.items() if reader.told
}

__all__ = ["READERS", "Content", "listings_of", "of_request", "of_response", "of_stream"]


def of_request(dialect: str, body: bytes) -> Content:
    """Return the content of a request; empty where there is none that can be read."""
    reader = READERS.get(dialect)
    data = _object(body)
    return Content() if reader is None or data is None else reader.request(data)


def listings_of(dialect: str, body: bytes, beginning: Beginning | None = None) -> listing.Listings:
    """Return the content of a request, to be decoded entry by entry as far as that is needed.

    Args:
        dialect: the name of its format.
        body: the request.
        beginning: what it may begin with, where that is known.
    """
    decoder = _DECODERS.get(dialect)
    if decoder is not None:
        try:
            return listing.listings(
                READERS[dialect].fields,
                decoder,
                body,
                lambda: of_request(dialect, body),
                beginning,
            )
        except (ValueError, RecursionError):
            pass
    found = of_request(dialect, body)
    return listing.Listings(found.system_instructions, found.input_messages, found.tool_definitions)


def of_response(dialect: str, body: bytes) -> list[dict[str, Any]] | None:
    """Return the output messages of a whole response."""
    reader = READERS.get(dialect)
    data = _object(body, listed=True)
    return None if reader is None or data is None else reader.response(data) or None


def of_stream(dialect: str, content_type: str, body: bytes) -> list[dict[str, Any]] | None:
    """Return the output messages of a streamed response, as far as it has come."""
    reader = READERS.get(dialect)
    if reader is None:
        return None
    some = _EVENT_DECODERS.get(dialect)
    events = framing.events_of(content_type, body, some, reader.growing, reader.closing)
    return reader.events(events) or None


def _object(body: bytes, *, listed: bool = False) -> dict[str, Any] | None:
    """Return a body that is an object; with `listed`, of one that is a list, `{"list": ...}`."""
    try:
        data = loads(body)
    except (ValueError, RecursionError):
        return None
    if listed and isinstance(data, list):
        return {"list": data}
    return cast("dict[str, Any]", data) if isinstance(data, dict) else None
