"""Gemini's generateContent family, on the Gemini API and on Vertex AI.

https://ai.google.dev/api/generate-content, https://ai.google.dev/api/embeddings,
https://cloud.google.com/vertex-ai/generative-ai/docs/model-reference/inference. A stream is a
series of server-sent events with `alt=sse`, and one JSON array without.
"""

from __future__ import annotations

from typing import Any, Final, cast

import msgspec
from msgspec import Struct

from clew.dialects._dialect import Answer, WireDialect
from clew.dialects._errors import error_of
from clew.dialects._gemini_shape import RESPONSE, Candidate, GeminiResponse, UsageMetadata, usage_of
from clew.dialects._json_array import JsonArrayReader
from clew.dialects._read import count, decode, is_empty, loads, number, text
from clew.dialects._sse import SseReader
from clew.dialects._stream import COUNTS, QUIET, TELLS, EventReader
from clew.dialects._template import holes
from clew.dialects.finish_reasons import finish_reasons
from clew.facts import ErrorFacts, RequestFacts, ResponseFacts, ToolCall, Usage
from clew.typing import Route


class _Named(Struct, gc=False):
    name: str | None = None


class _ThinkingConfig(Struct, rename="camel", gc=False):
    thinking_level: str | None = None


class _Config(Struct, rename="camel"):
    max_output_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: float | None = None
    seed: int | None = None
    candidate_count: int | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    response_mime_type: str | None = None
    response_modalities: list[str] | None = None
    thinking_config: _ThinkingConfig | None = None


class _Result(Struct, gc=False):
    id: str | None = None


class _RequestPart(Struct, rename="camel"):
    function_response: _Result | None = None


class _RequestContent(Struct):
    parts: list[_RequestPart] | None = None


class _Entry(Struct, gc=False):
    pass


class _EmbedRequest(Struct, rename="camel"):
    model: str | None = None
    output_dimensionality: int | None = None


class _Request(Struct, rename="camel"):
    model: str | None = None
    contents: list[_Entry] | _Entry | None = None
    tools: list[dict[str, msgspec.Raw]] | None = None
    generation_config: _Config | None = None
    service_tier: str | None = None
    output_dimensionality: int | None = None
    requests: list[_EmbedRequest] | None = None


class _Results(Struct):
    contents: list[_RequestContent] | None = None


_REQUEST: Final = msgspec.json.Decoder(_Request)
_RESULTS: Final = msgspec.json.Decoder(_Results)
_DECLARATIONS: Final = msgspec.json.Decoder(list[_Named])
_CONFIG: Final = msgspec.json.Decoder(_Config)
_OUTPUT_TYPES: Final = {"application/json": "json", "text/x.enum": "json", "text/plain": "text"}
_NO_CONFIG: Final = _Config()


def read_request(body: bytes, route: Route) -> RequestFacts:
    """Read a request; the model is in the path."""
    request = decode(_REQUEST, body)
    if request is None:
        return RequestFacts(model=route.model, stream=route.stream)
    config = request.generation_config or _snake_config(body)
    first = request.requests[0] if request.requests else None
    contents = request.contents
    thinking = config.thinking_config
    return RequestFacts(
        model=route.model or text(request.model),
        stream=route.stream,
        max_tokens=config.max_output_tokens,
        temperature=number(config.temperature),
        top_p=number(config.top_p),
        top_k=number(config.top_k),
        frequency_penalty=number(config.frequency_penalty),
        presence_penalty=number(config.presence_penalty),
        seed=config.seed,
        choice_count=config.candidate_count,
        reasoning_level=text(thinking.thinking_level) if thinking is not None else None,
        service_tier=text(request.service_tier),
        output_type=_output_type(config),
        dimensions=request.output_dimensionality or (first and first.output_dimensionality),
        messages=len(contents) if isinstance(contents, list) else (1 if contents else None),
        tools=_tool_names(request.tools),
        tool_result_ids=_tool_result_ids(body),
    )


def _snake_config(body: bytes) -> _Config:
    """Google's JSON takes field names in either spelling."""
    if b'"generation_config"' not in body:
        return _NO_CONFIG
    value: Any = loads(body)
    given = cast("dict[str, Any]", value).get("generation_config")
    if not isinstance(given, dict):
        return _NO_CONFIG
    fields = cast("dict[str, Any]", given)
    camel = {_camel(key): value for key, value in fields.items()}
    return decode(_CONFIG, msgspec.json.encode(camel)) or _NO_CONFIG


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.title() for word in rest)


def _output_type(config: _Config) -> str | None:
    modalities = config.response_modalities or ()
    if "AUDIO" in modalities:
        return "speech"
    if "IMAGE" in modalities:
        return "image"
    return _OUTPUT_TYPES.get(config.response_mime_type or "")


def _tool_names(tools: list[dict[str, msgspec.Raw]] | None) -> tuple[str, ...] | None:
    """Names of declared functions, and of the provider's own tools as they are spelled."""
    if not tools:
        return None
    names: list[str] = []
    for tool in tools:
        for key, value in tool.items():
            if key in ("functionDeclarations", "function_declarations"):
                declared = decode(_DECLARATIONS, value) or []
                names.extend([function.name for function in declared if function.name])
            else:
                names.append(key)
    return tuple(names)


