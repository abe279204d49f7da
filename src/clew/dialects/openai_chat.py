"""OpenAI chat completions, and everybody who speaks their shape.

https://platform.openai.com/docs/api-reference/chat. Groq, Mistral, DeepSeek, xAI, OpenRouter,
Together, Fireworks, Perplexity, vLLM, llama.cpp, LiteLLM and others differ in extra fields only.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec
from msgspec import Struct

from clew.dialects._errors import error_body, error_of
from clew.dialects._openai_usage import RawUsage, usage_of
from clew.dialects._read import EMPTY, decode, is_empty, number, text
from clew.dialects._sse import SseReader
from clew.dialects._stream import QUIET, TELLS, text_holes
from clew.dialects._whole import WholeBodyReader, is_json
from clew.dialects.finish_reasons import finish_reasons
from clew.facts import RequestFacts, ResponseFacts, ToolCall
from clew.typing import Route, StreamReader

# --- request ---------------------------------------------------------------------------------------


class _Named(Struct, gc=False):
    name: str | None = None


class _Tool(Struct):
    type: str | None = None
    function: _Named | None = None
    custom: _Named | None = None
    name: str | None = None


class _Message(Struct, gc=False):
    tool_call_id: str | None = None


class _ResponseFormat(Struct, gc=False):
    type: str | None = None


class _Reasoning(Struct, gc=False):
    effort: str | None = None


class _Request(Struct):
    model: str | None = None
    stream: bool | None = None
    messages: list[_Message] | None = None
    tools: list[_Tool] | None = None
    functions: list[_Named] | None = None
    max_completion_tokens: int | None = None
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: float | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    seed: int | None = None
    random_seed: int | None = None
    n: int | None = None
    reasoning_effort: str | None = None
    reasoning: _Reasoning | None = None
    service_tier: str | None = None
    response_format: _ResponseFormat | None = None
    modalities: list[str] | None = None


_REQUEST: Final = msgspec.json.Decoder(_Request)
_NO_REQUEST: Final = RequestFacts()
_OUTPUT_TYPES: Final = {"text": "text", "json_object": "json", "json_schema": "json"}


def _tool_names(request: _Request) -> tuple[str, ...] | None:
    names: list[str] = []
    for tool in request.tools or ():
        named = tool.function or tool.custom
        name = (named.name if named is not None else None) or tool.name or tool.type
        if name:
            names.append(name)
    names.extend([function.name for function in request.functions or () if function.name])
    return tuple(names) if request.tools or request.functions else None


def _output_type(request: _Request) -> str | None:
    if request.modalities and "audio" in request.modalities:
        return "speech"
    if request.response_format is None:
        return None
    return _OUTPUT_TYPES.get(request.response_format.type or "")


def read_request(body: bytes, route: Route) -> RequestFacts:
    """Read a request in the chat completions shape."""
    request = decode(_REQUEST, body)
    if request is None:
        return _NO_REQUEST if route.model is None else RequestFacts(model=route.model)
    messages = request.messages
    effort = request.reasoning_effort
    if effort is None and request.reasoning is not None:
        effort = request.reasoning.effort
    return RequestFacts(
        model=text(request.model) or route.model,
        stream=bool(request.stream) or route.stream,
        max_tokens=request.max_completion_tokens
        if request.max_completion_tokens is not None
        else request.max_tokens,
        temperature=number(request.temperature),
        top_p=number(request.top_p),
        top_k=number(request.top_k),
        frequency_penalty=number(request.frequency_penalty),
        presence_penalty=number(request.presence_penalty),
        seed=request.seed if request.seed is not None else request.random_seed,
        choice_count=request.n,
        reasoning_level=effort,
        service_tier=request.service_tier,
        output_type=_output_type(request),
        messages=None if messages is None else len(messages),
        tools=_tool_names(request),
        tool_result_ids=tuple(
            [message.tool_call_id for message in messages or () if message.tool_call_id]
        ),
    )


# --- response --------------------------------------------------------------------------------------


class _Call(Struct, gc=False):
    index: int | None = None
    id: str | None = None
    function: _Named | None = None
    custom: _Named | None = None


class _Answer(Struct):
    content: msgspec.Raw = EMPTY
    refusal: msgspec.Raw = EMPTY
    reasoning: msgspec.Raw = EMPTY
    reasoning_content: msgspec.Raw = EMPTY
    audio: msgspec.Raw = EMPTY
    images: msgspec.Raw = EMPTY
    tool_calls: list[_Call] | None = None
    function_call: _Named | None = None

    def has_output(self) -> bool:
        """Tell whether any generated output is in it."""
        return bool(self.tool_calls or self.function_call) or not (
            is_empty(self.content)
            and is_empty(self.reasoning)
            and is_empty(self.reasoning_content)
            and is_empty(self.refusal)
            and is_empty(self.audio)
            and is_empty(self.images)
        )


class _Choice(Struct):
    index: int | None = None
    finish_reason: str | None = None
    message: _Answer | None = None
    delta: _Answer | None = None
    text: msgspec.Raw = EMPTY


class _Groq(Struct):
    usage: RawUsage | None = None
    error: msgspec.Raw = EMPTY


class _Response(Struct):
    id: str | None = None
    model: str | None = None
    choices: list[_Choice] | None = None
    usage: RawUsage | None = None
    error: msgspec.Raw = EMPTY
    service_tier: str | None = None
    system_fingerprint: str | None = None
    provider: str | None = None
    x_groq: _Groq | None = None


_RESPONSE: Final = msgspec.json.Decoder(_Response)


def _calls(message: _Answer | None) -> list[ToolCall]:
    if message is None:
        return []
    calls = [ToolCall(text(call.id), _call_name(call)) for call in message.tool_calls or ()]
    if not calls and message.function_call is not None and message.function_call.name:
        calls.append(ToolCall(None, message.function_call.name))
    return calls


def _call_name(call: _Call) -> str | None:
    named = call.function or call.custom
    return text(named.name) if named is not None else None


def read_response(body: bytes, status: int, route: Route) -> ResponseFacts:
    """Read a whole response in the chat completions shape."""
    response = decode(_RESPONSE, body)
    error = error_body(body, status)
    if response is None:
        return ResponseFacts(error=error)
    choices = response.choices or []
    if len(choices) > 1:
        choices.sort(key=lambda choice: choice.index or 0)
    words = tuple([text(choice.finish_reason) for choice in choices])
    usage = response.usage
    if usage is None and response.x_groq is not None:
        usage = response.x_groq.usage
    return ResponseFacts(
        id=text(response.id),
        model=text(response.model),
        finish_reasons=finish_reasons(words),
        finish_reasons_raw=words,
        tool_calls=tuple([call for choice in choices for call in _calls(choice.message)]),
        usage=usage_of(usage, route.provider),
        error=error or error_of(response.error),
        service_tier=text(response.service_tier),
        system_fingerprint=text(response.system_fingerprint),
        served_provider=text(response.provider),
    )


# --- stream ----------------------------------------------------------------------------------------


class ChatReader(SseReader):
    """Puts a streamed answer together; keeps names, ids and counts, never text."""

    __slots__ = (
        "_calls",
        "_error",
        "_fingerprint",
        "_finishes",
        "_id",
        "_model",
        "_provider",
        "_served",
        "_tier",
        "_usage",
    )
    holes = text_holes(
        "content", "text", "reasoning", "reasoning_content", "refusal", "arguments",
        "obfuscation", "p", "data", "transcript", "thinking",
    )  # fmt: skip

    def __init__(self, route: Route) -> None:
        super().__init__()
        self._provider = route.provider
        self._id: str | None = None
        self._model: str | None = None
        self._tier: str | None = None
        self._fingerprint: str | None = None
        self._served: str | None = None
        self._usage: RawUsage | None = None
        self._error = None
        self._finishes: dict[int, str | None] = {}
        self._calls: list[_OpenCall] = []

    def apply(self, payload: bytes) -> int:
        """Take one chunk."""
        chunk = decode(_RESPONSE, payload)
        if chunk is None:
            return TELLS
        self._id = self._id or text(chunk.id)
        self._model = self._model or text(chunk.model)
        self._fingerprint = self._fingerprint or text(chunk.system_fingerprint)
        self._served = self._served or text(chunk.provider)
        answer = QUIET
        for choice in chunk.choices or ():
            if self._choice(choice):
                answer = TELLS
        if chunk.service_tier:
            # The tier asked for stands in the first chunks, the tier served in the later ones.
            answer = answer if chunk.service_tier == self._tier else TELLS
            self._tier = chunk.service_tier
        usage = chunk.usage
        if usage is None and chunk.x_groq is not None:
            usage = chunk.x_groq.usage
            error = error_of(chunk.x_groq.error)
            self._error = self._error or error
        if usage is not None:
            self._usage, answer = usage, TELLS
        if not is_empty(chunk.error):
            self._error, answer = error_of(chunk.error), TELLS
        return answer

    def _choice(self, choice: _Choice) -> bool:
        """Take one choice of a chunk; tell whether it said anything besides text."""
        index = choice.index or 0
        finish = text(choice.finish_reason)
        if finish is not None or index not in self._finishes:
            self._finishes[index] = finish
        told = finish is not None
        if not is_empty(choice.text):
            self.started = True
        # A server that answers in one piece sends `message` where others send `delta`.
        piece = choice.delta if choice.delta is not None else choice.message
        if piece is None:
            return told
        if not self.started and piece.has_output():
            self.started = True
        for call in piece.tool_calls or ():
            told = self._call(index, call.index, text(call.id), _call_name(call)) or told
        if piece.function_call is not None:
            told = self._call(index, 0, None, text(piece.function_call.name)) or told
        return told

    def _call(self, choice: int, index: int | None, call_id: str | None, name: str | None) -> bool:
        if call_id is None and name is None:
            return False
        current = next(
            (
                call
                for call in reversed(self._calls)
                if call.choice == choice and (index is None or call.index == index)
            ),
            None,
        )
        # Some servers give every parallel call the index 0, or none: then the id tells them apart.
        if current is None or (call_id and current.id and call_id != current.id):
            position = index if index is not None else len(self._calls)
            self._calls.append(_OpenCall(choice, position, call_id, name))
            return True
        current.id = current.id or call_id
        if current.name is None:
            current.name = name
        elif name is not None and name != current.name:
            current.name += name
        return True

    def facts(self) -> ResponseFacts:
        """Return the facts learnt so far."""
        finishes = self._finishes
        words = tuple([finishes[index] for index in sorted(finishes)])
        calls = sorted(self._calls, key=lambda call: (call.choice, call.index))
        return ResponseFacts(
            id=self._id,
            model=self._model,
            finish_reasons=finish_reasons(words),
            finish_reasons_raw=words,
            tool_calls=tuple([ToolCall(call.id, call.name) for call in calls]),
            usage=usage_of(self._usage, self._provider),
            error=self._error,
            service_tier=self._tier,
            system_fingerprint=self._fingerprint,
            served_provider=self._served,
            complete=self.done or (bool(words) and None not in words),
        )


class _OpenCall:
    __slots__ = ("choice", "id", "index", "name")

    def __init__(self, choice: int, index: int, call_id: str | None, name: str | None) -> None:
        self.choice = choice
        self.index = index
        self.id = call_id
        self.name = name


class OpenAIChat:
    """Chat completions."""

    name = "openai_chat"

    def request(self, body: bytes, route: Route) -> RequestFacts:
        """Read a request body. Any bytes give facts, never an exception."""
        return read_request(body, route)

    def response(
        self, body: bytes, status: int, route: Route, headers: Mapping[str, str] | None = None
    ) -> ResponseFacts:
        """Read a whole response body. Any bytes give facts, never an exception."""
        return read_response(body, status, route)

    def stream(self, route: Route, content_type: str) -> StreamReader:
        """Return a reader for a streamed answer of this dialect."""
        if is_json(content_type):
            return WholeBodyReader(self, route)
        return ChatReader(route)


openai_chat: Final = OpenAIChat()
