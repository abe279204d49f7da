"""OpenAI embeddings and moderations, and whoever else speaks their shape.

https://platform.openai.com/docs/api-reference/embeddings. Voyage and Jina report the total only:
it is all input.
"""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import Struct

from clew.dialects._dialect import Answer, WireDialect
from clew.dialects._errors import error_of
from clew.dialects._openai_usage import RawUsage, usage_of
from clew.dialects._read import EMPTY, decode, text
from clew.dialects._unknown import UnknownReader
from clew.facts import RequestFacts, ResponseFacts
from clew.typing import Route


class _Request(Struct):
    model: str | None = None
    dimensions: int | None = None
    output_dimension: int | None = None
    encoding_format: str | None = None
    service_tier: str | None = None


class _Response(Struct):
    id: str | None = None
    model: str | None = None
    usage: RawUsage | None = None
    error: msgspec.Raw = EMPTY
    provider: str | None = None


_REQUEST: Final = msgspec.json.Decoder(_Request)
_RESPONSE: Final = msgspec.json.Decoder(_Response)


def read_request(body: bytes, route: Route) -> RequestFacts:
    """Read an embeddings request."""
    request = decode(_REQUEST, body)
    if request is None:
        return RequestFacts(model=route.model)
    encoding = text(request.encoding_format)
    return RequestFacts(
        model=text(request.model) or route.model,
        dimensions=request.dimensions
        if request.dimensions is not None
        else request.output_dimension,
        encoding_formats=() if encoding is None else (encoding,),
        service_tier=text(request.service_tier),
    )


def read_response(answer: Answer) -> ResponseFacts:
    """Read an embeddings, rerank or moderation response."""
    response = decode(_RESPONSE, answer.body)
    if response is None:
        return ResponseFacts()
    usage = response.usage
    if usage is not None and usage.prompt_tokens is None and usage.input_tokens is None:
        usage.prompt_tokens = usage.total_tokens
    return ResponseFacts(
        id=text(response.id),
        model=text(response.model),
        usage=usage_of(usage, answer.route.provider),
        error=error_of(response.error),
        served_provider=text(response.provider),
    )


openai_embeddings: Final = WireDialect(
    "openai_embeddings", read_request, read_response, lambda _: UnknownReader()
)