def _tool_result_ids(body: bytes) -> tuple[str, ...]:
    if b'"functionResponse"' not in body:
        return ()
    results = decode(_RESULTS, body)
    return tuple(
        [
            part.function_response.id
            for content in (results.contents if results is not None else None) or ()
            for part in content.parts or ()
            if part.function_response is not None and part.function_response.id
        ]
    )


def read_response(answer: Answer) -> ResponseFacts:
    """Read a whole response: content, vectors, a created cache."""
    if answer.route.operation == "count_tokens":  # its total is the answer, not a usage
        return ResponseFacts()
    response = decode(RESPONSE, answer.body)
    if response is None:
        return ResponseFacts()
    gathered = Gathered()
    gathered.take(response)
    return gathered.facts(complete=True)


class Gathered:
    """What the chunks of an answer have said; a whole response is one chunk."""

    __slots__ = ("calls", "error", "finishes", "id", "model", "usage", "vectors")

    def __init__(self) -> None:
        self.id: str | None = None
        self.model: str | None = None
        self.finishes: dict[int, str | None] = {}
        self.calls: list[tuple[int, ToolCall]] = []
        self.usage: UsageMetadata | None = None
        self.vectors: Usage | None = None
        self.error: ErrorFacts | None = None

    def take(self, chunk: GeminiResponse) -> tuple[int, bool]:
        """Add a chunk; answer as `EventReader.apply` does, and whether it carried output."""
        self.id = self.id or text(chunk.response_id)
        self.model = self.model or text(chunk.model_version) or text(chunk.model)
        answer, output = QUIET, False
        for candidate in chunk.candidates or ():
            told, has_output = self._candidate(candidate)
            answer = TELLS if told else answer
            output = output or has_output
        usage = chunk.usage_metadata
        if usage is not None:
            if self.usage is None:
                self.usage = usage
            else:
                self.usage.overlay(usage)
            answer = COUNTS if answer == QUIET else answer
        if chunk.predictions:
            self.vectors = _vectors(chunk)
        if not is_empty(chunk.error):
            self.error, answer = error_of(chunk.error), TELLS
        return answer, output

    def _candidate(self, candidate: Candidate) -> tuple[bool, bool]:
        index = candidate.index or 0
        finish = text(candidate.finish_reason)
        if finish is not None or index not in self.finishes:
            self.finishes[index] = finish
        told, output = finish is not None, False
        parts = candidate.content.parts if candidate.content is not None else None
        for part in parts or ():
            output = output or part.has_output()
            call = part.function_call
            if call is not None:
                told = True
                self.calls.append((index, ToolCall(text(call.id), text(call.name))))
        return told, output

    def facts(self, *, complete: bool) -> ResponseFacts:
        """Return the facts gathered."""
        words = tuple([self.finishes[index] for index in sorted(self.finishes)])
        calls = sorted(self.calls, key=lambda entry: entry[0])
        return ResponseFacts(
            id=self.id,
            model=self.model,
            finish_reasons=finish_reasons(words),
            finish_reasons_raw=words,
            tool_calls=tuple([call for _, call in calls]),
            usage=self.vectors or usage_of(self.usage),
            error=self.error,
            service_tier=None if self.usage is None else text(self.usage.service_tier),
            complete=complete,
        )

    def finished(self) -> bool:
        """Tell whether every candidate has said why it ended, or there was none to."""
        return None not in self.finishes.values() and (
            bool(self.finishes) or self.usage is not None
        )


def _vectors(chunk: GeminiResponse) -> Usage | None:
    """Vertex's `predict` counts tokens for each vector."""
    counts = [
        tokens
        for prediction in chunk.predictions or ()
        if prediction.embeddings is not None
        and prediction.embeddings.statistics is not None
        and (tokens := count(prediction.embeddings.statistics.token_count)) is not None
    ]
    return Usage(input_tokens=sum(counts)) if counts else None


_HOLES: Final = holes("text", "thoughtSignature")


class _GatheringReader(EventReader):
    __slots__ = ()
    _gathered: Gathered
    holes = _HOLES

    def apply(self, payload: bytes) -> int:
        """Take one chunk."""
        chunk = decode(RESPONSE, payload)
        if chunk is None:
            return TELLS
        answer, output = self._gathered.take(chunk)
        self.started = self.started or output
        return answer

    def facts(self) -> ResponseFacts:
        """Return the facts learnt so far."""
        return self._gathered.facts(complete=self._gathered.finished())


class GeminiReader(_GatheringReader, SseReader):
    """A stream of server-sent events."""

    __slots__ = ("_gathered",)

    def __init__(self) -> None:
        super().__init__()
        self._gathered = Gathered()


class GeminiArrayReader(_GatheringReader, JsonArrayReader):
    """A stream that is one JSON array of chunks."""

    __slots__ = ("_gathered",)

    def __init__(self) -> None:
        super().__init__()
        self._gathered = Gathered()


gemini_content: Final = WireDialect(
    "gemini_content",
    read_request,
    read_response,
    lambda _: GeminiReader(),
    lambda _: GeminiArrayReader(),
    names_errors=True,
    conversation="contents",
)
