"""The Gemini generateContent shape on the wire, as far as facts go."""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import Struct

from clew.dialects._read import EMPTY, Count, is_empty
from clew.facts import Usage


class ModalityCount(Struct, rename="camel", gc=False):
    """Tokens of one modality."""

    modality: str | None = None
    token_count: Count | None = None


class UsageMetadata(Struct, rename="camel"):
    """A usage object: https://ai.google.dev/api/generate-content#UsageMetadata."""

    prompt_token_count: Count | None = None
    candidates_token_count: Count | None = None
    thoughts_token_count: Count | None = None
    tool_use_prompt_token_count: Count | None = None
    cached_content_token_count: Count | None = None
    total_token_count: Count | None = None
    prompt_tokens_details: list[ModalityCount] | None = None
    prompt_token_details: list[ModalityCount] | None = None
    tool_use_prompt_tokens_details: list[ModalityCount] | None = None
    candidates_tokens_details: list[ModalityCount] | None = None
    cache_tokens_details: list[ModalityCount] | None = None
    service_tier: str | None = None

    def overlay(self, later: UsageMetadata) -> None:
        """Let each field that `later` reports replace the earlier report: counts are cumulative."""
        for field in self.__struct_fields__:
            value = getattr(later, field)
            if value is not None:
                setattr(self, field, value)


class FunctionCall(Struct, gc=False):
    """A call that the client has to carry out."""

    id: str | None = None
    name: str | None = None


class Part(Struct, rename="camel"):
    """A piece of content."""

    text: msgspec.Raw = EMPTY
    function_call: FunctionCall | None = None
    inline_data: msgspec.Raw = EMPTY
    executable_code: msgspec.Raw = EMPTY
    tool_call: msgspec.Raw = EMPTY

    def has_output(self) -> bool:
        """Tell whether anything generated is in it."""
        return self.function_call is not None or not (
            is_empty(self.text)
            and is_empty(self.inline_data)
            and is_empty(self.executable_code)
            and is_empty(self.tool_call)
        )


class Content(Struct):
    """Parts of one turn."""

    parts: list[Part] | None = None


class Candidate(Struct, rename="camel"):
    """One answer, whole or a piece of it."""

    index: int | None = None
    content: Content | None = None
    finish_reason: str | None = None


class Prediction(Struct):
    """One vector of Vertex's `predict`."""

    embeddings: Embeddings | None = None


class Embeddings(Struct):
    """A vector's statistics."""

    statistics: Statistics | None = None


class Statistics(Struct, gc=False):
    """How many tokens went into a vector."""

    token_count: Count | None = None


class GeminiResponse(Struct, rename="camel"):
    """A whole response, or one chunk of a stream."""

    response_id: str | None = None
    model_version: str | None = None
    model: str | None = None
    candidates: list[Candidate] | None = None
    usage_metadata: UsageMetadata | None = None
    predictions: list[Prediction] | None = None
    error: msgspec.Raw = EMPTY


RESPONSE: Final = msgspec.json.Decoder(GeminiResponse)


def usage_of(raw: UsageMetadata | None) -> Usage | None:
    """Return token counts under the inclusive rule.

    The total is prompt (cached content inside) + tool-use prompt + candidates + thoughts. Tokens
    of tool-use prompts are input, thoughts are output.
    """
    if raw is None:
        return None
    prompt, tool_prompt = raw.prompt_token_count, raw.tool_use_prompt_token_count
    answer, thoughts = raw.candidates_token_count, raw.thoughts_token_count
    total = raw.total_token_count
    input_tokens, output_tokens = _sum(prompt, tool_prompt), _sum(answer, thoughts)
    if input_tokens is None and output_tokens is None:
        input_tokens = total  # a cache that was created: all of it was read in
    if input_tokens is None and total is None:
        return None if output_tokens is None else _usage(raw, None, output_tokens, thoughts)
    mismatch = (
        total is not None
        and input_tokens is not None
        and output_tokens is not None
        and input_tokens + output_tokens != total
    )
    return _usage(raw, input_tokens, output_tokens, thoughts, mismatch=mismatch)


def _usage(
    raw: UsageMetadata,
    input_tokens: int | None,
    output_tokens: int | None,
    thoughts: int | None,
    *,
    mismatch: bool = False,
) -> Usage:
    prompt = (raw.prompt_tokens_details or raw.prompt_token_details or []) + (
        raw.tool_use_prompt_tokens_details or []
    )
    made = raw.candidates_tokens_details
    return Usage(
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        cache_read_tokens=raw.cached_content_token_count,
        reasoning_tokens=thoughts,
        input_audio_tokens=_of(prompt, "AUDIO"),
        output_audio_tokens=_of(made, "AUDIO"),
        cache_read_audio_tokens=_of(raw.cache_tokens_details, "AUDIO"),
        input_image_tokens=_of(prompt, "IMAGE"),
        output_image_tokens=_of(made, "IMAGE"),
        mismatch=mismatch,
    )


def _sum(*counts: int | None) -> int | None:
    known = [value for value in counts if value is not None]
    return sum(known) if known else None


def _of(details: list[ModalityCount] | None, modality: str) -> int | None:
    counts = [entry.token_count for entry in details or () if entry.modality == modality]
    return _sum(*counts)
